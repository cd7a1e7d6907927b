"""A queue as its tables show it: rows, marks, listings and sizes behind one name."""

from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import datetime
from typing import Final

from mailqueue.metrics import NoCounts, QueueCount, QueueCounts
from mailqueue.rabbitmq.view.configuration import Configurations
from mailqueue.rabbitmq.view.counting import Counting, Recounted
from mailqueue.rabbitmq.view.delayed import DelayedListing
from mailqueue.rabbitmq.view.due_mails import DueMails
from mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailqueue.rabbitmq.view.listing import Listing
from mailqueue.rabbitmq.view.marks import Marks
from mailqueue.rabbitmq.view.rows import MailRows
from mailqueue.rabbitmq.view.slices import Broken, Slices
from mailqueue.rabbitmq.view.tallies import SliceTallies
from model.catalog.queue_tables import OwnTables
from model.errors import MailmendError
from model.ids import EnqueueId, QueueName
from model.ports import AsyncTables, Clock
from model.queue.filters import EVERYTHING, MailFilter
from model.queue.mails import Listed, Whereabouts
from model.queue.positions import ListingPosition
from model.queue.size import Size, size_of
from model.queue.slices import EPOCH, slice_of

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
        tables: AsyncTables,
        clock: Clock,
        configurations: Configurations,
        tallies: SliceTallies,
        own: OwnTables,
        *,
        counts: QueueCounts | None = None,
    ) -> None:
        self.known_queues = KnownQueues(tables, clock, configurations, tallies, own)
        self.counts = counts or NoCounts()
        self.marks = Marks(tables, self.known_queues.retries)
        self.slices = Slices(tables, self.marks, self.known_queues.retries)
        self.rows = MailRows(self.known_queues)
        self.starts = self.known_queues.starts
        self._counting = Counting(self.slices, tallies, clock, shared=own.shared)
        due = DueMails(tables, clock, buckets=1)
        self._delayed = DelayedListing(due, self.marks, self._counting, self.known_queues) if own.due else None
        self._listing = Listing(self.known_queues, self.slices, self._delayed)
        self._tallies = tallies
        self._orphans: Counter[QueueName] = Counter()
        self._foreign_until: dict[QueueName, datetime] = {}
        self._marked: OrderedDict[tuple[QueueName, EnqueueId], None] = OrderedDict()

    async def mark(
        self, queue: QueueName, enqueue_id: EnqueueId, slice_start: datetime | None, *, redelivered: bool = False
    ) -> None:
        counted = self._to_count(queue, enqueue_id, slice_start)
        if redelivered and counted is not None and await self.marks.there(queue, enqueue_id):
            counted = None
        async with self._tallies.counting(queue, counted) as changes:
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
        marked = await self.marks.among(queue, [one for one, _ in mails])
        slices = [None if one in marked else self._to_count(queue, one, start) for one, start in mails]
        async with AsyncExitStack() as stack:
            changes = {
                start: await stack.enter_async_context(self._tallies.counting(queue, start)) for start in set(slices)
            }
            errors = await self.marks.put_all(queue, [one for one, _ in mails])
            for (one, _), start, error in zip(mails, slices, errors, strict=True):
                changes[start].sure = False
                if error is None:
                    changes[start].marked += 1
                    self._remember_mark(queue, one)
        return errors

    def orphan_marks(self, queue: QueueName) -> int:
        """How many marks this process has written, since the last call, for mails of slices before the browse start."""
        return self._orphans.pop(queue, 0)

    async def foreign(self, queue: QueueName) -> None:
        """Another program enqueued a mail: live slices are counted by their rows from now on."""
        if self._foreign_until.get(queue, EPOCH) <= self.known_queues.now:
            slicing, starts = await self.known_queues.live(queue)
            for slice_start in starts:
                await self._tallies.foreign(queue, slice_start)
            self._foreign_until[queue] = slice_of(self.known_queues.now, slicing.window) + slicing.window

    async def browse(
        self,
        queue: QueueName,
        where: MailFilter = EVERYTHING,
        after: ListingPosition | None = None,
        *,
        include_delayed: bool = True,
        on_broken: Callable[[Broken], None] = lambda _: None,
    ) -> AsyncGenerator[Listed]:
        """The matching mails: waiting ones slice by slice, each by time; then the delayed ones.

        Args:
            queue: whose.
            where: what is meant.
            after: what was seen last.
            include_delayed: whether those that are not due yet are meant too.
            on_broken: told of each row that cannot be read; such rows are logged besides.
        """
        if not include_delayed and where.whereabouts is None:
            where = replace(where, whereabouts=Whereabouts.WAITING)
        async with aclosing(self._listing.browse(queue, where, after, on_broken)) as mails:
            async for listed in mails:
                yield listed

    async def size(self, queue: QueueName) -> Size:
        """From the tallies of all processes; from the rows where tallies cannot tell."""
        await self._tallies.flush()
        slicing, starts = await self.known_queues.live(queue)
        delayed = await self._delayed.count(queue) if self._delayed is not None else []
        return size_of(await self._counting.count(queue, starts, slicing.buckets), delayed)

    async def recount(self, queue: QueueName) -> Recounted:
        """Correct the tallies of the live and delayed slices by reading every row."""
        slicing, starts = await self.known_queues.live(queue)
        waiting = await self._counting.recount(queue, starts, slicing.buckets)
        return waiting + (await self._delayed.recount(queue) if self._delayed is not None else Recounted())

    def _to_count(self, queue: QueueName, enqueue_id: EnqueueId, slice_start: datetime | None) -> datetime | None:
        """The slice whose tally the mark changes; None if it was counted, or lies before the browse start."""
        known = self.known_queues.starts_seen.get(queue)
        if slice_start is not None and known is not None and slice_start < known:
            self.counts.add(QueueCount.ORPHAN_MARKS, queue)
            self._orphans[queue] += 1
            return None
        return None if (queue, enqueue_id) in self._marked else slice_start

    def _remember_mark(self, queue: QueueName, enqueue_id: EnqueueId) -> None:
        self._marked[queue, enqueue_id] = None
        if len(self._marked) > REMEMBERED_MARKS:
            self._marked.popitem(last=False)
