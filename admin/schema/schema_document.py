"""Plans, and what an apply did, as documents: CQL that can be piped into cqlsh, what matters about it as comments."""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.values import plain
from mailmend.admin.schema.schema_service import ApplyResult, ModelPlan, OptionalResult, PlanResult, TableSizes
from mailmend.cql.migrate.rollout import RolloutPlan
from mailmend.cql.migrate.spelling import Spelling
from mailmend.cql.render import ServerVersion, ddl_cql
from mailmend.cql.schema.difference import Aspect, Difference
from mailmend.cql.schema.generations import REBUILDABLE, Recognition
from mailmend.cql.schema.migrations.plan import PlannedStatement, Way
from mailmend.cql.schema.migrations.upgrade_notes import OptionalMigration, note_adding
from mailmend.cql.schema.risk import OPTION_DEFAULTS, Assessment, Risk, allow_text, risk_text
from mailmend.model.errors import ExitCode
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.texts import keyspace_option


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
    plan = result.plan
    spelling = result.spelling
    sizes = result.sizes
    json = rollout_json(plan, spelling, sizes)
    json |= {"statements": statements_of(plan, spelling), "exit": int(result.exit)}
    return Document(json, (_script(_plan_lines(plan, spelling, sizes)),), result.exit)


def rollout_json(rollout: RolloutPlan, script: Spelling, sizes: TableSizes) -> dict[str, Any]:
    plan = rollout.migrations
    return {
        "keyspace": script.keyspace,
        "create_keyspace": rollout.creation.cql if rollout.creation else None,
        "baseline": [str(migration.file) for migration in plan.baseline],
        "plan": [statement_json(statement, script, sizes) for statement in plan.statements],
        "left": [str(migration.file) for migration in plan.left],
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
        **_assessment_json(assessment),
        "estimate": _estimate(planned, sizes) or None,
    }


def _assessment_json(assessment: Assessment) -> dict[str, Any]:
    risks = [risk.value for risk in assessment.risks]
    return {"risk": assessment.worst.value, "risks": risks, "why": assessment.why}


