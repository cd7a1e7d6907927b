"""`mailmend schema apply`: runs the pending migrations, or one of James's upgrade notes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Part, Verbatim
from mailmend.admin.frame.kinds import RISK_NAMES, RISKS, Duration, duration_text
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.schema.migrating import (
    MIGRATIONS,
    MigrationsRequest,
    Patience,
    migrator_of,
)
from mailmend.admin.schema.plan import (
    PlanResult,
    assessment_json,
    cql_script,
    plan_document,
    sizes_for,
)
from mailmend.admin.schema.verify import differences_json, recognition_json, recognition_parts
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.migrator import Migrator, RolloutResult
from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.cql.render import (
    COPIES_MAX,
    ServerVersion,
    ddl_cql,
    in_every_data_centre,
    parse_version,
)
from mailmend.cql.schema.difference import Difference
from mailmend.cql.schema.generations import Recognition, judge, recognise
from mailmend.cql.schema.migrations import file_names
from mailmend.cql.schema.risk import Risk, Risky, allow_text, risk_text
from mailmend.cql.schema.upgrades import OptionalMigration, optional_migration
from mailmend.model.errors import ExitCode, LikeAnotherKeyspace, ReplicationNeeded, RisksNotAllowed
from mailmend.model.keyspace import Schema
from mailmend.model.texts import keyspace_option

_PATIENCE = Patience()

RISKS_SHOWN = 5
"""How many statements with risks a question names."""


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
            fine = partly or self.found.agrees
        else:
            fine = not self.found
        if fine:
            return ExitCode.FINE
        return ExitCode.DRIFT


@dataclass(frozen=True, slots=True)
class OptionalResult:
    """One of James's upgrade notes, which part of it was to do, and the statements that were sent."""

    keyspace: str
    migration: OptionalMigration
    live: Schema
    server: ServerVersion
    sent: tuple[str, ...]
    dry_run: bool


def apply(request: ApplyRequest, caller: Caller) -> PlanResult | ApplyResult | OptionalResult:
    """Run the pending migrations and read the tables back; a dry run plans only.

    Raises:
        ReplicationNeeded: the keyspace is to be created on several nodes, without a replication factor.
        LeaseHeld: another apply is at work.
        RisksNotAllowed: the plan has risks that no person agreed to.
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
            sizes = sizes_for(opened, rolled.plan)
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
            RisksNotAllowed: there is no terminal to ask on, or the answer was no.
        """
        left = []
        for place, what in risky:
            if place not in self.places and not self.risks.issuperset(what.risks):
                left.append((place, what))
        if not left:
            return
        risks = [f"{risk_text(what)} ({place}): {what.why}" for place, what in left[:RISKS_SHOWN]]
        if len(left) > RISKS_SHOWN:
            risks.append(f"And {len(left) - RISKS_SHOWN} more.")
        what_risks = f"{self.keyspace} would be changed with risks: {' '.join(risks)}"
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


def apply_document(result: PlanResult | ApplyResult | OptionalResult) -> Document:
    match result:
        case PlanResult():
            return plan_document(result)
        case OptionalResult():
            return _optional_document(result)
        case ApplyResult():
            hints = []
            if result.rollout.nodes.down:
                names = ", ".join(result.rollout.nodes.down)
                hints.append(f"Down, and without this schema until they return (they take it from the others): {names}")
            return Document(apply_json(result), tuple(_apply_parts(result)), result.exit, hints=hints)


def apply_json(result: ApplyResult) -> dict[str, Any]:
    rolled = result.rollout
    plan = result.rollout.plan
    left = []
    if not plan.foreign:
        left = file_names(plan.migrations.left)
    return _found_json(result) | {
        "created": rolled.created,
        "withheld": [step.creates for step in plan.withheld],
        "applied": rolled.applied,
        "baseline": file_names(plan.migrations.baseline),
        "statements": rolled.statements,
        "left": left,
        "stopped": plan.migrations.stopped or None,
        "nodes_down": list(rolled.nodes.down),
        "exit": int(result.exit),
    }


def _found_json(result: ApplyResult) -> dict[str, Any]:
    if isinstance(result.found, Recognition):
        return recognition_json(result.keyspace, result.found)
    drift = differences_json(result.found)
    return {"keyspace": result.keyspace, "generation": None, "drift": drift, "notes": []}


def _apply_parts(result: ApplyResult) -> Iterator[Part]:
    plan = result.rollout.plan
    keyspace = result.keyspace
    yield from _done_lines(result)
    if plan.withheld:
        names = ", ".join(step.creates for step in plan.withheld)
        yield f"Not created in a keyspace that mailmend did not make (--complete does): {names}"
    elif plan.empty and not plan.foreign:
        yield "Nothing was missing."
    if plan.foreign:
        yield f"Take the keyspace over with: mailmend schema adopt {keyspace_option(keyspace)}"
    elif plan.migrations.left:
        left = ", ".join(file_names(plan.migrations.left))
        yield f"Left: {left}. {plan.migrations.stopped}."
    if isinstance(result.found, Recognition):
        if not plan.migrations.left or plan.foreign:
            yield from recognition_parts(keyspace, result.found)
        return
    if not result.found:
        yield f"{keyspace}: the schema is as expected."
        return
    for difference in result.found:
        yield str(difference)
    yield f"{keyspace}: not as expected."


