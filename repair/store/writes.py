"""Changing the truth, one row at a time, with a certain result; then its projections, all at once.

The truth has two implementations. `ConditionalTruth` is James's strong consistency: each change is
a conditional write, a timed-out one is settled by a SERIAL read, and the stamp of the projections
is read back from the truth, or bounded by what is known of it. `PlainTruth` is what James does with
it switched off: cheaper, and two writers of one row may drift until a repair.

Projections are written with retries, under one stamp. What cannot be written is journalled as a
lag, and the change still counts as done: the truth has it, and the projections can always be
rebuilt. Counts are sent once; one without a clear answer is journalled for a recount.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from mailmend.model.errors import CannotReach, DoubtfulWrite, MailmendError, Unjournalled
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, Conditional, Level, Put, Read, Remove, Seen
from mailmend.model.ports import Clock, Lags, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect, merged
from mailmend.model.table import Key, Row, Table, rows_agree
from mailmend.repair.clock import SKEW_SECONDS, STAMP_AGE_SECONDS
from mailmend.repair.retries import FOREVER, JAMES, Retries, RetryPolicy
from mailmend.repair.store.farthest import FarthestValues
from mailmend.repair.store.plans import (
    MODSEQ_COLUMN,
    Consequence,
    change_between,
    counts_for,
    guarded_change,
    guarded_removal,
    insert_of,
    merged_counts,
    recounts_for,
    stamp_after,
    stamp_between,
    suspects_of,
    truth_keys,
    writes_for,
    written_at,
)

SKEW_MICROS = round(SKEW_SECONDS * MICROS)


class StampSource(Enum):
    """Where the stamp of projection writes comes from (docs/adr/0009)."""

    TRUTH = "truth"  # the time of the truth's own modseq, read back: no drift under any skew
    FLOOR = "floor"  # after the version before, no later than the truth's own time: one read less, no drift up to S
    CLOCK = "clock"  # the writer's clock, after all that was seen: drift is possible under any skew


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How mail is written.

    Attributes:
        strong: change the truth by conditional writes, as James does by default.
        stamp: where the stamp of projection writes comes from.
        skew_seconds: S, the greatest difference between any two clocks; StampSource.FLOOR rests on it.
        stamp_age_seconds: A; no write is under way for longer after its stamp was taken.
        write_seconds: how long a write may take to be committed; the last one is sent this much before A is over. The
            driver stops waiting sooner (`Contact.write_seconds`), so that a write can be sent again in time.
        rounds_max: how often a compare-and-set is repeated when others are faster.
        numbers_max: how many uids are tried for one message whose place is taken or hidden.
        threads: how many messages of one batch are written at once.
    """

    strong: bool = True
    stamp: StampSource = StampSource.TRUTH
    skew_seconds: float = SKEW_SECONDS
    stamp_age_seconds: float = STAMP_AGE_SECONDS
    write_seconds: float = 10.0
    rounds_max: int = 100
    numbers_max: int = 5
    threads: int = 16
    retries: RetryPolicy = JAMES

    @property
    def send_micros(self) -> int:
        """How long after a change was begun its writes may be sent; a floor is S old by then."""
        born = 0.0
        if self.stamp is StampSource.FLOOR:
            born = self.skew_seconds
        return round((self.stamp_age_seconds - born - self.write_seconds) * MICROS)


DEFAULTS = WriterSettings()


@dataclass(frozen=True, slots=True)
class Committed:
    """A change of one truth row that was, or may have been, written.

    Attributes:
        before: the row as it was seen, None for an insert.
        after: the row that this change makes, None for a delete.
        current: the current row; another writer's, if one came in between.
        stamp: of the projection writes, in microseconds; None where it could not be read.
        began: when the change was begun, in microseconds: no stamp of it is older.
        sure: False where it is unknown whether this change or another made the current row.
    """

    before: Seen | None
    after: Row | None
    current: Row | None
    stamp: int | None
    began: int
    sure: bool = True

    @property
    def row(self) -> Row:
        """The row that this change makes, or deletes."""
        if self.after:
            return self.after
        if self.before:
            return self.before.row
        return {}


