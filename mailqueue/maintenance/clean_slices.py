"""Cleaning the partitions that the browse start has passed: what is left in them is put back or goes.

A row without a mark should not be there: a clock was too slow, or somebody moved the browse start without looking. Its
mail is put back into the first slice that browsing sees, the same one however often this is begun again, and published
with that slice: whoever gets the first message of it may have found it gone.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Final

from mailqueue.concurrency import all_of
from mailqueue.rabbitmq.broker.mails import publish_mail
from mailqueue.rabbitmq.view.marks import Marks, answered
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.slices import Broken, Slices, id_of, read_row
from model.catalog.mail_queue import ENQUEUED_MAILS
from model.errors import BadPayload
from model.ids import BlobId, EnqueueId, QueueName
from model.operations import Read, Remove
from model.ports import Blobs, Broker
from model.queue.mails import Listed
from model.queue.size import WriterTally, others_were_at_work
from model.queue.slices import Slicing
from model.schema.table import Key, Row

PARTITIONS_AT_ONCE: Final = 4
"""How many partitions are cleaned at once."""

SECOND_LOOK_SECONDS: Final = 10.0
"""How long a row without a mark is left alone before it is put back: James, sweeping at the same time, removes the
marks of a slice some seconds before its rows."""

_BLOBS: Final = ("headerblobid", "bodyblobid")
_NEEDED: Final = ("enqueueid", *_BLOBS)
"""Of the rows of slices that are passed."""


_LOG: Final = logging.getLogger("mailmend.queue")

Partition = tuple[QueueName, datetime, int]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was cleaned away, what was put back, and what seemed to need it at the first look."""

    rows: int = 0
    blobs: int = 0
    rescued: int = 0
    suspects: int = 0

    def __add__(self, other: "Cleaned") -> "Cleaned":
        return Cleaned(
            self.rows + other.rows,
            self.blobs + other.blobs,
            self.rescued + other.rescued,
            self.suspects + other.suspects,
        )


@dataclass(frozen=True, slots=True)
class PassedPage:
    """Rows of a partition that the browse start has passed.

    Attributes:
        rows: how many there are.
        blobs: of those that are marked; one that a row does not name is left out.
        unmarked: the others.
    """

    rows: int
    blobs: tuple[BlobId, ...]
    unmarked: tuple[EnqueueId, ...]

    @property
    def found(self) -> Cleaned:
        """What there is to be done with them at the first look."""
        return Cleaned(self.rows, len(self.blobs), suspects=len(self.unmarked))


class Passed:
    """Reads the partitions that browse starts have passed; nothing is written."""

    def __init__(self, slices: Slices, marks: Marks) -> None:
        self._slices, self._marks = slices, marks

    async def pages(self, partition: Partition) -> AsyncGenerator[PassedPage]:
        """All rows of a partition; those without a mark are to be looked at once more, later."""
        async with aclosing(self._slices.pages(partition, _NEEDED)) as pages:
            async for page in pages:
                rows = {EnqueueId(row["enqueueid"]): row for row in page}
                marked = await self._marks.among(partition[0], rows)
                blobs = [BlobId(blob) for one in marked for blob in (rows[one][name] for name in _BLOBS) if blob]
                yield PassedPage(len(page), tuple(blobs), tuple(one for one in rows if one not in marked))


class Cleaner:
    """Cleans slices of every queue of a keyspace."""

    def __init__(self, view: QueueView, slices: Slices, marks: Marks, blobs: Blobs, broker: Broker) -> None:
        self._view, self._passed, self._blobs, self._broker = view, Passed(slices, marks), blobs, broker

    async def clean(self, queue: QueueName, starts: Sequence[datetime], slicing: Slicing) -> Cleaned:
        """Clean the slices, all their partitions first, then their tallies.

        Raises:
            MailmendError: whatever did not answer; what was cleaned may be cleaned again.
        """

        async def clean(place: tuple[datetime, int]) -> Cleaned:
            return await self._clean(queue, *place)

        async def forget(start: datetime) -> None:
            await self._view.ground.tallies.forget(queue, start)

        told = await self._view.ground.tallies.of(queue, starts)
        places = ((start, bucket) for start in starts for bucket in range(slicing.buckets))
        cleaned = await all_of(places, clean, PARTITIONS_AT_ONCE)
        slices = [_sum(cleaned[first : first + slicing.buckets]) for first in range(0, len(cleaned), slicing.buckets)]
        await self._tell_others(queue, told, slices)
        await all_of(starts, forget, PARTITIONS_AT_ONCE)
        return _sum(cleaned)

    async def _tell_others(
        self, queue: QueueName, told: Sequence[Sequence[WriterTally]], cleaned: Sequence[Cleaned]
    ) -> None:
        """Where another program was seen at work, what is alive is counted by its rows from here on."""
        seen = (
            others_were_at_work(tallies, one.rows, one.rows - one.suspects)
            for tallies, one in zip(told, cleaned, strict=True)
        )
        if self._view.ground.own.tallies and any(seen):
            await self._view.foreign(queue)

    async def _clean(self, queue: QueueName, slice_start: datetime, bucket: int) -> Cleaned:
        cleaned, partition = Cleaned(), (queue, slice_start, bucket)
        async with aclosing(self._passed.pages(partition)) as pages:
            async for page in pages:
                await self._delete(page.blobs)
                cleaned += page.found
        if cleaned.suspects:
            await self._view.ground.clock.pause(SECOND_LOOK_SECONDS)
            cleaned += await self._rescued(partition)
        if cleaned.rows:
            await self._view.ground.retries.write(self._view.ground.tables, Remove(ENQUEUED_MAILS, partition))
        return cleaned

    async def _rescued(self, partition: Partition) -> Cleaned:
        """What is still there without a mark is put back."""
        rescued = 0
        async with aclosing(self._passed.pages(partition)) as pages:
            async for page in pages:
                for row in await self._rows([(*partition, one) for one in page.unmarked]):
                    await self._rescue(partition[0], read_row(row), row)
                    rescued += 1
        return Cleaned(rescued=rescued)

    async def _rows(self, keys: Sequence[Key]) -> list[Row]:
        """Whole, as far as nobody took them back meanwhile."""
        reads = [Read(ENQUEUED_MAILS, key) for key in keys]
        answers = await answered(self._view.ground.tables, self._view.ground.retries, reads)
        return [seen.row for answer in answers for seen in answer]

    async def _rescue(self, queue: QueueName, one: Listed | Broken, row: Row) -> None:
        _LOG.warning("the mail %s of the queue %s lay before the browse start, and is put back", id_of(one), queue)
        if isinstance(one, Broken):
            await self._view.placing.place_row(queue, row)
            return
        slice_start = await self._view.placement(queue, one.queued, one.enqueued_at).settle_at_start()
        await publish_mail(self._broker, queue, one.queued, slice_start)

    async def _delete(self, blobs: Sequence[BlobId]) -> None:
        """Delete them, whether or not they were before."""
        try:
            await self._blobs.delete_all(blobs)
        except BadPayload as error:
            _LOG.warning("a row that is swept names a blob that cannot be: %s", error.what)


def _sum(some: Iterable[Cleaned]) -> Cleaned:
    return reduce(Cleaned.__add__, some, Cleaned())
