"""A queue as its tables show it: rows, marks, listings and sizes.

The row is put between two looks at the browse start. The process that moves the start looks at the
rows once more afterwards (the sweep): so either the one who enqueues sees the new start, and puts
the row into a later slice, or the sweep sees the row, and does. Nothing rests on clocks that agree.
The first look may be an old one: only the second must be new.

What follows the row, the publish of its mail, may go on during the second look: it names the slice,
and is done again for each further one. A delivery that names the slice before finds no row there,
and is dropped as gone.

A listing shows the waiting mails, slice by slice, each by time; then the delayed ones. A page
starts after the last mail seen, so pages stay stable while mails come and go. A size is the sum of
the tallies, slice by slice; of those whose tallies cannot tell the rows are counted.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mailmend.mailqueue.codec import BrokenRow, listed_of, row_of
from mailmend.mailqueue.concurrency import all_of, in_order
from mailmend.mailqueue.metrics import NoCounts, QueueCount, QueueCounts
from mailmend.mailqueue.rabbitmq.view.backlog_tables import BacklogTables
from mailmend.mailqueue.rabbitmq.view.due_mails import DelayedListing, DueMails
from mailmend.mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailmend.mailqueue.rabbitmq.view.slices import SLICES_AT_ONCE, Marks, SliceContents, Slices, answered
from mailmend.mailqueue.rabbitmq.view.tallies import Changes, Recounted
from mailmend.mailqueue.rules.mails import (
    EVERYTHING,
    Listed,
    ListingPosition,
    MailFilter,
    QueuedMail,
    Whereabouts,
    is_behind,
)
from mailmend.mailqueue.rules.size import CountedBy, Size, SliceCount, WriterTally, size_of, tallied
from mailmend.mailqueue.rules.slices import (
    EPOCH,
    GRACE_MIN,
    Slicing,
    bucket_of,
    live_slices,
    right_slice,
    slice_for,
    slice_of,
)
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS, OwnTables
from mailmend.model.errors import Contended, MailmendError
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.operations import Put, Read, Remove, Seen
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Row

PLACES_MAX: Final = 8
"""How often a mail is put into another slice because the browse start moved or the clock jumped, before we give up."""

_SLICES_SEARCHED_AT_ONCE: Final = 8
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
            await self._queues.write(Put(ENQUEUED_MAILS, row, joinable=True))
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
        if not seen:
            return None
        return listed_of(seen[0].row)

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
            if await self.has_row(queue, slice_start, queued):
                return slice_start
            return None

        looks = in_order([start for start in starts if start >= first], look, _SLICES_SEARCHED_AT_ONCE)
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
        others = [bucket for bucket in range(buckets) if bucket != own]
        for some in ([own], others):
            keys = [(queue, slice_start, bucket, queued.enqueue_id) for bucket in some]
            reads = [Read(ENQUEUED_MAILS, key, times=times) for key in keys]
            found: list[Seen] = []
            for answer in await answered(self._queues.tables, self._queues.retries, reads):
                found += answer
            if found:
                return found
        return []


REMEMBERED_MARKS: Final = 65_536
"""How many of the mails that it has marked a process remembers, so as not to count one twice."""

REMEMBERED_MAX: Final = 100_000
"""How many of the mails that it has shown a listing remembers, so as not to show them once more as delayed."""


class QueueView(KnownQueues):
    """The queues of one keyspace, as its tables show them.

    Args:
        own: which tables there are in addition to James's.
        counts: where what is unusual is counted.
        buckets: over how many partitions each slice of delayed mails is spread.
    """

    def __init__(
        self,
        tables: AsyncTables,
        clock: Clock,
        own: OwnTables,
        counts: QueueCounts | None = None,
        buckets: int = 1,
    ) -> None:
        super().__init__(tables, clock, own)
        self.counts = counts or NoCounts()
        self.marks = Marks(tables, self.retries)
        self.slices = Slices(tables, self.marks, self.retries)
        self.rows = MailRows(self)
        self.due: DueMails | None = None
        self._delayed: DelayedListing | None = None
        if own.due:
            self.due = DueMails(tables, clock, buckets, self.tallies)
            self._delayed = DelayedListing(self.due, self.marks, self)
        self._orphans: Counter[QueueName] = Counter()
        self._foreign_until: dict[QueueName, datetime] = {}
        self._marked: OrderedDict[tuple[QueueName, EnqueueId], None] = OrderedDict()

    async def in_backlogs(self, queue: QueueName) -> int:
        """How many waiting mails, at most, have their message in a backlog."""
        if not self.own.backlogs:
            return 0
        return await BacklogTables(self.tables, self.clock, queue).waiting()

    async def mark(
        self, queue: QueueName, enqueue_id: EnqueueId, slice_start: datetime | None, *, redelivered: bool = False
    ) -> None:
        counted = self._to_count(queue, enqueue_id, slice_start)
        if redelivered and counted is not None and await self.marks.there(queue, enqueue_id):
            counted = None
        async with self.tallies.counting(queue, counted) as changes:
            await self.marks.put(queue, enqueue_id)
            changes.marked = 1
        self._remember_mark(queue, enqueue_id)

    async def mark_all(
        self, queue: QueueName, mails: Sequence[tuple[EnqueueId, datetime | None]]
    ) -> list[MailmendError | None]:
        """Mark many for an operator; for each the error that is left after all tries, or None.

        A consumer may finish one of them at that moment: the counts of their slices are estimates until the next
        recount.
        """
        ids = [enqueue_id for enqueue_id, _ in mails]
        marked = await self.marks.among(queue, ids)
        slices: list[datetime | None] = []
        for enqueue_id, start in mails:
            if enqueue_id in marked:
                slices.append(None)
            else:
                slices.append(self._to_count(queue, enqueue_id, start))
        async with AsyncExitStack() as stack:
            changes: dict[datetime | None, Changes] = {}
            for start in set(slices):
                changes[start] = await stack.enter_async_context(self.tallies.counting(queue, start))
            errors = await self.marks.put_all(queue, ids)
            for (enqueue_id, _), start, error in zip(mails, slices, errors, strict=True):
                changes[start].sure = False
                if error is None:
                    changes[start].marked += 1
                    self._remember_mark(queue, enqueue_id)
        return errors

    def orphan_marks(self, queue: QueueName) -> int:
        """How many marks this process has written, since the last call, for mails of slices before the browse start."""
        return self._orphans.pop(queue, 0)

    async def foreign(self, queue: QueueName) -> None:
        """Another program enqueued a mail: live slices are counted by their rows from now on."""
        if self._foreign_until.get(queue, EPOCH) <= self.now:
            slicing, starts = await self.live(queue)
            for slice_start in starts:
                await self.tallies.foreign(queue, slice_start)
            self._foreign_until[queue] = slice_of(self.now, slicing.window) + slicing.window

    async def browse(
        self,
        queue: QueueName,
        where: MailFilter = EVERYTHING,
        after: ListingPosition | None = None,
        *,
        include_delayed: bool = True,
        on_broken: Callable[[BrokenRow], None] = lambda _: None,
    ) -> AsyncGenerator[Listed]:
        """The matching mails. An interrupted retry leaves a mail in both tables; it is listed once.

        Args:
            queue: the queue of the mails.
            where: which mails are listed.
            after: the position of the last mail that was seen; None: from the beginning.
            include_delayed: whether mails that are not due yet are listed too.
            on_broken: called with each row that cannot be read; such rows are also logged.
        """
        if not include_delayed and where.whereabouts is None:
            where = replace(where, whereabouts=Whereabouts.WAITING)
        seen: set[EnqueueId] = set()
        async with aclosing(self._waiting(queue, where, after, on_broken)) as waiting:
            async for listed in waiting:
                if len(seen) < REMEMBERED_MAX and self._delayed is not None:
                    seen.add(listed.queued.enqueue_id)
                yield listed
        async with aclosing(self._not_due(queue, where, after)) as delayed:
            async for listed in delayed:
                if listed.queued.enqueue_id not in seen:
                    yield listed

    async def size(self, queue: QueueName) -> Size:
        """How many mails the queue has: the sum of all tallies, and of rows in slices whose tallies cannot tell."""
        await self.tallies.flush()
        slicing, starts = await self.live(queue)
        delayed: list[SliceCount] = []
        if self._delayed is not None:
            delayed = await self._delayed.count(queue)
        counted = await self.tallies.of(queue, starts)

        async def count(place: int) -> SliceCount:
            return await self._count(queue, starts[place], counted[place], slicing.buckets)

        return size_of(await all_of(range(len(starts)), count, SLICES_AT_ONCE), delayed)

    async def count_settled(self, queue: QueueName, until: datetime) -> int:
        """The mails that wait and were enqueued by then: each row is looked at, then its mark."""
        slicing, starts = await self.live(queue)

        async def count(start: datetime) -> int:
            if start + slicing.window <= until:
                return await self.slices.count_unmarked(queue, start, slicing.buckets)
            settled = await self.slices.held(queue, start, slicing.buckets, lambda one: one.enqueued_at <= until)
            return settled.count

        return sum(await all_of(starts, count, SLICES_AT_ONCE))

    async def recount(self, queue: QueueName) -> Recounted:
        """Correct the tallies of the live and delayed slices by reading every row."""
        slicing, starts = await self.live(queue)

        async def rows(start: datetime) -> int:
            return await self.slices.count_unmarked(queue, start, slicing.buckets)

        waiting = await self.tallies.recount(queue, starts, rows)
        if self._delayed is None:
            return waiting
        return waiting + await self._delayed.recount(queue)

    async def _count(
        self, queue: QueueName, slice_start: datetime, counted: Sequence[WriterTally], buckets: int
    ) -> SliceCount:
        """A sum of tallies is an estimate where others may enqueue who count nothing."""
        summed = tallied(counted)
        if summed is not None:
            return replace(summed, exact=summed.exact and not self.own.shared)
        if not counted and await self.slices.is_empty(queue, slice_start, buckets):
            return SliceCount(0, exact=True, counted_by=CountedBy.TALLIES)
        unmarked = await self.slices.count_unmarked(queue, slice_start, buckets)
        return SliceCount(unmarked, exact=True, counted_by=CountedBy.METADATA)

    async def _not_due(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None
    ) -> AsyncGenerator[Listed]:
        if self._delayed is None or where.whereabouts is Whereabouts.WAITING:
            return
        first = None
        if after is not None and after.whereabouts is Whereabouts.DELAYED:
            first = after.stretch
        async with aclosing(self._delayed.browse(queue, first)) as delayed:
            async for listed in delayed:
                if where.matches(listed) and is_behind(listed, after):
                    yield listed

    async def _waiting(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None, on_broken: Callable[[BrokenRow], None]
    ) -> AsyncGenerator[Listed]:
        if where.whereabouts is Whereabouts.DELAYED or (after and after.whereabouts is Whereabouts.DELAYED):
            return
        slicing = await self.slicing()

        def meant(listed: Listed) -> bool:
            return where.matches(listed) and is_behind(listed, after)

        async def read(slice_start: datetime) -> SliceContents:
            return await self.slices.held(queue, slice_start, slicing.buckets, meant)

        starts = await self._starts(queue, where, after, slicing)
        async with aclosing(in_order(starts, read, SLICES_AT_ONCE, lambda held: held.room)) as slices:
            async for slice_start, held in slices:
                for broken in held.broken:
                    on_broken(broken)
                async for listed in self.slices.mails(queue, slice_start, held, meant):
                    yield listed

    async def _starts(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None, slicing: Slicing
    ) -> Iterable[datetime]:
        """The slices to read, from the first that can match: no mail is enqueued after its slice ends."""
        start = await self.browse_start(queue)
        if start is None:
            return ()
        firsts = [start]
        if after is not None:
            firsts.append(after.stretch)
        if where.newer_than_at is not None:
            firsts.append(where.newer_than_at - GRACE_MIN)
        return live_slices(max(firsts), self.now, slicing.window)

    def _to_count(self, queue: QueueName, enqueue_id: EnqueueId, slice_start: datetime | None) -> datetime | None:
        """The slice whose tally the mark changes; None if it was counted, or lies before the browse start."""
        known = self.starts_seen.get(queue)
        if slice_start is not None and known is not None and slice_start < known:
            self.counts.add(QueueCount.ORPHAN_MARKS, queue)
            self._orphans[queue] += 1
            return None
        if (queue, enqueue_id) in self._marked:
            return None
        return slice_start

    def _remember_mark(self, queue: QueueName, enqueue_id: EnqueueId) -> None:
        self._marked[queue, enqueue_id] = None
        if len(self._marked) > REMEMBERED_MARKS:
            self._marked.popitem(last=False)
