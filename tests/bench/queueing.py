"""How much of the throughput of its raw parts the queue keeps: mails in and mails out, at concurrency 1 and 64.

The raw parts of a mail, in the same order, by the same libraries: two blobs put side by side, a prepared insert, a
publish with confirm; then a delivery, two blobs got side by side, a prepared insert of the mark, the ack. The queue
does more: it reads the browse start, looks up the mark, counts, forgets the blobs of what is done. Both lanes take
turns on the same servers, and a share is the median of the turns' shares: a busy machine disturbs both alike. Beside
throughput stands the processor time of this process for one mail, which other processes disturb least.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from statistics import median
from typing import Any, Generic, TypeVar

import aio_pika
from aio_pika.abc import AbstractExchange
from aio_pika.abc import AbstractIncomingMessage as Incoming

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Keyspace
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.blobs.stores import split
from mailmend.mailqueue.codec import payload_of, queued_of, row_of
from mailmend.mailqueue.concurrency import BackgroundTasks
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host, headers_to_publish, topology_of
from mailmend.mailqueue.rabbitmq.mail_queue import open_queue
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail
from mailmend.mailqueue.rules.slices import bucket_of, slice_of
from mailmend.model.blobs import BlobKind, Blobs
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put
from mailmend.repair.clock import SystemClock
from tests.support.queues import parts_of

T = TypeVar("T")

CONCURRENCY = (1, 64)
TURNS = 5
WARM_UP = 4
"""Turns of both lanes before any is measured: a server whose code is not compiled yet slows whoever comes first."""

MAILS: dict[int, int] = {1: 150, 64: 1500}
"""So many mails go through each lane in one turn, by concurrency."""

JAMES = {1: (222, 286), 64: (893, 978)}
"""What James 3.8.1 was measured at on such a machine: in and out per second, one at a time and sixteen at once."""

MAIL = Mail("bench", ("to@example.test",), "from@example.test")
CONTENT = b"Subject: bench\r\nFrom: from@example.test\r\n\r\n" + b"x" * 5000


@dataclass(frozen=True, slots=True)
class Measured:
    """Mails per second of one way at one concurrency, beside the raw parts.

    Attributes:
        share: of the raw parts' throughput: the median of the turns.
        cpu_ms: processor time of this process for one mail, and for one mail of the raw parts.
    """

    way: str
    concurrency: int
    queue_per_second: float
    raw_per_second: float
    share: float
    cpu_ms: float
    raw_cpu_ms: float
    times_james: float

    def __str__(self) -> str:
        return (
            f"{self.way:8} x{self.concurrency:<3} {self.queue_per_second:6.0f}/s   raw {self.raw_per_second:6.0f}/s"
            f"   share {self.share:.2f}   {self.times_james:.1f} x James 3.8.1"
            f"\n{'':14}CPU here {self.cpu_ms:.2f} ms, raw {self.raw_cpu_ms:.2f} ms"
        )


@dataclass(frozen=True, slots=True)
class Servers:
    """Where both lanes work."""

    keyspace: Keyspace
    broker_host: str
    broker_port: int
    vhost: str
    bucket: S3Settings


@dataclass(frozen=True, slots=True)
class Rate:
    """Mails per second, and what one of them took of this process's processor time."""

    per_second: float
    cpu_ms: float


Lane = Callable[[int, int], Awaitable[tuple[Rate, Rate]]]
"""So many mails, so many at once: how they go in and out."""


def measure(servers: Servers) -> list[Measured]:
    """Every way and concurrency."""
    return asyncio.run(_measure(servers))


