"""What scripts rely on in every answer of `mailmend queue`: one object, and in it the code with which it ended."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from mailmend.admin.frame.command import DeclaredGroup, made
from mailmend.admin.queue.group import QUEUE
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail_queue import BROWSE_START
from mailmend.model.operations import Conditional, Write
from tests.support.commands import Ended
from tests.support.queue_commands import KEYSPACE, QueueShell
from tests.support.queues import CONTENT

ASKED = [
    "list",
    "size",
    "size --recount",
    "browse",
    "browse --with-content",
    "enqueue FILE --recipient bob@example.org --dry-run",
    "enqueue FILE --recipient bob@example.org",
    "dequeue --dry-run",
    "dequeue --dir FOLDER --limit 1",
    "delete --name one --dry-run",
    "delete --name one",
    "purge --dry-run",
    "purge --yes",
    "restore KEPT --dry-run",
    "restore KEPT",
    "flush --dry-run",
    "flush",
    "sweep --dry-run",
    "sweep --move-only --dry-run",
    "sweep",
    "sweep --move-only",
    "tend --dry-run",
    "tend --all --dry-run",
    "tend --once",
    "reconcile",
    "reconcile --republish --dry-run",
    "reconcile --drain --yes",
    "republish --dry-run",
    "republish",
    "redrive --dry-run",
    "redrive",
    "health",
]
APART = {"configure", "advise", "move"}
"""They ask more than one queue: `test_queue_configure`, `test_queue_advising` and `test_moving` hold them to it."""


def test_every_command_that_answers_in_json_is_asked() -> None:
    group = made(QUEUE)
    assert isinstance(group, DeclaredGroup)
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    answering = {
        name for name, found in commands.items() if found and any("--json" in one.opts for one in found.params)
    }
    assert {line.split()[0] for line in ASKED} | APART == answering


@pytest.mark.parametrize("line", ASKED)
def test_the_answer_tells_how_it_ended(queue: QueueShell, tmp_path: Path, line: str) -> None:
    (tmp_path / "mail.eml").write_bytes(CONTENT)
    queue.put("kept", "one")
    kept = queue("delete", "--name", "kept", "--json").json["kept"]
    places = {"FILE": str(tmp_path / "mail.eml"), "FOLDER": str(tmp_path / "mails"), "KEPT": kept}

    ended = queue(*(places.get(word, word) for word in line.split()), "--json")

    assert ended.out, ended.err
    assert ended.json["exit"] == ended.code, ended.err
    assert "keyspace" in ended.json


@pytest.mark.parametrize("line", [line for line in ASKED if line.endswith("--dry-run")])
def test_a_dry_run_writes_nothing(queue: QueueShell, tmp_path: Path, line: str) -> None:
    (tmp_path / "mail.eml").write_bytes(CONTENT)
    places = {"FILE": str(tmp_path / "mail.eml"), "FOLDER": str(tmp_path / "mails")}
    words = [*(places.get(word, word) for word in line.split()), "--json"]
    tables = queue.cluster.keyspace(KEYSPACE)

    def forbid(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        assert not isinstance(operation, Write | Conditional), operation
        return carry_out()

    def looked() -> Ended:
        blobs, published, surround = set(queue.blobs.ids), list(queue.broker.published), tables.surround
        tables.surround = forbid
        ended = queue(*words)
        tables.surround = surround
        assert (set(queue.blobs.ids), list(queue.broker.published)) == (blobs, published)
        return ended

    if "KEPT" not in words:
        assert looked().json["dry_run"] is True
    queue.put("kept", "done", "lost")
    queue.put_later("later", timedelta(minutes=5))
    places["KEPT"] = queue("delete", "--name", "kept", "--json").json["kept"]
    words = [places.get(word, word) for word in words]
    queue.pass_time(hours=9)
    queue.put_start(BROWSE_START, queue.now - timedelta(hours=5))
    assert looked().json["dry_run"] is True
