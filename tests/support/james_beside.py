"""A James that works on the same queue, as far as others notice: what it writes, in which order, what it leaves out.

Source: docs/design.md, "Hazards of James's queue". Each of its doings here is over before others go on, but for the
browse start that was found long before it is written.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mailmend.mailqueue.broker import Delivery, Message
from mailmend.mailqueue.codec import payload_of, queued_of, row_of
from mailmend.mailqueue.rules.mails import PRIORITY_NORMAL, Mail, MailBlobs, QueuedMail
from mailmend.mailqueue.rules.slices import Slicing, bucket_of, slice_of, slices_between
from mailmend.model.blobs import BlobKind
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import EnqueueId
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put, PutIfAbsent, Remove
from mailmend.model.table import Row
from tests.support.queues import QUEUE, TwinQueue

_TURNS: Final = 60


@dataclass(slots=True)
class James:
    """One James beside us; its clock is right.

    Attributes:
        unmarked: whose marks its cleanup has removed.
        buried: what it sent to the dead letters for want of its bytes.
        found: a browse start that it found and has not written yet.
        put_back: whether it ever put the browse start back.
    """

    twin: TwinQueue
    unmarked: set[EnqueueId] = field(default_factory=set)
    buried: list[str] = field(default_factory=list)
    found: datetime | None = None
    put_back: bool = False

    async def enqueue(self, mail: Mail, content: bytes) -> QueuedMail:
        """Blobs, row, publish: no header of ours, no tally, no look at the browse start."""
        header, body = content.split(b"\r\n\r\n", 1)
        blobs = MailBlobs(
            await self.twin.blobs.put(header + b"\r\n\r\n", BlobKind.HEADER),
            await self.twin.blobs.put(body, BlobKind.BODY),
        )
        queued = QueuedMail(EnqueueId(self.twin.clock.random_uuid()), mail, blobs)
        first = slice_of(self._now, self._slicing.window)
        for table in (BROWSE_START, CONTENT_START):
            self.twin.memory.attempt(PutIfAbsent(table, {"queuename": QUEUE, table.regular[0].name: first}))
        row = row_of(QUEUE, first, bucket_of(mail.name, self._slicing.buckets), self._now, queued)
        self.twin.memory.write(Put(ENQUEUED_MAILS, row))
        await self.twin.broker.publish(QUEUE, Message(payload_of(queued)), PRIORITY_NORMAL)
        return queued

    async def dequeue(self) -> list[QueuedMail]:
        """Take one delivery, if any; what it delivers. Bytes first, then the mark is looked up; acked, then marked."""
        async with self.twin.broker.deliveries(QUEUE, 1, (PRIORITY_NORMAL,)) as deliveries:
            delivery = await _first(deliveries)
            return [] if delivery is None else await self._worked_on(delivery)

    def look(self) -> None:
        """Find the browse start that is to be written, where it may be moved."""
        start, window = self.twin.browse_start, self._slicing.window
        if start is None or start >= slice_of(self._now - window, window):
            return
        live = [one["timerangestart"] for one in self._waiting() if start <= one["timerangestart"] <= self._now]
        self.found = min(live, default=None)

    def move(self) -> None:
        if self.found is None:
            return
        before, to = self.twin.browse_start, self.found
        self.put_back |= before is not None and to < before
        content = self.twin.content_start
        self.twin.put_start(BROWSE_START, to)
        for slice_start in slices_between(content or to, to, self._slicing.window):
            for bucket in range(self._slicing.buckets):
                self._clean(slice_start, bucket)
        if content is not None:
            self.twin.put_start(CONTENT_START, to)
        self.found = None

    @property
    def would_go_back(self) -> bool:
        """Whether writing what it found would put the browse start back."""
        start = self.twin.browse_start
        return self.found is not None and start is not None and self.found < start

    async def _worked_on(self, delivery: Delivery) -> list[QueuedMail]:
        queued = queued_of(delivery.message.body)
        blobs = (queued.blobs.header, queued.blobs.body)
        if not all([await self.twin.blobs.exists(blob) for blob in blobs]):
            self.buried.append(queued.mail.name)
            await delivery.dead_letter()
            return []
        await delivery.ack()
        if any(row["enqueueid"] == queued.enqueue_id for row in self.twin.rows(DELETED_MAILS)):
            return []
        self.twin.memory.write(Put(DELETED_MAILS, {"queuename": QUEUE, "enqueueid": queued.enqueue_id}))
        for blob in blobs:
            await self.twin.blobs.delete(blob)
        return [queued]

    def _clean(self, slice_start: datetime, bucket: int) -> None:
        place = (QUEUE, slice_start, bucket)
        for row in self.twin.rows(ENQUEUED_MAILS):
            if ENQUEUED_MAILS.key_of(row)[:3] == place:
                self.unmarked.add(row["enqueueid"])
                self.twin.memory.write(Remove(DELETED_MAILS, (QUEUE, row["enqueueid"])))
        self.twin.memory.write(Remove(ENQUEUED_MAILS, place))

    def _waiting(self) -> Iterator[Row]:
        marked = {row["enqueueid"] for row in self.twin.rows(DELETED_MAILS)}
        return (row for row in self.twin.rows(ENQUEUED_MAILS) if row["enqueueid"] not in marked)

    @property
    def _slicing(self) -> Slicing:
        return self.twin.configuration.slicing

    @property
    def _now(self) -> datetime:
        return instant_of(self.twin.clock.micros())


async def _first(deliveries: AsyncIterator[Delivery]) -> Delivery | None:
    task = asyncio.ensure_future(anext(deliveries))
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if task.done():
            return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None