class ConditionalTruth:
    """The truth changed by conditional writes.

    Attributes:
        version: the column that changes with every change of a row; None: no column does. Then a
            row that others have changed and changed back since it was seen counts as unchanged.
    """

    def __init__(
        self,
        tables: Tables,
        table: Table,
        clock: Clock,
        retries: Retries,
        *,
        stamp: StampSource = StampSource.TRUTH,
        skew_micros: int = SKEW_MICROS,
        version: str | None = MODSEQ_COLUMN,
    ) -> None:
        self.tables = tables
        self.table = table
        self.clock = clock
        self.retries = retries
        self.stamp = stamp
        self.skew_micros = skew_micros
        self.version = version
        self._version_of = table
        """The truth's table as a read-back sees it: the version alone, whose time is the stamp."""
        if version is not None:
            named = {*table.key_names, version}
            columns = (column for column in table.columns if column.name in named)
            self._version_of = table.with_columns(columns)

    def read(self, key: Key) -> Seen | None:
        """Read a row at QUORUM; an absent row is read again at SERIAL.

        A quorum sees each acknowledged change at a fraction of a SERIAL read's price, and the condition of the next
        write detects what it did not see.
        """
        return self._read(self.table, key, Level.QUORUM) or self._settled(key)

    def _settled(self, key: Key) -> Seen | None:
        """The row at SERIAL, which also finishes (or refuses for ever) a timed-out write."""
        return self._read(self.table, key, Level.SERIAL)

    def _read(self, table: Table, key: Key, level: Level) -> Seen | None:
        rows = self.retries.call(lambda: self.tables.read(Read(table, key, level, times=True)))
        return next(iter(rows), None)

    def insert(self, row: Row, *, fresh: bool = False) -> Committed | None:
        """Insert a row; None where the place is taken, or hidden by a deletion from the future.

        Args:
            row: the whole row.
            fresh: the message id was made for this row, so nothing in its partition can hide it.
        """
        began = self.clock.micros()
        key = self.table.key_of(row)
        if not self._applied(insert_of(self.table, row), lambda: self._settled(key) is not None):
            return None
        made = Committed(None, row, row, began, began)
        return self._known(made, shows=fresh) or self._read_back(made, key)

    def change(self, seen: Seen, after: Row) -> Committed | None:
        """Change a row to `after`; None where it is no longer as it was seen."""
        began = self.clock.micros()
        key = self.table.key_of(after)
        made = Committed(seen, after, after, stamp_after(began, seen), began)
        try:
            answer = self.tables.attempt(guarded_change(self.table, seen.row, after, self.version))
        except DoubtfulWrite:
            return self._settle_change(made, self._settled(key))
        if not answer.applied:
            return None
        return self._known(made, shows=True) or self._read_back(made, key)

    def remove(self, seen: Seen) -> Committed | None:
        """Delete one row; None where it is no longer as it was seen. The stamp is taken before, later than all seen."""
        began = self.clock.micros()
        stamp = stamp_after(began, seen)
        try:
            answer = self.tables.attempt(guarded_removal(self.table, seen.row, self.version))
        except DoubtfulWrite:
            if self._settled(self.table.key_of(seen.row)) is not None:
                return None
            return Committed(seen, None, None, stamp, began, sure=False)
        if not answer.applied:
            return None
        return Committed(seen, None, None, stamp, began)

    def _applied(self, write: Conditional, settle: Callable[[], bool]) -> bool:
        try:
            return self.tables.attempt(write).applied
        except DoubtfulWrite:
            return settle()

    def _settle_change(self, made: Committed, now: Seen | None) -> Committed | None:
        """A timed-out change: done, not done, or overtaken by another: the outcome is unknown."""
        assert made.before is not None
        assert made.after is not None
        if now is not None and self._same(now.row, made.after):
            return self._stamped(made, now)
        if now is not None and self._same(now.row, made.before.row):
            return None
        stamped = self._stamped(made, now)
        return Committed(made.before, made.after, stamped.current, stamped.stamp, made.began, sure=False)

    def _known(self, made: Committed, *, shows: bool) -> Committed | None:
        """The change where its stamp is known without a read; None where it must be read back."""
        match self.stamp:
            case StampSource.FLOOR if shows:
                floor = made.began - self.skew_micros
                return replace(made, stamp=stamp_between(made.before, floor, self.version))
            case StampSource.CLOCK:
                return made
            case _:
                return None

    def _read_back(self, made: Committed, key: Key) -> Committed | None:
        """The change with the current row and its time; None for an insert that does not show.

        The change was acknowledged, so a quorum has it: a later one in flight writes its own projections.
        """
        assert made.after is not None
        try:
            shown = self._read(self._version_of, key, Level.QUORUM)
            if shown is not None and self._same(shown.row, made.after):
                return self._stamped(made, Seen(made.after, shown.written_at))
            now = self.read(key)
        except CannotReach:
            return Committed(made.before, made.after, made.current, None, made.began)
        if now is None and made.before is None:
            return None
        return self._stamped(made, now)

    def _stamped(self, made: Committed, now: Seen | None) -> Committed:
        """The change with the current row. A row that is gone now is projected as a delete of what was seen."""
        if now is None:
            return Committed(made.before, made.after, None, made.stamp, made.began)
        stamp = written_at(now, self.version)
        if self.version is None:  # a cell that was deleted shows no time
            stamp = stamp_between(made.before, stamp or made.began, None)
        return Committed(made.before, made.after, now.row, stamp, made.began)

    def _same(self, row: Row, other: Row) -> bool:
        """Whether two rows under one key are of one version."""
        if self.version is None:
            return rows_agree(self.table.regular, row, other)
        return bool(row.get(self.version) == other.get(self.version))


