"""The only module that knows which adapter stands behind which port.

Libraries of an extra are imported here when they are needed; an error names the extra when they are missing. A command
connects only to what it needs; the rest is `Lacking`, which refuses every call with a message.
"""

import getpass
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast
from uuid import UUID

from admin.event_loop import run_async
from admin.extras import import_or_name_extra
from admin.local.folders import data_home
from admin.local.java import SPARK, find_java
from admin.settings import BlobsSettings, ConnectionSettings, QueueSettings, Store
from cql.applying import ensure_ledger
from cql.driver.asynchronous import AsyncKeyspace
from cql.driver.contact import Contact
from cql.introspect import keyspace_exists, live_schema
from cql.memory import MemoryTables
from mailqueue.blobs.stores import content_of
from mailqueue.metrics import NoCounts, QueueCounts
from mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailqueue.rabbitmq.view.queue_view import QueueView
from model.catalog.ledger import KEEP
from model.catalog.mail import FAMILIES
from model.catalog.queue_tables import OwnTables, queue_tables_of
from model.errors import BadPayload, BadSettings, BlobMissing, UnknownRun, WrongUse
from model.ids import BlobId, QueueName
from model.instants import instant_of
from model.ports import AsyncTables, Blobs, Broker, Clock, Progress
from model.projections.binding import bind
from model.projections.family import Family
from model.queue.blob_ids import is_blob_id
from model.queue.mails import Listed
from model.schema.keyspace import Schema
from repair.clock import SystemClock, Timing
from repair.ledger.lags import LagJournal, Spool
from repair.ledger.leases import Leases
from repair.ledger.runs import Ledger
from repair.mending.counters import CounterMender
from repair.mending.engine import Engine, RepairSettings
from repair.mending.runner import RepairTools
from repair.mending.undo import UndoTools
from repair.scanners.local import LocalEngine
from repair.scanners.lookup import Target, Targeted

if TYPE_CHECKING:
    from cql.driver.session import CassandraCluster, Keyspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """An open cluster, its mail keyspace, and the ledger keyspace beside it."""

    connection: ConnectionSettings
    cluster: "CassandraCluster"
    clock: SystemClock

    @property
    def mail(self) -> "Keyspace":
        return self.cluster.keyspace(self.connection.keyspace)

    def families(self, wanted: tuple[Family, ...] = FAMILIES) -> tuple[Family, ...]:
        """The families as far as the live keyspace has them."""
        mail = self.mail
        return bind(mail.name, live_schema(self.cluster, mail.name), wanted)

    def ledger(self, keep: timedelta = KEEP) -> Ledger:
        """The ledger; its keyspace and tables are created if missing."""
        ensure_ledger(self.cluster, self.connection.ledger_keyspace, self.connection.keyspace)
        return Ledger(self.cluster.keyspace(self.connection.ledger_keyspace), self.clock, keep)

    def existing_ledger(self, keep: timedelta = KEEP) -> Ledger | None:
        """The ledger if there is one; reading it creates nothing."""
        name = self.connection.ledger_keyspace
        if not keyspace_exists(self.cluster, name):
            return None
        return Ledger(self.cluster.keyspace(name), self.clock, keep)

    def known_ledger(self, run: UUID) -> Ledger:
        """The ledger, for a run that it should hold; UnknownRun without any ledger."""
        ledger = self.existing_ledger()
        if ledger is None:
            raise UnknownRun(
                f"there is no run {run}: keyspace {self.connection.ledger_keyspace!r} does not exist",
                mend="Name the keyspace of the ledger with --ledger-keyspace.",
            )
        return ledger

    def leases(self) -> Leases:
        return Leases(self.cluster.keyspace(self.connection.ledger_keyspace), self.clock, owner_name())


@dataclass(frozen=True, slots=True)
class EngineWanted:
    """The engine of a scan: Spark (its master and settings) or this process; with a target, only reads by key."""

    name: str
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None


@contextmanager
def open_cluster(connection: ConnectionSettings) -> Iterator[OpenCluster]:
    """Connect, and close everything at the end."""
    session = import_or_name_extra("cql.driver.session")
    cluster: Any = session.connect(contact_of(connection))
    with cluster:
        yield OpenCluster(connection, cluster, SystemClock())


