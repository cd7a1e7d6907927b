"""The queue as its tables show it: rows put where browsing sees them, marks, listings, sizes.

A row is put between two looks at the browse start. Whoever moves the start looks at the rows once more afterwards (the
sweep): so either the one who enqueues sees the new start, and puts the row into a later slice, or the sweep sees the
row, and does. Nothing rests on clocks that agree.
"""

from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from typing import Final

from mailqueue.ahead import in_order
from mailqueue.browsing import SLICES_AT_ONCE, Broken, Held, Slices
from mailqueue.codec import listed_of, row_of
from mailqueue.configuration import Configurations
from mailqueue.counting import Counting, Recounted
from mailqueue.delayed import Delayed
from mailqueue.due_mails import DueMails
from mailqueue.marks import Marks, answered
from mailqueue.metrics import Count, Counts, NoCounts
from mailqueue.ports import Clock, Tables
from mailqueue.start_rows import QueueState, Starts
from mailqueue.tallies import Tallies
from model.catalog_queue import ENQUEUED_MAILS
from model.errors import Contended, MailmendError
from model.ids import EnqueueId, QueueName
from model.instants import MICROS, instant_of
from model.mail_filters import EVERYTHING, Where
from model.mails import Listed, QueuedMail, Whereabouts
from model.operations import Put, Read, Remove, Seen
from model.positions import Position, is_behind
from model.queue_config import DEFAULT, QueueConfiguration
from model.queue_size import Size, size_of
from model.queue_tables import OwnTables
from model.slices import EPOCH, Slicing, bucket_of, slice_of
from model.starts import GRACE_MIN, grace_of, live_slices, slice_for
from model.table import Row
from repair.retries import AwaitedRetries

CUT_SECONDS: Final = 30.0
"""How long a process that enqueues relies on how the queue was cut; an older cut stays valid, if coarser."""

PLACES_MAX: Final = 8
"""How often a mail is put into another slice because the browse start moved or the clock jumped, before we give up."""

REMEMBERED_MARKS: Final = 65_536
"""Of how many mails a process knows that it has marked them, so as not to count one twice."""


