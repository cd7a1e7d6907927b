"""Which rows and marks of a queue are not needed any more, judged from one scan of all of them. Pure.

The online sweep reads slice by slice, and only between the starts that it knows of. A scan also sees slices before the
content start, and marks without any row. Both judge by the same rules (`mailqueue.rules.slices`). A partition is
over, and is removed whole, once each of its rows is marked and the browse start may pass it.
Source: James's ADR-32; docs/design.md, "Queue".
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple, Self

from mailmend.mailqueue.rules.slices import EPOCH, moved_back, next_browse_start, slice_of
from mailmend.model.ids import QueueName
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import HARMLESS, OVER_VERDICTS, QUEUE_VERDICTS, Verdict
from mailmend.model.table import Key, Row

_MILLISECOND: Final = timedelta(milliseconds=1)
_KEY_NAMES: Final = ("queuename", "timerangestart", "bucketid")


class QueuePartition(NamedTuple):
    """A partition of enqueuedMailsV4, by its key."""

    queue: QueueName
    slice_start: datetime
    bucket: int

    @classmethod
    def at_millis(cls, queue: str, millis: int, bucket: int) -> Self:
        """The partition of a slice's start in milliseconds since 1970, as scanners have it."""
        return cls(QueueName(queue), EPOCH + millis * _MILLISECOND, bucket)


class RowCounts(NamedTuple):
    """How many rows a partition has, and how many of them are marked."""

    rows: int
    marked: int

    @property
    def waiting(self) -> int:
        return self.rows - self.marked


class QueuePlace(NamedTuple):
    """A verdict and its place: a queue, one of its slices or partitions, or a row."""

    verdict: Verdict
    key: Key


@dataclass(frozen=True, slots=True)
class QueueStarts:
    """The starts of a queue; `furthest` is the latest browse start that was ever recorded."""

    browse: datetime | None = None
    content: datetime | None = None
    furthest: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScannedQueue:
    """What one scan showed of a queue.

    Attributes:
        tallied: the number of waiting mails by the tallies of each slice, where the tallies count as exact.
    """

    queue: QueueName
    starts: QueueStarts = QueueStarts()
    partitions: Mapping[QueuePartition, RowCounts] = field(default_factory=dict)
    marks: int = 0
    orphan_marks: int = 0
    tallied: Mapping[datetime, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions.values())

    @property
    def waiting(self) -> int:
        """The number of rows without a mark."""
        return sum(partition.waiting for partition in self.partitions.values())

    @property
    def first_live(self) -> datetime | None:
        """The first slice, from the browse start on, with an unmarked row; None without such a row."""
        begin = self.starts.browse
        live = []
        for partition, counts in self.partitions.items():
            if counts.waiting and (begin is None or partition.slice_start >= begin):
                live.append(partition.slice_start)
        return min(live, default=None)

    def counts_in(self, slice_start: datetime) -> RowCounts:
        """The counts of all buckets of the slice together."""
        rows = 0
        marked = 0
        for partition, counts in self.partitions.items():
            if partition.slice_start == slice_start:
                rows += counts.rows
                marked += counts.marked
        return RowCounts(rows, marked)


@dataclass(frozen=True, slots=True)
class JudgedQueue:
    """The judgement on one queue after a scan.

    Attributes:
        browse_start: where the browse start should be; None where the queue has none.
        over: the partitions that may be removed whole.
        found: for each verdict and place the number of rows, or 1 for what is not counted in rows; no zeros.
    """

    scanned: ScannedQueue
    browse_start: datetime | None
    over: frozenset[QueuePartition]
    found: Mapping[QueuePlace, int]

    @property
    def is_drift(self) -> bool:
        return any(verdict not in HARMLESS for verdict, _ in self.found)

    def first_left(self, gone: Iterable[QueuePartition], browse_start: datetime, window: timedelta) -> datetime:
        """Where the content start should be once `gone` is removed: at the first rows left, or at the browse start.

        `browse_start` is as it is now: a cleanup may have moved it less far than this judgement would.
        """
        left = self.scanned.partitions.keys() - set(gone)
        first = min((partition.slice_start for partition in left), default=browse_start)
        return slice_of(min(first, browse_start), window)


def judged(
    scanned: ScannedQueue, now: datetime, window: timedelta, *, marks_expire: bool, row_ttl: timedelta = timedelta()
) -> JudgedQueue:
    """Judge a queue by what one scan showed.

    Args:
        scanned: what the scan showed.
        now: when the scan began.
        window: the slice window.
        marks_expire: whether marks have a time to live: then they need no cleanup.
        row_ttl: how long rows live; zero: for ever.
    """
    starts = scanned.starts
    after = starts.browse and next_browse_start(starts.browse, scanned.first_live, now, window)
    edge = after and slice_of(after, window)
    passed: dict[QueuePartition, RowCounts] = {}
    if edge is not None:
        passed = {partition: counts for partition, counts in scanned.partitions.items() if partition.slice_start < edge}
    over = frozenset(partition for partition, counts in passed.items() if not counts.waiting)
    swept_to = starts.content and slice_of(starts.content, window)
    found: dict[QueuePlace, int] = {}
    for partition in over:
        beyond = swept_to is not None and partition.slice_start < swept_to
        verdict = Verdict.BEFORE_CONTENT if beyond else Verdict.OVER
        found[QueuePlace(verdict, partition)] = passed[partition].rows
    for partition, counts in passed.items():
        found[QueuePlace(Verdict.STRANDED, partition)] = counts.waiting
    if row_ttl:
        for partition, counts in scanned.partitions.items():
            if partition.slice_start + window < now - row_ttl:
                found[QueuePlace(Verdict.OVERSTAYED, partition)] = counts.waiting
    finished = sum(counts.marked for partition, counts in scanned.partitions.items() if partition not in over)
    for at, off in _miscounted(scanned, edge).items():
        found[QueuePlace(Verdict.TALLY_DIFFERS, (scanned.queue, at))] = off
    is_behind = after != starts.browse and (bool(over) or _is_stuck(scanned, now, window))
    of_queue = {
        Verdict.FINISHED: finished,
        Verdict.ORPHAN_MARK: 0 if marks_expire else scanned.orphan_marks,
        Verdict.START_BEHIND: int(is_behind),
        Verdict.START_MOVED_BACK: int(moved_back(starts.browse, starts.furthest)),
        Verdict.NO_BROWSE_START: int(starts.browse is None and bool(scanned.partitions)),
        Verdict.NO_CONTENT_START: int(starts.browse is not None and starts.content is None),
    }
    for verdict, number in of_queue.items():
        found[QueuePlace(verdict, (scanned.queue,))] = number
    return JudgedQueue(scanned, after, over, {place: number for place, number in found.items() if number})


