"""Tables, broker and blobs as one process reaches them: over a wire on which something may befall each step.

What a wire does with a step is its own affair: let it pass, lose it, be late, let the process die.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.broker import Broker, Delivery, Depth, Message, unheard
from mailmend.mailqueue.concurrency import all_of, ended, finished
from mailmend.mailqueue.rules.mails import PRIORITY_NORMAL
from mailmend.model.blobs import BlobKind, Blobs, BlobStore
from mailmend.model.errors import (
    BlobsUnreachable,
    BrokerUnreachable,
    DoubtfulWrite,
    MailmendError,
    NotEnoughReplicas,
    PublishFailed,
    TimedOut,
)
from mailmend.model.ids import BlobId, QueueName
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row

T = TypeVar("T")


class Side(Enum):
    """Whom a step of a process concerns."""

    READS = "reads of the tables"
    WRITES = "writes to the tables"
    BROKER = "the broker"
    BLOBS = "the blobs"


class StepFault(Enum):
    """What befalls a step."""

    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"
    REFUSED = "refused: surely not done"
    LOST = "no answer, and not done"
    DONE = "no answer, and done"


Errors = Callable[[StepFault], MailmendError]
"""What whoever takes a step is told of a trouble."""


class QueueWire(Protocol):
    """Carries the steps of one process."""

    async def step(self, side: Side, what: str, carry_out: Callable[[], Awaitable[T]], errors: Errors) -> T: ...

    def came(self, what: str) -> None:
        """Something came by itself."""


@dataclass(slots=True)
class WiredTables:
    """The tables as one process reaches them.

    Attributes:
        stamped: what becomes of a write before it is sent.
    """

    tables: AsyncTables
    wire: QueueWire
    stamped: Callable[[Any], Any] = lambda write: write

    async def read(self, read: Read) -> Sequence[Seen]:
        return await self.wire.step(Side.READS, "read", lambda: self.tables.read(read), _no_answer)

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        return [await _caught(self.read, read) for read in reads]

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:

        async def rows() -> list[Row]:
            return [row async for row in self.tables.scan(scan)]

        for row in await self.wire.step(Side.READS, "scan", rows, _no_answer):
            yield row

    async def write(self, write: Write) -> None:
        stamped = self.stamped(write)
        await self.wire.step(Side.WRITES, name_of(write), lambda: self.tables.write(stamped), _no_answer)

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """One after the other, so that the process may die between two."""
        return [await _caught(self.write, write) for write in writes]

    async def attempt(self, write: Conditional) -> Applied:
        stamped = self.stamped(write)
        return await self.wire.step(Side.WRITES, name_of(write), lambda: self.tables.attempt(stamped), _doubtful)


@dataclass(slots=True)
class WiredDelivery:
    """A delivery as one process has it."""

    delivery: Delivery
    wire: QueueWire
    message: Message = field(init=False)
    redelivered: bool = field(init=False)
    dead_lettered: bool = field(init=False)
    priority: int = field(init=False)
    gone: bool = False

    def __post_init__(self) -> None:
        came = self.delivery
        self.message, self.priority = came.message, came.priority
        self.redelivered, self.dead_lettered = came.redelivered, came.dead_lettered

    async def ack(self) -> None:
        await self._settle("ack", self.delivery.ack)

    async def requeue(self) -> None:
        await self._settle("requeue", self.delivery.requeue)

    async def dead_letter(self) -> None:
        await self._settle("dead letter", self.delivery.dead_letter)

    async def _settle(self, what: str, carry_out: Callable[[], Awaitable[None]]) -> None:
        """AMQP answers no ack: that one was lost shows when its connection is gone, and the message delivered again."""
        if self.gone:
            raise BrokerUnreachable("the connection is gone")
        try:
            await self.wire.step(Side.BROKER, what, carry_out, _LostConnection)
        except _LostConnection as lost:
            self.gone = True
            if lost.fault is not StepFault.DONE:
                await self.delivery.requeue()
            raise


@dataclass(slots=True)
class WiredBroker:
    """The broker as one process reaches it."""

    broker: Broker
    wire: QueueWire

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        await self.wire.step(
            Side.BROKER, "publish", lambda: self.broker.publish(queue, message, priority), _not_published
        )

    async def bury(self, queue: QueueName, message: Message) -> None:
        await self.wire.step(Side.BROKER, "bury", lambda: self.broker.bury(queue, message), _not_published)

    @asynccontextmanager
    async def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> "AsyncIterator[AsyncIterator[Delivery]]":
        async with self.broker.deliveries(queue, prefetch, priorities, on_lost) as deliveries:
            yield self._wired(deliveries)

    @asynccontextmanager
    async def dead_letters(self, queue: QueueName, prefetch: int) -> "AsyncIterator[AsyncIterator[Delivery]]":
        async with self.broker.dead_letters(queue, prefetch) as letters:
            yield self._wired(letters)

    async def depth(self, queue: QueueName) -> Depth:
        return await self.broker.depth(queue)

    async def product(self) -> str:
        return await self.broker.product()

    async def close(self) -> None:
        """Whoever has made the broker closes it."""

    async def _wired(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            self.wire.came("delivery")
            yield WiredDelivery(delivery, self.wire)


@dataclass(slots=True)
class WiredBlobs:
    """The blobs as one process reaches them."""

    blobs: Blobs
    wire: QueueWire

    @property
    def store(self) -> BlobStore:
        """Of a collection, whose steps in tables are those of the tables."""
        return cast("NamedBlobs", self.blobs).store

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        return await self.wire.step(Side.BLOBS, "put blob", lambda: self.blobs.put(data, kind), _no_blobs)

    async def put_all(self, contents: Sequence[tuple[bytes, BlobKind]]) -> Sequence[BlobId]:
        """A step for each of them, as stores have it that keep one by a request: a process may end between two."""
        putting = [asyncio.ensure_future(self.put(*content)) for content in contents]
        try:
            return await asyncio.gather(*putting)
        except BaseException:
            await finished(self._unput(putting))
            raise

    async def _unput(self, putting: "Sequence[asyncio.Future[BlobId]]") -> None:
        for put in putting:
            put.cancel()
        await ended(tuple(putting))
        for put in putting:
            if not put.cancelled() and put.exception() is None:
                with suppress(MailmendError):
                    await self.delete(put.result())

    async def get(self, blob_id: BlobId) -> bytes:
        return await self.wire.step(Side.READS, "get blob", lambda: self.blobs.get(blob_id), _no_blobs)

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        return await all_of(blob_ids, self.get, len(blob_ids))

    async def delete(self, blob_id: BlobId) -> None:
        await self.wire.step(Side.BLOBS, "delete blob", lambda: self.blobs.delete(blob_id), _no_blobs)

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        await self.wire.step(Side.BLOBS, "delete blobs", lambda: self.blobs.delete_all(blob_ids), _no_blobs)

    async def exists(self, blob_id: BlobId) -> bool:
        return await self.wire.step(Side.READS, "look for blob", lambda: self.blobs.exists(blob_id), _no_blobs)


class _LostConnection(BrokerUnreachable):
    def __init__(self, fault: StepFault) -> None:
        super().__init__("the connection is gone")
        self.fault = fault


async def _caught(carry_out: Callable[[Any], Awaitable[T]], operation: Any) -> "T | MailmendError":
    try:
        return await carry_out(operation)
    except MailmendError as error:
        return error


def name_of(write: Write | Conditional) -> str:
    return f"{type(write).__name__} {write.table.spelling}"


def _no_answer(fault: StepFault) -> MailmendError:
    return NotEnoughReplicas("too few replicas") if fault is StepFault.REFUSED else TimedOut("no answer")


def _doubtful(fault: StepFault) -> MailmendError:
    return NotEnoughReplicas("too few replicas") if fault is StepFault.REFUSED else DoubtfulWrite("no answer")


def _not_published(fault: StepFault) -> MailmendError:
    refused = fault is StepFault.REFUSED
    return PublishFailed("refused" if refused else "not confirmed", doubtful=not refused)


def _no_blobs(_: StepFault) -> MailmendError:
    return BlobsUnreachable("no answer from the blobs")
