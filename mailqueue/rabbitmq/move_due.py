"""Delayed mails whose time has come move into the queue: row, publish, then the delayed row goes; under the same id.

Whatever is interrupted between two of these writes is done again by the next round, so a delayed mail is delivered at
least once. The mark is looked up first, so none that was deleted comes back. A round reads each partition from where
the last one ended, and so meets few of the tombstones that were left; a slice that is over is closed, read
once more from its beginning, and struck off the list.

Movers take turns at a partition. A turn is two cells in the partition's row of the list, set by a
conditional write with a time to live, taken only while there is something to move, and given back
at once; a killed mover's turn ends by time alone. It is courtesy, no lease of the ledger
(`repair.ledger.leases`), without which nothing may be done: two movers that both believe in it
deliver a mail twice, and lose none. A flush has one turn for all slices that no round looks at yet:
a conditional write costs the same as all other work for a mail, and conditional writes of one
partition wait for each other.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from mailmend.mailqueue.blobs.stores import forget
from mailmend.mailqueue.codec import publish_mail
from mailmend.mailqueue.concurrency import finished, in_batches
from mailmend.mailqueue.every_queue import moved_by_others, patient_turn
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import Delays
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.view.due_mails import DUE_WINDOW, DueMail, DueMails, DuePartition, flush_entry
from mailmend.model.catalog.mail_queue import DUE_MAILS
from mailmend.model.errors import DoubtfulWrite, MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import ChangeIf, Level, Read
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Key
from mailmend.repair.clock import SKEW_SECONDS, STAMP_AGE_SECONDS
from mailmend.repair.ledger.leases import EXPIRY_SLACK

CLOSE_AFTER: Final = timedelta(minutes=1)
"""How long after its end a slice is closed; until then what slow clocks put there need not be put twice."""

LATE: Final = timedelta(seconds=1 + SKEW_SECONDS + STAMP_AGE_SECONDS)
"""How far back a round looks for mails that were put late: a write is done that long after its author looked at the
clock. What is later still is found when the slice is closed."""

AT_ONCE: Final = 64
"""How many mails are moved side by side, between two looks at whether the turn is still ours."""

PARTITIONS_AT_ONCE: Final = 4

FLUSHED_AT_ONCE: Final = 16
"""Partitions of a flush: most hold few mails, and the partitions of one turn wait for no conditional write."""

FLUSHED_AHEAD: Final = timedelta(hours=1)
"""A flush has one turn for all slices that begin later than this: it ends with each of them before a round looks there.
Slices that have begun, or will within this time, are shared with rounds, turn by turn."""

BEGUN_MAX: Final = 256
"""How many partitions a round looks at: usually two slices' buckets have begun."""

FAILURES_MAX: Final = AT_ONCE
"""The number of failures in one partition after which the round leaves it to the next."""

TURN_PATIENCE: Final = timedelta(seconds=60)
"""How long a flush waits for another mover: longer than a killed one's turn lasts."""

UNREADABLE_PAUSE: Final = timedelta(minutes=5)
"""How long a closed partition with rows that no mail can be made of is left alone."""

TTL_SECONDS: Final = 30
"""How long a turn outlives its last renewal."""

_ASK_AGAIN_SECONDS: Final = 0.5
_START: Final[Key] = ()


@dataclass(slots=True)
class MoverTurn:
    """A turn of this process.

    Attributes:
        renewal: held by the one caller that renews; the others wait.
    """

    key: Key
    token: UUID
    until: datetime
    renewal: asyncio.Lock = field(default_factory=asyncio.Lock)


