"""Runs of the ledger as documents: their list, one of them, and how findings change over them."""

from typing import Any, Final

from admin.present.affected import affected_json, findings_parts, mailboxes_part
from admin.present.document import Document, Grid, Part
from admin.present.values import plain, shown
from admin.services.runs import RunResult, RunsResult
from repair.ledger.runs import Run
from repair.mending.undo import NOT_UNDONE

EXAMPLES_SHOWN: Final = 20
"""How many findings `runs show` lists; `--findings` gives all."""


def runs_document(result: RunsResult) -> Document:
    json = {"runs": [run_json(run) for run in result.runs]}
    if not result.runs:
        return Document(json, ("No run is kept: nothing was repaired yet, or it has expired.",))
    columns = ("run", "started", "command", "state", "fixed", "left")
    table = Grid(f"Runs of {result.keyspace}", columns, [_cells(run) for run in result.runs])
    return Document(json, (table, f"Next: mailmend runs show {result.runs[0].id}"))


def run_document(result: RunResult) -> Document:
    run, json = result.run, run_json(result.run)
    fields = {name: value for name, value in json.items() if name not in {"options", "summary"}}
    fields |= {f"option {name}": value for name, value in run.options.items()}
    fields |= {name: value for name, value in run.summary.items() if name not in fields}
    rows = [(name, _text(value)) for name, value in fields.items() if value not in (None, {}, "")]
    body: list[Part] = [Grid(f"Run {run.id}", ("field", "value"), rows, frozenset({"value"}))]
    body += mailboxes_part(result.affected, run.keyspace)
    few = result.examples[:EXAMPLES_SHOWN]
    back = [] if run.command in NOT_UNDONE else [f"To put it back: mailmend undo {run.id} --keyspace {run.keyspace}"]
    return Document(
        json | affected_json(result.affected),
        (*body, *findings_parts(few, result.affected, run.keyspace, whole=False), *back),
        title=f"{run.command} of keyspace {run.keyspace}",
        report=(*body, *findings_parts(result.examples, result.affected, run.keyspace, whole=True), *back),
    )


def run_json(run: Run) -> dict[str, Any]:
    fields = plain(run)
    return {"run": fields.pop("id"), **fields}


def _cells(run: Run) -> tuple[str, ...]:
    return (str(run.id), shown(run.started_at), run.command, run.state.value, _sum(run, "fixed"), _sum(run, "left"))


def _sum(run: Run, name: str) -> str:
    counts = run.summary.get(name)
    return f"{sum(counts.values()):,}" if isinstance(counts, dict) else ""


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
