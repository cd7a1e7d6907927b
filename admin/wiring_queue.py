"""Where a queue is put together for a command: which adapter stands behind which of its ports.

What a command does without is not connected to: in its place stands something that says what is missing, if it is
asked all the same. Libraries that an extra brings are imported here, when they are needed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, cast

from admin.awaiting import awaited
from admin.cli.queue_options import QueueSettings
from admin.extras import import_or_name_extra
from admin.queue_settings import BlobsSettings, Store
from admin.wiring import Place, open_place
from cql.driver.asynchronous import AsyncKeyspace
from cql.introspect import live_schema
from mailqueue.metrics import NoCounts, QueueCounts
from mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailqueue.rabbitmq.mail_queue import MailQueue, open_queue
from mailqueue.rabbitmq.view.configuration import Configurations
from mailqueue.rabbitmq.view.queue_view import QueueView
from mailqueue.rabbitmq.view.tallies import SliceTallies
from model.catalog.queue_tables import OwnTables, queue_tables_of
from model.errors import WrongUse
from model.ids import QueueName
from model.instants import instant_of
from model.ports import AsyncTables, Blobs, Broker, Clock
from model.schema.keyspace import Schema
from repair.clock import SystemClock

if TYPE_CHECKING:
    from cql.driver.session import Keyspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sides:
    """The three sides of the queues of one keyspace, and the clock by which they are looked at.

    Attributes:
        schema: the live keyspace.
        own: which of our tables it has.
    """

    settings: QueueSettings
    place: Place
    schema: Schema
    own: OwnTables
    tables: AsyncTables
    broker: Broker
    blobs: Blobs
    clock: Clock

    @property
    def now(self) -> datetime:
        """By our own clock."""
        return instant_of(self.clock.micros())

    @property
    def view(self) -> QueueView:
        """The queues as the tables show them, without a queue that is open; each asking makes another."""
        tallies = SliceTallies(self.tables, self.clock, self.own)
        return QueueView(self.tables, self.clock, Configurations(self.tables), tallies, self.own)

    @asynccontextmanager
    async def queue(
        self, name: QueueName | None = None, counts: QueueCounts | None = None, *, looks_only: bool = False
    ) -> AsyncIterator[MailQueue]:
        """A queue of the keyspace; the one that the settings name, unless another is asked for.

        Args:
            name: of the other one.
            counts: where it is told what happened.
            looks_only: whether nothing will be written through it.
        """
        opened = await open_queue(
            name or self.settings.name,
            self.tables,
            self.broker,
            self.blobs,
            self.clock,
            own=self.own,
            counts=counts or NoCounts(),
            looks_only=looks_only,
        )
        async with opened as queue:
            yield queue


def on_sides(settings: QueueSettings, story: Callable[[Sides], Awaitable[T]]) -> T:
    """What a story on the queue's three sides comes to; everything is let go of at the end.

    Raises:
        CannotReach: one of the sides does not answer.
        SchemaMismatch: the keyspace has no queue.
    """
    with open_place(settings.connection) as place:
        schema = live_schema(place.cluster, place.mail.name)
        own = queue_tables_of(schema, place.mail.name)
        return awaited(_told(settings, place, schema, own, story))


async def _told(
    settings: QueueSettings,
    place: Place,
    schema: Schema,
    own: OwnTables,
    story: Callable[[Sides], Awaitable[T]],
) -> T:
    clock, tables = loop_clock(), tables_of(place.mail)
    broker = broker_behind(settings.broker, clock) if settings.broker else cast("Broker", _NO_BROKER)
    blobs = blobs_behind(settings.blobs, tables, clock) if settings.blobs else cast("Blobs", _NO_BLOBS)
    try:
        return await story(Sides(settings, place, schema, own, tables, broker, blobs, clock))
    finally:
        if settings.broker:
            await broker.close()


def loop_clock() -> Clock:
    """Time as commands know it."""
    return SystemClock()


def tables_of(keyspace: "Keyspace") -> AsyncTables:
    """The keyspace's tables, awaited."""
    return AsyncKeyspace(keyspace)


def broker_behind(settings: BrokerSettings, clock: Clock) -> Broker:
    """The broker; nothing is asked of it yet."""
    rabbitmq = import_or_name_extra("mailqueue.rabbitmq.broker.adapter")
    broker: Broker = rabbitmq.RabbitBroker(settings, clock)
    return broker


def blobs_behind(settings: BlobsSettings, tables: AsyncTables, clock: Clock) -> Blobs:
    """The store of blobs.

    Raises:
        BlobsUnreachable: a folder cannot be made.
    """
    address, bucket = settings
    storage = import_or_name_extra("mailqueue.blobs.object_storage")
    found: Blobs
    match address.store:
        case Store.FILES:
            found = storage.open_files(address.folder.expanduser(), clock, address.naming)
        case Store.S3:
            found = storage.open_s3(bucket, clock, address.naming)
        case Store.CASSANDRA:
            cassandra = import_or_name_extra("mailqueue.blobs.cassandra")
            found = cassandra.open_cassandra(tables, clock, address.naming)
    return found


class Lacking:
    """Stands where a command was given no broker, or no blobs: whatever is asked of it is refused, with what to say.

    It has every method of a port, so it can be put behind any.
    """

    def __init__(self, what: str, mend: str) -> None:
        self._what, self._mend = what, mend

    def __getattr__(self, name: str) -> NoReturn:
        raise WrongUse(self._what, mend=self._mend)


_NO_BROKER: Final = Lacking(
    "this needs the message broker, and none is named", "Name it with --broker amqp://host:5672 or MAILMEND_BROKER."
)
_NO_BLOBS: Final = Lacking(
    "this needs the contents of mails, and no store is named", "Name it with --blobs URL or MAILMEND_BLOBS."
)
