"""How many mails a queue holds, and the disk space of its tables. Pure.

Mails are counted by sums of tallies or counts of rows; a size says whether it is exact. The disk
space of a node, and the cost of removing garbage from it, are read from `nodetool tablestats`,
`getsstables` and `compactionhistory`, seen with Cassandra 4.1 and 5.0.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Self
from uuid import UUID

from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.errors import BadPayload
from mailmend.model.table import Key, Row

_OF_DUE: Final = timedelta(milliseconds=1)
"""What sets the tallies of a slice of delayed mails apart: slices begin at whole seconds."""

DUE_TALLIED: Final = timedelta(days=15)
"""How long after its start a slice of delayed mails is counted by tallies; it is empty long before that."""

DUE_TALLIES_KEPT: Final = 2 * DUE_TALLIED
"""How long tallies of delayed mails live after the start of their slice: none expires while it is still used."""

_SECOND: Final = timedelta(seconds=1)
_LEAST: Final = timedelta(days=1)


class SizeKind(Enum):
    """Whether a size is exact."""

    EXACT = "exact"
    ESTIMATE = "estimate"


class CountedBy(Enum):
    """How a size was found."""

    TALLIES = "tallies"  # sums that each process keeps of what it enqueued and marked
    METADATA = "metadata"  # every row of some slice was looked at
    BROKER = "broker"  # the broker's own counts: there are no slices


@dataclass(frozen=True, slots=True)
class Size:
    """How many mails a queue holds.

    Attributes:
        delayed: the number of mails that are not due yet, not included in the others.
        slices_read: the number of slices whose rows were counted; it determines the time that counting takes.
        counted_by: METADATA where the rows of at least one slice were counted; BROKER without such slices.
    """

    mails: int
    delayed: int
    kind: SizeKind
    slices_read: int
    counted_by: CountedBy


@dataclass(frozen=True, slots=True)
class WriterTally:
    """The counts of one process for one slice: a row of sliceTallies."""

    writer: UUID
    enqueued: int
    marked: int
    settled: bool
    is_foreign: bool

    @classmethod
    def of(cls, row: Row) -> Self:
        """Read the tally from its row; columns that were never written count as 0."""
        return cls(
            row["writer"],
            row["enqueued"] or 0,
            row["marked"] or 0,
            bool(row["settled"]),
            bool(row["isforeign"]),
        )


@dataclass(frozen=True, slots=True)
class SliceCount:
    """How many mails of a slice wait, and whether that is exact."""

    mails: int
    exact: bool
    counted_by: CountedBy


def tallied(tallies: Iterable[WriterTally]) -> SliceCount | None:
    """The sum of a slice's tallies; None where they do not suffice and its rows must be read."""
    writers = tuple(tallies)
    if not writers or any(writer.is_foreign for writer in writers):
        return None
    waiting = sum(writer.enqueued - writer.marked for writer in writers)
    sure = waiting >= 0 and all(writer.settled for writer in writers)
    return SliceCount(max(0, waiting), sure, CountedBy.TALLIES)


def others_were_at_work(tallies: Iterable[WriterTally], rows: int, marked: int) -> bool:
    """Whether a slice has rows or marks that no tally counts: another program's, perhaps James's.

    Always False while a tally may still change. Fewer rows than tallies prove nothing: a sweep may have been cut short.
    """
    writers = tuple(tallies)
    if not all(writer.settled for writer in writers):
        return False
    enqueued = sum(writer.enqueued for writer in writers)
    if rows != enqueued:
        return rows > enqueued
    return marked > sum(writer.marked for writer in writers)


def due_tallies_at(due_slice: datetime) -> datetime:
    """The key in sliceTallies of a slice of delayed mails, which no slice of waiting mails can have."""
    return due_slice + _OF_DUE


def is_of_due(tallies_at: datetime) -> bool:
    """Whether this key in sliceTallies is the key of a slice of delayed mails."""
    return tallies_at.microsecond == _OF_DUE.microseconds


def due_ttl_seconds(tallies_at: datetime, now: datetime) -> int:
    """The time to live, in seconds, of a tally of delayed mails; all tallies of a slice expire at the same time."""
    return max(tallies_at + DUE_TALLIES_KEPT - now, _LEAST) // _SECOND


def due_tallied(due_slice: datetime, tallies: Iterable[WriterTally], now: datetime) -> SliceCount | None:
    """The sum of a slice of delayed mails; None where its rows must be read."""
    if now >= due_slice + DUE_TALLIED:
        return None
    return tallied(tallies)


def size_of(counts: Iterable[SliceCount], delayed: Iterable[SliceCount]) -> Size:
    """The sum over the live slices, and over the slices of delayed mails."""
    waiting = tuple(counts)
    not_due = tuple(delayed)
    kind = SizeKind.EXACT
    counted_by = CountedBy.TALLIES
    for count in (*waiting, *not_due):
        if not count.exact:
            kind = SizeKind.ESTIMATE
        if count.counted_by is CountedBy.METADATA:
            counted_by = CountedBy.METADATA
    return Size(
        mails=sum(count.mails for count in waiting),
        delayed=sum(count.mails for count in not_due),
        kind=kind,
        slices_read=len(waiting),
        counted_by=counted_by,
    )


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The disk space of tables on one node: live SSTables only."""

    bytes: int
    sstables: int

    def __add__(self, other: "OnDisk") -> "OnDisk":
        return OnDisk(self.bytes + other.bytes, self.sstables + other.sstables)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """How long rewriting SSTables took, and their size."""

    bytes: int
    seconds: float

    def seconds_for(self, some: OnDisk) -> float:
        return some.bytes * self.seconds / self.bytes


def on_disk(answer: str, keyspace: str) -> OnDisk:
    """Parse the output of `nodetool tablestats --format json`: the disk space of the keyspace's tables.

    Raises:
        BadPayload: it is not what nodetool answers.
    """
    found = OnDisk(0, 0)
    try:
        for table in _object(answer)[keyspace]["tables"].values():
            found += OnDisk(int(table["space_used_live"]), int(table["sstable_count"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPayload(f"nodetool tablestats of {keyspace} answered something else: {answer[:80]!r}") from error
    return found


def compactions(answer: str, keyspace: str, table: str) -> Mapping[str, int]:
    """Parse the output of `nodetool compactionhistory --format json`: bytes read by each compaction, by its id.

    Raises:
        BadPayload: it is not what nodetool answers.
    """
    bytes_by_id: dict[str, int] = {}
    try:
        past: Iterable[Mapping[str, str]] = _object(answer).get("CompactionHistory", ())
        for row in past:
            if (row["keyspace_name"], row["columnfamily_name"]) == (keyspace, table):
                bytes_by_id[row["id"]] = int(row["bytes_in"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPayload(f"nodetool compactionhistory answered something else: {answer[:80]!r}") from error
    return bytes_by_id


def key_text(partition: Key) -> str:
    """A partition's key as nodetool reads it."""
    return ":".join(_part(value).replace(":", "\\:") for value in partition)


def _part(value: object) -> str:
    if isinstance(value, datetime):
        return str(millis_of(value))
    return str(value)


def _object(answer: str) -> Any:
    """The text before it is warnings of a shell or of Java."""
    return json.loads(answer[answer.index("{") :])
