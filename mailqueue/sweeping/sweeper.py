"""The sweep: move the browse start, clean up to it, move the content start: in this order.

Each step may be the last one of a process: the next sweep begins again at the content start, which moves when all
before it is clean. A row without a mark is never deleted: its mail is put back where browsing sees it, and published
again, first. Marks stay: they hide whatever the broker may deliver yet.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailqueue.metrics import Count
from mailqueue.ports import Blobs, Broker, Clock, Tables
from mailqueue.sweeping.cleaning import Cleaner
from mailqueue.sweeping.renewing import Renewal
from mailqueue.view.ahead import in_order
from mailqueue.view.browsing import Slices
from mailqueue.view.marks import RememberedMarks
from mailqueue.view.queue_view import QueueView
from model.catalog_queue import ENQUEUED_MAILS
from model.errors import MailmendError
from model.ids import EnqueueId, QueueName
from model.operations import Read
from model.slices import Slicing, slice_of, slices_between
from model.starts import furthest_browse_start, moved_back, next_browse_start, slices_to_clean
from model.table import Key

SLICES_AT_ONCE: Final = 4
"""In how many slices the first mail without a mark is looked for at once."""

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the browse start was, and is; None: nothing was ever enqueued.

    Attributes:
        back: whether somebody else had put it back before.
    """

    before: datetime | None
    after: datetime | None
    back: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has done.

    Attributes:
        slices: that were cleaned, whether or not they held anything.
        rows: that went with them.
        blobs: of mails that were done with, deleted once more in case they were left.
        rescued: mails without a mark that lay before the browse start, and were put back and published.
        renewed: mails that would have expired soon, put again.
        orphan_marks: marks that this process wrote since its last sweep for mails of slices out of sight.
        moved_back: whether somebody else put the browse start back.
        browse_start, content_start: as they are now; None: nothing was ever enqueued.
    """

    slices: int = 0
    rows: int = 0
    blobs: int = 0
    rescued: int = 0
    renewed: int = 0
    orphan_marks: int = 0
    moved_back: bool = False
    browse_start: datetime | None = None
    content_start: datetime | None = None


class Sweeper:
    """Sweeps the queues of one keyspace; in one process one pass of a queue at a time, in many as many as there are."""

    def __init__(self, tables: Tables, view: QueueView, blobs: Blobs, broker: Broker, clock: Clock) -> None:
        self._tables, self._view, self._clock = tables, view, clock
        self._marks = RememberedMarks(tables, view.ground.retries)
        self._slices = Slices(tables, self._marks, view.ground.retries)
        self._cleaner = Cleaner(view, self._slices, self._marks, blobs, broker)
        self._renewal = Renewal(tables, view)
        self._turns: defaultdict[QueueName, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._first_live: dict[QueueName, Key] = {}
        self._passes: dict[QueueName, asyncio.Task[None]] = {}

    async def move(self, queue: QueueName) -> Moved:
        """Move the browse start as far as it may go, and no further.

        Raises:
            MailmendError: whatever did not answer.
        """
        async with self._turn(queue):
            return await self._moved(queue, await self._view.ground.slicing())

    async def sweep(self, queue: QueueName) -> Swept:
        """Move the browse start, clean up to it, renew what grows old.

        Raises:
            MailmendError: whatever did not answer; what is left is done by the next sweep.
        """
        async with self._turn(queue):
            swept = await self._swept(queue, await self._view.ground.slicing())
        self._count(queue, swept)
        return swept

    async def maybe(self, queue: QueueName) -> None:
        """Once in so many calls begin a sweep, for which nobody waits; `close` ends what is under way."""
        pace = (await self._view.ground.configuration()).pace
        if self._clock.chance() * pace < 1 and queue not in self._passes and not self._turns[queue].locked():
            task = self._passes[queue] = asyncio.create_task(self._quietly(queue), name=f"sweep of {queue}")
            task.add_done_callback(lambda _: self._passes.pop(queue, None))

    async def close(self) -> None:
        """Cut short what is under way: the next sweep completes it."""
        passes = list(self._passes.values())
        for task in passes:
            task.cancel()
        await asyncio.gather(*passes, return_exceptions=True)

    @asynccontextmanager
    async def _turn(self, queue: QueueName) -> AsyncGenerator[None]:
        """Of all passes of a queue in this process."""
        async with self._turns[queue]:
            try:
                yield
            finally:
                self._marks.forget(queue)

    async def _quietly(self, queue: QueueName) -> None:
        try:
            await self.sweep(queue)
        except MailmendError as error:
            _LOG.warning("a sweep of the queue %s was cut short, the next completes it: %s", queue, error.what)

    async def _swept(self, queue: QueueName, slicing: Slicing) -> Swept:
        view, moved = self._view, await self._moved(queue, slicing)
        if moved.before is None or moved.after is None:
            return Swept()
        content = await view.ground.starts.content_start(queue) or await view.ground.starts.begin_content(
            queue, moved.before
        )
        starts = list(slices_to_clean(content, moved.before, moved.after, slicing.window))
        cleaned = await self._cleaner.clean(queue, starts, slicing)
        content = await view.ground.starts.advance_content_start(queue, content, moved.after)
        renewed = await self._renewal.renew(queue, moved.after, slicing)
        await view.ground.starts.remember(queue, swept=view.ground.now)
        return Swept(
            slices=len(starts),
            rows=cleaned.rows,
            blobs=cleaned.blobs,
            rescued=cleaned.rescued,
            renewed=renewed,
            orphan_marks=view.orphan_marks(queue),
            moved_back=moved.back,
            browse_start=moved.after,
            content_start=content,
        )

    async def _moved(self, queue: QueueName, slicing: Slicing) -> Moved:
        starts, before = self._view.ground.starts, await self._view.browse_start(queue)
        if before is None:
            return Moved(None, None)
        now, state = self._view.ground.now, await starts.state(queue)
        back = moved_back(before, state.furthest_start)
        if back:
            _LOG.warning(
                "somebody put the browse start of the queue %s back: it was %s, now %s",
                queue,
                state.furthest_start,
                before,
            )
        await self._note_lapse(queue, before, state.swept_at, slicing)
        first_live = await self._first_live_slice(queue, before, now, slicing)
        wanted = next_browse_start(before, first_live, now, slicing.window)
        if await self._view.ground.slicing() != slicing:
            return Moved(before, before, back)  # cut anew meanwhile: there may be slices between those that were read
        after = await starts.advance_browse_start(queue, before, wanted)
        await starts.remember(queue, furthest=after)
        self._view.ground.known[queue] = after
        if after > before:
            self._view.counts.add(Count.BROWSE_START_MOVED, queue)
        return Moved(before, after, back)

    async def _note_lapse(
        self, queue: QueueName, before: datetime, swept_at: datetime | None, slicing: Slicing
    ) -> None:
        """Remember, before the browse start passes them, in which slices rows of waiting mails may have expired."""
        lapsed = self._renewal.lapsed_before(swept_at, slicing.window)
        if lapsed is None or before >= lapsed:
            return
        _LOG.warning(
            "nobody swept the queue %s since %s: rows from before %s may have expired, of mails that wait",
            queue,
            swept_at or "it began",
            lapsed,
        )
        await self._view.ground.starts.remember(queue, lapsed=lapsed)

    async def _first_live_slice(
        self, queue: QueueName, start: datetime, now: datetime, slicing: Slicing
    ) -> datetime | None:
        """The first slice with a mail that is not marked, as far as the browse start might be moved.

        The one that was found the last time is looked at first: a mail that stays does not make each sweep dear.
        """
        window = slicing.window
        first, end = slice_of(start, window), furthest_browse_start(now, window)
        known = self._first_live.pop(queue, None)
        if known is None or known[1] != first or not await self._is_live(known):
            known = await self._found_live(queue, first, end, slicing)
        if known is None:
            return None
        self._first_live[queue] = known
        found: datetime = known[1]
        return found

    async def _found_live(self, queue: QueueName, first: datetime, end: datetime, slicing: Slicing) -> Key | None:
        async def look(slice_start: datetime) -> Key | None:
            return await self._slices.first_unmarked(queue, slice_start, slicing.buckets)

        async with aclosing(in_order(slices_between(first, end, slicing.window), look, SLICES_AT_ONCE)) as slices:
            async for _, key in slices:
                if key is not None:
                    return key
        return None

    async def _is_live(self, key: Key) -> bool:
        queue, _, _, enqueue_id = key
        there = await self._view.ground.retries.call(lambda: self._tables.read(Read(ENQUEUED_MAILS, key)))
        return bool(there) and not await self._view.marked(queue, EnqueueId(enqueue_id))

    def _count(self, queue: QueueName, swept: Swept) -> None:
        counted = {
            Count.SWEPT_SLICES: swept.slices,
            Count.SWEPT_ROWS: swept.rows,
            Count.SWEPT_BLOBS: swept.blobs,
            Count.RESCUED: swept.rescued,
            Count.RENEWED: swept.renewed,
            Count.MOVED_BACK: int(swept.moved_back),
        }
        for count, number in counted.items():
            if number:
                self._view.counts.add(count, queue, number)
