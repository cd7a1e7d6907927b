"""`mailmend jobs`: the group, the declared jobs, and the commands list, show, pause and resume."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.frame.cluster import OpenCluster, open_cluster, this_clock
from mailmend.admin.frame.command import TYPED, Command, CommandGroup, Late, Shared
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.options import CONNECTION, flag, option, settings_table
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.settings_file import line_in_table, settings_file_of
from mailmend.admin.frame.values import instant_text, plain, shown
from mailmend.admin.jobs.declaration import (
    BadJob,
    Job,
    job_of,
    looks_like_a_job,
    name_of_a_command,
    refuse_unasked,
)
from mailmend.admin.jobs.schedule import (
    Turn,
    is_open,
    missed_turn,
    next_turns,
    window_ends_at,
    window_opens_at,
)
from mailmend.model.durations import format_duration
from mailmend.model.errors import CannotReach, ExitCode, WrongUse
from mailmend.model.instants import instant_of
from mailmend.repair.ledger.jobs import JobPause, JobRun
from mailmend.repair.ledger.runs import TO_END, RunLimit, RunLimits, RunState

PAGE: Final = "scheduled-repair-failed"
"""The runbook's page for a run that needs a person."""


TABLE: Final = "jobs"
_LIMITS: Final = {"--max-fixes": "max_fixes", "--rows-per-second": "rows_per_second"}
NONE_DECLARED: Final = "How to declare one: mailmend jobs --help"
NAME: Final = click.Argument(["name"])


def declared_jobs(context: click.Context) -> dict[str, Job]:
    """Every job of the settings file, by name.

    Raises:
        BadSettings: one of them cannot be carried out; with file, line, and what to write instead.
    """
    commands = {name.replace("-", "_") for name in _GROUP_NAMES}
    jobs = {}
    declared = dict(settings_table(context, TABLE))
    for name in commands & declared.keys():
        if looks_like_a_job(declared.pop(name)):
            raise name_of_a_command(name).at(_place(context, name, ""), name)
    for spelled, table in declared.items():
        name = spelled.replace("_", "-")
        try:
            jobs[name] = job_of(name, table)
            parsed_command(jobs[name], context)
        except BadJob as error:
            raise error.at(_place(context, spelled, error.field), name) from error
    return jobs


def _place(context: click.Context, name: str, field: str) -> str:
    file, text = settings_file_of(context)
    return f"{file}, line {line_in_table(text, f'{TABLE}.{name}', field)}"


def parsed_command(job: Job, context: click.Context, *more: str) -> click.Context:
    """The job's command, with its options read as if they had been typed.

    Args:
        job: whose command.
        context: of the command that asks.
        more: further options, after the job's own options.

    Raises:
        BadJob: an option is not one of the command, or has a wrong value.
    """
    try:
        ready = command_context([*job.arguments, *more], context)
    except click.UsageError as error:
        field = "command"
        option = _option_of(error)
        if option in _LIMITS and option not in job.words:
            field = _LIMITS[option]
        mend = ""
        if error.ctx:
            mend = f"Its options: {error.ctx.command_path} --help"
        what = f"`mailmend {' '.join(job.words)}` cannot be run: {error.format_message()}"
        raise BadJob(field, what, mend=mend) from error
    given = [param for param in ready.params if ready.get_parameter_source(param) is TYPED]
    refuse_unasked(ready.params, given)
    return ready


def command_context(words: Sequence[str], context: click.Context) -> click.Context:
    """The command that these words name, as typed behind `mailmend`, with its options read.

    Raises:
        click.UsageError: there is no such command, or an option of it is wrong.
    """
    parent = context.find_root()
    command = parent.command
    rest = list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(parent, name)
        assert found is not None, "the caller knows that the command is there"
        if not isinstance(found, click.Group):
            return found.make_context(name, rest, parent=parent)
        parent = click.Context(found, info_name=name, parent=parent)
        command = found
    raise AssertionError("a group is no command")


def _option_of(error: click.UsageError) -> str:
    match error:
        case click.NoSuchOption():
            return error.option_name
        case click.BadParameter(param=click.Option(opts=[name, *_])):
            return str(name)
        case _:
            return ""


def job_named(name: str, jobs: dict[str, Job]) -> Job:
    spelled = name.replace("_", "-")
    if spelled not in jobs:
        known = NONE_DECLARED
        if jobs:
            known = f"Declared are: {', '.join(jobs)}."
        raise WrongUse(f"no job {spelled!r} is declared", mend=known)
    return jobs[spelled]


