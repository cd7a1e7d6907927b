"""Processes of one queue, each with a clock of its own and its own bad luck: where the queue's stories take place.

A process reaches tables, broker and blobs through wires that number its steps; a mishap befalls some of them. One that
has died does nothing any more, not even undo. Plain writes carry the stamp of their author's clock, as the driver does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from cql.driver.asynchronous import InTurn
from mailqueue.rabbitmq.codec import queued_of
from mailqueue.rabbitmq.mail_queue import Dequeued, MailQueue, open_queue
from model.errors import (
    BlobsUnreachable,
    BrokerUnreachable,
    DoubtfulWrite,
    MailmendError,
    NotEnoughReplicas,
    PublishFailed,
    TimedOut,
)
from model.ids import BlobId, QueueName
from model.operations import Applied, Change, Conditional, Put, Read, Remove, Scan, Seen, Write
from model.ports import AsyncTables, BlobKind, Blobs, Broker, Delivery, Depth, Message, StoredBlob, unheard
from model.queue.mails import PRIORITY_NORMAL
from model.schema.table import Row, Table
from tests.support.clock import VirtualClock
from tests.support.queue_mishaps import Died
from tests.support.queues import QUEUE, TwinQueue, next_of
from tests.support.skewed import SkewedClock

T = TypeVar("T")

TICK_SECONDS = 0.001
"""What a write takes: no two have the same stamp by chance."""

_TURNS = 60


class Side(Enum):
    """Whom a step of a process concerns."""

    READS = "reads of the tables"
    WRITES = "writes to the tables"
    BROKER = "the broker"
    BLOBS = "the blobs"


class Trouble(Enum):
    """What befalls a step."""

    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"
    REFUSED = "refused: surely not done"
    LOST = "no answer, and not done"
    DONE = "no answer, and done"


DEATHS = (Trouble.DIES_BEFORE, Trouble.DIES_AFTER)


@dataclass(frozen=True, slots=True)
class Mishap:
    """Befalls the steps number `first`, `first + 1`, ... (`times` of them) of those on a side, or on any (None)."""

    trouble: Trouble
    first: int
    times: int = 1
    side: Side | None = None

    def befalls(self, side: Side) -> bool:
        """Whether it is meant for such a step; what is only read is no step to die at, unless asked for."""
        return side is self.side or (self.side is None and side is not Side.READS)


@dataclass(slots=True)
class Fortune:
    """What befalls one process.

    Attributes:
        dead: whether it is gone.
        befell: on which sides something went wrong since `arm`.
        steps: what it did since then, other than reading.
    """

    mishaps: Sequence[Mishap] = ()
    dead: bool = False
    befell: set[Side] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def arm(self, *mishaps: Mishap) -> None:
        """From now on these are to come, and no others."""
        self.mishaps, self._counts = mishaps, [0] * len(mishaps)
        self.befell.clear()
        self.steps.clear()

    def meets(self, side: Side, what: str) -> Trouble | None:
        """What happens to the next step."""
        if self.dead:
            raise Died(what)
        if side is not Side.READS:
            self.steps.append(what)
        found = None
        for place, mishap in enumerate(self.mishaps):
            if mishap.befalls(side):
                number, self._counts[place] = self._counts[place], self._counts[place] + 1
                if mishap.first <= number < mishap.first + mishap.times:
                    found = found or mishap.trouble
        if found:
            self.befell.add(side)
        return found

    async def step(
        self, side: Side, what: str, carry_out: Callable[[], Awaitable[T]], errors: "Callable[[Trouble], MailmendError]"
    ) -> T:
        """Take the step, as fortune has it."""
        trouble = self.meets(side, what)
        if trouble is Trouble.DIES_BEFORE:
            self._die(what)
        if trouble in {None, Trouble.DIES_AFTER, Trouble.DONE}:
            answer = await carry_out()
            if trouble is None:
                return answer
        if trouble is Trouble.DIES_AFTER:
            self._die(what)
        assert trouble is not None
        raise errors(trouble)

    def _die(self, what: str) -> None:
        self.dead = True
        raise Died(what)


@dataclass(slots=True)
class WiredTables:
    """The tables as one process reaches them."""

    tables: AsyncTables
    clock: SkewedClock[VirtualClock]
    fortune: Fortune
    _stamped: int = 0

    async def read(self, read: Read) -> Sequence[Seen]:
        """Read."""
        return await self.fortune.step(Side.READS, "read", lambda: self.tables.read(read), _no_answer)

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """One after the other."""
        return [await _caught(self.read, read) for read in reads]

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Read; it may break off."""
        if self.fortune.meets(Side.READS, "scan"):
            raise TimedOut("no answer")
        async for row in self.tables.scan(scan):
            yield row

    async def write(self, write: Write) -> None:
        """Write, with a stamp."""
        what = f"{type(write).__name__} {write.table.spelling}"
        self.clock.clock.advance(TICK_SECONDS)
        stamped = self._with_stamp(write)
        await self.fortune.step(Side.WRITES, what, lambda: self.tables.write(stamped), _no_answer)

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """One after the other."""
        return [await _caught(self.write, write) for write in writes]

    async def attempt(self, write: Conditional) -> Applied:
        """Write, stamped by its ballot."""
        what = f"{type(write).__name__} {write.table.spelling}"
        self.clock.clock.advance(TICK_SECONDS)
        return await self.fortune.step(Side.WRITES, what, lambda: self.tables.attempt(write), _doubtful)

    def _with_stamp(self, write: Write) -> Write:
        if isinstance(write, Put | Change | Remove) and write.at is None:
            self._stamped = max(self.clock.micros(), self._stamped + 1)
            return replace(write, at=self._stamped)
        return write


