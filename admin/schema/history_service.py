"""The state of the schema: verify it, show its history, end its lease by force, take over a keyspace of James."""

from dataclasses import dataclass
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.schema.migrating import (
    Patience,
    SchemaRecord,
    history_of,
    migrations_in,
    migrator_of,
    schema_record_of,
    standing_lease,
    unlock,
)
from mailmend.cql.introspect import beside_model, live_schema
from mailmend.cql.migrate import adoption as adopting
from mailmend.cql.migrate.adoption import VersionWritten
from mailmend.cql.render import ServerVersion, parse_version
from mailmend.cql.schema.migrations.adoption import Adoption, Standing
from mailmend.cql.schema.migrations.history import Baseline, LedgerRecord, Unlock
from mailmend.cql.schema.migrations.verification import Verification, verify_migrations, verify_ours
from mailmend.model.errors import ExitCode, UnsafeRequest, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.repair.ledger.leases import Lease

ADOPTED = (Standing.ADOPTABLE, Standing.ADOPTED, Standing.OURS)
"""What an adoption leaves adopted, or finds so."""


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The state of a keyspace.

    Attributes:
        folder: of the migrations that it was made by; None for our own.
        not_compared: what the keyspace has and the model has no place for, by name.
    """

    keyspace: str
    folder: Path | None
    found: Verification
    not_compared: tuple[str, ...] = ()

    @property
    def exit(self) -> ExitCode:
        return ExitCode.FINE if self.found.agrees else ExitCode.DRIFT


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest:
    """Which keyspace is taken over, or with `forget` given back."""

    connection: ConnectionSettings
    dry_run: bool = False
    forget: bool = False
    write_schema_version: int | None = None


@dataclass(frozen=True, slots=True)
class AdoptResult:
    """What was found and done.

    Attributes:
        wrote: whether the baseline was written now.
    """

    keyspace: str
    live: Schema
    server: ServerVersion
    adoption: Adoption
    baseline: Baseline | None
    wrote: bool
    dry_run: bool
    version: VersionWritten | None

    @property
    def exit(self) -> ExitCode:
        return ExitCode.FINE if self.adoption.standing in ADOPTED else ExitCode.WRONG_USE


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """Which adoption was removed; None where there was none."""

    keyspace: str
    baseline: Baseline | None
    dry_run: bool


def verify(connection: ConnectionSettings, migrations: Path | None = None) -> VerifyResult:
    """Compare a live keyspace with its model and its history; reads only.

    Raises:
        UnknownKeyspace: no such keyspace.
    """
    keyspace = connection.keyspace
    wanted = migrations_in(migrations)
    with open_cluster(connection) as opened:
        opened.cluster.replication_of(keyspace)
        history = history_of(opened)
        record = history.record() if history else None
        live = live_schema(opened.cluster, keyspace)
        not_compared = beside_model(opened.cluster, keyspace)
    found = (verify_ours if migrations is None else verify_migrations)(live, wanted, record)
    return VerifyResult(keyspace, _folder_of(record or LedgerRecord(), migrations), found, not_compared)


def history(connection: ConnectionSettings, migrations: Path | None = None) -> HistoryResult:
    with open_cluster(connection) as opened:
        record = schema_record_of(opened)
    return HistoryResult(connection.keyspace, _folder_of(record.past, migrations), record)


def _folder_of(past: LedgerRecord, named: Path | None) -> Path | None:
    """The folder to be named with what comes next; DIR where nobody named it, and the history is not of our own."""
    ours = {str(migration.file) for migration in migrations_in(None)}
    return named or (None if all(str(entry.file) in ours for entry in past.entries) else Path("DIR"))


def force_unlock(
    connection: ConnectionSettings, reason: str, caller: Caller, *, migrations: Path | None = None, yes: bool = False
) -> UnlockResult:
    """End the lease of an apply that is known to be dead, and record why.

    Raises:
        UnsafeRequest: no reason; or nobody can be asked, or the answer was no.
    """
    reason = reason.strip()
    if not reason:
        raise UnsafeRequest("the reason is empty", mend="Say why with --reason: whoever looks next wants to know.")
    with open_cluster(connection) as opened:
        lease = standing_lease(opened)
        if lease is not None and not yes:
            _ask_about(lease, caller)
        ended = unlock(opened, reason) if lease is not None else None
        folder = _folder_of(schema_record_of(opened).past, migrations)
    return UnlockResult(connection.keyspace, folder, ended)


def _ask_about(lease: Lease, caller: Caller) -> None:
    held = f"{lease.owner} has held it since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC, for {lease.purpose}"
    if caller.ask is None:
        raise UnsafeRequest(
            f"the lease is not ended unasked: {held}", mend="Give --yes where you know that it is gone."
        )
    if not caller.ask(f"{held}. Is it surely gone?"):
        raise UnsafeRequest("the lease was left as it is", mend="It ends by itself once it is not renewed any more.")


def adopt(request: AdoptRequest, caller: Caller) -> AdoptResult | ForgetResult:
    """Take over a keyspace of James without altering anything in it, or give it back.

    Raises:
        WrongUse: it is to be given back, and James's schema version is to be written.
        LeaseHeld: its schema is being changed by another.
    """
    if request.forget and request.write_schema_version is not None:
        raise WrongUse("--forget and --write-schema-version exclude each other", mend="Give one of them.")
    with open_cluster(request.connection) as opened:
        return (_forget if request.forget else _adopt)(opened, request, caller)


def _adopt(opened: OpenCluster, request: AdoptRequest, caller: Caller) -> AdoptResult:
    keyspace = opened.connection.keyspace
    cluster = opened.cluster
    adoption, baseline = adopting.look_at(cluster, keyspace, history_of(opened))
    live = live_schema(cluster, keyspace)
    version = request.write_schema_version
    step = None
    if version is not None and adoption.standing in ADOPTED:
        step = adopting.version_step(live, keyspace, opened.mail, adoption.recognition.generation, version)
    writes = adoption.standing is Standing.ADOPTABLE and not request.dry_run
    if writes:
        with migrator_of(opened, Patience(), caller.progress) as migrator:
            baseline = adopting.adopt(cluster, migrator.open_history(None), migrator.leases(), migrations_in(None))
    written = None
    if step is not None:
        written = VersionWritten(step) if request.dry_run else adopting.write_version(opened.mail, opened.clock, step)
    server = parse_version(cluster.release_version)
    return AdoptResult(keyspace, live, server, adoption, baseline, writes, request.dry_run, written)


def _forget(opened: OpenCluster, request: AdoptRequest, caller: Caller) -> ForgetResult:
    keyspace = opened.connection.keyspace
    found = history_of(opened)
    _, baseline = adopting.look_at(opened.cluster, keyspace, found)
    if found is not None and not request.dry_run:
        with migrator_of(opened, Patience(), caller.progress) as migrator:
            baseline = adopting.forget(found, migrator.leases())
    return ForgetResult(keyspace, baseline, request.dry_run)
