"""What rows, listings and sizes of a queue need to know: its slicing, its browse start, the time.

A writer must read the browse start after its row was put: an earlier read will not do, and the next read serves all
callers that came meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from mailqueue.rabbitmq.view.configuration import Configurations
from mailqueue.rabbitmq.view.start_rows import Starts
from mailqueue.rabbitmq.view.tallies import SliceTallies
from model.catalog.queue_tables import OwnTables
from model.ids import QueueName
from model.instants import MICROS, instant_of
from model.operations import Put, Remove
from model.ports import AsyncTables, Clock
from model.queue.configuration import DEFAULT, QueueConfiguration
from model.queue.slices import Slicing, slice_of
from model.queue.starts import live_slices
from repair.retries import AsyncRetries

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

CUT_SECONDS: Final = 30.0
"""How long a process that enqueues relies on how the queue was cut: a window that was replaced is a multiple of the new
one, and buckets only grow, so what is put by an old cut is still found. Whoever lists or sweeps asks each time."""


class SharedReads(Generic[K, T]):
    """Shares reads of the same key: each caller gets an answer of a read that began after its call.

    At most one read runs for each key, and one waits: a hundred callers cost two reads, one costs one.

    Args:
        read: what is asked.
    """

    def __init__(self, read: Callable[[K], Awaitable[T]]) -> None:
        self._read = read
        self._under_way: dict[K, asyncio.Task[T]] = {}
        self._next: dict[K, asyncio.Task[T]] = {}

    async def get(self, key: K) -> T:
        """The answer of a read that begins from now on.

        A cancelled caller leaves the read running for the others.
        """
        waiting = self._next.get(key)
        if waiting is None:
            waiting = self._next[key] = asyncio.create_task(self._after(key, self._under_way.get(key)))
            waiting.add_done_callback(_noted)
        return await asyncio.shield(waiting)

    async def _after(self, key: K, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        task = self._under_way[key] = self._next.pop(key)
        try:
            return await self._read(key)
        finally:
            if self._under_way.get(key) is task:
                del self._under_way[key]


def _noted(task: asyncio.Task[T]) -> None:
    """Retrieve the error of a read without callers, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class KnownQueues:
    """How every queue of a keyspace is cut, and where it begins; `own`: which tables there are beside James's."""

    def __init__(self, tables: AsyncTables, clock: Clock, own: OwnTables) -> None:
        self.tables, self.clock, self.own = tables, clock, own
        self.retries, self.tallies = AsyncRetries(clock), SliceTallies(tables, clock, own)
        self.starts = Starts(tables, self.retries, remembers=own.state)
        self.starts_seen: dict[QueueName, datetime] = {}
        """The browse starts as they were last seen: they are no earlier now, unless James moved them."""
        self._configurations = Configurations(tables)
        self._looks = SharedReads(self.browse_start)
        self._cut: tuple[int, QueueConfiguration] | None = None

    @property
    def now(self) -> datetime:
        """By our own clock, in whole milliseconds."""
        return instant_of(self.clock.micros())

    async def slicing(self) -> Slicing:
        return (await self._asked()).slicing

    async def configuration(self) -> QueueConfiguration:
        """From a cache of at most `CUT_SECONDS`."""
        if self._cut is None or self.clock.micros() - self._cut[0] > CUT_SECONDS * MICROS:
            return await self._asked()
        return self._cut[1]

    async def browse_start(self, queue: QueueName) -> datetime | None:
        """Before it every mail of the queue is marked; None: nothing was ever enqueued."""
        start = await self.starts.browse_start(queue)
        if start is not None:
            self.starts_seen[queue] = start
        return start

    async def begun(self, queue: QueueName, window: timedelta) -> datetime:
        """The browse start from a shared read; where there is none, it is set to the slice of now."""
        start = await self._looks.get(queue)
        if start is None:
            start = self.starts_seen[queue] = await self.starts.begin(queue, slice_of(self.now, window))
        return start

    async def live(self, queue: QueueName) -> tuple[Slicing, list[datetime]]:
        """The slicing of the queue, and the slices that may hold mails."""
        slicing, start = await self.slicing(), await self.browse_start(queue)
        return slicing, list(live_slices(start, self.now, slicing.window)) if start else []

    async def write(self, write: Put | Remove) -> None:
        await self.retries.write(self.tables, write)

    async def _asked(self) -> QueueConfiguration:
        current = await self._configurations.current() or DEFAULT
        self._cut = self.clock.micros(), current
        return current