@contextmanager
def repair_tools(
    opened: OpenCluster,
    wanted: EngineWanted,
    settings: RepairSettings,
    progress: Progress,
    *,
    keep: timedelta | None = None,
    timing: Timing | None = None,
) -> Iterator[RepairTools]:
    """Tools of a check or a repair.

    Args:
        opened: the cluster.
        wanted: what scans.
        settings: of the run.
        progress: receives the progress.
        keep: how long before-images are kept; None: ledger and leases are in memory, so that nothing can be written.
        timing: of the looks at counters; None: that of the run.
    """
    writes = keep is not None
    ledger, leases = (opened.ledger(keep), opened.leases()) if keep is not None else _in_memory(opened)
    counters = CounterMender(
        opened.mail, settings.keyspace, settings.families, opened.clock, timing or settings.timing, ledger, leases
    )
    with _engine(opened, wanted, ledger, writes=writes) as engine:
        tools = RepairTools(engine, opened.clock, opened.cluster, progress, counters)
        if writes:
            counters = replace(counters, lags=_lags_in(opened, ledger))
            tools = replace(tools, counters=counters, ledger=ledger, leases=leases)
        yield tools


def lag_tools(
    opened: OpenCluster, settings: RepairSettings, progress: Progress, keep: timedelta
) -> tuple[LagJournal, RepairTools]:
    """The journal of lags, and tools to mend them; a dry run creates and writes nothing."""
    ledger, leases = _in_memory(opened) if settings.dry_run else (opened.ledger(keep), opened.leases())
    if settings.dry_run:
        ledger = opened.existing_ledger() or ledger
    journal, engine = _lags_in(opened, ledger), LocalEngine(opened.mail, ledger, opened.clock)
    counters = CounterMender(
        opened.mail, settings.keyspace, settings.families, opened.clock, settings.timing, ledger, leases, lags=journal
    )
    held = None if settings.dry_run else leases
    return journal, RepairTools(engine, opened.clock, opened.cluster, progress, counters, ledger, held)


def undo_tools(
    opened: OpenCluster, families: tuple[Family, ...], progress: Progress, *, no_writers: bool = False
) -> UndoTools:
    ledger, leases, timing, mail = opened.ledger(), opened.leases(), Timing(no_writers=no_writers), opened.mail
    counters = CounterMender(mail, mail.name, families, opened.clock, timing, ledger, leases)
    return UndoTools(mail, ledger, opened.clock, progress, leases, counters)


def _in_memory(opened: OpenCluster) -> tuple[Ledger, Leases]:
    nowhere = MemoryTables(opened.clock.micros)
    return Ledger(nowhere, opened.clock), Leases(nowhere, opened.clock, owner_name())


@contextmanager
def _engine(opened: OpenCluster, wanted: EngineWanted, ledger: Ledger, *, writes: bool = False) -> Iterator[Engine]:
    if wanted.target is not None:
        yield Targeted(opened.mail, ledger, opened.clock, wanted.target)
        return
    if wanted.name == "local":
        yield LocalEngine(opened.mail, ledger, opened.clock)
        return
    session = import_or_name_extra("spark_repair.session")
    spark = import_or_name_extra("spark_repair.message_inconsistencies")
    master = wanted.master or "local[*]"
    settings = session.SparkSettings(master, java_home=_java_home_of_spark(), options=wanted.spark_conf)
    ledger_keyspace = opened.connection.ledger_keyspace if writes else None
    with session.session_for_a_command(settings) as started:
        yield spark.SparkEngine(started, contact_of(opened.connection), opened.mail.name, ledger_keyspace, ledger.keep)


def _java_home_of_spark() -> str | None:
    """The same search as for Cassandra; within spark-submit the JVM runs already."""
    inside = "PYSPARK_GATEWAY_PORT" in os.environ
    return None if inside else str(find_java(SPARK, os.environ).home)


def contact_of(connection: ConnectionSettings) -> Contact:
    tls = connection.tls
    authority = (tls.authority or _system_authorities()) if tls else None
    return Contact(
        hosts=connection.hosts,
        port=connection.port,
        local_dc=connection.local_dc,
        username=connection.username,
        password=connection.password,
        tls_ca=str(authority) if authority else None,
        tls_cert=str(tls.certificate) if tls and tls.certificate else None,
        tls_key=str(tls.key) if tls and tls.key else None,
        tls_hostnames=bool(tls and tls.hostnames),
    )


