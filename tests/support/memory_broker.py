"""A message broker in memory, for tests, which imitates RabbitMQ and its failures.

It keeps what RabbitMQ keeps: ready messages, unacked messages, dead letters. What is unacked when a consumer leaves or
loses its connection is delivered again, marked as redelivered.
"""

import asyncio
import bisect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum

from mailmend.mailqueue.broker import DIED_HEADER, HAD_HEADER, Delivery, Depth, Message, unheard
from mailmend.mailqueue.every_queue import Drain, checked_prefetch
from mailmend.mailqueue.rabbitmq.broker.settings import topology_of
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from mailmend.model.errors import BrokerUnreachable, PublishFailed
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock

_DEAD = -1
"""The lane of dead letters, beside those of the levels."""


class Fate(Enum):
    """The outcome of a publish."""

    KEPT = "kept"
    REFUSED = "refused"
    """PublishFailed: the broker does not hold it."""
    UNCONFIRMED_KEPT = "unconfirmed, kept"
    """PublishFailed(doubtful), and the broker holds it."""
    UNCONFIRMED_LOST = "unconfirmed, lost"
    """PublishFailed(doubtful), and it does not."""
    UNCONFIRMED_LATE = "unconfirmed, late"
    """PublishFailed(doubtful), and it is delivered only after `let_arrive`."""
    TWICE = "twice"
    UNREACHABLE = "unreachable"


@dataclass(slots=True, eq=False)
class _Kept:
    """A message as the broker keeps it; `number` is its place in the order of arrival."""

    number: int
    message: Message
    priority: int
    redelivered: bool = False
    dead_lettered: bool = False
    returns: int = 0


@dataclass(slots=True)
class _Held:
    """The messages of one queue, by lane, each lane in the order of arrival."""

    lanes: dict[int, list[_Kept]] = field(default_factory=dict)

    def put(self, lane: int, kept: _Kept) -> None:
        bisect.insort(self.lanes.setdefault(lane, []), kept, key=lambda other: other.number)

    def ready(self, lanes: Collection[int]) -> list[_Kept]:
        return [kept for lane in lanes for kept in self.lanes.get(lane, ())]


