"""What listing, size and deleting cost a queue over Pulsar, against how much has gone through it and been deleted.

Half of a hundred mails wait in front of all that has gone through, half behind it: the broker then keeps the first
stretch of a topic, and whoever lists must come over what is acknowledged. The mails that have gone through were
published and taken as messages alone, by the queue's own adapter; each was acknowledged by itself. Blobs are the twin.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.deletions import DELETED as DELETED_PROPERTY
from mailmend.mailqueue.pulsar.deletions import FOR_NO_MAIL, FRESH, SLACK, JamesFilter, deleted_text, filter_text
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.pulsar.settings import (
    OWN_SUBSCRIPTION,
    PulsarForm,
    PulsarSettings,
    filter_topic,
    out_subscription,
    out_topic,
)
from mailmend.mailqueue.pulsar.topics import TopicMessage, waiting_message
from mailmend.mailqueue.rules.deletions import DeletedMail, FilterKind
from mailmend.mailqueue.rules.mails import Listed, MailBlobs, MailFilter, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.places import MessagePlace, TopicPlace
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.repair.clock import SystemClock
from tests.bench.queueing import CONTENT, MAIL
from tests.support.memory_blobs import MemoryBlobs

PENDING = 100
LOOKS = 5
"""A listing or size is taken so often; the median counts."""

PROCESSED = (1, 10, 100)
"""So many hundredths of the mails asked for."""

FILTERS = (0, 1_000, 10_000)
DELETED = 200
AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Looked:
    """Seconds for a listing of the hundred that wait, and for the size, after so many mails have gone through."""

    processed: int
    browse: float
    size: float

    def __str__(self) -> str:
        looks = f"browse {PENDING} {self.browse * 1000:6.1f} ms   size {self.size * 1000:6.1f} ms"
        return f"{self.processed:>9,} mails gone through: {looks}"


@dataclass(frozen=True, slots=True)
class Deleted:
    """Seconds for a process among so many deletions that lie there.

    Attributes:
        whose: who published them, and so in which form.
        first_look: until a process knows them all; once for each process.
        delete: deleting `DELETED` mails, without the pause until everybody has heard of it.
        delete_cpu: this process's processor time for that, which other processes disturb least.
        hear: asking whether there is more, as each process does twice a second while it hands mails out.
        out: a mail taken out while they are known.
    """

    whose: str
    deletions: int
    first_look: float
    delete: float
    delete_cpu: float
    hear: float
    out: float

    def __str__(self) -> str:
        return (
            f"{self.deletions:>9,} deletions of {self.whose}: first look {self.first_look:6.2f} s   delete "
            f"{1e6 * self.delete / DELETED:6.0f} us a mail (CPU {1e6 * self.delete_cpu / DELETED:4.0f})   "
            f"hear {self.hear * 1000:6.1f} ms   "
            f"out {self.out * 1000:5.2f} ms a mail"
        )


def measure_looks(settings: PulsarSettings, mails: int) -> Iterator[Looked]:
    """Each number of mails in turn, the largest last."""
    for part in PROCESSED:
        yield asyncio.run(_looked(settings, mails * part // PROCESSED[-1]))


def measure_deletions(settings: PulsarSettings) -> Iterator[Deleted]:
    """Among James's deletions, which stay as they are, and among our own, which are merged from time to time."""
    for whose in ("James", "ours"):
        for deletions in FILTERS:
            if deletions or whose == "James":
                yield asyncio.run(_deleted(settings, whose, deletions))


def as_json(measured: list[Looked] | list[Deleted]) -> list[dict[str, Any]]:
    """For the results' file."""
    return [asdict(one) for one in measured]


@asynccontextmanager
async def _queue(
    settings: PulsarSettings, name: QueueName, blobs: MemoryBlobs
) -> AsyncIterator[tuple[PulsarMailQueue, PulsarTopics]]:
    """A queue as a process of its own has it."""
    clock = SystemClock()
    topics = PulsarTopics(settings, clock)
    try:
        async with await open_queue(name, topics, blobs, clock) as queue:
            yield queue, topics
    finally:
        await topics.close()


