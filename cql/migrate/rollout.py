"""The plan that takes a keyspace to its migrations' state; planning only reads.

A keyspace that James made is left alone until it is adopted. One that mailmend made before
histories existed is taken over as it is. Objects that our migrations made and that are missing (a
projection that was dropped) are created again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mailmend.cql.applying import Step, creations, keyspace_step
from mailmend.cql.introspect import SchemaServer, keyspace_exists, keyspaces_of, live_schema
from mailmend.cql.migrate.files import Spelling
from mailmend.cql.render import Replication, in_every_data_centre, parse_version
from mailmend.cql.schema.generations import (
    MAIL_TABLE_NAMES,
    holds_mail,
    recognise,
    tables_besides,
    tables_of_others,
    was_made_here,
)
from mailmend.cql.schema.lint.refused_options import refused_options
from mailmend.cql.schema.lint.servers import ServerRelease, exact_release, refused_by_version
from mailmend.cql.schema.migration_plan import (
    MigrationPlan,
    PlannedStatement,
    Way,
    decide,
    declared_by,
    statements_of,
)
from mailmend.cql.schema.migrations import LedgerRecord, Migration, Phase
from mailmend.model.catalog.mail import SCHEMA, CompactionChoice, compacted
from mailmend.model.errors import BadMigration, LikeAnotherKeyspace, ReplicationNeeded, TablesOfOthers, WrongUse
from mailmend.model.keyspace import Schema, among
from mailmend.model.names import name_of, slips, spelled
from mailmend.model.table import names_of


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """The request of a rollout.

    Attributes:
        ours: whether these are mailmend's own migrations; others know nothing of James.
        replication: the replication of a keyspace that does not exist yet; None: one copy where there is one node.
        creates: whether a keyspace that does not exist is created; a mistyped name must not become a keyspace.
        compaction: the compaction of the big message tables, where our migrations create them.
        new: whether a keyspace is created even if its name is almost the name of another.
        into_existing: whether tables are created in a keyspace with tables of another application.
        complete: whether tables that mailmend needs and a keyspace of James lacks are created too.
        to, phase: how far to go; see `cql.schema.migration_plan.decide`.
    """

    keyspace: str
    migrations: tuple[Migration, ...]
    ours: bool
    replication: Replication | None = None
    creates: bool = True
    new: bool = False
    into_existing: bool = False
    compaction: CompactionChoice = CompactionChoice.TWCS
    complete: bool = False
    to: int | None = None
    phase: Phase | None = None

    def refuse_others(self, live: Schema) -> None:
        """Refuse a keyspace of another application, unless `into_existing` is set.

        Raises:
            TablesOfOthers: it holds tables that the migrations do not name.
        """
        others: Sequence[str]
        if self.ours:
            others = tables_of_others(live)
        else:
            named = set()
            for parsed in statements_of(self.migrations):
                named.add(name_of(parsed.statement.about))
            others = tables_besides(live, named)
        if others and not self.into_existing:
            raise TablesOfOthers(self.keyspace, others)

    def spelling_for(self, server: SchemaServer) -> Spelling:
        compaction = None
        if self.ours:
            compaction = self.compaction
        return Spelling(self.keyspace, parse_version(server.release_version), compaction)


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The plan of a rollout.

    Attributes:
        creation: the statement that creates the keyspace, where it does not exist yet.
        besides: the other steps, which create objects outside the migrations.
        withheld: the steps that are left out, because James made the keyspace and it was not adopted.
        foreign: whether James made the keyspace and it was not adopted.
    """

    creation: Step | None
    replication: Replication | None
    migrations: MigrationPlan
    besides: tuple[Step, ...] = ()
    withheld: tuple[Step, ...] = ()
    foreign: bool = False

    @property
    def empty(self) -> bool:
        return self.creation is None and self.migrations.empty and not self.besides


