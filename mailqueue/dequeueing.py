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
from datetime import timedelta
from itertools import count
from typing import Final

from mailqueue.afterwards import finished
from mailqueue.contents import forget
from mailqueue.draining import Drain
from mailqueue.looking import Looking, attempts_of
from mailqueue.metrics import Count
from mailqueue.parts import Parts
from mailqueue.ports import Delivery
from mailqueue.settling import Dequeued, Passage, Settlement
from mailqueue.verdicts import TREATMENTS, Settling, Sight, Verdict, verdict_of
from model.backoff import LOOK_AGAIN
from model.errors import BrokerUnreachable, MailmendError
from model.ids import EnqueueId, QueueName

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
        async with self.parts.broker.deliveries(self.queue, prefetch, priorities) as deliveries:
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

    def __aiter__(self) -> AsyncIterator[Dequeued]:
        return self

    async def __anext__(self) -> Dequeued:
        while True:
            ready = await self._ready.take()
            if await self._still_waits(ready):
                self._parts.counts.add(Count.DELIVERED, self._queue)
                return ready.mail

    async def feed(self, deliveries: AsyncIterator[Delivery]) -> None:
        """Look every delivery up, each in a task of its own; the broker's prefetch bounds how many there are."""
        try:
            async for delivery in deliveries:
                task = asyncio.ensure_future(self._brought(delivery))
                self._bringing.add(task)
                task.add_done_callback(self._bringing.discard)
            while self._bringing:
                await asyncio.wait(self._bringing)
            self._ready.fail(StopAsyncIteration())
        except Exception as error:  # noqa: BLE001 - whoever asks for the next mail is told
            self._ready.fail(error)

    async def end(self) -> None:
        """Let go of what was not settled; the broker delivers it again."""
        bringing = tuple(self._bringing)
        for task in bringing:
            task.cancel()
        await asyncio.gather(*bringing, return_exceptions=True)
        for enqueue_id in tuple(self._held):
            self._settled(enqueue_id, Settlement.RETURNED)

    async def _brought(self, delivery: Delivery) -> None:
        """Look up, judge and treat one delivery."""
        begun = self._parts.clock.micros()
        for tries in count(1):
            seen = await self._looking.sight(delivery)
            verdict = await self._judged(seen, delivery)
            if verdict is Verdict.LATER and not self._held_too_long(begun):
                await self._parts.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())
            elif verdict:
                await self._treat(verdict, seen, delivery)
                return

    async def _judged(self, seen: Sight, delivery: Delivery) -> Verdict | None:
        """The verdict; None for a copy that is to be looked up again, now that the first copy is settled."""
        verdict = verdict_of(seen)
        first = self._in_hand.get(seen.enqueue_id) if seen.enqueue_id else None
        return await self._verdict_after(first, delivery) if verdict is Verdict.DELIVER and first else verdict

    async def _verdict_after(self, first: _Held, delivery: Delivery) -> Verdict | None:
        """What a second copy is once the first, which this process has in hand, is settled; None: it is to be seen.

        A publish that was repeated, or a connection that was lost, brings a mail twice; its consumer need not work
        twice for that. A copy of the same try as one that is delayed by now is not needed: the mail comes again.
        """
        await asyncio.wait((first.settlement,))
        is_same_try = attempts_of(delivery) == first.attempts
        return Verdict.DELAYED if first.settlement.result() is Settlement.RETRIED and is_same_try else None

    async def _treat(self, verdict: Verdict, seen: Sight, delivery: Delivery) -> None:
        treatment = TREATMENTS[verdict]
        if treatment.told:
            name = seen.enqueue_id or "whose name is unknown"
            _LOG.warning("queue %s: mail %s %s%s", self._queue, name, treatment.told, _because(seen))
        if treatment.settling is Settling.NOTHING:
            self._hand_over(seen, delivery)
            return
        self._parts.counts.add(treatment.count, self._queue)
        await self._tell(delivery, treatment.settling)
        if treatment.forgets_blobs and seen.queued:
            blobs = seen.queued.blobs
            await self._parts.afterwards.add(lambda: forget(self._parts.blobs, blobs))

    async def _tell(self, delivery: Delivery, settling: Settling) -> None:
        """A broker that is gone delivers again: then all is looked up anew."""
        try:
            await _TELLING[settling](delivery)
        except BrokerUnreachable as error:
            _LOG.info("queue %s: %s", self._queue, error.what)

    def _hand_over(self, seen: Sight, delivery: Delivery) -> None:
        assert seen.queued is not None, "only what was read is delivered"
        queued = seen.queued
        settlement = asyncio.get_running_loop().create_future()
        self._in_hand[queued.enqueue_id] = _Held(attempts_of(delivery), settlement)
        self._held.add(queued.enqueue_id)
        passage = Passage(
            self._queue, self._parts, delivery, queued, lambda outcome: self._settled(queued.enqueue_id, outcome)
        )
        ready = _Ready(Dequeued(passage, seen.content), delivery, seen, self._parts.clock.micros())
        self._ready.put(delivery.priority, ready)

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
            self._ready.put(ready.delivery.priority, ready)
            raise
        if marked:
            self._settled(ready.mail.enqueue_id, Settlement.ACKED)
            await finished(self._treat(Verdict.FILTERED, ready.seen, ready.delivery))
        return not marked

    def _held_too_long(self, begun: int) -> bool:
        return self._parts.clock.micros() - begun >= HOLD / _MICRO


def _because(seen: Sight) -> str:
    return f": {seen.silence}" if seen.silence else ""


_MICRO: Final = timedelta(microseconds=1)

_TELLING: Final[Mapping[Settling, Callable[[Delivery], Awaitable[None]]]] = {
    Settling.ACK: lambda delivery: delivery.ack(),
    Settling.REQUEUE: lambda delivery: delivery.requeue(),
    Settling.DEAD_LETTER: lambda delivery: delivery.dead_letter(),
}