class MoverTurns:
    """The turns at one queue's partitions.

    Args:
        ttl_seconds: how long a turn outlives its last renewal.
    """

    def __init__(self, tables: AsyncTables, clock: Clock, queue: QueueName, ttl_seconds: int = TTL_SECONDS) -> None:
        self._tables = tables
        self._clock = clock
        self._queue = queue
        self._ttl_seconds = ttl_seconds

    def at_partition(self, partition: DuePartition) -> "AbstractAsyncContextManager[MoverTurn | None]":
        """The turn at a partition for as long as the body runs; None while another process has it."""
        return self._taken(partition.entry(self._queue))

    def of_flush(self) -> "AbstractAsyncContextManager[MoverTurn | None]":
        """One turn for all partitions that no round reads; None while another flush has it."""
        return self._taken(flush_entry(self._queue))

    @asynccontextmanager
    async def _taken(self, key: Key) -> "AsyncIterator[MoverTurn | None]":
        turn = MoverTurn(key, self._clock.random_uuid(), self._expiry())
        if not await self._set(turn, expected=None):
            yield None
            return
        try:
            yield turn
        finally:
            await self._free(turn)

    async def keep(self, turn: MoverTurn) -> bool:
        """Renew a turn that ends soon; whether it is still ours."""
        async with turn.renewal:
            if turn.until - self._now() > timedelta(seconds=self._ttl_seconds / 2) + EXPIRY_SLACK:
                return True
            until = self._expiry()
            kept = await self._set(turn, expected=str(turn.token))
            if kept:
                turn.until = until
            return kept

    def is_sure(self, turn: MoverTurn) -> bool:
        """Whether no other process can have had the turn until now."""
        return turn.until > self._now() + EXPIRY_SLACK

    async def _set(self, turn: MoverTurn, expected: str | None) -> bool:
        cells = {"name": str(turn.token), "lastupdated": self._expiry()}
        change = ChangeIf(DUE_MAILS, turn.key, {"name": expected}, assign=cells, ttl_seconds=self._ttl_seconds)
        try:
            return (await self._tables.attempt(change)).applied
        except DoubtfulWrite:
            seen = await self._tables.read(Read(DUE_MAILS, turn.key, Level.SERIAL))
            return bool(seen) and seen[0].row["name"] == str(turn.token)

    async def _free(self, turn: MoverTurn) -> None:
        """Where this fails, or the turn is over, its time to live frees it."""
        freed = {"name": None, "lastupdated": None}
        try:
            await self._tables.attempt(ChangeIf(DUE_MAILS, turn.key, {"name": str(turn.token)}, assign=freed))
        except MailmendError:
            return

    def _expiry(self) -> datetime:
        return self._now() + timedelta(seconds=self._ttl_seconds)

    def _now(self) -> datetime:
        return instant_of(self._clock.micros())


def turn_waited_for(
    parts: Parts, taken: "Callable[[], AbstractAsyncContextManager[MoverTurn | None]]", again: str
) -> "AbstractAsyncContextManager[MoverTurn]":
    """As `mailqueue.every_queue.patient_turn`, with the patience of a flush."""
    return patient_turn(parts, taken, again, patience=TURN_PATIENCE, ask_again_seconds=_ASK_AGAIN_SECONDS)


class DryTurns(MoverTurns):
    """Turns of a dry run, which moves nothing: each turn is given at once, and nothing is written."""

    async def _set(self, turn: MoverTurn, expected: str | None) -> bool:  # noqa: ARG002 - as those that are written
        return True

    async def _free(self, turn: MoverTurn) -> None:
        """Nothing was taken."""