class _LostConnection(BrokerUnreachable):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__("the connection is gone")
        self.trouble = trouble


@dataclass(slots=True)
class WiredDelivery:
    """A delivery as one process has it."""

    delivery: Delivery
    fortune: Fortune
    gone: bool = False

    @property
    def message(self) -> Message:
        """As it came."""
        return self.delivery.message

    @property
    def redelivered(self) -> bool:
        """As it came."""
        return self.delivery.redelivered

    @property
    def dead_lettered(self) -> bool:
        """As it came."""
        return self.delivery.dead_lettered

    @property
    def priority(self) -> int:
        """As it came."""
        return self.delivery.priority

    async def ack(self) -> None:
        """Ack."""
        await self._settle("ack", self.delivery.ack)

    async def requeue(self) -> None:
        """Requeue."""
        await self._settle("requeue", self.delivery.requeue)

    async def dead_letter(self) -> None:
        """Dead-letter."""
        await self._settle("dead letter", self.delivery.dead_letter)

    async def _settle(self, what: str, carry_out: Callable[[], Awaitable[None]]) -> None:
        """AMQP answers no ack: that one was lost shows when its connection is gone, and the message delivered again."""
        if self.gone:
            raise BrokerUnreachable("the connection is gone")
        try:
            await self.fortune.step(Side.BROKER, what, carry_out, _LostConnection)
        except _LostConnection as lost:
            self.gone = True
            if lost.trouble is not Trouble.DONE:
                await self.delivery.requeue()
            raise


