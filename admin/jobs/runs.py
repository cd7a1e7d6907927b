"""`mailmend jobs history` and `mailmend jobs set`: the runs of jobs, and limits of a run."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.frame.cluster import OpenCluster, open_cluster, owner_name
from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.kinds import KEEP, duration_text, parse_run
from mailmend.admin.frame.options import CONNECTION, MAX_FIXES, ROWS_PER_SECOND, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json, shown
from mailmend.admin.jobs.jobs import NAME, declared_jobs, job_lease, run_json
from mailmend.model.catalog.ledger import KEEP as KEEP_DEFAULT
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import WrongUse
from mailmend.model.instants import instant_of
from mailmend.repair.ledger.jobs import JobRun
from mailmend.repair.ledger.runs import Run, RunKind, RunLimit, RunLimits, RunState
from mailmend.repair.mending.check_records import check_lease
from mailmend.repair.mending.throttle import HEAR_SECONDS

JobHistory = Sequence[tuple[JobRun, Sequence[Run]]]
"""Runs of jobs, newest first, each with the repairs and recorded checks that it began."""


def history(connection: ConnectionSettings, names: Sequence[str], since: timedelta = KEEP_DEFAULT) -> JobHistory:
    with open_cluster(connection) as opened:
        kept = opened.existing_job_runs()
        ledger = opened.existing_ledger(since)
        if kept is None or ledger is None:
            return ()
        first = instant_of(opened.clock.micros()) - since
        runs: list[JobRun] = []
        for name in names:
            runs += [run for run in kept.of(name) if run.started_at >= first]
        if not runs:
            return ()
        repairs = ledger.runs()
    runs.sort(key=lambda run: run.started_at, reverse=True)
    rows = []
    for run in runs:
        rows.append((run, [repair for repair in repairs if began(run, repair, connection.keyspace)]))
    return rows


def began(run: JobRun, repair: Run, keyspace: str) -> bool:
    """Whether that repair is of this run of a job, whose command may name a keyspace of its own."""
    until = run.ended_at or run.ends_by
    here = repair.keyspace in (keyspace, *run.command.split())
    return here and repair.options.get("job") == run.job and run.started_at <= repair.started_at <= until


HISTORY_SHOWN = 50
"""How many runs `jobs history` lists; its JSON has all."""


def history_document(runs: JobHistory) -> Document:
    runs_json = []
    for run, began_by_it in runs:
        repairs = []
        checks = []
        for begun in began_by_it:
            if begun.command == RunKind.CHECK:
                checks.append(str(begun.id))
            else:
                repairs.append(str(begun.id))
        runs_json.append({**run_json(run), "repairs": repairs, "checks": checks})
    json = {"runs": runs_json}
    if not runs:
        return Document(json, ("No run of a job is kept: none ran yet, or they have expired.",))
    columns = ("job", "started", "ended", "state", "exit", "began")
    rows = [_history_row(run, repairs) for run, repairs in runs[:HISTORY_SHOWN]]
    wrapped = frozenset({"state"})
    grid = Grid("Runs of jobs", columns, rows, wrapped, short_ids=frozenset({"began"}))
    for _, began_by_it in runs:
        if began_by_it:
            return Document(json, (grid, f"Next: mailmend runs show {began_by_it[0].id}"))
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
    summary="List the runs of jobs, newest first, with the repairs and checks that they began.",
    service="mailmend.admin.jobs.runs:history",
    present="mailmend.admin.jobs.runs:history_document",
    paged=True,
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


_RUNNING = "See what runs with: mailmend jobs list, and mailmend runs list"


@dataclass(frozen=True, slots=True)
class LimitsSet:
    """The limits that were set, and those before as far as known: a settings file elsewhere may name others."""

    name: str
    run: UUID
    command: str
    before: RunLimit
    now: RunLimit
    heard_within_seconds: float = HEAR_SECONDS


def set_limits(
    connection: ConnectionSettings, name: str, rows_per_second: int | None, max_fixes: int | None
) -> LimitsSet:
    """Set limits of the run of that id, or of the run of the job of that name.

    Raises:
        WrongUse: no limit is given; nothing of that name runs; or it has no such limit.
        UnknownRun: the ledger holds no run of that id.
    """
    if rows_per_second is None and max_fixes is None:
        raise WrongUse("no limit is given", mend="Give --rows-per-second, --max-fixes, or both.")
    with open_cluster(connection) as opened:
        run, kind, command, declared = _at_work(opened, name)
        if max_fixes is not None and kind is not RunKind.MESSAGES:
            raise WrongUse(f"{command!r} has no --max-fixes", mend="Give --rows-per-second alone.")
        limits = RunLimits(opened.ledger().tables, opened.clock)
        before = limits.newest(run) or declared
        if rows_per_second is None:
            rows_per_second = before.rows_per_second
        if max_fixes is None:
            max_fixes = before.max_fixes
        wanted = RunLimit(rows_per_second, max_fixes, owner=owner_name())
        return LimitsSet(name, run, command, before, limits.put(run, wanted))


def _at_work(opened: OpenCluster, name: str) -> tuple[UUID, RunKind, str, RunLimit]:
    """The id under which the run hears, its kind, its command, and its limits as they were given."""
    try:
        run = parse_run(name)
    except WrongUse:
        return _of_job(opened, name.replace("_", "-"))
    ledger = opened.known_ledger(run)
    return _of_run(opened, ledger.get(ledger.id_of(run)))


def _of_job(opened: OpenCluster, job: str) -> tuple[UUID, RunKind, str, RunLimit]:
    newest = None
    runs = opened.existing_job_runs()
    if runs:
        newest = runs.newest(job)
    if newest is None or newest.state is not RunState.RUNNING:
        raise WrongUse(f"no job {job!r} runs in keyspace {opened.connection.keyspace!r}", mend=_RUNNING)
    _refuse_killed(opened, job_lease(opened.connection.keyspace, job), f"the run of job {job!r}")
    return newest.id, _kind_of_job(newest), newest.command, _declared(newest)


def _of_run(opened: OpenCluster, run: Run) -> tuple[UUID, RunKind, str, RunLimit]:
    if run.state is not RunState.RUNNING:
        raise WrongUse(f"run {run.id} does not run any more: {run.state.value}", mend=_RUNNING)
    of_a_job = run.command == RunKind.CHECK and run.options.get("job")
    if run.command not in _LIMITED and not of_a_job:
        raise WrongUse(f"{run.command!r} has no limits", mend="It goes on as it is, or is ended with Ctrl-C.")
    _refuse_killed(opened, _lease_of(run), f"run {run.id}")
    given = run.options
    runs = opened.existing_job_runs()
    if runs and given.get("job"):
        newest = runs.newest(given["job"])
        if newest and began(newest, run, opened.connection.keyspace):
            return newest.id, _kind_of_job(newest), newest.command, _declared(newest)
    kind = _kind_of_run(run)
    command = run.command
    if kind is RunKind.MESSAGES:
        command = "repair messages"
    return run.id, kind, command, RunLimit(given.get("rows_per_second"), given.get("max_fixes"))


def _lease_of(run: Run) -> str:
    """The row by which the process of a run is known to be alive."""
    if run.command == RunKind.CHECK:
        return check_lease(run.id)
    return KeyspaceLease(run.command).of(run.keyspace)


_LIMITED: Final = frozenset({RunKind.MESSAGES, RunKind.QUEUES, RunKind.BLOBS})
"""The kinds in the ledger whose runs hear of limits."""


def _kind_of_job(run: JobRun) -> RunKind:
    match shlex.split(run.command):
        case ["check", *_]:
            return RunKind.CHECK
        case ["repair", "messages" | "mailboxes" | "tables", *_]:
            return RunKind.MESSAGES
        case ["repair", what, *_]:
            return RunKind(f"repair {what}")
        case _:
            raise WrongUse("a sweep has no limits", mend="It reads what has left the queue, and nothing else.")


def _kind_of_run(run: Run) -> RunKind:
    """The kind of a run; runs of lags and of plans, which the ledger keeps as MESSAGES, are told by their options."""
    kind = RunKind(run.command)
    if kind is not RunKind.MESSAGES:
        return kind
    if "lags" in run.options:
        return RunKind.LAGS
    if "delay" not in run.options:
        return RunKind.APPLY
    return kind


def _refuse_killed(opened: OpenCluster, lease: str, what: str) -> None:
    if opened.leases().holder(lease) is None:
        raise WrongUse(f"{what} does not run any more: its process was killed", mend=_RUNNING)


def _declared(run: JobRun) -> RunLimit:
    words: list[str] = []
    for word in shlex.split(run.command):
        words += word.split("=", 1)
    given = {name: int(value) for name, value in pairwise(words) if value.isdecimal()}
    return RunLimit(given.get("--rows-per-second"), given.get("--max-fixes"))


def limit_document(result: LimitsSet) -> Document:
    names = ("rows_per_second", "max_fixes")
    json = {
        **fields_json(result, "name", "run", "command"),
        "before": fields_json(result.before, *names),
        "now": fields_json(result.now, *names),
        "heard_within_seconds": result.heard_within_seconds,
    }
    rows = []
    for name in names:
        before = getattr(result.before, name)
        now = getattr(result.now, name)
        if now is not None:
            rows.append((f"--{name.replace('_', '-')}", _limit_text(before), _limit_text(now)))
    heard = f"The run hears of it within {result.heard_within_seconds:g} s, as soon as it reads or writes"
    if result.now.max_fixes is not None:
        heard += "; of --max-fixes when its scan is over, before it mends anything"
    grid = Grid(f"Limits of {result.name}", ("limit", "before", "now"), rows)
    return Document(json, (grid, f"{heard}. The next run has what is declared."))


def _limit_text(limit: int | None) -> str:
    if limit is None:
        return "none that is known"
    return f"{limit:,}"


SET: Final = Command(
    name="set",
    summary="Change the limits of a run while it is at work.",
    about="""NAME is the name of a job that runs, or the id of a run that was started by hand (mailmend runs list). The
    change is for this run alone: the next run has the declared limits. With either engine the change takes effect
    within seconds wherever the run reads or writes; --max-fixes takes effect when the scan is over, before anything is
    mended. Every change is recorded: mailmend runs show.

    A check that was started by hand has no limits that can be changed, recorded or not: end it
    (Ctrl-C, it writes no mail), and start it again with --rows-per-second.""",
    service="mailmend.admin.jobs.runs:set_limits",
    present="mailmend.admin.jobs.runs:limit_document",
    options=(
        NAME,
        ROWS_PER_SECOND,
        MAX_FIXES,
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend jobs set nightly-repair --rows-per-second 2000
        mailmend jobs set 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002 --rows-per-second 500""",
    exits="0 it is set, 2 wrong use, or nothing of that name runs, 4 the cluster cannot be reached.",
)