@dataclass(frozen=True, slots=True)
class DueMover:
    """Moves the delayed mails of one queue. Any number of processes may.

    Attributes:
        dry_run: whether what would move is only counted; the next real round remembers nothing of it.
        stop: once it is set a round begins no further batch; the next one finds what is left.
        reached: by partition, the due time up to which everything was moved, late writes too.
        left_until: by partition, until when it is left alone.
    """

    parts: Parts
    due: DueMails
    turns: MoverTurns
    reached: dict[DuePartition, Key] = field(default_factory=dict)
    left_until: dict[DuePartition, datetime] = field(default_factory=dict)
    dry_run: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def dry(self) -> "DueMover":
        """The same, for a dry run."""
        turns = DryTurns(self.parts.tables, self.parts.clock, self.parts.queue)
        return replace(self, turns=turns, reached=dict(self.reached), left_until=dict(self.left_until), dry_run=True)

    async def move_due(self) -> Delays:
        """Move every mail whose time has come, in one round; return how many they were, and when they were due."""
        now = self.parts.now
        partitions = await self._begun(now)
        if not partitions:
            return Delays()
        open_from = await self._closed(partitions[0].due_slice, now)
        self._forget_all_but(partitions)

        async def move(partition: DuePartition) -> Delays:
            if self.stop.is_set():
                return Delays()
            if partition.due_slice < open_from:
                return await self._emptied(partition, now)
            return await self._advanced(partition, now)

        return await _summed(partitions, move, PARTITIONS_AT_ONCE)

    async def flush(self) -> Delays:
        partitions = [partition async for partition in self.due.partitions(self.parts.queue)]
        if not partitions:
            return Delays()
        async with turn_waited_for(self.parts, self.turns.of_flush, self._again) as turn:

            async def move(partition: DuePartition) -> Delays:
                if partition.due_slice < self.parts.now + FLUSHED_AHEAD:
                    return await self._flushed(partition)
                moved = await self._moved(partition, turn, _START, None)
                if not await self.turns.keep(turn):
                    raise moved_by_others(self.parts.queue, self._again)
                return moved

            return await _summed(partitions, move, FLUSHED_AT_ONCE)

    async def _begun(self, now: datetime) -> list[DuePartition]:
        """The partitions whose slice has begun, the earliest first; the next round takes what exceeds the limit."""
        begun = list[DuePartition]()
        async with aclosing(self.due.partitions(self.parts.queue, BEGUN_MAX)) as partitions:
            async for partition in partitions:
                if partition.due_slice > now:
                    break
                begun.append(partition)
        return begun

    async def _closed(self, earliest: datetime, now: datetime) -> datetime:
        """Close the slices that are over; the first open slice. None is closed by a dry run."""
        over_at = now - CLOSE_AFTER
        if self.dry_run or earliest + DUE_WINDOW > over_at:
            return earliest
        return await self.due.close_before(self.parts.queue, over_at)

    async def _advanced(self, partition: DuePartition, now: datetime) -> Delays:
        """Move what is due in an open partition; takes a turn only if something is due."""
        after = self.reached.get(partition, _START)
        next_at = await self.due.next_at(self.parts.queue, partition, after)
        if next_at is None or next_at > now:
            self._reach(partition, now)
            return Delays()
        async with self.turns.at_partition(partition) as turn:
            if not turn:
                return Delays()
            return await self._moved(partition, turn, after, now)

    async def _emptied(self, partition: DuePartition, now: datetime) -> Delays:
        """Move everything in a closed partition, then delete it from the list."""
        if self.left_until.get(partition, now) > now:
            return Delays()
        async with self.turns.at_partition(partition) as turn:
            if not turn:
                return Delays()
            moved = await self._moved(partition, turn, _START, now)
            if await self.due.next_at(self.parts.queue, partition) is None:
                await self.due.retire(self.parts.queue, partition)
            elif not moved.count and not self.stop.is_set():
                self.left_until[partition] = now + UNREADABLE_PAUSE
            return moved

    @property
    def _again(self) -> str:
        return f"Begin again in a minute: mailmend queue flush --queue {self.parts.queue}"

    async def _flushed(self, partition: DuePartition) -> Delays:
        async with turn_waited_for(self.parts, partial(self.turns.at_partition, partition), self._again) as turn:
            return await self._moved(partition, turn, _START, None)

    async def _moved(self, partition: DuePartition, turn: MoverTurn, after: Key, until: datetime | None) -> Delays:
        """Move what is due by then (None: everything) while the turn is ours; what was moved."""
        moved = Delays()
        failures = list[BaseException]()
        mails = self._due_by(partition, after, until)
        async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
            async for some in batches:
                if self.stop.is_set() or len(failures) >= FAILURES_MAX or not await self.turns.keep(turn):
                    break
                outcomes = await finished(self._batch_counted(partition, turn, some))
                due_times = []
                for due, outcome in zip(some, outcomes, strict=True):
                    if isinstance(outcome, BaseException):
                        failures.append(outcome)
                    elif outcome is True:
                        due_times.append(due.due_at)
                moved += Delays.of(due_times)
            else:
                if until is not None and not failures:
                    self._reach(partition, until)
        if failures:
            raise failures[0]
        return moved

    async def _due_by(self, partition: DuePartition, after: Key, until: datetime | None) -> AsyncGenerator[DueMail]:
        async with aclosing(self.due.under(self.parts.queue, partition, after)) as mails:
            async for due in mails:
                if until is not None and due.due_at > until:
                    return
                yield due

    def _reach(self, partition: DuePartition, until: datetime) -> None:
        """Everything due by then was moved: remember it, less the time in which late writes may still come."""
        self.reached[partition] = (until - LATE,)

    def _forget_all_but(self, partitions: Sequence[DuePartition]) -> None:
        for known in (self.reached, self.left_until):
            for partition in known.keys() - set(partitions):
                del known[partition]

    async def _batch_counted(
        self, partition: DuePartition, turn: MoverTurn, some: Sequence[DueMail]
    ) -> "list[bool | BaseException]":
        """As `_batch_moved`; the tally stays exact if none failed and no other mover can have run."""
        if self.dry_run:
            return await self._batch_moved(some)
        async with self.due.counting(self.parts.queue, partition) as changes:
            outcomes = await self._batch_moved(some)
            changes.marked = sum(isinstance(outcome, bool) for outcome in outcomes)
            changes.sure = changes.marked == len(some) and self.turns.is_sure(turn)
            return outcomes

    async def _batch_moved(self, some: Sequence[DueMail]) -> "list[bool | BaseException]":
        """For each: True if it went into the queue, False if it was marked and only deleted, or its error."""
        marked = await self.parts.view.marks.among(self.parts.queue, [due.enqueue_id for due in some])
        if self.dry_run:
            return [due.enqueue_id not in marked for due in some]
        moves: list[Coroutine[Any, Any, bool]] = []
        for due in some:
            if due.enqueue_id in marked:
                moves.append(self._gone(due))
            else:
                moves.append(self._one_moved(due))
        return await asyncio.gather(*moves, return_exceptions=True)

    async def _one_moved(self, due: DueMail) -> bool:
        queued = due.listed.queued
        placement = self.parts.view.rows.placement(self.parts.queue, queued, due.listed.enqueued_at)

        async def publish(slice_start: datetime) -> None:
            await publish_mail(self.parts.broker, self.parts.queue, queued, slice_start, due.listed.attempts)

        try:
            await placement.settle(beside=publish)
        except MailmendError:
            if placement.slice_start is not None:
                await self.parts.view.rows.take_back(self.parts.queue, placement.slice_start, queued)
            raise
        await self.due.remove(self.parts.queue, due)
        self.parts.counts.add(QueueCount.DUE_MOVED, self.parts.queue)
        return True

    async def _gone(self, due: DueMail) -> bool:
        await self.due.remove(self.parts.queue, due)
        await forget(self.parts.blobs, due.listed.queued.blobs)
        return False


async def _summed(
    partitions: Sequence[DuePartition], move: Callable[[DuePartition], Coroutine[Any, Any, Delays]], most: int
) -> Delays:
    """Move several partitions side by side; the sum, or the first error after all have ended."""
    room = asyncio.Semaphore(most)

    async def one(partition: DuePartition) -> Delays:
        async with room:
            return await move(partition)

    outcomes = await asyncio.gather(*map(one, partitions), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    together = Delays()
    for outcome in outcomes:
        if isinstance(outcome, Delays):
            together += outcome
    return together
