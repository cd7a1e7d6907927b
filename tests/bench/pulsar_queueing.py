"""How much of its raw parts the queue over Pulsar keeps, and how it stands beside the one over RabbitMQ.

The raw parts of a mail, in the same order, by the same libraries: two blobs put side by side and a message produced
and acknowledged by the broker; then a message received, its two blobs got side by side, the message acknowledged, and
the blobs deleted as the queue deletes them: behind it, those of many mails in one request. The queue does more: it asks
whether there are new deletions, and keeps what it has in hand. The three lanes take turns, many short ones, as a busy
machine disturbs for seconds; a share is the median of the turns' shares.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import pulsar
from pulsar import asyncio as pulsar_async

from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.mailqueue.blobs.stores import split
from mailmend.mailqueue.concurrency import BackgroundTasks, BlobCleanup
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import open_queue
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import pulsar_payload_of, pulsar_queued_of
from mailmend.mailqueue.rules.mails import MailBlobs, QueuedMail
from mailmend.model.blobs import BlobKind, Blobs
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.repair.clock import SystemClock
from tests.bench.queueing import CONCURRENCY, CONTENT, MAIL, Lane, Rate, Servers, queue_lane, rate, through

MAILS = {1: 50, 64: 300}
"""So many mails go through each lane in one turn, by concurrency."""

TURNS = 5
WARM_UP = 2

JAMES = {1: (130, 445), 64: (523, 739)}
"""The most that James 3.9.0 was measured at on such a machine: in and out per second, alone and sixteen at once."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Mails per second of one way at one concurrency, in three lanes.

    Attributes:
        share: of the raw parts' throughput; `beside_rabbitmq`: of the queue's over RabbitMQ; medians of the turns.
        cpu_share: how much of the queue's processor time, in this process, the raw parts take too.
        cpu_ms: processor time of this process for one mail.
    """

    way: str
    concurrency: int
    queue_per_second: float
    raw_per_second: float
    rabbitmq_per_second: float
    share: float
    beside_rabbitmq: float
    cpu_share: float
    cpu_ms: float
    raw_cpu_ms: float
    rabbitmq_cpu_ms: float
    times_james: float

    def __str__(self) -> str:
        return (
            f"{self.way:8} x{self.concurrency:<3} {self.queue_per_second:6.0f}/s   raw {self.raw_per_second:6.0f}/s   "
            f"share {self.share:.2f}   RabbitMQ {self.rabbitmq_per_second:6.0f}/s: "
            f"{self.beside_rabbitmq:.2f} x that   "
            f"{self.times_james:.1f} x James 3.9.0\n{'':14}CPU here {self.cpu_ms:.2f} ms, raw {self.raw_cpu_ms:.2f} ms "
            f"(share {self.cpu_share:.2f}), RabbitMQ {self.rabbitmq_cpu_ms:.2f} ms"
        )


def measure(settings: PulsarSettings, servers: Servers) -> list[Measured]:
    """Every way and concurrency; `servers` has the blobs of all lanes, and what the queue over RabbitMQ needs."""
    return asyncio.run(_measure(settings, servers))


def as_json(measured: list[Measured]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


async def _measure(settings: PulsarSettings, servers: Servers) -> list[Measured]:
    found: list[Measured] = []
    async with (
        _pulsar_lane(settings, servers) as ours,
        _raw_lane(settings, servers) as raw,
        queue_lane(servers) as other,
    ):
        lanes = (ours, raw, other)
        for concurrency in reversed(CONCURRENCY):
            for _ in range(WARM_UP):
                await _turn(lanes, concurrency, 0)
            turns = [await _turn(lanes, concurrency, turn) for turn in range(TURNS)]
            for place, way in enumerate(("enqueue", "dequeue")):
                rates = [[lane[place] for lane in turn] for turn in turns]
                found.append(_compared(way, concurrency, rates, JAMES[concurrency][place]))
    return found


async def _turn(lanes: tuple[Lane, ...], concurrency: int, turn: int) -> list[tuple[Rate, Rate]]:
    """Each lane once, in their order; another one begins each time."""
    found: dict[int, tuple[Rate, Rate]] = {}
    for place in range(len(lanes)):
        number = (place + turn) % len(lanes)
        found[number] = await lanes[number](MAILS[concurrency], concurrency)
    return [found[number] for number in sorted(found)]


def _compared(way: str, concurrency: int, turns: list[list[Rate]], james: float) -> Measured:
    rate_here, rate_raw, rate_other = (median(one.per_second for one in lane) for lane in zip(*turns, strict=True))
    cpu_here, cpu_raw, cpu_other = (median(one.cpu_ms for one in lane) for lane in zip(*turns, strict=True))
    return Measured(
        way,
        concurrency,
        rate_here,
        rate_raw,
        rate_other,
        median(ours.per_second / raw.per_second for ours, raw, _ in turns),
        median(ours.per_second / other.per_second for ours, _, other in turns),
        median(raw.cpu_ms / ours.cpu_ms for ours, raw, _ in turns),
        cpu_here,
        cpu_raw,
        cpu_other,
        rate_here / james,
    )


@asynccontextmanager
async def _pulsar_lane(settings: PulsarSettings, servers: Servers) -> AsyncIterator[Lane]:
    clock = SystemClock()
    topics, blobs = PulsarTopics(settings, clock), open_s3(servers.bucket, clock)
    try:
        async with await open_queue(QueueName("bench"), topics, blobs, clock) as queue:
            background = queue._parts.background
            yield lambda mails, concurrency: through(queue, mails, concurrency, background)
    finally:
        await topics.close()


@dataclass(frozen=True, slots=True)
class _Raw:
    """The parts alone."""

    blobs: Blobs
    producer: pulsar_async.Producer
    clock: SystemClock
    cleanup: BlobCleanup

    async def put(self) -> None:
        """One mail in."""
        header, body = split(CONTENT)
        ids = await asyncio.gather(self.blobs.put(header, BlobKind.HEADER), self.blobs.put(body, BlobKind.BODY))
        queued = QueuedMail(EnqueueId(self.clock.random_uuid()), MAIL, MailBlobs(*ids))
        await self.producer.send(pulsar_payload_of(queued))

    async def take(self, consumer: Any) -> None:
        """One mail out."""
        message = await consumer.receive()
        queued = pulsar_queued_of(message.data())
        await asyncio.gather(self.blobs.get(queued.blobs.header), self.blobs.get(queued.blobs.body))
        await consumer.acknowledge(message)
        await self.cleanup.add(queued.blobs, dequeued=False)


@asynccontextmanager
async def _raw_lane(settings: PulsarSettings, servers: Servers) -> AsyncIterator[Lane]:
    clock, schema = SystemClock(), pulsar.schema.StringSchema()
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar_async.Client(settings.service, logger=quiet)
    topic = f"persistent://{settings.namespace}/raw"
    producer = await client.create_producer(topic, schema=schema, batching_enabled=False)
    blobs, background = open_s3(servers.bucket, clock), BackgroundTasks()
    raw = _Raw(blobs, producer, clock, BlobCleanup(blobs, _nothing, background, clock))

    async def subscribed(concurrency: int) -> Any:
        return await client.subscribe(
            topic,
            "raw",
            consumer_type=pulsar.ConsumerType.Shared,
            schema=schema,
            receiver_queue_size=max(5, concurrency),
            initial_position=pulsar.InitialPosition.Earliest,
        )

    async def through_the_parts(mails: int, concurrency: int) -> tuple[Rate, Rate]:
        await (await subscribed(concurrency)).close()  # from now on the subscription keeps what comes
        came_in = await rate(mails, concurrency, raw.put)
        consumer = await subscribed(concurrency)
        went_out = await rate(mails, concurrency, lambda: raw.take(consumer))
        await consumer.close()
        await background.close()
        return came_in, went_out

    try:
        yield through_the_parts
    finally:
        await client.close()


async def _nothing() -> None:
    """Do nothing after blobs were deleted."""