@dataclass(frozen=True, slots=True)
class PlainTruth:
    """The truth changed by plain writes, each stamped by this writer after all that it saw."""

    tables: Tables
    table: Table
    clock: Clock
    retries: Retries
    stamp_age_micros: int = FOREVER

    def read(self, key: Key) -> Seen | None:
        rows = self.retries.call(lambda: self.tables.read(Read(self.table, key, times=True)))
        return next(iter(rows), None)

    def insert(self, row: Row, *, fresh: bool = False) -> Committed:  # noqa: ARG002 - one face with the other truth
        now = self.clock.micros()
        self._write(Put(self.table, insert_of(self.table, row).row, at=now), now)
        return Committed(None, row, row, now, now)

    def change(self, seen: Seen, after: Row) -> Committed:
        now = self.clock.micros()
        stamp = stamp_after(now, seen)
        plain = change_between(self.table, seen.row, after)
        self._write(Change(self.table, plain.key, plain.assign, plain.add, plain.take, at=stamp), now)
        return Committed(seen, after, after, stamp, now)

    def remove(self, seen: Seen) -> Committed:
        now = self.clock.micros()
        stamp = stamp_after(now, seen)
        self._write(Remove(self.table, self.table.key_of(seen.row), at=stamp), now)
        return Committed(seen, None, None, stamp, now)

    def _write(self, write: Put | Change | Remove, began: int) -> None:
        self.retries.call(lambda: self.tables.write(write), began + self.stamp_age_micros)


Truth = ConditionalTruth | PlainTruth