def _is_stuck(scanned: ScannedQueue, now: datetime, window: timedelta) -> bool:
    """Whether the browse start could have been moved a window ago: since then it had time."""
    browse = scanned.starts.browse
    if browse is None:
        return False
    reachable = next_browse_start(browse, scanned.first_live, now - window, window)
    return reachable != browse


def _miscounted(scanned: ScannedQueue, edge: datetime | None) -> dict[datetime, int]:
    """By how many mails the tallies of slices that are browsed differ from their rows."""
    waiting: Counter[datetime] = Counter()
    for partition, counts in scanned.partitions.items():
        waiting[partition.slice_start] += counts.waiting
    if edge is None:
        return {}
    return {at: abs(number - waiting[at]) for at, number in scanned.tallied.items() if at >= edge}


def confirmed(first: JudgedQueue, second: JudgedQueue) -> frozenset[QueuePartition]:
    """The partitions that were over in both scans with the same rows, so that no process writes to them any more."""
    before = first.scanned.partitions
    now = second.scanned.partitions
    return frozenset(partition for partition in first.over & second.over if before[partition] == now[partition])


def found_twice(first: JudgedQueue, second: JudgedQueue, over: Collection[QueuePartition]) -> dict[QueuePlace, int]:
    """What both scans found with equal results; of partitions that are over, only the confirmed ones (`over`)."""
    same: dict[QueuePlace, int] = {}
    for place, number in second.found.items():
        if place.verdict in OVER_VERDICTS:
            in_both = number if place.key in over else 0
        elif place.verdict is Verdict.TALLY_DIFFERS:
            in_both = number if _stands_still(first, second, place.key) else 0
        else:
            in_both = min(number, first.found.get(place, 0))
        if in_both:
            same[place] = in_both
    return same


def _stands_still(first: JudgedQueue, second: JudgedQueue, key: Key) -> bool:
    """Whether neither rows nor tallies of the slice changed between the looks: else one was only ahead of the other."""
    before = first.scanned
    now = second.scanned
    _, at = key
    return before.tallied.get(at) == now.tallied.get(at) and before.counts_in(at) == now.counts_in(at)


def findings_of(found: Mapping[QueuePlace, int], scanned: ScannedQueue) -> dict[QueuePlace, Finding]:
    """The findings, each with what was there before: counts of a partition or a slice, or the starts."""
    findings = {}
    for place, number in found.items():
        verdict, key = place
        row = _before(verdict, key, scanned)
        image = None
        if row is not None:
            image = Seen({**dict(zip(_KEY_NAMES, key, strict=False)), **row})
        suspect = Suspect(QUEUE_VERDICTS[verdict].table, key, verdict)
        findings[place] = Finding(suspect, verdict, projected=image, number=number)
    return findings


def _before(verdict: Verdict, key: Key, scanned: ScannedQueue) -> Row | None:
    """What the scan showed of the place; None where findings only count."""
    starts = scanned.starts
    if verdict in OVER_VERDICTS:
        return scanned.partitions[QueuePartition(*key)]._asdict()
    if verdict is Verdict.TALLY_DIFFERS:
        _, at = key
        return {"tallied": scanned.tallied.get(at), **scanned.counts_in(at)._asdict()}
    if len(key) == 1:
        return {"browsestart": starts.browse, "contentstart": starts.content, "furtheststart": starts.furthest}
    return None


class MarksRule(Enum):
    """Which marks may be removed from tables in which they never expire, by the proof that no delivery needs them."""

    KEEP = "keep"
    EMPTY = "empty"  # the broker holds no message of the queue: seen at both looks
    OLD = "old"  # the operator says how old the oldest message at the broker may be


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """The broker's counts of a queue at one scan; None where it does not tell. `silent` says why it did not answer."""

    ready: int | None = None
    unacked: int | None = None
    dead: int | None = None
    silent: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.ready == self.unacked == self.dead == 0


def why_marks_stay(scanned: ScannedQueue, sides: Iterable[BrokerSide], *, delayed: bool) -> str | None:
    """Why the marks of a queue are kept under `MarksRule.EMPTY`; None where no delivery can need them.

    Args:
        scanned: the second scan.
        sides: the broker's counts at both scans.
        delayed: whether the queue has delayed mails, which will be published when they are due.
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
    if delayed:
        return "mails are delayed, and will be published again"
    return None
