"""Values that pass between the stages of a check or repair: suspects, findings, writes of a row."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.ids import RunId
from mailmend.model.operations import Change, Conditional, Put, PutIfAbsent, Remove, RemoveIf, Seen, Write
from mailmend.model.projections.verdicts import MENDABLE, Reason, Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.model.values import same_value, same_values


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """What a repair may do at a second look; plain data, which can be sent to executors.

    Attributes:
        run: the ledger's run, or None when nothing may be written.
        as_of: T, in microseconds.
        all_truths: whether the scan saw every truth row; else projection rows without a known truth are left alone.
        margin_seconds: how long before its scan a repair is dated.
        skew_seconds: S, the greatest difference between any two clocks.
        only: the verdicts that may be mended.
        orphans: "report" or "quarantine" (truth rows whose content is lost).
        dangling: "withdraw", "restore" or "report" (projections without truth).
        leaks: "report" or "collect".
        beat_ahead: write just above cells from the future.
        accept_torn: treat truth rows that lack columns as whole.
        fill_torn: fill truth rows that lack columns from their contents.
        touch_base: write rows of a base once more as they are, so that its views follow.
        serial: read the truth at SERIAL (LWT is on).
        rows_per_second: pace over all workers together, or None.
    """

    run: RunId | None = None
    as_of: int = 0
    skew_seconds: float = 0.0
    only: frozenset[Verdict] = MENDABLE
    orphans: str = "report"
    dangling: str = "withdraw"
    leaks: str = "report"
    beat_ahead: bool = False
    accept_torn: bool = False
    fill_torn: bool = False
    touch_base: bool = False
    serial: bool = True
    rows_per_second: int | None = None
    margin_seconds: float = 0.0
    all_truths: bool = True


@dataclass(frozen=True, slots=True)
class Suspect:
    """A key of a projection at which a scan found an inconsistency.

    Attributes:
        projection: name of the projection.
        key: primary key of the projection's row (for a leak: of the content row).
        verdict: the verdict of the scan.
        truth_keys: partition keys of the truth that the scan saw at this place, so that the second
            look finds the truth even where the projection cannot lead to it.
        wanted: for unions the elements that were missing; for counters the recounted values {counter: n}.
        planned: the digest of the before-image that was approved in a plan; "" where there is no plan.
    """

    projection: str
    key: Key
    verdict: Verdict
    truth_keys: tuple[Key, ...] = ()
    wanted: Mapping[str, Any] = field(default_factory=dict)
    planned: str = ""

    @property
    def truth_parts(self) -> Key:
        """The values of all truth keys, one after the other."""
        return tuple(chain.from_iterable(self.truth_keys))


def counts_of(suspects: Iterable[Suspect]) -> dict[str, Counter[Verdict]]:
    """Number of suspects by projection and verdict."""
    counts: dict[str, Counter[Verdict]] = {}
    for suspect in suspects:
        counts.setdefault(suspect.projection, Counter())[suspect.verdict] += 1
    return counts


def merged(suspects: Iterable[Suspect]) -> list[Suspect]:
    """One suspect for each place, with every truth and every missing element that any of its duplicates has."""
    found: dict[tuple[str, Key], Suspect] = {}
    for suspect in suspects:
        place = (suspect.projection, suspect.key)
        if place in found:
            found[place] = _joined(found[place], suspect)
        else:
            found[place] = suspect
    return list(found.values())


def _joined(one: Suspect, other: Suspect) -> Suspect:
    keys = tuple(dict.fromkeys((*one.truth_keys, *other.truth_keys)))
    wanted = {}
    for name in {*one.wanted, *other.wanted}:
        wanted[name] = frozenset(one.wanted.get(name, ())) | frozenset(other.wanted.get(name, ()))
    return replace(one, truth_keys=keys, wanted=wanted)


def all_the_same(some: Sequence[Seen], others: Sequence[Seen]) -> bool:
    """Whether two looks saw the same rows in the same order, with the same times."""
    if len(some) != len(others):
        return False
    return all(seen.is_same(other) for seen, other in zip(some, others, strict=True))


def newest_of(truths: tuple[Seen, ...], projected: Seen | None) -> int | None:
    times: list[int] = []
    for seen in (*truths, projected):
        if seen is None:
            continue
        newest = seen.newest
        if newest is not None:
            times.append(newest)
    return max(times, default=None)


@dataclass(frozen=True, slots=True)
class Finding:
    """The decision about a suspect, its before-image, and the result.

    Attributes:
        suspect: what was looked at again.
        verdict: the second verdict, before anything was written (AGREE: the rows had settled
            without a fix).
        result: FIXED, HIDDEN, MOVED or AHEAD where that is what happened; else None (only looked at, or left).
        truths, projected: both sides as they were read again, with their times.
        last_trace: a WITHDRAW whose content still exists while no truth names it: the last trace of a message.
        due: whether a fix would have been written if writing had been allowed (in a check or a dry run).
        error: why the look or the fix failed (one sentence), or None.
        unreached: it failed because the cluster could not be reached.
        untried: it was not tried, because too many before it could not be reached.
        writes: the writes that mend it, as of T; empty once they are done.
        condition: a conditional change of the truth that the writes wait for, or None.
        derived: the rows of views that the server derives from the writes, a moment later.
        beside: the before-images of other rows that the writes change.
        reason: why it is left as it is; None where it is mended.
        number: the number of rows that it represents; a finding in a queue may be a whole partition.
    """

    suspect: Suspect
    verdict: Verdict
    result: Verdict | None = None
    truths: tuple[Seen, ...] = ()
    projected: Seen | None = None
    last_trace: bool = False
    error: str | None = None
    due: bool = False
    unreached: bool = False
    untried: bool = False
    writes: tuple[Write, ...] = ()
    derived: tuple[Put, ...] = ()
    condition: Conditional | None = None
    beside: tuple["Finding", ...] = ()
    reason: Reason | None = None
    number: int = 1

    @property
    def newest(self) -> int | None:
        """The latest write that was visible on either side, in microseconds."""
        return newest_of(self.truths, self.projected)

    @property
    def changes(self) -> tuple[Write | Conditional, ...]:
        """Everything that is to be written, and verified by reading it back."""
        if self.condition is None:
            return self.writes
        return (self.condition, *self.writes)

    @property
    def is_pending(self) -> bool:
        """Whether its changes are still to be made: nothing spoke against them so far."""
        return self.result is None and self.error is None and bool(self.changes)

    def ended(self, result: Verdict | None = None) -> "Finding":
        """The finding with nothing more to write; `result` applies only where the finding has no result yet."""
        known = self.result
        if known is None and not self.error:
            known = result
        return replace(self, result=known, writes=(), derived=(), condition=None, beside=())

    def failed(self, error: MailmendError, prefix: str = "") -> "Finding":
        return replace(self, error=f"{prefix}{error}", unreached=isinstance(error, CannotReach))


def failed(suspect: Suspect, error: MailmendError) -> Finding:
    return Finding(suspect, suspect.verdict).failed(error)


@dataclass(frozen=True, slots=True)
class Excess:
    """More suspects than `--max-fixes` allows, shown to a person before any write.

    Attributes:
        allowed: the limit, `--max-fixes`.
        counts: suspects that would be mended, per projection and verdict.
        samples: a few of these suspects.
    """

    keyspace: str
    allowed: int
    counts: Mapping[str, Counter[Verdict]] = field(default_factory=dict)
    samples: tuple[Suspect, ...] = ()

    @property
    def total(self) -> int:
        return sum(counts.total() for counts in self.counts.values())


MovedVerdict = Literal[Verdict.MOVED]


def row_back(
    table: Table, key: Key, before: Seen | None, now: Seen | None, at: int
) -> tuple[Write, ...] | MovedVerdict:
    """The write that restores a row, stamped just above the run's; empty where the row is there already."""
    if before is None and now is None:
        return ()
    if before is not None and now is not None and same_values(before.row, now.row):
        return ()
    if now is not None and not _is_own(now, before, at):
        return Verdict.MOVED
    if before is None:
        return (Remove(table, key, at=at + 1),)
    return row_writes(table, before.row, before.expires_at, at + 1)


