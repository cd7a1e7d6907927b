"""The base class of all kinds of projections; a kind is one class in this package (docs/design.md).

Five kinds cover the mail tables, and most others: mirror (the whole row under another key), filter
(keys of the rows that satisfy a condition), union (a set column gathered per group), counts
(counters per group) and content (the rows that each truth row needs).

Truth rows and contents are removed only when older than a day, when no write of them can be
under way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import UUID

from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.model.operations import (
    Change,
    Conditional,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    Seen,
    Write,
)
from mailmend.model.projections.verdicts import MENDABLE, Reason, Verdict, Why
from mailmend.model.table import Key, Row, Table

if TYPE_CHECKING:
    from mailmend.model.projections.family import Family
    from mailmend.model.projections.findings import Finding, Look, RepairPolicy


DAY_MICROS = 24 * 3600 * MICROS
"""The least age of a truth row for quarantine, and of content for collection, in microseconds."""


def older_than_a_day(key: Key, now: int) -> bool:
    """Whether a version-1 UUID in the key is more than a day old."""
    born = born_at(key)
    return born is not None and born < now - DAY_MICROS


def born_at(key: Key) -> int | None:
    """When the youngest version-1 UUID of a key was made; None where it has none."""
    return max((micros_of(part) for part in key if isinstance(part, UUID) and part.version == 1), default=None)


def why_kept(key: Key, touched: int | None, now: int) -> Reason:
    """Why a row that may be removed stays: it is younger than a day, or lacks what its removal needs."""
    since = max((at for at in (born_at(key), touched) if at is not None), default=None)
    if since is None:
        return Reason(Why.YOUNGER_THAN_A_DAY)
    if since < now - DAY_MICROS:
        return Reason(Why.NO_WHOLE_ROW)
    return Reason(Why.YOUNGER_THAN_A_DAY, again_at=since + DAY_MICROS)


MovedVerdict = Literal[Verdict.MOVED]


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean column of the truth having a value; null reads as false."""

    column: str
    value: bool

    def holds(self, row: Row) -> bool:
        return bool(row.get(self.column)) is self.value


