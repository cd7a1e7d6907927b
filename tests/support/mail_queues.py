"""Mail queues of every kind: in memory, on twins, on real servers; each is used by several processes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.broker import Broker as BrokerPort
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue
from mailmend.mailqueue.pulsar.mail_queue import open_queue as open_pulsar_queue
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import Topics
from mailmend.mailqueue.queue import Dequeued, MailQueue, MaintainedQueue
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.blobs import Blobs
from mailmend.model.ids import QueueName
from mailmend.model.ports import AsyncTables, Clock
from mailmend.repair.clock import SystemClock
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.memory_topics import MemoryTopics
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queues import CONTENT, mail

CONFIGURATION = QueueConfiguration(Slicing(timedelta(hours=1), 2), pace=1_000_000)


@dataclass(frozen=True, slots=True)
class Sides:
    """The three sides of a queue that nobody used before, and its clock."""

    name: QueueName
    tables: AsyncTables
    broker: BrokerPort
    blobs: Blobs
    clock: Clock

    async def process(self) -> RabbitMailQueue:
        return await open_queue(self.name, self.tables, self.broker, self.blobs, self.clock, CONFIGURATION)


@dataclass(frozen=True, slots=True)
class Servers:
    """What these tests share on real servers."""

    keyspace: Keyspace
    broker: BrokerSettings
    bucket: S3Settings


@dataclass(frozen=True, slots=True)
class PulsarServers:
    """What these tests share on a real Pulsar."""

    settings: PulsarSettings
    bucket: S3Settings


@dataclass(frozen=True, slots=True)
class PulsarSides:
    """The sides of a queue over Pulsar that nobody used before; each process has its own connections."""

    name: QueueName
    connect: Callable[[], Topics]
    blobs: Blobs
    clock: Clock
    connected: list[Topics] = field(default_factory=list)

    async def process(self) -> PulsarMailQueue:
        self.connected.append(self.connect())
        return await open_pulsar_queue(self.name, self.connected[-1], self.blobs, self.clock)


@dataclass(frozen=True, slots=True)
class InMemory:
    """The queue in memory: everybody has the same object."""

    clock: Clock
    opened: MaintainedQueue

    async def process(self) -> MaintainedQueue:
        return self.opened


World = Sides | PulsarSides | InMemory


@asynccontextmanager
async def sides_of(servers: Servers | None) -> AsyncGenerator[Sides]:
    name = QueueName(f"q-{uuid4().hex[:12]}")
    if servers is None:
        clock = VirtualClock()
        yield Sides(name, InTurn(MemoryTables(clock.micros)), MemoryBroker(clock), MemoryBlobs(clock), clock)
        return
    real_clock = SystemClock()
    broker = RabbitBroker(servers.broker, real_clock)
    try:
        yield Sides(name, AsyncKeyspace(servers.keyspace), broker, open_s3(servers.bucket, real_clock), real_clock)
    finally:
        await broker.close()


@asynccontextmanager
async def pulsar_sides_of(servers: PulsarServers | None, partitions: int) -> AsyncGenerator[PulsarSides]:
    name = QueueName(f"q-{uuid4().hex[:12]}")
    if servers is None:
        clock = VirtualClock()
        twin = MemoryTopics(clock, partitions)
        yield PulsarSides(name, lambda: twin, MemoryBlobs(clock), clock)
        return
    real_clock, settings = SystemClock(), servers.settings
    sides = PulsarSides(
        name, lambda: PulsarTopics(settings, real_clock), open_s3(servers.bucket, real_clock), real_clock
    )
    try:
        yield sides
    finally:
        for topics in sides.connected:
            await topics.close()


async def until(holds: Callable[[], Awaitable[bool]], clock: Clock) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await holds():
        assert time.monotonic() < deadline, "it never held"
        await clock.pause(0.05)


async def taken(queue: MailQueue, sentinel: str = "sentinel") -> list[Dequeued]:
    """Ack everything that is there by now: what comes before a mail that is put behind it, one at a time."""
    await queue.enqueue(mail(sentinel), CONTENT)
    found: list[Dequeued] = []
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue(prefetch=1, priorities=[5]) as mails:
        async for one in mails:
            await one.ack()
            if one.mail.name == sentinel:
                break
            found.append(one)
    return found


async def names_taken(queue: MailQueue) -> list[str]:
    return [one.mail.name for one in await taken(queue)]


async def one_of(queue: MailQueue, settle: Callable[[Dequeued], Awaitable[None]]) -> Dequeued:
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue() as mails:
        one = await anext(mails)
        await settle(one)
    return one


def story_of(one: Listed) -> tuple[str, str, str, int]:
    """What every listing tells; the attempts of one that waits are told to who takes it."""
    attempts = one.attempts if one.due_at else 0
    return (str(one.queued.enqueue_id), str(one.enqueued_at), str(one.due_at), attempts)
