"""Processes of one queue, each with a clock of its own and its own bad luck: where the queue's stories take place.

A process reaches tables, broker and blobs over a wire that numbers its steps; a mishap befalls some of them. One that
has died does nothing any more, not even undo. Plain writes carry the stamp of their author's clock, as the driver does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.codec import queued_of
from mailmend.mailqueue.queue import SubQueueOf
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rabbitmq.unacked import UnackedMail
from mailmend.model.operations import Change, Put, Remove
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.queue_wires import Errors, Side, StepFault, WiredBlobs, WiredBroker, WiredTables
from tests.support.queues import QUEUE, TwinQueue, next_of
from tests.support.skewed import SkewedClock

T = TypeVar("T")

TICK_SECONDS = 0.001
"""What a write takes: no two have the same stamp by chance."""

_TURNS = 60

DEATHS = (StepFault.DIES_BEFORE, StepFault.DIES_AFTER)


class Died(BaseException):
    """The process is gone."""


async def outlived(story: Coroutine[Any, Any, T]) -> T | None:
    """What the story comes to; None where its process died."""
    try:
        return await story
    except Died:
        return None


@dataclass(frozen=True, slots=True)
class QueueMishap:
    """Befalls the steps number `first`, `first + 1`, ... (`times` of them) of those on a side, or on any (None)."""

    fault: StepFault
    first: int
    times: int = 1
    side: Side | None = None

    def befalls(self, side: Side) -> bool:
        """Whether it is meant for such a step; what is only read is no step to die at, unless asked for."""
        return side is self.side or (self.side is None and side is not Side.READS)


@dataclass(slots=True)
class Fortune:
    """The wire of one process: what befalls it.

    Attributes:
        dead: whether it is gone.
        befell: on which sides something went wrong since `arm`.
        steps: what it did since then, other than reading.
        counts: how many steps each mishap might have befallen.
    """

    mishaps: Sequence[QueueMishap] = ()
    dead: bool = False
    befell: set[Side] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def arm(self, *mishaps: QueueMishap) -> None:
        self.mishaps, self.counts = mishaps, [0] * len(mishaps)
        self.befell.clear()
        self.steps.clear()

    def dies_before(self, step: int) -> "Fortune":
        self.arm(QueueMishap(StepFault.DIES_BEFORE, step))
        return self

    def meets(self, side: Side, what: str) -> StepFault | None:
        """What happens to the next step.

        Raises:
            Died: before it.
        """
        if self.dead:
            raise Died(what)
        found = None
        for place, mishap in enumerate(self.mishaps):
            if mishap.befalls(side):
                number, self.counts[place] = self.counts[place], self.counts[place] + 1
                if mishap.first <= number < mishap.first + mishap.times:
                    found = found or mishap.fault
        if side is not Side.READS:
            self.steps.append(what)
        if found:
            self.befell.add(side)
        if found is StepFault.DIES_BEFORE:
            self._die(what)
        return found

    async def step(self, side: Side, what: str, carry_out: Callable[[], Awaitable[T]], errors: Errors) -> T:
        fault = self.meets(side, what)
        if fault in {None, StepFault.DIES_AFTER, StepFault.DONE}:
            answer = await carry_out()
            if fault is None:
                return answer
        if fault is StepFault.DIES_AFTER:
            self._die(what)
        assert fault is not None
        raise errors(fault)

    def came(self, what: str) -> None:
        """Nothing can befall what comes by itself."""

    def _die(self, what: str) -> None:
        self.dead = True
        raise Died(what)


@dataclass(slots=True)
class Stamps:
    """Of plain writes, by the clock of their author; each takes a tick of everybody's time."""

    clock: SkewedClock[VirtualClock]
    _last: int = 0

    def __call__(self, write: Any) -> Any:
        self.clock.clock.advance(TICK_SECONDS)
        if isinstance(write, Put | Change | Remove) and write.at is None:
            self._last = max(self.clock.micros(), self._last + 1)
            return replace(write, at=self._last)
        return write


@dataclass(slots=True)
class Consumer:
    """A dequeue that goes on: its context, its mails, and those in hand that are not settled."""

    context: AbstractAsyncContextManager[AsyncIterator[UnackedMail]]
    mails: AsyncIterator[UnackedMail]
    held: list[UnackedMail] = field(default_factory=list)


@dataclass(slots=True)
class Worker:
    """One process that has the queue open.

    Attributes:
        sub_queue_of: by what its consumer keeps backlogs; None: it keeps none.
    """

    twin: TwinQueue
    clock: SkewedClock[VirtualClock]
    fortune: Fortune = field(default_factory=Fortune)
    consumer: Consumer | None = None
    sub_queue_of: SubQueueOf | None = None
    _queue: RabbitMailQueue | None = None

    @property
    def queue(self) -> RabbitMailQueue:
        assert self._queue is not None, "it is started first"
        return self._queue

    async def start(self) -> None:
        self.fortune = Fortune()
        self._queue = await open_queue(
            self.twin.name,
            WiredTables(InTurn(self.twin.memory), self.fortune, Stamps(self.clock)),
            WiredBroker(self.twin.broker, self.fortune),
            WiredBlobs(self.twin.blobs, self.fortune),
            self.clock,
            self.twin.configuration,
            own=self.twin.own,
            counts=self.twin.counted,
        )
        self.fortune.arm()

    async def consume(self, prefetch: int) -> Consumer:
        """The dequeue that goes on, begun where there is none."""
        if self.consumer is None:
            context = self.queue.dequeue(prefetch, sub_queue_of=self.sub_queue_of)
            self.consumer = Consumer(context, await context.__aenter__())
        return self.consumer

    async def leave(self) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            with suppress(Died):
                await consumer.context.__aexit__(None, None, None)

    async def restart(self) -> None:
        """It died: its connections are gone, and a new one comes up in its place."""
        self.fortune.dead = True
        await self.leave()
        await self.start()

    async def settled(self) -> None:
        """Give what nobody waits for the time to come to its end."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.fortune.arm()
        await self.leave()
        await self.queue.close()


async def working(twin: TwinQueue, ahead: timedelta = timedelta(0)) -> Worker:
    """A process that has the queue open, its clock so far ahead of the twin's."""
    worker = Worker(twin, SkewedClock(twin.clock, ahead))
    await worker.start()
    return worker


async def taken(worker: Worker, most: int, prefetch: int = 3) -> list[UnackedMail]:
    """Up to so many mails from the worker's dequeue."""
    consumer = await worker.consume(prefetch)
    found = list[UnackedMail]()
    while len(found) < most and (one := await next_of(consumer.mails)):
        found.append(one)
        consumer.held.append(one)
    return found


def named(messages: Sequence[Message]) -> list[str]:
    return [queued_of(message.body).mail.name for message in messages]


def dead(twin: TwinQueue) -> list[str]:
    return named(twin.broker.dead(QUEUE))
