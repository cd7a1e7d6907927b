"""Tallies: how many mails each process has put into each slice and marked there, so that a size costs no listing.

Slices of delayed mails have their tallies next to them, a millisecond after the slice's start
(`mailqueue.rules.size`).

Each process owns rows of sliceTallies that no other process writes, and writes sums into them,
never differences: writing one twice does nothing. Before it changes anything in a slice it says
that its row is not settled, and takes that back when all that it began is written: so a process
that was killed leaves an honest "estimate", until the slice is gone or is counted again. What
is not settled:
- what is under way, and what failed half-way (a write without an answer may have been done);
- marks that another process may have put at the same time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rabbitmq.view.slices import LOOKED_UP_TOGETHER, answered
from mailmend.mailqueue.rules.size import WriterTally, due_ttl_seconds, is_of_due, tallied
from mailmend.model.catalog.mail_queue import SLICE_TALLIES, OwnTables
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import Level, Put, Read, Remove, Scan
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Row
from mailmend.repair.retries import AsyncRetries

FLUSH_SECONDS: Final = 0.5
"""For how many seconds changes may be missing in a row, while mails are counted in its slice."""

SILENT_SECONDS: Final = 600.0
"""An unsettled row without a write for these seconds has no writer any more: no change of a slice takes longer."""

SLICES_AT_ONCE: Final = 16

FLUSH_CHANGES: Final = 500
"""The number of changes after which a row is written at once, whatever the time."""

REMEMBERED_MAX: Final = 10_000
"""How many slices a process remembers its sums of; one that it forgot is counted anew, in another row."""

_LOG: Final = logging.getLogger("mailmend.queue")
_Place = tuple[QueueName, datetime]


@dataclass(slots=True)
class Changes:
    """What was done in a slice; only what succeeded is counted.

    Attributes:
        sure: False where another process may count the same.
    """

    enqueued: int = 0
    marked: int = 0
    sure: bool = True


@dataclass(slots=True)
class _Sums:
    """What one process knows of one slice, and what its row says (None: unknown)."""

    writer: UUID
    written_at: float
    enqueued: int = 0
    marked: int = 0
    sure: bool = True
    is_foreign: bool = False
    pending: int = 0
    unwritten: int = 0
    written: WriterTally | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tally(self, *, settled: bool) -> WriterTally:
        return WriterTally(self.writer, self.enqueued, self.marked, settled, self.is_foreign)

    @property
    def settled(self) -> bool:
        return self.sure and not self.pending

    @property
    def is_open(self) -> bool:
        return self.written is not None and not self.written.settled

    @property
    def idle(self) -> bool:
        return not self.pending and not self.unwritten and not self.turn.locked()

    def add(self, changes: Changes) -> None:
        self.enqueued += changes.enqueued
        self.marked += changes.marked
        self.sure &= changes.sure
        self.unwritten += changes.enqueued + changes.marked + (not changes.sure)


@dataclass(frozen=True, slots=True)
class TallyRow:
    """One process's tally of a slice, and when that row was written last, in microseconds since 1970."""

    tally: WriterTally
    at: int


@dataclass(frozen=True, slots=True)
class Recounted:
    """How many slices were counted again, had a wrong sum, and were left because they changed meanwhile."""

    slices: int = 0
    corrected: int = 0
    left: int = 0

    def __add__(self, other: "Recounted") -> "Recounted":
        return Recounted(self.slices + other.slices, self.corrected + other.corrected, self.left + other.left)


