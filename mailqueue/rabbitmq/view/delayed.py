"""Delayed mails as listings and sizes see them: those without a mark, slice by slice, by the time when they are due.

Most slices hold few mails, so several are read ahead at once, and their marks are looked up together. A slice of many,
as a flood of retries leaves it, is never held: the rows of a bucket come in order, so its buckets are merged as they
are read. A size asks what every process has counted, as for waiting mails; only where that cannot tell are rows read.
"""

import heapq
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from mailmend.mailqueue.concurrency import all_of, in_batches, in_order
from mailmend.mailqueue.rabbitmq.view.due_mails import DUE_WINDOW, DueMail, DueMails, DuePartition
from mailmend.mailqueue.rabbitmq.view.known_queues import KnownQueues
from mailmend.mailqueue.rabbitmq.view.marks import Marks
from mailmend.mailqueue.rabbitmq.view.tallies import Recounted
from mailmend.mailqueue.rules.filters import ListingPosition
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.size import CountedBy, SliceCount, due_tallied, due_tallies_at
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.table import Key

PAGE_MAILS: Final = 1_000
"""For how many mails at once marks are looked up, and how many mails of a slice are read ahead at most.

A listing holds at most `SLICES_AT_ONCE` times this number: it reads `SLICES_AT_ONCE` slices ahead,
each of them whole and within this bound. It also holds one page of a slice that is larger, and
for each bucket of that slice one mail and the rows of one answer of the server."""

SLICES_AT_ONCE: Final = 16

_MILLISECOND: Final = timedelta(milliseconds=1)

_Slice = list[DuePartition]
"""The buckets of a slice that may hold mails."""


class DelayedListing:
    """The mails of every queue that are not due yet."""

    def __init__(self, due: DueMails, marks: Marks, queues: KnownQueues) -> None:
        self._due = due
        self._marks = marks
        self._queues = queues

    async def browse(self, queue: QueueName, start: datetime | None = None) -> AsyncGenerator[Listed]:
        """Mails due at the start or later, in order of due time."""
        after: Key = ()
        if start is not None:
            after = (start - _MILLISECOND,)

        async def read(buckets: _Slice) -> list[Listed] | None:
            return await self._held(queue, buckets, after)

        slices = await self._slices(queue, start)
        async with aclosing(in_order(slices, read, SLICES_AT_ONCE, _room)) as found:
            async for buckets, held in found:
                if held is None:
                    async with aclosing(self._merged(queue, buckets, after)) as mails:
                        async for listed in mails:
                            yield listed
                for listed in held or ():
                    yield listed

    async def count(self, queue: QueueName) -> list[SliceCount]:
        slices = await self._slices(queue)
        counted = await self._queues.tallies.of(queue, list(map(_tallies_at, slices)))

        async def count(place: int) -> SliceCount:
            summed = due_tallied(slices[place][0].due_slice, counted[place], self._queues.now)
            if summed is not None:
                return summed
            rows = await self._rows(queue, slices[place])
            counted_by = CountedBy.TALLIES
            if rows or counted[place]:
                counted_by = CountedBy.METADATA
            return SliceCount(rows, exact=True, counted_by=counted_by)

        return await all_of(range(len(slices)), count, SLICES_AT_ONCE)

    async def recount(self, queue: QueueName) -> Recounted:
        slices = {_tallies_at(buckets): buckets for buckets in await self._slices(queue)}

        async def rows(tallies_at: datetime) -> int:
            return await self._rows(queue, slices[tallies_at])

        return await self._queues.tallies.recount(queue, list(slices), rows)

    async def _slices(self, queue: QueueName, start: datetime | None = None) -> list[_Slice]:
        later = [partition async for partition in self._due.partitions(queue)]
        if start is not None:
            later = [partition for partition in later if partition.due_slice + DUE_WINDOW > start]
        later.sort()
        return [list(same) for _, same in groupby(later, key=lambda partition: partition.due_slice)]

    async def _held(self, queue: QueueName, buckets: _Slice, after: Key) -> list[Listed] | None:
        """The mails of a slice, in order; None where they are too many for memory."""
        mails = list[DueMail]()
        for bucket in buckets:
            async with aclosing(self._due.under(queue, bucket, after)) as found:
                async for mail in found:
                    mails.append(mail)
                    if len(mails) > PAGE_MAILS:
                        return None
        return sorted(await self._unmarked(queue, mails), key=_order)

    async def _merged(self, queue: QueueName, buckets: _Slice, after: Key) -> AsyncGenerator[Listed]:
        """The mails of a slice, in order, a page at a time."""
        async with AsyncExitStack() as stack:
            sources = []
            for bucket in buckets:
                mails = self._due.under(queue, bucket, after)
                sources.append(await stack.enter_async_context(aclosing(mails)))
            merged = await stack.enter_async_context(aclosing(in_turn(sources, lambda mail: _order(mail.listed))))
            async for page in await stack.enter_async_context(aclosing(in_batches(merged, PAGE_MAILS))):
                for listed in await self._unmarked(queue, page):
                    yield listed

    async def _rows(self, queue: QueueName, buckets: _Slice) -> int:
        counted = 0
        for bucket in buckets:
            async with aclosing(self._due.ids(queue, bucket)) as ids, aclosing(in_batches(ids, PAGE_MAILS)) as pages:
                async for page in pages:
                    marked: set[EnqueueId] = await self._marks.among(queue, page)
                    counted += sum(enqueue_id not in marked for enqueue_id in page)
        return counted

    async def _unmarked(self, queue: QueueName, mails: Sequence[DueMail]) -> list[Listed]:
        marked = await self._marks.among(queue, [mail.enqueue_id for mail in mails])
        return [mail.listed for mail in mails if mail.enqueue_id not in marked]


async def in_turn(
    sources: Sequence[AsyncGenerator[DueMail]], order: Callable[[DueMail], Key]
) -> AsyncGenerator[DueMail]:
    """Merges sorted sources into one sorted stream; holds one mail of each.

    The caller closes the sources.
    """
    heads = list[tuple[Key, int, DueMail]]()

    async def advance(place: int) -> None:
        mail = await anext(sources[place], None)
        if mail is not None:
            heapq.heappush(heads, (order(mail), place, mail))

    for place in range(len(sources)):
        await advance(place)
    while heads:
        _, place, mail = heapq.heappop(heads)
        yield mail
        await advance(place)


def _order(listed: Listed) -> Key:
    return ListingPosition.of(listed).order


def _tallies_at(buckets: _Slice) -> datetime:
    return due_tallies_at(buckets[0].due_slice)


def _room(held: Sequence[Listed] | None) -> int:
    """How many slices like this one may be held ahead."""
    if held is None:
        return 1
    return PAGE_MAILS // max(1, len(held))
