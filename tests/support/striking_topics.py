"""Topics of a real Pulsar where something strikes right before the n-th request that changes anything there."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue
from mailmend.mailqueue.pulsar.topics import Following, StoredMessage, TopicDelivery, TopicLease, TopicMessage
from mailmend.mailqueue.rules.health import TopicPolicies
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from tests.support.queues import CONTENT, mail

T = TypeVar("T")

Strike = Callable[[], Awaitable[None]]
Tell = Callable[[list[str]], None]


@dataclass(slots=True)
class StrikingTopics:
    """Implements `mailqueue.pulsar.topics.Topics`.

    Attributes:
        left: how many requests pass before it strikes, once.
    """

    topics: PulsarTopics
    left: int
    strike: Strike
    namespace: str = field(init=False)

    def __post_init__(self) -> None:
        self.namespace = self.topics.namespace

    async def create(self, topic: str, subscription: str) -> None:
        await self.asked(lambda: self.topics.create(topic, subscription))

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        return await self.asked(lambda: self.topics.publish(topic, message))

    @asynccontextmanager
    async def consume(
        self, topic: str, subscription: str, prefetch: int
    ) -> AsyncGenerator[AsyncIterator["StrikingDelivery"]]:
        async with self.topics.consume(topic, subscription, prefetch) as deliveries:
            yield (StrikingDelivery(one, self) async for one in deliveries)

    async def acknowledge(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        await self.asked(lambda: self.topics.acknowledge(topic, subscription, places))

    def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        return self.topics.unacked(topic, subscription, after)

    async def follow(self, topic: str, subscription: str) -> Following:
        return await self.asked(lambda: self.topics.follow(topic, subscription))

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        return await self.topics.backlog(topic, subscription)

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        await self.asked(lambda: self.topics.unsubscribe(topic, subscription))

    def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        return self.topics.held(topic, backlog)

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator["StrikingLease | None"]:
        await self.asked(_nothing)
        async with self.topics.lease(name) as lease:
            yield StrikingLease(lease, self) if lease else None

    async def policies(self, topic: str) -> TopicPolicies | None:
        return await self.topics.policies(topic)

    async def product(self) -> str:
        return await self.topics.product()

    async def names(self) -> list[str]:
        return await self.topics.names()

    async def close(self) -> None:
        await self.topics.close()

    async def asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        self.left -= 1
        if self.left == -1:
            await self.strike()
        return await ask()


@dataclass(slots=True)
class StrikingDelivery:
    """Implements `mailqueue.pulsar.topics.TopicDelivery`."""

    delivery: TopicDelivery
    topics: StrikingTopics

    @property
    def message(self) -> StoredMessage:
        return self.delivery.message

    @property
    def redelivered(self) -> bool:
        return self.delivery.redelivered

    async def ack(self) -> None:
        await self.topics.asked(self.delivery.ack)

    async def give_back(self) -> None:
        await self.delivery.give_back()


@dataclass(slots=True)
class StrikingLease:
    """Implements `mailqueue.pulsar.topics.TopicLease`."""

    lease: TopicLease
    topics: StrikingTopics

    async def publish(self, message: TopicMessage) -> MessagePlace:
        return await self.topics.asked(lambda: self.lease.publish(message))


async def _nothing() -> None:
    """What takes the lease asks by itself."""


PREPARED = ("0", "1", "2")
DELAYED = ("delayed-0", "delayed-1")
"""What lies in each queue before, with an hour to go."""


async def enqueues(queue: PulsarMailQueue, tell: Tell) -> None:
    for name in ("new-0", "new-1"):
        await queue.enqueue(mail(name), CONTENT)
        tell(["enqueued", name])


async def delays(queue: PulsarMailQueue, tell: Tell) -> None:
    for name in ("new-0", "new-1"):
        await queue.enqueue(mail(name), CONTENT, delay=timedelta(hours=1))
        tell(["enqueued", name])


async def acks(queue: PulsarMailQueue, tell: Tell) -> None:
    await _settles(queue, tell, lambda one: one.ack())


async def retries(queue: PulsarMailQueue, tell: Tell) -> None:
    await _settles(queue, tell, lambda one: one.retry(timedelta(hours=1)))


async def rejects(queue: PulsarMailQueue, tell: Tell) -> None:
    await _settles(queue, tell, lambda one: one.reject())


async def _settles(queue: PulsarMailQueue, tell: Tell, settle: Callable[[Any], Awaitable[None]]) -> None:
    async with queue.dequeue(prefetch=2) as mails:
        for _ in range(2):
            one = await anext(mails)
            tell(["begun", one.mail.name])
            await settle(one)
            tell(["settled", one.mail.name])


async def deletes(queue: PulsarMailQueue, tell: Tell) -> None:
    async def keep(one: Listed) -> None:
        kept.append(one.queued.mail.name)
        tell(["begun", one.queued.mail.name])

    for name in ("1", DELAYED[0]):
        kept = list[str]()
        await queue.delete(MailFilter(name=name), on_removed=keep)
        tell(["deleted", *kept])


async def flushes(queue: PulsarMailQueue, tell: Tell) -> None:
    await queue.flush()
    tell(["flushed"])


ACTS: Mapping[str, Callable[[PulsarMailQueue, Tell], Awaitable[None]]] = {
    one.__name__: one for one in (enqueues, delays, acks, retries, rejects, deletes, flushes)
}
