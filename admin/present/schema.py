"""Plans, and what an apply did, as documents: CQL that can be piped into cqlsh, what matters about it as comments."""

from collections.abc import Iterable, Iterator
from typing import Any

from admin.present.differences import difference_json, recognition_json, recognition_parts
from admin.present.document import Document, Part, Verbatim
from admin.services.schema import ApplyResult, ModelPlan, OptionalResult, PlanResult, TableSizes
from cql.migrate.rollout import RolloutPlan
from cql.migrate.spelling import Spelling
from cql.render import ServerVersion, ddl_cql
from model.catalog.generations import Recognition
from model.migrations.plan import PlannedStatement, Way
from model.migrations.upgrade_notes import OptionalMigration
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.risk import Risk


def document_of(result: PlanResult | ModelPlan | ApplyResult | OptionalResult) -> Document:
    match result:
        case PlanResult():
            return _plan_document(result)
        case ModelPlan():
            return Document(model_plan_json(result), (_script(_model_lines(result)),), result.exit)
        case OptionalResult():
            return _optional_document(result)
        case ApplyResult():
            names = ", ".join(result.rollout.nodes.down)
            down = f"Down, and without this schema until they return (they take it from the others): {names}"
            hints = (down,) if names else ()
            return Document(apply_json(result), tuple(_apply_parts(result)), result.exit, hints=hints)


def _script(lines: Iterable[str]) -> Verbatim:
    return Verbatim("".join(f"{line}\n" for line in lines))


def _plan_document(result: PlanResult) -> Document:
    plan, spelling, sizes = result.plan, result.spelling, result.sizes
    json = rollout_json(plan, spelling, sizes)
    json |= {"statements": statements_of(plan, spelling), "exit": int(result.exit)}
    return Document(json, (_script(_plan_lines(plan, spelling, sizes)),), result.exit)


def rollout_json(rollout: RolloutPlan, script: Spelling, sizes: TableSizes) -> dict[str, Any]:
    plan = rollout.migrations
    return {
        "keyspace": script.keyspace,
        "create_keyspace": rollout.creation.cql if rollout.creation else None,
        "baseline": [str(one.file) for one in plan.baseline],
        "plan": [statement_json(one, script, sizes) for one in plan.statements],
        "left": [str(one.file) for one in plan.left],
        "stopped": plan.stopped or None,
        "besides": [one.cql for one in rollout.besides],
        "withheld": [one.cql for one in rollout.withheld],
        "foreign": rollout.foreign,
    }


def statement_json(planned: PlannedStatement, script: Spelling, sizes: TableSizes) -> dict[str, Any]:
    migration, assessment = planned.migration, planned.assessment
    return {
        "migration": str(migration.file),
        "number": migration.number,
        "phase": migration.file.phase.value,
        "position": planned.position,
        "line": migration.line(planned.position),
        "cql": script.shown(migration, planned.position),
        "way": planned.way.value,
        "risk": assessment.worst.value,
        "risks": [risk.value for risk in assessment.risks],
        "why": assessment.why,
        "estimate": _estimate(planned, sizes) or None,
    }


def statements_of(rollout: RolloutPlan, script: Spelling) -> list[str]:
    """The CQL that would be sent, in that order."""
    create = [rollout.creation.cql] if rollout.creation else []
    run = [one for one in rollout.migrations.statements if one.way is not Way.RECORD]
    return [
        *create,
        *(script.shown(one.migration, one.position) for one in run),
        *(one.cql for one in rollout.besides),
    ]


def _plan_lines(rollout: RolloutPlan, script: Spelling, sizes: TableSizes) -> Iterator[str]:
    plan = rollout.migrations
    for one in plan.baseline:
        yield f"-- {one.file}: what it makes is there; it is written into the history, and not run"
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
        yield from (f"-- {line}" for line in step.cql.splitlines())
    yield from _closing_lines(rollout, script.keyspace)


def _statement_lines(planned: PlannedStatement, script: Spelling, sizes: TableSizes) -> Iterator[str]:
    assessment, estimate = planned.assessment, _estimate(planned, sizes)
    risks = ", ".join(risk.value for risk in assessment.risks)
    size = f" The table: {estimate}." if estimate else ""
    yield f"-- risk: {risks}. {assessment.why}{size}"
    cql = script.shown(planned.migration, planned.position)
    match planned.way:
        case Way.RUN:
            yield cql
        case Way.AGAIN:
            yield from ("-- begun by an apply that was interrupted, and not carried out", cql)
        case Way.RECORD:
            yield "-- its effect is there already: it is written into the history, and not run"
            yield from (f"-- {line}" for line in cql.splitlines())
    yield ""


def _closing_lines(rollout: RolloutPlan, keyspace: str) -> Iterator[str]:
    plan = rollout.migrations
    if rollout.foreign:
        yield f"-- {keyspace} was not made by mailmend. Take it over with: mailmend schema adopt --keyspace {keyspace}"
    elif plan.left:
        yield f"-- left: {', '.join(str(one.file) for one in plan.left)}" + (
            f" ({plan.stopped})" if plan.stopped else ""
        )
    if rollout.empty and not rollout.withheld and not plan.left:
        yield f"-- {keyspace}: every migration is applied, nothing is missing"


def _estimate(planned: PlannedStatement, sizes: TableSizes) -> str:
    """The size of the table that a risky statement changes, or ""."""
    named = getattr(planned.statement, "name", None)
    size = sizes.get(name_of(named.spelling)) if named is not None else None
    return str(size) if size is not None and planned.assessment.worst is not Risk.NONE else ""


