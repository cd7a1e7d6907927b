"""How many mails a queue holds, and how sure that is: sums of tallies, or rows that were looked at. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Self
from uuid import UUID

from model.schema.table import Row

_OF_DUE: Final = timedelta(milliseconds=1)
"""What sets the tallies of a slice of delayed mails apart: slices begin at whole seconds."""

DUE_TALLIED: Final = timedelta(days=15)
"""How long after its begin a slice of delayed mails is counted by its tallies: it is emptied long before."""

DUE_TALLIES_KEPT: Final = 2 * DUE_TALLIED
"""How long tallies live after their slice begins: none expires before all are out of use."""

_SECOND: Final = timedelta(seconds=1)
_LEAST: Final = timedelta(days=1)


class SizeKind(Enum):
    """What a size claims."""

    EXACT = "exact"
    ESTIMATE = "estimate"


class CountedBy(Enum):
    """How a size was found."""

    TALLIES = "tallies"  # sums that each process keeps of what it enqueued and marked
    METADATA = "metadata"  # every row of some slice was looked at


@dataclass(frozen=True, slots=True)
class Size:
    """How many mails a queue holds.

    Attributes:
        delayed: those that are not due yet, beside them.
        slices_read: how many slices of waiting mails were looked at; the time that counting takes depends on it.
        counted_by: METADATA where any slice had to be counted so.
    """

    mails: int
    delayed: int
    kind: SizeKind
    slices_read: int
    counted_by: CountedBy


@dataclass(frozen=True, slots=True)
class WriterTally:
    """What one process tells of one slice, as its row of sliceTallies has it."""

    writer: UUID
    enqueued: int
    marked: int
    settled: bool
    is_foreign: bool

    @classmethod
    def of(cls, row: Row) -> Self:
        """Columns that were never written count as 0."""
        return cls(
            row["writer"],
            row["enqueued"] or 0,
            row["marked"] or 0,
            bool(row["settled"]),
            bool(row["isforeign"]),
        )


@dataclass(frozen=True, slots=True)
class SliceCount:
    """How many mails of a slice wait, and whether that is sure."""

    mails: int
    exact: bool
    counted_by: CountedBy


def tallied(tallies: Iterable[WriterTally]) -> SliceCount | None:
    """The sum of a slice's tallies; None where they do not suffice and its rows must be read."""
    writers = tuple(tallies)
    if not writers or any(one.is_foreign for one in writers):
        return None
    waiting = sum(one.enqueued - one.marked for one in writers)
    sure = waiting >= 0 and all(one.settled for one in writers)
    return SliceCount(max(0, waiting), sure, CountedBy.TALLIES)


def others_were_at_work(tallies: Iterable[WriterTally], rows: int, marked: int) -> bool:
    """Whether a slice holds rows or marks that nobody has counted: another program's, perhaps James's.

    Only where every sum is settled; fewer rows prove nothing, for a sweep may have been cut short.
    """
    writers = tuple(tallies)
    if not all(one.settled for one in writers):
        return False
    enqueued = sum(one.enqueued for one in writers)
    return rows > enqueued or (rows == enqueued and marked > sum(one.marked for one in writers))


def due_tallies_at(due_slice: datetime) -> datetime:
    """Where the tallies of a slice of delayed mails lie: where those of no waiting slice can."""
    return due_slice + _OF_DUE


def is_of_due(tallies_at: datetime) -> bool:
    """Whether the tallies stored there are of delayed mails."""
    return tallies_at.microsecond == _OF_DUE.microseconds


def due_ttl_seconds(tallies_at: datetime, now: datetime) -> int:
    """How long a tally of delayed mails written now lives; all tallies of a slice expire at the same time."""
    return max(tallies_at + DUE_TALLIES_KEPT - now, _LEAST) // _SECOND


def due_tallied(due_slice: datetime, tallies: Iterable[WriterTally], now: datetime) -> SliceCount | None:
    """The sum of a slice of delayed mails; None where its rows must be read."""
    return tallied(tallies) if now < due_slice + DUE_TALLIED else None


def size_of(counts: Iterable[SliceCount], delayed: Iterable[SliceCount]) -> Size:
    """The sum over the live slices, and over those of delayed mails."""
    waiting, not_due = tuple(counts), tuple(delayed)
    by_metadata = any(one.counted_by is CountedBy.METADATA for one in (*waiting, *not_due))
    return Size(
        mails=sum(one.mails for one in waiting),
        delayed=sum(one.mails for one in not_due),
        kind=SizeKind.EXACT if all(one.exact for one in (*waiting, *not_due)) else SizeKind.ESTIMATE,
        slices_read=len(waiting),
        counted_by=CountedBy.METADATA if by_metadata else CountedBy.TALLIES,
    )
