"""Queues on twins: one keyspace, one broker, one blob store, and as many processes on them as a story needs."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cql.driver.asynchronous import InTurn
from cql.memory import MemoryTables, Surround
from cql.statements import Operation
from mailqueue.blobs.memory import MemoryBlobs
from mailqueue.maintenance.sweep import Sweeper
from mailqueue.rabbitmq.broker.memory import MemoryBroker
from mailqueue.rabbitmq.codec import queued_of
from mailqueue.rabbitmq.view.configuration import Configurations
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.tallies import SliceTallies
from model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS
from model.catalog.queue_tables import OwnTables
from model.errors import MailmendError, TimedOut
from model.ids import BlobId, EnqueueId, QueueName
from model.operations import Applied, Change, Conditional, Put, Read, Scan, Seen, Write
from model.ports import AsyncTables
from model.queue.configuration import QueueConfiguration
from model.queue.mails import Listed, Mail, MailBlobs, QueuedMail
from model.queue.messages import SLICE_HEADER
from model.queue.slices import Slicing
from model.schema.table import Row, Table
from tests.support.clock import VirtualClock

SPOOL = QueueName("spool")
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
"""Where the stories' clocks begin: the start of a slice of an hour."""

FOREVER = OwnTables()
"""Rows that never expire, in a keyspace with every table of ours."""

OF_JAMES = OwnTables(due=False, tallies=False, state=False)


def micros_at(at: datetime) -> int:
    """Microseconds since 1970."""
    return round(at.timestamp()) * 1_000_000 + at.microsecond


def queued(number: int, name: str | None = None, recipients: tuple[str, ...] = (), **fields: Any) -> QueuedMail:
    """A mail of its own, the same for the same number."""
    mail = Mail(
        name or f"mail-{number}",
        recipients or ("rcpt@example.org",),
        **{"sender": "sender@example.org", **fields},
    )
    blobs = MailBlobs(BlobId(f"1_692_{UUID(int=2 * number)}"), BlobId(f"1_692_{UUID(int=2 * number + 1)}"))
    return QueuedMail(EnqueueId(UUID(int=random.Random(number).getrandbits(128), version=4)), mail, blobs)


@dataclass(slots=True)
class Process:
    """One process that works on the queues."""

    clock: VirtualClock
    tallies: SliceTallies
    view: QueueView
    sweeper: Sweeper


@dataclass(slots=True)
class Scene:
    """One keyspace with a broker and blobs, and time."""

    own: OwnTables = FOREVER
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(micros_at(NOON)))
    memory: MemoryTables = field(init=False)
    tables: InTurn = field(init=False)
    broker: MemoryBroker = field(init=False)
    blobs: MemoryBlobs = field(init=False)

    def __post_init__(self) -> None:
        """Nothing was ever enqueued."""
        self.memory = MemoryTables(self.clock.micros)
        self.tables = InTurn(self.memory)
        self.broker = MemoryBroker(self.clock)
        self.blobs = MemoryBlobs(self.clock)

    def process(self, clock: VirtualClock | None = None, tables: AsyncTables | None = None) -> Process:
        """A process that has just started, by its own clock where it has one."""
        clock, tables = clock or self.clock, tables or self.tables
        tallies = SliceTallies(tables, clock, self.own)
        view = QueueView(tables, clock, Configurations(tables), tallies, self.own)
        return Process(clock, tallies, view, Sweeper(tables, view, self.blobs, self.broker, clock))

    async def cut(self, window: timedelta = HOUR, buckets: int = 1, pace: int = 1000) -> None:
        """Configure how queues are cut."""
        await Configurations(self.tables).require(QueueConfiguration(Slicing(window, buckets), pace))

    def rows(self, table: Table) -> list[Row]:
        """Everything that a table shows."""
        return list(self.memory.scan(Scan(table, table.names)))

    @property
    def browse_start(self) -> datetime | None:
        """Of the spool."""
        return self._start(BROWSE_START)

    @property
    def content_start(self) -> datetime | None:
        """Of the spool."""
        return self._start(CONTENT_START)

    @property
    def marked(self) -> set[UUID]:
        """The mails that are marked."""
        return {row["enqueueid"] for row in self.rows(DELETED_MAILS)}

    @property
    def published(self) -> list[tuple[UUID, int]]:
        """The id and slice of everything that was published."""
        return [
            (queued_of(message.body).enqueue_id, int(message.headers[SLICE_HEADER]))
            for _, message, _ in self.broker.published
        ]

    def put_start(self, table: Table, at: datetime) -> None:
        """Move a start as James does, without looking."""
        self.memory.write(Change(table, (SPOOL,), {table.regular[0].name: at}))

    def mark(self, enqueue_id: EnqueueId) -> None:
        """Mark a mail of the spool as somebody else would."""
        self.memory.write(Put(DELETED_MAILS, {"queuename": SPOOL, "enqueueid": enqueue_id}))

    def put_row(self, row: Row) -> None:
        """Put a row as somebody else would."""
        self.memory.write(Put(ENQUEUED_MAILS, row))

    def _start(self, table: Table) -> datetime | None:
        start: datetime | None = next((row[table.regular[0].name] for row in self.rows(table)), None)
        return start


async def names(mails: AsyncIterator[Listed]) -> list[str]:
    """The names of the mails, in order."""
    return [one.queued.mail.name async for one in mails]


class Shuffled:
    """Tables that answer after a while, each request after another: whatever order requests of two processes may take.

    Args:
        chance: how long each request takes, before it is carried out and after.
    """

    def __init__(self, tables: AsyncTables, chance: random.Random, turns: int = 6) -> None:
        self._tables, self._chance, self._turns = tables, chance, turns

    async def _wait(self) -> None:
        for _ in range(self._chance.randrange(self._turns)):
            await asyncio.sleep(0)

    async def read(self, read: Read) -> Sequence[Seen]:
        """The rows under the key."""
        await self._wait()
        seen = await self._tables.read(read)
        await self._wait()
        return seen

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """Many reads."""
        await self._wait()
        seen = await self._tables.read_all(reads)
        await self._wait()
        return seen

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Every row."""
        await self._wait()
        rows = [row async for row in self._tables.scan(scan)]
        await self._wait()
        for row in rows:
            yield row

    async def write(self, write: Write) -> None:
        """One write."""
        await self._wait()
        await self._tables.write(write)
        await self._wait()

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """Many writes."""
        await self._wait()
        errors = await self._tables.write_all(writes)
        await self._wait()
        return errors

    async def attempt(self, write: Conditional) -> Applied:
        """One conditional write."""
        await self._wait()
        applied = await self._tables.attempt(write)
        await self._wait()
        return applied


class Killed(BaseException):
    """The process ends here."""


def passing(_: Operation, carry_out: Callable[[], Any]) -> Any:
    """Nothing happens."""
    return carry_out()


def refusing(table: str, *, after: bool = False) -> Surround:
    """Writes to a table get no answer; they may be done all the same."""

    def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if not isinstance(operation, Write) or operation.table.name != table:
            return carry_out()
        if after:
            carry_out()
        raise TimedOut("no answer")

    return surround


def killing(number: int, *, after: bool) -> Surround:
    """The process is killed around its n-th write."""
    writes = 0

    def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        nonlocal writes
        if not isinstance(operation, Write | Conditional):
            return carry_out()
        writes += 1
        if writes <= number:
            return carry_out()
        if after and writes == number + 1:
            carry_out()
        raise Killed

    return surround
