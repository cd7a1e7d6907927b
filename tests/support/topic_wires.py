"""Topics as one process reaches them, over a wire on which something may befall each step; and such a process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from mailmend.mailqueue.pulsar.deletions import JamesFilter, filter_text
from mailmend.mailqueue.pulsar.dequeue import PulsarUnacked
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.pulsar.settings import filter_topic
from mailmend.mailqueue.pulsar.topics import Following, StoredMessage, TopicDelivery, TopicMessage
from mailmend.mailqueue.rules.deletions import FilterKind
from mailmend.mailqueue.rules.health import TopicPolicies
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.model.errors import BrokerUnreachable, MailmendError, PublishFailed
from mailmend.model.ids import QueueName
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_topics import MemoryLease, MemoryTopics
from tests.support.queue_wires import QueueWire, Side, StepFault, WiredBlobs
from tests.support.queue_world import Died, Fortune
from tests.support.queues import QUEUE, next_of
from tests.support.skewed import SkewedClock


@dataclass(slots=True)
class WiredTopics:
    """Implements `mailqueue.pulsar.topics.Topics` for one process, whose clock stamps what it publishes."""

    topics: MemoryTopics
    wire: QueueWire
    clock: SkewedClock[VirtualClock]
    namespace: str = "public/default"
    leases: list[AsyncExitStack] = field(default_factory=list)

    async def create(self, topic: str, subscription: str) -> None:
        await self.wire.step(Side.BROKER, "create", lambda: self.topics.create(topic, subscription), _away)

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        await self.wire.step(Side.BROKER, "unsubscribe", lambda: self.topics.unsubscribe(topic, subscription), _away)

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        await asyncio.sleep(0)
        return await self.wire.step(
            Side.BROKER, f"publish {topic}", lambda: self.topics.publish(topic, message, self.clock), _unpublished
        )

    @asynccontextmanager
    async def consume(
        self, topic: str, subscription: str, prefetch: int
    ) -> AsyncGenerator[AsyncIterator["WiredTopicDelivery"]]:
        async with self.topics.consume(topic, subscription, prefetch) as deliveries:
            yield self._wired(deliveries)

    async def acknowledge(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        """One by one, so that the process may die between two."""
        for place in places:
            one = partial(self.topics.acknowledge, topic, subscription, (place,))
            await self.wire.step(Side.BROKER, f"ack {topic}", one, _away)

    async def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        async def first() -> None:
            await asyncio.sleep(0)

        await self.wire.step(Side.READS, "read", first, _away)
        async with aclosing(self.topics.unacked(topic, subscription, after)) as messages:
            async for message in messages:
                yield message
                await asyncio.sleep(0)

    async def follow(self, topic: str, subscription: str) -> "WiredFollowing":
        following = await self.wire.step(Side.READS, "follow", lambda: self.topics.follow(topic, subscription), _away)
        return WiredFollowing(following, self.wire)

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        await asyncio.sleep(0)
        return await self.wire.step(Side.READS, "backlog", lambda: self.topics.backlog(topic, subscription), _away)

    async def policies(self, topic: str) -> TopicPolicies | None:
        return await self.topics.policies(topic)

    async def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        async def first() -> None:
            await asyncio.sleep(0)

        await self.wire.step(Side.READS, "read", first, _away)
        async with aclosing(self.topics.held(topic, backlog)) as messages:
            async for message in messages:
                yield message
                await asyncio.sleep(0)

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator["WiredLease | None"]:
        async with AsyncExitStack() as stack:
            self.leases.append(stack)
            found = await stack.enter_async_context(self.topics.lease(name))
            yield WiredLease(found, self.wire, self.clock) if found else None

    async def lose_leases(self) -> None:
        """As its connection is gone."""
        for one in self.leases:
            await one.aclose()

    async def names(self) -> list[str]:
        return await self.topics.names()

    async def product(self) -> str:
        return await self.topics.product()

    async def close(self) -> None:
        """Whoever has made the topics closes them."""

    async def _wired(self, deliveries: AsyncIterator[TopicDelivery]) -> AsyncIterator["WiredTopicDelivery"]:
        async for delivery in deliveries:
            yield WiredTopicDelivery(delivery, self.wire)


@dataclass(frozen=True, slots=True)
class WiredLease:
    """Implements `mailqueue.pulsar.topics.TopicLease`."""

    lease: MemoryLease
    wire: QueueWire
    clock: SkewedClock[VirtualClock]

    async def publish(self, message: TopicMessage) -> MessagePlace:
        return await self.wire.step(Side.BROKER, "note", lambda: self.lease.publish(message, self.clock), _unpublished)


@dataclass(slots=True)
class WiredFollowing:
    """Implements `mailqueue.pulsar.topics.Following`."""

    following: Following
    wire: QueueWire

    async def news(self) -> list[StoredMessage]:
        await asyncio.sleep(0)
        return await self.wire.step(Side.READS, "news", self.following.news, _away)

    async def each(self) -> AsyncGenerator[StoredMessage]:
        for one in await self.news():
            yield one

    async def close(self) -> None:
        await self.following.close()


@dataclass(slots=True)
class WiredTopicDelivery:
    """Implements `mailqueue.pulsar.topics.TopicDelivery`."""

    delivery: TopicDelivery
    wire: QueueWire
    message: StoredMessage = field(init=False)
    redelivered: bool = field(init=False)

    def __post_init__(self) -> None:
        self.message, self.redelivered = self.delivery.message, self.delivery.redelivered

    async def ack(self) -> None:
        await self.wire.step(Side.BROKER, "ack", self.delivery.ack, _away)

    async def give_back(self) -> None:
        await self.wire.step(Side.BROKER, "give back", self.delivery.give_back, _away)


@dataclass(slots=True)
class TopicWorker:
    """One process that has the queue open, its dequeue that goes on, and what is in its hands."""

    name: QueueName
    topics: MemoryTopics
    blobs: MemoryBlobs
    clock: SkewedClock[VirtualClock]
    fortune: Fortune = field(default_factory=Fortune)
    held: list[PulsarUnacked] = field(default_factory=list)
    _queue: PulsarMailQueue | None = None
    _topics: WiredTopics | None = None
    _context: AbstractAsyncContextManager[AsyncIterator[PulsarUnacked]] | None = None
    _mails: AsyncIterator[PulsarUnacked] | None = None

    @property
    def queue(self) -> PulsarMailQueue:
        assert self._queue is not None, "it is started first"
        return self._queue

    async def start(self) -> None:
        self.fortune = Fortune()
        self._topics = WiredTopics(self.topics, self.fortune, self.clock)
        self._queue = await open_queue(self.name, self._topics, WiredBlobs(self.blobs, self.fortune), self.clock)

    async def taken(self, most: int, prefetch: int) -> list[PulsarUnacked]:
        """Up to so many mails from the dequeue, which is begun where there is none."""
        if self._context is None:
            context = self.queue.dequeue(prefetch)
            self._mails = await context.__aenter__()
            self._context = context
        assert self._mails is not None
        found = list[PulsarUnacked]()
        while len(found) < most and (one := await next_of(self._mails)):
            found.append(one)
        self.held += found
        return found

    async def leave(self) -> None:
        context, self._context = self._context, None
        self.held.clear()
        if context is not None:
            with suppress(Died, MailmendError):
                await context.__aexit__(None, None, None)

    async def restart(self) -> None:
        """It died: its connections are gone, and a new one comes up in its place."""
        self.fortune.dead = True
        await self.leave()
        if self._topics is not None:
            await self._topics.lose_leases()
        await self.start()


class TopicWorld:
    """The twins of a queue, and processes that have it open."""

    def __init__(self, partitions: int = 0) -> None:
        self.clock = VirtualClock()
        self.topics, self.blobs = MemoryTopics(self.clock, partitions), MemoryBlobs(self.clock)
        self.workers: list[TopicWorker] = []

    async def worker(self) -> TopicWorker:
        self.workers.append(TopicWorker(QUEUE, self.topics, self.blobs, SkewedClock(self.clock, timedelta(0))))
        await self.workers[-1].start()
        return self.workers[-1]

    async def james_deletes(self, kind: FilterKind, value: str) -> None:
        await self.topics.create(filter_topic(QUEUE), "james")
        await self.topics.publish(filter_topic(QUEUE), TopicMessage(filter_text(JamesFilter(kind, value, 0))))

    async def close(self) -> None:
        for one in self.workers:
            one.fortune.arm()
            await one.leave()
            await one.queue.close()


def _away(_: StepFault) -> MailmendError:
    return BrokerUnreachable("no answer")


def _unpublished(fault: StepFault) -> MailmendError:
    refused = fault is StepFault.REFUSED
    return PublishFailed("refused" if refused else "not confirmed", doubtful=not refused)
