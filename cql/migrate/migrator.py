"""Carries migrations out: one applier at a time (a lease), each statement recorded in the ledger.

A change that is sent while the nodes disagree may be merged with another in unplanned ways. So a
migration waits a bounded time, and then stops and names the nodes. A node that is down does not
count: it takes the schema from the others soon after it has returned. `--require-all-nodes` makes
it count.

An applier that is killed leaves a history from which the next one continues. For each statement, in
this order: check that the lease lasts long enough; wait until the nodes agree; check that we are
still the applier (a conditional write); record what will be sent; send it; wait until the nodes
agree again; record it as done.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from mailmend.cql.applying import Step
from mailmend.cql.introspect import SchemaServer, live_schema
from mailmend.cql.migrate.files import Spelling
from mailmend.cql.migrate.history import HeldLease, History, LeaseSource, record_of
from mailmend.cql.migrate.rollout import RolloutPlan, RolloutRequest, plan_rollout
from mailmend.cql.render import Replication, ddl_cql, parse_version
from mailmend.cql.schema.migration_plan import MigrationPlan, PlannedStatement, Way
from mailmend.cql.schema.migrations import Entry, LedgerRecord, Migration, StatementEntry
from mailmend.cql.schema.risk import Risky
from mailmend.cql.schema.upgrades import OptionalMigration
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import CannotReach, MigrationFailed, SchemaDisagreement, WrongUse
from mailmend.model.ports import Clock, Progress


class SchemaNodes(Protocol):
    """The schema versions of a cluster's nodes. Adapter: `cql.driver.nodes.CassandraNodes`."""

    def schema_versions(self) -> Mapping[str, UUID | None]:
        """The schema's version on every node that is up, by address; None where the node does not answer."""
        ...

    def nodes_down(self) -> Sequence[str]:
        """The addresses of the nodes that are known and not up."""
        ...


POLL_SECONDS = 0.2
WAIT_SECONDS = 90.0
"""How long, in seconds, the nodes may take to agree.

A node that missed a change (it was paused, or seemed down) asks for it automatically, but only
after a minute if it has been up for long (`cassandra.migration_delay_ms`).
"""


