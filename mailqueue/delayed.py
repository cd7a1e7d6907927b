"""Delayed mails as listings and sizes see them: those without a mark, slice by slice, by the time when they are due."""

from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from itertools import groupby
from typing import Final

from mailqueue.due_mails import DueMails, DuePartition
from mailqueue.marks import Marks
from model.ids import QueueName
from model.mails import Listed
from model.positions import Position

PAGE_MAILS: Final = 1_000
"""Of how many mails the marks are looked up at once."""


class Delayed:
    """The mails of every queue that are not due yet."""

    def __init__(self, due: DueMails, marks: Marks) -> None:
        self._due, self._marks = due, marks

    async def browse(self, queue: QueueName, start: datetime | None = None) -> AsyncGenerator[Listed]:
        """Those that are due at the start or later; of one slice all are held at once."""
        partitions = [one async for one in self._due.partitions(queue)]
        for _, same in groupby(sorted(partitions), key=lambda one: one.due_slice):
            buckets = list(same)
            listed = [one for bucket in buckets async for one in self._unmarked(queue, bucket)]
            for one in sorted(listed, key=lambda one: Position.of(one).order):
                if start is None or one.due_at is None or one.due_at >= start:
                    yield one

    async def count(self, queue: QueueName) -> int:
        """How many they are."""
        counted = 0
        async for partition in self._due.partitions(queue):
            async for _ in self._unmarked(queue, partition):
                counted += 1
        return counted

    async def _unmarked(self, queue: QueueName, partition: DuePartition) -> AsyncIterator[Listed]:
        page: list[Listed] = []
        async for mail in self._due.under(queue, partition):
            page.append(mail.listed)
            if len(page) == PAGE_MAILS:
                for listed in await self._without_marks(queue, page):
                    yield listed
                page.clear()
        for listed in await self._without_marks(queue, page):
            yield listed

    async def _without_marks(self, queue: QueueName, page: list[Listed]) -> list[Listed]:
        marked = await self._marks.among(queue, [one.queued.enqueue_id for one in page])
        return [one for one in page if one.queued.enqueue_id not in marked]
