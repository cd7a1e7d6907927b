"""What the commands of a queue are connected to: a command connects only to what it needs.

The rest is `Unconfigured`, which refuses every call with a message. Libraries of an extra are imported
when they are needed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, NoReturn, Self, TypeVar, cast

from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.settings import QueueSettings, Store
from mailmend.admin.queue import openers
from mailmend.admin.queue.request import MailContent
from mailmend.cql.applying import ensure_ledger
from mailmend.cql.introspect import live_schema, tables_of
from mailmend.mailqueue.blobs.stores import content_of
from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.metrics import NoCounts, QueueCounts, marks_that_stay
from mailmend.mailqueue.pulsar.mail_queue import open_queue as open_pulsar_queue
from mailmend.mailqueue.pulsar.mail_queue import queue_names as topics_queue_names
from mailmend.mailqueue.pulsar.settings import PulsarSettings, out_subscription, out_topic
from mailmend.mailqueue.pulsar.topics import Topics
from mailmend.mailqueue.queue import MaintainedQueue
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rules.blob_ids import is_blob_id
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail_queue import DELETED_MAILS, OwnTables, queue_tables_of
from mailmend.model.errors import AccessDenied, BadPayload, BlobMissing, WrongUse
from mailmend.model.ids import BlobId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.keyspace import Schema
from mailmend.model.ports import AsyncTables, Clock
from mailmend.model.table import Table
from mailmend.model.texts import keyspace_option
from mailmend.repair.clock import SystemClock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueConnections:
    """The tables, the broker and the blob store of a keyspace's queues, and the clock.

    Attributes:
        cluster: what the tables are part of.
        schema: the live keyspace.
        own: which of our own tables it has.
        ledger: its tables, where they were looked for already: a server does that once.
    """

    settings: QueueSettings
    cluster: OpenCluster
    schema: Schema
    own: OwnTables
    tables: AsyncTables
    broker: Broker
    blobs: Blobs
    clock: Clock
    ledger: AsyncTables | None = field(default=None, kw_only=True)

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())

    @property
    def marks_about(self) -> int | None:
        """How many marks all queues have, by the nodes' estimates."""
        size = self.cluster.sizes().get(DELETED_MAILS.name)
        if size is None:
            return None
        return size.partitions

    @property
    def view(self) -> QueueView:
        return self.view_over(self.tables)

    def view_over(self, tables: AsyncTables) -> QueueView:
        return QueueView(tables, self.clock, self.own)

    @property
    def can_delay(self) -> bool:
        """Whether mails can be delayed."""
        return self.own.due

    @property
    def marks_stay(self) -> str | None:
        """What is to be said of marks of removed mails that never expire; None where they do."""
        if self.own.marks_expire:
            return None
        return marks_that_stay(self.marks_about)

    @asynccontextmanager
    async def open(
        self, name: QueueName | None = None, counts: QueueCounts | None = None, *, dry_run: bool = False
    ) -> AsyncIterator[MaintainedQueue]:
        """Open a queue, by default the one in the settings; a dry run settles nothing of it."""
        async with self.open_tabled(name, counts, dry_run=dry_run) as queue:
            yield queue

    @asynccontextmanager
    async def open_tabled(
        self, name: QueueName | None = None, counts: QueueCounts | None = None, *, dry_run: bool = False
    ) -> AsyncIterator[RabbitMailQueue]:
        """Open a queue that has tables, for what only those need.

        Raises:
            WrongUse: it is one over Pulsar.
        """
        opened = await open_queue(
            name or self.settings.name,
            self.tables,
            self.broker,
            self.blobs,
            self.clock,
            own=self.own,
            counts=counts or NoCounts(),
            looks_only=dry_run,
        )
        async with opened as queue:
            yield queue

    async def names(self, *, everything: bool) -> list[QueueName]:
        """The queue in the settings, or every queue of the keyspace."""
        if not everything:
            return [self.settings.name]
        return await self.view.starts.queues()

    def asks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """What the queue is connected to, by name, and a small question to each."""
        return {
            "Cassandra": partial(self.view.starts.content_start, self.settings.name),
            "RabbitMQ": self.broker.product,
        }

    def with_ledger(self) -> Self:
        """These connections, with the tables of the ledger. The ledger is created if missing.

        Connections that have these tables already do not look for them again.

        Raises:
            AccessDenied: a table of it is missing, and we may not create it.
        """
        if self.ledger:
            return self
        self._make_ledger()
        return replace(self, ledger=self.ledger_tables)

    def ledger_has(self, *tables: Table) -> bool:
        """Whether the ledger has all of these tables; asking creates nothing."""
        if self.ledger is not None:
            return True
        there = tables_of(self.ledger_cluster.cluster, self.settings.connection.ledger_keyspace)
        return all(table.name in there for table in tables)

    @property
    def ledger_tables(self) -> AsyncTables:
        """The tables of the ledger, whether or not they are there."""
        if self.ledger:
            return self.ledger
        keyspace = self.settings.connection.ledger_keyspace
        return openers.tables_of(self.ledger_cluster.cluster.keyspace(keyspace))

    @property
    def ledger_cluster(self) -> OpenCluster:
        """The cluster that has the ledger."""
        return self.cluster

    def _make_ledger(self) -> None:
        connection = self.settings.connection
        try:
            ensure_ledger(self.ledger_cluster.cluster, connection.ledger_keyspace, connection.keyspace)
        except AccessDenied as error:
            mend = f"Have who may create tables type: mailmend schema apply {keyspace_option(connection.keyspace)}"
            raise AccessDenied(f"the ledger has not all of its tables yet: {error.what}", mend=mend) from error

    async def content_of(self, listed: Listed) -> MailContent:
        blobs = listed.queued.blobs
        try:
            return MailContent(await content_of(self.blobs, blobs))
        except BlobMissing as missing:
            return MailContent(None, BlobId(missing.blob_id))
        except BadPayload:  # what is no id of a blob names none
            missing_id = blobs.header
            if is_blob_id(blobs.header):
                missing_id = blobs.body
            return MailContent(None, missing_id)


