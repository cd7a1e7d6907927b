"""Limits of a repair: rows per second, batches under way, and failures in a row."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeVar

from mailmend.model.errors import MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.ports import AsyncTables, Clock, Tables
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.table import Row
from mailmend.repair.log_fields import with_log_fields
from mailmend.repair.mending.throttle import Throttle

BURST_SECONDS = 0.25
"""After a pause, the rows of this many seconds may be taken at once."""

REST_TIMES: Final = 3
"""Under pressure (`--pace auto`) a run pauses three times as long as it was at work, as gh-ost does by its nice ratio.

However fast the answers, each is work for a node, and garbage that is collected while users wait: what one in a hundred
of their requests feels is hidden from the mean of a small read. Measured by `python -m tests.bench --only pressure`.
"""

REST_MIN_MICROS: Final = MICROS // 500
REST_MAX_MICROS: Final = MICROS // 10
"""The longest single pause, in microseconds; more would come from work of this process, not from requests."""

BATCHES_AT_ONCE: Final = 2
"""The number of batches in work: while one waits for the nodes, another is decided. Each row is in one batch."""

UNREACHED_MAX = 500
"""After this many unreached suspects in a row the rest is skipped; each batch has waited for its timeout."""

COUNTERS_UNREACHED_MAX = 5
"""The same for counters, which are visited one by one, so that each has waited for its own timeout."""


def granted_until(until: int, now: int, rows: int, rows_per_second: float) -> int:
    """The instant in microseconds until which the pace is used up, once `rows` more are granted."""
    idle_since = now - round(BURST_SECONDS * MICROS)
    return max(until, idle_since) + round(rows * MICROS / rows_per_second)


def share(rows_per_second: int | None, workers: int) -> float | None:
    """One worker's part of a common pace; None (no pace) stays None."""
    if rows_per_second is None:
        return None
    return rows_per_second / max(1, workers)