def _one_job(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> Job:  # noqa: ARG001
    return job_named(others.pop("name"), declared_jobs(context))


_ONE: Final = Shared("job", {}, _one_job)
ALL_JOBS: Final = Shared("jobs", {}, lambda _own, _others, context: list(declared_jobs(context).values()))
_OF_ONE: Final = Shared("jobs", {}, lambda own, others, context: [_one_job(own, others, context)])


def job_lease(keyspace: str, job: str) -> str:
    return f"job {keyspace} {job}"


TURNS: Final = 3
"""How many of the next runs are listed."""


class JobState(Enum):
    """The state of a job now."""

    WAITING = "WAITING"  # for its next run
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"  # until somebody resumes it
    MISSED = "MISSED"  # its last run did not begin
    UNKNOWN = "UNKNOWN"  # the ledger could not be read


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job.

    Attributes:
        turns: its next runs.
        open_now: whether its window is open.
        window_changes_at: when its window closes or opens; None without a window.
        last: its newest run that is kept.
        missed: the run that should have begun and has not.
    """

    job: Job
    state: JobState
    turns: Sequence[Turn]
    open_now: bool
    window_changes_at: datetime | None
    last: JobRun | None = None
    pause: JobPause | None = None
    missed: Turn | None = None


@dataclass(frozen=True, slots=True)
class JobsResult:
    """Jobs as they stand; `unread` says why nothing is known of their runs, or is ""."""

    jobs: Sequence[JobStatus]
    unread: str = ""

    @property
    def exit(self) -> ExitCode:
        if self.unread:
            return ExitCode.CANNOT_REACH
        return ExitCode.FINE


def list_jobs(connection: ConnectionSettings, jobs: Sequence[Job]) -> JobsResult:
    """What is declared, and as far as the ledger can be read what became of it."""
    try:
        with open_cluster(connection) as opened:
            return JobsResult(statuses_of(opened, jobs))
    except CannotReach as error:
        now = instant_of(this_clock().micros())
        return JobsResult([status_of(job, now, known=False) for job in jobs], error.what)


def statuses_of(opened: OpenCluster, jobs: Sequence[Job]) -> list[JobStatus]:
    """What is declared, and what became of it by the ledger."""
    now = instant_of(opened.clock.micros())
    runs = opened.existing_job_runs()
    if runs is None:
        return [status_of(job, now) for job in jobs]
    return [status_of(job, now, runs.newest(job.name), runs.pause_of(job.name)) for job in jobs]


def status_of(
    job: Job, now: datetime, last: JobRun | None = None, pause: JobPause | None = None, *, known: bool = True
) -> JobStatus:
    missed = None
    if last:
        missed = missed_turn(job, last.started_at, now)
    if not known:
        state = JobState.UNKNOWN
    elif last and last.state is RunState.RUNNING:
        state = JobState.RUNNING
    elif pause:
        state = JobState.PAUSED
    elif missed:
        state = JobState.MISSED
    else:
        state = JobState.WAITING
    open_now = is_open(job, now)
    if open_now:
        changes_at = window_ends_at(job, now)
    else:
        changes_at = window_opens_at(job, now)
    return JobStatus(job, state, next_turns(job, now, TURNS), open_now, changes_at, last, pause, missed)


def jobs_document(result: JobsResult) -> Document:
    json = {"jobs": [_status_json(job) for job in result.jobs], "unread": result.unread or None}
    if not result.jobs:
        return Document(json, ("No job is declared. How to declare one: mailmend jobs --help",))
    columns = ("job", "command", "next run", "window", "state", "last run")
    rows = []
    missed = []
    for status in result.jobs:
        job = status.job
        next_run = "never"
        if status.turns:
            next_run = _local(status.turns[0].start_at, job)
        rows.append(
            (job.name, job.command, next_run, window_text(status), status.state.value, last_run_text(status.last))
        )
        if status.state is JobState.MISSED and status.missed:
            at = _local(status.missed.due_at, job)
            missed.append(f"{job.name} did not run at {at}: does its scheduler run? See: mailmend runbook show {PAGE}")
    grid = Grid("Jobs", columns, rows, frozenset({"command", "window", "last run"}))
    return Document(json, (grid, *missed), result.exit, remarks=_unread(result))


def job_document(result: JobsResult) -> Document:
    status = result.jobs[0]
    json = {**_status_json(status), "unread": result.unread or None}
    job = status.job
    jitter = ""
    if job.jitter:
        jitter = f"{format_duration(job.jitter)} later"
    missed = ""
    if status.missed:
        missed = _local(status.missed.due_at, job)
    fields = {
        "command": f"mailmend {job.command}",
        "schedule": f"{job.schedule.text} ({job.zone.key})",
        "begins up to": jitter,
        "window": window_text(status),
        "longest": format_duration(job.longest),
        "a missed run": {"skip": "is skipped", "run": "runs as soon as it can, within the window"}[job.missed.value],
        "state": status.state.value,
        "paused": pause_text(status.pause),
        "missed": missed,
        "last run": last_run_text(status.last),
        "next runs": ", ".join(_local(turn.start_at, job) for turn in status.turns),
    }
    rows = [(name, text) for name, text in fields.items() if text]
    grid = Grid(f"Job {job.name}", ("field", "value"), rows, frozenset({"value"}))
    return Document(json, (grid, f"Next: mailmend jobs history {job.name}"), result.exit, remarks=_unread(result))


def _unread(result: JobsResult) -> Sequence[str]:
    if not result.unread:
        return ()
    return (f"How their runs ended is not known: {result.unread}.",)


def _local(at: datetime, job: Job) -> str:
    return f"{at.astimezone(job.zone):%Y-%m-%d %H:%M %Z}"


def window_text(one: JobStatus) -> str:
    if one.job.window is None or one.window_changes_at is None:
        return "always"
    verb = "closes" if one.open_now else "opens"
    return f"{one.job.window}, {verb} {_local(one.window_changes_at, one.job)}"


def last_run_text(run: JobRun | None) -> str:
    if run is None:
        return ""
    text = f"{shown(run.started_at)} {run.state.value}"
    if run.exit_code is not None:
        text += f", exit {run.exit_code}"
    return text


def pause_text(pause: JobPause | None) -> str:
    if pause is None:
        return ""
    return f"by {pause.owner} since {shown(pause.paused_at)}: {pause.reason}".rstrip(": ")


def _pause_json(pause: JobPause | None) -> dict[str, Any] | None:
    if pause is None:
        return None
    return {"at": instant_text(pause.paused_at), "owner": pause.owner, "reason": pause.reason}


def run_json(run: JobRun) -> dict[str, Any]:
    fields = plain(run)
    return {"run": fields.pop("id"), **fields}


def _status_json(status: JobStatus) -> dict[str, Any]:
    job = status.job
    window = None
    if job.window:
        window = str(job.window)
    missed_at = None
    if status.missed:
        missed_at = status.missed.due_at
    return {
        "name": job.name,
        "command": list(job.arguments),
        "schedule": job.schedule.text,
        "time_zone": job.zone.key,
        "jitter_seconds": job.jitter.total_seconds(),
        "window": window,
        "window_open": status.open_now,
        "window_changes_at": instant_text(status.window_changes_at),
        "longest_seconds": job.longest.total_seconds(),
        "missed": job.missed.value,
        "state": status.state.value,
        "next": plain(status.turns),
        "missed_at": instant_text(missed_at),
        "paused": _pause_json(status.pause),
        "last": status.last and run_json(status.last),
    }


@dataclass(frozen=True, slots=True)
class JobPaused:
    """A job and its pause: the one that begins, or the one that has ended; None where there was none.

    `ended` is the id of the run that the pause ends.
    """

    job: Job
    pause: JobPause | None
    ended: UUID | None = None


def pause_job(connection: ConnectionSettings, job: Job, reason: str | None, *, now: bool = False) -> JobPaused:
    """Keep the job from beginning, and with `now` have its run that is at work end in good order."""
    with open_cluster(connection) as opened:
        runs = opened.job_runs()
        pause = runs.pause(job.name, reason or "")
        if not now:
            return JobPaused(job, pause)
        run = runs.newest(job.name)
        if run is None or run.state is not RunState.RUNNING:
            return JobPaused(job, pause)
        RunLimits(runs.tables, runs.clock).put(run.id, RunLimit(TO_END, owner=runs.owner))
        return JobPaused(job, pause, run.id)


def resume_job(connection: ConnectionSettings, job: Job) -> JobPaused:
    with open_cluster(connection) as opened:
        runs = opened.existing_job_runs()
        if runs is None:
            return JobPaused(job, None)
        return JobPaused(job, runs.resume(job.name))


def paused_document(result: JobPaused) -> Document:
    name = result.job.name
    said = f"Job {name} is paused."
    if result.ended:
        said += " Its run ends within seconds."
    json = {"job": name, "paused": _pause_json(result.pause), "ended": plain(result.ended)}
    return Document(json, (f"{said} To let it run again: mailmend jobs resume {name}",))


def resumed_document(result: JobPaused) -> Document:
    said = "runs again at its next time" if result.pause else "was not paused"
    json = {"job": result.job.name, "was_paused": _pause_json(result.pause)}
    return Document(json, (f"Job {result.job.name} {said}.",))


_LIST: Final = Command(
    name="list",
    summary="List the declared jobs: their next runs, windows and states.",
    about="""A state is WAITING for the next run, RUNNING, PAUSED, MISSED (the last one did not begin), or UNKNOWN where
    the ledger cannot be read. Nothing is written.""",
    service="mailmend.admin.jobs.jobs:list_jobs",
    present="mailmend.admin.jobs.jobs:jobs_document",
    paged=True,
    shared=(ALL_JOBS, CONNECTION),
    examples="""
        mailmend jobs list
        mailmend jobs list --json | jq -r '.jobs[] | select(.state == "MISSED").name'""",
    exits="0 they were listed, 2 a declaration is wrong (file, line and what to write instead are said), 4 the ledger "
    "could not be read: the list says so.",
)
_SHOW: Final = Command(
    name="show",
    summary="Show one job: what is declared, its next runs, how the last one ended.",
    service="mailmend.admin.jobs.jobs:list_jobs",
    present="mailmend.admin.jobs.jobs:job_document",
    paged=True,
    options=(NAME,),
    shared=(_OF_ONE, CONNECTION),
    examples="mailmend jobs show nightly-repair",
    exits="0 it was shown, 2 wrong use, 4 the ledger could not be read.",
)


_PAUSE: Final = Command(
    name="pause",
    summary="Have no scheduler run a job until it is resumed.",
    about="""A run that is at work goes on to its end. With --now it ends within seconds, on whichever host it runs,
    in good order as at the end of its window: --staging loses only the token ranges being read.""",
    service="mailmend.admin.jobs.jobs:pause_job",
    present="mailmend.admin.jobs.jobs:paused_document",
    options=(
        NAME,
        option("--reason", "Reason: shown to operators who find it paused.", metavar="TEXT"),
        flag("--now", "End the run that is at work, too."),
    ),
    shared=(_ONE, CONNECTION),
    examples="""
        mailmend jobs pause nightly-repair --reason 'nodes are being replaced until Friday'
        mailmend jobs pause nightly-repair --now""",
    exits="0 it is paused, 2 wrong use, 4 the cluster cannot be reached.",
)
_RESUME: Final = Command(
    name="resume",
    summary="Let a paused job run again, at its next time.",
    service="mailmend.admin.jobs.jobs:resume_job",
    present="mailmend.admin.jobs.jobs:resumed_document",
    options=(NAME,),
    shared=(_ONE, CONNECTION),
    examples="mailmend jobs resume nightly-repair",
    exits="0 it is not paused any more, 2 wrong use, 4 the cluster cannot be reached.",
)


JOBS: Final = CommandGroup(
    name="jobs",
    summary="Scheduled checks and repairs: when they run, and how they ended.",
    about="""A job is a table of the settings file: a command of check, repair or queue sweep with its options, and when
    it may run. Nothing runs where one of them is declared wrongly.""",
    commands=(
        _LIST,
        _SHOW,
        Late("run", "Run a job now, in this process.", "mailmend.admin.jobs.run:RUN"),
        Late("serve", "Run the jobs at their times, until it is stopped.", "mailmend.admin.jobs.serve:SERVE"),
        Late("set", "Change the limits of a run while it is at work.", "mailmend.admin.jobs.runs:SET"),
        _PAUSE,
        _RESUME,
        Late(
            "history",
            "List the runs of jobs, newest first, with the repairs and checks that they began.",
            "mailmend.admin.jobs.runs:HISTORY",
        ),
        Late(
            "install",
            "Write what systemd, cron, Kubernetes or Airflow need to run jobs and servers.",
            "mailmend.admin.jobs.install:INSTALL",
        ),
    ),
    examples="""
        mailmend jobs list                                what is declared, when it runs, its state
        mailmend jobs run nightly-repair                  now
        mailmend jobs set nightly-repair --rows-per-second 2000     slower, while it runs
        mailmend jobs history nightly-repair              how its runs ended
        mailmend jobs serve                               run them all at their times
        mailmend jobs install --systemd --dir /etc/systemd/system""",
    epilog="""\b
In the settings file (only command and schedule are needed):
  [jobs.nightly-repair]
  command = "repair messages --engine local"   # as it is typed behind `mailmend`
  schedule = "30 1 * * *"           # minute, hour, day of month, month, day of week
  time_zone = "Europe/Berlin"       # of schedule and window; UTC
  jitter = "10m"                    # begins up to this much later; 0
  window = "01:00-05:30"            # ended in good order at its end, goes on in the next one; always
  longest = "4h"                    # ended in good order after so long; 12h
  missed = "run"                    # what a missed run means: "run" as soon as it can, or "skip" it; "skip"
  max_fixes = 100000                # limits, as the command's options of these names
  rows_per_second = 20000
  tell = "trouble"                  # after failures, drift and interruptions, or "always"; "trouble"
  tell_command = "page-on-call"     # gets JSON on stdin
  tell_webhook = "https://hooks.example.org/T0/B0"   # JSON is posted there, up to six times
  metrics_file = "/var/lib/node_exporter/nightly-repair.prom"   # as the command's --metrics-file""",
    settings=None,
)
_GROUP_NAMES: Final = tuple(command.name for command in JOBS.commands)
