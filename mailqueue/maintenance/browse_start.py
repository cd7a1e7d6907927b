"""Where a browse start belongs: found by looking, nothing is written."""

from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mailqueue.concurrency import in_order
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.slices import Slices
from mailqueue.rabbitmq.view.start_rows import QueueState
from model.catalog.mail_queue import ENQUEUED_MAILS
from model.ids import EnqueueId, QueueName
from model.operations import Read
from model.ports import AsyncTables
from model.queue.slices import Slicing, slice_of, slices_between
from model.queue.starts import furthest_browse_start, moved_back, next_browse_start
from model.schema.table import Key

SLICES_AT_ONCE: Final = 4
"""In how many slices the first mail without a mark is looked for at once."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the browse start was, and is (or belongs); None: nothing was ever enqueued.

    Attributes:
        back: whether somebody else had put it back before.
        state: what was remembered of the queue before.
    """

    before: datetime | None
    after: datetime | None
    back: bool = False
    state: QueueState = field(default_factory=QueueState, compare=False)


class BrowseStartFinder:
    """Finds where the browse starts of a keyspace belong.

    Args:
        tables: the keyspace.
        view: its queues.
        slices: as this pass reads them.
    """

    def __init__(self, tables: AsyncTables, view: QueueView, slices: Slices) -> None:
        self._tables, self._view, self._slices = tables, view, slices
        self._first_live: dict[QueueName, Key] = {}

    async def find(self, queue: QueueName, slicing: Slicing) -> Moved:
        """Where the browse start belongs as of now; writes nothing.

        Raises:
            MailmendError: whatever did not answer.
        """
        before = await self._view.known_queues.browse_start(queue)
        if before is None:
            return Moved(None, None)
        now, state = self._view.known_queues.now, await self._view.starts.state(queue)
        first_live = await self._first_live_slice(queue, before, now, slicing)
        after = next_browse_start(before, first_live, now, slicing.window)
        return Moved(before, after, moved_back(before, state.furthest_start), state)

    async def _first_live_slice(
        self, queue: QueueName, start: datetime, now: datetime, slicing: Slicing
    ) -> datetime | None:
        """The first slice with an unmarked mail, of those up to which the start may move.

        The one found last time is checked first, so a mail that stays does not make each sweep expensive.
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
        there = await self._view.known_queues.retries.call(lambda: self._tables.read(Read(ENQUEUED_MAILS, key)))
        return bool(there) and not await self._view.marks.there(queue, EnqueueId(enqueue_id))
