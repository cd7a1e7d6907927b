"""`mailmend runs`: what ran, what it was asked for, what it found and changed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from admin.cli.kinds import KEEP, duration_text
from admin.cli.options import connection_options
from admin.findings_file import finding_json
from admin.output import rows_grid, stdout_console, write_json
from admin.samples import Samples
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from model.catalog.ledger import KEEP as KEEP_DEFAULT
from repair.ledger.runs import Ledger, Run

FINDINGS_SHOWN = 20
"""How many findings `runs show` lists; `--findings` gives all."""


@click.group(
    epilog="""\b
Examples:
  mailmend runs list
  mailmend runs show 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002
  mailmend runs show RUN --findings | jq .key"""
)
def runs() -> None:
    """What ran, and what it found; kept for 30 days unless a repair said otherwise (`--keep`)."""


@runs.command("list")
@click.option("--all", "everything", is_flag=True, help="The runs of every mail keyspace, not only of --keyspace.")
@click.option(
    "--since",
    type=KEEP,
    default=duration_text(KEEP_DEFAULT),
    show_default=True,
    help="How far to look back; a repair's own --keep may be longer.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def list_runs(connection: ConnectionSettings, *, everything: bool, since: timedelta, as_json: bool) -> None:
    """List the runs, newest first."""
    with open_place(connection) as place:
        ledger = place.existing_ledger(since)
        found = ledger.runs(None if everything else connection.keyspace) if ledger else []
    if as_json:
        write_json({"runs": [run_json(run) for run in found]})
        return
    console = stdout_console()
    if not found:
        console.print("No run is kept: nothing was repaired yet, or it has expired.")
        return
    columns = ("run", "started", "command", "state", "fixed", "left")
    console.print(rows_grid(f"Runs of {connection.keyspace}", columns, [_cells(run) for run in found]))
    console.print(f"Next: mailmend runs show {found[0].id}", soft_wrap=True)


@runs.command("show")
@click.argument("run", type=click.UUID)
@click.option("--findings", is_flag=True, help="Every finding as a line of JSON on stdout, nothing else.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def show_run(connection: ConnectionSettings, run: Any, *, findings: bool, as_json: bool) -> None:
    """Show one run: what it was asked for, its sums, the first of its findings."""
    with open_place(connection) as place:
        ledger = place.known_ledger(run)
        if findings:
            for outcome in ledger.findings(ledger.get(run).id):
                write_json(finding_json(outcome))
            return
        found = ledger.get(run)
        if as_json:
            write_json(run_json(found))
            return
        _show(ledger, found)


def run_json(run: Run) -> dict[str, Any]:
    """A run under the names that scripts rely on."""
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


def _show(ledger: Ledger, run: Run) -> None:
    console = stdout_console()
    shown = {name: value for name, value in run_json(run).items() if name not in {"options", "summary"}}
    shown |= {f"option {name}": value for name, value in run.options.items()}
    shown |= {name: value for name, value in run.summary.items() if name not in shown}
    rows = [(name, _text(value)) for name, value in shown.items() if value not in (None, {}, "")]
    console.print(rows_grid(f"Run {run.id}", ("field", "value"), rows))
    samples = Samples()
    for outcome in ledger.findings(run.id):
        samples.add(outcome)
    listed = list(samples)[:FINDINGS_SHOWN]
    if listed:
        cells = [(one.projection, one.verdict.value, one.key, one.ended) for one in listed]
        console.print(rows_grid("Findings, for example", ("projection", "verdict", "key", "ended"), cells))
    console.print(f"To put it back: mailmend undo {run.id} --keyspace {run.keyspace}", soft_wrap=True)


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
