"""A broker of topics in memory, for tests, which imitates Pulsar and its failures."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mailmend.mailqueue.pulsar.topics import StoredMessage, TopicMessage
from mailmend.mailqueue.rules.health import TopicPolicies
from mailmend.mailqueue.rules.places import UNPARTITIONED, Backlog, MessagePlace, PartitionBacklog
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, PublishFailed
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from tests.support.memory_broker import Fate

LEDGER_ENTRIES = 7
"""After so many messages the next ledger begins, so that places are not mere counts."""


@dataclass(slots=True)
class _Subscription:
    """What it has acknowledged, what its consumers have, and what waits to be given again."""

    acked: set[MessagePlace] = field(default_factory=set)
    held: set[MessagePlace] = field(default_factory=set)
    given_back: set[MessagePlace] = field(default_factory=set)
    written: set[MessagePlace] = field(default_factory=set)
    consumers: int = 0


@dataclass(slots=True)
class _Topic:
    """Its messages, in order; and how often a broker began to serve it anew: each time with a new ledger.

    Attributes:
        trimmed: those that cannot be read any more.
    """

    partitions: int
    messages: list[StoredMessage] = field(default_factory=list)
    trimmed: set[MessagePlace] = field(default_factory=set)
    subscriptions: dict[str, _Subscription] = field(default_factory=dict)
    begun: int = 0


class MemoryTopics:
    """Implements `mailqueue.pulsar.topics.Topics` over lists.

    Args:
        clock: gives the times of publishing.
        partitions: how many each topic has; 0: it is not partitioned.
    """

    def __init__(self, clock: Clock, partitions: int = 0) -> None:
        self.namespace = "public/default"
        self.fates: deque[Fate] = deque()
        self.away = self.tells_no_policies = False
        self.policy = TopicPolicies()
        self._clock, self._partitions = clock, partitions
        self._topics: dict[str, _Topic] = {}
        self._leases: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []

    async def create(self, topic: str, subscription: str) -> None:
        self._answering()
        self._topic(topic).subscriptions.setdefault(subscription, _Subscription())

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        self._answering()
        if found := self._topics.get(topic):
            found.subscriptions.pop(subscription, None)

    async def publish(
        self, topic: str, message: TopicMessage, clock: Clock | None = None, *, alone: bool = False
    ) -> MessagePlace:
        """As the port says; by the clock of whoever publishes. `alone`: who has a lease, to one partition."""
        self._answering()
        fate = self.fates.popleft() if self.fates else Fate.KEPT
        if fate is Fate.UNREACHABLE:
            raise BrokerUnreachable("the twin does not answer")
        if fate is Fate.REFUSED:
            raise PublishFailed("the twin refuses a message")
        place = MessagePlace(UNPARTITIONED, 0, 0)
        for _ in range({Fate.UNCONFIRMED_LOST: 0, Fate.TWICE: 2}.get(fate, 1)):
            place = self._keep(topic, message, clock or self._clock, alone=alone)
        if fate in {Fate.UNCONFIRMED_KEPT, Fate.UNCONFIRMED_LOST}:
            raise PublishFailed("the twin does not confirm a message", doubtful=True)
        return place

    @asynccontextmanager
    async def consume(
        self, topic: str, subscription: str, prefetch: int
    ) -> AsyncGenerator[AsyncIterator["MemoryTopicDelivery"]]:
        await self.create(topic, subscription)
        consuming = _Consuming(self, topic, subscription, prefetch)
        consuming.subscribed.consumers += 1
        try:
            yield consuming
        finally:
            consuming.end()

    async def acknowledge(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        self._answering()
        if places:
            await self.create(topic, subscription)
            subscribed = self._topics[topic].subscriptions[subscription]
            subscribed.acked.update(places)
            subscribed.given_back.difference_update(places)

    async def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        self._answering()
        found = self._topics.get(topic)
        if found is None:
            return
        subscribed = found.subscriptions.get(subscription, _Subscription())
        there, acked = sorted(found.messages, key=lambda one: one.place), set(subscribed.acked)
        for message in there:
            if message.place not in acked and (after is None or message.place > after):
                yield message
                self._answering()

    async def follow(self, topic: str, subscription: str) -> "_Following":
        await self.create(topic, subscription)
        found = self._topics[topic]
        return _Following(self, found, set(found.subscriptions[subscription].acked))

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        self._answering()
        found = self._topics.get(topic)
        if found is None:
            return None
        subscribed = found.subscriptions.get(subscription, _Subscription())
        numbers = range(found.partitions) if found.partitions else (UNPARTITIONED,)
        return Backlog({number: _partition(found, subscribed, number) for number in numbers})

    async def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        self._answering()
        there = self._topics.get(topic) or _Topic(self._partitions)
        for message in sorted(there.messages, key=lambda one: one.place):
            place, partition = message.place, backlog.partitions.get(message.place.partition)
            if partition and place.position <= partition.last and backlog.holds(place) and place not in there.trimmed:
                yield message
                self._answering()

    async def policies(self, topic: str) -> TopicPolicies | None:
        self._answering()
        if self.tells_no_policies:
            raise BrokerDenied("the twin tells no policies", mend="Ask somebody else.")
        return self.policy if topic in self._topics else None

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator["MemoryLease | None"]:
        self._answering()
        if name in self._leases:
            yield None
            return
        self._leases.add(name)
        try:
            yield MemoryLease(self, name)
        finally:
            self._leases.discard(name)

    async def names(self) -> list[str]:
        self._answering()
        return sorted(self._topics)

    async def product(self) -> str:
        self._answering()
        return "Pulsar 4.2.4"

    async def close(self) -> None:
        """Nothing is open."""

    def trim(self) -> None:
        """Delete what every subscription has acknowledged, as a broker does some time."""
        for topic in self._topics.values():
            acked = [one.acked for one in topic.subscriptions.values()]
            topic.trimmed |= set.intersection(*acked) if acked else set()

    def write_acks(self, *topics: str) -> None:
        """From now on nobody forgets what was acknowledged until now: of these topics, or of all."""
        for name, topic in self._topics.items():
            for one in topic.subscriptions.values() if name in topics or not topics else ():
                one.written = set(one.acked)

    def in_hand(self, topic: str, subscription: str) -> list[StoredMessage]:
        """What consumers have and have not acknowledged."""
        found = self._topics.get(topic)
        if found is None:
            return []
        held = found.subscriptions.get(subscription, _Subscription()).held
        return [message for message in found.messages if message.place in held]

    def die(self) -> None:
        """Be killed, and begin anew: what was not written is forgotten, and what nobody acknowledged comes again."""
        for topic in self._topics.values():
            topic.begun += 1
        for one in self._subscriptions():
            one.given_back |= one.held | (one.acked - one.written)
            one.acked = set(one.written)
            one.held.clear()
        self.has_changed()

    def _subscriptions(self) -> Iterator[_Subscription]:
        return (one for topic in self._topics.values() for one in topic.subscriptions.values())

    # Called by consumers

    def answering(self) -> None:
        self._answering()

    def subscription(self, topic: str, subscription: str) -> _Subscription:
        return self._topics[topic].subscriptions[subscription]

    def next_for(self, topic: str, subscription: str) -> tuple[StoredMessage, bool] | None:
        """The first message that no consumer of the subscription has, and whether one had it before."""
        subscribed = self.subscription(topic, subscription)
        for message in self._topics[topic].messages:
            if message.place not in subscribed.acked | subscribed.held:
                subscribed.held.add(message.place)
                return message, message.place in subscribed.given_back
        return None

    async def change(self) -> None:
        self._waiting.append(asyncio.get_running_loop().create_future())
        await self._waiting[-1]

    def has_changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _keep(self, topic: str, message: TopicMessage, clock: Clock, *, alone: bool) -> MessagePlace:
        found = self._topic(topic)
        number = 0 if alone else len(found.messages)
        partition = number % found.partitions if found.partitions else UNPARTITIONED
        behind = sum(one.place.partition == partition for one in found.messages)
        place = MessagePlace(partition, _ledger(found, behind), behind % LEDGER_ENTRIES)
        at = instant_of(clock.micros() // 1000 * 1000)
        found.messages.append(
            StoredMessage(
                place,
                message.payload.encode(errors="surrogateescape"),
                dict(message.properties),
                at,
                message.event_at or 0,
            )
        )
        self.has_changed()
        return place

    def _topic(self, topic: str) -> _Topic:
        return self._topics.setdefault(topic, _Topic(self._partitions))

    def _answering(self) -> None:
        if self.away:
            raise BrokerUnreachable("the twin does not answer")


@dataclass(frozen=True, slots=True)
class MemoryLease:
    """Implements `mailqueue.pulsar.topics.TopicLease`."""

    topics: MemoryTopics
    name: str

    async def publish(self, message: TopicMessage, clock: Clock | None = None) -> MessagePlace:
        return await self.topics.publish(self.name, message, clock, alone=True)


class _Following:
    """Implements `mailqueue.pulsar.topics.Following`."""

    def __init__(self, topics: MemoryTopics, topic: _Topic, acked: set[MessagePlace]) -> None:
        self._topics, self._topic, self._acked, self._given = topics, topic, acked, 0

    async def news(self) -> list[StoredMessage]:
        return [one async for one in self.each()]

    async def each(self) -> AsyncGenerator[StoredMessage]:
        self._topics.answering()
        while self._given < len(self._topic.messages):
            message = self._topic.messages[self._given]
            self._given += 1
            if message.place not in self._acked:
                yield message

    async def close(self) -> None:
        """Nothing is open."""


class _Consuming:
    """One consumer's messages."""

    def __init__(self, topics: MemoryTopics, topic: str, subscription: str, prefetch: int) -> None:
        self.topics, self.topic, self.name = topics, topic, subscription
        self.subscribed = topics.subscription(topic, subscription)
        self._prefetch, self.ended = prefetch, False
        self.in_hand: set[MessagePlace] = set()

    def __aiter__(self) -> AsyncIterator["MemoryTopicDelivery"]:
        return self

    async def __anext__(self) -> "MemoryTopicDelivery":
        while True:
            if len(self.in_hand) < self._prefetch and (found := self.topics.next_for(self.topic, self.name)):
                message, redelivered = found
                self.in_hand.add(message.place)
                return MemoryTopicDelivery(self, message, redelivered=redelivered)
            await self.topics.change()

    def end(self) -> None:
        self.ended = True
        self.subscribed.consumers -= 1
        for place in tuple(self.in_hand):
            self.let_go(place)

    def let_go(self, place: MessagePlace) -> None:
        self.in_hand.discard(place)
        self.subscribed.held.discard(place)
        self.subscribed.given_back.add(place)
        self.topics.has_changed()


