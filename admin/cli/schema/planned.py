"""A plan as it is shown: CQL that can be piped into cqlsh, what matters about it as comments; or JSON for scripts."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from admin.cli.schema.migration_options import replication_of
from admin.migrating import migrations_in
from admin.settings import ConnectionSettings
from cql.migrate.rollout import RolloutPlan, RolloutRequest
from cql.migrate.spelling import Spelling
from model.catalog.mail import CompactionChoice
from model.migrations.migration import Phase
from model.migrations.plan import PlannedStatement, Way
from model.schema.names import name_of
from model.schema.risk import Risk
from model.schema.sizes import TableSize

Sizes = Mapping[str, TableSize]
"""What the nodes tell of the tables' sizes, by name."""


def request_of(connection: ConnectionSettings, options: Mapping[str, Any]) -> RolloutRequest:
    """What the command line asks for.

    Raises:
        BadMigration: the folder's migrations cannot be run.
        WrongUse: options exclude each other.
    """
    folder: Path | None = options["migrations"]
    replication = replication_of(options)
    return RolloutRequest(
        connection.keyspace,
        migrations_in(folder),
        ours=folder is None,
        replication=replication,
        creates=folder is None or replication is not None,
        compaction=CompactionChoice(options["compaction"]),
        complete=options["complete"],
        to=options["to"],
        phase=Phase(options["phase"]) if options["phase"] else None,
    )


def risky(rollout: RolloutPlan) -> bool:
    """Whether the size of a table matters to anything in the plan."""
    return any(one.assessment.worst is not Risk.NONE for one in rollout.migrations.statements)


def rollout_json(rollout: RolloutPlan, script: Spelling, sizes: Sizes) -> dict[str, Any]:
    """The plan under the names that scripts rely on."""
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


def statement_json(planned: PlannedStatement, script: Spelling, sizes: Sizes) -> dict[str, Any]:
    """One statement of a plan."""
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
    """The CQL that would be sent, in its order."""
    create = [rollout.creation.cql] if rollout.creation else []
    run = [one for one in rollout.migrations.statements if one.way is not Way.RECORD]
    return [
        *create,
        *(script.shown(one.migration, one.position) for one in run),
        *(one.cql for one in rollout.besides),
    ]


def show_rollout(rollout: RolloutPlan, script: Spelling, sizes: Sizes) -> None:
    """Print the plan."""
    sys.stdout.writelines(f"{line}\n" for line in _lines(rollout, script, sizes))


def _lines(rollout: RolloutPlan, script: Spelling, sizes: Sizes) -> Iterator[str]:
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


def _statement_lines(planned: PlannedStatement, script: Spelling, sizes: Sizes) -> Iterator[str]:
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


def _estimate(planned: PlannedStatement, sizes: Sizes) -> str:
    """The size of the table that a risky statement is about, or ""."""
    named = getattr(planned.statement, "name", None)
    size = sizes.get(name_of(named.spelling)) if named is not None else None
    return str(size) if size is not None and planned.assessment.worst is not Risk.NONE else ""
