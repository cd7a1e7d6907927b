"""Cleaning the partitions that the browse start has passed: what is left in them is put back or goes.

A row without a mark should not be there: a clock was too slow, or somebody moved the browse start without looking. Its
mail is put back into the first slice that browsing sees, the same one however often this is begun again, and published
with that slice: whoever gets the first message of it may have found it gone.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Final

from mailqueue.ahead import all_of
from mailqueue.browsing import Broken, id_of, read_row
from mailqueue.codec import payload_of, priority_of
from mailqueue.ports import SLICE_HEADER, Blobs, Broker, Message, Tables
from mailqueue.view import QueueView
from model.catalog_queue import ENQUEUED_MAILS
from model.errors import BadPayload
from model.ids import BlobId, QueueName
from model.mails import Listed
from model.operations import Remove
from model.slices import EPOCH, Slicing
from model.table import Row

PARTITIONS_AT_ONCE: Final = 4
"""How many partitions are cleaned at once."""

BLOBS_AT_ONCE: Final = 32
"""How many blobs of one partition are deleted at once."""

_MILLISECONDS: Final = 1_000

_log = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was cleaned away, and what was put back."""

    rows: int = 0
    blobs: int = 0
    rescued: int = 0

    def __add__(self, other: "Cleaned") -> "Cleaned":
        return Cleaned(self.rows + other.rows, self.blobs + other.blobs, self.rescued + other.rescued)


class Cleaner:
    """Cleans slices of every queue of a keyspace."""

    def __init__(self, tables: Tables, view: QueueView, blobs: Blobs, broker: Broker) -> None:
        self._tables, self._view, self._blobs, self._broker = tables, view, blobs, broker

    async def clean(self, queue: QueueName, starts: Sequence[datetime], slicing: Slicing) -> Cleaned:
        """Clean the slices, all their partitions first, then their tallies.

        Raises:
            MailmendError: whatever did not answer; what was cleaned may be cleaned again.
        """

        async def clean(place: tuple[datetime, int]) -> Cleaned:
            return await self._clean(queue, *place)

        async def forget(start: datetime) -> None:
            await self._view.ground.tallies.forget(queue, start)

        places = ((start, bucket) for start in starts for bucket in range(slicing.buckets))
        cleaned = await all_of(places, clean, PARTITIONS_AT_ONCE)
        await all_of(starts, forget, PARTITIONS_AT_ONCE)
        return reduce(Cleaned.__add__, cleaned, Cleaned())

    async def _clean(self, queue: QueueName, slice_start: datetime, bucket: int) -> Cleaned:
        cleaned = Cleaned()
        async with aclosing(self._view.slices.pages((queue, slice_start, bucket))) as pages:
            async for page in pages:
                cleaned += await self._emptied(queue, page)
        if cleaned.rows:
            await self._view.ground.retries.write(self._tables, Remove(ENQUEUED_MAILS, (queue, slice_start, bucket)))
        return cleaned

    async def _emptied(self, queue: QueueName, page: Sequence[Row]) -> Cleaned:
        """Nothing of the page is needed any more."""
        rows = {id_of(one): (one, row) for one, row in zip(map(read_row, page), page, strict=True)}
        marked = await self._view.marked_among(queue, rows)
        left = [rows[one] for one in rows if one not in marked]
        for one, row in left:
            await self._rescue(queue, one, row)
        blobs = [blob for one in marked for blob in _blobs_of(rows[one][1])]
        await all_of(blobs, self._delete, BLOBS_AT_ONCE)
        return Cleaned(len(page), len(blobs), len(left))

    async def _rescue(self, queue: QueueName, one: Listed | Broken, row: Row) -> None:
        _log.warning("the mail %s of the queue %s lay before the browse start, and is put back", id_of(one), queue)
        if isinstance(one, Broken):
            await self._view.placing.place_row(queue, row)
            return
        slice_start = await self._view.placing.place_at_start(queue, one.queued, one.enqueued_at)
        message = Message(payload_of(one.queued), {SLICE_HEADER: millis_of(slice_start)})
        await self._broker.publish(queue, message, priority_of(one.queued.mail))

    async def _delete(self, blob_id: BlobId) -> None:
        try:
            await self._blobs.delete(blob_id)
        except BadPayload as error:
            _log.warning("a row that is swept names a blob that cannot be: %s", error.what)


def millis_of(at: datetime) -> int:
    """Milliseconds since 1970."""
    return round((at - EPOCH).total_seconds() * _MILLISECONDS)


def _blobs_of(row: Row) -> Iterable[BlobId]:
    return (BlobId(row[column]) for column in ("headerblobid", "bodyblobid") if row[column])