@dataclass(frozen=True, slots=True)
class NodeVersions:
    """The schema's version on every node that is up (None: it does not answer), and the nodes that are down."""

    up: Mapping[str, UUID | None]
    down: Sequence[str] = ()

    @property
    def agreed(self) -> bool:
        """Whether all nodes that are up answer with the same version."""
        return len(set(self.up.values())) == 1 and None not in self.up.values()

    @property
    def behind(self) -> tuple[str, ...]:
        """The nodes whose version is not the most frequent one, in their order."""
        counts = Counter(filter(None, self.up.values()))
        usual = max(counts, key=counts.__getitem__, default=None)
        return tuple(node for node, version in self.up.items() if usual is None or version != usual)

    def __str__(self) -> str:
        answers = [f"{node} has {version or 'given no answer'}" for node, version in self.up.items()]
        answers += [f"{node} is down" for node in self.down]
        return ", ".join(answers)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Waits until the nodes agree.

    Args:
        seconds: the longest wait.
        require_all: whether a node that is down counts as disagreeing.
    """

    nodes: SchemaNodes
    clock: Clock
    seconds: float = WAIT_SECONDS
    require_all: bool = False

    def wait(self, when: str) -> NodeVersions:
        """Wait until the nodes agree; returns their versions at the end.

        Args:
            when: the time, for the error message, such as "before anything was changed".

        Raises:
            SchemaDisagreement: they do not agree in time; the message names the nodes and their versions.
        """
        end = self.clock.monotonic() + self.seconds
        seen = self.look()
        while not self._enough(seen):
            if self.clock.monotonic() >= end:
                raise self._refusal(seen, when)
            self.clock.sleep(POLL_SECONDS)
            seen = self.look()
        return seen

    def look(self) -> NodeVersions:
        return NodeVersions(self.nodes.schema_versions(), tuple(self.nodes.nodes_down()))

    def _enough(self, seen: NodeVersions) -> bool:
        return seen.agreed and not (self.require_all and seen.down)

    def _refusal(self, seen: NodeVersions, when: str) -> SchemaDisagreement:
        if seen.agreed:
            return SchemaDisagreement(
                f"not every node is up, {when}: {', '.join(seen.down)}",
                mend="Start them and type the same command again; or leave out --require-all-nodes: "
                "they take the schema from the others when they return.",
            )
        return SchemaDisagreement(
            f"the nodes did not agree on the schema within {self.seconds:g} s, {when}: {seen}",
            mend=f"Look at {', '.join(seen.behind)}: nodetool describecluster, and its log. Once they agree, type the "
            "same command again. More: mailmend runbook show schema-disagreement",
        )


STATEMENT_SECONDS = 30.0
"""How long one statement may take."""


Agree = Callable[[Sequence[Risky]], None]
"""Asks a person to agree to the risks of these statements; raises where no person agrees."""


@dataclass(slots=True)
class RolloutResult:
    """The plan of a rollout, and what was done so far.

    Attributes:
        created: new tables, types, indexes and views, as reports name them.
    """

    plan: RolloutPlan
    nodes: NodeVersions = field(default_factory=lambda: NodeVersions({}))
    created: list[str] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Migrator:
    """Takes a keyspace from one state of its schema to the next.

    Args:
        history: the history in the ledger; None while there is no ledger.
        open_history: makes the ledger where it is missing, and opens its history; a new ledger
            takes the replication of the mail keyspace.
        statement_seconds: how long one statement may take; the lease must outlive it.
    """

    server: SchemaServer
    clock: Clock
    agreement: Agreement
    progress: Progress
    history: History | None
    open_history: Callable[[Replication | None], History]
    leases: Callable[[], LeaseSource]
    statement_seconds: float = STATEMENT_SECONDS

    def roll_out(
        self, request: RolloutRequest, *, dry_run: bool = False, agree: Agree = lambda _: None
    ) -> RolloutResult:
        """Take the keyspace to its migrations' state. A second call has nothing to do and writes nothing.

        Args:
            request: which migrations, and how.
            dry_run: whether to plan only.
            agree: called before anything is done, and again once the lease is held, as the plan may have changed.

        Raises:
            LeaseHeld: another applier holds the lease; the message says who.
            LeaseLost: the lease was lost meanwhile; statements already sent stay.
            SchemaDisagreement: the nodes do not agree; the message names them.
            MigrationFailed: the server refused a statement; the message says which and why.
            CannotReach: a statement gave no answer.
            and the errors of `plan_rollout`, before anything is done.
        """
        result = RolloutResult(plan_rollout(self.server, record_of(self.history), request))
        if dry_run or result.plan.empty:
            result.nodes = self.agreement.look()
            return result
        agree(result.plan.migrations.risky)
        self.agreement.wait("before anything was changed")
        history = self.open_history(result.plan.replication)
        self.agreement.wait("before the lease was taken")
        with self.leases().held(KeyspaceLease.SCHEMA.of(request.keyspace), "schema apply") as held:
            record = history.record()
            result.plan = plan_rollout(self.server, record, request)
            agree(result.plan.migrations.risky)
            _Applier(self, history, held, request.spelling_for(self.server), result).carry_out(record)
        result.nodes = self.agreement.look()
        return result

    def run_optional(
        self, keyspace: str, migration: OptionalMigration, agree: Agree = lambda _: None
    ) -> tuple[str, ...]:
        """Run the rest of an upgrade note; returns the statements that were sent.

        Each statement is first compared with the live schema, so the command can be repeated after an interruption.

        Raises:
            LeaseHeld: another process changes the schema.
            SchemaDisagreement: the nodes do not agree; named.
            WrongUse: the server refused a statement.
        """
        version = parse_version(self.server.release_version)
        agree(migration.risky(live_schema(self.server, keyspace)))
        self.agreement.wait("before anything was changed")
        history = self.open_history(None)
        with self.leases().held(KeyspaceLease.SCHEMA.of(keyspace), f"schema apply --optional {migration.name}") as held:
            live = live_schema(self.server, keyspace)
            agree(migration.risky(live))
            nothing = MigrationPlan((), (), (), (), (), "", live)
            result = RolloutResult(RolloutPlan(None, None, nothing))
            applier = _Applier(self, history, held, Spelling(keyspace, version), result)
            for statement in migration.due(live):
                applier.send(ddl_cql(statement, keyspace, version), migration.name)
        return tuple(result.statements)


@dataclass(frozen=True, slots=True)
class _Applier:
    """Works while the lease is held; adds to the result as it goes."""

    by: Migrator
    history: History
    held: HeldLease
    spelling: Spelling
    result: RolloutResult

    def carry_out(self, record: LedgerRecord) -> None:
        """Create the keyspace, run the migrations, then create the rest of the plan."""
        plan = self.result.plan
        if plan.creation:
            self._create(plan.creation)
        claim = self.by.clock.new_uuid()
        migrations = plan.migrations
        if migrations.baseline:
            self._check_lease()
            self.history.baseline(migrations.baseline, claim, "there before the history began")
        for migration in migrations.due:
            self._migrate(migration, migrations.of(migration), claim, record.entry(migration.number))
        for step in plan.besides:
            self._create(step)

    def send(self, cql: str, place: str) -> None:
        """Send a statement outside the migrations (a keyspace, a missing table) with the same checks."""
        self.by.agreement.wait(f"before {place}")
        self._check_lease()
        self._send(cql, place)
        self.by.agreement.wait(f"after {place}")

    def _create(self, step: Step) -> None:
        self.send(step.cql, step.creates)
        self.result.created.append(step.creates)

    def _migrate(
        self, migration: Migration, statements: Sequence[PlannedStatement], claim: UUID, standing: Entry | None
    ) -> None:
        self.by.progress.stage(str(migration.file), len(statements))
        self._check_lease()
        entry = self.history.begin(migration, claim, standing)
        for planned in statements:
            self.by.agreement.wait(f"before {planned.place}")
            self._check_lease()
            entry = self.history.advanced(entry, planned.position)
            self._settle(planned)
            self.by.progress.advance(1)
        self.history.ended(entry)
        self.result.applied.append(str(migration.file))

    def _settle(self, planned: PlannedStatement) -> None:
        """Send one statement, or finish an earlier attempt of it."""
        if planned.way is Way.RECORD:
            self.history.done(planned.before or self._begun(planned))
            return
        begun = self._begun(planned)
        with self._refusal_recorded(begun, planned.place):
            self._send(begun.cql, planned.place)
        self.by.agreement.wait(f"after {planned.place}")
        self.history.done(begun)
        if planned.statement.created:
            self.result.created.append(planned.statement.created)

    def _begun(self, planned: PlannedStatement) -> StatementEntry:
        attempt = planned.attempt or self.by.clock.new_uuid()
        cql = self.spelling.sent(planned.migration, planned.position, attempt)
        author_text = planned.migration.cql(planned.position)
        return self.history.begun(planned.migration.number, planned.position, author_text, cql, attempt)

    def _send(self, cql: str, place: str) -> None:
        try:
            self.by.server.execute_ddl(cql, self.by.statement_seconds, agreed=0)  # each node is asked below
        except CannotReach as error:
            raise CannotReach(
                f"{place}: {error.what}",
                mend="It may have been carried out. Type the same command again: it looks whether it was, and goes on.",
            ) from error
        self.result.statements.append(cql)

    @contextmanager
    def _refusal_recorded(self, begun: StatementEntry, place: str) -> Iterator[None]:
        try:
            yield
        except WrongUse as error:
            self.history.failed(begun, error.what)
            raise MigrationFailed(
                f"{place}: {error.what}",
                mend="Statements before it are kept. Mend the statement in the file (those before "
                "it must stay as they are), then type the same command again.",
            ) from error

    def _check_lease(self) -> None:
        self.held.check(self.by.statement_seconds)
