"""A keyspace taken to what its migrations say: planned by reading alone, carried out under the lease.

A keyspace that James made is left alone until it was adopted; one that mailmend made before there was a history is
taken over as it is. What a migration of ours made and is not there any more (a projection that somebody dropped) is
made again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cql.applying import ONE_COPY, Step, creations, keyspace_step, plan_apply
from cql.introspect import SchemaServer, keyspace_exists, live_schema
from cql.migrate.agreement import Agreement, NodeVersions
from cql.migrate.history import History
from cql.migrate.migrator import STATEMENT_SECONDS, Applier, Done
from cql.migrate.scripts import Script
from cql.render import parse_version
from cql.replication import Replication
from model.catalog.generations import holds_mail, was_made_here
from model.catalog.mail import SCHEMA, CompactionChoice, compacted
from model.errors import BadMigration, WrongUse
from model.migrations.migration import Migration, Phase
from model.migrations.plan import MigrationPlan, Past, PlannedStatement, Way, Wish, decide, declared_by
from model.ports import Clock, HeldLease, LeaseSource, Progress
from model.schema.keyspace import Schema
from model.schema.lint.options import refused_options
from model.schema.lint.servers import Release, exact_release


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asks for.

    Attributes:
        ours: whether these are the migrations that come with mailmend; anybody else's know nothing of James.
        replication: for a keyspace that does not exist yet.
        creates: whether such a keyspace is created at all: a mistyped name must not become a keyspace.
        compaction: of the big message tables, where our migrations create them.
        complete: also create what mailmend needs and a keyspace of James lacks.
        to, phase: how far to go; see `model.migrations.plan.Wish`.
    """

    keyspace: str
    migrations: tuple[Migration, ...]
    ours: bool
    replication: Replication = ONE_COPY
    creates: bool = True
    compaction: CompactionChoice = CompactionChoice.TWCS
    complete: bool = False
    to: int | None = None
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """What would be done.

    Attributes:
        keyspace: what creates it, where it does not exist yet.
        migrations: what is run of the migrations, and what is left.
        besides: what is created apart from them.
        withheld: what is not created, for the keyspace is James's own and was not adopted.
        foreign: whether it is such a keyspace.
    """

    keyspace: Step | None
    migrations: MigrationPlan
    besides: tuple[Step, ...] = ()
    withheld: tuple[Step, ...] = ()
    foreign: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.keyspace is None and self.migrations.empty and not self.besides


@dataclass(frozen=True, slots=True)
class Means:
    """What a rollout works with.

    Args:
        history: the ledger's, or None while there is no ledger.
        open_history: makes the ledger where it is missing, and opens its history.
        leasing: where the lease is taken, once there is a ledger.
    """

    server: SchemaServer
    clock: Clock
    agreement: Agreement
    progress: Progress
    history: History | None
    open_history: Callable[[], History]
    leasing: Callable[[], LeaseSource]
    statement_seconds: float = STATEMENT_SECONDS

    def applier(self, history: History, held: HeldLease, script: Script) -> Applier:
        """Who carries out what is due, for as long as the lease is held."""
        return Applier(
            self.server, history, held, self.agreement, self.clock, script, self.progress, self.statement_seconds
        )


@dataclass(frozen=True, slots=True)
class Rolled:
    """What was done, what the plan was, and how the nodes then were."""

    plan: Rollout
    done: Done
    nodes: NodeVersions


def past_of(history: History | None) -> Past:
    """What the history holds, the statements of what has not ended included."""
    entries = history.entries() if history else ()
    running = [one.number for one in entries if not one.ended]
    return Past(entries, tuple(one for number in running if history for one in history.statements(number)))


def plan_rollout(server: SchemaServer, past: Past, order: Order) -> Rollout:
    """What `roll_out` would do; reads only.

    Raises:
        HistoryMismatch: the migrations are not those that were applied.
        BadMigration: a pending statement would be refused.
        WrongUse: the server is too old for the compaction, there is no migration of the number that is wished for, or
            there is no such keyspace.
    """
    live = live_schema(server, order.keyspace)
    if order.ours and not past.entries and holds_mail(live) and not was_made_here(live):
        return _left_alone(server, order, live)
    wish = Wish(order.to, order.phase, takes_over=order.ours and was_made_here(live))
    plan = decide(order.keyspace, order.migrations, past, live, wish)
    script, release = script_of(server, order), exact_release(server.release_version)
    for one in plan.statements:
        script.shown(one.migration, one.position)  # what this server lacks is told before anything is run
        _refuse_unknown(one, release)
    return Rollout(_creation(server, order), plan, _besides(server, order, plan, live) if order.ours else ())


