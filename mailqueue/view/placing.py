"""Rows, put where browsing sees them.

A row is put between two looks at the browse start. Whoever moves the start looks at the rows once more afterwards (the
sweep): so either the one who enqueues sees the new start, and puts the row into a later slice, or the sweep sees the
row, and does. Nothing rests on clocks that agree. The first look may be an old one: only the second must be new.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from mailqueue.codec import listed_of, row_of
from mailqueue.view.ground import Ground
from mailqueue.view.marks import answered
from model.catalog_queue import ENQUEUED_MAILS
from model.errors import Contended
from model.ids import QueueName
from model.mails import Listed, QueuedMail
from model.operations import Put, Read, Remove, Seen
from model.slices import Slicing, bucket_of, slice_of
from model.starts import GRACE_MIN, right_slice, slice_for
from model.table import Row

PLACES_MAX: Final = 8
"""How often a mail is put into another slice because the browse start moved or the clock jumped, before we give up."""

_MICROSECOND: Final = timedelta(microseconds=1)


class Placing:
    """Puts, finds and takes back the rows of every queue of a keyspace."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def place(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime | None = None) -> datetime:
        """Put the mail's row where browsing sees it; the start of its slice.

        Args:
            queue: where it is put.
            queued: the mail.
            enqueued_at: when it was first enqueued, for one that comes back; None: it is new.

        Raises:
            CannotReach: the row may be there all the same: mark the mail.
            Contended: the clock kept jumping.
        """
        slicing, now = (await self._ground.configuration()).slicing, self._ground.now
        start = self._ground.known.get(queue) or await self._ground.begun(queue, slicing.window)
        first = slice_for(now, start, slicing.window)
        return await self._placed(queue, queued, enqueued_at or now, first, slicing, again=enqueued_at is not None)

    async def place_at_start(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime) -> datetime:
        """Put the row into the first slice that browsing sees: until it is marked, the same one each time."""
        slicing = await self._ground.slicing()
        first = slice_of(await self._ground.begun(queue, slicing.window), slicing.window)
        return await self._placed(queue, queued, enqueued_at, first, slicing, sure=False, again=True)

    async def place_row(self, queue: QueueName, row: Row) -> None:
        """The same for a row that cannot be read: as it is, so that a person still finds it."""
        window = (await self._ground.slicing()).window
        first = slice_of(await self._ground.begun(queue, window), window)
        await self._write(Put(ENQUEUED_MAILS, {**row, "timerangestart": first}))

    async def take_back(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> None:
        """Remove the row without a mark, whoever put it, even by a clock ahead of ours; none there is fine."""
        async with self._ground.tallies.counting(queue, slice_start) as changes:
            for seen in await self._found(queue, slice_start, queued, times=True):
                at = max(self._ground.clock.micros(), (seen.newest or 0) + 1)
                await self._write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(seen.row), at=at))
                changes.enqueued -= 1

    async def row(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> Listed | None:
        """The mail's row in that slice, whichever bucket it is in, marked or not; None: there is none.

        Raises:
            BadPayload: it is there and cannot be read.
        """
        seen = await self._found(queue, slice_start, queued)
        return listed_of(seen[0].row) if seen else None

    async def _placed(
        self,
        queue: QueueName,
        queued: QueuedMail,
        enqueued_at: datetime,
        slice_start: datetime,
        slicing: Slicing,
        *,
        sure: bool = True,
        again: bool,
    ) -> datetime:
        reckoned, bucket = self._ground.now, bucket_of(queued.mail.name, slicing.buckets)
        for _ in range(PLACES_MAX):
            async with self._ground.tallies.counting(queue, slice_start) as changes:
                row = row_of(queue, slice_start, bucket, enqueued_at, queued)
                await self._write(Put(ENQUEUED_MAILS, row))
                if again:
                    await self._uncover(row)
                start, now = await self._ground.begun(queue, slicing.window), self._ground.now
                right = right_slice(slice_start, start, reckoned, now, slicing.window)
                if right == slice_start:
                    changes.enqueued, changes.sure = 1, sure
                    return slice_start
                await self._write(Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))
            slice_start, reckoned = right, now
        raise Contended(
            f"no slice could be found for a mail in the queue {queue!r}",
            mend="Mend this machine's clock: chronyc tracking",
        )

    async def _uncover(self, row: Row) -> None:
        """A row of a mail that comes back may lie under a removal stamped by a clock ahead of ours: put it above."""
        read = Read(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row))
        if not await self._ground.retries.call(lambda: self._ground.tables.read(read)):
            at = self._ground.clock.micros() + GRACE_MIN // _MICROSECOND
            await self._write(Put(ENQUEUED_MAILS, row, at=at))

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

    async def _write(self, write: Put | Remove) -> None:
        await self._ground.retries.write(self._ground.tables, write)
