"""What scripts rely on in every answer of `mailmend queue`: one object, and in it the code with which it ended."""

from pathlib import Path

import click
import pytest

from admin.cli.queue import queue as group
from tests.support.queue_commands import QueueShell
from tests.support.queues import CONTENT

ASKED = [
    "list",
    "size",
    "size --recount",
    "browse",
    "browse --with-content",
    "enqueue FILE --recipient bob@example.org",
    "dequeue --to FOLDER --limit 1",
    "delete --name one --dry-run",
    "delete --name one",
    "purge --dry-run",
    "purge --yes",
    "restore KEPT --dry-run",
    "restore KEPT",
    "flush --dry-run",
    "flush",
    "sweep",
    "sweep --move-only",
    "tend --once",
    "reconcile",
    "reconcile --drain --yes",
    "republish --dry-run",
    "republish",
    "redrive --dry-run",
    "redrive",
    "health",
]
APART = {"configure", "advise"}
"""They ask more of a cluster than a queue does: `test_queue_configure` and `test_queue_advising` hold them to it."""


def test_every_command_that_answers_in_json_is_asked() -> None:
    """One that is new belongs here too."""
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    answering = {
        name for name, found in commands.items() if found and any("--json" in one.opts for one in found.params)
    }
    assert {line.split()[0] for line in ASKED} | APART == answering


@pytest.mark.parametrize("line", ASKED)
def test_the_answer_tells_how_it_ended(queue: QueueShell, tmp_path: Path, line: str) -> None:
    """The same as the process, so that it is known behind a pipe too."""
    (tmp_path / "mail.eml").write_bytes(CONTENT)
    queue.put("kept", "one")
    kept = queue("delete", "--name", "kept", "--json").json["kept"]
    places = {"FILE": str(tmp_path / "mail.eml"), "FOLDER": str(tmp_path / "mails"), "KEPT": kept}

    ended = queue(*(places.get(word, word) for word in line.split()), "--json")

    assert ended.out, ended.err
    assert ended.json["exit"] == ended.code, ended.err
    assert "keyspace" in ended.json