class MemoryBroker:
    """Implements `mailqueue.broker.Broker` over lists.

    Args:
        clock: gives the chance by which messages are taken out of turn.
        delivery_limit: after so many returns a message is dead-lettered; None: never.
    """

    def __init__(self, clock: Clock, delivery_limit: int | None = None) -> None:
        self._clock = clock
        self._delivery_limit = delivery_limit
        self._queues: dict[QueueName, _Held] = {}
        self._streams: list[_Stream] = []
        self._arrivals = 0
        self._late: list[tuple[QueueName, Message, int]] = []
        self.away = False
        """Whether nobody reaches it; see `go_away`."""
        self.alarms: tuple[str, ...] = ()
        """For want of what, and where, nothing is taken, while what waits is delivered."""
        self.out_of_order = False
        """Whether messages are delivered in an order drawn by chance."""
        self.fates: deque[Fate] = deque()
        """What becomes of the next publishes, one each; afterwards all are kept."""
        self.published: list[tuple[QueueName, Message, int]] = []
        """Everything that was kept, ever, with its priority: for tests to look at."""

    # The port

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        """Keep the message, or do as the next of `fates` says."""
        topology_of(queue, priority)
        await asyncio.sleep(0)
        fate = self.fates.popleft() if self.fates else Fate.KEPT
        if self.away or fate is Fate.UNREACHABLE:
            raise _unreachable()
        if self.alarms:
            raise PublishFailed(f"the broker takes no message for the queue {queue!r}, because of an alarm")
        for _ in range(_COPIES.get(fate, 0)):
            self._keep(queue, message, priority)
        if fate is Fate.UNCONFIRMED_LATE:
            self._late.append((queue, message, priority))
        await asyncio.sleep(0)  # the confirm is on its way: a caller cancelled here has published all the same
        if fate is Fate.REFUSED:
            raise PublishFailed(f"the broker refused a message for the queue {queue!r}")
        if fate in _UNCONFIRMED:
            raise PublishFailed(f"the broker did not confirm a message for the queue {queue!r}", doubtful=True)

    async def bury(self, queue: QueueName, message: Message) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise _unreachable()
        self._arrivals += 1
        self._held(queue).put(_DEAD, _Kept(self._arrivals, message, PRIORITY_NORMAL))

    @asynccontextmanager
    async def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> AsyncGenerator[AsyncIterator[Delivery]]:
        lanes = [topology_of(queue, level).priority for level in (PRIORITIES if priorities is None else priorities)]
        async with self._consuming(queue, prefetch, lanes, on_lost) as stream:
            yield stream

    @asynccontextmanager
    async def dead_letters(self, queue: QueueName, prefetch: int) -> AsyncGenerator[AsyncIterator[Delivery]]:
        """A dead letter that is dead-lettered again is gone, as in RabbitMQ."""
        async with self._consuming(queue, prefetch, (_DEAD,)) as stream:
            yield stream

    async def depth(self, queue: QueueName) -> Depth:
        await asyncio.sleep(0)
        if self.away:
            raise _unreachable()
        held, working = self._held(queue), [s for s in self._streams if s.queue == queue and _DEAD not in s.lanes]
        return Depth(
            ready=len(held.ready(PRIORITIES)),
            unacked=sum(len(stream.in_hand) for stream in working),
            consumers=len(working),
            dead=len(held.ready((_DEAD,))),
            delivery_limit=self._delivery_limit,
            alarms=self.alarms,
            dead_limit=self._delivery_limit if held.ready((_DEAD,)) else None,
        )

    async def product(self) -> str:
        if self.away:
            raise _unreachable()
        return "a broker of no version"

    async def close(self) -> None:
        """Requeue unacked messages; the broker may be used again."""
        await asyncio.sleep(0)
        self._give_back()

    # What tests ask of it

    def will(self, *fates: Fate) -> None:
        self.fates.extend(fates)

    def let_arrive(self) -> None:
        late, self._late = self._late, []
        for queue, message, priority in late:
            self._keep(queue, message, priority)

    def drop_connections(self) -> None:
        """Every consumer loses its connection and has a new one at once: unacked messages are redelivered."""
        for stream in self._streams:
            stream.on_lost()
        self._give_back()

    def go_away(self) -> None:
        """Every connection is lost and refused until `come_back`; consumers wait for it."""
        self.away = True
        self.drop_connections()

    def come_back(self) -> None:
        self.away = False
        self.drop_connections()

    def wipe(self) -> None:
        """Lose every message, unacked or not; consumers stay."""
        self._queues.clear()
        self._late.clear()
        for stream in self._streams:
            stream.forget()

    def duplicate(self, queue: QueueName) -> None:
        """Keep each ready message twice, as after a repeated publish."""
        for kept in self._held(queue).ready(PRIORITIES):
            self._keep(queue, kept.message, kept.priority)

    def ready(self, queue: QueueName) -> list[Message]:
        """Ready messages, level by level, in the order of arrival."""
        return [kept.message for kept in self._held(queue).ready(PRIORITIES)]

    def unacked(self, queue: QueueName) -> list[Message]:
        return [d.message for stream in self._streams if stream.queue == queue for d in stream.in_hand]

    def dead(self, queue: QueueName) -> list[Message]:
        return [kept.message for kept in self._held(queue).ready((_DEAD,))]

    # Inside

    def _give_back(self) -> None:
        for stream in self._streams:
            self._return_all(stream)
        for queue in list(self._queues):
            self._pour(queue)

    def _held(self, queue: QueueName) -> _Held:
        return self._queues.setdefault(queue, _Held())

    def _keep(self, queue: QueueName, message: Message, priority: int) -> None:
        self._arrivals += 1
        self.published.append((queue, message, priority))
        self._held(queue).put(priority, _Kept(self._arrivals, message, priority))
        self._pour(queue)

    @asynccontextmanager
    async def _consuming(
        self, queue: QueueName, prefetch: int, lanes: Collection[int], on_lost: Callable[[], None] = unheard
    ) -> AsyncGenerator[AsyncIterator[Delivery]]:
        await asyncio.sleep(0)
        if self.away:
            raise _unreachable()
        stream = _Stream(self, queue, checked_prefetch(prefetch), tuple(lanes), on_lost)
        self._streams.append(stream)
        self._pour(queue)
        try:
            yield stream
        finally:
            self._streams.remove(stream)
            self._return_all(stream)
            self._pour(queue)

    def _pour(self, queue: QueueName) -> None:
        """Hand out ready messages while any consumer has room, to each in turn."""
        if self.away:
            return
        streams = deque(stream for stream in self._streams if stream.queue == queue)
        idle = 0
        while idle < len(streams):
            idle = 0 if self._hand_out(streams[0]) else idle + 1
            streams.rotate(-1)
        if streams:
            self._streams.sort(
                key=lambda stream: len(stream.in_hand)
            )  # the one with the fewest is served first next time

    def _hand_out(self, stream: "_Stream") -> bool:
        """One message of each lane that the stream has room for; whether there was any."""
        lanes = self._held(stream.queue).lanes
        open_ = [lane for lane in stream.lanes if lanes.get(lane) and stream.has_room(lane)]
        for lane in open_:
            place = int(self._clock.chance() * len(lanes[lane])) if self.out_of_order else 0
            stream.receive(_MemoryDelivery(stream, lane, lanes[lane].pop(place)))
        return bool(open_)

    def _return_all(self, stream: "_Stream") -> None:
        for delivery in stream.forget():
            self.give_back(delivery)

    def give_back(self, delivery: "_MemoryDelivery") -> None:
        """Requeue it, or dead-letter it after too many returns."""
        kept = delivery.kept
        kept.redelivered, kept.returns = True, kept.returns + 1
        limited = self._delivery_limit is not None and kept.returns > self._delivery_limit
        if limited:
            self.put_to_dead(delivery)
        else:
            self._held(delivery.queue).put(delivery.lane, kept)

    def put_to_dead(self, delivery: "_MemoryDelivery") -> None:
        if delivery.lane == _DEAD:
            return
        self._arrivals += 1
        buried = _Kept(self._arrivals, delivery.message, delivery.priority, dead_lettered=True)
        self._held(delivery.queue).put(_DEAD, buried)

    def settled(self, queue: QueueName) -> None:
        """A consumer has room again, or a message is ready again."""
        self._pour(queue)


