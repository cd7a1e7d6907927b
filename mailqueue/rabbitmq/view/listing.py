"""Listings of a queue: the waiting mails, slice by slice, each by time; then the delayed ones.

A page starts after the last mail seen, so pages stay stable while mails come and go.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from typing import Final

from mailqueue.concurrency import in_order
from mailqueue.rabbitmq.view.delayed import DelayedListing
from mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailqueue.rabbitmq.view.slices import SLICES_AT_ONCE, Broken, SliceContents, Slices
from model.ids import EnqueueId, QueueName
from model.queue.filters import MailFilter
from model.queue.mails import Listed, Whereabouts
from model.queue.positions import ListingPosition, is_behind
from model.queue.slices import Slicing
from model.queue.starts import GRACE_MIN, live_slices

REMEMBERED_MAX: Final = 100_000
"""Of how many mails a listing knows that it has shown them, so as not to show them once more as delayed."""


class Listing:
    """Lists every queue of a keyspace."""

    def __init__(self, queues: KnownQueues, slices: Slices, delayed: DelayedListing | None) -> None:
        self._queues, self._slices, self._delayed = queues, slices, delayed

    async def browse(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None, on_broken: Callable[[Broken], None]
    ) -> AsyncGenerator[Listed]:
        """The matching mails. An interrupted retry leaves a mail in both tables; it is listed once."""
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

    async def _not_due(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None
    ) -> AsyncGenerator[Listed]:
        if self._delayed is None or where.whereabouts is Whereabouts.WAITING:
            return
        first = after.stretch if after is not None and after.whereabouts is Whereabouts.DELAYED else None
        async with aclosing(self._delayed.browse(queue, first)) as delayed:
            async for listed in delayed:
                if where.matches(listed) and is_behind(listed, after):
                    yield listed

    async def _waiting(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None, on_broken: Callable[[Broken], None]
    ) -> AsyncGenerator[Listed]:
        if where.whereabouts is Whereabouts.DELAYED or (after and after.whereabouts is Whereabouts.DELAYED):
            return
        slicing = await self._queues.slicing()

        def meant(listed: Listed) -> bool:
            return where.matches(listed) and is_behind(listed, after)

        async def read(slice_start: datetime) -> SliceContents:
            return await self._slices.held(queue, slice_start, slicing.buckets, meant)

        starts = await self._starts(queue, where, after, slicing)
        async with aclosing(in_order(starts, read, SLICES_AT_ONCE, lambda held: held.room)) as slices:
            async for slice_start, held in slices:
                for broken in held.broken:
                    on_broken(broken)
                async for listed in self._slices.mails(queue, slice_start, held, meant):
                    yield listed

    async def _starts(
        self, queue: QueueName, where: MailFilter, after: ListingPosition | None, slicing: Slicing
    ) -> Iterable[datetime]:
        """The slices to read, from the first that can match: no mail is enqueued after its slice ends."""
        start = await self._queues.browse_start(queue)
        if start is None:
            return ()
        firsts = [start]
        if after is not None:
            firsts.append(after.stretch)
        if where.newer_than_at is not None:
            firsts.append(where.newer_than_at - GRACE_MIN)
        return live_slices(max(firsts), self._queues.now, slicing.window)
