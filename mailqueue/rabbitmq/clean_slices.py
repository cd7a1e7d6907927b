"""Cleaning the partitions before the browse start: each row in them is put back or deleted.

A row without a mark should not be there: a clock was too slow, or another program moved the browse
start without looking. Its mail is put back into the first slice that browsing sees, the same one
however often the cleaning is begun again. The mail is published again with that slice, because a
consumer that got its first message may have found no row and dropped it.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Final

from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.codec import BrokenRow, publish_mail, read_row
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rabbitmq.view.slices import Marks, Slices, answered, id_of
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.size import WriterTally, others_were_at_work
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import BadPayload
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.operations import Read, Remove
from mailmend.model.table import Row

PARTITIONS_AT_ONCE: Final = 4
"""How many partitions are cleaned at once."""

SECOND_LOOK_SECONDS: Final = 10.0
"""How long a row without a mark is left alone before it is put back: James, sweeping at the same time, removes the
marks of a slice some seconds before its rows."""

NAMED_MAX: Final = 100
"""How many of the mails that are put back are named; all are counted."""

_BLOBS: Final = ("headerblobid", "bodyblobid")
_NEEDED: Final = ("enqueueid", *_BLOBS)
"""The columns that are read of the rows of slices that are passed."""


_LOG: Final = logging.getLogger("mailmend.queue")

PartitionKey = tuple[QueueName, datetime, int]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What the cleaning of slices did.

    Attributes:
        rows, blobs: how many were removed.
        rescued: how many mails were put back.
        suspects: how many mails seemed to need that at the first look.
        rescued_ids: the first ids of the mails that were put back, at most `NAMED_MAX`.
    """

    rows: int = 0
    blobs: int = 0
    rescued: int = 0
    suspects: int = 0
    rescued_ids: tuple[EnqueueId, ...] = ()

    def __add__(self, other: "Cleaned") -> "Cleaned":
        return Cleaned(
            self.rows + other.rows,
            self.blobs + other.blobs,
            self.rescued + other.rescued,
            self.suspects + other.suspects,
            (self.rescued_ids + other.rescued_ids)[:NAMED_MAX],
        )


@dataclass(frozen=True, slots=True)
class MarkedPage:
    """Rows of a partition: how many; the blobs of the marked rows; the other rows, each with its blobs.

    A blob that a row does not name is left out.
    """

    rows: int
    blobs: tuple[BlobId, ...]
    unmarked: Mapping[EnqueueId, tuple[BlobId, ...]]


async def marked_pages(slices: Slices, marks: Marks, partition: PartitionKey) -> AsyncGenerator[MarkedPage]:
    queue, *_ = partition
    async with aclosing(slices.pages(partition, _NEEDED)) as pages:
        async for page in pages:
            rows: dict[EnqueueId, tuple[BlobId, ...]] = {}
            for row in page:
                rows[EnqueueId(row["enqueueid"])] = tuple(BlobId(row[name]) for name in _BLOBS if row[name])
            marked = await marks.among(queue, rows)
            blobs: list[BlobId] = []
            for enqueue_id in marked:
                blobs += rows[enqueue_id]
            unmarked = {enqueue_id: named for enqueue_id, named in rows.items() if enqueue_id not in marked}
            yield MarkedPage(len(page), tuple(blobs), unmarked)


async def delete_blobs(store: Blobs, blobs: Sequence[BlobId]) -> None:
    """Delete them; those that are gone already are fine."""
    try:
        await store.delete_all(blobs)
    except BadPayload as error:
        _LOG.warning("a row that is cleaned away names a blob that cannot be", extra={"error": error.what})


