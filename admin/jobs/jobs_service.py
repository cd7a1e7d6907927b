"""Declared jobs: when each runs and how its runs ended, a run of one now, pauses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from mailmend.admin.frame.caller import Caller, ignore
from mailmend.admin.frame.cluster import open_cluster, this_clock
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.jobs.declaration import Job, Missed
from mailmend.admin.jobs.schedule import (
    LATE,
    Turn,
    ends_at,
    is_open,
    missed_turn,
    next_turns,
    turn_meant,
    window_ends_at,
    window_opens_at,
)
from mailmend.admin.jobs.telling import is_wanted, tell_all
from mailmend.admin.jobs.units import RENDERED, UnitPlace
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.errors import INTERRUPTED, CannotReach, ExitCode, MailmendError, UnsafeRequest
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from mailmend.repair.ledger.jobs import BY_SOMEBODY, JobPause, JobRun, JobRuns
from mailmend.repair.ledger.run_limits import TO_END, RunLimit, RunLimits
from mailmend.repair.ledger.runs import Run, RunState

PAGE: Final = "scheduled-repair-failed"
"""The runbook's page for a run that needs a person."""

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
    """A job as it stands.

    Attributes:
        turns: its next runs.
        open_now: whether its window is open.
        window_changes_at: when it closes or opens; None where there is none.
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
        return ExitCode.CANNOT_REACH if self.unread else ExitCode.FINE


def list_jobs(connection: ConnectionSettings, jobs: Sequence[Job]) -> JobsResult:
    """What is declared, and as far as the ledger can be read what became of it."""
    now = instant_of(this_clock().micros())
    try:
        with open_cluster(connection) as opened:
            runs = opened.existing_job_runs()
            kept = {
                job.name: (runs.newest(job.name), runs.pause_of(job.name)) if runs else (None, None) for job in jobs
            }
    except CannotReach as error:
        return JobsResult([status_of(job, now, known=False) for job in jobs], error.what)
    return JobsResult([status_of(job, now, *kept[job.name]) for job in jobs])


def status_of(
    job: Job, now: datetime, last: JobRun | None = None, pause: JobPause | None = None, *, known: bool = True
) -> JobStatus:
    missed = missed_turn(job, last.started_at if last else None, now)
    open_now = is_open(job, now)
    if not known:
        state = JobState.UNKNOWN
    elif last and last.state is RunState.RUNNING:
        state = JobState.RUNNING
    elif pause:
        state = JobState.PAUSED
    else:
        state = JobState.MISSED if missed else JobState.WAITING
    changes_at = window_ends_at(job, now) if open_now else window_opens_at(job, now)
    return JobStatus(job, state, next_turns(job, now, TURNS), open_now, changes_at, last, pause, missed)


class Worked(NamedTuple):
    """How a command ended: its exit code, and whether its time was over."""

    exit_code: int
    time_over: bool = False


@dataclass(frozen=True, slots=True)
class JobCommand:
    """The command of a job.

    Attributes:
        work: runs the command: (seconds after which it is ended, id of the run, whether it is to end now).
        unbegun: called with the exit code of a run that could not begin.
    """

    job: Job
    work: Callable[[float, UUID, Callable[[], bool]], Worked]
    unbegun: Callable[[int], None] = ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunRequest:
    """A run of a job.

    Attributes:
        scheduled: whether a scheduler starts it: it then waits for its jitter, and not being let begin is no failure.
        anyway: whether it runs even where the job is paused, or its window closed.
    """

    connection: ConnectionSettings
    command: JobCommand
    scheduled: bool = False
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class JobEnded:
    """How a run of a job ended; `skipped` says why there was none, or is ""."""

    job: Job
    exit: int
    run: JobRun | None = None
    skipped: str = ""


def run_job(request: JobRunRequest, caller: Caller) -> JobEnded:
    """Run the job's command in this process, until its own end or that of its time; send messages to those who asked.

    Raises:
        UnsafeRequest: the job is paused, or its window closed, and a person started it.
        LeaseHeld: it runs already.
    """
    try:
        ended = _run(request, caller)
    except UnsafeRequest:
        raise
    except MailmendError as error:
        request.command.unbegun(int(error.exit_code))
        _tell(request, f"could not begin: {error.what}", None, int(error.exit_code), caller)
        raise
    if ended.run:
        said = f"ended {ended.run.state.value} (exit {ended.exit})"
        _tell(request, ": ".join(filter(None, (said, ended.run.reason))), ended.run, ended.exit, caller)
    return ended


def _run(request: JobRunRequest, caller: Caller) -> JobEnded:
    job = request.command.job
    with open_cluster(request.connection) as opened:
        clock = opened.clock
        runs = opened.job_runs()
        turn = turn_meant(job, _now(clock))
        if request.scheduled and turn.start_at > _now(clock):
            caller.remark(f"Job {job.name!r} begins at {turn.start_at.astimezone(job.zone):%H:%M:%S}.")
            clock.sleep((turn.start_at - _now(clock)).total_seconds())
        hindrance = "" if request.anyway else _hindrance(request, turn, runs.pause_of(job.name), _now(clock))
        if hindrance and request.scheduled:
            return JobEnded(job, ExitCode.FINE, skipped=hindrance)
        if hindrance:
            raise UnsafeRequest(
                f"job {job.name!r} {hindrance}", mend=f"To run it all the same: mailmend jobs run {job.name} --anyway"
            )
        # Repairs have a lease of their own; checks, lags and sweeps have none, and may not run twice at once either.
        with opened.leases().held(job_lease(request.connection.keyspace, job.name), job.command):
            if request.scheduled and not request.anyway and (begun := runs.begin_turn(job.name, turn.due_at)):
                said = f"began already at {begun.begun_at:%Y-%m-%d %H:%M:%S} UTC, by {begun.owner}"
                return JobEnded(job, ExitCode.FINE, skipped=said)
            run = runs.start(job.name, job.command, ends_at(job, _now(clock)))
            worked = Worked(ExitCode.PARTLY_FAILED)
            asked = partial(_is_to_end, runs, run.id)
            try:
                worked = request.command.work((run.ends_by - _now(clock)).total_seconds(), run.id, asked)
            finally:
                run = _finished(runs, run, worked, job, caller)
    return JobEnded(job, worked.exit_code, run)


def job_lease(keyspace: str, job: str) -> str:
    return f"job {keyspace} {job}"


def _tell(request: JobRunRequest, said: str, run: JobRun | None, exit_code: int, caller: Caller) -> None:
    """Tell of a run, or that there was none; `text` is what chats show."""
    job = request.command.job
    keyspace = request.connection.keyspace
    attention = run is None or run.needs_attention
    if not is_wanted(job.tell, attention=attention):
        return
    message = {
        "text": f"mailmend: job {job.name} of keyspace {keyspace} {said}",
        "job": job.name,
        "keyspace": keyspace,
        "command": job.command,
        "run": str(run.id) if run else None,
        "state": run.state.value if run else RunState.FAILED.value,
        "exit_code": exit_code,
        "reason": run.reason if run else said,
        "runbook": PAGE if attention else None,
    }
    for failure in tell_all(job.tell, message, this_clock()):
        caller.remark(f"A message did not arrive: {failure}.")


def _now(clock: Clock) -> datetime:
    return instant_of(clock.micros())


def _hindrance(request: JobRunRequest, turn: Turn, pause: JobPause | None, now: datetime) -> str:
    job = request.command.job
    if pause:
        why = f": {pause.reason}" if pause.reason else ""
        return f"was paused by {pause.owner} at {pause.paused_at:%Y-%m-%d %H:%M} UTC{why}"
    opens_at = None if is_open(job, now) else window_opens_at(job, now)
    if opens_at:
        local = opens_at.astimezone(job.zone)
        return f"may run in its window only, {job.window}; it opens at {local:%Y-%m-%d %H:%M} {job.zone.key}"
    if request.scheduled and job.missed is Missed.SKIP and now > turn.start_at + LATE:
        return 'was due long ago, and a missed run is skipped: missed = "run" makes up for it'
    return ""


def _is_to_end(runs: JobRuns, run: UUID) -> bool:
    try:
        said = RunLimits(runs.tables, runs.clock).newest(run)
    except MailmendError:  # it is asked again
        return False
    return bool(said and said.rows_per_second == TO_END)


def _finished(runs: JobRuns, run: JobRun, worked: Worked, job: Job, caller: Caller) -> JobRun:
    reason = ""
    if worked.exit_code == INTERRUPTED:
        in_time = ends_at(job, run.started_at) < run.started_at + job.longest
        over = "its window ended" if in_time else "its longest duration was over"
        reason = over if worked.time_over else "its job was paused" if _is_to_end(runs, run.id) else BY_SOMEBODY
    ended = run.ended(_now(runs.clock), worked.exit_code, reason)
    try:
        runs.finish(ended)
    except MailmendError as error:
        caller.remark(f"The end of this run could not be recorded: {error.what}.")
    return ended


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Runs of jobs, newest first, each with the repairs that it began."""

    runs: Sequence[tuple[JobRun, Sequence[Run]]]


