"""Which adapter implements which port of a cluster: its keyspaces, the ledger, the tools of a repair."""

import getpass
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.kept_clusters import kept_cluster
from mailmend.admin.frame.plan_files import PlanFile
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.local.folders import data_home, home_of
from mailmend.admin.local.jars import SPARK, connector_jars, find_java
from mailmend.cql.applying import ensure_ledger
from mailmend.cql.driver.contact import Contact
from mailmend.cql.introspect import identity_of, live_schema, tables_of
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.cleanup.scan import LocalQueueScanner, QueueScanner
from mailmend.mailqueue.collection.scan import BlobScanner, LocalBlobScanner
from mailmend.model.catalog.ledger import JOB_PAUSE, KEEP, REPAIR_RUN
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.catalog.mail_queue import JAMES_QUEUE_TABLES
from mailmend.model.errors import BadSettings, JavaMissing, UnknownRun
from mailmend.model.operations import Level
from mailmend.model.ports import Clock, Progress, Tables
from mailmend.model.projections.family import Family
from mailmend.model.sizes import TableSize
from mailmend.model.table import Table
from mailmend.model.texts import wellformed
from mailmend.repair.binding import BoundFamilies, bound, left_out
from mailmend.repair.clock import SystemClock, Timing
from mailmend.repair.decisions.engines import Engine, choose_engine, estimated_rows
from mailmend.repair.ledger.jobs import AdminTasks, JobRuns
from mailmend.repair.ledger.lags import LagJournal, Spool
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger, RunLimits
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import Detector, KnownSuspects, RepairSettings
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.runner import GoOn, RepairTools
from mailmend.repair.mending.throttle import SmallRead, Throttle
from mailmend.repair.scanners.local import LocalEngine
from mailmend.repair.scanners.lookup import Target, Targeted

if TYPE_CHECKING:
    from mailmend.cql.driver.session import CassandraCluster, Keyspace
    from mailmend.repair.staging.area import StagingArea


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """An open cluster, its mail keyspace, and its ledger keyspace.

    Attributes:
        with_it: what was opened since, like Spark, and is closed before it.
    """

    connection: ConnectionSettings
    cluster: "CassandraCluster"
    clock: SystemClock
    with_it: ExitStack = field(default_factory=ExitStack)

    @property
    def mail(self) -> "Keyspace":
        return self.cluster.keyspace(self.connection.keyspace)

    def families(self, wanted: tuple[Family, ...] = FAMILIES) -> tuple[Family, ...]:
        """The families as far as the live keyspace has them."""
        return self.bound(wanted).families

    def bound(self, wanted: tuple[Family, ...], without: Iterable[str] = ()) -> BoundFamilies:
        """The families as far as the live keyspace has them, and what it lacks.

        Raises:
            WrongUse: a name of `without` is not one of a column or table that can be left out.
        """
        mail = self.mail
        return bound(mail.name, live_schema(self.cluster, mail.name), wanted, left_out(without))

    @property
    def has_queues(self) -> bool:
        """Whether the keyspace has any of James's tables of queues."""
        return not tables_of(self.cluster, self.mail.name).isdisjoint(table.name for table in JAMES_QUEUE_TABLES)

    def identity(self, tables: Iterable[Table]) -> str:
        """An identity of tables: tables of another cluster, and altered tables, have another one."""
        return identity_of(self.cluster, self.mail.name, {table.name for table in tables})

    def sizes(self) -> Mapping[str, TableSize]:
        """Estimates of the mail tables' sizes, by name."""
        from mailmend.cql.driver.nodes import sizes_in  # noqa: PLC0415 - brings the driver

        return sizes_in(self.cluster, self.connection.keyspace)

    def pending_compactions(self) -> int | None:
        """The pending compactions of the node that has most; None where no node tells."""
        from mailmend.cql.driver.nodes import pending_compactions  # noqa: PLC0415 - brings the driver

        return pending_compactions(self.cluster)

    def nodes(self) -> tuple[list[str], list[str]]:
        """The addresses of nodes that are up, and of nodes that are down."""
        up = {str(host.address) for host in self.cluster.nodes_up()}
        all_nodes = {str(host.address) for host in self.cluster.metadata.all_hosts()}
        return sorted(up), sorted(all_nodes - up)

    def ledger(self, keep: timedelta = KEEP) -> Ledger:
        """The ledger; its keyspace and tables are created if missing."""
        self._make_ledger()
        return Ledger(self.ledger_tables, self.clock, keep, self.connection.job)

    def existing_ledger(self, keep: timedelta = KEEP) -> Ledger | None:
        """The ledger if there is one, with its table of runs; reading it creates nothing."""
        if not self._ledger_has(REPAIR_RUN):
            return None
        return Ledger(self.ledger_tables, self.clock, keep)

    def known_ledger(self, run: UUID | str) -> Ledger:
        """The ledger, for a run that it should hold; UnknownRun without any ledger."""
        ledger = self.existing_ledger()
        if ledger is None:
            raise UnknownRun(
                f"there is no run {run}: keyspace {self.connection.ledger_keyspace!r} holds no ledger",
                mend="Name the keyspace of the ledger with --ledger-keyspace.",
            )
        return ledger

    def job_runs(self) -> JobRuns:
        """The runs of jobs; the ledger is created if missing."""
        self._make_ledger()
        return self._job_runs

    def existing_job_runs(self) -> JobRuns | None:
        """The runs of jobs, if the ledger has a table of them; reading them creates nothing."""
        if not self._ledger_has(JOB_PAUSE):
            return None
        return self._job_runs

    @property
    def _job_runs(self) -> JobRuns:
        return JobRuns(self.ledger_tables, self.connection.keyspace, self.clock, owner_name())

    def admin_tasks(self) -> AdminTasks:
        """The administrative tasks; the ledger is there already."""
        return AdminTasks(self.ledger_tables, self.connection.keyspace, self.clock, socket.gethostname())

    def leases(self) -> Leases:
        owner = owner_name()
        if self.connection.job:
            owner += f", job {self.connection.job}"
        return Leases(self.ledger_tables, self.clock, owner)

    @property
    def ledger_tables(self) -> "Keyspace":
        """The keyspace of the ledger; it is there already."""
        return self.cluster.keyspace(self.connection.ledger_keyspace)

    def _make_ledger(self) -> None:
        ensure_ledger(self.cluster, self.connection.ledger_keyspace, self.connection.keyspace)

    def _ledger_has(self, table: Table) -> bool:
        return table.name in tables_of(self.cluster, self.connection.ledger_keyspace)


