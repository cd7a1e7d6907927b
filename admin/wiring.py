"""The only module that knows which adapter stands behind which port.

Libraries of an extra are imported here when they are needed; an error names the extra when they are missing.
"""

import getpass
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from admin.extras import import_or_name_extra
from admin.local.java import SPARK, find_java
from admin.local.layout import data_home
from admin.settings import ConnectionSettings
from cql.applying import ensure_ledger
from cql.driver.contact import Contact
from cql.introspect import keyspace_exists, live_schema
from cql.memory import MemoryTables
from model.catalog.ledger import KEEP
from model.catalog.mail import FAMILIES, MESSAGES
from model.errors import BadSettings, UnknownRun, WrongUse
from model.ids import MailboxId, MessageId
from model.ports import Progress
from model.projections.binding import bind
from model.projections.family import Family
from repair.clock import SystemClock, Timing
from repair.ledger.lags import LagJournal, Spool
from repair.ledger.leases import Leases
from repair.ledger.runs import Ledger
from repair.mending.counters import CounterMender
from repair.mending.engine import Engine
from repair.mending.runner import RepairTools
from repair.mending.settings import RepairSettings
from repair.mending.undo import UndoTools
from repair.scanners.local import LocalEngine
from repair.scanners.lookup import Mailboxes, Messages, Target, Targeted, mailboxes_of

if TYPE_CHECKING:
    from cql.driver.session import CassandraCluster, Keyspace


@dataclass(frozen=True, slots=True)
class Place:
    """An open cluster, its mail keyspace, and the ledger keyspace beside it."""

    connection: ConnectionSettings
    cluster: "CassandraCluster"
    clock: SystemClock

    @property
    def mail(self) -> "Keyspace":
        """The mail keyspace.

        Raises:
            UnknownKeyspace: no such keyspace.
        """
        return self.cluster.keyspace(self.connection.keyspace)

    def families(self, wanted: tuple[Family, ...] = FAMILIES) -> tuple[Family, ...]:
        """The families as far as the live keyspace has them.

        Raises:
            UnknownKeyspace: there is no such keyspace.
            SchemaMismatch: it lacks what a check cannot do without.
        """
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
        """The ledger, for a run that it should hold.

        Raises:
            UnknownRun: there is no ledger at all.
        """
        ledger = self.existing_ledger()
        if ledger is None:
            raise UnknownRun(
                f"there is no run {run}: keyspace {self.connection.ledger_keyspace!r} does not exist",
                mend="Name the keyspace of the ledger with --ledger-keyspace.",
            )
        return ledger

    def leases(self) -> Leases:
        """The leases, stored beside the ledger."""
        return Leases(self.cluster.keyspace(self.connection.ledger_keyspace), self.clock, owner_name())


@dataclass(frozen=True, slots=True)
class EngineWanted:
    """The engine of a scan: Spark (its master and settings) or this process; with a target, only reads by key."""

    name: str
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None


def families_named(what: str) -> tuple[Family, ...]:
    return (MESSAGES,) if what == "messages" else FAMILIES


@contextmanager
def open_place(connection: ConnectionSettings) -> Iterator[Place]:
    """Connect, and close everything at the end.

    Raises:
        CannotReach: no node answers.
        WrongUse: the driver is not installed.
    """
    session = import_or_name_extra("cql.driver.session")
    cluster: Any = session.connect(contact_of(connection))
    with cluster:
        yield Place(connection, cluster, SystemClock())


@contextmanager
def means_to_look(
    place: Place, wanted: EngineWanted, order: RepairSettings, progress: Progress, timing: Timing | None = None
) -> Iterator[RepairTools]:
    """Tools of a check or a dry run: ledger and leases are in memory, so nothing can be written anywhere."""
    nowhere = MemoryTables(place.clock.micros)
    ledger, leases = Ledger(nowhere, place.clock), Leases(nowhere, place.clock, owner_name())
    with _engine(place, wanted, ledger) as engine:
        recount = _recount(place, order, timing or order.timing, ledger, leases)
        yield RepairTools(engine, place.clock, place.cluster, progress, recount)


@contextmanager
def means_to_mend(
    place: Place, wanted: EngineWanted, order: RepairSettings, progress: Progress, keep: timedelta
) -> Iterator[RepairTools]:
    """Tools of a repair: the ledger, whose keyspace is created if missing, and its leases."""
    ledger, leases = place.ledger(keep), place.leases()
    with _engine(place, wanted, ledger, writes=True) as engine:
        recount = replace(_recount(place, order, order.timing, ledger, leases), lags=_lags_in(place, ledger))
        yield RepairTools(engine, place.clock, place.cluster, progress, recount, ledger, leases)


