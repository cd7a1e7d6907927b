"""Taking mails out of a queue: each delivery is looked up, judged, and handed to the consumer, or dealt with here.

Several are in hand at once, and each goes its own way: one whose bytes are slow, or whose look-up gets no answer, holds
up no other. What is ready is handed over by weight of its level. The only pressure back is the prefetch. No error of a
single mail ends the stream.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

from mailqueue.background import finished
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.broker.draining import Drain
from mailqueue.rabbitmq.codec import attempts_of, slice_of_message
from mailqueue.rabbitmq.look_up import Looking
from mailqueue.rabbitmq.parts import Parts
from mailqueue.rabbitmq.settle import Dequeued, Passage, Settlement, row_taken_back
from mailqueue.rabbitmq.verdicts import TREATMENTS, DeliveryVerdict, Settling, Sight, verdict_of
from model.backoff import LOOK_AGAIN
from model.errors import BrokerUnreachable, MailmendError
from model.ids import EnqueueId, QueueName
from model.instants import instant_of
from model.ports import Delivery
from model.queue.mails import QueuedMail
from model.queue.slices import slice_of

HOLD: Final = timedelta(minutes=5)
"""How long a delivery is held and looked up again while servers do not answer, before the broker has it back: brokers
dead-letter what comes back too often (a quorum queue of RabbitMQ 4 after 20 times)."""

FRESH: Final = timedelta(seconds=1)
"""How old a look may be when its mail is handed over; what waited longer for its consumer is looked up again."""

_LOG: Final = logging.getLogger("mailmend.queue")


@dataclass(frozen=True, slots=True)
class _Ready:
    """A mail to be handed over, and when it was looked up, in microseconds."""

    mail: Dequeued
    delivery: Delivery
    seen: Sight
    looked_at: int


@dataclass(frozen=True, slots=True)
class _Held:
    """A mail in hand: how often it was tried before, and what will have become of it."""

    attempts: int
    settlement: "asyncio.Future[Settlement]"


InHand = dict[EnqueueId, _Held]
"""What this process has of a queue, until it is settled."""


@dataclass(frozen=True, slots=True)
class Dequeueing:
    """Takes mails from one queue; several consumers at once may."""

    queue: QueueName
    parts: Parts
    in_hand: InHand = field(default_factory=dict)

    @asynccontextmanager
    async def mails(self, prefetch: int, priorities: Collection[int] | None) -> AsyncGenerator[AsyncIterator[Dequeued]]:
        """The mails, as they are ready. Whatever was not settled when the context is left is delivered again."""
        lost = partial(self.parts.counts.add, QueueCount.CONSUMER_LOST, self.queue)
        async with self.parts.broker.deliveries(self.queue, prefetch, priorities, lost) as deliveries:
            stream = _Stream(self)
            feeding = asyncio.ensure_future(stream.feed(deliveries))
            try:
                yield stream
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
                await stream.end()


class _Stream:
    """One consumer's mails."""

    def __init__(self, dequeueing: Dequeueing) -> None:
        self._queue, self._parts, self._in_hand = dequeueing.queue, dequeueing.parts, dequeueing.in_hand
        self._looking = Looking(dequeueing.queue, dequeueing.parts)
        self._ready: Drain[_Ready] = Drain()
        self._bringing: set[asyncio.Task[None]] = set()
        self._held: set[EnqueueId] = set()
        self._foreign_since: datetime | None = None

    def __aiter__(self) -> AsyncIterator[Dequeued]:
        return self

    async def __anext__(self) -> Dequeued:
        while True:
            ready = await self._ready.take()
            if await self._still_waits(ready):
                self._parts.counts.add(QueueCount.DELIVERED, self._queue)
                return ready.mail

    async def feed(self, deliveries: AsyncIterator[Delivery]) -> None:
        """Look every delivery up, each in a task of its own; the broker's prefetch bounds how many there are."""
        try:
            async for delivery in deliveries:
                task = asyncio.ensure_future(self._brought(delivery))
                self._bringing.add(task)
                task.add_done_callback(self._brought_to_an_end)
            while self._bringing:
                await asyncio.wait(self._bringing)
            self._ready.fail(StopAsyncIteration())
        except Exception as error:  # noqa: BLE001 - whoever asks for the next mail is told
            self._ready.fail(error)

    def _brought_to_an_end(self, task: asyncio.Task[None]) -> None:
        self._bringing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("queue %s: a delivery is left in hand", self._queue, exc_info=task.exception())

    async def end(self) -> None:
        """Let go of what was not settled; the broker delivers it again."""
        bringing = tuple(self._bringing)
        for task in bringing:
            task.cancel()
        await asyncio.gather(*bringing, return_exceptions=True)
        await self._looking.close()
        for enqueue_id in tuple(self._held):
            self._settled(enqueue_id, Settlement.RETURNED)

    async def _brought(self, delivery: Delivery) -> None:
        """Look up, judge and treat one delivery."""
        read = self._looking.read(delivery)
        if read.queued is None:
            await self._treat(DeliveryVerdict.BAD, read, delivery)
            return
        enqueue_id = read.queued.enqueue_id
        while first := self._in_hand.get(enqueue_id):
            if await self._comes_again(first, delivery):
                await self._treat(DeliveryVerdict.DELAYED, read, delivery)
                return
        self._take_in_hand(enqueue_id, delivery)
        verdict = DeliveryVerdict.LATER
        try:
            verdict = await self._judged(read.queued, delivery)
        finally:
            if verdict is not DeliveryVerdict.DELIVER:
                self._settled(enqueue_id, Settlement.RETURNED)

    async def _comes_again(self, first: _Held, delivery: Delivery) -> bool:
        """Whether the mail of a second copy was delayed, once the first, which this process has in hand, is settled.

        A publish that was repeated, or a connection that was lost, brings a mail twice; its consumer need not work
        twice for that. A copy of the same try as one that is delayed by now is not needed; a later try is.

        However long that takes: until then the copy takes one of its own consumer's `prefetch`, for the worse is a mail
        that is sent twice. It holds up nobody for ever, as the first is settled or goes back with its consumer.
        """
        await asyncio.wait((first.settlement,))
        return first.settlement.result() is Settlement.RETRIED and attempts_of(delivery.message) == first.attempts

    async def _judged(self, queued: QueuedMail, delivery: Delivery) -> DeliveryVerdict:
        """Look until everything has answered, or the broker is to have the delivery back; treat it; what it was."""
        begun = self._parts.clock.micros()
        for tries in count(1):
            looked_at = self._parts.clock.micros()
            seen = await self._looking.sight(queued, delivery)
            verdict = verdict_of(seen)
            if verdict is not DeliveryVerdict.LATER or looked_at - begun >= HOLD / _MICRO:
                break
            await self._parts.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())
        if verdict is DeliveryVerdict.DELIVER:
            self._hand_over(_Ready(self._dequeued(queued, seen, delivery), delivery, seen, looked_at))
            await self._tell_foreign(delivery)
        else:
            await self._treat(verdict, seen, delivery)
        return verdict

    async def _treat(self, verdict: DeliveryVerdict, seen: Sight, delivery: Delivery) -> None:
        treatment = TREATMENTS[verdict]
        if treatment.told:
            name = seen.enqueue_id or "whose name is unknown"
            _LOG.warning("queue %s: mail %s %s%s", self._queue, name, treatment.told, _because(seen))
        self._parts.counts.add(treatment.count, self._queue)
        told = await self._tell(delivery, treatment.settling)
        if treatment.takes_row and seen.queued and told:
            await row_taken_back(self._queue, self._parts, seen.queued, slice_of_message(delivery.message))
        if treatment.forgets_blobs and seen.queued:
            await self._parts.tidying.add(seen.queued.blobs, dequeued=False)

    async def _tell_foreign(self, delivery: Delivery) -> None:
        """Say once in each slice of time that another program enqueues here: its mails are in nobody's tallies."""
        now = slice_of(instant_of(self._parts.clock.micros()), self._parts.slicing.window)
        if slice_of_message(delivery.message) is None and self._foreign_since != now:
            self._foreign_since = now
            await self._parts.afterwards.add(lambda: self._parts.view.foreign(self._queue))

    async def _tell(self, delivery: Delivery, settling: Settling) -> bool:
        """Whether the broker was told; one that is gone delivers again: then all is looked up anew."""
        try:
            await _TELLING[settling](delivery)
        except BrokerUnreachable as error:
            _LOG.info("queue %s: %s", self._queue, error.what)
            return False
        return True

    def _take_in_hand(self, enqueue_id: EnqueueId, delivery: Delivery) -> None:
        settlement = asyncio.get_running_loop().create_future()
        self._in_hand[enqueue_id] = _Held(attempts_of(delivery.message), settlement)
        self._held.add(enqueue_id)

    def _dequeued(self, queued: QueuedMail, seen: Sight, delivery: Delivery) -> Dequeued:
        enqueue_id = queued.enqueue_id
        settled = partial(self._settled, enqueue_id)
        return Dequeued(Passage(self._queue, self._parts, delivery, queued, settled), seen.content)

    def _hand_over(self, ready: _Ready) -> None:
        self._ready.put(ready.delivery.priority, ready)

    def _settled(self, enqueue_id: EnqueueId, outcome: Settlement) -> None:
        if enqueue_id in self._held:
            self._held.discard(enqueue_id)
            self._in_hand.pop(enqueue_id).settlement.set_result(outcome)

    async def _still_waits(self, ready: _Ready) -> bool:
        """Whether the mail may be handed over: what waited for its consumer may have been deleted meanwhile."""
        if self._parts.clock.micros() - ready.looked_at <= FRESH / _MICRO:
            return True
        try:
            marked = await self._looking.marked(ready.mail.queued)
        except MailmendError:
            return True  # it waited when it was looked up; whether it can be marked, its ack will show
        except asyncio.CancelledError:
            self._hand_over(ready)
            raise
        if marked:
            self._settled(ready.mail.enqueue_id, Settlement.ACKED)
            await finished(self._treat(DeliveryVerdict.FILTERED, ready.seen, ready.delivery))
        return not marked


def _because(seen: Sight) -> str:
    return f": {seen.silence}" if seen.silence else ""


_MICRO: Final = timedelta(microseconds=1)

_TELLING: Final[Mapping[Settling, Callable[[Delivery], Awaitable[None]]]] = {
    Settling.ACK: lambda delivery: delivery.ack(),
    Settling.REQUEUE: lambda delivery: delivery.requeue(),
    Settling.DEAD_LETTER: lambda delivery: delivery.dead_letter(),
}
