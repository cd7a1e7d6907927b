"""`mailmend schema history` and `force-unlock`, and what every command of migrations shares.

Shared is which migrations are meant, and what connects them with a cluster: history, lease, nodes.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster, owner_name
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json, instant_text, plain, shown
from mailmend.cql.applying import ensure_ledger
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.files import read_folder, shipped
from mailmend.cql.migrate.history import History, record_of
from mailmend.cql.migrate.migrator import STATEMENT_SECONDS, WAIT_SECONDS, Agreement, Migrator
from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.cql.render import COPIES_MAX, Replication, in_every_data_centre, parse_replication
from mailmend.cql.schema.migrations import (
    NUMBER_MAX,
    Entry,
    LedgerRecord,
    Migration,
    MigrationState,
    Phase,
    StatementEntry,
    StatementState,
    Unlock,
    file_names,
)
from mailmend.model.catalog.ledger import HISTORY_TABLES, KeyspaceLease
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.errors import LeaseHeld, UnsafeRequest, WrongUse
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
    ours = frozenset(file_names(migrations_in(None)))
    if named:
        return named
    if ours.issuperset(file_names(past.entries)):
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


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The history of a keyspace's schema; the folder of the migrations it was made by, None for our own."""

    keyspace: str
    folder: Path | None
    record: SchemaRecord


@dataclass(frozen=True, slots=True)
class UnlockResult:
    """The lease that was ended; None where there was none."""

    keyspace: str
    folder: Path | None
    ended: Unlock | None


def history(connection: ConnectionSettings, migrations: Path | None = None) -> HistoryResult:
    with open_cluster(connection) as opened:
        record = schema_record_of(opened)
    return HistoryResult(connection.keyspace, folder_of(record.past, migrations), record)


def force_unlock(
    connection: ConnectionSettings, reason: str, caller: Caller, *, migrations: Path | None = None, yes: bool = False
) -> UnlockResult:
    """End the lease of an apply that is known to be dead, and record why.

    Raises:
        UnsafeRequest: no reason; or there is no terminal to ask on, or the answer was no.
    """
    reason = reason.strip()
    if not reason:
        raise UnsafeRequest("the reason is empty", mend="Give the reason with --reason, for the next reader.")
    with open_cluster(connection) as opened:
        lease = standing_lease(opened)
        if lease is not None and not yes:
            _ask_about(lease, caller)
        ended = None
        if lease is not None:
            ended = unlock(opened, reason)
        folder = folder_of(schema_record_of(opened).past, migrations)
    return UnlockResult(connection.keyspace, folder, ended)


def _ask_about(lease: Lease, caller: Caller) -> None:
    held = f"{lease.owner} has held it since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC, for {lease.purpose}"
    if caller.ask is None:
        raise UnsafeRequest(
            f"the lease is not ended unasked: {held}", mend="Give --yes where you know that it is gone."
        )
    if not caller.ask(f"{held}. Is it surely gone?"):
        raise UnsafeRequest("the lease was left as it is", mend="It expires once it is not renewed any more.")


def history_document(result: HistoryResult) -> Document:
    return Document(history_json(result), tuple(_history_parts(result)))


def history_json(result: HistoryResult) -> dict[str, Any]:
    record = result.record
    return {
        "keyspace": result.keyspace,
        "migrations": [entry_json(entry) for entry in record.past.entries],
        "statements": [_statement_json(statement) for statement in record.past.statements],
        "holder": record.lease and _lease_json(record.lease),
        "unlocks": plain(record.unlocks),
        "exit": 0,
    }


def entry_json(entry: Entry) -> dict[str, Any]:
    timed = ("state", "statements", "done", "checksum", "chain", "started_at", "ended_at", "owner", "version")
    return {
        "migration": str(entry.file),
        "number": entry.number,
        "phase": entry.file.phase.value,
        **fields_json(entry, *timed),
        "note": entry.note or None,
    }


def _statement_json(one: StatementEntry) -> dict[str, Any]:
    fields = fields_json(one, "number", "position", "state", "cql", "started_at", "ended_at")
    return {**fields, "error": one.error or None}


def _lease_json(lease: Lease) -> dict[str, Any]:
    since = instant_text(lease.acquired_at)
    until = instant_text(lease.expires_at)
    return {"owner": lease.owner, "purpose": lease.purpose, "since": since, "until": until}