@dataclass(frozen=True, slots=True)
class Projection:
    """A table whose rows follow from the truth: how the keys correspond, and the decisions of each kind.

    Attributes:
        key: (projection column, truth column) for each primary key column of the projection.
    """

    truth: Table
    table: Table
    key: tuple[tuple[str, str], ...]

    by_row: ClassVar[bool] = True
    """Whether suspects are looked at and mended one by one; counters are not (`repair.mending.counters`)."""

    needs_content: ClassVar[bool] = True
    """Whether a second look checks that the content of the truth exists."""

    @property
    def name(self) -> str:
        """The name in findings: the projection table, in James's spelling."""
        return self.table.spelling

    @property
    def truth_columns(self) -> frozenset[str]:
        """The truth's columns that its verdict depends on."""
        return frozenset(column for _, column in self.key)

    @property
    def own_columns(self) -> frozenset[str]:
        """Its own non-key columns that its verdict needs."""
        return frozenset()

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Its own columns that a check reads."""
        wanted = {column.name for column in self.table.key} | self.own_columns
        return tuple(name for name in self.table.names if name in wanted)

    def key_of(self, truth: Row) -> Key:
        return tuple(truth[column] for _, column in self.key)

    def near_reads(self, family: "Family", key: Key) -> list[Read]:  # noqa: ARG002 - filters ask the mirror too
        """The first reads of a second look: the projection's own row first, rows that lead to the truth last."""
        return [Read(self.table, key, times=True)]

    def lead_row(self, look: "Look") -> Row:
        """What is known of the truth row from the rows that were read so far; empty where nothing is."""
        if look.mirrored is None:
            return {}
        return look.family.mirror.restored(look.mirrored.row)

    def looked_at(self, look: "Look", rows: Sequence[Seen], *, accept_torn: bool) -> "Look":
        """The look, complete with the truth rows under every known key."""
        truths = tuple(seen for seen in rows if self.key_of(seen.row) == look.key)
        whole = accept_torn or not truths or look.family.mirror.whole(truths[0].row)
        return replace(look, truths=truths, has_content=look.content_stands(truths), whole=whole)

    def verdict(self, look: "Look") -> Verdict:
        """The verdict on the pair of rows, without regard to write times."""
        raise NotImplementedError

    def wanted(self, look: "Look") -> dict[str, Any]:  # noqa: ARG002 - unions have some
        """The value of `Suspect.wanted`: what the suspect carries of the truth in addition to keys."""
        return {}

    def owed(self, elements: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002 - only a union cannot ask later
        """The value of `Suspect.wanted` for a failed write of these elements."""
        return {}

    def write_for(self, before: Row | None, after: Row | None, stamp: int) -> Write | None:  # noqa: ARG002
        """The write that a change of one truth row demands; None for no write, or only a count without a stamp.

        Args:
            before: the truth row before the change, or None for an insert.
            after: the truth row after it, or None for a delete.
            stamp: microseconds; the time of the truth's change.
        """
        return None

    def asks_for(self, verdict: Verdict, policy: "RepairPolicy") -> bool:
        """Whether the policy lets findings of this verdict be mended."""
        return verdict in MENDABLE & policy.only

    def old_enough(self, look: "Look", verdict: Verdict, now: int) -> bool:  # noqa: ARG002 - truth and content have one
        """Whether the fix removes only rows that are too old to be still written; rows of projections always are."""
        return True

    def fix(self, finding: "Finding", look: "Look", policy: "RepairPolicy", at: int) -> "Finding | None":
        """The finding with the writes that mend it, stamped `at` (microseconds); None where it can only be reported."""
        raise NotImplementedError

    def why_left(self, finding: "Finding", policy: "RepairPolicy", now: int) -> Reason:  # noqa: ARG002 - ages need it
        """Why a finding is left, for reasons other than write times."""
        if finding.verdict in MENDABLE - policy.only:
            return Reason(Why.NEEDS_ONLY)
        if not policy.all_truths:
            return Reason(Why.NEEDS_SCAN)
        if not self.by_row:
            return Reason(Why.ROWS_DIFFER)
        if finding.last_trace and policy.dangling == "restore":
            return Reason(Why.NO_WHOLE_ROW)
        return Reason(Why.NOT_SETTLED)

    def truth_rows(self, finding: "Finding") -> tuple[Seen, ...]:
        """The truth rows of a finding, with columns named as in the projection, to be shown next to its row."""
        return finding.truths

    def differing(self, truth: Row, other: Row) -> frozenset[str]:  # noqa: ARG002 - each kind knows what it compares
        """The compared columns in which two rows of a finding differ."""
        return frozenset()

    def key_row(self, finding: "Finding", at: int, ends_at: int | None = None) -> "Finding":
        """The finding with the fix of a row that consists of its key: an insert (until `ends_at`) or a delete."""
        if finding.verdict is Verdict.PROJECT:
            put = Put(self.table, self.table.key_row(finding.suspect.key), at=at, expires_at=ends_at)
            return replace(finding, writes=(put,))
        return replace(finding, writes=(Remove(self.table, finding.suspect.key, at=at),))

    def take_back(self, image: "Finding", look: "Look", at: int, origin: "Finding | None") -> "Finding":
        """The finding that undoes a fix; without writes if that is done already (AGREE) or others wrote since (MOVED).

        Args:
            image: the before-image that the run recorded.
            look: the same place, as it is now.
            at: the stamp of the run's writes, in microseconds.
            origin: the before-image of the run that was undone, where the run was itself an undo; else None.
        """
        now = replace(image, truths=look.truths, projected=look.projected, result=None, error=None)
        condition = self.truth_back(image, look, origin)
        writes = row_back(self.table, look.key, image.projected, look.projected, at)
        if condition is Verdict.MOVED or writes is Verdict.MOVED:
            return replace(now, result=Verdict.MOVED)
        if condition is None and not writes:
            return replace(now, verdict=Verdict.AGREE)
        return replace(now, writes=writes, condition=condition)

    def truth_back(self, image: "Finding", look: "Look", origin: "Finding | None") -> Conditional | MovedVerdict | None:  # noqa: ARG002 - a mirror's run may have changed it
        """The conditional write that restores the truth; None if it is as recorded; MOVED if others changed it."""
        if image.truths == look.truths:
            return None
        return Verdict.MOVED


def row_back(
    table: Table, key: Key, before: Seen | None, now: Seen | None, at: int
) -> tuple[Write, ...] | MovedVerdict:
    """The write that restores a row, stamped just above the run's; empty where the row is there already."""
    if before is None and now is None:
        return ()
    if before is not None and now is not None and before.row == now.row:
        return ()
    if now is not None and not _is_own(now, before, at):
        return Verdict.MOVED
    if before is None:
        return (Remove(table, key, at=at + 1),)
    return row_writes(table, before.row, before.expires_at, at + 1)


def row_writes(table: Table, row: Row, expires_at: Mapping[str, int], at: int) -> tuple[Write, ...]:
    """The writes of a whole row, null columns too, whose cells expire as `expires_at` says (seconds since 1970).

    One write has one TTL. So the first one has the cells that live longest, and with them the row lives; each other
    instant is a write of its own. A row that consists of its key lives as long as its key columns.
    """
    cells = [column.name for column in table.regular if column.name in row and row[column.name] is not None]
    known = [name for name in cells if name in expires_at]
    timed = [name for name in cells if name in expires_at or not table.column(name).is_collection]
    ends_at = None
    if not cells:
        ends_at = max(expires_at.values(), default=None)
    elif known and known == timed:
        ends_at = max(expires_at[name] for name in known)
    sooner = {name: expires_at[name] for name in known if expires_at[name] != ends_at}
    first = {name: value for name, value in row.items() if name not in sooner}
    key = table.key_of(row)
    writes: list[Write] = [Put(table, first, at=at, clear=True, expires_at=ends_at)]
    for instant in sorted(set(sooner.values())):
        ending = {name: row[name] for name in sooner if sooner[name] == instant}
        writes.append(Change(table, key, ending, at=at, expires_at=instant))
    return tuple(writes)


def row_if_absent(table: Table, row: Row, expires_at: Mapping[str, int]) -> PutIfAbsent:
    """The conditional insert of a row of which each cell expires as `expires_at` says (seconds since 1970)."""
    put, *sooner = row_writes(table, row, expires_at, 0)
    assert isinstance(put, Put), "the first write inserts the row"
    beside = tuple(replace(change, at=None) for change in sooner if isinstance(change, Change))
    return PutIfAbsent(table, put.row, expires_at=put.expires_at, beside=beside)


def _is_own(now: Seen, before: Seen | None, at: int) -> bool:
    """Whether every cell with a readable time was written by the run, or left as it was."""
    for name, time in now.written_at.items():
        if time == at:
            continue
        if before is None or before.written_at.get(name) != time or before.row.get(name) != now.row.get(name):
            return False
    return True
