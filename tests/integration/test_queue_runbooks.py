"""Every command of the queue's runbook pages, typed as it stands, on real servers in exactly the state it describes."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.services.runbooks import page_named
from tests.support.brokers import Broker
from tests.support.queue_pages import QUEUE_PAGES
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.broker]

PATIENCE_SECONDS = 30.0
_PROMISED = re.compile(r"#\s*exit (\d+)")


@pytest.fixture(scope="module")
def servers(
    cassandra: CassandraServer, rabbitmq: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealQueue]:
    home = tmp_path_factory.mktemp("home")
    with real_queue(cassandra, rabbitmq, home, {"MAILMEND_BLOBS": f"file://{home}/blobs"}) as queue:
        yield queue


@pytest.mark.parametrize("name", QUEUE_PAGES)
def test_every_command_does_what_its_page_says(servers: RealQueue, name: str) -> None:
    """Walked from top to bottom, each command ends with the code that the page promises.

    The broker's own counts lag behind what was done by a second or two, so a command that reads them gets the time.
    """
    servers.empty()
    QUEUE_PAGES[name](servers)
    mails = servers("browse", "--json").json["mails"]

    for command in page_named(name).commands():
        promised = _PROMISED.search(command)
        words = _filled(servers, command, mails[0]["id"] if mails else "")
        _end_with(servers, words, int(promised[1] if promised else 0))


def test_a_removed_mail_is_back_at_the_end_of_its_page(servers: RealQueue) -> None:
    servers.empty()
    QUEUE_PAGES["mail-must-be-removed-now"](servers)
    page = page_named("mail-must-be-removed-now")
    (mail, *_) = servers("browse", "--json").json["mails"]

    for command in (*page.commands("Do"), *page.commands("Verify")):
        servers.line(*_filled(servers, command, mail["id"]))
    assert servers.names() == ["letter"]

    for command in page.commands("Undo"):
        servers.line(*_filled(servers, command, mail["id"]))
    assert sorted(servers.names()) == ["letter", "mistake"]


def test_what_the_broker_lost_is_delivered_at_the_end_of_its_page(servers: RealQueue, tmp_path: Path) -> None:
    servers.empty()
    QUEUE_PAGES["rabbitmq-was-lost"](servers)

    for command in page_named("rabbitmq-was-lost").commands("Do"):
        servers.line(*_filled(servers, command, ""))

    assert servers("dequeue", "--to", str(tmp_path), "--limit", "2", "--wait", "20s", "--json").json["acked"] == 2


def _filled(queue: RealQueue, command: str, mail: str) -> list[str]:
    kept = sorted(queue.line.home.rglob("queue/*.jsonl.gz"), key=lambda file: file.stat().st_mtime)
    filled = {
        "$KEYSPACE": queue.keyspace.name,
        "$QUEUE": queue.name,
        "$MAIL": mail,
        "$KEPT": str(kept[-1]) if kept else "",
    }
    for placeholder, value in filled.items():
        command = command.replace(placeholder, value)
    first, *words = shlex.split(command, comments=True)
    assert first == "mailmend"
    return words


def _end_with(queue: RealQueue, words: list[str], code: int) -> None:
    deadline = time.monotonic() + (PATIENCE_SECONDS if _only_looks(words) else 0)
    while (ended := queue.line(*words)).code != code:
        assert time.monotonic() < deadline, f"{shlex.join(words)}\n{ended.code}\n{ended.out}\n{ended.err}"
        time.sleep(0.5)


def _only_looks(words: list[str]) -> bool:
    return words[1] in {"health", "reconcile"} and "--mark" not in words and "--republish" not in words