def _done_lines(result: ApplyResult) -> Iterator[str]:
    for migration in result.rollout.plan.migrations.baseline:
        yield f"there already: {migration.file}"
    for name in result.rollout.created:
        yield f"created {name}"
    for file in result.rollout.applied:
        yield f"applied {file}"


def _optional_document(result: OptionalResult) -> Document:
    migration = result.migration
    keyspace = result.keyspace
    shown = optional_json(migration, result.live, keyspace, result.server)
    json = shown | {"keyspace": keyspace, "optional": migration.name, "sent": list(result.sent), "exit": 0}
    if result.dry_run and shown["statements"]:
        return Document(json, (optional_text((migration,), result.live, keyspace, result.server),))
    if not result.sent:
        return Document(json, (f"{keyspace}: nothing of {migration.name} is left to do.",))
    return Document(json, [f"done: {cql}" for cql in result.sent])


def optional_json(migration: OptionalMigration, live: Schema, keyspace: str, server: ServerVersion) -> dict[str, Any]:
    """One optional migration, with the part of it that is still to do."""
    plan = []
    statements = []
    for statement in migration.due(live):
        cql = ddl_cql(statement, keyspace, server)
        plan.append({"cql": cql, **assessment_json(statement.assess(live))})
        statements.append(cql)
    return {
        "name": migration.name,
        "since": migration.since.isoformat(),
        "source": migration.source or None,
        "why": migration.why,
        "undo": migration.undo,
        "caution": migration.caution or None,
        "plan": plan,
        "statements": statements,
    }


def optional_text(due: Iterable[OptionalMigration], live: Schema, keyspace: str, server: ServerVersion) -> Verbatim:
    lines: list[str] = []
    for migration in due:
        lines += _optional_lines(migration, keyspace, optional_json(migration, live, keyspace, server))
    return cql_script(lines)


def _optional_lines(migration: OptionalMigration, keyspace: str, shown: dict[str, Any]) -> Iterator[str]:
    origin = str(migration.since)
    if migration.source:
        origin += f", {migration.source}"
    yield ""
    yield f"-- optional: {migration.name} ({origin})"
    yield f"--   {migration.why}"
    if migration.caution:
        yield f"--   {migration.caution}"
    yield f"--   Undo: {migration.undo}"
    for statement in shown["plan"]:
        yield f"--   risk: {statement['risk']}. {statement['why']}"
        yield statement["cql"]
    yield f"--   run it with: mailmend schema apply --optional {migration.name} {keyspace_option(keyspace)}"


_SECONDS: Final = Duration(timedelta(hours=1), zero=False)


_LIMITS: Final = (
    option(
        "--statement-timeout",
        "How long one statement may take.",
        type=_SECONDS,
        default=duration_text(_PATIENCE.statement),
    ),
    option(
        "--agreement-timeout",
        "How long the nodes may take to agree on the schema, before and after each statement.",
        type=_SECONDS,
        default=duration_text(_PATIENCE.agreement),
    ),
    option(
        "--lease",
        "How long the lease outlives an apply that was killed.",
        type=_SECONDS,
        default=duration_text(_PATIENCE.lease),
    ),
    flag("--require-all-nodes", "Stop while a node is down. Without it such a node takes the schema when it returns."),
)


APPLY: Final = Command(
    name="apply",
    summary="Run the pending migrations.",
    about="""The statements run one by one; then the tables are read back and compared. Only one apply works on a
    keyspace at a time (a lease in the ledger keyspace). Every statement waits for the nodes to agree on the schema,
    and is recorded before and after: type the same command again after any interruption. A keyspace that James made
    is left alone until `mailmend schema adopt`. Applying again changes nothing.

    A statement with a risk runs only after a yes on a terminal, or if --allow names the risk. Otherwise no statement
    runs, and the exit code is 5.""",
    service="mailmend.admin.schema.apply:apply",
    present="mailmend.admin.schema.apply:apply_document",
    options=(
        *MIGRATIONS,
        *_LIMITS,
        option("--optional", "Run nothing but this upgrade note of James, or mail-queue.", metavar="NAME"),
        option(
            "--allow",
            f"Risks of the plan that are agreed to, separated by commas: {RISK_NAMES}.",
            type=RISKS,
            metavar="RISK,...",
        ),
        flag("--dry-run", "Write nothing: print the CQL."),
    ),
    alone={"optional": ("migrations", "to", "phase", "complete", "new_keyspace")},
    shared=(CONNECTION,),
    examples="""
        mailmend schema apply --dry-run                     print the CQL, run nothing
        mailmend schema apply --replication dc1=3,dc2=3     a new keyspace
        mailmend schema apply --phase pre                   before the new software is rolled out
        mailmend schema apply --to 0003                     no further than that
        mailmend schema apply --migrations db --keyspace shop --require-all-nodes
        mailmend schema apply --phase post --allow data-loss,breaking    agreed to, by name
        mailmend schema apply --optional save-date          an upgrade note; schema adopt --dry-run lists them""",
    exits="0 done, and read back as expected; 1 read back, and not as expected; 2 wrong use (a "
    "file that cannot be run, or that was changed after it was applied); 3 a statement "
    "failed, the nodes do not agree, or another apply is at work; 4 the cluster cannot be "
    "reached; 5 a risk that no person agreed to, nothing was done. After 3 and 4 the same "
    "command goes on where it stopped.",
)