class QueueView:
    """The queues of one keyspace, as its tables show them.

    Args:
        tables: the keyspace.
        clock: time and chance.
        configurations: how the queues are cut.
        tallies: what this process counts.
        own: which tables there are beside James's.
        counts: where what is unusual is counted.
    """

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        configurations: Configurations,
        tallies: Tallies,
        own: OwnTables,
        *,
        counts: Counts | None = None,
    ) -> None:
        self.tables, self.clock, self.tallies, self.own = tables, clock, tallies, own
        self.counts = counts or NoCounts()
        self.retries = AwaitedRetries(clock)
        self.marks = Marks(tables, self.retries)
        self.slices = Slices(tables, self.marks, self.retries)
        self.starts = Starts(tables, self.retries, remembers=own.state)
        self.counting = Counting(self.slices, tallies, clock)
        self.delayed = Delayed(DueMails(tables, clock, buckets=1), self.marks) if own.due else None
        self._configurations = configurations
        self._cut: tuple[int, QueueConfiguration] | None = None
        self._known: dict[QueueName, datetime] = {}
        self._orphans: Counter[QueueName] = Counter()
        self._foreign_until: dict[QueueName, datetime] = {}
        self._marked: OrderedDict[tuple[QueueName, EnqueueId], None] = OrderedDict()

    # Time and how it is cut

    @property
    def now(self) -> datetime:
        """By our own clock, in whole milliseconds."""
        return instant_of(self.clock.micros())

    async def slicing(self) -> Slicing:
        """How the queues are cut at this moment."""
        return (await self._asked()).slicing

    async def pace(self) -> int:
        """One of so many dequeues and deletes sweeps."""
        return (await self._configuration()).pace

    async def _configuration(self) -> QueueConfiguration:
        """A window that was replaced is a multiple of the new one, and buckets only grow: old cuts are still read."""
        if self._cut is None or self.clock.micros() - self._cut[0] > CUT_SECONDS * MICROS:
            return await self._asked()
        return self._cut[1]

    async def _asked(self) -> QueueConfiguration:
        current = await self._configurations.current() or DEFAULT
        self._cut = self.clock.micros(), current
        return current

    async def browse_start(self, queue: QueueName) -> datetime | None:
        """Before it every mail of the queue is marked; None: nothing was ever enqueued."""
        start = await self.starts.browse_start(queue)
        if start is not None:
            self._known[queue] = start
        return start

    async def state(self, queue: QueueName) -> QueueState:
        """What is remembered of the queue: how far it was ever swept, and when."""
        return await self.starts.state(queue)

    async def queues(self) -> list[QueueName]:
        """Every queue that anything is known of, by name."""
        return await self.starts.queues()

    # Rows

    async def place(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime | None = None) -> datetime:
        """Put the mail's row where browsing sees it; the start of its slice.

        Raises:
            CannotReach: the row may be there all the same: mark the mail.
            Contended: the clock kept jumping.
        """
        slicing, reckoned = (await self._configuration()).slicing, self.now
        start = self._known.get(queue) or await self._begun(queue, slicing)
        first = slice_for(reckoned, start, slicing.window)
        return await self._placed(queue, queued, enqueued_at or reckoned, first, slicing)

    async def place_at_start(self, queue: QueueName, queued: QueuedMail, enqueued_at: datetime) -> datetime:
        """Put the row into the first slice that browsing sees: until it is marked, the same one each time."""
        slicing = (await self._configuration()).slicing
        first = slice_of(await self._begun(queue, slicing), slicing.window)
        return await self._placed(queue, queued, enqueued_at, first, slicing, sure=False)

    async def place_row(self, queue: QueueName, row: Row) -> None:
        """The same for a row that cannot be read: as it is, so that a person still finds it."""
        first = slice_of(await self._begun(queue, await self.slicing()), (await self.slicing()).window)
        await self.retries.write(self.tables, Put(ENQUEUED_MAILS, {**row, "timerangestart": first}))

    async def take_back(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> None:
        """Remove the row without a mark, whoever put it, even by a clock ahead of ours; none there is fine."""
        async with self.tallies.counting(queue, slice_start) as changes:
            for seen in await self._rows(queue, slice_start, queued, times=True):
                at = max(self.clock.micros(), (seen.newest or 0) + 1)
                await self.retries.write(self.tables, Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(seen.row), at=at))
                changes.enqueued -= 1

    async def row(self, queue: QueueName, slice_start: datetime, queued: QueuedMail) -> Listed | None:
        """The mail's row in that slice, whichever bucket it is in, marked or not; None: there is none.

        Raises:
            BadPayload: it is there and cannot be read.
        """
        seen = await self._rows(queue, slice_start, queued)
        return listed_of(seen[0].row) if seen else None

    # Marks

    async def mark(self, queue: QueueName, enqueue_id: EnqueueId, slice_start: datetime | None) -> None:
        """Mark a mail.

        Args:
            queue: the mail's.
            enqueue_id: the mail.
            slice_start: where its row was counted; None where that is not known, or it never was.
        """
        async with self.tallies.counting(queue, self._to_count(queue, enqueue_id, slice_start)) as changes:
            await self.marks.put(queue, enqueue_id)
            changes.marked = 1
        self._remember_mark(queue, enqueue_id)

    async def mark_all(
        self, queue: QueueName, mails: Sequence[tuple[EnqueueId, datetime | None]]
    ) -> list[MailmendError | None]:
        """Mark many, at an operator's word; for each the error that is left after all tries, or None.

        Somebody may finish with one of them at the same moment: how many mails their slices hold is then no longer
        sure, and is an estimate until it is counted again.
        """
        marked = await self.marks.among(queue, [one for one, _ in mails])
        async with AsyncExitStack() as stack:
            changes = {
                start: await stack.enter_async_context(self.tallies.counting(queue, start))
                for start in {self._to_count(queue, one, start) for one, start in mails if one not in marked}
            }
            errors = await self.marks.put_all(queue, [one for one, _ in mails])
            for (one, start), error in zip(mails, errors, strict=True):
                if one not in marked and (change := changes.get(start)) is not None:
                    change.marked += error is None
                    change.sure = False
        for (one, _), error in zip(mails, errors, strict=True):
            if error is None:
                self._remember_mark(queue, one)
        return errors

    async def marked(self, queue: QueueName, enqueue_id: EnqueueId) -> bool:
        """Whether the mail is marked."""
        return await self.marks.there(queue, enqueue_id)

    async def marked_among(self, queue: QueueName, enqueue_ids: Collection[EnqueueId]) -> set[EnqueueId]:
        """Those of the mails that are marked."""
        return await self.marks.among(queue, enqueue_ids)

    def orphan_marks(self, queue: QueueName) -> int:
        """How many marks this process has written, since it was last asked, for mails whose slice is out of sight."""
        return self._orphans.pop(queue, 0)

    async def foreign(self, queue: QueueName) -> None:
        """A mail came that another program had enqueued: what is alive now is counted by its rows from here on."""
        if self._foreign_until.get(queue, EPOCH) <= self.now:
            slicing, starts = await self._live(queue)
            for slice_start in starts:
                await self.tallies.foreign(queue, slice_start)
            self._foreign_until[queue] = slice_of(self.now, slicing.window) + slicing.window

    # Listings

    async def browse(
        self,
        queue: QueueName,
        where: Where = EVERYTHING,
        after: Position | None = None,
        *,
        include_delayed: bool = True,
        on_broken: Callable[[Broken], None] = lambda _: None,
    ) -> AsyncIterator[Listed]:
        """The mails of the queue that are meant: those that wait, slice by slice, each by time; then the delayed ones.

        One whose retry was interrupted may be both; it is listed once.

        Args:
            queue: whose.
            where: what is meant.
            after: what was seen last.
            include_delayed: whether those that are not due yet are meant too.
            on_broken: told of each row that cannot be read; those are logged and counted besides.
        """
        seen: set[EnqueueId] = set()
        if where.whereabouts is not Whereabouts.DELAYED:
            async with aclosing(self._waiting(queue, where, after, on_broken)) as waiting:
                async for listed in waiting:
                    seen.add(listed.queued.enqueue_id)
                    yield listed
        if include_delayed and self.delayed is not None and where.whereabouts is not Whereabouts.WAITING:
            first = after.stretch if after is not None and after.whereabouts is Whereabouts.DELAYED else None
            async with aclosing(self.delayed.browse(queue, first)) as delayed:
                async for listed in delayed:
                    once = listed.queued.enqueue_id not in seen
                    if once and where.matches(listed) and is_behind(listed, after):
                        yield listed

    async def size(self, queue: QueueName) -> Size:
        """How many mails wait, from what every process has counted; where that cannot tell, from the rows."""
        slicing, starts = await self._live(queue)
        delayed = await self.delayed.count(queue) if self.delayed is not None else 0
        return size_of(await self.counting.count(queue, starts, slicing.buckets), delayed)

    async def recount(self, queue: QueueName) -> Recounted:
        """Set right what the processes have told of the live slices, by looking at every row."""
        slicing, starts = await self._live(queue)
        return await self.counting.recount(queue, starts, slicing.buckets)

    # Inside

    async def _live(self, queue: QueueName) -> tuple[Slicing, list[datetime]]:
        slicing, start = await self.slicing(), await self.browse_start(queue)
        return slicing, list(live_slices(start, self.now, slicing.window)) if start else []

    async def _begun(self, queue: QueueName, slicing: Slicing) -> datetime:
        start = await self.browse_start(queue)
        if start is None:
            start = self._known[queue] = await self.starts.begin(queue, slice_of(self.now, slicing.window))
        return start

    async def _placed(
        self,
        queue: QueueName,
        queued: QueuedMail,
        enqueued_at: datetime,
        slice_start: datetime,
        slicing: Slicing,
        *,
        sure: bool = True,
    ) -> datetime:
        reckoned = self.now
        for _ in range(PLACES_MAX):
            async with self.tallies.counting(queue, slice_start) as changes:
                changes.sure = sure
                bucket = bucket_of(queued.mail.name, slicing.buckets)
                row = row_of(queue, slice_start, bucket, enqueued_at, queued)
                await self.retries.write(self.tables, Put(ENQUEUED_MAILS, row))
                start, now = await self._begun(queue, slicing), self.now
                right = _right_slice(slice_start, start, reckoned, now, slicing)
                if right == slice_start:
                    changes.enqueued = 1
                    return slice_start
                await self.retries.write(self.tables, Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row)))
            slice_start, reckoned = right, now
        raise Contended(
            f"no slice could be found for a mail in the queue {queue!r}",
            mend="Mend this machine's clock: chronyc tracking",
        )

    async def _rows(
        self, queue: QueueName, slice_start: datetime, queued: QueuedMail, *, times: bool = False
    ) -> Sequence[Seen]:
        """In the bucket of now; where it is not there, in those of when there were fewer."""
        buckets = (await self._configuration()).slicing.buckets
        own = bucket_of(queued.mail.name, buckets)
        for some in ([own], [bucket for bucket in range(buckets) if bucket != own]):
            keys = [(queue, slice_start, bucket, queued.enqueue_id) for bucket in some]
            reads = [Read(ENQUEUED_MAILS, key, times=times) for key in keys]
            found = [seen for answer in await answered(self.tables, self.retries, reads) for seen in answer]
            if found:
                return found
        return []

    async def _waiting(
        self, queue: QueueName, where: Where, after: Position | None, on_broken: Callable[[Broken], None]
    ) -> AsyncGenerator[Listed]:
        if after is not None and after.whereabouts is Whereabouts.DELAYED:
            return
        slicing = await self.slicing()

        def meant(listed: Listed) -> bool:
            return where.matches(listed) and is_behind(listed, after)

        async def read(slice_start: datetime) -> Held:
            return await self.slices.held(queue, slice_start, slicing.buckets, meant)

        starts = await self._slices_to_list(queue, where, after, slicing)
        async with aclosing(in_order(starts, read, SLICES_AT_ONCE, lambda held: held.room)) as slices:
            async for slice_start, held in slices:
                for broken in held.broken:
                    on_broken(broken)
                async for listed in self.slices.mails(queue, slice_start, held, meant):
                    yield listed

    async def _slices_to_list(
        self, queue: QueueName, where: Where, after: Position | None, slicing: Slicing
    ) -> Iterable[datetime]:
        """From the browse start on, or from where the page before ended, or the mails that are meant begin."""
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
        """The slice whose tally the mark changes: none where it was counted, or where the slice is out of sight."""
        known = self._known.get(queue)
        if slice_start is not None and known is not None and slice_start < known:
            self.counts.add(Count.ORPHAN_MARKS, queue)
            self._orphans[queue] += 1
            return None
        return None if (queue, enqueue_id) in self._marked else slice_start

    def _remember_mark(self, queue: QueueName, enqueue_id: EnqueueId) -> None:
        self._marked[queue, enqueue_id] = None
        if len(self._marked) > REMEMBERED_MARKS:
            self._marked.popitem(last=False)


def _right_slice(
    slice_start: datetime, start: datetime, reckoned: datetime, now: datetime, slicing: Slicing
) -> datetime:
    """Where the row belongs, as far as is known after it was put."""
    window = slicing.window
    if abs(now - reckoned) > grace_of(window):
        return slice_for(now, start, window)
    return max(slice_start, slice_of(start, window))
