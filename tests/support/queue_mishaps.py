"""Processes of a queue that die, and servers that fail, at any step: what queue tests injure their twins with.

A process that has died does nothing any more, not even undo: every later step of it dies too, as after SIGKILL.
"""

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cql.driver.asynchronous import InTurn
from cql.statements import Operation
from mailqueue.blobs.memory import BlobCall, BlobVerb
from mailqueue.rabbitmq.mail_queue import MailQueue, open_queue
from model.errors import BlobsUnreachable, MailmendError, TimedOut
from model.ids import BlobId, QueueName
from model.operations import Applied, Conditional, Read, Scan, Seen, Write
from model.ports import AsyncTables, BlobKind, Blobs, Broker, Delivery, Depth, Message, StoredBlob, unheard
from model.queue.mails import PRIORITY_NORMAL
from model.schema.table import Row, Table
from tests.support.queues import TwinQueue

T = TypeVar("T")

FAR = 10_000
"""More steps than any story takes: who is given this many lives."""


class Died(BaseException):
    """The process is gone."""


async def outlived(story: Coroutine[Any, Any, T]) -> T | None:
    """What the story comes to; None where its process died."""
    try:
        return await story
    except Died:
        return None


@dataclass(slots=True)
class Life:
    """How many steps that others see a process still takes.

    Attributes:
        steps: what it did, for tests that ask.
    """

    left: int = FAR
    steps: list[str] = field(default_factory=list)

    def step(self, what: str) -> None:
        """Take one, or die."""
        if self.left <= 0:
            raise Died(what)
        self.left -= 1
        self.steps.append(what)

    def done(self, what: str) -> None:
        """The step has been taken; whoever is told so may be another kind of life."""

    def look(self) -> None:
        """The dead see nothing either."""
        if self.left <= 0:
            raise Died("look")


@dataclass(slots=True)
class MortalTables:
    """The tables, as a process sees them that may die before any write."""

    tables: AsyncTables
    life: Life

    async def read(self, read: Read) -> Sequence[Seen]:
        """Read."""
        self.life.look()
        return await self.tables.read(read)

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """Read."""
        self.life.look()
        return await self.tables.read_all(reads)

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Read."""
        self.life.look()
        async for row in self.tables.scan(scan):
            yield row

    async def write(self, write: Write) -> None:
        """Write, or die."""
        what = f"{type(write).__name__} {write.table.spelling}"
        self.life.step(what)
        await self.tables.write(write)
        self.life.done(what)

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """One after the other, so that it may die between two."""
        for write in writes:
            await self.write(write)
        return [None] * len(writes)

    async def attempt(self, write: Conditional) -> Applied:
        """Write, or die."""
        what = f"{type(write).__name__} {write.table.spelling}"
        self.life.step(what)
        applied = await self.tables.attempt(write)
        self.life.done(what)
        return applied


@dataclass(slots=True)
class MortalDelivery:
    """A delivery in the hand of a process that may die before it settles it."""

    delivery: Delivery
    life: Life

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
        """Ack, or die."""
        self.life.step("ack")
        await self.delivery.ack()
        self.life.done("ack")

    async def requeue(self) -> None:
        """Requeue, or die."""
        self.life.step("requeue")
        await self.delivery.requeue()
        self.life.done("requeue")

    async def dead_letter(self) -> None:
        """Dead-letter, or die."""
        self.life.step("dead letter")
        await self.delivery.dead_letter()
        self.life.done("dead letter")


@dataclass(slots=True)
class MortalBroker:
    """The broker, as a process sees it that may die before any publish."""

    broker: Broker
    life: Life

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        """Publish, or die."""
        self.life.step("publish")
        await self.broker.publish(queue, message, priority)
        self.life.done("publish")

    @asynccontextmanager
    async def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> "AsyncIterator[AsyncIterator[Delivery]]":
        """Deliveries, each mortal."""
        async with self.broker.deliveries(queue, prefetch, priorities, on_lost) as deliveries:
            yield self._mortal(deliveries)

    @asynccontextmanager
    async def dead_letters(self, queue: QueueName, prefetch: int) -> "AsyncIterator[AsyncIterator[Delivery]]":
        """Dead letters, each mortal."""
        async with self.broker.dead_letters(queue, prefetch) as letters:
            yield self._mortal(letters)

    async def depth(self, queue: QueueName) -> Depth:
        """As it is."""
        return await self.broker.depth(queue)

    async def close(self) -> None:
        """The twin stays."""

    async def _mortal(self, deliveries: AsyncIterator[Delivery]) -> AsyncIterator[Delivery]:
        async for delivery in deliveries:
            self.life.done("delivery")
            yield MortalDelivery(delivery, self.life)


@dataclass(slots=True)
class MortalBlobs:
    """The blobs, as a process sees them that may die before it puts or deletes one."""

    blobs: Blobs
    life: Life

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        """Put, or die."""
        self.life.step("put blob")
        blob_id = await self.blobs.put(data, kind)
        self.life.done("put blob")
        return blob_id

    async def get(self, blob_id: BlobId) -> bytes:
        """Get."""
        self.life.look()
        return await self.blobs.get(blob_id)

    async def delete(self, blob_id: BlobId) -> None:
        """Delete, or die."""
        self.life.step("delete blob")
        await self.blobs.delete(blob_id)
        self.life.done("delete blob")

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        """Delete many, or die."""
        self.life.step("delete blobs")
        await self.blobs.delete_all(blob_ids)
        self.life.done("delete blobs")

    async def exists(self, blob_id: BlobId) -> bool:
        """Ask."""
        self.life.look()
        return await self.blobs.exists(blob_id)

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Look."""
        return self.blobs.scan()


