"""Every command of the queue's runbook pages, typed as it stands, on real servers in exactly the state it describes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.services.runbooks import page_named
from model.catalog.mail_queue import DELETED_MAILS
from model.operations import Scan
from tests.support.brokers import Broker
from tests.support.nodetool import nodetool_of
from tests.support.queue_pages import QUEUE_PAGES, blobs_of, filled, rows, walk
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.broker]


@pytest.fixture(scope="module")
def servers(
    cassandra: CassandraServer, rabbitmq: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealQueue]:
    home = tmp_path_factory.mktemp("home")
    delayed = ("CHECK", "REPAIR_QUEUES", "REPAIR_BLOBS")
    at_once = {f"MAILMEND_{command}_DELAY": "0" for command in delayed}
    at_once |= {"MAILMEND_CHECK_ENGINE": "local", "MAILMEND_REPAIR_BLOBS_ENGINE": "local"}
    at_once |= {"MAILMEND_POLICY_SIMULATE_ENGINE": "local"}
    nodetool = {"MAILMEND_REPAIR_QUEUES_NODETOOL": nodetool_of(cassandra, home)}
    with real_queue(
        cassandra, rabbitmq, home, {"MAILMEND_BLOBS": f"file://{home}/blobs", **at_once, **nodetool}
    ) as queue:
        yield queue


@pytest.mark.parametrize("name", QUEUE_PAGES)
def test_every_command_does_what_its_page_says(
    servers: RealQueue, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walked from top to bottom, each command ends with the code that the page promises.

    The broker's own counts lag behind what was done by a second or two, so a command that reads them gets the time.
    """
    monkeypatch.chdir(tmp_path)
    servers.empty()
    QUEUE_PAGES[name](servers)
    mails = servers("browse", "--json").json["mails"]

    walk(servers, page_named(name).steps(), mails[0]["id"] if mails else "")


def test_what_nothing_refers_to_is_gone_at_the_end_of_its_page(
    servers: RealQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    servers.empty()
    QUEUE_PAGES["collect-unreferenced-blobs"](servers)
    (mail,) = rows(servers)
    young = {file.name for file in blobs_of(servers).iterdir() if file.stat().st_mtime}

    for command in page_named("collect-unreferenced-blobs").commands("Do"):
        assert servers.line(*filled(servers, command, "")).code == 0

    assert {mail["headerblobid"], mail["bodyblobid"]} < young
    assert {file.name for file in blobs_of(servers).iterdir()} == young | {"backup.tar"}


def test_a_removed_mail_is_back_at_the_end_of_its_page(servers: RealQueue) -> None:
    servers.empty()
    QUEUE_PAGES["mail-must-be-removed-now"](servers)
    page = page_named("mail-must-be-removed-now")
    (mail, *_) = servers("browse", "--json").json["mails"]

    for command in (*page.commands("Do"), *page.commands("Verify")):
        servers.line(*filled(servers, command, mail["id"]))
    assert servers.names() == ["letter"]

    for command in page.commands("Undo"):
        servers.line(*filled(servers, command, mail["id"]))
    assert sorted(servers.names()) == ["letter", "mistake"]


def test_no_mark_is_left_at_the_end_of_its_page(servers: RealQueue) -> None:
    servers.empty()
    QUEUE_PAGES["marks-never-expire"](servers)

    for command in page_named("marks-never-expire").commands("Do"):
        assert servers.line(*filled(servers, command, "")).code == 0
    assert not list(servers.keyspace.scan(Scan(DELETED_MAILS, DELETED_MAILS.names)))


def test_what_the_broker_lost_is_delivered_at_the_end_of_its_page(servers: RealQueue, tmp_path: Path) -> None:
    servers.empty()
    QUEUE_PAGES["rabbitmq-was-lost"](servers)

    for command in page_named("rabbitmq-was-lost").commands("Do"):
        servers.line(*filled(servers, command, ""))

    assert servers("dequeue", "--dir", str(tmp_path), "--limit", "2", "--wait", "20s", "--json").json["acked"] == 2
