"""The writes of a cleanup: each queue's starts, partitions and tallies, and its findings in the ledger."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast

from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rabbitmq.clean_slices import PARTITIONS_AT_ONCE, delete_blobs, marked_pages
from mailmend.mailqueue.rabbitmq.sweep import Moved, Sweeper
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.cleanup import JudgedQueue, QueuePartition, QueuePlace, ScannedQueue
from mailmend.mailqueue.rules.slices import Slicing, moved_back, slice_of
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName, RunId
from mailmend.model.operations import Remove
from mailmend.model.ports import Progress
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import OVER_VERDICTS, QUEUE_VERDICTS, Verdict
from mailmend.repair.ledger.runs import Ledger

_LOG: Final = logging.getLogger("mailmend.queue")

RECORDED_TOGETHER: Final = 200
"""How many partitions are in the ledger before the first of them is removed."""

MENDED: Final = frozenset(verdict for verdict, queue_verdict in QUEUE_VERDICTS.items() if queue_verdict.by_repair)


@dataclass(frozen=True, slots=True)
class CleanedQueue:
    """What was found of a queue, and what was done.

    Attributes:
        judged: the last look.
        over: partitions that were over both times; after a cleanup, those that were removed.
        findings: what both looks showed, each with what became of it.
        suspects: what the first look showed.
        rows, blobs: how many the removed partitions had; a blob counts as often as a row names it.
        marks: how many marks were removed.
        marks_due: how many a run that may write would remove; under `MarksRule.OLD` at most, since a scan does not see
            their age.
        marks_moved: how many marks of a plan stay, as they have rows again or were written later.
        marks_stay: why marks that never expire were left; None where none were.
    """

    queue: QueueName
    judged: JudgedQueue
    over: frozenset[QueuePartition] = frozenset()
    findings: Mapping[QueuePlace, Finding] = field(default_factory=dict)
    suspects: int = 0
    rows: int = 0
    blobs: int = 0
    marks: int = 0
    marks_due: int = 0
    marks_moved: int = 0
    marks_stay: str | None = None

    @property
    def found(self) -> Counter[Verdict]:
        """The findings by verdict, in rows, or 1 for what is wrong with a queue as a whole; without zeros."""
        sums: Counter[Verdict] = Counter()
        for finding in self.findings.values():
            sums[finding.verdict] += finding.number
        return sums

    def with_findings(self, ended: Iterable[Finding]) -> "CleanedQueue":
        """The same with these findings, in place of earlier ones of the same verdict and key."""
        findings = dict(self.findings)
        for finding in ended:
            findings[QueuePlace(finding.verdict, finding.suspect.key)] = finding
        return replace(self, findings=findings)

    def are(self, *verdicts: Verdict) -> list[Finding]:
        return [finding for finding in self.findings.values() if finding.verdict in verdicts]


@dataclass(frozen=True, slots=True)
class FindingsRecord:
    """The findings of a run in the ledger, as of T in microseconds; without a ledger nothing is kept."""

    as_of: int
    ledger: Ledger | None = None
    run: RunId | None = None

    async def keep(self, findings: Sequence[Finding]) -> list[Finding]:
        """The same, with results where they have any; those that could not be kept have errors."""
        ledger = self.ledger
        run = self.run
        if ledger is None or run is None or not findings:
            return list(findings)
        errors = await asyncio.to_thread(lambda: ledger.record(run, self.as_of, findings))
        kept = []
        for finding, error in zip(findings, errors, strict=True):
            if error:
                kept.append(finding.failed(error))
            else:
                kept.append(finding)
        await self.settle([finding for finding in kept if finding.result])
        return kept

    async def settle(self, findings: Sequence[Finding]) -> None:
        ledger = self.ledger
        run = self.run
        if ledger is not None and run is not None and findings:
            await asyncio.to_thread(lambda: ledger.settle(run, findings))


@dataclass(frozen=True, slots=True)
class QueueCleaning:
    """The writes of one queue: browse start, partitions, content start, tallies, in this order."""

    view: QueueView
    sweeper: Sweeper
    slicing: Slicing
    progress: Progress
    blobs: Blobs | None
    record: FindingsRecord

    async def carried_out(self, one: CleanedQueue, before: JudgedQueue) -> CleanedQueue:
        """The queue with what became of its findings; where the ledger refuses, nothing is written."""
        others = await self.record.keep(one.are(*MENDED - OVER_VERDICTS))
        if any(found.error for found in others):
            return replace(one, over=frozenset()).with_findings(others)
        mended = set[Verdict]()
        if one.are(Verdict.NO_BROWSE_START):
            mended = await self._begun(one.judged.scanned)
        if one.judged.browse_start is not None and before.browse_start is not None:
            one, mended = await self._swept(one, min(one.judged.browse_start, before.browse_start))
        differing = [found for found in others if found.verdict is Verdict.TALLY_DIFFERS]
        recounted = await self._recounted(differing, one)
        ended = [found.ended(Verdict.FIXED) for found in others if found.verdict in mended]
        await self.record.settle([*ended, *recounted])
        return one.with_findings([*others, *ended, *recounted])

    async def _begun(self, scanned: ScannedQueue) -> set[Verdict]:
        """Where rows have no start: begin at the first of them, so that all are listed."""
        first = min(place.slice_start for place in scanned.partitions)
        await self.view.starts.begin(scanned.queue, slice_of(first, self.slicing.window))
        return {Verdict.NO_BROWSE_START}

    async def _swept(self, one: CleanedQueue, to: datetime) -> tuple[CleanedQueue, set[Verdict]]:
        """Move the browse start, remove what is over before it, move the content start."""
        view = self.view
        queue = one.queue
        scanned = one.judged.scanned
        assert scanned.starts.browse is not None, "a queue without a browse start has no place for one"
        state = await view.starts.state(queue)
        back = moved_back(scanned.starts.browse, state.furthest_start)
        moved = await self.sweeper.advance(queue, Moved(scanned.starts.browse, to, back, state), self.slicing)
        assert moved.after is not None, "a start that was found never goes"
        mended = set[Verdict]()
        if moved.after >= to:
            mended.add(Verdict.START_BEHIND)
        if not moved_back(moved.after, state.furthest_start):
            mended.add(Verdict.START_MOVED_BACK)
        gone = sorted(place for place in one.over if place.slice_start < moved.after)
        self.progress.stage(f"clean {queue}", len(gone))
        ended = list[Finding]()
        blobs = 0
        for first in range(0, len(gone), RECORDED_TOGETHER):
            some, named = await self._removed_together(one, gone[first : first + RECORDED_TOGETHER])
            ended = ended + some
            blobs = blobs + named
            fields = {"queue": queue, "partitions": len(some), "blobs": named}
            _LOG.info("a batch of partitions was removed", extra=fields)
        removed: dict[QueuePartition, Finding] = {}
        for found in ended:
            if found.result is Verdict.FIXED:
                removed[cast("QueuePartition", found.suspect.key)] = found
        if not any(found.error for found in ended):
            await self._move_content_start(one.judged, removed.keys(), moved.after)
            mended.add(Verdict.NO_CONTENT_START)
        rows = sum(found.number for found in removed.values())
        return replace(one.with_findings(ended), over=frozenset(removed), rows=rows, blobs=blobs), mended

    async def _removed_together(
        self, one: CleanedQueue, partitions: Sequence[QueuePartition]
    ) -> tuple[list[Finding], int]:
        """What became of the partitions, and how many blobs they named."""
        found = {found.suspect.key: found for found in one.are(*OVER_VERDICTS)}
        kept = await self.record.keep([found[place] for place in partitions])
        due = [finding for finding in kept if finding.error is None]
        answers = await all_of(due, self._removed, PARTITIONS_AT_ONCE)
        ended: list[Finding] = []
        blobs = 0
        for finding, named in answers:
            ended.append(finding)
            blobs += named
        await self.record.settle(ended)
        refused = [finding for finding in kept if finding.error]
        return refused + ended, blobs

    async def _removed(self, found: Finding) -> tuple[Finding, int]:
        """Remove the partition as of T, its blobs first, and read it back: what was written after T stays."""
        view = self.view
        partition = cast("QueuePartition", found.suspect.key)
        try:
            blobs = 0
            if self.blobs:
                blobs = await self._without_blobs(partition)
            await view.write(Remove(ENQUEUED_MAILS, partition, self.record.as_of))
            async with aclosing(view.slices.pages(partition, ("enqueueid",))) as pages:
                whole = not await anext(pages)
        except MailmendError as error:
            return found.failed(error), 0
        self.progress.advance(1)
        if whole:
            found = found.ended(Verdict.FIXED)
        return found, blobs

    async def _without_blobs(self, partition: QueuePartition) -> int:
        """Delete the blobs of its marked rows: a mail may have come since the scan."""
        assert self.blobs is not None
        named = 0
        async with aclosing(marked_pages(self.view.slices, self.view.marks, partition)) as pages:
            async for page in pages:
                await delete_blobs(self.blobs, page.blobs)
                named += len(page.blobs)
        return named

    async def _move_content_start(
        self, one: JudgedQueue, gone: Collection[QueuePartition], browse_start: datetime
    ) -> None:
        view = self.view
        queue = one.scanned.queue
        to = one.first_left(gone, browse_start, self.slicing.window)
        standing = one.scanned.starts.content or await view.starts.begin_content(queue, to)
        await view.starts.advance_content_start(queue, standing, to)
        for slice_start in {place.slice_start for place in gone if place.slice_start < to}:
            await view.tallies.forget(queue, slice_start)

    async def _recounted(self, differing: Sequence[Finding], one: CleanedQueue) -> list[Finding]:
        """Tallies that are as the rows are; tallies of slices that are being written are left."""
        view = self.view

        async def rows(at: datetime) -> int:
            return await view.slices.count_unmarked(one.queue, at, self.slicing.buckets)

        mended = []
        for found in differing:
            _, at = found.suspect.key
            recounted = await view.tallies.recount(one.queue, [at], rows)
            if not recounted.left:
                mended.append(found.ended(Verdict.FIXED))
        return mended
