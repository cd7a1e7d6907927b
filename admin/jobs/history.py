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
        runs: list[JobRun] = []
        for name in names:
            runs += [run for run in kept.of(name) if run.started_at >= first]
        if not runs:
            return JobHistory(())
        repairs = ledger.runs()
    runs.sort(key=lambda run: run.started_at, reverse=True)
    rows = []
    for run in runs:
        rows.append((run, [repair for repair in repairs if began(run, repair, connection.keyspace)]))
    return JobHistory(rows)


def began(run: JobRun, repair: Run, keyspace: str) -> bool:
    """Whether that repair is of this run of a job, whose command may name a keyspace of its own."""
    until = run.ended_at or run.ends_by
    here = repair.keyspace in (keyspace, *run.command.split())
    return here and repair.options.get("job") == run.job and run.started_at <= repair.started_at <= until


HISTORY_SHOWN = 50
"""How many runs `jobs history` lists; its JSON has all."""


def history_document(result: JobHistory) -> Document:
    runs_json = []
    for run, repairs in result.runs:
        runs_json.append({**run_json(run), "repairs": [str(repair.id) for repair in repairs]})
    json = {"runs": runs_json}
    if not result.runs:
        return Document(json, ("No run of a job is kept: none ran yet, or they have expired.",))
    columns = ("job", "started", "ended", "state", "exit", "repair")
    rows = [_history_row(run, repairs) for run, repairs in result.runs[:HISTORY_SHOWN]]
    grid = Grid("Runs of jobs", columns, rows, frozenset({"state"}))
    for _, repairs in result.runs:
        if repairs:
            return Document(json, (grid, f"Next: mailmend runs show {repairs[0].id}"))
    return Document(json, (grid,))


def _history_row(run: JobRun, repairs: Sequence[Run]) -> tuple[str, ...]:
    ended = ""
    if run.ended_at:
        ended = shown(run.ended_at)
    state = run.state.value
    if run.reason:
        state += f": {run.reason}"
    code = ""
    if run.exit_code is not None:
        code = str(run.exit_code)
    return (run.job, shown(run.started_at), ended, state, code, ", ".join(str(repair.id) for repair in repairs))


def _names(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> list[str]:  # noqa: ARG001
    named = others.pop("name")
    jobs = declared_jobs(context)
    if named:
        return [str(named).replace("_", "-")]
    return list(jobs)


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
