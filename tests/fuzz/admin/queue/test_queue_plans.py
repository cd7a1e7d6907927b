"""Plans of queues and of blobs that somebody changed and sealed again: applied, or refused before anything is done."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.operations import Scan
from tests.support.fuzzing import fuzzing, sealed, spoilt_document
from tests.support.queue_commands import JAMES, KEYSPACE, QueueShell, queue_shell
from tests.support.queue_reconciled import stray_blob

PLANNED = {
    "queues": ("repair", "queues", "--marks", "empty"),
    "blobs": ("repair", "blobs", "--generation", "1h", "--oldest-message", "3d"),
}
HOW = ("--engine", "local", "--delay", "0s", "--json")
Planned = tuple[QueueShell, list[str], frozenset[str]]
"""A shell on a queue, the lines of a plan of it without the seal, and the blobs of the mail that waits."""


def planned(monkeypatch: pytest.MonkeyPatch, home: Path, what: str) -> Planned:
    """A queue with two delivered mails, two blobs that nothing refers to and, for blobs, a mail that waits."""
    shell = queue_shell(monkeypatch, home, JAMES)
    shell.put("a", "b")
    shell.delivered(2)
    strays = {stray_blob(shell), stray_blob(shell)}
    shell.pass_time(days=9)
    before = shell.blobs.ids | strays
    if what == "blobs":
        shell.put("waits")
        shell.pass_time(hours=1)
    file = home / "plan.jsonl"
    ended = shell.line(*PLANNED[what], *HOW, "--plan", str(file))
    assert ended.code in {0, 1}, ended
    shell.pass_time(seconds=1)
    return shell, file.read_text().splitlines()[:-1], frozenset(shell.blobs.ids - before)


def state(shell: QueueShell) -> object:
    """What an apply could change: rows and marks, starts, blobs, and the keyspace of the ledger."""
    tables = shell.cluster.keyspace(KEYSPACE)
    rows = [sorted(map(str, tables.scan(Scan(table, ("enqueueid",))))) for table in (ENQUEUED_MAILS, DELETED_MAILS)]
    return rows, shell.blobs.ids, set(shell.cluster.keyspaces)


def apply(built: Planned, home: Path, lines: Sequence[str]) -> bool:
    """Whether the plan was applied, so that its queue is not as it was."""
    shell, _, needed = built
    file = home / "sealed.jsonl"
    file.write_text(sealed(lines))
    before = state(shell)

    ended = shell.line("apply", str(file), "--json")

    assert ended.code in {0, 1, 2, 3}, ended
    assert "Traceback" not in ended.err
    assert "should not happen" not in ended.err, ended.err
    assert shell.blobs.ids >= needed
    if ended.code == 2:
        assert state(shell) == before, ended.err
    return state(shell) != before


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Planned]:
    return lambda what: planned(monkeypatch, tmp_path, what)


@pytest.mark.parametrize("what", PLANNED)
def test_a_plan_of_a_queue_that_was_changed_and_sealed_is_applied_or_refused(
    what: str, build: Callable[[str], Planned], tmp_path: Path
) -> None:
    built = [build(what)]

    @fuzzing(300)
    @given(st.data())
    def story(data: st.DataObject) -> None:
        _, lines, _ = built[0]
        number = data.draw(st.integers(0, len(lines) - 1))
        changed: Any = data.draw(spoilt_document(json.loads(lines[number])))
        if apply(built[0], tmp_path, [*lines[:number], json.dumps(changed), *lines[number + 1 :]]):
            built[0] = build(what)

    story()


@pytest.mark.parametrize("what", PLANNED)
def test_what_is_spoilt_is_good_before(what: str, build: Callable[[str], Planned], tmp_path: Path) -> None:
    """Else a fuzzer would only see one refusal."""
    built = build(what)

    assert apply(built, tmp_path, built[1])
