"""`mailmend schema plan`: what an apply would run, as CQL for cqlsh with risks as comments."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.options import CONNECTION, flag
from mailmend.admin.schema.migrating import MIGRATIONS, MigrationsRequest, history_of
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.files import Spelling
from mailmend.cql.migrate.history import record_of
from mailmend.cql.migrate.rollout import RolloutPlan, RolloutRequest, plan_rollout
from mailmend.cql.render import ServerVersion, ddl_cql, parse_version
from mailmend.cql.schema.changes import Gap, Include, SchemaChange, changes
from mailmend.cql.schema.generations import gap_to_catalog
from mailmend.cql.schema.migration_plan import (
    PlannedStatement,
    Way,
    expected_after,
    refuse_tampering,
)
from mailmend.cql.schema.migrations import file_names
from mailmend.cql.schema.risk import Assessment, Risk, allow_text, risk_text
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.names import name_of
from mailmend.model.sizes import TableSize
from mailmend.model.texts import keyspace_option

TableSizes = Mapping[str, TableSize]
"""What the nodes tell of the tables' sizes, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest(MigrationsRequest):
    """What is planned; with `from_model`, what takes the live tables to the model, whatever the history holds."""

    from_model: bool = False
    include_options: bool = False
    include_drops: bool = False
    newest: bool = False


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
        if self.dry_run or (self.plan.empty and not self.plan.foreign):
            return ExitCode.FINE
        return ExitCode.DRIFT


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
        if self.changes or self.in_flight:
            return ExitCode.DRIFT
        return ExitCode.FINE

    def cql(self, change: SchemaChange) -> str:
        """The change as CQL for cqlsh; "" where a person has to decide."""
        if not change.statement:
            return ""
        return ddl_cql(change.statement, self.keyspace, self.server)

    def estimate(self, change: SchemaChange) -> str:
        size = self.sizes.get(name_of(change.owner))
        if not size or change.assessment.worst is Risk.NONE:
            return ""
        return str(size)


