"""A whole queue on twins, for tests of everybody: tables, broker and blobs in memory, time turned by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from cql.driver.asynchronous import InTurn
from cql.memory import MemoryTables
from mailqueue.blobs.memory import MemoryBlobs
from mailqueue.metrics import QueueCount
from mailqueue.queue import Dequeued
from mailqueue.rabbitmq.broker.memory import MemoryBroker
from mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailqueue.rabbitmq.parts import Parts
from model.catalog.queue_tables import OwnTables
from model.ids import BlobId, EnqueueId, QueueName
from model.queue.blob_ids import BlobNaming
from model.queue.configuration import QueueConfiguration
from model.queue.filters import EVERYTHING, MailFilter
from model.queue.mails import Listed, Mail, MailBlobs, QueuedMail
from model.queue.slices import Slicing
from tests.support.clock import VirtualClock

D = TypeVar("D", bound=Dequeued)

QUEUE = QueueName("spool")

CONTENT = b"Subject: a mail\r\n\r\nIts body.\r\n"

HOURLY = QueueConfiguration(Slicing(timedelta(hours=1), 1), pace=1_000_000)
"""James's own cut, and nearly no sweep that nobody asked for."""


@dataclass(slots=True)
class Counted:
    """`mailqueue.metrics.Counts` in a dictionary."""

    sums: dict[QueueCount, int] = field(default_factory=dict)

    def add(self, name: QueueCount, _queue: QueueName, n: int = 1) -> None:
        """Add."""
        self.sums[name] = self.sums.get(name, 0) + n

    def of(self, name: QueueCount) -> int:
        """How often it happened."""
        return self.sums.get(name, 0)


@dataclass(slots=True)
class TwinQueue:
    """The three sides of a queue in memory, and any number of processes that have it open.

    Attributes:
        counted: what all of its processes counted together.
    """

    name: QueueName = QUEUE
    configuration: QueueConfiguration = HOURLY
    own: OwnTables = field(default_factory=OwnTables)
    clock: VirtualClock = field(default_factory=VirtualClock)
    naming: BlobNaming | None = None
    memory: MemoryTables = field(init=False)
    broker: MemoryBroker = field(init=False)
    blobs: MemoryBlobs = field(init=False)
    counted: Counted = field(default_factory=Counted)

    def __post_init__(self) -> None:
        """Nothing is in it yet."""
        self.memory = MemoryTables(self.clock.micros)
        self.broker = MemoryBroker(self.clock)
        self.blobs = MemoryBlobs(self.clock, self.naming)

    async def process(self, clock: VirtualClock | None = None) -> RabbitMailQueue:
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


def twin_queue(
    *,
    buckets: int = 1,
    window: timedelta = timedelta(hours=1),
    pace: int = 1_000_000,
    own: OwnTables | None = None,
    naming: BlobNaming | None = None,
    seed: int = 0,
) -> TwinQueue:
    """An empty queue in memory."""
    return TwinQueue(
        configuration=QueueConfiguration(Slicing(window, buckets), pace),
        own=own or OwnTables(),
        clock=VirtualClock(seed=seed),
        naming=naming,
    )


def mail(name: str = "mail", attributes: Mapping[str, str] | None = None, **fields: object) -> Mail:
    """A mail by its name, from ada to bob unless told otherwise."""
    told = {"recipients": ("bob@example.org",), "sender": "ada@example.org", **fields}
    return Mail(name, attributes=attributes or {}, **told)  # type: ignore[arg-type]


def queued_mail(clock: VirtualClock, name: str = "mail") -> QueuedMail:
    """A passage of a mail of that name, whose bytes are nowhere."""
    blobs = MailBlobs(BlobId(str(clock.random_uuid())), BlobId(str(clock.random_uuid())))
    return QueuedMail(EnqueueId(clock.random_uuid()), mail(name), blobs)


async def listed(queue: RabbitMailQueue, where: MailFilter = EVERYTHING) -> list[Listed]:
    """What browsing shows."""
    return [one async for one in queue.browse(where)]


async def names(queue: RabbitMailQueue) -> list[str]:
    """The names of what browsing shows."""
    return [one.queued.mail.name for one in await listed(queue)]


async def drained(queue: RabbitMailQueue, most: int) -> list[str]:
    """Ack so many mails; their names."""
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


async def all_delivered(queue: RabbitMailQueue, most: int | None = None) -> list[str]:
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
    """The next mail; None where none comes."""
    asking = asyncio.ensure_future(anext(mails))
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if asking.done():
            return asking.result()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return None


async def until(holds: Callable[[], bool]) -> None:
    """Let others work until it holds."""
    for _ in range(_TURNS_MAX):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


async def enqueued(queue: RabbitMailQueue, *mail_names: str) -> list[EnqueueId]:
    """Enqueue mails of these names."""
    return [await queue.enqueue(mail(name), CONTENT) for name in mail_names]


def parts_of(queue: RabbitMailQueue) -> Parts:
    """What the queue is built of, for tests that disturb one of its sides."""
    return queue._parts