def state_folder(name: str) -> Path:
    """A folder of this user: `loads` (progress), `queue` (removed mails), `spool` (lags that the ledger refused).

    It is below the data folder that the XDG base directory specification names.
    """
    return data_home(os.environ, Path.home()) / name


def lag_journal(opened: OpenCluster) -> LagJournal:
    return _lags_in(opened, opened.ledger())


def _lags_in(opened: OpenCluster, ledger: Ledger) -> LagJournal:
    spool = Spool(state_folder("spool"), opened.mail.name)
    return LagJournal(ledger.tables, opened.mail.name, opened.clock, spool)


def owner_name() -> str:
    """Name of this process, shown to those who find the lease taken."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()}"


def _system_authorities() -> str:
    paths = ssl.get_default_verify_paths()
    found = paths.cafile or paths.openssl_cafile
    if not found or not os.path.isfile(found):  # noqa: PTH113 - a text from OpenSSL
        raise BadSettings("TLS is asked for, but this system names no authorities", mend="Name one with --tls-ca.")
    return found


@dataclass(frozen=True, slots=True)
class MailContent:
    """A mail's bytes; None, and the id of the missing blob, where they cannot be read."""

    content: bytes | None
    missing: BlobId | None = None


@dataclass(frozen=True, slots=True)
class QueueConnections:
    """The tables, the broker and the blob store of a keyspace's queues, and the clock.

    Attributes:
        schema: the live keyspace.
        own: which of our own tables it has.
    """

    settings: QueueSettings
    schema: Schema
    own: OwnTables
    tables: AsyncTables
    broker: Broker
    blobs: Blobs
    clock: Clock

    @property
    def now(self) -> datetime:
        return instant_of(self.clock.micros())

    @property
    def view(self) -> QueueView:
        return QueueView(self.tables, self.clock, self.own)

    @asynccontextmanager
    async def open(
        self, name: QueueName | None = None, counts: QueueCounts | None = None, *, dry_run: bool = False
    ) -> AsyncIterator[RabbitMailQueue]:
        """Open a queue, by default the one in the settings; a dry run settles nothing of it."""
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
        return await self.view.starts.queues() if everything else [self.settings.name]

    async def content_of(self, listed: Listed) -> MailContent:
        blobs = listed.queued.blobs
        try:
            return MailContent(await content_of(self.blobs, blobs))
        except BlobMissing as missing:
            return MailContent(None, BlobId(missing.blob_id))
        except BadPayload:  # what is no id of a blob names none
            return MailContent(None, blobs.body if is_blob_id(blobs.header) else blobs.header)


def with_queues(settings: QueueSettings, carry_out: Callable[[QueueConnections], Awaitable[T]]) -> T:
    """Connect, run `carry_out`, and close every connection at the end."""
    with open_cluster(settings.connection) as opened:
        schema = live_schema(opened.cluster, opened.mail.name)
        own = queue_tables_of(schema, opened.mail.name)
        clock, tables = SystemClock(), tables_of(opened.mail)

        async def connected() -> T:
            broker = broker_behind(settings.broker, clock) if settings.broker else cast("Broker", _NO_BROKER)
            blobs = blobs_behind(settings.blobs, tables, clock) if settings.blobs else cast("Blobs", _NO_BLOBS)
            try:
                return await carry_out(QueueConnections(settings, schema, own, tables, broker, blobs, clock))
            finally:
                if settings.broker:
                    await broker.close()

        return run_async(connected())


def with_tables(connection: ConnectionSettings, carry_out: Callable[[AsyncTables], Coroutine[Any, Any, T]]) -> T:
    """Connect to the tables alone, whether or not the keyspace has a queue."""
    with open_cluster(connection) as opened:
        return run_async(carry_out(tables_of(opened.mail)))


def tables_of(keyspace: "Keyspace") -> AsyncTables:
    return AsyncKeyspace(keyspace)


def broker_behind(settings: BrokerSettings, clock: Clock) -> Broker:
    rabbitmq = import_or_name_extra("mailqueue.rabbitmq.broker.adapter")
    broker: Broker = rabbitmq.RabbitBroker(settings, clock)
    return broker


def blobs_behind(settings: BlobsSettings, tables: AsyncTables, clock: Clock) -> Blobs:
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
    """Stands where a command was given no broker or no blobs: has every method, and refuses every call."""

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
