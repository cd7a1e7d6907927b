"""Which migrations are meant, and what connects them with a cluster: history, lease, nodes."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.cluster import OpenCluster, owner_name
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.cql.applying import ensure_ledger
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.files import read_folder, shipped
from mailmend.cql.migrate.history import History, record_of
from mailmend.cql.migrate.migrator import STATEMENT_SECONDS, WAIT_SECONDS, Agreement, Migrator
from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.cql.render import COPIES_MAX, Replication, in_every_data_centre, parse_replication
from mailmend.cql.schema.migrations import NUMBER_MAX, LedgerRecord, Migration, Phase, Unlock
from mailmend.model.catalog.ledger import HISTORY_TABLES, KeyspaceLease
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.errors import LeaseHeld, WrongUse
from mailmend.model.ports import Progress
from mailmend.model.texts import keyspace_option
from mailmend.repair.ledger.leases import TTL_SECONDS, Lease, Leases, sure_seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits, and which nodes have to take part.

    Attributes:
        statement: the longest time for one statement; the lease must outlive it.
        agreement: the longest wait until the nodes agree on the schema.
        lease: how long the lease outlives an applier that was killed.
        require_all: whether nodes that are down are waited for.
    """

    statement: timedelta = timedelta(seconds=STATEMENT_SECONDS)
    agreement: timedelta = timedelta(seconds=WAIT_SECONDS)
    lease: timedelta = timedelta(seconds=TTL_SECONDS)
    require_all: bool = False

    def __post_init__(self) -> None:
        """Refuses a lease that may end before a statement does: the first statement would be refused."""
        if sure_seconds(self.lease.total_seconds()) < self.statement.total_seconds():
            raise WrongUse(
                f"a lease of {self.lease.total_seconds():g} s does not surely outlive a statement of "
                f"{self.statement.total_seconds():g} s",
                mend="Give a longer --lease, or a shorter --statement-timeout.",
            )


def migrations_in(folder: Path | None) -> tuple[Migration, ...]:
    if folder is None:
        return shipped()
    return read_folder(folder)


def history_of(opened: OpenCluster) -> History | None:
    """The history in the ledger, if any; reading it creates nothing."""
    ledger = opened.connection.ledger_keyspace
    live = live_schema(opened.cluster, ledger)
    if any(live.table(table.name) is None for table in HISTORY_TABLES):
        return None
    return _history(opened)


@contextmanager
def migrator_of(opened: OpenCluster, patience: Patience, progress: Progress) -> Iterator[Migrator]:
    """A migrator that runs migrations on the cluster.

    Args:
        opened: the cluster and its keyspaces.
        patience: the limits.
        progress: receives the progress.
    """
    from mailmend.cql.driver.nodes import CassandraNodes  # noqa: PLC0415 - brings the driver

    connection = opened.connection

    def open_history(replication: Replication | None) -> History:
        ensure_ledger(opened.cluster, connection.ledger_keyspace, connection.keyspace, replication)
        return _history(opened)

    def leases() -> Leases:
        return Leases(
            opened.ledger_tables,
            opened.clock,
            owner_name(),
            round(patience.lease.total_seconds()),
        )

    nodes = CassandraNodes(opened.cluster)
    waited = patience.agreement.total_seconds()
    agreement = Agreement(nodes, opened.clock, waited, patience.require_all)
    with _named_way_out(connection.keyspace):
        yield Migrator(
            opened.cluster,
            opened.clock,
            agreement,
            progress,
            history_of(opened),
            open_history,
            leases,
            patience.statement.total_seconds(),
        )


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """The ledger's record of one keyspace's schema: history, current lease, and forced unlocks."""

    past: LedgerRecord = field(default_factory=LedgerRecord)
    lease: Lease | None = None
    unlocks: tuple[Unlock, ...] = ()


def schema_record_of(opened: OpenCluster) -> SchemaRecord:
    history = history_of(opened)
    if history is None:
        return SchemaRecord()
    return SchemaRecord(record_of(history), standing_lease(opened), history.unlocks())


def standing_lease(opened: OpenCluster) -> Lease | None:
    """The lease of a schema change that runs now; None without a lease."""
    if history_of(opened) is None:
        return None
    return opened.leases().holder(KeyspaceLease.SCHEMA.of(opened.connection.keyspace))