async def mortal_process(twin: TwinQueue, life: Life) -> MailQueue:
    """The queue as one more process has it, whose life begins when it is open."""
    left, life.left = life.left, FAR
    opened = await open_queue(
        twin.name,
        MortalTables(InTurn(twin.memory), life),
        MortalBroker(twin.broker, life),
        MortalBlobs(twin.blobs, life),
        twin.clock,
        twin.configuration,
        own=twin.own,
        counts=twin.counted,
    )
    life.left = left
    life.steps.clear()
    return opened


Refuses = Callable[[Operation], bool]


@dataclass(slots=True)
class Refusing:
    """What a server does not do: installed on twins, taken off by `mend`.

    Attributes:
        tables: which operations get no answer.
        blobs: which calls get none.
        done_all_the_same: whether what got no answer was carried out.
    """

    twin: TwinQueue
    tables: Refuses = lambda _: False
    blobs: Callable[[BlobCall], bool] = lambda _: False
    done_all_the_same: bool = False
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Stand before the twins."""
        self.twin.memory.surround = self._of_tables
        self.twin.blobs.store.surround = self._of_blobs

    def mend(self) -> None:
        """Everything answers again."""
        self.tables, self.blobs = lambda _: False, lambda _: False

    def _of_tables(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if not self.tables(operation):
            return carry_out()
        self.refused.append(operation.table.spelling)
        if self.done_all_the_same:
            carry_out()
        raise TimedOut("no answer from the tables")

    def _of_blobs(self, call: BlobCall, carry_out: Callable[[], Any]) -> Any:
        if not self.blobs(call):
            return carry_out()
        self.refused.append(call.verb.value)
        if self.done_all_the_same:
            carry_out()
        raise BlobsUnreachable("no answer from the blobs")


def writes_of(table: Table) -> Refuses:
    """Every write into a table."""
    return lambda operation: not isinstance(operation, Read | Scan) and operation.table.name == table.name


def reads_of(table: Table) -> Refuses:
    """Every read of a table."""
    return lambda operation: isinstance(operation, Read | Scan) and operation.table.name == table.name


def everything_of(*tables: Table) -> Refuses:
    """Whatever is asked of the tables."""
    names = {table.name for table in tables}
    return lambda operation: operation.table.name in names


def verb(*verbs: BlobVerb) -> Callable[[BlobCall], bool]:
    """Calls of these kinds."""
    return lambda call: call.verb in verbs