class SliceTallies:
    """The tallies of this process, and reads of the tallies of every process.

    In a keyspace without a table of tallies nothing is counted or written.
    """

    def __init__(self, tables: AsyncTables, clock: Clock, own: OwnTables) -> None:
        self._tables = tables
        self._clock = clock
        self._kept = own.tallies
        self._shared = own.shared
        self._retries = AsyncRetries(clock)
        self._sums: dict[_Place, _Sums] = {}

    @asynccontextmanager
    async def counting(self, queue: QueueName, slice_start: datetime | None) -> AsyncGenerator[Changes]:
        """Count the changes that the body notes for the slice, if the body succeeds."""
        changes = Changes()
        if slice_start is None or not self._kept:
            yield changes
            return
        place = (queue, slice_start)
        sums = self._sums_of(place)
        sums.pending += 1
        try:
            await self._open(place, sums)
            try:
                yield changes
            except BaseException:
                changes.sure = False
                raise
            finally:
                sums.add(changes)
        finally:
            sums.pending -= 1
        if self._is_due(sums) and not sums.turn.locked():
            await self._write_due(place, sums)

    async def foreign(self, queue: QueueName, slice_start: datetime) -> None:
        """Record that programs without tallies put mails into the slice."""
        if self._kept:
            async with self.counting(queue, slice_start):
                sums = self._sums_of((queue, slice_start))
                sums.is_foreign = True
            await self._write_due((queue, slice_start), sums)

    async def flush(self) -> None:
        """Write what is not written; what fails is kept for the next flush."""
        for place, sums in list(self._sums.items()):
            if sums.unwritten or sums.is_open:
                await self._write_due(place, sums)

    async def of(self, queue: QueueName, slice_starts: Sequence[datetime]) -> list[list[WriterTally]]:
        """The tallies of every process, for each of the slices."""
        if not self._kept:
            return [[] for _ in slice_starts]
        reads = []
        for first in range(0, len(slice_starts), LOOKED_UP_TOGETHER):
            together = tuple(slice_starts[first : first + LOOKED_UP_TOGETHER])
            reads.append(Read(SLICE_TALLIES, (queue,), among=together))
        found: dict[datetime, list[WriterTally]] = {start: [] for start in slice_starts}
        for answer in await answered(self._tables, self._retries, reads):
            for seen in answer:
                found[seen.row["timerangestart"]].append(WriterTally.of(seen.row))
        return list(found.values())

    async def exact(self) -> dict[QueueName, dict[datetime, int]]:
        """How many mails wait in each slice, as far as tallies say so and a size would call that exact."""
        if not self._kept or self._shared:
            return {}
        scan = Scan(SLICE_TALLIES, SLICE_TALLIES.names, Level.QUORUM)

        async def rows() -> list[Row]:
            return [row async for row in self._tables.scan(scan)]

        by_slice: dict[_Place, list[WriterTally]] = {}
        for row in await self._retries.call(rows):
            by_slice.setdefault((row["queuename"], row["timerangestart"]), []).append(WriterTally.of(row))
        exact: dict[QueueName, dict[datetime, int]] = {}
        for (queue, at), tallies in by_slice.items():
            if is_of_due(at):
                continue
            summed = tallied(tallies)
            if summed is not None and summed.exact:
                exact.setdefault(queue, {})[at] = summed.mails
        return exact

    async def rows_of(self, queue: QueueName, slice_start: datetime) -> list[TallyRow]:
        """The tallies of every process for the slice, and their times."""
        if not self._kept:
            return []
        read = Read(SLICE_TALLIES, (queue, slice_start), times=True)
        seen = await self._retries.call(lambda: self._tables.read(read))
        return [TallyRow(WriterTally.of(stored.row), stored.newest or 0) for stored in seen]

    async def recount(
        self, queue: QueueName, places: Sequence[datetime], rows: Callable[[datetime], Awaitable[int]]
    ) -> Recounted:
        """Set right the tallies of those places, by the number of unmarked rows of each.

        A killed process, a lost answer or a mark put twice has left them wrong. The difference becomes a row of its
        own, and rows without a writer are settled; rows of running processes are left to them.
        """

        async def recount(place: datetime) -> bool | None:
            return await self._recount(queue, place, rows)

        corrected = await all_of(places, recount, SLICES_AT_ONCE)
        return Recounted(len(places), corrected.count(True), corrected.count(None))

    async def renew(self, queue: QueueName, slice_start: datetime) -> None:
        """Write the rows of a slice again, so that they live as long as its mails; newer ones stay."""
        for row in await self.rows_of(queue, slice_start):
            await self._retries.write(self._tables, replace(self._put(queue, slice_start, row.tally), at=row.at + 1))

    async def forget(self, queue: QueueName, slice_start: datetime) -> None:
        self._sums.pop((queue, slice_start), None)
        if self._kept:
            await self._retries.write(self._tables, Remove(SLICE_TALLIES, (queue, slice_start)))

    async def _recount(
        self, queue: QueueName, slice_start: datetime, rows: Callable[[datetime], Awaitable[int]]
    ) -> bool | None:
        """Whether the sum was wrong; None where that is unknown now."""
        before = await self.rows_of(queue, slice_start)
        unmarked = await rows(slice_start)
        if await self.rows_of(queue, slice_start) != before or any(map(self._is_alive, before)):
            return None
        missing = unmarked - sum(row.tally.enqueued - row.tally.marked for row in before)
        rewritten = [replace(row.tally, settled=True) for row in before if not row.tally.settled]
        if self._kept and (missing or (unmarked and not before)):
            rewritten.insert(0, WriterTally(self._clock.random_uuid(), missing, 0, settled=True, is_foreign=False))
        for tally in rewritten:
            await self._retries.write(self._tables, self._put(queue, slice_start, tally))
        return bool(missing)

    def _is_alive(self, one: TallyRow) -> bool:
        return not one.tally.settled and self._clock.micros() - one.at < SILENT_SECONDS * MICROS

    def _sums_of(self, place: _Place) -> _Sums:
        if place not in self._sums:
            self._make_room()
            self._sums[place] = _Sums(self._clock.random_uuid(), self._clock.monotonic())
        return self._sums[place]

    def _make_room(self) -> None:
        while len(self._sums) >= REMEMBERED_MAX:
            idle = next((place for place, sums in self._sums.items() if sums.idle), None)
            if idle is None:
                return
            del self._sums[idle]

    def _is_due(self, sums: _Sums) -> bool:
        aged = self._clock.monotonic() - sums.written_at >= FLUSH_SECONDS
        return sums.unwritten >= FLUSH_CHANGES or (sums.unwritten > 0 and aged)

    async def _open(self, place: _Place, sums: _Sums) -> None:
        """Write that the row is not settled, before anything is changed."""
        if sums.is_open:
            return
        async with sums.turn:
            if not sums.is_open:
                await self._write(place, sums, sums.tally(settled=False))

    async def _write_due(self, place: _Place, sums: _Sums) -> None:
        try:
            async with sums.turn:
                if sums.unwritten or sums.written != sums.tally(settled=sums.settled):
                    await self._write(place, sums, sums.tally(settled=sums.settled))
            self._retire(place, sums)
        except MailmendError as error:
            queue, *_ = place
            _LOG.warning("tallies could not be written, and will be", extra={"queue": queue, "error": error.what})

    def _retire(self, place: _Place, sums: _Sums) -> None:
        """A row that will never be settled is not written again, so that a recount may settle it."""
        if not sums.sure and sums.idle:
            self._sums.pop(place, None)

    async def _write(self, place: _Place, sums: _Sums, tally: WriterTally) -> None:
        """Until the write succeeds, the row's content is unknown."""
        unwritten = sums.unwritten
        sums.written = None
        sums.written_at = self._clock.monotonic()
        await self._retries.write(self._tables, self._put(*place, tally))
        sums.written = tally
        sums.unwritten -= unwritten

    def _put(self, queue: QueueName, slice_start: datetime, tally: WriterTally) -> Put:
        row = {
            "queuename": queue,
            "timerangestart": slice_start,
            "writer": tally.writer,
            "enqueued": tally.enqueued,
            "marked": tally.marked,
            "settled": tally.settled,
            "isforeign": tally.is_foreign,
        }
        now = instant_of(self._clock.micros())
        ttl_seconds = None
        if is_of_due(slice_start):
            ttl_seconds = due_ttl_seconds(slice_start, now)
        return Put(SLICE_TALLIES, row, ttl_seconds=ttl_seconds, joinable=True)
