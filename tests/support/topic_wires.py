"""Topics as one process reaches them, over a wire on which something may befall each step; and such a process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailqueue.pulsar.topics import Following, StoredMessage, TopicDelivery, TopicMessage
from mailqueue.pulsar.unacked import PulsarUnacked
from model.errors import BrokerUnreachable, MailmendError, PublishFailed
from model.ids import QueueName
from model.queue.places import Backlog, MessagePlace
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_topics import MemoryTopics
from tests.support.queue_wires import QueueWire, Side, StepFault, WiredBlobs
from tests.support.queue_world import Died, Fortune
from tests.support.queues import next_of
from tests.support.skewed import SkewedClock


@dataclass(slots=True)
class WiredTopics:
    """Implements `mailqueue.pulsar.topics.Topics` for one process, whose clock stamps what it publishes."""

    topics: MemoryTopics
    wire: QueueWire
    clock: SkewedClock[VirtualClock]
    namespace: str = "public/default"

    async def create(self, topic: str, subscription: str) -> None:
        await self.wire.step(Side.BROKER, "create", lambda: self.topics.create(topic, subscription), _away)

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

    def lease(self, name: str) -> AbstractAsyncContextManager[bool]:
        return self.topics.lease(name)

    async def names(self) -> list[str]:
        return await self.topics.names()

    async def close(self) -> None:
        """Whoever has made the topics closes them."""

    async def _wired(self, deliveries: AsyncIterator[TopicDelivery]) -> AsyncIterator["WiredTopicDelivery"]:
        async for delivery in deliveries:
            yield WiredTopicDelivery(delivery, self.wire)


@dataclass(slots=True)
class WiredFollowing:
    """Implements `mailqueue.pulsar.topics.Following`."""

    following: Following
    wire: QueueWire

    async def news(self) -> list[StoredMessage]:
        await asyncio.sleep(0)
        return await self.wire.step(Side.READS, "news", self.following.news, _away)

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
    _context: AbstractAsyncContextManager[AsyncIterator[PulsarUnacked]] | None = None
    _mails: AsyncIterator[PulsarUnacked] | None = None

    @property
    def queue(self) -> PulsarMailQueue:
        assert self._queue is not None, "it is started first"
        return self._queue

    async def start(self) -> None:
        self.fortune = Fortune()
        topics = WiredTopics(self.topics, self.fortune, self.clock)
        self._queue = await open_queue(self.name, topics, WiredBlobs(self.blobs, self.fortune), self.clock)

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
        await self.start()


def _away(_: StepFault) -> MailmendError:
    return BrokerUnreachable("no answer")


def _unpublished(fault: StepFault) -> MailmendError:
    refused = fault is StepFault.REFUSED
    return PublishFailed("refused" if refused else "not confirmed", doubtful=not refused)
