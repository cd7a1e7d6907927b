"""`mailmend jobs history`: the runs of jobs, each with the repairs that it began."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import click

from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.kinds import KEEP, duration_text
from mailmend.admin.frame.options import CONNECTION, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import shown
from mailmend.admin.jobs.jobs import declared_jobs, run_json
from mailmend.model.catalog.ledger import KEEP as KEEP_DEFAULT
from mailmend.model.instants import instant_of
from mailmend.repair.ledger.jobs import JobRun
from mailmend.repair.ledger.runs import Run


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Runs of jobs, newest first, each with the repairs that it began."""

    runs: Sequence[tuple[JobRun, Sequence[Run]]]


def history(connection: ConnectionSettings, names: Sequence[str], since: timedelta = KEEP_DEFAULT) -> JobHistory:
    with open_cluster(connection) as opened:
        kept = opened.existing_job_runs()
        ledger = opened.existing_ledger(since)
        if kept is None or ledger is None:
            return JobHistory(())
        first = instant_of(opened.clock.micros()) - since
        runs = [run for name in names for run in kept.of(name) if run.started_at >= first]
        repairs = ledger.runs() if runs else []
    runs.sort(key=lambda run: run.started_at, reverse=True)
    return JobHistory(
        [(run, [repair for repair in repairs if began(run, repair, connection.keyspace)]) for run in runs]
    )


def began(run: JobRun, repair: Run, keyspace: str) -> bool:
    """Whether that repair is of this run of a job, whose command may name a keyspace of its own."""
    until = run.ended_at or run.ends_by
    here = repair.keyspace in (keyspace, *run.command.split())
    return here and repair.options.get("job") == run.job and run.started_at <= repair.started_at <= until


HISTORY_SHOWN = 50
"""How many runs `jobs history` lists; its JSON has all."""


def history_document(result: JobHistory) -> Document:
    json = {
        "runs": [
            {**run_json(run), "repairs": [str(mending_run.id) for mending_run in repairs]}
            for run, repairs in result.runs
        ]
    }
    if not result.runs:
        return Document(json, ("No run of a job is kept: none ran yet, or they have expired.",))
    columns = ("job", "started", "ended", "state", "exit", "repair")
    rows = [_history_row(run, repairs) for run, repairs in result.runs[:HISTORY_SHOWN]]
    grid = Grid("Runs of jobs", columns, rows, frozenset({"state"}))
    repair = next((run for _, repairs in result.runs for run in repairs), None)
    return Document(json, (grid, *([f"Next: mailmend runs show {repair.id}"] if repair else ())))


def _history_row(run: JobRun, repairs: Sequence[Run]) -> tuple[str, ...]:
    return (
        run.job,
        shown(run.started_at),
        shown(run.ended_at) if run.ended_at else "",
        f"{run.state.value}: {run.reason}" if run.reason else run.state.value,
        "" if run.exit_code is None else str(run.exit_code),
        ", ".join(str(repair.id) for repair in repairs),
    )


def _names(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> list[str]:  # noqa: ARG001
    named = others.pop("name")
    jobs = declared_jobs(context)
    return [str(named).replace("_", "-")] if named else list(jobs)


HISTORY: Final = Command(
    name="history",
    summary="List the runs of jobs, newest first, with the repairs that they began.",
    service="mailmend.admin.jobs.history:history",
    present="mailmend.admin.jobs.history:history_document",
    options=(
        click.Argument(["name"], required=False),
        option("--since", "How far to look back.", type=KEEP, default=duration_text(KEEP_DEFAULT)),
    ),
    shared=(Shared("names", {}, _names), CONNECTION),
    examples="""
        mailmend jobs history
        mailmend jobs history nightly-repair --json | jq '.runs[0].exit_code'""",
    exits="0 they were listed, 2 wrong use, 4 the cluster cannot be reached.",
)