@dataclass(frozen=True, slots=True)
class PulsarConnections(QueueConnections):
    """The topics and the blob store of a namespace's queues, and the clock; of the rest nothing is there.

    Attributes:
        connects: to the cluster that has the ledger: at the first call, for many commands need none.
    """

    topics: Topics
    connects: Callable[[], OpenCluster]

    @property
    def ledger_cluster(self) -> OpenCluster:
        return self.connects()

    @property
    def can_delay(self) -> bool:
        return True

    @property
    def marks_stay(self) -> str | None:
        return None

    @asynccontextmanager
    async def open(
        self, name: QueueName | None = None, counts: QueueCounts | None = None, *, dry_run: bool = False
    ) -> AsyncIterator[MaintainedQueue]:
        del dry_run  # opening settles nothing
        named = name or self.settings.name
        settings = self.settings
        opened = await open_pulsar_queue(named, self.topics, self.blobs, self.clock, settings.james, counts=counts)
        async with opened as queue:
            yield queue

    @asynccontextmanager
    async def open_tabled(
        self, name: QueueName | None = None, counts: QueueCounts | None = None, *, dry_run: bool = False
    ) -> AsyncIterator[RabbitMailQueue]:
        del name, counts, dry_run
        raise openers.tables_lacking()
        yield  # what makes it a generator

    def asks(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        name = self.settings.name
        return {"Pulsar": partial(self.topics.backlog, out_topic(name), out_subscription(name))}

    async def names(self, *, everything: bool) -> list[QueueName]:
        if not everything:
            return [self.settings.name]
        return await topics_queue_names(self.topics)


def with_queues(
    settings: QueueSettings,
    carry_out: Callable[[QueueConnections], Awaitable[T]],
    cluster: OpenCluster | None = None,
    *,
    makes: bool = True,
) -> T:
    """Connect to what is not open yet, run `carry_out`, and close at the end what was opened here.

    `makes` is as for `blobs_behind`.
    """
    if settings.pulsar:

        async def over_pulsar(pulsar: PulsarSettings) -> T:
            async with topics_of(settings, pulsar, SystemClock(), makes=makes) as connections:
                return await carry_out(connections)

        return run_async(over_pulsar(settings.pulsar))
    with nullcontext(cluster) if cluster else open_cluster(settings.connection) as opened:
        schema = live_schema(opened.cluster, opened.mail.name)

        async def over_tables() -> T:
            async with tables_and_broker(settings, opened, schema, makes=makes) as connections:
                return await carry_out(connections)

        return run_async(over_tables())


@asynccontextmanager
async def tables_and_broker(
    settings: QueueSettings, opened: OpenCluster, schema: Schema, *, makes: bool
) -> AsyncIterator[QueueConnections]:
    """Connect to the broker of tables that are open; `makes` is as for `blobs_behind`."""
    own = queue_tables_of(schema, opened.mail.name)
    clock = opened.clock
    tables = openers.tables_of(opened.mail)
    broker = cast("Broker", _NO_BROKER)
    if settings.broker:
        broker = openers.broker_behind(settings.broker, clock)
    blobs = cast("Blobs", _NO_BLOBS)
    try:
        if settings.blobs:
            blobs = openers.blobs_behind(settings.blobs, tables, clock, makes=makes)
        yield QueueConnections(settings, opened, schema, own, tables, broker, blobs, clock)
    finally:
        if settings.broker:
            await broker.close()


@asynccontextmanager
async def topics_of(
    settings: QueueSettings, pulsar: PulsarSettings, clock: Clock, *, makes: bool
) -> AsyncIterator[PulsarConnections]:
    """Connect to the topics; `makes` is as for `blobs_behind`."""
    none = cast("Any", _NO_TABLES)
    blobs = cast("Blobs", _NO_BLOBS)
    if settings.blobs:
        if settings.blobs.address.store is Store.CASSANDRA:
            raise openers.tables_lacking()
        blobs = openers.blobs_behind(settings.blobs, None, clock, makes=makes)
    topics = openers.topics_behind(pulsar, clock)
    with ExitStack() as with_it:

        @cache
        def connects() -> OpenCluster:
            return with_it.enter_context(open_cluster(settings.connection))

        try:
            yield PulsarConnections(settings, none, none, OwnTables(), none, none, blobs, clock, topics, connects)
        finally:
            await topics.close()


class Unconfigured:
    """Replaces a broker or blobs that a command was not given: has every method, and refuses every call."""

    def __init__(self, what: str, mend: str) -> None:
        self._what = what
        self._mend = mend

    def __getattr__(self, name: str) -> NoReturn:
        raise WrongUse(self._what, mend=self._mend)


_NO_BROKER: Final = Unconfigured(
    "this needs the message broker, and none is named", "Name it with --broker amqp://host:5672 or MAILMEND_BROKER."
)
_NO_TABLES: Final = Unconfigured(openers.tables_lacking().what, openers.tables_lacking().mend)
_NO_BLOBS: Final = Unconfigured(
    "this needs the contents of mails, and no store is named", "Name it with --blobs URL or MAILMEND_BLOBS."
)