def apply_json(result: ApplyResult) -> dict[str, Any]:
    rolled, plan = result.rollout, result.rollout.plan
    return _found_json(result) | {
        "created": rolled.created,
        "withheld": [step.creates for step in plan.withheld],
        "applied": rolled.applied,
        "baseline": [str(one.file) for one in plan.migrations.baseline],
        "statements": rolled.statements,
        "left": [str(one.file) for one in plan.migrations.left] if not plan.foreign else [],
        "stopped": plan.migrations.stopped or None,
        "nodes_down": list(rolled.nodes.down),
        "exit": int(result.exit),
    }


def _found_json(result: ApplyResult) -> dict[str, Any]:
    if isinstance(result.found, Recognition):
        return recognition_json(result.keyspace, result.found)
    drift = [difference_json(one) for one in result.found]
    return {"keyspace": result.keyspace, "generation": None, "drift": drift, "notes": []}


def _apply_parts(result: ApplyResult) -> Iterator[Part]:
    plan, keyspace = result.rollout.plan, result.keyspace
    yield from (f"there already: {one.file}" for one in plan.migrations.baseline)
    yield from (f"created {name}" for name in result.rollout.created)
    yield from (f"applied {file}" for file in result.rollout.applied)
    if plan.withheld:
        names = ", ".join(step.creates for step in plan.withheld)
        yield f"Not created in a keyspace that mailmend did not make (--complete does): {names}"
    elif plan.empty and not plan.foreign:
        yield "Nothing was missing."
    if plan.foreign:
        yield f"Take the keyspace over with: mailmend schema adopt --keyspace {keyspace}"
    elif plan.migrations.left:
        yield f"Left: {', '.join(str(one.file) for one in plan.migrations.left)}. {plan.migrations.stopped}."
    if isinstance(result.found, Recognition):
        if not plan.migrations.left or plan.foreign:
            yield from recognition_parts(keyspace, result.found)
        return
    yield from (str(one) for one in result.found)
    yield f"{keyspace}: " + ("not as expected." if result.found else "the schema is as expected.")


def model_plan_json(plan: ModelPlan) -> dict[str, Any]:
    return {
        "keyspace": plan.keyspace,
        "from_model": True,
        "plan": [
            {
                "owner": one.owner,
                "cql": plan.cql(one) or None,
                "risk": one.assessment.worst.value,
                "risks": [risk.value for risk in one.assessment.risks],
                "why": one.assessment.why,
                "manual": one.manual or None,
                "estimate": plan.estimate(one) or None,
            }
            for one in plan.changes
        ],
        "statements": [plan.cql(one) for one in plan.changes if one.statement],
        "exit": int(plan.exit),
    }


def _model_lines(plan: ModelPlan) -> Iterator[str]:
    for one in plan.changes:
        if one.manual:
            yield from (f"-- by hand, {one.owner}: {one.manual}", "")
            continue
        estimate = plan.estimate(one)
        risks = ", ".join(risk.value for risk in one.assessment.risks)
        yield f"-- risk: {risks}. {one.assessment.why}{f' The table: {estimate}.' if estimate else ''}"
        yield from (plan.cql(one), "")
    if not plan.changes:
        yield f"-- {plan.keyspace} is as the model says; options and what is unexpected were left out unless asked for"


def _optional_document(result: OptionalResult) -> Document:
    migration, keyspace = result.migration, result.keyspace
    shown = optional_json(migration, result.live, keyspace, result.server)
    json = shown | {"keyspace": keyspace, "optional": migration.name, "sent": list(result.sent), "exit": 0}
    if result.dry_run and shown["statements"]:
        return Document(json, (optional_text((migration,), result.live, keyspace, result.server),))
    nothing = () if result.sent else (f"{keyspace}: nothing of {migration.name} is left to do.",)
    return Document(json, (*nothing, *(f"done: {cql}" for cql in result.sent)))


def optional_json(one: OptionalMigration, live: Schema, keyspace: str, server: ServerVersion) -> dict[str, Any]:
    """One optional migration, with the part of it that is still to do."""
    due = [(ddl_cql(statement, keyspace, server), statement.assess(live)) for statement in one.due(live)]
    return {
        "name": one.name,
        "since": one.since.isoformat(),
        "source": one.source or None,
        "why": one.why,
        "undo": one.undo,
        "caution": one.caution or None,
        "plan": [
            {
                "cql": cql,
                "risk": assessment.worst.value,
                "risks": [risk.value for risk in assessment.risks],
                "why": assessment.why,
            }
            for cql, assessment in due
        ],
        "statements": [cql for cql, _ in due],
    }


def optional_text(due: Iterable[OptionalMigration], live: Schema, keyspace: str, server: ServerVersion) -> Verbatim:
    """Optional migrations as CQL for cqlsh, with their reasons as comments."""
    shown = ((one, optional_json(one, live, keyspace, server)) for one in due)
    return _script(line for one, json in shown for line in _optional_lines(one, keyspace, json))


def _optional_lines(one: OptionalMigration, keyspace: str, shown: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"-- optional: {one.name} ({one.since}{f', {one.source}' if one.source else ''})")
    yield from (f"--   {text}" for text in (one.why, one.caution, f"Undo: {one.undo}") if text)
    for statement in shown["plan"]:
        yield from (f"--   risk: {statement['risk']}. {statement['why']}", statement["cql"])
    yield f"--   run it with: mailmend schema apply --optional {one.name} --keyspace {keyspace}"