def plan(request: PlanRequest, _: Caller) -> PlanResult | ModelPlan:
    """What an apply would run, or what takes the live tables to their model; reads only.

    Raises:
        WrongUse: options that have no effect without `from_model`.
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
        return PlanResult(found, wanted.spelling_for(opened.cluster), sizes_for(opened, found))


def _model_plan(opened: OpenCluster, request: PlanRequest, wanted: RolloutRequest) -> ModelPlan:
    opened.cluster.replication_of(wanted.keyspace)
    live = live_schema(opened.cluster, wanted.keyspace)
    past = record_of(history_of(opened))
    include: set[Include] = set()
    if request.include_options:
        include.add(Include.OPTIONS)
    in_flight: tuple[str, ...] = ()
    if request.include_drops:
        in_flight = tuple(str(entry.file) for entry in past.entries if not entry.ended)
        if not in_flight:
            include.add(Include.REMOVALS)
    if wanted.ours:
        wanted.refuse_others(live)
        gap = gap_to_catalog(live, frozenset(include), newest=request.newest, choice=request.compaction)
    else:
        refuse_tampering(wanted.keyspace, wanted.migrations, past)
        gap = Gap(expected_after(wanted.migrations, past), live, frozenset(include))
    found = changes(gap)
    sizes: TableSizes = {}
    if any(change.assessment.worst is not Risk.NONE for change in found):
        sizes = opened.sizes()
    server = parse_version(opened.cluster.release_version)
    return ModelPlan(wanted.keyspace, found, sizes, server, in_flight)


def sizes_for(opened: OpenCluster, found: RolloutPlan) -> TableSizes:
    for statement in found.migrations.statements:
        if statement.assessment.worst is not Risk.NONE:
            return opened.sizes()
    return {}


def plan_document(result: PlanResult | ModelPlan) -> Document:
    if isinstance(result, ModelPlan):
        return Document(model_plan_json(result), (cql_script(_model_lines(result)),), result.exit)
    return _plan_document(result)


def cql_script(lines: Iterable[str]) -> Verbatim:
    return Verbatim("".join(f"{line}\n" for line in lines))


def _plan_document(result: PlanResult) -> Document:
    plan = result.plan
    spelling = result.spelling
    sizes = result.sizes
    json = rollout_json(plan, spelling, sizes)
    json |= {"statements": statements_of(plan, spelling), "exit": int(result.exit)}
    return Document(json, (cql_script(_plan_lines(plan, spelling, sizes)),), result.exit)


def rollout_json(rollout: RolloutPlan, script: Spelling, sizes: TableSizes) -> dict[str, Any]:
    plan = rollout.migrations
    return {
        "keyspace": script.keyspace,
        "create_keyspace": rollout.creation and rollout.creation.cql,
        "baseline": file_names(plan.baseline),
        "plan": [statement_json(statement, script, sizes) for statement in plan.statements],
        "left": file_names(plan.left),
        "stopped": plan.stopped or None,
        "besides": [step.cql for step in rollout.besides],
        "withheld": [step.cql for step in rollout.withheld],
        "foreign": rollout.foreign,
    }


def statement_json(planned: PlannedStatement, script: Spelling, sizes: TableSizes) -> dict[str, Any]:
    migration = planned.migration
    assessment = planned.assessment
    return {
        "migration": str(migration.file),
        "number": migration.number,
        "phase": migration.file.phase.value,
        "position": planned.position,
        "line": migration.line(planned.position),
        "cql": script.shown(migration, planned.position),
        "way": planned.way.value,
        **assessment_json(assessment),
        "estimate": _estimate(planned, sizes) or None,
    }


def assessment_json(assessment: Assessment) -> dict[str, Any]:
    risks = [risk.value for risk in assessment.risks]
    return {"risk": assessment.worst.value, "risks": risks, "why": assessment.why}


def statements_of(rollout: RolloutPlan, script: Spelling) -> list[str]:
    statements = []
    if rollout.creation:
        statements.append(rollout.creation.cql)
    for statement in rollout.migrations.statements:
        if statement.way is not Way.RECORD:
            statements.append(script.shown(statement.migration, statement.position))
    for step in rollout.besides:
        statements.append(step.cql)
    return statements


def _plan_lines(rollout: RolloutPlan, script: Spelling, sizes: TableSizes) -> Iterator[str]:
    plan = rollout.migrations
    for made in plan.baseline:
        yield f"-- {made.file}: what it makes is there; it is written into the history, and not run"
    if rollout.creation:
        yield from (rollout.creation.cql, "")
    for migration in plan.due:
        yield f"-- {migration.file} ({migration.file.phase.value}): {migration.head.effect}"
        for planned in plan.of(migration):
            yield from _statement_lines(planned, script, sizes)
    for step in rollout.besides:
        yield from (f"-- {step.creates} is missing", step.cql, "")
    if rollout.withheld:
        yield "-- not made by mailmend: only --complete would run these here"
    for step in rollout.withheld:
        yield from _commented(step.cql)
    yield from _closing_lines(rollout, script.keyspace)


def _commented(cql: str) -> Iterator[str]:
    for line in cql.splitlines():
        yield f"-- {line}"


def _statement_lines(planned: PlannedStatement, script: Spelling, sizes: TableSizes) -> Iterator[str]:
    yield _risk_line(planned.assessment, _estimate(planned, sizes))
    cql = script.shown(planned.migration, planned.position)
    match planned.way:
        case Way.RUN:
            yield cql
        case Way.AGAIN:
            yield from ("-- begun by an apply that was interrupted, and not carried out", cql)
        case Way.RECORD:
            yield "-- its effect is there already: it is written into the history, and not run"
            yield from _commented(cql)
    yield ""


def _risk_line(assessment: Assessment, estimate: str) -> str:
    line = f"-- risk: {risk_text(assessment)}. {assessment.why}"
    if estimate:
        line += f" The table: {estimate}."
    return line


def _closing_lines(rollout: RolloutPlan, keyspace: str) -> Iterator[str]:
    plan = rollout.migrations
    if rollout.foreign:
        adopt = f"mailmend schema adopt {keyspace_option(keyspace)}"
        yield f"-- {keyspace} was not made by mailmend. Take it over with: {adopt}"
    elif plan.left:
        left = ", ".join(file_names(plan.left))
        if plan.stopped:
            left += f" ({plan.stopped})"
        yield f"-- left: {left}"
    if plan.risky:
        yield f"-- an apply asks about these risks on a terminal; elsewhere it takes --allow {allow_text(plan.risky)}"
    if rollout.empty and not rollout.withheld and not plan.left:
        yield f"-- {keyspace}: every migration is applied, nothing is missing"


def _estimate(planned: PlannedStatement, sizes: TableSizes) -> str:
    """The size of the table that a risky statement changes, or ""."""
    named = getattr(planned.statement, "name", None)
    if named is None or planned.assessment.worst is Risk.NONE:
        return ""
    size = sizes.get(name_of(named.spelling))
    if size is None:
        return ""
    return str(size)


def model_plan_json(plan: ModelPlan) -> dict[str, Any]:
    changes_json = []
    statements = []
    for change in plan.changes:
        cql = plan.cql(change)
        changes_json.append(
            {
                "owner": change.owner,
                "cql": cql or None,
                **assessment_json(change.assessment),
                "manual": change.manual or None,
                "estimate": plan.estimate(change) or None,
            }
        )
        if change.statement:
            statements.append(cql)
    return {
        "keyspace": plan.keyspace,
        "from_model": True,
        "plan": changes_json,
        "statements": statements,
        "in_flight": list(plan.in_flight),
        "exit": int(plan.exit),
    }


def _model_lines(plan: ModelPlan) -> Iterator[str]:
    if plan.in_flight:
        yield f"-- no drop is planned: {', '.join(plan.in_flight)} has not ended, and what looks unexpected may be"
        yield "-- half of what it makes. First let it end: mailmend runbook show migration-died-half-way"
    for change in plan.changes:
        if change.manual:
            yield from (f"-- by hand, {change.owner}: {change.manual}", "")
            continue
        yield from (_risk_line(change.assessment, plan.estimate(change)), plan.cql(change), "")
    if not plan.changes and not plan.in_flight:
        yield f"-- {plan.keyspace} is as the model says; options and what is unexpected were left out unless asked for"


PLAN: Final = Command(
    name="plan",
    summary="Show what an apply would run, and what it risks.",
    about="""Writes nothing. With --from-model it shows the statements that change the live tables to the model (or to
    the result of the applied --migrations), whatever the history holds.""",
    service="mailmend.admin.schema.plan:plan",
    present="mailmend.admin.schema.plan:plan_document",
    paged=True,
    options=(
        *MIGRATIONS,
        flag("--from-model", "Show the statements that change the live tables to the model; they are never run."),
        flag("--include-options", "With --from-model: options too; most rewrite their table."),
        flag("--include-drops", "With --from-model: also remove what the model does not know."),
        flag("--newest", "With --from-model: change to the newest generation of James, not to the keyspace's own."),
    ),
    alone={"from_model": ("to", "phase", "complete", "new_keyspace")},
    shared=(CONNECTION,),
    examples="""
        mailmend schema plan                                  what is pending; CQL that cqlsh takes, risks as comments
        mailmend schema plan --phase pre                      what is due before the new software is rolled out
        mailmend schema plan --migrations db --keyspace shop  your own tables
        mailmend schema plan --from-model | cqlsh             takes the live tables to the model; mailmend never runs it
        mailmend schema plan --from-model --include-options   options too: most of them rewrite their table""",
    exits="0 there is nothing to do, 1 there is something to do, 2 wrong use (a file that cannot be run, or that was "
    "changed after it was applied), 4 the cluster cannot be reached.",
)