@dataclass(slots=True)
class Pace:
    """A limit of rows per second: `take` waits before rows are read or written. With the rate None it never waits.

    With a throttle, the throttle sets the rate, and several threads may use the pace; without one only one thread may.
    """

    rows_per_second: float | None
    clock: Clock
    throttle: Throttle | None = None
    _until: int = field(default=0, init=False)
    _working_since: int | None = field(default=None, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        self._follow()

    def take(self, rows: int) -> None:
        """Wait until `rows` more are due.

        Raises:
            KeyboardInterrupt: the run was interrupted, so no caller waits for this batch any more.
        """
        if self.throttle is None:
            if seconds := self.seconds_until(rows):
                _go_on()
                self.clock.sleep(seconds)
            return
        with self._lock:
            self.look_if_due()
            seconds = self.seconds_until(rows)
            while seconds > 0:
                _go_on()
                self.clock.sleep(min(seconds, self.throttle.due_in()))
                self.look_if_due()
                self._follow()
                seconds = max(0, self._until - self._now()) / MICROS

    def seconds_until(self, rows: int) -> float:
        """Grant `rows` more; returns the seconds that the caller must wait before it uses them."""
        if self.throttle:
            self.throttle.note(max(0, rows))
            self._follow()
        if not self.is_kept or rows <= 0:
            return 0.0
        now = self._now()
        rest = self._rest(now)
        if self.rows_per_second is not None:
            self._until = granted_until(self._until, now, rows, self.rows_per_second)
        if rest:
            self._until = max(self._until, now + rest)
        return max(0, self._until - now) / MICROS

    def _now(self) -> int:
        """Microseconds by the monotonic clock: a wall clock that is set back would stop the run for as long."""
        return round(self.clock.monotonic() * MICROS)

    def _rest(self, now: int) -> int:
        """How long a run that makes way pauses for what it has done since its last pause; what is little adds up."""
        if not (self.throttle and self.throttle.read):
            return 0
        began = now
        if self._working_since is not None:
            began = max(self._working_since, self._until)
        rest = REST_TIMES * (now - began)
        if rest < REST_MIN_MICROS:
            self._working_since = began
            return 0
        self._working_since = now
        return min(rest, REST_MAX_MICROS)

    def note(self, answers: Sequence[Any]) -> None:
        """Count the errors among answers as signs of pressure."""
        if self.throttle:
            self.throttle.note(0, answers)

    def look_if_due(self) -> None:
        with self._lock:
            if self.throttle and self.throttle.due_in() <= 0:
                self.throttle.look()

    def _follow(self) -> None:
        """Where the throttle has changed the rate, what is left to wait changes with it."""
        before = self.rows_per_second
        if self.throttle is None or before == self.throttle.rows_per_second:
            return
        after = self.throttle.rows_per_second
        now = self._now()
        if before and self._until > now:
            left = 0
            if after:
                left = round((self._until - now) * before / after)
            self._until = now + left
        self.rows_per_second = after

    @property
    def at_once(self) -> int:
        """The largest number of rows per request: the rows of a second, or of the throttle's time between looks."""
        most = _AT_ONCE_MAX
        seconds = 1.0
        if self.throttle:
            seconds = self.throttle.seconds
            if self.throttle.read:
                most = _PRESSED_AT_ONCE_MAX
        if self.rows_per_second is None:
            return most
        return max(1, min(most, int(self.rows_per_second * seconds)))

    @property
    def is_kept(self) -> bool:
        """Whether the run has a limit, or pressure may slow it down."""
        return self.rows_per_second is not None or (self.throttle is not None and self.throttle.read is not None)

    def over(self, tables: Tables) -> Tables:
        """The same tables at this pace."""
        if self.rows_per_second is None and self.throttle is None:
            return tables
        return PacedTables(tables, self)


_T = TypeVar("_T")
_R = TypeVar("_R")
_AT_ONCE_MAX = 1_000
_PRESSED_AT_ONCE_MAX = 100
"""Under pressure requests are small: others wait behind each of them."""


def batches_at_once(rows_per_second: int | None) -> int:
    """The number of batches in work at once: one under a pace without a throttle, as only one thread may use it."""
    if rows_per_second is None:
        return BATCHES_AT_ONCE
    return 1


_INTERRUPTED: Final[ContextVar[threading.Event | None]] = ContextVar("mailmend_batch_interrupted", default=None)
"""Of the batch that this thread works on."""


def _go_on() -> None:
    interrupted = _INTERRUPTED.get()
    if interrupted and interrupted.is_set():
        raise KeyboardInterrupt


def side_by_side(work: Callable[[_T], _R], batches: Iterator[_T], at_once: int) -> Iterator[_R]:
    """Yield the result of each batch, in order. No batch is in work while the caller has a result, nor after an error.

    When the caller is interrupted, a batch stops where it would wait for its pace, as all of it may take minutes.
    """
    interrupted = threading.Event()

    def heeding(batch: _T) -> _R:
        _INTERRUPTED.set(interrupted)
        return work(batch)

    with ThreadPoolExecutor(at_once, "mailmend-batch") as threads:
        try:
            while some := list(islice(batches, at_once)):
                yield from list(threads.map(with_log_fields(heeding), some))
        except KeyboardInterrupt:
            interrupted.set()
            raise


@dataclass(frozen=True, slots=True)
class PacedTables:
    """Tables whose rows, read or written, keep a pace. Implements `model.ports.Tables`.

    A read counts as one row before it is sent, and as the rest of its rows afterwards, when their number is known.

    Attributes:
        at_once_max: the largest number of operations that are sent together, however fast the pace is.
    """

    tables: Tables
    pace: Pace
    at_once_max: int = _AT_ONCE_MAX

    @property
    def at_once(self) -> int:
        return min(self.at_once_max, self.pace.at_once)

    def read(self, read: Read) -> Sequence[Seen]:
        self.pace.take(1)
        rows = self.tables.read(read)
        self.pace.take(len(rows) - 1)
        return rows

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        answers: list[Sequence[Seen] | MailmendError] = []
        for some in self._portions(reads, self._at_once_of(reads)):
            self.pace.take(len(some))
            found = self.tables.read_all(some)
            self.pace.note(found)
            self.pace.take(_further_rows(found))
            answers += found
        return answers

    def scan(self, scan: Scan) -> Iterator[Row]:
        page_rows = None
        if self.pace.is_kept:
            page_rows = self.at_once
        for some in self._portions(self.tables.scan(replace(scan, page_rows=page_rows)), None):
            self.pace.take(len(some))
            yield from some

    def write(self, write: Write) -> None:
        self.pace.take(1)
        self.tables.write(write)

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        answers: list[MailmendError | None] = []
        for some in self._portions(writes, self._at_once_of(writes)):
            self.pace.take(len(some))
            found = self.tables.write_all(some)
            self.pace.note(found)
            answers += found
        return answers

    def attempt(self, write: Conditional) -> Applied:
        self.pace.take(1)
        return self.tables.attempt(write)

    def _at_once_of(self, operations: Sequence[Any]) -> int:
        """The number of operations that are sent together: all of them where the run has no pace."""
        if self.pace.is_kept:
            return self.at_once
        return len(operations)

    def _portions(self, items: Iterable[_T], rows: int | None) -> Iterator[list[_T]]:
        """By this number, or by the number that the pace gives each time."""
        left = iter(items)
        if rows is not None:
            while some := list(islice(left, rows)):
                yield some
            return
        while some := list(islice(left, self.at_once)):
            yield some


def _further_rows(answers: Iterable[Sequence[Seen] | MailmendError]) -> int:
    """The number of rows beyond the first of each answer, which was counted when it was asked for."""
    return sum(len(rows) - 1 for rows in answers if rows and not isinstance(rows, MailmendError))


@dataclass(frozen=True, slots=True)
class PacedAsyncTables:
    """`PacedTables` for code in an event loop. Implements `model.ports.AsyncTables`."""

    tables: AsyncTables
    pace: Pace

    async def read(self, read: Read) -> Sequence[Seen]:
        await self._take(1)
        rows = await self.tables.read(read)
        await self._take(len(rows) - 1)
        return rows

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        await self._take(len(reads))
        found = await self.tables.read_all(reads)
        await self._take(_further_rows(found))
        return found

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        async for row in self.tables.scan(scan):
            await self._take(1)
            yield row

    async def write(self, write: Write) -> None:
        await self._take(1)
        await self.tables.write(write)

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        await self._take(len(writes))
        return await self.tables.write_all(writes)

    async def attempt(self, write: Conditional) -> Applied:
        await self._take(1)
        return await self.tables.attempt(write)

    async def _take(self, rows: int) -> None:
        if self.pace.throttle and not self.pace.throttle.due_in():
            await asyncio.to_thread(self.pace.look_if_due)
        if seconds := self.pace.seconds_until(rows):
            await self.pace.clock.pause(seconds)


@dataclass(slots=True)
class Breaker:
    """Skips the rest of a run once the cluster is gone: counts unreached suspects in a row. Thread-safe.

    Skipped suspects are unchanged; the same command can be repeated later.
    """

    unreached_max: int = UNREACHED_MAX
    _unreached: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def open(self) -> bool:
        """Whether to skip the rest. It stays True: a run that lost its cluster must not go on in part."""
        return self._unreached >= self.unreached_max

    def note(self, findings: Iterable[Finding]) -> None:
        """Count the results of suspects, in the order in which they were tried."""
        with self._lock:
            for finding in findings:
                if self.open:
                    continue
                if finding.unreached:
                    self._unreached += 1
                else:
                    self._unreached = 0

    def left(self, suspect: Suspect) -> Finding:
        error = f"not looked at again: the cluster could not be reached {self.unreached_max:,} times in a row"
        return Finding(suspect, suspect.verdict, error=error, unreached=True, untried=True)
