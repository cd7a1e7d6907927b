"""Plans and applies the schema: migrations, James's upgrade notes, and changes from a live keyspace to its model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.schema.migrating import Patience, history_of, migrations_in, migrator_of
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.history import record_of
from mailmend.cql.migrate.migrator import Migrator, RolloutResult
from mailmend.cql.migrate.rollout import RolloutPlan, RolloutRequest, plan_rollout
from mailmend.cql.migrate.spelling import Spelling
from mailmend.cql.render import ServerVersion, ddl_cql, parse_version
from mailmend.cql.replication import COPIES_MAX, Replication, in_every_data_centre
from mailmend.cql.schema.changes import Gap, Include, SchemaChange, changes
from mailmend.cql.schema.difference import Difference
from mailmend.cql.schema.generations import Recognition, gap_to_catalog, judge, recognise
from mailmend.cql.schema.migrations.migration import Phase
from mailmend.cql.schema.migrations.plan import refuse_tampering
from mailmend.cql.schema.migrations.upgrade_notes import OptionalMigration, optional_migration
from mailmend.cql.schema.migrations.verification import expected_after
from mailmend.cql.schema.risk import Risk, Risky, allow_text, risk_text
from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.errors import ExitCode, LikeAnotherKeyspace, ReplicationNeeded, RisksNotAllowed, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.sizes import TableSize

TableSizes = Mapping[str, TableSize]
"""What the nodes tell of the tables' sizes, by name."""

_PATIENCE = Patience()

RISKS_SHOWN = 5
"""How many statements with risks a question names."""


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
        ours = self.migrations is None
        if factor is not None and self.replication is not None:
            raise WrongUse("--replication-factor and --replication exclude each other", mend="Give one of them.")
        replication = self.replication or (in_every_data_centre(factor) if factor else None)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest(MigrationsRequest):
    """What is planned; with `from_model`, what takes the live tables to the model, whatever the history holds."""

    from_model: bool = False
    include_options: bool = False
    include_drops: bool = False
    newest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest(MigrationsRequest):
    """What is run; with `optional`, that upgrade note of James and nothing else.

    Attributes:
        allow: the risks that are agreed to; a person is asked about others.
    """

    statement_timeout: timedelta = _PATIENCE.statement
    agreement_timeout: timedelta = _PATIENCE.agreement
    lease: timedelta = _PATIENCE.lease
    require_all_nodes: bool = False
    optional: str | None = None
    allow: frozenset[Risk] | None = None
    dry_run: bool = False

    @property
    def patience(self) -> Patience:
        """The time limits.

        Raises:
            WrongUse: they do not fit together.
        """
        return Patience(self.statement_timeout, self.agreement_timeout, self.lease, self.require_all_nodes)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What an apply would run.

    Attributes:
        spelling: how its statements are written for the server at hand.
        sizes: of the tables, where they matter.
        dry_run: whether an apply was asked for, which has done its work with the plan.
    """

    plan: RolloutPlan
    spelling: Spelling
    sizes: TableSizes
    dry_run: bool = False

    @property
    def exit(self) -> ExitCode:
        """DRIFT where there is something to do: run it, or adopt the keyspace first."""
        done = self.dry_run or (self.plan.empty and not self.plan.foreign)
        return ExitCode.FINE if done else ExitCode.DRIFT


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The changes that take a keyspace to its model.

    Attributes:
        sizes: of its tables, where they matter.
        server: for which the CQL is spelled.
        in_flight: migrations that have not ended, and for which no drop is planned though it was asked for.
    """

    keyspace: str
    changes: tuple[SchemaChange, ...]
    sizes: TableSizes
    server: ServerVersion
    in_flight: tuple[str, ...] = ()

    @property
    def exit(self) -> ExitCode:
        return ExitCode.DRIFT if self.changes or self.in_flight else ExitCode.FINE

    def cql(self, change: SchemaChange) -> str:
        """The change as CQL for cqlsh; "" where a person has to decide."""
        return ddl_cql(change.statement, self.keyspace, self.server) if change.statement else ""

    def estimate(self, change: SchemaChange) -> str:
        size = self.sizes.get(name_of(change.owner))
        return str(size) if size and change.assessment.worst is not Risk.NONE else ""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What was done, and the state read back after it.

    Attributes:
        found: the recognised generation of a mail keyspace; for other tables, their differences.
    """

    keyspace: str
    rollout: RolloutResult
    found: Recognition | tuple[Difference, ...]

    @property
    def exit(self) -> ExitCode:
        if isinstance(self.found, Recognition):
            partly = bool(self.rollout.plan.migrations.left) and not self.rollout.plan.foreign
            return ExitCode.FINE if partly or self.found.agrees else ExitCode.DRIFT
        return ExitCode.DRIFT if self.found else ExitCode.FINE


@dataclass(frozen=True, slots=True)
class OptionalResult:
    """One of James's upgrade notes, which part of it was to do, and the statements that were sent."""

    keyspace: str
    migration: OptionalMigration
    live: Schema
    server: ServerVersion
    sent: tuple[str, ...]
    dry_run: bool