def truth_by(
    settings: WriterSettings,
    tables: Tables,
    table: Table,
    clock: Clock,
    retries: Retries,
    *,
    version: str | None = MODSEQ_COLUMN,
) -> Truth:
    if settings.strong:
        skew = round(settings.skew_seconds * MICROS)
        return ConditionalTruth(
            tables,
            table,
            clock,
            retries,
            stamp=settings.stamp,
            skew_micros=skew,
            version=version,
        )
    return PlainTruth(tables, table, clock, retries, settings.send_micros)


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
        families: of one truth.
        stamp_age_micros: how old a stamp may be when its last write is sent.
    """

    tables: Tables
    families: tuple[Family, ...]
    lags: Lags
    retries: Retries
    clock: Clock
    stamp_age_micros: int

    def project(self, batch: Sequence[Committed]) -> list[Propagation]:
        """Write all consequences; for each change whether all of them succeeded."""
        propagations = self._projected(batch)
        if not any(family.bounds for family in self.families):
            return propagations
        farthest = FarthestValues(self.tables, self.families, self.retries)
        found = []
        for made, propagation in zip(batch, propagations, strict=True):
            late: list[Suspect] = []
            if made.current is not None:
                late, cause = farthest.follow(made.current)
            if late:
                found.append(Propagation.worst(propagation, self._journalled(late, cause)))
            else:
                found.append(propagation)
        return found

    def _projected(self, batch: Sequence[Committed]) -> list[Propagation]:
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
        due = []
        shared = []
        for item in self._due(batch):
            if item.consequence.is_shared_removal:
                shared.append(item)
            else:
                due.append(item)
        deadline = min((made.began for made in batch), default=0) + self.stamp_age_micros
        errors = self.retries.write_all(self.tables, [item.consequence.write for item in due], deadline)
        late = [item for item, error in zip(due, errors, strict=True) if error is not None]
        late += self._uncounted(batch)
        if not late and not shared:
            return [Propagation.COMPLETE] * len(batch)
        cause = _cause(errors)
        if not late:
            cause = _SHARED
        return self._lag(batch, late + shared, cause)

    def _due(self, batch: Sequence[Committed]) -> list[Due]:
        return [*self._written(batch), *self._counted(batch)]

    def suspect(self, rows: Iterable[Row], cause: str) -> Propagation:
        """Journal all projections of rows whose change got no clear answer."""
        suspects: list[Suspect] = []
        for row in rows:
            for family in self.families:
                suspects += suspects_of(family, row)
        return self._journalled(suspects, cause)

    def _written(self, batch: Sequence[Committed]) -> list[Due]:
        """Consequences of the current row, which may be a later writer's: its state under its stamp is right too."""
        due = []
        for place, made in enumerate(batch):
            for family in self.families:
                writes = writes_for(family, row_of(made.before), made.current, made.stamp or 0)
                due += [Due(write, (place,)) for write in writes]
        return due

    def _counted(self, batch: Sequence[Committed]) -> list[Due]:
        """What each change adds to the counters, merged into one count per group."""
        counts = []
        for place, made in enumerate(batch):
            if made.sure:
                counts += [(place, count) for count in self._counts(made)]
        due = []
        for consequence in merged_counts(count for _, count in counts):
            same = (consequence.projection.name, consequence.key)
            places = []
            for place, count in counts:
                if (count.projection.name, count.key) == same:
                    places.append(place)
            due.append(Due(consequence, tuple(places)))
        return due

    def _uncounted(self, batch: Sequence[Committed]) -> list[Due]:
        """Recounts for changes that may be another writer's."""
        due = []
        for place, made in enumerate(batch):
            if not made.sure:
                due += [Due(recount, (place,)) for recount in self._recounts(made)]
        return due

    def _counts(self, made: Committed) -> Iterator[Consequence]:
        for family in self.families:
            yield from counts_for(family, row_of(made.before), made.after)

    def _recounts(self, made: Committed) -> Iterator[Consequence]:
        """Recounts of the groups that the row was in, and may be in now."""
        for family in self.families:
            recounts: dict[tuple[str, Key], Consequence] = {}
            for row in (row_of(made.before), made.after):
                if row is not None:
                    for recount in recounts_for(family, row):
                        recounts[recount.projection.name, recount.key] = recount
            yield from recounts.values()

    def _lag(self, batch: Sequence[Committed], late: Sequence[Due], cause: str) -> list[Propagation]:
        """Journal what is late, each place once, with the truth keys of all changes of the batch."""
        suspects = []
        propagations = [Propagation.COMPLETE] * len(batch)
        for due in late:
            keys = truth_keys(self.families[0], batch[due.of[0]].row)
            suspects.append(due.consequence.suspect(keys))
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


_SHARED: Final = "other rows of the truth may demand the same row, or its own cannot say what it is"
"""Why the removal of a row is a lag: a second look reads all rows of the truth that claim it."""


def row_of(seen: Seen | None) -> Row | None:
    """The row that was seen; None where none was."""
    if seen is None:
        return None
    return seen.row


def _cause(errors: Sequence[MailmendError | None]) -> str:
    for error in errors:
        if error:
            return error.what
    return "it is unknown which process made the change"
