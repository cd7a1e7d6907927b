"""A mail's row on its way to a slice that browsing sees.

The row is put between two looks at the browse start. Whoever moves the start looks at the rows once more afterwards
(the sweep): so either the one who enqueues sees the new start, and puts the row into a later slice, or the sweep sees
the row, and does. Nothing rests on clocks that agree. The first look may be an old one: only the second must be new.

What follows the row, the publish of its mail, may go on beside the second look: it names the slice, and is done again
for each further one. A delivery that names the slice before finds no row there, and is dropped as gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from mailqueue.rabbitmq.codec import row_of
from mailqueue.rabbitmq.view.known_queues import KnownQueues
from model.catalog.mail_queue import ENQUEUED_MAILS
from model.errors import Contended
from model.ids import QueueName
from model.operations import Put, Read, Remove
from model.queue.mails import QueuedMail
from model.queue.slices import Slicing, bucket_of, slice_of
from model.queue.starts import GRACE_MIN, right_slice, slice_for
from model.schema.table import Row

PLACES_MAX: Final = 8
"""How often a mail is put into another slice because the browse start moved or the clock jumped, before we give up."""

_MICROSECOND: Final = timedelta(microseconds=1)

Beside = Callable[[datetime], Awaitable[None]]
"""What is done beside the second look, given the start of the slice."""


async def _nothing(_: datetime) -> None:
    """Nothing goes on beside the look."""


class Placement:
    """One mail's way to its slice.

    Args:
        ground: what the queue stands on.
        queue: the mail's.
        queued: the mail.
        enqueued_at: when it was enqueued.
        again: whether it was in the queue before: then its row may lie under a removal.

    Attributes:
        slice_start: of the slice in which the row lies, and is counted; None while it lies nowhere, or nobody knows.
    """

    def __init__(
        self, ground: KnownQueues, queue: QueueName, queued: QueuedMail, enqueued_at: datetime, *, again: bool
    ) -> None:
        self.slice_start: datetime | None = None
        self._ground, self._queue, self._queued = ground, queue, queued
        self._enqueued_at, self._again = enqueued_at, again

    async def settle(self, beside: Beside = _nothing) -> datetime:
        """Put the row where browsing sees it, in the slice of now; the start of its slice.

        Args:
            beside: what is done beside each second look.

        Raises:
            CannotReach: the row may be there all the same: mark the mail.
            Contended: the clock kept jumping.
            MailmendError: what was done beside the look met it; the row lies in `slice_start`.
        """
        slicing = (await self._ground.configuration()).slicing
        start = self._ground.known.get(self._queue) or await self._ground.begun(self._queue, slicing.window)
        return await self._settled(slice_for(self._ground.now, start, slicing.window), slicing, beside)

    async def settle_at_start(self) -> datetime:
        """Put the row into the first slice that browsing sees: until it is marked, the same one each time.

        Others may put and count the same row.
        """
        slicing = await self._ground.slicing()
        first = slice_of(await self._ground.begun(self._queue, slicing.window), slicing.window)
        return await self._settled(first, slicing, _nothing, sure=False)

    async def _settled(self, first: datetime, slicing: Slicing, beside: Beside, *, sure: bool = True) -> datetime:
        """In that slice, or a later one."""
        slice_start, reckoned, bucket = first, self._ground.now, bucket_of(self._queued.mail.name, slicing.buckets)
        for _ in range(PLACES_MAX):
            row = row_of(self._queue, slice_start, bucket, self._enqueued_at, self._queued)
            await self._put(row, slice_start, sure=sure)
            start, now = await self._look(slice_start, slicing, beside), self._ground.now
            right = right_slice(slice_start, start, reckoned, now, slicing.window)
            if right == slice_start:
                return slice_start
            await self._taken_back(row, slice_start)
            slice_start, reckoned = right, now
        raise Contended(
            f"no slice could be found for a mail in the queue {self._queue!r}",
            mend="Mend this machine's clock: chronyc tracking",
        )

    async def _look(self, slice_start: datetime, slicing: Slicing, beside: Beside) -> datetime:
        """The browse start after the row was put; both come to an end before either's error is told."""
        looked, done = await asyncio.gather(
            self._ground.begun(self._queue, slicing.window), beside(slice_start), return_exceptions=True
        )
        for outcome in (done, looked):
            if isinstance(outcome, BaseException):
                raise outcome
        assert isinstance(looked, datetime), "a look that did not fail has its answer"
        return looked

    async def _put(self, row: Row, slice_start: datetime, *, sure: bool) -> None:
        async with self._ground.tallies.counting(self._queue, slice_start) as changes:
            await self._ground.write(Put(ENQUEUED_MAILS, row))
            if self._again:
                await self._uncover(row)
            changes.enqueued, changes.sure = 1, sure
        self.slice_start = slice_start

    async def _taken_back(self, row: Row, slice_start: datetime) -> None:
        self.slice_start = None
        async with self._ground.tallies.counting(self._queue, slice_start) as changes:
            await self._ground.write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))
            changes.enqueued = -1

    async def _uncover(self, row: Row) -> None:
        """A row of a mail that comes back may lie under a removal stamped by a clock ahead of ours: put it above."""
        read = Read(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row))
        if not await self._ground.retries.call(lambda: self._ground.tables.read(read)):
            at = self._ground.clock.micros() + GRACE_MIN // _MICROSECOND
            await self._ground.write(Put(ENQUEUED_MAILS, row, at=at))