class _Stream:
    """One consumer: its unacked messages, and those of them it has not taken yet."""

    def __init__(
        self,
        broker: MemoryBroker,
        queue: QueueName,
        prefetch: int,
        lanes: tuple[int, ...],
        on_lost: Callable[[], None],
    ) -> None:
        self.on_lost = on_lost
        self.broker, self.queue, self.prefetch, self.lanes = broker, queue, prefetch, lanes
        self.in_hand: list[_MemoryDelivery] = []
        self._drain: Drain[_MemoryDelivery] = Drain()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        await asyncio.sleep(0)
        return await anext(self._drain)

    def has_room(self, lane: int) -> bool:
        return sum(delivery.lane == lane for delivery in self.in_hand) < self.prefetch

    def receive(self, delivery: "_MemoryDelivery") -> None:
        self.in_hand.append(delivery)
        self._drain.put(max(delivery.lane, 0), delivery)

    def forget(self) -> "list[_MemoryDelivery]":
        """Clear what is unacked; the deliveries that were."""
        self._drain.clear()
        left, self.in_hand = self.in_hand, []
        return left


class _MemoryDelivery:
    """An unacked message."""

    def __init__(self, stream: _Stream, lane: int, kept: _Kept) -> None:
        self._stream, self._settled = stream, False
        self.lane, self.kept, self.queue = lane, kept, stream.queue
        self.message, self.priority = kept.message, kept.priority
        self.redelivered = kept.redelivered or HAD_HEADER in kept.message.headers
        self.dead_lettered = kept.dead_lettered or lane == _DEAD or DIED_HEADER in kept.message.headers

    async def ack(self) -> None:
        await self._let_go()
        self._stream.broker.settled(self.queue)

    async def requeue(self) -> None:
        await self._let_go()
        self._stream.broker.give_back(self)
        self._stream.broker.settled(self.queue)

    async def dead_letter(self) -> None:
        await self._let_go()
        self._stream.broker.put_to_dead(self)
        self._stream.broker.settled(self.queue)

    async def _let_go(self) -> None:
        assert not self._settled, "a delivery is settled once"
        await asyncio.sleep(0)
        if self not in self._stream.in_hand:
            raise BrokerUnreachable(
                f"the connection that brought a message of the queue {self.queue!r} is gone",
                mend="The broker delivers it again; nothing is to be done.",
            )
        self._settled = True
        self._stream.in_hand.remove(self)


_COPIES = {Fate.KEPT: 1, Fate.UNCONFIRMED_KEPT: 1, Fate.TWICE: 2}

_UNCONFIRMED = {Fate.UNCONFIRMED_KEPT, Fate.UNCONFIRMED_LOST, Fate.UNCONFIRMED_LATE}


def _unreachable() -> BrokerUnreachable:
    return BrokerUnreachable("the message broker in memory does not answer", mend="Let it come back.")
