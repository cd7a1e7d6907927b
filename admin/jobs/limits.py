"""`mailmend jobs set`: the limits of a run, changed while it is at work."""

import shlex
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from uuid import UUID

from mailmend.admin.frame.cluster import OpenCluster, open_cluster, owner_name
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.options import CONNECTION, MAX_FIXES, ROWS_PER_SECOND
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.history import began
from mailmend.admin.jobs.jobs import NAME, job_lease
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import WrongUse
from mailmend.repair.ledger.jobs import JobRun
from mailmend.repair.ledger.runs import Run, RunKind, RunLimit, RunLimits, RunState
from mailmend.repair.mending.throttle import HEAR_SECONDS

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
        run = UUID(name)
    except ValueError:
        return _of_job(opened, name.replace("_", "-"))
    return _of_run(opened, opened.known_ledger(run).get(run))


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
    if run.command not in _LIMITED:
        raise WrongUse(f"{run.command!r} has no limits", mend="It goes on as it is, or is ended with Ctrl-C.")
    _refuse_killed(opened, KeyspaceLease(run.command).of(run.keyspace), f"run {run.id}")
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


_LIMITED: Final = frozenset({RunKind.MESSAGES, RunKind.QUEUES, RunKind.BLOBS})
"""The kinds in the ledger whose runs hear of limits."""


def _kind_of_job(run: JobRun) -> RunKind:
    match shlex.split(run.command):
        case ["check", *_]:
            return RunKind.CHECK
        case ["repair", "messages", *_]:
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
        "name": result.name,
        "run": str(result.run),
        "command": result.command,
        "before": {name: getattr(result.before, name) for name in names},
        "now": {name: getattr(result.now, name) for name in names},
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

    A check that was started by hand is on no record, so it cannot be named: end it (Ctrl-C, it writes nothing), and
    start it again with --rows-per-second.""",
    service="mailmend.admin.jobs.limits:set_limits",
    present="mailmend.admin.jobs.limits:limit_document",
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