@dataclass(slots=True)
class WiredBroker:
    """The broker as one process reaches it."""

    broker: Broker
    fortune: Fortune

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        """Publish."""
        await self.fortune.step(
            Side.BROKER, "publish", lambda: self.broker.publish(queue, message, priority), _not_published
        )

    @asynccontextmanager
    async def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> "AsyncIterator[AsyncIterator[Delivery]]":
        """Deliveries, each with this process's luck."""
        async with self.broker.deliveries(queue, prefetch, priorities, on_lost) as deliveries:
            yield self._wired(deliveries)

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """As they are."""
        return self.broker.dead_letters(queue, prefetch)

    async def depth(self, queue: QueueName) -> Depth:
        """As it is."""
        return await self.broker.depth(queue)

    async def close(self) -> None:
        """The twin stays."""

    async def _wired(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            yield WiredDelivery(delivery, self.fortune)


@dataclass(slots=True)
class WiredBlobs:
    """The blobs as one process reaches them."""

    blobs: Blobs
    fortune: Fortune

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        """Put."""
        return await self.fortune.step(Side.BLOBS, "put blob", lambda: self.blobs.put(data, kind), _no_blobs)

    async def get(self, blob_id: BlobId) -> bytes:
        """Get."""
        return await self.fortune.step(Side.READS, "get blob", lambda: self.blobs.get(blob_id), _no_blobs)

    async def delete(self, blob_id: BlobId) -> None:
        """Delete."""
        await self.fortune.step(Side.BLOBS, "delete blob", lambda: self.blobs.delete(blob_id), _no_blobs)

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        """Delete many."""
        await self.fortune.step(Side.BLOBS, "delete blobs", lambda: self.blobs.delete_all(blob_ids), _no_blobs)

    async def exists(self, blob_id: BlobId) -> bool:
        """Ask."""
        return await self.fortune.step(Side.READS, "look for blob", lambda: self.blobs.exists(blob_id), _no_blobs)

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Look."""
        return self.blobs.scan()


@dataclass(slots=True)
class Consumer:
    """A dequeue that goes on: its context, its mails, and those in hand that are not settled."""

    context: AbstractAsyncContextManager[AsyncIterator[Dequeued]]
    mails: AsyncIterator[Dequeued]
    held: list[Dequeued] = field(default_factory=list)


@dataclass(slots=True)
class Worker:
    """One process that has the queue open."""

    twin: TwinQueue
    clock: SkewedClock[VirtualClock]
    fortune: Fortune = field(default_factory=Fortune)
    consumer: Consumer | None = None
    _queue: MailQueue | None = None

    @property
    def queue(self) -> MailQueue:
        """The queue, as it is open here."""
        assert self._queue is not None, "it is started first"
        return self._queue

    async def start(self) -> None:
        """Open the queue; nothing goes wrong with that."""
        self.fortune = Fortune()
        self._queue = await open_queue(
            self.twin.name,
            WiredTables(InTurn(self.twin.memory), self.clock, self.fortune),
            WiredBroker(self.twin.broker, self.fortune),
            WiredBlobs(self.twin.blobs, self.fortune),
            self.clock,
            self.twin.configuration,
            own=self.twin.own,
            counts=self.twin.counted,
        )

    async def consume(self, prefetch: int) -> Consumer:
        """The dequeue that goes on, begun where there is none."""
        if self.consumer is None:
            context = self.queue.dequeue(prefetch)
            self.consumer = Consumer(context, await context.__aenter__())
        return self.consumer

    async def leave(self) -> None:
        """End the dequeue; what is in hand goes back."""
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
        """Leave the queue in good order."""
        self.fortune.arm()
        await self.leave()
        await self.queue.close()


async def taken(worker: Worker, most: int, prefetch: int = 3) -> list[Dequeued]:
    """Up to so many mails from the worker's dequeue."""
    consumer = await worker.consume(prefetch)
    found = list[Dequeued]()
    while len(found) < most and (one := await next_of(consumer.mails)):
        found.append(one)
        consumer.held.append(one)
    return found


def rows(twin: TwinQueue, table: Table) -> list[Row]:
    """Everything that a table shows."""
    return list(twin.memory.scan(Scan(table, table.names)))


def named(messages: Sequence[Message]) -> list[str]:
    """The names of the mails of some messages."""
    return [queued_of(message.body).mail.name for message in messages]


def dead(twin: TwinQueue) -> list[str]:
    """The names of the dead letters."""
    return named(twin.broker.dead(QUEUE))


async def _caught(carry_out: Callable[[Any], Awaitable[T]], operation: Any) -> "T | MailmendError":
    try:
        return await carry_out(operation)
    except MailmendError as error:
        return error


def _no_answer(trouble: Trouble) -> MailmendError:
    return NotEnoughReplicas("too few replicas") if trouble is Trouble.REFUSED else TimedOut("no answer")


def _doubtful(trouble: Trouble) -> MailmendError:
    return NotEnoughReplicas("too few replicas") if trouble is Trouble.REFUSED else DoubtfulWrite("no answer")


def _not_published(trouble: Trouble) -> MailmendError:
    refused = trouble is Trouble.REFUSED
    return PublishFailed("refused" if refused else "not confirmed", doubtful=not refused)


def _no_blobs(_: Trouble) -> MailmendError:
    return BlobsUnreachable("no answer from the blobs")
