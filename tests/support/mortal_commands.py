"""Commands of the queue that are killed at a step: a write, a publish, an ack, a blob, a line in a file of mails."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mailmend.admin.queue import openers
from mailmend.admin.queue.kept_mails import RemovedMailsFile, RestoredLog
from mailmend.model.ids import EnqueueId
from tests.support.commands import Ended
from tests.support.in_turn import InTurn
from tests.support.queue_commands import QueueShell, queue_shell
from tests.support.queue_wires import Side, WiredBlobs, WiredBroker, WiredTables
from tests.support.queue_world import Died, Fortune


@contextmanager
def mortal(shell: QueueShell, life: Fortune) -> Iterator[None]:
    """Whatever the shell's commands do to the queue, or write down, is a step of that life."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openers, "tables_of", lambda keyspace: WiredTables(InTurn(keyspace), life))
        patch.setattr(openers, "broker_behind", lambda *_: WiredBroker(shell.broker, life))
        patch.setattr(openers, "blobs_behind", lambda *_, **__: WiredBlobs(shell.blobs, life))
        patch.setattr(RemovedMailsFile, "_append", _tearing(life, RemovedMailsFile._append))
        patch.setattr(RestoredLog, "note", _noting(life, RestoredLog.note))
        yield


def killed(shell: QueueShell, after: int, *arguments: str) -> Ended | None:
    """How a command ended that takes so many steps at most; None where it was killed before the next."""
    with mortal(shell, Fortune().dies_before(after)):
        try:
            return shell(*arguments)
        except Died:
            return None


@dataclass(frozen=True, slots=True)
class Shells:
    """Fresh shells, each in a home of its own, for a story that is told once for each step at which it is killed."""

    patch: pytest.MonkeyPatch
    folder: Path
    counted: list[int] = field(default_factory=list)

    def fresh(self) -> QueueShell:
        self.counted.append(1)
        return queue_shell(self.patch, self.folder / str(len(self.counted)))

    def each_step(self, tell: Callable[[QueueShell, int], Ended | None]) -> int:
        """Tell the story again and again, killed one step later each time, until it is killed no more; how often."""
        after = 0
        while tell(self.fresh(), after) is None:
            after += 1
        return after


def _tearing(life: Fortune, append: Callable[[RemovedMailsFile, Sequence[str]], None]) -> Callable[..., None]:
    def carry_out(keeper: RemovedMailsFile, lines: Sequence[str]) -> None:
        dead = life.dead
        try:
            life.meets(Side.BLOBS, "keep")
        except Died:
            if not dead:
                _tear(keeper.path, lines)
            raise
        append(keeper, lines)

    return carry_out


def _tear(file: Path, lines: Sequence[str]) -> None:
    whole = gzip.compress("".join(lines).encode())
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        stream.write(whole[: len(whole) // 2])


def _noting(life: Fortune, note: Callable[[RestoredLog, EnqueueId, EnqueueId], None]) -> Callable[..., None]:
    def carry_out(restored: RestoredLog, was: EnqueueId, now: EnqueueId) -> None:
        life.meets(Side.BLOBS, "note")
        note(restored, was, now)

    return carry_out
