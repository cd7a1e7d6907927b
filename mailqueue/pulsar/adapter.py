"""Topics of a real Pulsar: its client carries messages, its admin API says what was acknowledged.

Each partition of a topic has a consumer, or a reader, of its own, for only so are places exact.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.pulsar.admin_api import PulsarAdmin
from mailmend.mailqueue.pulsar.client import ExclusiveProducer, PulsarClient, PulsarConsumer, TopicReader, stored_of
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import StoredMessage, TopicMessage
from mailmend.mailqueue.rules.health import TopicPolicies
from mailmend.mailqueue.rules.places import (
    BEFORE_ALL,
    UNPARTITIONED,
    Backlog,
    EntryPosition,
    MessagePlace,
    PartitionBacklog,
)
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, MailmendError
from mailmend.model.ports import Clock

SEEK_BEYOND: Final = 500
"""From how many acknowledged messages in a row on a reader jumps over them."""

PartitionNamed = Callable[[int], str]
"""The full name of a topic's partition, by its number."""


async def held_messages(
    client: PulsarClient, named: PartitionNamed, backlog: Backlog, after: MessagePlace | None = None
) -> AsyncGenerator[StoredMessage]:
    """The messages that a backlog holds, those after a place."""
    for number, partition in sorted(backlog.partitions.items()):
        if after is not None and number < after.partition:
            continue
        behind = partition.acked_to
        if after is not None and number == after.partition:
            behind = max(behind, after.position)
        if behind >= partition.last:
            continue
        async with client.reader(named(number), behind) as reader:
            while message := await reader.next(number):
                position = message.place.position
                if position > partition.last:
                    break
                if partition.holds(position):
                    yield message
                elif end := _worth_a_seek(partition, position):
                    await reader.skip(end)


async def followed(client: PulsarClient, named: PartitionNamed, there: Backlog) -> "PulsarFollowing":
    """Follow a topic from what a backlog holds on."""
    readers = dict[int, TopicReader]()
    try:
        for number, partition in there.partitions.items():
            readers[number] = await client.open_reader(named(number), partition.acked_to)
    except BaseException:
        await finished(_all_closed(readers.values()))
        raise
    return PulsarFollowing(client, named, there, readers)


class PulsarFollowing:
    """A reader of each partition, those that are added included. Implements `Following` of `topics`."""

    def __init__(
        self, client: PulsarClient, named: PartitionNamed, there: Backlog, readers: dict[int, TopicReader]
    ) -> None:
        self._client = client
        self._named = named
        self._there = there
        self._readers = readers
        self._found: list[StoredMessage] = []

    async def news(self) -> list[StoredMessage]:
        async with aclosing(self.each()) as messages:
            async for message in messages:
                self._found.append(message)
        found = self._found
        self._found = []
        return found

    async def each(self) -> AsyncGenerator[StoredMessage]:
        for number in await self._client.partitions(self._named(UNPARTITIONED)):
            if number not in self._readers:
                self._readers[number] = await self._client.open_reader(self._named(number), BEFORE_ALL)
        for number, reader in self._readers.items():
            partition = self._there.partitions.get(number)
            while message := await reader.next(number):
                position = message.place.position
                if partition is None or position > partition.last or partition.holds(position):
                    yield message
                elif end := _worth_a_seek(partition, position):
                    await reader.skip(end)

    async def close(self) -> None:
        await finished(_all_closed(self._readers.values()))


async def _all_closed(readers: Iterable[TopicReader]) -> None:
    await asyncio.gather(*(reader.close() for reader in readers), return_exceptions=True)


def _worth_a_seek(partition: PartitionBacklog, position: EntryPosition) -> EntryPosition | None:
    """The end of the acknowledged stretch there, if it is far."""
    end = partition.acked_until(position)
    if end is None or (end[0] == position[0] and end[1] - position[1] < SEEK_BEYOND):
        return None
    return end


ACKS_SENT_SECONDS: Final = 0.15
"""After how long the client has sent an acknowledgement: it gathers them for 100 ms."""

REMEMBERED_MAX: Final = 10_000
"""The number of messages that a consumer acknowledges again where the broker forgot their acknowledgement."""