class Cleaner:
    """Cleans slices of every queue of a keyspace."""

    def __init__(self, view: QueueView, slices: Slices, marks: Marks, blobs: Blobs, broker: Broker) -> None:
        self._view = view
        self._slices = slices
        self._marks = marks
        self._blobs = blobs
        self._broker = broker

    async def clean(
        self, queue: QueueName, starts: Sequence[datetime], slicing: Slicing, *, dry_run: bool = False
    ) -> Cleaned:
        """Clean the slices, all their partitions first, then their tallies.

        Partitions with an unmarked row are cleaned after a second look; the others at the first.
        """

        async def clean(partition: PartitionKey) -> Cleaned:
            return await self._clean(partition, dry_run=dry_run)

        async def rescue(partition: PartitionKey) -> Cleaned:
            return await self._rescued(partition, dry_run=dry_run)

        async def forget(start: datetime) -> None:
            await self._view.tallies.forget(queue, start)

        counted = await self._view.tallies.of(queue, starts)
        partitions = []
        for start in starts:
            partitions += [(queue, start, bucket) for bucket in range(slicing.buckets)]
        cleaned = await all_of(partitions, clean, PARTITIONS_AT_ONCE)
        suspicious = []
        for partition, part in zip(partitions, cleaned, strict=True):
            if part.suspects:
                suspicious.append(partition)
        if suspicious:
            await self._view.clock.pause(SECOND_LOOK_SECONDS)
        rescued = await all_of(suspicious, rescue, PARTITIONS_AT_ONCE)
        if not dry_run:
            firsts = range(0, len(cleaned), slicing.buckets)
            slices = [_sum(cleaned[first : first + slicing.buckets]) for first in firsts]
            await self._tell_others(queue, counted, slices)
            await all_of(starts, forget, PARTITIONS_AT_ONCE)
        return _sum((*cleaned, *rescued))

    async def _tell_others(
        self, queue: QueueName, counted: Sequence[Sequence[WriterTally]], cleaned: Sequence[Cleaned]
    ) -> None:
        """Where another program enqueued, live slices are counted by their rows from now on."""
        if not self._view.own.tallies:
            return
        parts = zip(counted, cleaned, strict=True)
        if any(others_were_at_work(tallies, part.rows, part.rows - part.suspects) for tallies, part in parts):
            await self._view.foreign(queue)

    async def _clean(self, partition: PartitionKey, *, dry_run: bool) -> Cleaned:
        """The first look: deletes blobs, and rows unless one of them is not marked."""
        cleaned = Cleaned()
        async with aclosing(self._pages(partition)) as pages:
            async for page in pages:
                if not dry_run:
                    await delete_blobs(self._blobs, page.blobs)
                cleaned += Cleaned(page.rows, len(page.blobs), suspects=len(page.unmarked))
        if cleaned.rows and not cleaned.suspects and not dry_run:
            await self._remove(partition)
        return cleaned

    async def _rescued(self, partition: PartitionKey, *, dry_run: bool) -> Cleaned:
        """The second look: puts back what is still there without a mark, then deletes the rows."""
        rescued = Cleaned()
        async with aclosing(self._pages(partition)) as pages:
            async for page in pages:
                unmarked = list(page.unmarked)
                ids = unmarked
                if not dry_run:
                    ids = await self._put_back(partition, unmarked)
                rescued += Cleaned(rescued=len(ids), rescued_ids=tuple(ids[:NAMED_MAX]))
        if not dry_run:
            await self._remove(partition)
        return rescued

    def _pages(self, partition: PartitionKey) -> AsyncGenerator[MarkedPage]:
        return marked_pages(self._slices, self._marks, partition)

    async def _remove(self, partition: PartitionKey) -> None:
        await self._view.write(Remove(ENQUEUED_MAILS, partition))

    async def _put_back(self, partition: PartitionKey, unmarked: Sequence[EnqueueId]) -> list[EnqueueId]:
        """The ids that were put back; a row that was taken back meanwhile is not."""
        reads = [Read(ENQUEUED_MAILS, (*partition, enqueue_id)) for enqueue_id in unmarked]
        queue, *_ = partition
        put_back: list[EnqueueId] = []
        for answer in await answered(self._view.tables, self._view.retries, reads):
            for seen in answer:
                await self._rescue(queue, read_row(seen.row), seen.row)
                put_back.append(EnqueueId(seen.row["enqueueid"]))
        return put_back

    async def _rescue(self, queue: QueueName, one: Listed | BrokenRow, row: Row) -> None:
        _LOG.warning("a mail before the browse start is put back", extra={"queue": queue, "mail": id_of(one)})
        if isinstance(one, BrokenRow):
            await self._view.rows.place_row(queue, row)
            return
        slice_start = await self._view.rows.placement(queue, one.queued, one.enqueued_at).settle_at_start()
        await publish_mail(self._broker, queue, one.queued, slice_start)


def _sum(some: Iterable[Cleaned]) -> Cleaned:
    return reduce(Cleaned.__add__, some, Cleaned())
