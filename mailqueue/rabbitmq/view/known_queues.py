"""What rows, listings and sizes of a queue need to know: its slicing, its browse start, the time.

A writer must read the browse start after its row was put: an earlier read will not do, and the next read serves all
callers that came meanwhile.

Both starts are moved by compare-and-set on what was seen, only forward; a doubtful answer is
settled by a SERIAL read. What is remembered needs no condition: each cell is stamped with the very
instant that it holds, so the latest wins, whichever process writes it, in any order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.rabbitmq.view.tallies import SliceTallies
from mailmend.mailqueue.rules.configuration import DEFAULT, QueueConfiguration
from mailmend.mailqueue.rules.slices import EPOCH, SECOND, Slicing, live_slices, slice_of
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, QUEUE_STATE, OwnTables
from mailmend.model.errors import Contended, DoubtfulWrite
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import (
    Applied,
    Change,
    ChangeIf,
    Conditional,
    Level,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    Scan,
)
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Row, Table
from mailmend.repair.retries import AsyncRetries

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

ROUNDS_MAX: Final = 6
"""How often a move of a start is tried while other processes move it too; after that the next sweep moves it."""

CUT_SECONDS: Final = 30.0
"""For how many seconds a process that enqueues relies on the slice window and buckets that it has read: a window that
was replaced is a multiple of the new one, and buckets only grow, so mails that are put by old settings are still found.
Listings and sweeps read the settings each time."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """What is remembered of a queue in addition to its starts; None for an unknown queue.

    Attributes:
        furthest_start: the latest browse start that a sweep has set.
        due_start: the first slice of due mails that is open; no mail is delayed in those before it.
        lapsed_before: in slices before it, rows of waiting mails may have expired because no sweep renewed them.
    """

    furthest_start: datetime | None = None
    swept_at: datetime | None = None
    due_start: datetime | None = None
    lapsed_before: datetime | None = None


class Starts:
    """The starts of every queue of a keyspace."""

    def __init__(self, tables: AsyncTables, retries: AsyncRetries, *, remembers: bool) -> None:
        self._tables = tables
        self._retries = retries
        self._remembers = remembers

    async def browse_start(self, queue: QueueName) -> datetime | None:
        """Before it every mail of the queue is marked; None: nothing was ever enqueued."""
        return await self._start(BROWSE_START, queue)

    async def content_start(self, queue: QueueName) -> datetime | None:
        """Before it every row of the queue is gone; None: unknown."""
        return await self._start(CONTENT_START, queue)

    async def begin(self, queue: QueueName, first: datetime) -> datetime:
        """Set both starts unless they are set; the browse start.

        The content start goes first, so a browse start never exists without it, even after a crash.
        """
        await self.begin_content(queue, first)
        return await self._put_if_absent(BROWSE_START, queue, first)

    async def begin_content(self, queue: QueueName, first: datetime) -> datetime:
        """Set the content start unless it is set; its value."""
        return await self._put_if_absent(CONTENT_START, queue, first)

    async def advance_browse_start(self, queue: QueueName, seen: datetime, to: datetime) -> datetime:
        """Move the browse start from the value seen; its value after that.

        If another process moves it forward, that counts; if backward, it stays there.
        """
        return await self._advance(BROWSE_START, queue, seen, to)

    async def advance_content_start(self, queue: QueueName, seen: datetime, to: datetime) -> datetime:
        """Move the content start from the value seen; its value after that."""
        return await self._advance(CONTENT_START, queue, seen, to)

    async def state(self, queue: QueueName) -> QueueState:
        """What is remembered of the queue; every field is None where the keyspace has no table for it."""
        if not self._remembers:
            return QueueState()
        seen = await self._retries.call(lambda: self._tables.read(Read(QUEUE_STATE, (queue,))))
        if not seen:
            return QueueState()
        row = seen[0].row
        return QueueState(row.get("furtheststart"), row.get("sweptat"), row.get("duestart"), row.get("lapsedbefore"))

    async def remember(
        self,
        queue: QueueName,
        *,
        furthest: datetime | None = None,
        swept: datetime | None = None,
        lapsed: datetime | None = None,
    ) -> None:
        """Store how far the queue was swept, when, and what lapsed; the latest value of any writer is kept."""
        for column, at in (("furtheststart", furthest), ("sweptat", swept), ("lapsedbefore", lapsed)):
            if at is not None and self._remembers:
                change = Change(QUEUE_STATE, (queue,), {column: at}, at=(at - EPOCH) // SECOND * MICROS)
                await self._retries.write(self._tables, change)

    async def queues(self) -> list[QueueName]:
        tables = [BROWSE_START, CONTENT_START]
        if self._remembers:
            tables.append(QUEUE_STATE)
        names: set[QueueName] = set()
        for table in tables:
            for row in await self._named(table):
                names.add(row["queuename"])
        return sorted(names)

    async def _named(self, table: Table) -> list[Row]:
        async def named() -> list[Row]:
            return [row async for row in self._tables.scan(Scan(table, ("queuename",), Level.QUORUM))]

        return await self._retries.call(named)

    async def _start(self, table: Table, queue: QueueName, level: Level = Level.QUORUM) -> datetime | None:
        seen = await self._retries.call(lambda: self._tables.read(Read(table, (queue,), level)))
        if not seen:
            return None
        start: datetime | None = seen[0].row[_column(table)]
        return start

    async def _put_if_absent(self, table: Table, queue: QueueName, first: datetime) -> datetime:
        write = PutIfAbsent(table, {"queuename": queue, _column(table): first})

        async def put() -> datetime | None:
            answer = await self._attempt(write)
            if answer is not None and answer.applied:
                return first
            return await self._start(table, queue, Level.SERIAL)

        standing = await self._retries.rounds(put, ROUNDS_MAX)
        if standing is None:
            raise Contended(
                f"no {table.spelling} could be set for the queue {queue!r}",
                mend="Look at its row: where its only column is null, delete the row.",
            )
        return standing

    async def _advance(self, table: Table, queue: QueueName, seen: datetime, to: datetime) -> datetime:
        standing = seen

        async def move() -> datetime | None:
            nonlocal standing
            column = _column(table)
            answer = await self._attempt(ChangeIf(table, (queue,), {column: standing}, {column: to}))
            if answer is not None and answer.applied:
                return to
            standing = await self._start(table, queue, Level.SERIAL) or seen
            if seen <= standing < to:
                return None
            return standing

        if to <= seen:
            return seen
        moved = await self._retries.rounds(move, ROUNDS_MAX)
        return moved or standing

    async def _attempt(self, write: Conditional) -> Applied | None:
        """The answer; None where it is doubtful. What surely was not done is tried again."""

        async def attempt() -> Applied | None:
            try:
                return await self._tables.attempt(write)
            except DoubtfulWrite:
                return None

        return await self._retries.call(attempt)


def _column(table: Table) -> str:
    return table.regular[0].name


class SharedReads(Generic[K, T]):
    """Shares reads of the same key: each caller gets an answer of a read that began after its call.

    At most one read runs for each key, and one waits: a hundred callers cost two reads, one costs one.
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
    """How every queue of a keyspace is cut, and where it begins; `own`: the tables in addition to James's."""

    def __init__(self, tables: AsyncTables, clock: Clock, own: OwnTables) -> None:
        self.tables = tables
        self.clock = clock
        self.own = own
        self.retries = AsyncRetries(clock)
        self.tallies = SliceTallies(tables, clock, own)
        self.starts = Starts(tables, self.retries, remembers=own.state)
        self.starts_seen: dict[QueueName, datetime] = {}
        """The browse starts as they were last seen: they are no earlier now, unless James moved them."""
        self._configurations = Configurations(tables)
        self._looks = SharedReads(self.browse_start)
        self._cut: tuple[float, QueueConfiguration] | None = None

    @property
    def now(self) -> datetime:
        """By our own clock, in whole milliseconds."""
        return instant_of(self.clock.micros())

    async def slicing(self) -> Slicing:
        return (await self._asked()).slicing

    async def configuration(self) -> QueueConfiguration:
        """The configuration in force, from a cache that is at most `CUT_SECONDS` old."""
        asked_at, known = self._cut or (0.0, None)
        if known is None or self.clock.monotonic() - asked_at > CUT_SECONDS:
            return await self._asked()
        return known

    async def browse_start(self, queue: QueueName) -> datetime | None:
        """Before it every mail of the queue is marked; None: nothing was ever enqueued."""
        start = await self.starts.browse_start(queue)
        if start is not None:
            self.starts_seen[queue] = start
        return start

    async def begun(self, queue: QueueName, window: timedelta) -> datetime:
        """The browse start from a shared read; where it is missing, it is set to the slice of now."""
        start = await self._looks.get(queue)
        if start is None:
            start = self.starts_seen[queue] = await self.starts.begin(queue, slice_of(self.now, window))
        return start

    async def live(self, queue: QueueName) -> tuple[Slicing, list[datetime]]:
        """The slicing of the queue, and the slices that may hold mails."""
        slicing = await self.slicing()
        start = await self.browse_start(queue)
        if not start:
            return slicing, []
        return slicing, list(live_slices(start, self.now, slicing.window))

    async def write(self, write: Put | Remove) -> None:
        await self.retries.write(self.tables, write)

    async def _asked(self) -> QueueConfiguration:
        current = await self._configurations.current() or DEFAULT
        self._cut = self.clock.monotonic(), current
        return current