def statements_of(rollout: RolloutPlan, script: Spelling) -> list[str]:
    create = [rollout.creation.cql] if rollout.creation else []
    run = [statement for statement in rollout.migrations.statements if statement.way is not Way.RECORD]
    return [
        *create,
        *(script.shown(statement.migration, statement.position) for statement in run),
        *(step.cql for step in rollout.besides),
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
    yield _risk_line(planned.assessment, _estimate(planned, sizes))
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


def _risk_line(assessment: Assessment, estimate: str) -> str:
    return f"-- risk: {risk_text(assessment)}. {assessment.why}" + (f" The table: {estimate}." if estimate else "")


def _closing_lines(rollout: RolloutPlan, keyspace: str) -> Iterator[str]:
    plan = rollout.migrations
    if rollout.foreign:
        adopt = f"mailmend schema adopt {keyspace_option(keyspace)}"
        yield f"-- {keyspace} was not made by mailmend. Take it over with: {adopt}"
    elif plan.left:
        yield f"-- left: {', '.join(str(migration.file) for migration in plan.left)}" + (
            f" ({plan.stopped})" if plan.stopped else ""
        )
    if plan.risky:
        yield f"-- an apply asks about these risks on a terminal; elsewhere it takes --allow {allow_text(plan.risky)}"
    if rollout.empty and not rollout.withheld and not plan.left:
        yield f"-- {keyspace}: every migration is applied, nothing is missing"


def _estimate(planned: PlannedStatement, sizes: TableSizes) -> str:
    """The size of the table that a risky statement changes, or ""."""
    named = getattr(planned.statement, "name", None)
    size = sizes.get(name_of(named.spelling)) if named is not None else None
    return str(size) if size is not None and planned.assessment.worst is not Risk.NONE else ""


def apply_json(result: ApplyResult) -> dict[str, Any]:
    rolled = result.rollout
    plan = result.rollout.plan
    return _found_json(result) | {
        "created": rolled.created,
        "withheld": [step.creates for step in plan.withheld],
        "applied": rolled.applied,
        "baseline": [str(migration.file) for migration in plan.migrations.baseline],
        "statements": rolled.statements,
        "left": [str(migration.file) for migration in plan.migrations.left] if not plan.foreign else [],
        "stopped": plan.migrations.stopped or None,
        "nodes_down": list(rolled.nodes.down),
        "exit": int(result.exit),
    }


def _found_json(result: ApplyResult) -> dict[str, Any]:
    if isinstance(result.found, Recognition):
        return recognition_json(result.keyspace, result.found)
    drift = [difference_json(difference) for difference in result.found]
    return {"keyspace": result.keyspace, "generation": None, "drift": drift, "notes": []}


def _apply_parts(result: ApplyResult) -> Iterator[Part]:
    plan = result.rollout.plan
    keyspace = result.keyspace
    yield from (f"there already: {migration.file}" for migration in plan.migrations.baseline)
    yield from (f"created {name}" for name in result.rollout.created)
    yield from (f"applied {file}" for file in result.rollout.applied)
    if plan.withheld:
        names = ", ".join(step.creates for step in plan.withheld)
        yield f"Not created in a keyspace that mailmend did not make (--complete does): {names}"
    elif plan.empty and not plan.foreign:
        yield "Nothing was missing."
    if plan.foreign:
        yield f"Take the keyspace over with: mailmend schema adopt {keyspace_option(keyspace)}"
    elif plan.migrations.left:
        left = ", ".join(str(migration.file) for migration in plan.migrations.left)
        yield f"Left: {left}. {plan.migrations.stopped}."
    if isinstance(result.found, Recognition):
        if not plan.migrations.left or plan.foreign:
            yield from recognition_parts(keyspace, result.found)
        return
    yield from (str(difference) for difference in result.found)
    yield f"{keyspace}: " + ("not as expected." if result.found else "the schema is as expected.")


def model_plan_json(plan: ModelPlan) -> dict[str, Any]:
    return {
        "keyspace": plan.keyspace,
        "from_model": True,
        "plan": [
            {
                "owner": change.owner,
                "cql": plan.cql(change) or None,
                **_assessment_json(change.assessment),
                "manual": change.manual or None,
                "estimate": plan.estimate(change) or None,
            }
            for change in plan.changes
        ],
        "statements": [plan.cql(change) for change in plan.changes if change.statement],
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


def _optional_document(result: OptionalResult) -> Document:
    migration = result.migration
    keyspace = result.keyspace
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
        "plan": [{"cql": cql, **_assessment_json(assessment)} for cql, assessment in due],
        "statements": [cql for cql, _ in due],
    }


def optional_text(due: Iterable[OptionalMigration], live: Schema, keyspace: str, server: ServerVersion) -> Verbatim:
    shown = ((migration, optional_json(migration, live, keyspace, server)) for migration in due)
    return _script(line for migration, json in shown for line in _optional_lines(migration, keyspace, json))


def _optional_lines(one: OptionalMigration, keyspace: str, shown: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"-- optional: {one.name} ({one.since}{f', {one.source}' if one.source else ''})")
    yield from (f"--   {text}" for text in (one.why, one.caution, f"Undo: {one.undo}") if text)
    for statement in shown["plan"]:
        yield from (f"--   risk: {statement['risk']}. {statement['why']}", statement["cql"])
    yield f"--   run it with: mailmend schema apply --optional {one.name} {keyspace_option(keyspace)}"


AS_EXPECTED: Final = "The schema is as expected."


def recognition_json(keyspace: str, recognition: Recognition) -> dict[str, Any]:
    return {
        "keyspace": keyspace,
        "generation": recognition.generation.name,
        "made_here": recognition.made_here,
        "drift": [
            difference_json(difference) | {"mend": mend_of(difference, keyspace, made_here=recognition.made_here)}
            for difference in recognition.drift
        ],
        "notes": [difference_json(note) for note in recognition.notes],
        "exit": int(ExitCode.FINE if recognition.agrees else ExitCode.DRIFT),
    }


def mend_of(difference: Difference, keyspace: str, *, made_here: bool) -> str:  # noqa: PLR0911 - one for each kind
    """The command that mends a difference, or what a person has to decide."""
    apply_again = f"mailmend schema apply {keyspace_option(keyspace)}{'' if made_here else ' --complete'}"
    from_model = f"mailmend schema plan --from-model {keyspace_option(keyspace)}"
    table = f"{keyspace}.{difference.owner}"
    match difference.aspect:
        case Aspect.MISSING_TABLE | Aspect.MISSING_TYPE:
            return apply_again
        case Aspect.MISSING_COLUMN if not made_here and (note := note_adding(difference.owner, difference.subject)):
            return f"mailmend schema apply --optional {note} {keyspace_option(keyspace)}"
        case Aspect.MISSING_COLUMN:
            return cqlsh(f"ALTER TABLE {table} ADD {difference.subject} {difference.expected};")
        case Aspect.UNEXPECTED_COLUMN:
            return "leave it (before-images keep it), or: " + cqlsh(f"ALTER TABLE {table} DROP {difference.subject};")
        case Aspect.UNEXPECTED_INDEX | Aspect.UNEXPECTED_VIEW | Aspect.UNEXPECTED_TYPE | Aspect.UNEXPECTED_TABLE:
            return "leave it, or: " + cqlsh(_DROPS[difference.aspect].format(keyspace, *_place(difference)))
        case Aspect.DIFFERENT_OPTION if difference.subject in OPTION_DEFAULTS:
            return cqlsh(f"ALTER TABLE {table} WITH {difference.subject} = {difference.expected};")
        case Aspect.DIFFERENT_OPTION:
            return f"{from_model} --include-options"
        case (
            Aspect.MISSING_INDEX
            | Aspect.DIFFERENT_INDEX
            | Aspect.MISSING_VIEW
            | Aspect.DIFFERENT_VIEW
            | Aspect.DIFFERENT_MASK
        ):
            return f"{from_model} | cqlsh"
        case _ if difference.owner in REBUILDABLE:
            dropped = cqlsh(f"DROP TABLE {table};")
            repair = f"mailmend repair messages {keyspace_option(keyspace)}"
            return f"while nothing writes: {dropped} && {apply_again} && {repair}"
        case _:
            return f"nothing in place: mailmend schema apply --keyspace ANOTHER, then copy the rows of {table} there"


_DROPS: Final = {
    Aspect.UNEXPECTED_INDEX: "DROP INDEX {0}.{2};",
    Aspect.UNEXPECTED_VIEW: "DROP MATERIALIZED VIEW {0}.{1};",
    Aspect.UNEXPECTED_TYPE: "DROP TYPE {0}.{1};",
    Aspect.UNEXPECTED_TABLE: "DROP TABLE {0}.{1};",
}
"""What removes what is not expected; 0 is the keyspace, 1 its owner, 2 the subject."""


def cqlsh(statement: str) -> str:
    return f"cqlsh -e {shlex.quote(statement)}"


def difference_json(difference: Difference) -> dict[str, str]:
    fields = plain(difference)
    return {"table": fields.pop("owner"), **fields}


def recognition_parts(keyspace: str, recognition: Recognition) -> Iterator[Part]:
    yield generation_line(keyspace, recognition)
    if recognition.notes:
        yield differences_table("Noted, not wrong", recognition.notes)
    if recognition.agrees:
        yield AS_EXPECTED
        return
    yield differences_table("Drift", recognition.drift)
    for difference in recognition.drift:
        yield f"{'.'.join(_place(difference))}: {mend_of(difference, keyspace, made_here=recognition.made_here)}"


def generation_line(keyspace: str, recognition: Recognition) -> str:
    maker = "made by mailmend" if recognition.made_here else "not made by mailmend"
    return f"{keyspace}: generation {recognition.generation.name}, {maker}."


def differences_table(title: str, found: Iterable[Difference]) -> Grid:
    """A table of differences; its columns "what" and "where" keep their width beside long options."""
    columns = ("what", "where", "expected", "found")
    return Grid(title, columns, [_cells(difference) for difference in found], frozenset({"expected", "found"}))


def _place(difference: Difference) -> tuple[str, ...]:
    return (difference.owner, difference.subject) if difference.subject else (difference.owner,)


def _cells(difference: Difference) -> tuple[str, str, str, str]:
    return difference.aspect.value, ".".join(_place(difference)), difference.expected, difference.found