def plan_rollout(server: SchemaServer, record: LedgerRecord, request: RolloutRequest) -> RolloutPlan:
    """The plan of a rollout; reads only.

    Raises:
        HistoryMismatch: the migrations are not those that were applied.
        BadMigration: a pending statement would be refused.
        TablesOfOthers: the keyspace is another application's, as far as can be seen.
        LikeAnotherKeyspace: the keyspace would be created, and another has almost its name.
        ReplicationNeeded: the keyspace would be created on several nodes, and the number of copies is not given.
        WrongUse: the server is too old for the compaction, there is no migration of the number that is asked for, or
            there is no such keyspace.
    """
    live = live_schema(server, request.keyspace)
    if not record.entries:
        request.refuse_others(live)
    foreign = holds_mail(live) and not was_made_here(live)
    if request.ours and not record.entries and foreign:
        nothing = MigrationPlan((), (), (), (), request.migrations, "", live)
        lacking = _lacking(server, request, live)
        if request.complete:
            return RolloutPlan(None, None, nothing, lacking, foreign=True)
        return RolloutPlan(None, None, nothing, (), lacking, foreign=True)
    plan = decide(
        request.keyspace,
        request.migrations,
        record,
        live,
        to=request.to,
        phase=request.phase,
        takes_over=request.ours and was_made_here(live),
    )
    spelling = request.spelling_for(server)
    release = exact_release(server.release_version)
    for statement in plan.statements:
        spelling.shown(
            statement.migration, statement.position
        )  # raises for what this server lacks, before anything runs
        _refuse_unknown(statement, release)
    besides: tuple[Step, ...] = ()
    if request.ours:
        besides = _besides(server, request, plan, live)
    if keyspace_exists(server, request.keyspace):
        return RolloutPlan(None, None, plan, besides)
    _refuse_typo(server, request)
    replication = _replication(server, request)
    return RolloutPlan(keyspace_step(request.keyspace, replication), replication, plan, besides)


def _refuse_unknown(planned: PlannedStatement, release: ServerRelease | None) -> None:
    """Refuse classes and options that the server does not know, before anything is changed."""
    if release is None or planned.way is Way.RECORD:
        return
    problems = []
    mends = []
    for problem, fix in refused_options(planned.statement, release):
        problems.append(problem)
        if fix:
            mends.append(fix)
    problems.extend(refused_by_version(planned.statement, release))
    if problems:
        mends.append("Nothing of this plan was run.")
        raise BadMigration(f"{planned.place}: the server would refuse it: {'; '.join(problems)}", mend=" ".join(mends))


def _refuse_typo(server: SchemaServer, request: RolloutRequest) -> None:
    """Refuse to create a keyspace whose name is almost the name of another with tables (of mail, for our tables)."""
    if request.new:
        return
    for name in slips(name_of(request.keyspace), keyspaces_of(server)):
        live = live_schema(server, spelled(name))
        alike = bool(live.tables)
        if request.ours:
            alike = holds_mail(live)
        if alike:
            raise LikeAnotherKeyspace(request.keyspace, spelled(name))


def _replication(server: SchemaServer, request: RolloutRequest) -> Replication:
    """The new keyspace's replication: the requested one, else one copy where there is one node."""
    if not request.creates:
        raise WrongUse(
            f"keyspace {request.keyspace!r} does not exist",
            mend="Name another with --keyspace; or, to create it, say how: --replication dc1=3, or "
            "--replication-factor 3.",
        )
    if request.replication is not None:
        return request.replication
    nodes: Counter[str] = Counter()
    for table in ("local", "peers"):
        rows = server.query(f"SELECT data_center FROM system.{table}")  # noqa: S608 - one of the two
        nodes.update(str(row["data_center"]) for row in rows)
    if nodes.total() > 1:
        raise ReplicationNeeded(request.keyspace, nodes)
    return in_every_data_centre(1)


def _besides(server: SchemaServer, request: RolloutRequest, plan: MigrationPlan, live: Schema) -> tuple[Step, ...]:
    if holds_mail(live) and not was_made_here(live):
        if not request.complete:
            return ()
        return _lacking(server, request, live)
    declared = declared_by(plan.reached)
    types = among(SCHEMA.types, names_of(declared.types))
    tables = among(SCHEMA.tables, names_of(declared.tables))
    wanted = Schema(types, compacted(tables, request.compaction))
    return tuple(creations(request.keyspace, wanted, plan.expected, parse_version(server.release_version)))


def _lacking(server: SchemaServer, request: RolloutRequest, live: Schema) -> tuple[Step, ...]:
    """What mailmend needs and a keyspace of James lacks, in the form of that keyspace's generation."""
    schema = recognise(live).generation.schema
    needed = among(schema.tables, MAIL_TABLE_NAMES)
    wanted = Schema(schema.types, compacted(needed, request.compaction))
    return tuple(creations(request.keyspace, wanted, live, parse_version(server.release_version)))
