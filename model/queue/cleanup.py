"""What of a queue's tables nobody needs any more, judged from one scan of all their rows and marks. Pure.

The online sweep reads slice by slice, and only between the starts that it knows of. A scan also sees slices before the
content start, and marks without any row. Both judge by the same rules (`model.queue.starts`). A partition is over once
the browse start may pass it and each of its rows is marked: then it goes whole. Source: ADR-32, facts on James's queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from model.ids import QueueName
from model.queue.slices import slice_of
from model.queue.starts import moved_back, next_browse_start


class QueuePartition(NamedTuple):
    """A partition of enqueuedMailsV4, by its key."""

    queue: QueueName
    slice_start: datetime
    bucket: int


class RowCounts(NamedTuple):
    """How many rows a partition has, and how many of them are marked."""

    rows: int
    marked: int


class QueueDrift(Enum):
    """What a scan may find of a queue; each is counted in its own unit."""

    OVER = "OVER"  # rows: marked, in slices that nobody browses
    STRANDED = "STRANDED"  # rows: not marked, before the browse start, so that no listing shows them
    ORPHAN_MARK = "ORPHAN_MARK"  # marks without a row, where marks never expire
    START_BEHIND = "START_BEHIND"  # 1: the browse start may move on
    START_MOVED_BACK = "START_MOVED_BACK"  # 1: somebody put it back
    NO_BROWSE_START = "NO_BROWSE_START"  # 1: rows, and nothing that says where listings begin
    NO_CONTENT_START = "NO_CONTENT_START"  # 1: nothing says up to where the sweep has cleaned


@dataclass(frozen=True, slots=True)
class QueueStarts:
    """Where a queue begins; `furthest` is the latest browse start that is remembered."""

    browse: datetime | None = None
    content: datetime | None = None
    furthest: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScannedQueue:
    """What one scan showed of a queue."""

    queue: QueueName
    starts: QueueStarts = QueueStarts()
    partitions: Mapping[QueuePartition, RowCounts] = field(default_factory=dict)
    marks: int = 0
    orphan_marks: int = 0

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.partitions.values())

    @property
    def waiting(self) -> int:
        """Rows without a mark."""
        return self.rows - sum(one.marked for one in self.partitions.values())

    @property
    def first_live(self) -> datetime | None:
        """The first slice from the browse start on with a row that is not marked."""
        begin = self.starts.browse
        live = (
            one.slice_start
            for one, counts in self.partitions.items()
            if counts.marked < counts.rows and (begin is None or one.slice_start >= begin)
        )
        return min(live, default=None)


@dataclass(frozen=True, slots=True)
class JudgedQueue:
    """What a scan comes to.

    Attributes:
        browse_start: where it belongs; None where there is none.
        over: partitions that may be removed whole.
        drift: how much of each kind there is, without zeros.
    """

    scanned: ScannedQueue
    browse_start: datetime | None
    over: frozenset[QueuePartition]
    drift: Mapping[QueueDrift, int]

    def first_left(self, gone: Iterable[QueuePartition], window: timedelta) -> datetime | None:
        """Where the content start belongs once those partitions are gone: at the first rows, or the browse start."""
        if self.browse_start is None:
            return None
        left = self.scanned.partitions.keys() - set(gone)
        first = min((one.slice_start for one in left), default=self.browse_start)
        return slice_of(min(first, self.browse_start), window)


def judged(scanned: ScannedQueue, now: datetime, window: timedelta, *, marks_expire: bool) -> JudgedQueue:
    """The judgement on a queue.

    Args:
        scanned: what the scan showed.
        now: when the scan began.
        window: the slice window.
        marks_expire: whether marks have a time to live: then they need no cleanup.
    """
    starts = scanned.starts
    after = starts.browse and next_browse_start(starts.browse, scanned.first_live, now, window)
    edge = after and slice_of(after, window)
    passed = {one: counts for one, counts in scanned.partitions.items() if edge is not None and one.slice_start < edge}
    over = frozenset(one for one, counts in passed.items() if counts.marked == counts.rows)
    drift = {
        QueueDrift.OVER: sum(passed[one].rows for one in over),
        QueueDrift.STRANDED: sum(counts.rows - counts.marked for counts in passed.values()),
        QueueDrift.ORPHAN_MARK: 0 if marks_expire else scanned.orphan_marks,
        QueueDrift.START_BEHIND: int(after != starts.browse),
        QueueDrift.START_MOVED_BACK: int(moved_back(starts.browse, starts.furthest)),
        QueueDrift.NO_BROWSE_START: int(starts.browse is None and bool(scanned.partitions)),
        QueueDrift.NO_CONTENT_START: int(starts.browse is not None and starts.content is None),
    }
    return JudgedQueue(scanned, after, over, {kind: number for kind, number in drift.items() if number})


def confirmed(first: JudgedQueue, second: JudgedQueue) -> frozenset[QueuePartition]:
    """The partitions that were over at both looks, with the same rows: nobody writes to them any more."""
    before, now = first.scanned.partitions, second.scanned.partitions
    return frozenset(one for one in first.over & second.over if before[one] == now[one])


class MarksRule(Enum):
    """Which marks may be removed, in tables where they never expire; what proves that no delivery needs them."""

    KEEP = "keep"
    EMPTY = "empty"  # the broker holds no message of the queue: seen at both looks
    OLD = "old"  # the operator says how old the oldest message at the broker may be


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """What the broker held of a queue at a look; None where it does not say, `silent` says why it does not answer."""

    ready: int | None = None
    unacked: int | None = None
    dead: int | None = None
    silent: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.ready == self.unacked == self.dead == 0


def why_marks_stay(scanned: ScannedQueue, sides: Iterable[BrokerSide], *, delayed: bool) -> str | None:
    """Why the marks of a queue stay under `MarksRule.EMPTY`; None: no delivery can need any of them.

    Args:
        scanned: the second look.
        sides: the broker at both looks.
        delayed: whether mails of the queue wait for their time, and come back to the broker by themselves.
    """
    for side in sides:
        if side.silent:
            return f"the broker could not be asked: {side.silent}"
        if None in (side.ready, side.unacked, side.dead):
            return "the broker does not tell what is in consumers' hands (--broker-management)"
        if not side.is_empty:
            return f"the broker holds {side.ready:,} messages, {side.unacked:,} unacked, {side.dead:,} dead letters"
    if scanned.waiting:
        return f"{scanned.waiting:,} mails wait in the tables, and may be published again"
    return "mails are delayed, and will be published again" if delayed else None
