"""A whole queue on twins, for tests of everybody: tables, broker and blobs in memory, time turned by hand."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.broker import SLICE_HEADER, Broker
from mailmend.mailqueue.codec import queued_of
from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import Dequeued, MailQueue
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.sweep import Sweeper
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rabbitmq.view.tallies import SliceTallies
from mailmend.mailqueue.rules.blob_ids import BlobNaming
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.mails import EVERYTHING, Listed, Mail, MailBlobs, MailFilter, QueuedMail
from mailmend.mailqueue.rules.slices import EPOCH, Slicing
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    ENQUEUED_MAILS,
    LIVES,
    OwnTables,
)
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.operations import Change, Put, Scan
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Row, Table
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.queue_wires import QueueWire, WiredBlobs, WiredBroker, WiredTables

D = TypeVar("D", bound=Dequeued)

QUEUE = QueueName("spool")

CONTENT = b"Subject: a mail\r\n\r\nIts body.\r\n"

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
"""Where a twin's clock begins: the start of a slice of an hour."""

OF_JAMES = OwnTables(due=False, tallies=False, state=False, backlogs=False)
EXPIRING = OwnTables(row_ttl_seconds=LIVES.ttl_seconds, mark_ttl_seconds=LIVES.mark_ttl_seconds)

HOURLY = QueueConfiguration(Slicing(timedelta(hours=1), 1), pace=1_000_000)
"""James's own cut, and nearly no sweep that nobody asked for."""


def configured(seconds: int, buckets: int, pace: int = 1_000) -> QueueConfiguration:
    return QueueConfiguration(Slicing(timedelta(seconds=seconds), buckets), pace)


@dataclass(slots=True)
class Counted:
    """`mailqueue.metrics.Counts` in a dictionary."""

    sums: dict[QueueCount, int] = field(default_factory=dict)

    def add(self, name: QueueCount, _queue: QueueName, n: int = 1) -> None:
        self.sums[name] = self.sums.get(name, 0) + n

    def of(self, name: QueueCount) -> int:
        return self.sums.get(name, 0)


@dataclass(slots=True)
class Process:
    """One process that works on a queue's tables, without the queue around them."""

    clock: Clock
    tallies: SliceTallies
    view: QueueView
    sweeper: Sweeper


@dataclass(slots=True)
class TwinQueue:
    """The three sides of a queue in memory, and any number of processes that have it open.

    Attributes:
        counted: what all of its processes counted together.
    """

    name: QueueName = QUEUE
    configuration: QueueConfiguration = HOURLY
    own: OwnTables = field(default_factory=OwnTables)
    clock: VirtualClock = field(default_factory=lambda: clock_at(NOON))
    naming: BlobNaming | None = None
    memory: MemoryTables = field(init=False)
    tables: InTurn = field(init=False)
    broker: MemoryBroker = field(init=False)
    blobs: MemoryBlobs = field(init=False)
    counted: Counted = field(default_factory=Counted)

    def __post_init__(self) -> None:
        self.memory = MemoryTables(self.clock.micros)
        self.tables = InTurn(self.memory)
        self.broker = MemoryBroker(self.clock)
        self.blobs = MemoryBlobs(self.clock, self.naming)

    async def process(self, clock: Clock | None = None) -> RabbitMailQueue:
        """The queue as one more process has it; its clock may be wrong."""
        return await open_queue(
            self.name,
            InTurn(self.memory),
            self.broker,
            self.blobs,
            clock or self.clock,
            self.configuration,
            own=self.own,
            counts=self.counted,
        )

    def parts(self, clock: Clock | None = None, wire: QueueWire | None = None) -> Process:
        """What a process that has just started works with, by its own clock and over a wire where it has one."""
        clock = clock or self.clock
        tables: AsyncTables = WiredTables(self.tables, wire) if wire else self.tables
        broker: Broker = WiredBroker(self.broker, wire) if wire else self.broker
        blobs: Blobs = WiredBlobs(self.blobs, wire) if wire else self.blobs
        view = QueueView(tables, clock, self.own)
        return Process(clock, view.tallies, view, Sweeper(view, blobs, broker))

    def due(
        self, clock: Clock | None = None, buckets: int | None = None, tables: AsyncTables | None = None
    ) -> DueMails:
        """The delayed mails, as one more process has them that counts nothing."""
        tables, clock = tables or self.tables, clock or self.clock
        uncounted = SliceTallies(tables, clock, OwnTables(tallies=False))
        return DueMails(tables, clock, buckets or self.configuration.slicing.buckets, uncounted)

    async def cut(self, window: timedelta = HOUR, buckets: int = 1, pace: int = 1000) -> None:
        await Configurations(self.tables).require(QueueConfiguration(Slicing(window, buckets), pace))

    def rows(self, table: Table) -> list[Row]:
        return list(self.memory.scan(Scan(table, table.names)))

    @property
    def browse_start(self) -> datetime | None:
        return self._start(BROWSE_START)

    @property
    def content_start(self) -> datetime | None:
        return self._start(CONTENT_START)

    @property
    def marked(self) -> set[UUID]:
        return {row["enqueueid"] for row in self.rows(DELETED_MAILS)}

    @property
    def published(self) -> list[tuple[UUID, int]]:
        """The id and slice of everything that was published."""
        return [
            (queued_of(message.body).enqueue_id, int(message.headers[SLICE_HEADER]))
            for _, message, _ in self.broker.published
        ]

    def put_start(self, table: Table, at: datetime) -> None:
        self.memory.write(Change(table, (self.name,), {table.regular[0].name: at}))

    def mark(self, enqueue_id: EnqueueId) -> None:
        self.memory.write(Put(DELETED_MAILS, {"queuename": self.name, "enqueueid": enqueue_id}))

    def put_row(self, row: Row) -> None:
        self.memory.write(Put(ENQUEUED_MAILS, row))

    def _start(self, table: Table) -> datetime | None:
        start: datetime | None = next((row[table.regular[0].name] for row in self.rows(table)), None)
        return start