@contextmanager
def open_cluster(connection: ConnectionSettings) -> Iterator[OpenCluster]:
    """Connect, unless a server keeps this cluster open; close at the end what was opened here."""
    contact = contact_of(connection)
    with ExitStack() as with_it:
        session = import_or_name_extra("mailmend.cql.driver.session")
        cluster = kept_cluster(contact) or with_it.enter_context(session.connect(contact))
        yield OpenCluster(connection, cluster, SystemClock(), with_it)


def repair_tools(
    opened: OpenCluster,
    settings: RepairSettings,
    source: Engine | Target | PlanFile,
    progress: Progress,
    *,
    keep: timedelta | None = None,
    timing: Timing | None = None,
    staging: "StagingArea | None" = None,
    go_on: GoOn | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> RepairTools:
    """Tools of a check or a repair.

    Args:
        opened: the cluster.
        settings: of the run.
        source: of the suspects: an engine scans, a target is read by key, a plan names them.
        progress: receives the progress.
        keep: how long before-images are kept; None: ledger and leases are in memory, so that
            nothing can be written.
        timing: of the looks at counters; None: the run's timing.
        staging: where the rows of a scan are kept.
        go_on: as in `RepairTools`.
        meanwhile: as in `RepairTools`.
    """
    clock = opened.clock
    own: Ledger | None = None
    own_leases: Leases | None = None
    mail: Tables | None = None
    lags: LagJournal | None = None
    if keep is None:
        ledger, leases = _in_memory(opened)
    else:
        own = ledger = opened.ledger(keep)
        own_leases = leases = opened.leases()
        mail = opened.mail
        lags = lag_journal(opened, own)
    throttle, tables, images = _paced(opened, settings, ledger, own)
    counters = CounterMender(
        tables,
        settings.keyspace,
        settings.families,
        clock,
        timing or settings.timing,
        images,
        leases,
        lags,
    )
    detector: Detector
    match source:
        case PlanFile():
            known = (settings.families, source.verdicts, source.suspects, "read the plan")
            detector = KnownSuspects(tables, images, clock, *known)
        case Engine(name="local"):
            detector = LocalEngine(tables, images, clock, staging=staging)
        case Engine():
            detector = _spark_engine(opened, source, own, throttle, staging)
        case _:
            detector = Targeted(tables, images, clock, source)
    return RepairTools(
        detector,
        clock,
        opened.cluster,
        progress,
        counters,
        own,
        own_leases,
        mail,
        go_on,
        throttle,
        meanwhile,
    )


def lag_tools(
    opened: OpenCluster, settings: RepairSettings, progress: Progress, keep: timedelta
) -> tuple[LagJournal, RepairTools]:
    """The journal of lags, and tools to mend them; a dry run creates and writes nothing."""
    own: Ledger | None = None
    own_leases: Leases | None = None
    if settings.dry_run:
        ledger, leases = _in_memory(opened)
        ledger = opened.existing_ledger() or ledger
    else:
        own = ledger = opened.ledger(keep)
        own_leases = leases = opened.leases()
    throttle, mail, images = _paced(opened, settings, ledger, own)
    journal = lag_journal(opened, ledger)
    engine = LocalEngine(mail, ledger, opened.clock)
    counters = CounterMender(
        mail, settings.keyspace, settings.families, opened.clock, settings.timing, images, leases, lags=journal
    )
    parts = (engine, opened.clock, opened.cluster, progress, counters)
    return journal, RepairTools(*parts, ledger, own_leases, opened.mail, throttle=throttle)


def throttle_of(
    opened: OpenCluster, rows_per_second: int | None, table: Table | None, level: Level, ledger: Ledger | None
) -> Throttle | None:
    """What changes the pace of a run; None: a look by hand that is not pressed, for it is on no record.

    Args:
        opened: the cluster.
        rows_per_second: the operator's limit.
        table: of the small reads by which the run sees how the cluster does; None: it is not pressed.
        level: of these reads.
        ledger: which has the run on record; None: nothing is written.
    """
    job_run = opened.connection.job_run
    clock = opened.clock
    if ledger is None and job_run:
        ledger = opened.existing_ledger()
    if not (table or ledger):
        return None
    throttle = Throttle(clock, rows_per_second, run=job_run)
    if table:
        throttle.read = SmallRead(opened.mail, table, clock, level)
        throttle.compactions = opened.pending_compactions
    if ledger:
        throttle.limits = RunLimits(ledger.tables, clock, opened.connection.ledger_keyspace)
    return throttle


def _paced(
    opened: OpenCluster, settings: RepairSettings, ledger: Ledger, own: Ledger | None
) -> tuple[Throttle | None, Tables, Ledger]:
    """The mail and the before-images at the one pace of the run; closing the run does not wait for it.

    Args:
        opened: the cluster.
        settings: of the run.
        ledger: of the before-images.
        own: the ledger that has the run on record; None: nothing is written.
    """
    rows_per_second = settings.policy.rows_per_second
    table: Table | None = None
    if settings.pressed and settings.families:
        table = settings.families[0].truth
    throttle = throttle_of(opened, rows_per_second, table, settings.level, own)
    pace = Pace(rows_per_second, opened.clock, throttle)
    return throttle, pace.over(opened.mail), replace(ledger, tables=pace.over(ledger.tables))


def _in_memory(opened: OpenCluster) -> tuple[Ledger, Leases]:
    nowhere = MemoryTables(opened.clock.micros)
    return Ledger(nowhere, opened.clock), Leases(nowhere, opened.clock, owner_name())


def _spark_engine(
    opened: OpenCluster,
    engine: Engine,
    ledger: Ledger | None,
    throttle: Throttle | None,
    staging: "StagingArea | None",
) -> Detector:
    messages = import_or_name_extra("mailmend.spark_repair.message_inconsistencies")
    connection = opened.connection
    ledger_keyspace = None
    keep = KEEP
    if ledger:
        ledger_keyspace = connection.ledger_keyspace
        keep = ledger.keep
    detector: Detector = messages.SparkEngine(
        _spark(opened, engine),
        contact_of(connection),
        opened.mail.name,
        ledger=ledger_keyspace,
        keep=keep,
        throttle=throttle,
        staging=staging,
    )
    return detector


def _spark(opened: OpenCluster, engine: Engine) -> Any:
    """The session: the first who asks starts it, and it runs until the cluster is closed."""
    if takes_any_name(opened.connection):
        raise BadSettings(
            "Spark's connections check no host names, so any certificate of a public authority would do for a node",
            mend="Name the authority of the nodes with --tls-ca, or use --engine local.",
        )
    session = import_or_name_extra("mailmend.spark_repair.session")
    settings = session.SparkSettings(
        engine.master or "local[*]",
        java_home=_java_home_of_spark(),
        jars=_connector_of_spark(session),
        options=engine.spark_conf,
        brief=engine.brief,
    )
    return opened.with_it.enter_context(session.session_for_a_command(settings))


def queue_scanner(opened: OpenCluster, engine: Engine, level: Level, pace: Pace) -> QueueScanner:
    """What reads the tables of all queues whole; workers of Spark keep a pace of their own of as many rows a second."""
    if engine.name == "local":
        return LocalQueueScanner(pace.over(opened.mail), opened.clock, level)
    scanner: Callable[[Any], QueueScanner] = import_or_name_extra(
        "mailmend.spark_repair.queue_cleanup"
    ).SparkQueueScanner
    return scanner(spark_source(opened, engine, level, pace))


def blob_scanner(opened: OpenCluster, engine: Engine, level: Level, pace: Pace) -> BlobScanner:
    """What reads every reference to blobs, and the tables of blobs, whole."""
    if engine.name == "local":
        return LocalBlobScanner(pace.over(opened.mail), level)
    scanner: Callable[[Any], BlobScanner] = import_or_name_extra(
        "mailmend.spark_repair.blob_collection"
    ).SparkBlobScanner
    return scanner(spark_source(opened, engine, level, pace))


def spark_source(opened: OpenCluster, engine: Engine, level: Level, pace: Pace) -> Any:
    """The keyspace as Spark reads it."""
    connector = import_or_name_extra("mailmend.spark_repair.source")
    spark = _spark(opened, engine)
    rate = pace.rows_per_second
    if pace.throttle is not None:
        rate = pace.throttle.limit
    return connector.Source(spark, contact_of(opened.connection), opened.mail.name, level, rate, pace.throttle)


def chosen_engine(
    opened: OpenCluster,
    scan: ScanOptions,
    remark: Callable[[str], None],
    truths: Sequence[Table] = (MESSAGES.truth,),
) -> Engine:
    """The engine of a scan of whole tables.

    `auto` goes by the estimated rows of the largest of `truths`, and remarks which engine it is.
    """

    def rows() -> int | None:
        sizes = opened.sizes()
        estimates = [estimated_rows(sizes.get(table.name)) for table in truths]
        return max((rows for rows in estimates if rows is not None), default=None)

    lacking = partial(_lacking_for_spark, opened.connection)
    engine = choose_engine(scan.engine, _asks_for_spark(scan), rows, lacking)
    if scan.engine == "auto":
        remark(f"Engine: {engine.name} ({engine.why}).")
    return replace(engine, master=scan.master, spark_conf=dict(scan.spark_conf))


def _asks_for_spark(scan: ScanOptions) -> str | None:
    """Why the scan must be Spark's: what was given that no other engine takes."""
    if _is_submitted():
        return "spark-submit runs it"
    if scan.master:
        return "--master was given"
    if scan.spark_conf:
        return "--spark-conf was given"
    return None


def takes_any_name(connection: ConnectionSettings) -> bool:
    """Whether Spark would trust every name that a public authority has signed: it checks no names."""
    return connection.tls is not None and connection.tls.authority is None


def _lacking_for_spark(connection: ConnectionSettings) -> str | None:
    if find_spec("pyspark") is None:
        return "PySpark is not installed"
    if takes_any_name(connection):
        return "no --tls-ca is given, and Spark checks no host names"
    try:
        _java_home_of_spark()
    except JavaMissing as error:
        return error.what
    return None


def _java_home_of_spark() -> str | None:
    """The same search as for Cassandra; within spark-submit the JVM runs already."""
    if _is_submitted():
        return None
    return str(find_java(SPARK, os.environ).home)


def _connector_of_spark(session: Any) -> Sequence[Path]:
    """Within spark-submit the connector is what --packages or --jars named."""
    if _is_submitted():
        return ()
    return connector_jars(session.coordinates_here())


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def this_clock() -> Clock:
    """The system's clock, for what needs no cluster."""
    return SystemClock()


def contact_of(connection: ConnectionSettings) -> Contact:
    contact = Contact(
        hosts=connection.hosts,
        port=connection.port,
        local_dc=connection.local_dc,
        username=connection.username,
        password=connection.password,
    )
    tls = connection.tls
    if not tls:
        return contact
    return replace(
        contact,
        tls_ca=str(tls.authority or _system_authorities()),
        tls_cert=_path_text(tls.certificate),
        tls_key=_path_text(tls.key),
        tls_hostnames=tls.hostnames or tls.authority is None,
    )


def _path_text(file: Path | None) -> str | None:
    if file is None:
        return None
    return str(file)


def state_folder(name: str) -> Path:
    """A folder of this user: `loads` (progress), `queue` (removed mails), `spool` (lags that the ledger refused).

    It is below the data folder that the XDG base directory specification names.
    """
    return data_home(os.environ, home_of(os.environ)) / name


def lag_journal(opened: OpenCluster, ledger: Ledger) -> LagJournal:
    spool = Spool(state_folder("spool"), opened.mail.name)
    return LagJournal(ledger.tables, opened.mail.name, opened.clock, spool)


def owner_name() -> str:
    """Name of this process, shown to those who find the lease taken."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return wellformed(f"{user}@{socket.gethostname()} pid {os.getpid()}")


def _system_authorities() -> str:
    paths = ssl.get_default_verify_paths()
    found = paths.cafile or paths.openssl_cafile
    if not found or not os.path.isfile(found):  # noqa: PTH113 - a text from OpenSSL
        raise BadSettings("TLS is asked for, but this system names no authorities", mend="Name one with --tls-ca.")
    return found
