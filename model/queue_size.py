"""How many mails a queue holds, and how sure that is: sums of tallies, or rows that were looked at. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self
from uuid import UUID

from model.table import Row


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
        mails: those that wait: a row and no mark.
        delayed: those that are not due yet, beside them.
        slices_read: how many slices were looked at; the time that counting takes depends on it.
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
        """Of a row; what was never written counts for nothing."""
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
    """The sum of a slice's tallies; None where they cannot tell, and its rows must be looked at."""
    told = tuple(tallies)
    if not told or any(one.is_foreign for one in told):
        return None
    waiting = sum(one.enqueued - one.marked for one in told)
    sure = waiting >= 0 and all(one.settled for one in told)
    return SliceCount(max(0, waiting), sure, CountedBy.TALLIES)


def size_of(counts: Iterable[SliceCount], delayed: int) -> Size:
    """The sum over the live slices."""
    told = tuple(counts)
    by_metadata = any(one.counted_by is CountedBy.METADATA for one in told)
    return Size(
        mails=sum(one.mails for one in told),
        delayed=delayed,
        kind=SizeKind.EXACT if all(one.exact for one in told) else SizeKind.ESTIMATE,
        slices_read=len(told),
        counted_by=CountedBy.METADATA if by_metadata else CountedBy.TALLIES,
    )