def _refuse_unknown(planned: PlannedStatement, release: Release | None) -> None:
    """Tell of a class or an option that the server does not know while nothing is changed yet.

    Raises:
        BadMigration: the statement has one.
    """
    if release is None or planned.way is Way.RECORD:
        return
    refused = refused_options(planned.migration.statements[planned.position].statement, release)
    if refused:
        raise BadMigration(
            f"{planned.place}: the server would refuse it: {'; '.join(text for text, _ in refused)}",
            mend=" ".join([*filter(None, (near for _, near in refused)), "Nothing of this plan was run."]),
        )


def script_of(server: SchemaServer, order: Order) -> Script:
    """How the statements are spelled for this server."""
    choice = order.compaction if order.ours else None
    return Script(order.keyspace, parse_version(server.release_version), choice)


def _creation(server: SchemaServer, order: Order) -> Step | None:
    """What creates the keyspace, where it does not exist."""
    if keyspace_exists(server, order.keyspace):
        return None
    if order.creates:
        return keyspace_step(order.keyspace, order.replication)
    raise WrongUse(
        f"keyspace {order.keyspace!r} does not exist",
        mend="Name another with --keyspace; or, to create it, say how: --replication dc1=3, or --replication-factor 3.",
    )


def _left_alone(server: SchemaServer, order: Order, live: Schema) -> Rollout:
    """A keyspace of James without a history: as it was before there were histories."""
    nothing = MigrationPlan((), (), (), (), order.migrations, "", live)
    plan = plan_apply(server, order.keyspace, order.replication, order.compaction, complete=order.complete)
    return Rollout(None, nothing, plan.steps, plan.withheld, foreign=True)


def _besides(server: SchemaServer, order: Order, plan: MigrationPlan, live: Schema) -> tuple[Step, ...]:
    """What is created apart from the migrations."""
    if holds_mail(live) and not was_made_here(live):
        completed = plan_apply(server, order.keyspace, order.replication, order.compaction, complete=True)
        return completed.steps if order.complete else ()
    declared = declared_by(plan.reached)
    wanted = Schema(
        tuple(one for one in SCHEMA.types if declared.user_type(one.name)),
        compacted((one for one in SCHEMA.tables if declared.table(one.name)), order.compaction),
    )
    return tuple(creations(order.keyspace, wanted, plan.expected, parse_version(server.release_version)))


def roll_out(means: Means, order: Order) -> Rolled:
    """Take the keyspace to what the migrations say. A second time there is nothing to do, and nothing is written.

    Raises:
        LeaseHeld: somebody else is at it; the message says who.
        LeaseLost: the lease was lost on the way; what was done stands.
        SchemaDisagreement: the nodes do not agree; named.
        MigrationFailed: the server refused a statement; which, and why.
        and whatever `plan_rollout` raises, before anything is done.
    """
    plan = plan_rollout(means.server, past_of(means.history), order)
    if plan.empty:
        return Rolled(plan, Done(), means.agreement.look())
    means.agreement.wait("before anything was changed")
    history = means.open_history()
    means.agreement.wait("before the lease was taken")
    with means.leasing().held(lease_name(order.keyspace), "schema apply") as held:
        past = past_of(history)
        plan = plan_rollout(means.server, past, order)
        applier = means.applier(history, held, script_of(means.server, order))
        _carry_out(applier, plan, past)
    return Rolled(plan, applier.done, means.agreement.look())


def lease_name(keyspace: str) -> str:
    """The lease under which a keyspace's schema is changed."""
    return f"schema {keyspace}"


def _carry_out(applier: Applier, plan: Rollout, past: Past) -> None:
    if plan.keyspace:
        applier.send(plan.keyspace.cql, plan.keyspace.creates)
        applier.done.created.append(plan.keyspace.creates)
    applier.carry_out(plan.migrations, past)
    for step in plan.besides:
        applier.send(step.cql, step.creates)
        applier.done.created.append(step.creates)