def _history_parts(result: HistoryResult) -> Iterator[Part]:
    keyspace = result.keyspace
    found = result.record
    entries = found.past.entries
    statements = found.past.statements
    if entries:
        columns = ("migration", "state", "done", "when", "by")
        rows = [_entry_cells(entry) for entry in entries]
        yield Grid(f"Schema of {keyspace}", columns, rows, frozenset({"by"}))
    else:
        yield f"{keyspace} has no history: no migration was applied, nothing was adopted."
    for note in dict.fromkeys(entry.note for entry in entries if entry.note):
        yield f"Baseline: {note}."
    if statements:
        columns = ("migration", "statement", "state", "what", "error")
        rows = [_statement_cells(statement) for statement in statements]
        yield Grid("Statements of what has not ended", columns, rows, frozenset({"state", "what", "error"}))
    if found.unlocks:
        unlocks = []
        for unlock in found.unlocks:
            unlocks.append((shown(unlock.at), unlock.holder, unlock.by, unlock.reason))
        wrapped = frozenset({"holder", "by", "reason"})
        yield Grid("Ended by force", ("at", "holder", "by", "reason"), unlocks, wrapped)
    if found.lease:
        yield f"At work: {found.lease.owner}, until {shown(found.lease.expires_at)} UTC unless renewed."
    elif statements or any(not entry.ended for entry in entries):
        yield f"No process is at work. To go on: mailmend schema apply{again(result.keyspace, result.folder)}"


def _entry_cells(entry: Entry) -> Sequence[str]:
    counted = f"{entry.done}/{entry.statements}"
    if entry.state is MigrationState.BASELINE:
        counted = ""
    return (str(entry.file), entry.state.value, counted, shown(entry.ended_at or entry.started_at), entry.owner)


def _statement_cells(statement: StatementEntry) -> Sequence[str]:
    first, *_ = statement.cql.splitlines()
    state = statement.state.value
    if statement.state is StatementState.BEGUN:
        state = "begun (the next apply looks whether it took effect)"
    return (f"{statement.number:04}", str(statement.position + 1), state, first, statement.error)


def unlock_document(result: UnlockResult) -> Document:
    ended = result.ended
    if ended is None:
        json = {"keyspace": result.keyspace, "ended": None, "exit": 0}
        return Document(json, ("The lease is free.",))
    json = {"keyspace": result.keyspace, "ended": ended.holder, "exit": 0}
    plan = f"mailmend schema plan{again(result.keyspace, result.folder)}"
    hint = f"Next: {plan} says where it stopped; schema apply goes on from there."
    return Document(json, (f"Ended the lease of {ended.holder}.",), hints=(hint,))


HISTORY: Final = Command(
    name="history",
    summary="What was applied, when, by whom; who is at work.",
    about="""Writes nothing. `running` is a migration that an apply works on, or was interrupted in: its statements are
    listed. `baseline` is one that was never run here, for what it makes was there already.""",
    service="mailmend.admin.schema.migrating:history",
    present="mailmend.admin.schema.migrating:history_document",
    paged=True,
    options=(SPOKEN_OF,),
    shared=(CONNECTION,),
    examples="""
        mailmend schema history                       every migration, and who is at work
        mailmend schema history --migrations db --keyspace shop
        mailmend schema history --json | jq '.migrations[] | select(.state == "running")'""",
    exits="0 it was shown, also an empty one; 2 wrong use; 4 the cluster cannot be reached.",
)

FORCE_UNLOCK: Final = Command(
    name="force-unlock",
    summary="End the lease of an apply that is gone.",
    about="""If it still works, it stops before its next statement. Who held it, who ended it and why is kept: `mailmend
    schema history` shows it. A lease that is not renewed expires within a minute: waiting is safer.""",
    service="mailmend.admin.schema.migrating:force_unlock",
    present="mailmend.admin.schema.migrating:unlock_document",
    options=(
        option("--reason", "Reason: kept in the history, with your name.", required=True, metavar="TEXT"),
        SPOKEN_OF,
        flag("--yes", "Do not ask."),
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend schema history                                          who holds the lease, since when, until when
        mailmend schema force-unlock --reason 'pod apply-7 was evicted'  asks, then ends it
        mailmend schema force-unlock --reason '...' --yes                without asking""",
    exits="0 it is ended, or was not held; 2 wrong use, or the answer was no; 4 the cluster cannot be reached.",
)
