"""Writes the truth's changes to its projections: all at once, each with retries, under one stamp.

What cannot be written is journalled as a lag, and the change still counts as done: the truth has it, and the
projections can always be rebuilt. Counts are sent once; one without a clear answer is journalled for a recount.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from mailmend.model.errors import MailmendError, Unjournalled
from mailmend.model.operations import Seen
from mailmend.model.ports import Clock, Lags, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect, merged
from mailmend.model.table import Row
from mailmend.repair.retries import Retries
from mailmend.repair.store.plans import (
    Consequence,
    counts_for,
    merged_counts,
    recounts_for,
    suspects_of,
    truth_ids,
    writes_for,
)
from mailmend.repair.store.truth_writes import Committed


class Propagation(Enum):
    """How far a change has reached its projections."""

    COMPLETE = "complete"  # all are written
    LAGS = "lags"  # some are not; they are journalled, and `mailmend repair lags` mends them
    LOST = "lost"  # some are not, and could not be journalled: only a check finds them

    @classmethod
    def worst(cls, *propagations: "Propagation") -> "Propagation":
        return max(propagations, key=list(cls).index)


@dataclass(frozen=True, slots=True)
class Due:
    """A consequence, and its changes as indexes into the batch."""

    consequence: Consequence
    of: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Projector:
    """Updates the projections after commits.

    Attributes:
        stamp_age_micros: how old a stamp may be when its last write is sent.
    """

    tables: Tables
    family: Family
    lags: Lags
    retries: Retries
    clock: Clock
    stamp_age_micros: int

    def project(self, batch: Sequence[Committed]) -> list[Propagation]:
        """Write all consequences; for each change whether all of them succeeded."""
        now = self.clock.micros()
        fresh = []
        stale = []
        for made in batch:
            # A clock that was set back since then no longer tells how old a stamp is.
            in_time = made.began <= now < made.began + self.stamp_age_micros
            if made.stamp is not None and in_time:
                fresh.append(made)
            else:
                stale.append(made)
        if not stale:
            return self._send(batch)
        late = iter(self._lag(stale, self._due(stale) + self._uncounted(stale), "the stamp could not be read in time"))
        sent = iter(self._send(fresh))
        propagations = []
        for made in batch:
            if made in fresh:
                propagations.append(next(sent))
            else:
                propagations.append(Propagation.worst(Propagation.LAGS, next(late)))
        return propagations

    def _send(self, batch: Sequence[Committed]) -> list[Propagation]:
        due = self._due(batch)
        deadline = min((made.began for made in batch), default=0) + self.stamp_age_micros
        errors = self.retries.write_all(self.tables, [item.consequence.write for item in due], deadline)
        late = [item for item, error in zip(due, errors, strict=True) if error is not None]
        late += self._uncounted(batch)
        if not late:
            return [Propagation.COMPLETE] * len(batch)
        return self._lag(batch, late, _cause(errors))

    def _due(self, batch: Sequence[Committed]) -> list[Due]:
        return [*self._written(batch), *self._counted(batch)]

    def suspect(self, rows: Iterable[Row], cause: str) -> Propagation:
        """Journal all projections of rows whose change got no clear answer."""
        return self._journalled([suspect for row in rows for suspect in suspects_of(self.family, row)], cause)

    def _written(self, batch: Sequence[Committed]) -> list[Due]:
        """Consequences of the current row, which may be a later writer's: its state under its stamp is right too."""
        due = []
        for place, made in enumerate(batch):
            writes = writes_for(self.family, _row(made.before), made.current, made.stamp or 0)
            due += [Due(write, (place,)) for write in writes]
        return due

    def _counted(self, batch: Sequence[Committed]) -> list[Due]:
        """What each change adds to the counters, merged into one count per group."""
        counts = []
        for place, made in enumerate(batch):
            if made.sure:
                counts += [(place, count) for count in counts_for(self.family, _row(made.before), made.after)]
        due = []
        for consequence in merged_counts(count for _, count in counts):
            places = tuple(place for place, count in counts if count.key == consequence.key)
            due.append(Due(consequence, places))
        return due

    def _uncounted(self, batch: Sequence[Committed]) -> list[Due]:
        """Recounts for changes that may be another writer's."""
        due = []
        for place, made in enumerate(batch):
            if not made.sure:
                due += [Due(recount, (place,)) for recount in recounts_for(self.family, made.row)]
        return due

    def _lag(self, batch: Sequence[Committed], late: Sequence[Due], cause: str) -> list[Propagation]:
        """Journal what is late, each place once, with the truth ids of all changes of the batch."""
        suspects = []
        propagations = [Propagation.COMPLETE] * len(batch)
        for due in late:
            ids = truth_ids(self.family, batch[due.of[0]].row)
            suspects.append(due.consequence.suspect(ids))
        propagation = self._journalled(tuple(merged(suspects)), cause)
        for due in late:
            for place in due.of:
                propagations[place] = propagation
        return propagations

    def _journalled(self, suspects: Sequence[Suspect], cause: str) -> Propagation:
        try:
            self.lags.journal(suspects, cause)
        except Unjournalled:
            return Propagation.LOST
        return Propagation.LAGS


def _row(seen: Seen | None) -> Row | None:
    if seen is None:
        return None
    return seen.row


def _cause(errors: Sequence[MailmendError | None]) -> str:
    for error in errors:
        if error:
            return error.what
    return "it is unknown which process made the change"