class MemoryTopicDelivery:
    """Implements `mailqueue.pulsar.topics.TopicDelivery`."""

    def __init__(self, consuming: _Consuming, message: StoredMessage, *, redelivered: bool) -> None:
        self._consuming, self.message, self.redelivered = consuming, message, redelivered

    async def ack(self) -> None:
        consuming, place = self._consuming, self.message.place
        await consuming.topics.acknowledge(consuming.topic, consuming.name, (place,))
        consuming.in_hand.discard(place)
        consuming.subscribed.held.discard(place)
        consuming.topics.has_changed()

    async def give_back(self) -> None:
        if not self._consuming.ended:
            self._consuming.let_go(self.message.place)


def _partition(topic: _Topic, subscribed: _Subscription, number: int) -> PartitionBacklog:
    places = sorted(one.place for one in topic.messages if one.place.partition == number)
    unacked = [place for place in places if place not in subscribed.acked]
    first = next((index for index, place in enumerate(places) if place not in subscribed.acked), len(places))
    acked_to = places[first - 1].position if first else (100, -1)
    stretches = tuple(
        ((place.ledger, place.entry - 1), place.position) for place in places[first:] if place in subscribed.acked
    )
    return PartitionBacklog(
        acked_to,
        stretches,
        places[-1].position if places else (100, -1),
        len(unacked),
        len(subscribed.held),
        subscribed.consumers,
        len(places),
        len(subscribed.acked.intersection(places)),
        _ledger(topic, len(places)),
    )


def _ledger(topic: _Topic, behind: int) -> int:
    """Which one takes a message that is behind so many."""
    return 100 + behind // LEDGER_ENTRIES + 100 * topic.begun
