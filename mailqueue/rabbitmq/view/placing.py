"""The rows of mails: put where browsing sees them (`placement` says how), found, and taken back."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from mailqueue.concurrency import in_order
from mailqueue.rabbitmq.codec import listed_of
from mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailqueue.rabbitmq.view.marks import answered
from mailqueue.rabbitmq.view.placement import Placement
from model.catalog.mail_queue import ENQUEUED_MAILS
from model.ids import QueueName
from model.operations import Put, Read, Remove, Seen
from model.queue.mails import Listed, QueuedMail
from model.queue.slices import EPOCH, bucket_of, slice_of
from model.schema.table import Row

SLICES_AT_ONCE: Final = 8
"""In how many slices a row is looked for at once."""


class Placing:
    """Puts, finds and takes back the rows of every queue of a keyspace."""

    def __init__(self, ground: KnownQueues) -> None:
        self._ground = ground

    def placement(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime | None = None) -> Placement:
        """A mail's way to where browsing sees it.

        Args:
            queue: where it is put.
            queued: the mail.
            enqueued_at: when it was first enqueued, for one that comes back; None: it is new.
        """
        return Placement(self._ground, queue, queued, enqueued_at or self._ground.now, again=enqueued_at is not None)

    async def place_row(self, queue: QueueName, row: Row) -> None:
        """The same for a row that cannot be read: as it is, so that a person still finds it."""
        window = (await self._ground.slicing()).window
        first = slice_of(await self._ground.begun(queue, window), window)
        await self._ground.write(Put(ENQUEUED_MAILS, {**row, "timerangestart": first}))

    async def take_back(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> None:
        """Remove the row without a mark, whoever put it, even by a clock ahead of ours; none there is fine."""
        async with self._ground.tallies.counting(queue, slice_start) as changes:
            for seen in await self._found(queue, slice_start, queued, times=True):
                at = max(self._ground.clock.micros(), (seen.newest or 0) + 1)
                await self._ground.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(seen.row), at=at))
                changes.enqueued -= 1

    async def row(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> Listed | None:
        """The mail's row in that slice, whichever bucket it is in, marked or not; None: there is none.

        Raises:
            BadPayload: it is there and cannot be read.
        """
        seen = await self._found(queue, slice_start, queued)
        return listed_of(seen[0].row) if seen else None

    async def has_row(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> bool:
        """Whether the mail's row is in that slice, marked or not, whatever it says."""
        return bool(await self._found(queue, slice_start, queued))

    async def slice_with(self, queue: QueueName, queued: QueuedMail) -> datetime | None:
        """Which of the slices that browsing sees holds the row of a mail whose message names none; None: none does.

        No mail is changed once it is enqueued: its row lies in the slice of its last change, or in a later one.
        """
        slicing, starts = await self._ground.live(queue)
        first = slice_of(queued.mail.last_updated or EPOCH, slicing.window)

        async def look(slice_start: datetime) -> datetime | None:
            return slice_start if await self.has_row(queue, slice_start, queued) else None

        looks = in_order([start for start in starts if start >= first], look, SLICES_AT_ONCE)
        async with aclosing(looks) as found:
            async for _, slice_start in found:
                if slice_start is not None:
                    return slice_start
        return None

    async def _found(
        self, queue: QueueName, slice_start: datetime, queued: QueuedMail, *, times: bool = False
    ) -> Sequence[Seen]:
        """In the bucket of now; where it is not there, in those of when there were fewer."""
        buckets = (await self._ground.configuration()).slicing.buckets
        own = bucket_of(queued.mail.name, buckets)
        for some in ([own], [bucket for bucket in range(buckets) if bucket != own]):
            keys = [(queue, slice_start, bucket, queued.enqueue_id) for bucket in some]
            reads = [Read(ENQUEUED_MAILS, key, times=times) for key in keys]
            answers = await answered(self._ground.tables, self._ground.retries, reads)
            if found := [seen for answer in answers for seen in answer]:
                return found
        return []
