"""The cleanup of all queues of a keyspace: what the online sweep has not reached, and marks that never expire.

Everything is scanned twice, the delay apart, and only what was over both times is removed: the browse start moves, then
blobs go, then rows by whole partitions; then the content start moves, and marks go. Removals carry a stamp T from
before the first scan: whatever anybody writes since stays, so James, workers and the online sweep may run meanwhile.
Each step may be the last one of a process; the next run begins again with what is still there.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import Final

from mailqueue.concurrency import all_of
from mailqueue.maintenance.cleanup_scan import Mark, QueueScan, QueueScanner
from mailqueue.maintenance.sweep import Moved, Sweeper
from mailqueue.rabbitmq.view.queue_view import QueueView
from model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from model.errors import BadPayload, CannotReach, MailmendError
from model.ids import BlobId, EnqueueId, QueueName
from model.operations import Remove
from model.ports import Blobs, Broker, Progress
from model.queue.cleanup import (
    BrokerSide,
    JudgedQueue,
    MarksRule,
    QueueDrift,
    QueuePartition,
    QueueStarts,
    ScannedQueue,
    confirmed,
    judged,
    why_marks_stay,
)
from model.queue.slices import Slicing

PARTITIONS_AT_ONCE: Final = 4
MARKS_TOGETHER: Final = 1_000
"""How many marks are removed before more are: each is a partition of its own."""

_MENDED_BY_MOVING: Final = (QueueDrift.START_BEHIND, QueueDrift.START_MOVED_BACK, QueueDrift.NO_CONTENT_START)
_BLOBS: Final = ("headerblobid", "bodyblobid")
_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """What a cleanup may do.

    Attributes:
        as_of: T, in microseconds: nothing that was written later is removed.
        marks_age: under `MarksRule.OLD` only marks written longer ago are removed.
    """

    as_of: int
    delay_seconds: float
    marks: MarksRule = MarksRule.KEEP
    marks_age: timedelta = timedelta()

    @property
    def marks_as_of(self) -> int:
        return self.as_of - self.marks_age // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CleanedQueue:
    """What was found of a queue, and what was done.

    Attributes:
        judged: the second look, or the first where that found nothing.
        over: partitions that were over both times; after a cleanup, those that were removed.
        found: drift that both looks showed.
        rows, blobs: of the partitions that were removed; blobs as often as they were named.
        marks: that were removed.
        marks_stay: why marks that never expire were left, where they were; None else.
        failed: what could not be done, in sentences.
    """

    queue: QueueName
    judged: JudgedQueue
    over: frozenset[QueuePartition] = frozenset()
    found: Mapping[QueueDrift, int] = field(default_factory=dict)
    rows: int = 0
    blobs: int = 0
    marks: int = 0
    marks_stay: str | None = None
    failed: tuple[str, ...] = ()

    @property
    def left(self) -> Counter[QueueDrift]:
        """What a run that wrote leaves of what it found."""
        left = Counter(self.found)
        left[QueueDrift.OVER] -= self.rows
        left[QueueDrift.ORPHAN_MARK] -= self.marks
        if not self.failed:
            left -= Counter({kind: left[kind] for kind in _MENDED_BY_MOVING})
        return +left


@dataclass(frozen=True, slots=True)
class _Removed:
    """How many blobs a partition named; whether nothing is left of it: what was written after T is."""

    blobs: int
    whole: bool


class QueueCleanup:
    """Cleans every queue of a keyspace.

    Args:
        blobs: where the bytes of finished mails are deleted once more; None: they are left.
        broker: asked under `MarksRule.EMPTY` only.
    """

    def __init__(
        self,
        view: QueueView,
        scanner: QueueScanner,
        progress: Progress,
        blobs: Blobs | None = None,
        broker: Broker | None = None,
    ) -> None:
        self._view, self._scanner, self._progress = view, scanner, progress
        self._blobs, self._broker = blobs, broker

    async def run(self, settings: CleanupSettings, sweeper: Sweeper | None = None) -> list[CleanedQueue]:
        """Look, wait, look again, clean; `sweeper` moves the browse starts: without one, nothing is written."""
        slicing = await self._view.slicing()
        scan, first = await self._look(slicing)
        scan.close()
        if not any(one.drift for one in first.values()):
            return [CleanedQueue(queue, one) for queue, one in first.items()]
        sides = {queue: [await self._broker_side(queue, settings)] for queue in first}
        self._progress.stage("waiting", round(settings.delay_seconds))
        await self._view.clock.pause(settings.delay_seconds)
        scan, second = await self._look(slicing)
        try:
            recut = await self._view.slicing() != slicing
            cleaned = []
            for queue, before in first.items():
                now = second.get(queue, before)
                over = frozenset() if recut else confirmed(before, now)
                one = CleanedQueue(queue, now, over, in_both(before, now, over))
                if sweeper is not None:
                    one = await self._cleaned(one, before, slicing, settings, sweeper)
                sides[queue].append(await self._broker_side(queue, settings))
                stay = await self._why_marks_stay(now, sides[queue], settings)
                cleaned.append(replace(one, marks_stay=stay))
            return cleaned if sweeper is None else await self._without_marks(scan, cleaned, settings)
        finally:
            scan.close()

    async def _look(self, slicing: Slicing) -> tuple[QueueScan, dict[QueueName, JudgedQueue]]:
        now, starts = self._view.now, self._view.starts
        named = await starts.queues()
        try:
            scan = await asyncio.to_thread(self._scanner.scan, self._progress)
        except asyncio.CancelledError:
            self._scanner.interrupt()
            raise
        found: dict[QueueName, JudgedQueue] = {}
        for queue in sorted({*named, *(one.queue for one in scan.partitions), *scan.marks}):
            state = await starts.state(queue)
            scanned = ScannedQueue(
                queue,
                QueueStarts(await starts.browse_start(queue), await starts.content_start(queue), state.furthest_start),
                {one: counts for one, counts in scan.partitions.items() if one.queue == queue},
                scan.marks.get(queue, 0),
                scan.orphan_marks.get(queue, 0),
            )
            found[queue] = judged(scanned, now, slicing.window, marks_expire=self._view.own.marks_expire)
        return scan, found

    async def _cleaned(
        self, one: CleanedQueue, before: JudgedQueue, slicing: Slicing, settings: CleanupSettings, sweeper: Sweeper
    ) -> CleanedQueue:
        """Browse start, partitions, content start, in this order."""
        starts, to = one.judged.scanned.starts, one.judged.browse_start
        if starts.browse is None or to is None or before.browse_start is None:
            return one
        state = await self._view.starts.state(one.queue)
        back = QueueDrift.START_MOVED_BACK in one.judged.drift
        moved = await sweeper.advance(
            one.queue, Moved(starts.browse, min(to, before.browse_start), back, state), slicing
        )
        assert moved.after is not None, "a start that was found never goes"
        gone = [partition for partition in sorted(one.over) if partition.slice_start < moved.after]
        self._progress.stage(f"clean {one.queue}", len(gone))

        async def remove(partition: QueuePartition) -> _Removed | MailmendError:
            return await self._removed(partition, settings)

        answers = await all_of(gone, remove, PARTITIONS_AT_ONCE)
        errors = tuple(str(answer) for answer in answers if isinstance(answer, MailmendError))
        done = {place: found for place, found in zip(gone, answers, strict=True) if isinstance(found, _Removed)}
        removed = frozenset(place for place, found in done.items() if found.whole)
        if not errors:
            await self._move_content_start(one.judged, removed, slicing)
        rows = sum(one.judged.scanned.partitions[place].rows for place in removed)
        return replace(one, over=removed, rows=rows, blobs=sum(found.blobs for found in done.values()), failed=errors)

    async def _removed(self, partition: QueuePartition, settings: CleanupSettings) -> "_Removed | MailmendError":
        """Remove the partition as of T, its blobs first, and read it back."""
        try:
            blobs = await self._without_blobs(partition) if self._blobs else 0
            await self._view.write(Remove(ENQUEUED_MAILS, partition, settings.as_of))
            async with aclosing(self._view.slices.pages(partition, ("enqueueid",))) as pages:
                whole = not await anext(pages)
        except MailmendError as error:
            return error
        self._progress.advance(1)
        return _Removed(blobs, whole)

    async def _without_blobs(self, partition: QueuePartition) -> int:
        """Delete the blobs of its marked rows: a mail may have come since the scan."""
        assert self._blobs is not None
        named = 0
        async with aclosing(self._view.slices.pages(partition, ("enqueueid", *_BLOBS))) as pages:
            async for page in pages:
                marked = await self._view.marks.among(partition.queue, [EnqueueId(row["enqueueid"]) for row in page])
                done = [row for row in page if row["enqueueid"] in marked]
                blobs = [BlobId(row[name]) for row in done for name in _BLOBS if row[name]]
                try:
                    await self._blobs.delete_all(blobs)
                except BadPayload as error:
                    _LOG.warning("a row that is cleaned away names a blob that cannot be: %s", error.what)
                named += len(blobs)
        return named

    async def _move_content_start(self, one: JudgedQueue, gone: Collection[QueuePartition], slicing: Slicing) -> None:
        queue, starts, to = one.scanned.queue, self._view.starts, one.first_left(gone, slicing.window)
        if to is None:
            return
        standing = one.scanned.starts.content or await starts.begin_content(queue, to)
        await starts.advance_content_start(queue, standing, to)
        for slice_start in {place.slice_start for place in gone if place.slice_start < to}:
            await self._view.tallies.forget(queue, slice_start)

    async def _broker_side(self, queue: QueueName, settings: CleanupSettings) -> BrokerSide:
        if settings.marks is not MarksRule.EMPTY or self._broker is None:
            return BrokerSide()
        try:
            depth = await self._broker.depth(queue)
        except CannotReach as error:
            return BrokerSide(silent=error.what)
        return BrokerSide(depth.ready, depth.in_hands, depth.dead)

    async def _why_marks_stay(
        self, one: JudgedQueue, sides: Sequence[BrokerSide], settings: CleanupSettings
    ) -> str | None:
        if self._view.own.marks_expire or not one.scanned.marks:
            return None
        match settings.marks:
            case MarksRule.KEEP:
                return "nothing was said of them: --marks empty, or --marks old --marks-age AGE"
            case MarksRule.EMPTY:
                return why_marks_stay(one.scanned, sides, delayed=await self._delayed(one.scanned.queue))
            case MarksRule.OLD:
                return None

    async def _delayed(self, queue: QueueName) -> bool:
        if self._view.due is None:
            return False
        async with aclosing(self._view.due.mails(queue)) as mails:
            return await anext(mails, None) is not None

    async def _without_marks(
        self, scan: QueueScan, cleaned: Sequence[CleanedQueue], settings: CleanupSettings
    ) -> list[CleanedQueue]:
        """Remove the marks of mails that have no row any more, of the queues whose marks need not stay."""
        done = {one.queue: one for one in cleaned}
        free = {one.queue for one in cleaned if one.judged.scanned.marks and one.marks_stay is None}
        if self._view.own.marks_expire or not free:
            return list(cleaned)
        gone = {place for one in cleaned for place in one.over}
        marks = (mark for mark in scan.marks_without(scan.partitions.keys() - gone) if mark[0] in free)
        self._progress.stage("remove marks")
        while some := await asyncio.to_thread(_next, marks):
            removals = [Remove(DELETED_MAILS, mark, settings.marks_as_of) for mark in some]
            errors = await self._view.retries.write_all(self._view.tables, removals)
            for (queue, _), error in zip(some, errors, strict=True):
                one = done[queue]
                failed = (*one.failed, str(error)) if error and not one.failed else one.failed
                done[queue] = replace(one, marks=one.marks + (error is None), failed=failed)
            self._progress.advance(len(some))
        return list(done.values())


def in_both(first: JudgedQueue, second: JudgedQueue, over: Collection[QueuePartition]) -> dict[QueueDrift, int]:
    """The drift that both looks showed, as far as it was the same."""
    same = {kind: min(number, first.drift.get(kind, 0)) for kind, number in second.drift.items()}
    same[QueueDrift.OVER] = sum(second.scanned.partitions[one].rows for one in over)
    return {kind: same[kind] for kind in QueueDrift if same.get(kind)}


def _next(marks: Iterator[Mark]) -> list[Mark]:
    return list(islice(marks, MARKS_TOGETHER))
