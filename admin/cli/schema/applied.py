"""What an apply did, and what the keyspace was when it was read back: for people, and for scripts."""

from dataclasses import dataclass
from typing import Any

from admin.cli.schema import recognised
from admin.cli.schema.recognised import difference_json, recognition_json, show_recognition
from admin.present.presenter import stderr_console, stdout_console, write_json
from cql.introspect import SchemaServer, live_schema
from cql.migrate.migrator import RolloutResult
from cql.migrate.rollout import RolloutRequest
from model.catalog.generations import Recognition, judge, recognise
from model.errors import ExitCode
from model.schema.difference import Difference


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was asked for, what was done, what was read back.

    Attributes:
        found: what a keyspace of mail was taken for; for anybody else's tables, in what they are not as expected.
    """

    request: RolloutRequest
    result: RolloutResult
    found: Recognition | tuple[Difference, ...]

    @property
    def exit(self) -> int:
        """The exit code: whether what was read back is what it should be."""
        if isinstance(self.found, Recognition):
            partly = bool(self.result.plan.migrations.left) and not self.result.plan.foreign
            return int(ExitCode.FINE) if partly else recognised.exit_code(self.found)
        return int(ExitCode.DRIFT if self.found else ExitCode.FINE)


def read_back(
    server: SchemaServer, request: RolloutRequest, result: RolloutResult
) -> Recognition | tuple[Difference, ...]:
    """What the keyspace is now."""
    live = live_schema(server, request.keyspace)
    if request.ours:
        return recognise(live)
    drift, _ = judge(result.plan.migrations.expected, live, made_here=True)
    return drift


def write_outcome(outcome: Outcome) -> None:
    """One JSON object, under the names that scripts rely on."""
    result, plan = outcome.result, outcome.result.plan
    write_json(
        _found_json(outcome)
        | {
            "created": result.created,
            "withheld": [step.creates for step in plan.withheld],
            "applied": result.applied,
            "baseline": [str(one.file) for one in plan.migrations.baseline],
            "statements": result.statements,
            "left": [str(one.file) for one in plan.migrations.left] if not plan.foreign else [],
            "stopped": plan.migrations.stopped or None,
            "nodes_down": list(result.nodes.down),
            "exit": outcome.exit,
        }
    )


def _found_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome.found, Recognition):
        return recognition_json(outcome.request.keyspace, outcome.found)
    drift = [difference_json(one) for one in outcome.found]
    return {"keyspace": outcome.request.keyspace, "generation": None, "drift": drift, "notes": []}


def show_outcome(outcome: Outcome) -> None:
    """Print it: what was created, what was left, what was read back."""
    console, result = stdout_console(), outcome.result
    plan, keyspace = result.plan, outcome.request.keyspace
    for one in plan.migrations.baseline:
        console.print(f"there already: {one.file}", soft_wrap=True)
    for name in result.created:
        console.print(f"created {name}", soft_wrap=True)
    for file in result.applied:
        console.print(f"applied {file}", soft_wrap=True)
    if plan.withheld:
        names = ", ".join(step.creates for step in plan.withheld)
        console.print(
            f"Not created in a keyspace that mailmend did not make (--complete does): {names}", soft_wrap=True
        )
    elif plan.empty and not plan.foreign:
        console.print("Nothing was missing.")
    if plan.foreign:
        console.print(f"Take the keyspace over with: mailmend schema adopt --keyspace {keyspace}", soft_wrap=True)
    elif plan.migrations.left:
        left = ", ".join(str(one.file) for one in plan.migrations.left)
        console.print(f"Left: {left}. {plan.migrations.stopped}.", soft_wrap=True, markup=False)
    _show_found(outcome)
    _show_nodes(result)


def _show_found(outcome: Outcome) -> None:
    console, keyspace = stdout_console(), outcome.request.keyspace
    if isinstance(outcome.found, Recognition):
        if not outcome.result.plan.migrations.left or outcome.result.plan.foreign:
            show_recognition(keyspace, outcome.found)
        return
    for one in outcome.found:
        console.print(str(one), soft_wrap=True, markup=False)
    console.print(f"{keyspace}: " + ("not as expected." if outcome.found else "the schema is as expected."))


def _show_nodes(result: RolloutResult) -> None:
    if result.nodes.down:
        names = ", ".join(result.nodes.down)
        stderr_console().print(
            f"Down, and without this schema until they return (they take it from the others): {names}", soft_wrap=True
        )
