"""Optional migrations as they are shown: why, what they risk, and the CQL that runs here."""

from collections.abc import Iterable
from typing import Any

from admin.output import stdout_console
from cql.ddl_text import ddl_cql
from cql.render import ServerVersion
from model.risk import assess
from model.schema import Schema
from model.upgrade_notes import OptionalMigration


def optional_json(one: OptionalMigration, live: Schema, keyspace: str, server: ServerVersion) -> dict[str, Any]:
    """One optional migration, with what of it is still to do."""
    due = [(ddl_cql(statement, keyspace, server), assess(statement, live)) for statement in one.due(live)]
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


def show_optional(due: Iterable[OptionalMigration], live: Schema, keyspace: str, server: ServerVersion) -> None:
    """Print them as CQL that cqlsh takes, reasons as comments."""
    console = stdout_console()
    for one in due:
        shown = optional_json(one, live, keyspace, server)
        source = f", {one.source}" if one.source else ""
        console.print(f"\n-- optional: {one.name} ({one.since}{source})", soft_wrap=True, markup=False)
        for text in (one.why, one.caution, f"Undo: {one.undo}"):
            if text:
                console.print(f"--   {text}", soft_wrap=True, markup=False)
        for statement in shown["plan"]:
            console.print(f"--   risk: {statement['risk']}. {statement['why']}", soft_wrap=True, markup=False)
            console.print(statement["cql"], soft_wrap=True, markup=False)
        run = f"mailmend schema apply --optional {one.name} --keyspace {keyspace}"
        console.print(f"--   run it with: {run}", soft_wrap=True, markup=False)