async def _looked(settings: PulsarSettings, processed: int) -> Looked:
    name, blobs = QueueName(f"past-{processed}"), MemoryBlobs(SystemClock())
    async with _queue(settings, name, blobs) as (queue, topics):
        await _enqueued(queue, PENDING // 2)
        await _gone_through(topics, name, processed)
        await _enqueued(queue, PENDING - PENDING // 2)
        browse = await _median(lambda: _listed(queue))
        size = await _median(lambda: _sized(queue))
    return Looked(processed, browse, size)


async def _gone_through(topics: PulsarTopics, queue: QueueName, mails: int) -> None:
    """So many messages in and out; those that wait in front stay."""
    topic, subscription, clock = out_topic(queue), out_subscription(queue), SystemClock()
    queued = QueuedMail(EnqueueId(clock.random_uuid()), MAIL, MailBlobs(BlobId("1_gone"), BlobId("1_gone")))
    message = waiting_message(Listed(queued, instant_of(clock.micros()), Whereabouts.WAITING), PulsarForm.JAMES_3_9)

    async def publish(_: int) -> MessagePlace:
        return await topics.publish(topic, message)

    first = await publish(0)
    await all_of(range(mails - 1), publish, AT_ONCE)
    async with topics.consume(topic, subscription, AT_ONCE + PENDING) as deliveries:
        left = mails
        while left:
            delivery = await anext(deliveries)
            if delivery.message.place >= first:
                await delivery.ack()
                left -= 1


async def _deleted(settings: PulsarSettings, whose: str, deletions: int) -> Deleted:
    name, blobs = QueueName(f"deleting-{whose.lower()}-{deletions}"), MemoryBlobs(SystemClock())
    async with _queue(settings, name, blobs) as (queue, topics):
        await _enqueued(queue, 2 * DELETED)
        await _published(topics, name, whose, deletions)
    async with _queue(settings, name, blobs) as (queue, _):
        known = queue._parts.deletions
        first_look = await _seconds(known.known_now())
        wait = (FRESH + SLACK).total_seconds()
        hear = await _median(known.known_now)
        out = await _seconds(_taken_out(queue)) / DELETED
        cpu = time.process_time()
        delete = await _seconds(_removed(queue)) - wait
        delete_cpu = time.process_time() - cpu
    return Deleted(whose, deletions, first_look, delete, delete_cpu, hear, out)


async def _published(topics: PulsarTopics, queue: QueueName, whose: str, deletions: int) -> None:
    """Deletions of mails that are not there."""
    clock, topic = SystemClock(), filter_topic(queue)

    def of_james(number: int) -> TopicMessage:
        return TopicMessage(filter_text(JamesFilter(FilterKind.NAME, f"gone-{number}", number)))

    def of_ours(number: int) -> TopicMessage:
        gone = DeletedMail(EnqueueId(clock.random_uuid()), TopicPlace(out_topic(queue), MessagePlace(-1, 0, number)))
        return TopicMessage(filter_text(FOR_NO_MAIL), {DELETED_PROPERTY: deleted_text([gone])})

    message_of = of_james if whose == "James" else of_ours

    async def publish(number: int) -> None:
        await topics.publish(topic, message_of(number))

    await topics.create(topic, OWN_SUBSCRIPTION)
    await all_of(range(deletions), publish, AT_ONCE)


async def _taken_out(queue: PulsarMailQueue) -> None:
    async with queue.dequeue(prefetch=64) as mails:
        for _ in range(DELETED):
            await (await anext(mails)).ack()


async def _removed(queue: PulsarMailQueue) -> None:
    gone = await queue.delete(MailFilter(name=MAIL.name))
    if gone.count != DELETED:
        raise AssertionError(f"{gone} is not {DELETED}")


async def _enqueued(queue: PulsarMailQueue, mails: int) -> None:
    await all_of(range(mails), lambda _: queue.enqueue(MAIL, CONTENT), AT_ONCE)


async def _listed(queue: PulsarMailQueue) -> None:
    found = 0
    async for _ in queue.browse():
        found += 1
    if found != PENDING:
        raise AssertionError(f"{found} mails were listed, {PENDING} wait")


async def _sized(queue: PulsarMailQueue) -> None:
    found = await queue.size()
    if found.mails != PENDING:
        raise AssertionError(f"{found} is not {PENDING}")


async def _median(ask: Callable[[], Awaitable[object]]) -> float:
    return median([await _seconds(ask()) for _ in range(LOOKS)])


async def _seconds(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun
