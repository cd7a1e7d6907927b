"""`mailmend queue` as a person types it, on a whole queue in memory: tables, broker, blobs, and time turned by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mailmend.admin.frame import cluster as wiring_cluster
from mailmend.admin.queue import openers
from mailmend.cql.driver import nodes, session
from mailmend.cql.schema.generations import AUGUST_2026
from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.catalog.mail_queue import OwnTables, queue_tables_of
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change
from mailmend.model.table import Table
from tests.support.clock import VirtualClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.in_turn import InTurn
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.queues import CONTENT, HOURLY, drained, listed, mail, names
from tests.support.schemas import served, without_time_to_live

T = TypeVar("T")

KEYSPACE = "mail"

OURS = served(SCHEMA, made_here=True)
JAMES = served(without_time_to_live(AUGUST_2026.schema))
SPOOL = QueueName("spool")


class Counting:
    """A broker that is only reached through this, so that a test sees whether it was."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._broker, name)


@dataclass
class QueueShell:
    """A shell, and the queue that its commands work on.

    Attributes:
        asked: what commands asked the broker for, by method.
    """

    line: CommandLine
    cluster: ClusterTwin
    clock: VirtualClock
    broker: MemoryBroker
    blobs: MemoryBlobs
    own: OwnTables
    asked: list[str] = field(default_factory=list)

    def __call__(self, *arguments: str, **environment: str) -> Ended:
        return self.line("queue", *arguments, **environment)

    def on_queue(self, story: Callable[[RabbitMailQueue], Awaitable[T]], name: QueueName = SPOOL) -> T:
        """What a story comes to in a process of its own that has the queue open."""

        async def answer() -> T:
            tables = InTurn(self.cluster.keyspace(KEYSPACE))
            opened = await open_queue(name, tables, self.broker, self.blobs, self.clock, HOURLY, own=self.own)
            async with opened as queue:
                return await story(queue)

        return asyncio.run(answer())

    def put(self, *names: str, queue: QueueName = SPOOL, **fields: Any) -> list[EnqueueId]:

        async def story(opened: RabbitMailQueue) -> list[EnqueueId]:
            return [await opened.enqueue(mail(name, **fields), CONTENT) for name in names]

        return self.on_queue(story, queue)

    def put_later(self, name: str, delay: timedelta, queue: QueueName = SPOOL, **fields: Any) -> EnqueueId:
        return self.on_queue(lambda opened: opened.enqueue(mail(name, **fields), CONTENT, delay=delay), queue)

    def listed(self, queue: QueueName = SPOOL) -> list[Listed]:
        return self.on_queue(listed, queue)

    def names(self, queue: QueueName = SPOOL) -> list[str]:
        return self.on_queue(names, queue)

    def delivered(self, count: int, queue: QueueName = SPOOL) -> list[str]:
        return self.on_queue(lambda opened: drained(opened, count), queue)

    def delivers_nothing(self, queue: QueueName = SPOOL) -> bool:
        """Whether a consumer that waits a minute gets nothing, and the broker is left without messages."""

        async def story(opened: RabbitMailQueue) -> bool:
            async with opened.dequeue() as mails:
                coming = asyncio.ensure_future(anext(mails))
                await self.clock.pause(60)
                came = coming.done()
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            return not came

        return self.on_queue(story, queue) and not self.broker.ready(queue)

    def lose_content(self, enqueue_id: EnqueueId) -> None:
        (one,) = (one for one in self.listed() if one.queued.enqueue_id == enqueue_id)
        asyncio.run(self.blobs.store.remove(one.queued.blobs.body))

    def put_start(self, table: Table, at: datetime) -> None:
        """Put a start of the queue to the hour of an instant, as James does, without looking."""
        start = at.replace(minute=0, second=0, microsecond=0)
        self.cluster.keyspace(KEYSPACE).write(Change(table, (self.name,), {table.regular[0].name: start}))

    def pass_time(self, **span: float) -> None:
        self.clock.advance(timedelta(**span).total_seconds())

    @property
    def name(self) -> QueueName:
        """The queue that commands work on unless told otherwise."""
        return SPOOL

    @property
    def now(self) -> datetime:
        return self.clock.now.astimezone(UTC)


def queue_shell(monkeypatch: pytest.MonkeyPatch, home: Path, schema: Schema = OURS) -> QueueShell:
    """A shell on an empty queue in memory, in place of any server that a command would connect to."""
    clock = VirtualClock()
    cluster = ClusterTwin(clock, **{KEYSPACE: schema})
    broker, blobs = MemoryBroker(clock), MemoryBlobs(clock)
    monkeypatch.setattr(session, "connect", lambda _contact: cluster)
    monkeypatch.setattr(nodes, "sizes_in", cluster.sizes)
    monkeypatch.setattr(wiring_cluster, "SystemClock", lambda: clock)
    monkeypatch.setattr(openers, "tables_of", InTurn)
    counting = Counting(broker)
    monkeypatch.setattr(openers, "broker_behind", lambda _settings, _clock: counting)
    monkeypatch.setattr(openers, "blobs_behind", lambda *_, **__: blobs)
    where = {"MAILMEND_HOST": "127.0.0.1", "MAILMEND_KEYSPACE": KEYSPACE}
    sides = {"MAILMEND_BROKER": "amqp://127.0.0.1", "MAILMEND_BLOBS": f"file://{home}/blobs"}
    line = command_line(home, None, **where, **sides)
    own = queue_tables_of(schema, KEYSPACE)
    return QueueShell(line, cluster, clock, broker, blobs, own, counting.asked)


def ids_in(mails: Sequence[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in mails]
