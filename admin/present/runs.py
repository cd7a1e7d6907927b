"""Runs of the ledger, as documents."""

from datetime import UTC, datetime
from typing import Any, Final

from admin.present.document import Document, Part, Table
from admin.services.runs import RunResult, RunsResult
from repair.ledger.runs import Run

EXAMPLES_SHOWN: Final = 20
"""How many findings `runs show` lists; `--findings` gives all."""


def list_document(result: RunsResult) -> Document:
    json = {"runs": [run_json(run) for run in result.runs]}
    if not result.runs:
        return Document(json, ("No run is kept: nothing was repaired yet, or it has expired.",))
    columns = ("run", "started", "command", "state", "fixed", "left")
    table = Table(f"Runs of {result.keyspace}", columns, [_cells(run) for run in result.runs])
    return Document(json, (table, f"Next: mailmend runs show {result.runs[0].id}"))


def show_document(result: RunResult) -> Document:
    """One run: its options, its totals, the first of its findings."""
    run, json = result.run, run_json(result.run)
    shown = {name: value for name, value in json.items() if name not in {"options", "summary"}}
    shown |= {f"option {name}": value for name, value in run.options.items()}
    shown |= {name: value for name, value in run.summary.items() if name not in shown}
    rows = [(name, _text(value)) for name, value in shown.items() if value not in (None, {}, "")]
    body: list[Part] = [Table(f"Run {run.id}", ("field", "value"), rows)]
    if result.examples:
        cells = [(one.projection, one.verdict.value, one.key, one.result) for one in result.examples[:EXAMPLES_SHOWN]]
        body.append(Table("Findings, for example", ("projection", "verdict", "key", "ended"), cells))
    return Document(json, (*body, f"To put it back: mailmend undo {run.id} --keyspace {run.keyspace}"))


def run_json(run: Run) -> dict[str, Any]:
    return {
        "run": str(run.id),
        "keyspace": run.keyspace,
        "command": run.command,
        "state": run.state.value,
        "as_of": run.as_of,
        "started_at": _instant(run.started_at),
        "ended_at": _instant(run.ended_at),
        "owner": run.owner,
        "undoes": str(run.undoes) if run.undoes else None,
        "options": dict(run.options),
        "summary": dict(run.summary),
    }


def _cells(run: Run) -> tuple[str, ...]:
    started = run.started_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (str(run.id), started, run.command, run.state.value, _sum(run, "fixed"), _sum(run, "left"))


def _sum(run: Run, name: str) -> str:
    counts = run.summary.get(name)
    return f"{sum(counts.values()):,}" if isinstance(counts, dict) else ""


def _instant(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else None


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return str(value)