def as_json(measured: list[Measured]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


async def _measure(servers: Servers) -> list[Measured]:
    found: list[Measured] = []
    async with queue_lane(servers) as queue, _raw_lane(servers) as raw:
        for _ in range(WARM_UP):
            await queue(MAILS[64], 64)
            await raw(MAILS[64], 64)
        for concurrency in CONCURRENCY:
            mails = MAILS[concurrency]
            for _ in range(
                WARM_UP
            ):  # until the server's code is compiled: both lanes share it, whoever comes first pays
                await queue(mails, concurrency)
                await raw(mails, concurrency)
            turns = [await _turn(queue, raw, mails, concurrency, turn) for turn in range(TURNS)]
            for place, way in enumerate(("enqueue", "dequeue")):
                pairs = [(ours[place], theirs[place]) for ours, theirs in turns]
                found.append(_compared(way, concurrency, pairs, JAMES[concurrency][place]))
    return found


def _compared(way: str, concurrency: int, pairs: list[tuple[Rate, Rate]], james: float) -> Measured:
    share = median(ours.per_second / theirs.per_second for ours, theirs in pairs)
    rate, raw_rate = (median(lane.per_second for lane in lanes) for lanes in zip(*pairs, strict=True))
    cpu, raw_cpu = (median(lane.cpu_ms for lane in lanes) for lanes in zip(*pairs, strict=True))
    return Measured(way, concurrency, rate, raw_rate, share, cpu, raw_cpu, rate / james)


async def _turn(
    queue: Lane, raw: Lane, mails: int, concurrency: int, turn: int
) -> tuple[tuple[Rate, Rate], tuple[Rate, Rate]]:
    """Each lane once; another one begins each time."""
    if turn % 2:
        theirs = await raw(mails, concurrency)
        return await queue(mails, concurrency), theirs
    ours = await queue(mails, concurrency)
    return ours, await raw(mails, concurrency)


@asynccontextmanager
async def queue_lane(servers: Servers) -> AsyncIterator[Lane]:
    clock = SystemClock()
    hosts = (Host(servers.broker_host, servers.broker_port),)
    broker, blobs = (
        RabbitBroker(BrokerSettings(hosts=hosts, vhost=servers.vhost), clock),
        open_s3(servers.bucket, clock),
    )
    tables = AsyncKeyspace(servers.keyspace)
    try:
        async with await open_queue(QueueName("bench"), tables, broker, blobs, clock) as queue:
            yield lambda mails, concurrency: through(queue, mails, concurrency, parts_of(queue).background)
    finally:
        await broker.close()


async def through(queue: MailQueue, mails: int, concurrency: int, background: BackgroundTasks) -> tuple[Rate, Rate]:
    """Mails in by a queue, and out; the last blobs go before the other lane begins."""
    came_in = await rate(mails, concurrency, lambda: queue.enqueue(MAIL, CONTENT))
    async with queue.dequeue(prefetch=max(5, concurrency)) as found:

        async def take() -> None:
            mail = await turns.next()
            await mail.ack()

        turns = Shared(found)
        went_out = await rate(mails, concurrency, take)
    await background.close()
    return came_in, went_out


@asynccontextmanager
async def _raw_lane(servers: Servers) -> AsyncIterator[Lane]:
    connection = await aio_pika.connect(
        host=servers.broker_host, port=servers.broker_port, virtualhost=servers.vhost, login="guest", password="guest"
    )
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        names = topology_of(QueueName("raw"))
        exchange = await channel.declare_exchange(names.exchange, durable=True)
        work = await channel.declare_queue(names.work_queue, durable=True)
        await work.bind(exchange, "")
        clock = SystemClock()
        raw = _Raw(AsyncKeyspace(servers.keyspace), open_s3(servers.bucket, clock), exchange, clock)

        async def through(mails: int, concurrency: int) -> tuple[Rate, Rate]:
            came_in = await rate(mails, concurrency, raw.put)
            taking = await connection.channel()
            await taking.set_qos(prefetch_count=max(5, concurrency))
            async with (await taking.get_queue(names.work_queue)).iterator() as found:
                turns = Shared(found)
                went_out = await rate(mails, concurrency, lambda: raw.take(turns))
            await taking.close()
            return came_in, went_out

        yield through


@dataclass(frozen=True, slots=True)
class _Raw:
    """The parts alone."""

    tables: AsyncKeyspace
    blobs: Blobs
    exchange: AbstractExchange
    clock: SystemClock

    async def put(self) -> None:
        """One mail in."""
        header, body = split(CONTENT)
        ids = await asyncio.gather(self.blobs.put(header, BlobKind.HEADER), self.blobs.put(body, BlobKind.BODY))
        queued = QueuedMail(EnqueueId(self.clock.random_uuid()), MAIL, MailBlobs(*ids))
        now = instant_of(self.clock.micros())
        slice_start, bucket = slice_of(now, timedelta(hours=1)), bucket_of(MAIL.name, 1)
        row = row_of(QueueName("raw"), slice_start, bucket, now, queued)
        await self.tables.write(Put(ENQUEUED_MAILS, row))
        message = aio_pika.Message(
            payload_of(queued),
            headers=dict(headers_to_publish({})),
            content_type="text/plain",
            delivery_mode=2,
            priority=0,
        )
        await self.exchange.publish(message, "", mandatory=True)

    async def take(self, turns: "Shared[Incoming]") -> None:
        """One mail out."""
        message = await turns.next()
        queued = queued_of(message.body)
        await asyncio.gather(self.blobs.get(queued.blobs.header), self.blobs.get(queued.blobs.body))
        await self.tables.write(Put(DELETED_MAILS, {"queuename": "raw", "enqueueid": queued.enqueue_id}))
        await message.ack()


class Shared(Generic[T]):
    """One iterator for many tasks: whoever asks is given the next one."""

    def __init__(self, found: AsyncIterator[T]) -> None:
        self._found, self._turn = found, asyncio.Lock()

    async def next(self) -> T:
        """The next one."""
        async with self._turn:
            return await anext(self._found)


async def rate(mails: int, concurrency: int, step: Callable[[], Awaitable[object]]) -> Rate:
    """So many at once."""
    left = iter(range(mails))

    async def work() -> None:
        for _ in left:
            await step()

    begun, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
    return Rate(mails / (time.perf_counter() - begun), (time.process_time() - cpu) / mails * 1000)
