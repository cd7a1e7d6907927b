"""How many mails a queue holds: from tallies, slice by slice, and from the rows of those whose tallies cannot tell.

Counting again (`Recount`) sets tallies right that a killed process, a lost answer or a mark put twice has left wrong.
It adds a row of its own with what is missing, and settles rows that nobody writes any more; rows of the living are
left to them, and a slice in which anything happened meanwhile is left as it is.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from mailqueue.concurrency import all_of
from mailqueue.rabbitmq.view.slices import SLICES_AT_ONCE, Slices
from mailqueue.rabbitmq.view.tallies import SliceTallies, ToldAt
from model.ids import QueueName
from model.instants import MICROS
from model.ports import Clock
from model.queue.size import CountedBy, SliceCount, WriterTally, tallied

SILENT_SECONDS: Final = 600.0
"""A row that is not settled and was not written for so long is nobody's: no change of a slice takes that long."""


@dataclass(frozen=True, slots=True)
class Recounted:
    """What counting again came to, in slices.

    Attributes:
        slices: that were counted.
        corrected: whose sum was wrong.
        left: in which something happened at the same time: they are counted again by the next.
    """

    slices: int = 0
    corrected: int = 0
    left: int = 0

    def __add__(self, other: "Recounted") -> "Recounted":
        return Recounted(self.slices + other.slices, self.corrected + other.corrected, self.left + other.left)


class Counting:
    """Counts the slices of every queue of a keyspace.

    Args:
        shared: whether others may enqueue who count nothing: then sums of tallies are estimates.
    """

    def __init__(self, slices: Slices, tallies: SliceTallies, clock: Clock, *, shared: bool) -> None:
        self._slices, self._tallies, self._clock, self._shared = slices, tallies, clock, shared

    async def count(self, queue: QueueName, starts: Sequence[datetime], buckets: int) -> list[SliceCount]:
        """How many mails of each slice wait."""
        told = await self._tallies.of(queue, starts)

        async def count(place: int) -> SliceCount:
            return await self._count(queue, starts[place], told[place], buckets)

        return await all_of(range(len(starts)), count, SLICES_AT_ONCE)

    async def recount(self, queue: QueueName, starts: Sequence[datetime], buckets: int) -> Recounted:
        async def rows(start: datetime) -> int:
            return await self._slices.count_unmarked(queue, start, buckets)

        return await self.recounted(queue, starts, rows)

    async def recounted(
        self, queue: QueueName, places: Sequence[datetime], rows: Callable[[datetime], Awaitable[int]]
    ) -> Recounted:
        """Correct the tallies of those places, by counting the rows of each."""

        async def recount(place: datetime) -> bool | None:
            return await self._recount(queue, place, rows)

        corrected = await all_of(places, recount, SLICES_AT_ONCE)
        return Recounted(len(places), corrected.count(True), corrected.count(None))

    async def _count(
        self, queue: QueueName, slice_start: datetime, told: Sequence[WriterTally], buckets: int
    ) -> SliceCount:
        summed = tallied(told)
        if summed is not None:
            return replace(summed, exact=summed.exact and not self._shared)
        if not told and await self._slices.is_empty(queue, slice_start, buckets):
            return SliceCount(0, exact=True, counted_by=CountedBy.TALLIES)
        unmarked = await self._slices.count_unmarked(queue, slice_start, buckets)
        return SliceCount(unmarked, exact=True, counted_by=CountedBy.METADATA)

    async def _recount(
        self, queue: QueueName, slice_start: datetime, rows: Callable[[datetime], Awaitable[int]]
    ) -> bool | None:
        """Whether the sum was wrong; None where that cannot be told now."""
        before = await self._tallies.told(queue, slice_start)
        unmarked = await rows(slice_start)
        if await self._tallies.told(queue, slice_start) != before or any(map(self._is_alive, before)):
            return None
        missing = unmarked - sum(one.tally.enqueued - one.tally.marked for one in before)
        if missing or (unmarked and not before):
            await self._tallies.correct(queue, slice_start, missing)
        unsettled = [one.tally for one in before if not one.tally.settled]
        await self._tallies.write(queue, slice_start, [replace(one, settled=True) for one in unsettled])
        return bool(missing)

    def _is_alive(self, one: ToldAt) -> bool:
        return not one.tally.settled and self._clock.micros() - one.at < SILENT_SECONDS * MICROS