def means_for_lags(
    place: Place, order: RepairSettings, progress: Progress, keep: timedelta = KEEP
) -> tuple[LagJournal, RepairTools]:
    """The journal of lags, and tools to mend them; a dry run creates and writes nothing."""
    nowhere = MemoryTables(place.clock.micros)
    ledger = (place.existing_ledger() or Ledger(nowhere, place.clock)) if order.dry_run else place.ledger(keep)
    leases = None if order.dry_run else place.leases()
    journal = _lags_in(place, ledger)
    engine = LocalEngine(place.mail, ledger, place.clock)
    recount = _recount(place, order, order.timing, ledger, leases or Leases(nowhere, place.clock, owner_name()))
    recount = replace(recount, lags=journal)
    return journal, RepairTools(engine, place.clock, place.cluster, progress, recount, ledger, leases)


def means_to_undo(
    place: Place, families: tuple[Family, ...], progress: Progress, *, no_writers: bool = False
) -> UndoTools:
    """Tools of an undo."""
    ledger, leases, timing = place.ledger(), place.leases(), Timing(no_writers=no_writers)
    mail = place.mail
    counters = CounterMender(mail, mail.name, families, place.clock, timing, ledger, leases)
    return UndoTools(mail, ledger, place.clock, progress, leases, counters)


@contextmanager
def _engine(place: Place, wanted: EngineWanted, ledger: Ledger, *, writes: bool = False) -> Iterator[Engine]:
    if wanted.target is not None:
        yield Targeted(place.mail, ledger, place.clock, wanted.target)
        return
    if wanted.name == "local":
        yield LocalEngine(place.mail, ledger, place.clock)
        return
    session = import_or_name_extra("spark_repair.session")
    spark = import_or_name_extra("spark_repair.message_inconsistencies")
    master = wanted.master or "local[*]"
    settings = session.SparkSettings(master, java_home=_java_home_of_spark(), options=wanted.spark_conf)
    ledger_keyspace = place.connection.ledger_keyspace if writes else None
    with session.session_for_a_command(settings) as opened:
        yield spark.SparkEngine(opened, contact_of(place.connection), place.mail.name, ledger_keyspace, ledger.keep)


def _java_home_of_spark() -> str | None:
    """The same search as for Cassandra; within spark-submit the JVM runs already."""
    inside = "PYSPARK_GATEWAY_PORT" in os.environ
    return None if inside else str(find_java(SPARK, os.environ).home)


def _recount(place: Place, order: RepairSettings, timing: Timing, ledger: Ledger, leases: Leases) -> CounterMender:
    return CounterMender(place.mail, order.keyspace, order.families, place.clock, timing, ledger, leases)


def target_of(
    place: Place, messages: tuple[UUID, ...], mailboxes: tuple[UUID, ...], users: tuple[str, ...], *, scan: bool
) -> Target | None:
    """What the command line names; None for the whole keyspace.

    Raises:
        WrongUse: a scan of nothing, or a user without a mailbox.
    """
    if scan and not (messages or mailboxes or users):
        raise WrongUse(
            "--scan goes with --message, --mailbox or --user", mend="Without them everything is scanned anyway."
        )
    named = [MailboxId(one) for one in mailboxes]
    of_users = [one for user in users for one in mailboxes_of(place.mail, user)]
    everywhere = tuple(dict.fromkeys([*named, *of_users]))
    if messages:
        return Messages(tuple(MessageId(one) for one in messages), everywhere, scan)
    return Mailboxes(everywhere, scan=scan) if everywhere else None


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


@dataclass(frozen=True, slots=True)
class StateFolders:
    """What mailmend stores of this user on this machine: unfinished loads, refused lags, removed mails."""

    root: Path

    @property
    def loads(self) -> Path:
        """Progress of each load."""
        return self.root / "loads"

    @property
    def removed_mails(self) -> Path:
        """Mails that were deleted or purged from a queue; `queue restore` puts them back."""
        return self.root / "queue"

    @property
    def spool(self) -> Path:
        """Lags that the ledger refused; the next `repair lags` reads them."""
        return self.root / "spool"


def state_folders() -> StateFolders:
    """Under the user's data folder, as the XDG base directory specification says."""
    return StateFolders(data_home(os.environ, Path.home()))


def lag_journal(place: Place) -> LagJournal:
    return _lags_in(place, place.ledger())


def _lags_in(place: Place, ledger: Ledger) -> LagJournal:
    spool = Spool(state_folders().spool, place.mail.name)
    return LagJournal(ledger.tables, place.mail.name, place.clock, spool)


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