def micros_at(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def clock_at(at: datetime) -> VirtualClock:
    return VirtualClock(micros_at(at))


def twin_queue(
    *,
    buckets: int = 1,
    window: timedelta = timedelta(hours=1),
    pace: int = 1_000_000,
    own: OwnTables | None = None,
    naming: BlobNaming | None = None,
) -> TwinQueue:
    return TwinQueue(
        configuration=QueueConfiguration(Slicing(window, buckets), pace), own=own or OwnTables(), naming=naming
    )


def mail(name: str = "mail", attributes: Mapping[str, str] | None = None, **fields: object) -> Mail:
    """A mail by its name, from ada to bob unless told otherwise."""
    fields_given = {"recipients": ("bob@example.org",), "sender": "ada@example.org", **fields}
    return Mail(name, attributes=attributes or {}, **fields_given)  # type: ignore[arg-type]


def queued(number: int, name: str | None = None, recipients: tuple[str, ...] = (), **fields: Any) -> QueuedMail:
    """A passage of a mail whose bytes are nowhere, the same for the same number."""
    to = recipients or ("rcpt@example.org",)
    sent = Mail(name or f"mail-{number}", to, **{"sender": "sender@example.org", **fields})
    blobs = MailBlobs(BlobId(f"1_692_{UUID(int=2 * number)}"), BlobId(f"1_692_{UUID(int=2 * number + 1)}"))
    return QueuedMail(EnqueueId(UUID(int=random.Random(number).getrandbits(128), version=4)), sent, blobs)


async def listed(queue: MailQueue, where: MailFilter = EVERYTHING) -> list[Listed]:
    return [one async for one in queue.browse(where)]


async def names(queue: MailQueue) -> list[str]:
    return await names_of(queue.browse())


async def names_of(mails: AsyncIterator[Listed]) -> list[str]:
    return [one.queued.mail.name async for one in mails]


async def drained(queue: MailQueue, most: int) -> list[str]:
    taken: list[str] = []
    async with queue.dequeue() as mails:
        while len(taken) < most:
            one = await anext(mails)
            taken.append(one.mail.name)
            await one.ack()
    return taken


_TURNS = 300
"""What settles in memory settles in far fewer turns of the loop."""


_TURNS_MAX = 100_000


async def all_delivered(queue: MailQueue, most: int | None = None) -> list[str]:
    """Ack whatever is delivered until nothing comes any more; the names."""
    taken: list[str] = []
    async with queue.dequeue() as mails:
        while one := await next_of(mails):
            taken.append(one.mail.name)
            await one.ack()
            if len(taken) == most:
                break
    return taken


async def next_of(mails: AsyncIterator[D]) -> D | None:
    asking = asyncio.ensure_future(anext(mails))
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if asking.done():
            return asking.result()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return None


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(_TURNS_MAX):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


async def delayed(queue: MailQueue, delays: Mapping[str, timedelta]) -> None:
    for name, delay in delays.items():
        await queue.enqueue(mail(name), CONTENT, delay=delay)


async def fill(twin: TwinQueue, process: Process, numbers: range, step: timedelta = HOUR, *, done: int = 0) -> None:
    """One mail after the other, with its blobs, as time goes by; then so many, from the first on, are done with."""
    for number in numbers:
        await process.view.rows.place(QUEUE, queued(number))
        for blob in (queued(number).blobs.header, queued(number).blobs.body):
            await twin.blobs.keep(blob, b"content")
        twin.clock.advance(step.total_seconds())
    await finish(process, numbers[:done], step)


async def finish(process: Process, numbers: range, step: timedelta = HOUR) -> None:
    for number in numbers:
        await process.view.mark(QUEUE, queued(number).enqueue_id, NOON + number * step)


async def turns(number: int = 400) -> None:
    """What is under way goes on, for so many turns of the loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def enqueued(queue: MailQueue, *mail_names: str) -> list[EnqueueId]:
    return [await queue.enqueue(mail(name), CONTENT) for name in mail_names]


def parts_of(queue: RabbitMailQueue) -> Parts:
    """What the queue is built of, for tests that disturb one of its sides."""
    return queue._parts
