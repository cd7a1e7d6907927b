"""The cleanup of all queues of a keyspace: what sweeps have not reached, and approved plans of it.

A plan holds what an earlier look saw, perhaps hours before. Of what two looks show now, only that
is mended which the plan names with the same counts and starts. Whatever else they show is not part
of the plan, and is not reported.

Everything is scanned twice, the delay apart, and only what was over both times is removed: the
browse start moves, then blobs go, then rows by whole partitions; then the content start moves, and
marks go. Removals carry a stamp T from before the first scan: whatever anybody writes since stays,
so James, workers and the online sweep may run meanwhile. Each step may be the last one of a
process; the next run begins again with what is still there.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeVar

from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.cleanup.scan import Mark, MarksGone, MarksWanted, QueueScan, QueueScanner
from mailmend.mailqueue.cleanup.writes import MENDED, CleanedQueue, FindingsRecord, QueueCleaning
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rabbitmq.clean_slices import marked_pages
from mailmend.mailqueue.rabbitmq.sweep import Sweeper
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rabbitmq.view.slices import answered
from mailmend.mailqueue.rules.cleanup import (
    BrokerSide,
    JudgedQueue,
    MarksRule,
    QueuePartition,
    QueuePlace,
    QueueStarts,
    RowCounts,
    ScannedQueue,
    confirmed,
    findings_of,
    found_twice,
    judged,
    why_marks_stay,
)
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import BadPayload, CannotReach
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.operations import Read
from mailmend.model.ports import Progress
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import OVER_VERDICTS, QUEUE_VERDICTS, Reason, Verdict, Why
from mailmend.model.waiting import pause_visibly
from mailmend.repair.ledger.before_images import image_digest

_MOVES = frozenset(verdict for verdict, queue_verdict in QUEUE_VERDICTS.items() if queue_verdict.moves_start)
_TO = "browsestart"


@dataclass(frozen=True, slots=True)
class PlannedCleanup:
    """What a plan names.

    Attributes:
        suspects: by place; as in a scan's counts, one for a partition and never one for a mail.
        marks: reads from the file the marks that may go; each call reads them anew.
    """

    suspects: Mapping[QueuePlace, Suspect]
    marks: Callable[[], Iterator[Mark]]

    def limited(self, one: CleanedQueue, before: JudgedQueue) -> tuple[CleanedQueue, JudgedQueue, list[Finding]]:
        """What of the queue is still as planned, in three parts.

        Returns:
            The queue with only those findings, the first look with its browse start no later than planned, and findings
            on what is not as planned any more.
        """
        planned = {place: suspect for place, suspect in self.suspects.items() if place.key[:1] == (one.queue,)}
        same: dict[QueuePlace, Finding] = {}
        others: list[Finding] = []
        for place, suspect in planned.items():
            if _is_as_seen(one, place, suspect):
                same[place] = one.findings[place]
                continue
            moved = _moved(one, place, suspect)
            if moved is not None:
                others.append(moved)
        same_over = {place.key for place in same if place.verdict in OVER_VERDICTS}
        over = frozenset(partition for partition in one.over if partition in same_over)
        planned_starts = [planned[place].wanted[_TO] for place in same if place.verdict in _MOVES]
        to = max(planned_starts, default=one.judged.scanned.starts.browse)
        if before.browse_start is not None and to is not None:
            before = replace(before, browse_start=min(before.browse_start, to))
        return replace(one, over=over, findings=same, suspects=len(planned)), before, others


def planned_of(found: Finding, one: JudgedQueue) -> Suspect:
    """The suspect that a plan keeps for a finding; a browse start is then moved no further than the plan says."""
    if found.verdict in _MOVES:
        return replace(found.suspect, wanted={_TO: one.browse_start})
    return found.suspect


def _is_as_seen(one: CleanedQueue, place: QueuePlace, suspect: Suspect) -> bool:
    """A browse start that others have moved since goes on to where it was planned to be."""
    if place.verdict in _MOVES:
        browse = one.judged.scanned.starts.browse
        return place in one.findings and browse is not None and browse < suspect.wanted[_TO]
    return place in one.findings and image_digest(one.findings[place]) == suspect.planned


def _moved(one: CleanedQueue, place: QueuePlace, suspect: Suspect) -> Finding | None:
    """What is there and not as it was seen; None where nothing is left to do."""
    counts = None
    if place.verdict in OVER_VERDICTS:
        counts = one.judged.scanned.partitions.get(QueuePartition(*suspect.key))
    if counts is not None:
        number = counts.rows
    elif place in one.findings and place.verdict not in _MOVES:
        number = one.findings[place].number
    else:
        return None
    why = Reason(Why.OTHER_THAN_PLANNED)
    return Finding(suspect, suspect.verdict, result=Verdict.MOVED, reason=why, number=number)


BLOBS_AT_ONCE: Final = 32
"""For how many waiting mails at once the store is asked whether their blobs are there."""

T = TypeVar("T")

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """What a cleanup may do.

    Attributes:
        as_of: T, in microseconds: nothing that was written later is removed.
        marks_age: under `MarksRule.OLD` only marks written longer ago are removed.
        recheck: whether there is a second look; without one nothing may be written.
        planned: what was approved: nothing else is mended; None: all that is found.
    """

    as_of: int
    delay_seconds: float
    marks: MarksRule = MarksRule.KEEP
    marks_age: timedelta = timedelta()
    recheck: bool = True
    planned: PlannedCleanup | None = None

    @property
    def marks_as_of(self) -> int:
        return self.as_of - self.marks_age // timedelta(microseconds=1)


class QueueCleanup:
    """Cleans every queue of a keyspace.

    Args:
        blobs: where the bytes of mails are; None: they are neither looked at nor deleted.
        broker: asked under `MarksRule.EMPTY` only.
        on_mark: receives each mark that would go, where nothing is written; None: they are only counted.
    """

    def __init__(
        self,
        view: QueueView,
        scanner: QueueScanner,
        progress: Progress,
        blobs: Blobs | None = None,
        broker: Broker | None = None,
        *,
        on_mark: Callable[[Mark], None] | None = None,
    ) -> None:
        self._view = view
        self._scanner = scanner
        self._progress = progress
        self._blobs = blobs
        self._broker = broker
        self._on_mark = on_mark

    async def run(
        self, settings: CleanupSettings, sweeper: Sweeper | None = None, record: FindingsRecord | None = None
    ) -> list[CleanedQueue]:
        """Look, wait, look again, clean; `sweeper` moves the browse starts: without one, nothing is written."""
        slicing = await self._view.slicing()
        record = record or FindingsRecord(settings.as_of)
        scan, first = await self._look(slicing)
        second = first
        recut = False
        try:
            sides: dict[QueueName, list[BrokerSide]] = {}
            for queue in first:
                sides[queue] = [await self._broker_side(queue, settings)]
            doubtful = any(self._is_looked_at_again(earlier, settings) for earlier in first.values())
            if settings.recheck and doubtful:
                scan.close()
                what = "waiting before the second look at queues"
                await pause_visibly(self._view.clock, self._progress, what, settings.delay_seconds)
                scan, second = await self._look(slicing)
                recut = await self._view.slicing() != slicing
            cleaned = []
            for queue, earlier in first.items():
                before = earlier
                moved = list[Finding]()
                now = second.get(queue, before)
                over = frozenset[QueuePartition]()
                if not recut:
                    over = confirmed(before, now)
                found = found_twice(before, now, over)
                if settings.planned is None:
                    found |= await self._without_content(now)
                one = CleanedQueue(queue, now, over, findings_of(found, now.scanned), sum(before.found.values()))
                if settings.planned:
                    one, before, moved = settings.planned.limited(one, before)
                if sweeper is None:
                    one = one.with_findings(replace(found, due=True) for found in one.are(*MENDED))
                elif one.findings or settings.planned is None:
                    blobs = self._blobs
                    progress = self._progress
                    cleaning = QueueCleaning(self._view, sweeper, slicing, progress, blobs, record)
                    one = await cleaning.carried_out(one, before)
                sides[queue].append(await self._broker_side(queue, settings))
                one = one.with_findings(moved)
                cleaned.append(replace(one, marks_stay=await self._why_marks_stay(now, sides[queue], settings)))
            if sweeper is None:
                return await self._without_marks(scan, cleaned, settings, None)
            return await self._without_marks(scan, cleaned, settings, record)
        finally:
            scan.close()

    def _is_looked_at_again(self, first: JudgedQueue, settings: CleanupSettings) -> bool:
        return first.is_drift or (settings.marks is not MarksRule.KEEP and first.scanned.orphan_marks > 0)

    async def _look(self, slicing: Slicing) -> tuple[QueueScan, dict[QueueName, JudgedQueue]]:
        view = self._view
        now = self._view.now
        starts = self._view.starts
        named = await starts.queues()
        tallied = await view.tallies.exact()
        scan = await self._in_thread(lambda: self._scanner.scan(self._progress))
        of_queue: dict[QueueName, dict[QueuePartition, RowCounts]] = {}
        for place, counts in scan.partitions.items():
            of_queue.setdefault(place.queue, {})[place] = counts
        found: dict[QueueName, JudgedQueue] = {}
        for queue in sorted({*named, *of_queue, *scan.marks}):
            state = await starts.state(queue)
            scanned = ScannedQueue(
                queue,
                QueueStarts(await starts.browse_start(queue), await starts.content_start(queue), state.furthest_start),
                of_queue.get(queue, {}),
                scan.marks.get(queue, 0),
                scan.orphan_marks.get(queue, 0),
                tallied.get(queue, {}),
            )
            row_ttl = timedelta(seconds=view.own.row_ttl_seconds)
            found[queue] = judged(scanned, now, slicing.window, marks_expire=view.own.marks_expire, row_ttl=row_ttl)
        return scan, found

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """What the scanner does in a thread of its own; it ends there when this is cancelled."""
        try:
            return await asyncio.to_thread(call)
        except asyncio.CancelledError:
            self._scanner.interrupt()
            raise

    async def _without_content(self, now: JudgedQueue) -> dict[QueuePlace, int]:
        """The mails that wait and whose blobs are gone: neither marked nor removed after that was seen."""
        if self._blobs is None:
            return {}
        view = self._view
        scanned = now.scanned
        gone = dict[QueuePlace, int]()
        self._progress.stage(f"blobs of {scanned.queue}", scanned.waiting)
        for partition in sorted(place for place, counts in scanned.partitions.items() if counts.waiting):
            async with aclosing(marked_pages(view.slices, view.marks, partition)) as pages:
                async for page in pages:
                    looked_at = await all_of(page.unmarked.items(), self._lacking, BLOBS_AT_ONCE)
                    lacking = [enqueue_id for enqueue_id in looked_at if enqueue_id]
                    marked = await view.marks.among(scanned.queue, lacking)
                    unmarked = [enqueue_id for enqueue_id in lacking if enqueue_id not in marked]
                    reads = [Read(ENQUEUED_MAILS, (*partition, enqueue_id)) for enqueue_id in unmarked]
                    rows = await answered(view.tables, view.retries, reads)
                    for read, seen in zip(reads, rows, strict=True):
                        if seen:
                            gone[QueuePlace(Verdict.BLOBS_GONE, read.key)] = 1
                    self._progress.advance(len(page.unmarked))
        return gone

    async def _lacking(self, mail: tuple[EnqueueId, tuple[BlobId, ...]]) -> EnqueueId | None:
        """The mail, where one of its blobs is gone, or is not a blob."""
        assert self._blobs is not None
        enqueue_id, named = mail
        try:
            there = [await self._blobs.exists(blob) for blob in named]
        except BadPayload:
            return enqueue_id
        if all(there):
            return None
        return enqueue_id

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
        self, scan: QueueScan, cleaned: Sequence[CleanedQueue], settings: CleanupSettings, record: FindingsRecord | None
    ) -> list[CleanedQueue]:
        """Remove the marks of mails that have no row any more, of the queues whose marks need not stay."""
        free: set[QueueName] = set()
        gone: set[QueuePartition] = set()
        for cleaned_queue in cleaned:
            gone |= cleaned_queue.over
            if cleaned_queue.judged.scanned.marks and cleaned_queue.marks_stay is None:
                free.add(cleaned_queue.queue)
        if self._view.own.marks_expire or not free:
            return list(cleaned)
        planned = None
        if settings.planned is not None:
            planned = settings.planned.marks
        standing = frozenset(scan.partitions.keys() - gone)
        wanted = MarksWanted(frozenset(free), standing, settings.marks_as_of, planned)
        if record is None:
            self._progress.stage("count marks")
            due = await self._in_thread(lambda: self._due(scan, wanted))
            return [_with_marks_due(cleaned_queue, due.get(cleaned_queue.queue, 0)) for cleaned_queue in cleaned]
        self._progress.stage("remove marks")
        removed = await self._in_thread(lambda: scan.remove_marks(wanted, self._progress))
        for queue, marks in removed.items():
            _LOG.info("marks were removed", extra={"queue": queue, "marks": marks.marks, "left": marks.failed})
        ended: list[CleanedQueue] = []
        orphans: list[Finding] = []
        for cleaned_queue in cleaned:
            one = _with_marks_gone(cleaned_queue, removed.get(cleaned_queue.queue, MarksGone()))
            ended.append(one)
            orphans.extend(one.are(Verdict.ORPHAN_MARK))
        await record.keep(orphans)
        return ended

    def _due(self, scan: QueueScan, wanted: MarksWanted) -> Mapping[QueueName, int]:
        if self._on_mark is None:
            return scan.marks_without_rows(wanted)
        due = Counter[QueueName]()
        for mark in scan.going(wanted):
            self._on_mark(mark)
            due[mark.queue] += 1
        return due


def _with_marks_due(one: CleanedQueue, marks: int) -> CleanedQueue:
    one = replace(one, marks_due=marks)
    if not marks:
        return one
    return one.with_findings([replace(_orphans(one, marks), number=marks, due=True)])


def _with_marks_gone(one: CleanedQueue, gone: MarksGone) -> CleanedQueue:
    one = replace(one, marks_moved=gone.left)
    if not (gone.marks or gone.failed):
        return one
    found = replace(_orphans(one, gone.marks), number=gone.marks, result=None)
    if gone.marks:
        found = replace(found, result=Verdict.FIXED)
    if gone.failed:
        found = replace(found, error=f"{gone.failed:,} marks could not be removed: {gone.error}")
    return replace(one, marks=gone.marks).with_findings([found])


def _orphans(one: CleanedQueue, marks: int) -> Finding:
    """The finding on its marks: marks of rows that go are then without a row, too."""
    place = QueuePlace(Verdict.ORPHAN_MARK, (one.queue,))
    return one.findings.get(place) or findings_of({place: marks}, one.judged.scanned)[place]