def history(connection: ConnectionSettings, names: Sequence[str], since: timedelta = KEEP) -> JobHistory:
    with open_cluster(connection) as opened:
        kept = opened.existing_job_runs()
        ledger = opened.existing_ledger(since)
        if kept is None or ledger is None:
            return JobHistory(())
        first = _now(opened.clock) - since
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
        run = runs.newest(job.name) if now else None
        if run is None or run.state is not RunState.RUNNING:
            return JobPaused(job, pause)
        RunLimits(runs.tables, runs.clock).put(run.id, RunLimit(TO_END, owner=runs.owner))
        return JobPaused(job, pause, run.id)


def resume_job(connection: ConnectionSettings, job: Job) -> JobPaused:
    with open_cluster(connection) as opened:
        runs = opened.existing_job_runs()
        return JobPaused(job, runs.resume(job.name) if runs else None)


@dataclass(frozen=True, slots=True)
class InstalledUnits:
    """The files of a scheduler's units, with their texts.

    Attributes:
        folder: where they are to be; None: they are only shown.
    """

    kind: str
    files: Mapping[str, str]
    folder: Path | None = None


def install(jobs: Sequence[Job], kind: str, place: UnitPlace, folder: Path | None) -> InstalledUnits:
    """What the scheduler of that kind needs to run the jobs.

    Raises:
        WrongUse: the folder cannot be written to.
    """
    files = RENDERED[kind](jobs, place)
    if folder:
        for name in files:
            refuse_unwritable(folder / name)
    return InstalledUnits(kind, files, folder)