KNOWN_SECONDS: Final = 60.0
"""For how long a topic is taken to be there: James's clear, and its subscriptions' expiry, remove what was created.

And how long it is believed for how long the broker lets messages of it be delayed.
"""

LONGEST_SLACK_MS: Final = 1_000
"""The margin below that limit: the time that passes until they are stamped."""

NEW_PARTITIONS_SECONDS: Final = 30.0
"""How often a consumer looks for partitions that were added."""

CREATE_AGAIN_MAX: Final = 5
CREATE_AGAIN_SECONDS: Final = 0.2

ACKED_TOGETHER_MAX: Final = 1_000


class PulsarTopics:
    """Implements `mailqueue.pulsar.topics.Topics`."""

    def __init__(self, settings: PulsarSettings, clock: Clock) -> None:
        self.namespace = settings.namespace
        self.clock = clock
        self.client = PulsarClient(settings, clock)
        self._admin = PulsarAdmin(settings)
        self._created: dict[tuple[str, str], float] = {}
        self._creating = asyncio.Lock()
        self._longest: dict[str, tuple[float, int]] = {}
        self._acks: dict[tuple[str, str], _Acknowledger] = {}
        self._consuming: set[_Consuming] = set()

    async def create(self, topic: str, subscription: str) -> None:
        if self._is_there(topic, subscription):
            return
        async with self._creating:
            tries = 1
            while not self._is_there(topic, subscription):
                asked_at = self.clock.monotonic()
                if await self._admin.create(topic, subscription):
                    self._created[topic, subscription] = asked_at
                elif tries > CREATE_AGAIN_MAX:
                    raise BrokerUnreachable(
                        f"no broker of Pulsar serves the topic {topic}",
                        mend="Look whether all brokers run: pulsar-admin topics lookup TOPIC",
                    )
                else:
                    await self.clock.pause(CREATE_AGAIN_SECONDS * tries)
                    tries += 1

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        await self._admin.unsubscribe(topic, subscription)
        self._created.pop((topic, subscription), None)

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        if message.deliver_at is not None:
            message = replace(message, deliver_at=await self._deliverable(topic, message.deliver_at))
        return await self.client.publish(self.full(topic), message)

    @asynccontextmanager
    async def consume(
        self, topic: str, subscription: str, prefetch: int
    ) -> AsyncGenerator[AsyncIterator["PulsarDelivery"]]:
        await self.create(topic, subscription)
        there = await self.backlog(topic, subscription) or Backlog()
        consuming = _Consuming(self, topic, subscription, prefetch, there)
        self._consuming.add(consuming)
        try:
            await consuming.subscribe(await self._numbers(topic))
            yield consuming
        finally:
            self._consuming.discard(consuming)
            await finished(consuming.end())

    async def acknowledge(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        """Requests of many callers go together: while some are on their way, others gather."""
        key = (topic, subscription)
        if key not in self._acks:
            self._acks[key] = _Acknowledger(self, topic, subscription)
        await self._acks[key].acknowledge(places)

    async def acknowledge_now(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        for partition in {place.partition for place in places}:
            positions = [place.position for place in places if place.partition == partition]
            await self.client.acknowledge(self.full(topic, partition), subscription, positions)

    async def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        if backlog := await self.backlog(topic, subscription):
            async with aclosing(held_messages(self.client, self._named(topic), backlog, after)) as messages:
                async for message in messages:
                    yield message

    def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        return held_messages(self.client, self._named(topic), backlog)

    async def follow(self, topic: str, subscription: str) -> PulsarFollowing:
        await self.create(topic, subscription)
        there = await self.backlog(topic, subscription) or Backlog()
        return await followed(self.client, self._named(topic), there)

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        numbers = await self._numbers(topic)
        found = await asyncio.gather(*(self._admin.backlog(_named(topic, number), subscription) for number in numbers))
        there = {}
        missing = []
        for number, backlog in zip(numbers, found, strict=True):
            if backlog:
                there[number] = backlog
            else:
                missing.append(number)
        if not there:
            return None
        return Backlog(there, tuple(missing))

    async def policies(self, topic: str) -> TopicPolicies | None:
        numbers = await self._numbers(topic)
        partitions = [_named(topic, number) for number in numbers]
        return await self._admin.policies(topic, partitions)

    def lease(self, name: str) -> AbstractAsyncContextManager[ExclusiveProducer | None]:
        return self.client.exclusive_producer(self.full(name))

    async def names(self) -> list[str]:
        return await self._admin.names()

    async def product(self) -> str:
        """Its client is asked only where there is a topic: to ask for another may create that."""
        for name in (await self.names())[:1]:
            await self.client.partitions(self.full(name))
        return f"Pulsar {await self._admin.version()}"

    async def close(self) -> None:
        await self.client.close()
        # The library tells those who wait for a message on threads that the same close ends: some are never told.
        for consuming in self._consuming:
            consuming.fail(self.client.failures.away("the client was closed"))

    def _is_there(self, topic: str, subscription: str) -> bool:
        created_at = self._created.get((topic, subscription))
        return created_at is not None and self.clock.monotonic() - created_at < KNOWN_SECONDS

    async def _deliverable(self, topic: str, deliver_at: int) -> int:
        """No later than the broker takes: the client would send a message that is refused for that for ever."""
        asked_at, longest = self._longest.get(topic, (float("-inf"), 0))
        if self.clock.monotonic() - asked_at > KNOWN_SECONDS:
            asked_at = self.clock.monotonic()
            longest = 0
            with suppress(BrokerDenied):  # who may only produce and consume is not told
                longest = await self._admin.longest_delay(topic)
            self._longest[topic] = asked_at, longest
        if not longest:
            return deliver_at
        return min(deliver_at, self.clock.micros() // 1000 + max(0, longest - LONGEST_SLACK_MS))

    async def _numbers(self, topic: str) -> Sequence[int]:
        """Asked each time: an admin may add partitions."""
        count = await self._admin.partitions(topic)
        if not count:
            return (UNPARTITIONED,)
        return range(count)

    def _named(self, topic: str) -> Callable[[int], str]:
        return partial(self.full, topic)

    def full(self, topic: str, partition: int = UNPARTITIONED) -> str:
        return f"persistent://{self.namespace}/{_named(topic, partition)}"


class _Acknowledger:
    """Acknowledges by place, in rounds."""

    def __init__(self, topics: PulsarTopics, topic: str, subscription: str) -> None:
        self._topics = topics
        self._topic = topic
        self._subscription = subscription
        self._waiting: list[tuple[Collection[MessagePlace], asyncio.Future[None]]] = []
        self._round: asyncio.Task[None] | None = None

    async def acknowledge(self, places: Collection[MessagePlace]) -> None:
        if not places:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((places, done))
        if self._round is None or self._round.done():
            self._round = asyncio.ensure_future(self._rounds())
        await asyncio.shield(done)

    async def _rounds(self) -> None:
        while some := list(self._some()):
            places: list[MessagePlace] = []
            for group, _ in some:
                places += group
            try:
                await self._topics.acknowledge_now(self._topic, self._subscription, places)
            except Exception as error:  # noqa: BLE001 - each caller gets it
                for _, done in some:
                    if not done.done():
                        done.set_exception(error)
            else:
                for _, done in some:
                    if not done.done():
                        done.set_result(None)

    def _some(self) -> Iterator[tuple[Collection[MessagePlace], asyncio.Future[None]]]:
        count = 0
        while self._waiting and count < ACKED_TOGETHER_MAX:
            one = self._waiting.pop(0)
            count += len(one[0])
            yield one


class _Consuming:
    """The consumers of every partition of a topic, as one."""

    def __init__(self, topics: PulsarTopics, topic: str, subscription: str, prefetch: int, there: Backlog) -> None:
        self.topics = topics
        self.topic = topic
        self.subscription = subscription
        self._there = there
        self._prefetch = prefetch
        self._room = asyncio.Semaphore(prefetch)
        self._came: asyncio.Queue[PulsarDelivery | BaseException] = asyncio.Queue()
        self._consumers: dict[int, PulsarConsumer] = {}
        self._working: list[asyncio.Task[None]] = [asyncio.ensure_future(self._grow())]
        self._acked_at = float("-inf")
        self.in_hand: dict[MessagePlace, PulsarDelivery] = {}
        self._acked: dict[MessagePlace, None] = {}
        self.ended = False

    async def subscribe(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            if number not in self._consumers:
                full = self.topics.full(self.topic, number)
                consumer = await self.topics.client.subscribe(full, self.subscription, self._prefetch)
                self._consumers[number] = consumer
                self._working.append(asyncio.ensure_future(self._receive(consumer, number)))

    def __aiter__(self) -> AsyncIterator["PulsarDelivery"]:
        return self

    async def __anext__(self) -> "PulsarDelivery":
        one = await self._came.get()
        if isinstance(one, BaseException):
            raise one
        return one

    def fail(self, error: MailmendError) -> None:
        """Give this error to the caller that waits for a message."""
        self._came.put_nowait(error)

    def settled(self, delivery: "PulsarDelivery", *, acked: bool) -> None:
        if self.in_hand.get(delivery.message.place) is delivery:
            del self.in_hand[delivery.message.place]
            self._room.release()
        if acked:
            self._acked_at = self.topics.clock.monotonic()
            self._acked[delivery.message.place] = None
            if len(self._acked) > REMEMBERED_MAX:
                del self._acked[next(iter(self._acked))]

    def had_before(self, place: MessagePlace) -> bool:
        """Whether it was there before these consumers: the broker forgets who had it once there is no consumer."""
        partition = self._there.partitions.get(place.partition)
        return partition is not None and place.position <= partition.last

    async def end(self) -> None:
        """Close; what is in hand is delivered again, and known for having been delivered."""
        self.ended = True
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        if self.in_hand:
            since = self.topics.clock.monotonic() - self._acked_at
            await self.topics.clock.pause(max(0.0, ACKS_SENT_SECONDS - since))
            for consumer in self._consumers.values():
                consumer.redeliver_unacknowledged_messages()
        await asyncio.gather(*(opened.close() for opened in self._consumers.values()), return_exceptions=True)

    async def _grow(self) -> None:
        """Take from partitions too that are added."""
        while True:
            await self.topics.clock.pause(NEW_PARTITIONS_SECONDS)
            with suppress(MailmendError):  # then next time
                await self.subscribe(await self.topics.client.partitions(self.topics.full(self.topic)))

    async def _receive(self, consumer: PulsarConsumer, partition: int) -> None:
        """Pass on what comes; not what is in hand, or acked: a broker that comes back gives that again."""
        try:
            while True:
                message = await self.topics.client.asked(consumer.receive())
                delivery = PulsarDelivery(self, consumer, message, partition)
                if delivery.message.place in self._acked:
                    with suppress(BrokerUnreachable):  # then it comes once more
                        await delivery.ack()
                    continue
                if delivery.message.place in self.in_hand:
                    continue
                await self._room.acquire()
                self.in_hand[delivery.message.place] = delivery
                self._came.put_nowait(delivery)
        except Exception as error:  # noqa: BLE001 - whoever asks for the next message gets it
            self._came.put_nowait(error)


class PulsarDelivery:
    """A delivered message. Implements `mailqueue.pulsar.topics.TopicDelivery`."""

    def __init__(self, consuming: _Consuming, consumer: PulsarConsumer, message: Any, partition: int) -> None:
        self._consuming = consuming
        self._consumer = consumer
        self._raw = message
        self.message: StoredMessage = stored_of(message, partition)
        self.redelivered: bool = message.redelivery_count() > 0 or consuming.had_before(self.message.place)

    async def ack(self) -> None:
        consuming = self._consuming
        if consuming.ended:
            await consuming.topics.acknowledge(consuming.topic, consuming.subscription, (self.message.place,))
            return
        await consuming.topics.client.asked(self._consumer.acknowledge(self._raw))
        consuming.settled(self, acked=True)

    async def give_back(self) -> None:
        if not self._consuming.ended:
            await self._consumer.negative_acknowledge(self._raw)
        self._consuming.settled(self, acked=False)


def _named(topic: str, partition: int) -> str:
    if partition == UNPARTITIONED:
        return topic
    return f"{topic}-partition-{partition}"