def unlock(opened: OpenCluster, reason: str) -> Unlock | None:
    """End the lease by force, and record whose it was, who ended it and why; None where there was no lease."""
    history = _history(opened)
    ended = opened.leases().force_release(KeyspaceLease.SCHEMA.of(opened.connection.keyspace), reason)
    if ended is None:
        return None
    since = f"{ended.acquired_at:%Y-%m-%d %H:%M:%S}"
    return history.unlocked(f"{ended.owner}, since {since} UTC", reason)


@contextmanager
def _named_way_out(keyspace: str) -> Iterator[None]:
    """Where another holds the lease, add to the error how to end it when its holder is known to be dead."""
    try:
        yield
    except LeaseHeld as held:
        see = f"See how far it is with: mailmend schema history {keyspace_option(keyspace)}."
        unlock = f"mailmend schema force-unlock {keyspace_option(keyspace)} --reason 'its holder is gone: ...'"
        raise LeaseHeld(held.what, mend=f"{held.mend} {see} Where it surely is gone: {unlock}") from held


def _history(opened: OpenCluster) -> History:
    return History(opened.ledger_tables, opened.clock, opened.connection.keyspace, owner_name(), version("mailmend"))


def folder_of(past: LedgerRecord, named: Path | None) -> Path | None:
    """The folder to be named with what comes next; DIR where it was not named, and the history is not of our own."""
    ours = {str(migration.file) for migration in migrations_in(None)}
    if named:
        return named
    if all(str(entry.file) in ours for entry in past.entries):
        return None
    return Path("DIR")


def again(keyspace: str, folder: Path | None) -> str:
    """The options that name the same keyspace and the same migrations once more."""
    same_keyspace = keyspace_option(keyspace)
    if folder:
        return f" --migrations {shlex.quote(str(folder))} {same_keyspace}"
    return f" {same_keyspace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationsRequest:
    """Which migrations, up to which version, and how the keyspace and the big tables are created."""

    connection: ConnectionSettings
    migrations: Path | None = None
    to: int | None = None
    phase: Phase | None = None
    replication_factor: int | None = None
    replication: Replication | None = None
    compaction: CompactionChoice | None = None
    complete: bool = False
    new_keyspace: bool = False
    into_existing: bool = False

    def rollout(self) -> RolloutRequest:
        """The same request for the migrator.

        Raises:
            BadMigration: the folder's migrations cannot be run.
            WrongUse: the replication is given twice.
        """
        factor = self.replication_factor
        replication = self.replication
        ours = self.migrations is None
        if factor is not None and replication is not None:
            raise WrongUse("--replication-factor and --replication exclude each other", mend="Give one of them.")
        if factor:
            replication = in_every_data_centre(factor)
        return RolloutRequest(
            self.connection.keyspace,
            migrations_in(self.migrations),
            ours=ours,
            replication=replication,
            creates=ours or replication is not None,
            compaction=self.compaction or CompactionChoice.TWCS,
            new=self.new_keyspace,
            into_existing=self.into_existing,
            complete=self.complete,
            to=self.to,
            phase=self.phase,
        )


_REPLICATION: Final = ParsedValue("replication", lambda text: parse_replication(str(text)))


FOLDER: Final = option(
    "--migrations",
    "Folder of your own migrations: for any keyspace, any tables. [default: mailmend's own]",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
)
SPOKEN_OF: Final = option(
    "--migrations",
    "Folder of your own migrations: the commands that come next are shown with it.",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
)
MIGRATIONS: Final = (
    FOLDER,
    option("--to", "The last migration to run.", type=click.IntRange(1, NUMBER_MAX), metavar="NNNN"),
    option(
        "--phase",
        "Only migrations of this phase: pre, before the new software is rolled out; post, after. Stops where the other "
        "comes first.",
        type=click.Choice(Phase, case_sensitive=False),
    ),
    option(
        "--replication-factor",
        "Copies in each data centre, when the keyspace is created. [default: 1 on a cluster of one node]",
        type=click.IntRange(1, COPIES_MAX),
        metavar="N",
    ),
    option(
        "--replication",
        "Copies in each of the data centres, when the keyspace is created; or SimpleStrategy=N.",
        type=_REPLICATION,
        metavar="DC=N,...",
    ),
    option(
        "--compaction",
        "Compaction of the big message tables, when they are created; unified needs Cassandra 5. [default: twcs]",
        type=click.Choice(CompactionChoice, case_sensitive=False),
    ),
    flag("--complete", "Also create what a keyspace of James lacks."),
    flag("--new-keyspace", "Create a keyspace although its name is almost the name of another."),
    flag("--into-existing", "Create tables in a keyspace that holds tables of another application."),
)
