"""Cells that the undo of a later run has put back: they count as they were before that run.

Two runs raise the greatest value of a group, and both are undone, the later one first. Its undo
writes the value of the earlier run again, under a stamp of its own. By this stamp alone the cell
would be another program's, and the undo of the earlier run would leave it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from mailmend.model.operations import Count, Seen, Write
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.values import same_value
from mailmend.repair.decisions.recheck import fixed_at
from mailmend.repair.ledger.runs import Ledger, Run


@dataclass(frozen=True, slots=True)
class LaterUndos:
    """The undos that began after a run; the newest first."""

    ledger: Ledger
    undos: tuple[Run, ...]

    @classmethod
    def after(cls, ledger: Ledger, run: Run) -> Self:
        return cls(ledger, tuple(_undos_after(ledger, run)))

    def taken_back(self, image: Finding, look: Look, at: int) -> Finding:
        """The finding that undoes a fix, where later undos have put back its write; else MOVED.

        Args:
            image: the before-image of the fix.
            look: the same place, as it is now.
            at: the stamp of the fix, in microseconds.
        """
        now = look.projected
        if now is None or now.newest is None:
            return replace(image, projected=now, result=Verdict.MOVED, error=None)
        earlier = replace(look, projected=self._as_before(image.suspect, now))
        finding = look.projection.take_back(image, earlier, at, None)
        writes = tuple(_not_before(write, now.newest + 1) for write in finding.writes)
        return replace(finding, projected=now, writes=writes)

    def _as_before(self, suspect: Suspect, now: Seen) -> Seen:
        """The row with the write times that its cells had before the runs that were undone."""
        found = now
        for undo in self.undos:
            if undo.undoes is None:
                continue
            undone = self.ledger.finding(undo.undoes, suspect)
            image = self.ledger.finding(undo.id, suspect)
            if undone is not None and undone.projected is not None and image is not None:
                found = with_times_before(found, undone.projected, _stamp_of(undo, undone, image))
        return found


def _undos_after(ledger: Ledger, run: Run) -> Iterator[Run]:
    for other in ledger.newest_runs(run.keyspace):
        if other.started_at <= run.started_at:
            return
        if other.undoes is not None and other.undoes != run.id:
            yield other


def _stamp_of(undo: Run, undone: Finding, image: Finding) -> int:
    """The stamp of an undo's write: just above the run that it undid, and above what it found.

    Args:
        undo: the undo.
        undone: the before-image of the run that it undid.
        image: its own before-image.
    """
    stamp = fixed_at(undone, undo.as_of - 1) + 1
    if image.projected is None or image.projected.newest is None:
        return stamp
    return max(stamp, image.projected.newest + 1)


def with_times_before(now: Seen, before: Seen, at: int) -> Seen:
    """The row, in which each cell that was put back has its write time from before.

    Args:
        now: the row.
        before: the row that was put back.
        at: the stamp with which it was put back, in microseconds.
    """
    times = dict(now.written_at)
    for name, written_at in now.written_at.items():
        is_put_back = written_at == at and same_value(now.row.get(name), before.row.get(name))
        if is_put_back and name in before.written_at:
            times[name] = before.written_at[name]
    return replace(now, written_at=times)


def _not_before(write: Write, at: int) -> Write:
    """The write with a stamp that is no earlier than `at`."""
    if isinstance(write, Count) or write.at is None:
        return write
    return replace(write, at=max(write.at, at))
