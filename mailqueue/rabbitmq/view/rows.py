"""The rows of mails: put where browsing sees them, found, and taken back.

The row is put between two looks at the browse start. The process that moves the start looks at the
rows once more afterwards (the sweep): so either the one who enqueues sees the new start, and puts
the row into a later slice, or the sweep sees the row, and does. Nothing rests on clocks that agree.
The first look may be an old one: only the second must be new.

What follows the row, the publish of its mail, may go on during the second look: it names the slice, and is done again
for each further one. A delivery that names the slice before finds no row there, and is dropped as gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

from mailmend.mailqueue.codec import listed_of, row_of
from mailmend.mailqueue.concurrency import in_order
from mailmend.mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailmend.mailqueue.rabbitmq.view.marks import answered
from mailmend.mailqueue.rules.mails import Listed, QueuedMail
from mailmend.mailqueue.rules.slices import EPOCH, Slicing, bucket_of, slice_of
from mailmend.mailqueue.rules.starts import GRACE_MIN, right_slice, slice_for
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import Contended
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put, Read, Remove, Seen
from mailmend.model.table import Row

PLACES_MAX: Final = 8
"""How often a mail is put into another slice because the browse start moved or the clock jumped, before we give up."""

SLICES_AT_ONCE: Final = 8
"""In how many slices a row is looked for at once."""

_MICROSECOND: Final = timedelta(microseconds=1)

Beside = Callable[[datetime], Awaitable[None]]
"""What is done during the second look, given the start of the slice."""


async def _nothing(_: datetime) -> None:
    """Do nothing during the look."""


class Placement:
    """Puts one mail's row into its slice.

    Args:
        queues: how queues are cut, and where they begin.
        queue: the mail's.
        queued: the mail.
        enqueued_at: when it was enqueued.
        again: whether it was in the queue before: then its row may lie under a removal.

    Attributes:
        slice_start: the start of the slice in which the row is, and is counted; None while it is in none, or that is
            not known.
    """

    def __init__(
        self, queues: KnownQueues, queue: QueueName, queued: QueuedMail, enqueued_at: datetime, *, again: bool
    ) -> None:
        self.slice_start: datetime | None = None
        self._queues = queues
        self._queue = queue
        self._queued = queued
        self._enqueued_at = enqueued_at
        self._again = again

    async def settle(self, beside: Beside = _nothing) -> datetime:
        """Put the row into the slice of now, or a later one that browsing sees; the start of its slice.

        Args:
            beside: what is done during each second look; where it fails, the row lies in `slice_start`.

        Raises:
            CannotReach: the row may be there all the same: mark the mail.
        """
        slicing = (await self._queues.configuration()).slicing
        start = self._queues.starts_seen.get(self._queue) or await self._queues.begun(self._queue, slicing.window)
        return await self._settled(slice_for(self._queues.now, start, slicing.window), slicing, beside)

    async def settle_at_start(self) -> datetime:
        """Put the row into the first live slice: the same one each time, until it is marked.

        Others may put and count the same row.
        """
        slicing = await self._queues.slicing()
        first = slice_of(await self._queues.begun(self._queue, slicing.window), slicing.window)
        return await self._settled(first, slicing, _nothing, sure=False)

    async def _settled(self, first: datetime, slicing: Slicing, beside: Beside, *, sure: bool = True) -> datetime:
        """In that slice, or a later one."""
        slice_start = first
        reckoned = self._queues.now
        bucket = bucket_of(self._queued.mail.name, slicing.buckets)
        for _ in range(PLACES_MAX):
            row = row_of(self._queue, slice_start, bucket, self._enqueued_at, self._queued)
            await self._put(row, slice_start, sure=sure)
            start = await self._look(slice_start, slicing, beside)
            now = self._queues.now
            right = right_slice(slice_start, start, reckoned, now, slicing.window)
            if right == slice_start:
                return slice_start
            await self._taken_back(row, slice_start)
            slice_start = right
            reckoned = now
        raise Contended(
            f"no slice could be found for a mail in the queue {self._queue!r}",
            mend="Mend this machine's clock: chronyc tracking",
        )

    async def _look(self, slice_start: datetime, slicing: Slicing, beside: Beside) -> datetime:
        """The browse start after the row was put; look and `beside` both end before an error of either is raised."""
        looked, done = await asyncio.gather(
            self._queues.begun(self._queue, slicing.window), beside(slice_start), return_exceptions=True
        )
        for outcome in (done, looked):
            if isinstance(outcome, BaseException):
                raise outcome
        assert isinstance(looked, datetime), "a look that did not fail has its answer"
        return looked

    async def _put(self, row: Row, slice_start: datetime, *, sure: bool) -> None:
        async with self._queues.tallies.counting(self._queue, slice_start) as changes:
            await self._queues.write(Put(ENQUEUED_MAILS, row))
            if self._again:
                await self._uncover(row)
            changes.enqueued = 1
            changes.sure = sure
        self.slice_start = slice_start

    async def _taken_back(self, row: Row, slice_start: datetime) -> None:
        self.slice_start = None
        async with self._queues.tallies.counting(self._queue, slice_start) as changes:
            await self._queues.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))
            changes.enqueued = -1

    async def _uncover(self, row: Row) -> None:
        """The row of a returning mail may lie under a tombstone of a clock ahead of ours: write above it."""
        read = Read(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row))
        if not await self._queues.retries.call(lambda: self._queues.tables.read(read)):
            at = self._queues.clock.micros() + GRACE_MIN // _MICROSECOND
            await self._queues.write(Put(ENQUEUED_MAILS, row, at=at))


class MailRows:
    """Puts, finds and takes back the rows of every queue of a keyspace."""

    def __init__(self, queues: KnownQueues) -> None:
        self._queues = queues

    def placement(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime | None = None) -> Placement:
        return Placement(self._queues, queue, queued, enqueued_at or self._queues.now, again=enqueued_at is not None)

    async def place(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime | None = None) -> datetime:
        """Put the mail's row; the start of its slice. Errors as of `Placement.settle`."""
        return await self.placement(queue, queued, enqueued_at).settle()

    async def place_row(self, queue: QueueName, row: Row) -> None:
        """As `place`, for a row that cannot be read: copied as it is."""
        window = (await self._queues.slicing()).window
        first = slice_of(await self._queues.begun(queue, window), window)
        await self._queues.write(Put(ENQUEUED_MAILS, {**row, "timerangestart": first}))

    async def take_back(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> None:
        """Remove the row without a mark, even if a clock ahead of ours stamped it; none there is fine."""
        async with self._queues.tallies.counting(queue, slice_start) as changes:
            for seen in await self._found(queue, slice_start, queued, times=True):
                at = max(self._queues.clock.micros(), (seen.newest or 0) + 1)
                await self._queues.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(seen.row), at=at))
                changes.enqueued -= 1

    async def row(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> Listed | None:
        """The mail's row in that slice, in any bucket, marked or not; None: there is no such row."""
        seen = await self._found(queue, slice_start, queued)
        return listed_of(seen[0].row) if seen else None

    async def has_row(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> bool:
        """Whether the mail's row is in that slice, marked or not, readable or not."""
        return bool(await self._found(queue, slice_start, queued))

    async def slice_with(self, queue: QueueName, queued: QueuedMail) -> datetime | None:
        """The live slice with the row of a mail whose message names none; None: no slice has it.

        No mail is changed once it is enqueued: its row lies in the slice of its last change, or in a later one.
        """
        slicing, starts = await self._queues.live(queue)
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
        """In the current bucket; else in the buckets of earlier, smaller bucket counts."""
        buckets = (await self._queues.configuration()).slicing.buckets
        own = bucket_of(queued.mail.name, buckets)
        for some in ([own], [bucket for bucket in range(buckets) if bucket != own]):
            keys = [(queue, slice_start, bucket, queued.enqueue_id) for bucket in some]
            reads = [Read(ENQUEUED_MAILS, key, times=times) for key in keys]
            answers = await answered(self._queues.tables, self._queues.retries, reads)
            if found := [seen for answer in answers for seen in answer]:
                return found
        return []
