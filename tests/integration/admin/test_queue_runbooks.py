"""Every command of the queue's runbook pages, typed as it stands, on real servers in exactly the state it describes."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import SECTIONS, page_named
from mailmend.model.catalog.mail_queue import DELETED_MAILS
from mailmend.model.operations import Scan
from tests.support.brokers import Broker
from tests.support.nodetool import nodetool_of
from tests.support.queue_pages import QUEUE_PAGES, YOUNG, blobs_of, rows, walk
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


def young_and_referred_are_left(queue: RealQueue) -> None:
    """Of the blobs there are those of the mail that waits and the young one; and the file that is no blob."""
    (mail,) = rows(queue)
    left = {file.name for file in blobs_of(queue).iterdir()}
    assert left >= {mail["headerblobid"], mail["bodyblobid"], YOUNG, "backup.tar"}
    assert not [file for file in blobs_of(queue).iterdir() if file.name != "backup.tar" and not file.stat().st_mtime]


def one_mail_is_left(queue: RealQueue) -> None:
    assert queue.names() == ["letter"]


def both_mails_are_there(queue: RealQueue) -> None:
    assert sorted(queue.names()) == ["letter", "mistake"]


def no_mark_is_left(queue: RealQueue) -> None:
    assert not list(queue.keyspace.scan(Scan(DELETED_MAILS, DELETED_MAILS.names)))


def what_was_lost_is_delivered(queue: RealQueue) -> None:
    taken = queue("dequeue", "--dir", "delivered", "--limit", "2", "--wait", "20s", "--json")
    assert taken.json["acked"] == 2


OUTCOMES: Mapping[tuple[str, str], Callable[[RealQueue], None]] = {
    ("collect-unreferenced-blobs", "Do"): young_and_referred_are_left,
    ("mail-must-be-removed-now", "Verify"): one_mail_is_left,
    ("mail-must-be-removed-now", "Undo"): both_mails_are_there,
    ("marks-never-expire", "Do"): no_mark_is_left,
    ("rabbitmq-was-lost", "Undo"): what_was_lost_is_delivered,
}
"""What has come to pass at the end of a section."""


@pytest.mark.parametrize("name", QUEUE_PAGES)
def test_every_command_does_what_its_page_says(
    servers: RealQueue, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walked from top to bottom, each command ends as the page promises, and `OUTCOMES` come to pass.

    The broker's own counts lag behind what was done by a second or two, so a command that reads them gets the time.
    """
    monkeypatch.chdir(tmp_path)
    servers.empty()
    QUEUE_PAGES[name](servers)
    mails = servers("browse", "--json").json["mails"]

    for section in SECTIONS:
        walk(servers, page_named(name).steps(section), mails[0]["id"] if mails else "")
        if outcome := OUTCOMES.get((name, section)):
            outcome(servers)