def plan(request: PlanRequest, _: Caller) -> PlanResult | ModelPlan:
    """What an apply would run, or what takes the live tables to their model; reads only.

    Raises:
        WrongUse: options that say nothing without `from_model`.
        HistoryMismatch: the migrations are not those that were applied.
    """
    for name in ("include_options", "include_drops", "newest"):
        if getattr(request, name) and not request.from_model:
            raise WrongUse(f"--{name.replace('_', '-')} goes with --from-model", mend="Add it.")
    wanted = request.rollout()
    with open_cluster(request.connection) as opened:
        if request.from_model:
            return _model_plan(opened, request, wanted)
        found = plan_rollout(opened.cluster, record_of(history_of(opened)), wanted)
        return PlanResult(found, wanted.spelling_for(opened.cluster), _sizes_for(opened, found))


def apply(request: ApplyRequest, caller: Caller) -> PlanResult | ApplyResult | OptionalResult:
    """Run the pending migrations and read the tables back; a dry run plans only.

    Raises:
        ReplicationNeeded: the keyspace is to be created on several nodes, without a replication factor.
        LeaseHeld: another apply is at work.
        RisksNotAllowed: the plan has risks that nobody agreed to.
    """
    wanted = request.rollout()
    patience = request.patience
    consent = Consent(wanted.keyspace, request.allow or frozenset(), caller)
    with open_cluster(request.connection) as opened:
        if request.optional is not None:
            return _apply_optional(opened, request, wanted, consent)
        with migrator_of(opened, patience, caller.progress) as migrator:
            rolled = _rolled_out(migrator, wanted, consent, dry_run=request.dry_run)
        if request.dry_run:
            sizes = _sizes_for(opened, rolled.plan)
            return PlanResult(rolled.plan, wanted.spelling_for(opened.cluster), sizes, dry_run=True)
        return ApplyResult(wanted.keyspace, rolled, _read_back(opened, wanted, rolled))


@dataclass(frozen=True, slots=True)
class Consent:
    """What was agreed to: risks on the command line, and statements, one by one, by a person since."""

    keyspace: str
    risks: frozenset[Risk]
    caller: Caller
    places: set[str] = field(default_factory=set)

    def __call__(self, risky: Sequence[Risky]) -> None:
        """Return where all of it is agreed to.

        Raises:
            RisksNotAllowed: nobody can be asked, or the answer was no.
        """
        left = [(place, what) for place, what in risky if place not in self.places and set(what.risks) - self.risks]
        if not left:
            return
        risks = [f"{risk_text(what)} ({place}): {what.why}" for place, what in left[:RISKS_SHOWN]]
        more = f" And {len(left) - RISKS_SHOWN} more." if len(left) > RISKS_SHOWN else ""
        what_risks = f"{self.keyspace} would be changed with risks: {' '.join(risks)}{more}"
        if self.caller.ask is None:
            mend = f"Nothing was done. Look with --dry-run; then, if it is meant: --allow {allow_text(risky)}"
            raise RisksNotAllowed(what_risks, mend=mend)
        if not self.caller.ask(f"{what_risks} Do it?"):
            raise RisksNotAllowed("the answer was no: nothing was done", mend="See all of it with --dry-run.")
        self.places.update(place for place, _ in left)


