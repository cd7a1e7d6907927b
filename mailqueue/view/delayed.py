"""Delayed mails as listings and sizes see them: those without a mark, slice by slice, by the time when they are due.

Most slices hold few mails, so several are read ahead at once, and their marks are looked up together.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import groupby
from typing import Final

from mailqueue.due.mails import DUE_WINDOW, DueMails, DuePartition
from mailqueue.view.ahead import in_order
from mailqueue.view.marks import Marks
from model.ids import EnqueueId, QueueName
from model.mails import Listed
from model.positions import Position

PAGE_MAILS: Final = 1_000
"""Of how many mails the marks are looked up at once, and about how many are held ahead."""

SLICES_AT_ONCE: Final = 16


class Delayed:
    """The mails of every queue that are not due yet."""

    def __init__(self, due: DueMails, marks: Marks) -> None:
        self._due, self._marks = due, marks

    async def browse(self, queue: QueueName, start: datetime | None = None) -> AsyncGenerator[Listed]:
        """Those that are due at the start or later; of one slice all are held at once."""

        async def read(buckets: Sequence[DuePartition]) -> list[Listed]:
            return await self._held(queue, buckets)

        slices = await self._slices(queue, start)
        async with aclosing(in_order(slices, read, SLICES_AT_ONCE, _room)) as held:
            async for _, listed in held:
                for one in listed:
                    if start is None or one.due_at is None or one.due_at >= start:
                        yield one

    async def count(self, queue: QueueName) -> int:
        """How many they are."""

        async def read(partition: DuePartition) -> list[EnqueueId]:
            return [one async for one in self._due.ids(queue, partition)]

        counted, page = 0, list[EnqueueId]()
        partitions = [one async for one in self._due.partitions(queue)]
        async with aclosing(in_order(partitions, read, SLICES_AT_ONCE)) as found:
            async for _, enqueue_ids in found:
                page += enqueue_ids
                if len(page) >= PAGE_MAILS:
                    counted += await self._unmarked(queue, page)
                    page = []
        return counted + await self._unmarked(queue, page)

    async def _slices(self, queue: QueueName, start: datetime | None) -> list[list[DuePartition]]:
        """The buckets of each slice that does not end before the start."""
        partitions = [one async for one in self._due.partitions(queue)]
        later = sorted(one for one in partitions if start is None or one.due_slice + DUE_WINDOW > start)
        return [list(same) for _, same in groupby(later, key=lambda one: one.due_slice)]

    async def _held(self, queue: QueueName, buckets: Sequence[DuePartition]) -> list[Listed]:
        """The mails of a slice, in order."""
        listed = [mail.listed for bucket in buckets async for mail in self._due.under(queue, bucket)]
        marked = await self._marks.among(queue, [one.queued.enqueue_id for one in listed])
        unmarked = [one for one in listed if one.queued.enqueue_id not in marked]
        return sorted(unmarked, key=lambda one: Position.of(one).order)

    async def _unmarked(self, queue: QueueName, enqueue_ids: Sequence[EnqueueId]) -> int:
        return len(enqueue_ids) - len(await self._marks.among(queue, enqueue_ids))


def _room(listed: Sequence[Listed]) -> int:
    """How many slices like this one may be held ahead."""
    return PAGE_MAILS // max(1, len(listed))