def row_writes(
    table: Table, row: Row, expires_at: Mapping[str, int], at: int, *, stays: bool = False
) -> tuple[Write, ...]:
    """The writes of a whole row, null columns too, whose cells expire as `expires_at` says (seconds since 1970).

    One write has one TTL. So the first one has the cells that live longest, and with them the row lives; each other
    instant is a write of its own. A row that consists of its key lives as long as its key columns.
    A row that `stays` outlives its cells: then no cell that expires is in the first write.
    """
    cells = [column for column in table.regular if row.get(column.name) is not None]
    lives: dict[str, int] = {}
    some_stay = stays
    for column in cells:
        if column.name in expires_at:
            lives[column.name] = expires_at[column.name]
        elif not column.is_collection:  # before Cassandra 5 a collection shows no TTL
            some_stay = True
    ends_at = None
    if not cells:
        ends_at = max(expires_at.values(), default=None)
    elif lives and not some_stay:
        ends_at = max(lives.values())
    first = dict(row)
    sooner: dict[int, dict[str, Any]] = {}
    for name, instant in lives.items():
        if instant != ends_at:
            sooner.setdefault(instant, {})[name] = first.pop(name)
    key = table.key_of(row)
    writes: list[Write] = [Put(table, first, at=at, clear=True, expires_at=ends_at)]
    for instant in sorted(sooner):
        writes.append(Change(table, key, sooner[instant], at=at, expires_at=instant))
    return tuple(writes)