def _rolled_out(migrator: Migrator, wanted: RolloutRequest, consent: Consent, *, dry_run: bool) -> RolloutResult:
    """Roll out; ask a person whether a name is no typo, and for the number of copies, where it is needed."""
    caller = consent.caller
    try:
        return migrator.roll_out(wanted, dry_run=dry_run, agree=consent)
    except LikeAnotherKeyspace as like:
        if caller.ask is None or not caller.ask(f"{like.what} Create {wanted.keyspace} all the same?"):
            raise
        return _rolled_out(migrator, replace(wanted, new=True), consent, dry_run=dry_run)
    except ReplicationNeeded as needed:
        if caller.number is None:
            raise
        caller.remark(str(needed))
        copies = caller.number("Copies in each data centre", COPIES_MAX)
        copied = replace(wanted, replication=in_every_data_centre(copies))
        return _rolled_out(migrator, copied, consent, dry_run=dry_run)


def _read_back(
    opened: OpenCluster, wanted: RolloutRequest, rolled: RolloutResult
) -> Recognition | tuple[Difference, ...]:
    live = live_schema(opened.cluster, wanted.keyspace)
    if wanted.ours:
        return recognise(live)
    drift, _ = judge(rolled.plan.migrations.expected, live, made_here=True)
    return drift


def _apply_optional(
    opened: OpenCluster, request: ApplyRequest, wanted: RolloutRequest, consent: Consent
) -> OptionalResult:
    migration = optional_migration(request.optional or "")
    keyspace = opened.connection.keyspace
    opened.cluster.replication_of(keyspace)
    live = live_schema(opened.cluster, keyspace)
    server = parse_version(opened.cluster.release_version)
    replace(wanted, ours=True).refuse_others(live)
    sent: tuple[str, ...] = ()
    if tuple(migration.due(live)) and not request.dry_run:
        with migrator_of(opened, request.patience, consent.caller.progress) as migrator:
            sent = migrator.run_optional(keyspace, migration, consent)
    return OptionalResult(keyspace, migration, live, server, sent, request.dry_run)


def _model_plan(opened: OpenCluster, request: PlanRequest, wanted: RolloutRequest) -> ModelPlan:
    opened.cluster.replication_of(wanted.keyspace)
    live = live_schema(opened.cluster, wanted.keyspace)
    past = record_of(history_of(opened))
    in_flight = tuple(str(entry.file) for entry in past.entries if not entry.ended) if request.include_drops else ()
    drops = request.include_drops and not in_flight
    asked = {Include.OPTIONS: request.include_options, Include.REMOVALS: drops}
    include = frozenset(part for part, wish in asked.items() if wish)
    if wanted.ours:
        wanted.refuse_others(live)
        gap = gap_to_catalog(live, include, newest=request.newest, choice=request.compaction)
    else:
        refuse_tampering(wanted.keyspace, wanted.migrations, past)
        gap = Gap(expected_after(wanted.migrations, past), live, include)
    found = changes(gap)
    risky = any(change.assessment.worst is not Risk.NONE for change in found)
    sizes = opened.sizes() if risky else {}
    server = parse_version(opened.cluster.release_version)
    return ModelPlan(wanted.keyspace, found, sizes, server, in_flight)


def _sizes_for(opened: OpenCluster, found: RolloutPlan) -> TableSizes:
    risky = any(statement.assessment.worst is not Risk.NONE for statement in found.migrations.statements)
    return opened.sizes() if risky else {}