def lives_under(own: Mapping[str, str], row: Row, ends: Mapping[str, int]) -> dict[str, int]:
    """When the cells of a row expire, by the row's names.

    Args:
        own: the names in `ends` by the row's names, where they may differ.
        row: the row.
        ends: seconds since 1970.
    """
    lives = {}
    for name in row:
        mine = own.get(name, name)
        if mine in ends:
            lives[name] = ends[mine]
    return lives


def row_if_absent(table: Table, row: Row, expires_at: Mapping[str, int]) -> PutIfAbsent:
    """The conditional insert of a row of which each cell expires as `expires_at` says (seconds since 1970)."""
    stored = {name: row[name] for name in table.stored(table.names) if name in row}
    put, *sooner = row_writes(table, stored, expires_at, 0)
    assert isinstance(put, Put), "the first write inserts the row"
    beside = tuple(replace(change, at=None) for change in sooner if isinstance(change, Change))
    return PutIfAbsent(table, put.row, expires_at=put.expires_at, beside=beside)


def _is_own(now: Seen, before: Seen | None, at: int) -> bool:
    """Whether every cell with a readable time was written by the run, or left as it was."""
    for name, time in now.written_at.items():
        if time == at:
            continue
        if before is None or before.written_at.get(name) != time:
            return False
        if not same_value(before.row.get(name), now.row.get(name)):
            return False
    return True


def exactly(table: Table, row: Row) -> RemoveIf:
    """Remove a row only while it is unchanged (sets are left out: the modseq changes with each change)."""
    expected = {column.name: row.get(column.name) for column in table.regular if not column.is_collection}
    return RemoveIf(table, table.key_of(row), expected)


def exactly_whole(table: Table, row: Row) -> RemoveIf:
    """Remove a row only while every cell of it is as it was seen."""
    expected = {column.name: row.get(column.name) for column in table.regular}
    for name in table.collections:
        expected[name] = row.get(name) or None
    return RemoveIf(table, table.key_of(row), expected)


def set_changes(table: Table, old: Row, new: Row) -> tuple[dict[str, frozenset[Any]], dict[str, frozenset[Any]]]:
    """All elements of the new row's sets, and those that only the old row has."""
    add = {}
    take = {}
    for name in table.collections:
        elements = frozenset(new.get(name) or ())
        gone = frozenset(old.get(name) or ()) - elements
        if elements:
            add[name] = elements
        if gone:
            take[name] = gone
    return add, take
