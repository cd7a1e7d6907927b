"""`mailmend jobs run`: one run of a job, in this process, and the messages about its end.

Telling changes nothing of the run: a message that fails is a sentence in the log. No redirect is
followed, and no message shows more of the address than its host, for the rest is often a secret.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller, ignore
from mailmend.admin.frame.cluster import open_cluster, this_clock
from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.endings import TimeLimit
from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.options import (
    CONNECTION,
    FILE,
    JOB,
    JOB_RUN,
    LOG,
    METRICS_FILE,
    flag,
    option,
    typed,
)
from mailmend.admin.frame.output import run_name
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.declaration import Job, Missed, Tell, Telling
from mailmend.admin.jobs.jobs import NAME, PAGE, declared_jobs, job_lease, job_named, parsed_command
from mailmend.admin.jobs.schedule import LATE, Turn, ends_at, is_open, turn_meant, window_opens_at
from mailmend.model.errors import INTERRUPTED, CannotReach, ExitCode, MailmendError, UnsafeRequest
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.ports import Clock
from mailmend.repair.http_client import NoAnswer, ask
from mailmend.repair.ledger.jobs import BY_SOMEBODY, JobPause, JobRun, JobRuns
from mailmend.repair.ledger.runs import TO_END, RunLimits, RunState
from mailmend.repair.log_fields import put_log_field
from mailmend.repair.retries import Retries, RetryPolicy

COMMAND_SECONDS: Final = 60
ANSWER_SECONDS: Final = 10
TELLING_SECONDS: Final = 180
"""For how many seconds a message to a web address is tried."""

_POLICY: Final = RetryPolicy(retries=5, wait_seconds_min=1, wait_seconds_max=30)
_LATER: Final = frozenset({408, 425, 429})


def is_wanted(tell: Tell, *, attention: bool) -> bool:
    return bool(tell.command or tell.webhook) and (attention or tell.on is Telling.ALWAYS)


def tell_all(tell: Tell, message: Mapping[str, Any], clock: Clock) -> Iterator[str]:
    """Tell every receiver, and say whom no message reached."""
    text = json.dumps(message)
    for address, send in ((tell.command, _run_command), (tell.webhook, _post)):
        try:
            if address:
                send(address, text, clock)
        except MailmendError as error:
            yield error.what


def _run_command(words: Any, text: str, _: Clock) -> None:
    try:
        ended = subprocess.run(  # noqa: S603 - the person's own command
            list(words), input=text, text=True, timeout=COMMAND_SECONDS, check=False, stdout=subprocess.DEVNULL,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise MailmendError(f"tell_command took longer than {COMMAND_SECONDS} s and was ended") from None
    except OSError as error:
        raise MailmendError(f"tell_command cannot be run: {error.strerror or error}") from error
    if ended.returncode:
        raise MailmendError(f"tell_command ended with {ended.returncode}")


def _post(url: Any, text: str, clock: Clock) -> None:
    deadline = clock.micros() + TELLING_SECONDS * MICROS
    Retries(clock, _POLICY).call(lambda: _posted(str(url), text), deadline)


def _posted(url: str, text: str) -> None:
    host = urlsplit(url).hostname
    headers = {"Content-Type": "application/json"}
    try:
        answer = ask("POST", url, text.encode(), seconds=ANSWER_SECONDS, bytes_max=0, headers=headers)
    except NoAnswer as error:
        raise CannotReach(f"tell_webhook at {host} does not answer: {error.what}") from error
    status = answer.status
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise CannotReach(f"tell_webhook at {host} answers {status}")
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise MailmendError(f"tell_webhook at {host} answers {status}")


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
    """Run the job's command in this process until it ends or its time is over; send messages to those who asked.

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
        hindrance = ""
        if not request.anyway:
            hindrance = _hindrance(request, turn, runs.pause_of(job.name), _now(clock))
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


def _tell(request: JobRunRequest, said: str, run: JobRun | None, exit_code: int, caller: Caller) -> None:
    """Tell of a run, or that there was none; `text` is what chats show."""
    job = request.command.job
    keyspace = request.connection.keyspace
    attention = run is None or run.needs_attention
    if not is_wanted(job.tell, attention=attention):
        return
    run_id = None
    state = RunState.FAILED
    reason = said
    if run:
        run_id = str(run.id)
        state = run.state
        reason = run.reason
    message = {
        "text": f"mailmend: job {job.name} of keyspace {keyspace} {said}",
        "job": job.name,
        "keyspace": keyspace,
        "command": job.command,
        "run": run_id,
        "state": state.value,
        "exit_code": exit_code,
        "reason": reason,
        "runbook": PAGE if attention else None,
    }
    for failure in tell_all(job.tell, message, this_clock()):
        caller.remark(f"A message did not arrive: {failure}.")


def _now(clock: Clock) -> datetime:
    return instant_of(clock.micros())


def _hindrance(request: JobRunRequest, turn: Turn, pause: JobPause | None, now: datetime) -> str:
    job = request.command.job
    if pause:
        said = f"was paused by {pause.owner} at {pause.paused_at:%Y-%m-%d %H:%M} UTC"
        if pause.reason:
            said += f": {pause.reason}"
        return said
    if not is_open(job, now) and (opens_at := window_opens_at(job, now)):
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
        if worked.time_over:
            reason = "its longest duration was over"
            if ends_at(job, run.started_at) < run.started_at + job.longest:
                reason = "its window ended"
        elif _is_to_end(runs, run.id):
            reason = "its job was paused"
        else:
            reason = BY_SOMEBODY
    ended = run.ended(_now(runs.clock), worked.exit_code, reason)
    try:
        runs.finish(ended)
    except MailmendError as error:
        caller.remark(f"The end of this run could not be recorded: {error.what}.")
    return ended


def ended_document(result: JobEnded) -> Document:
    name = result.job.name
    run = result.run
    if result.skipped:
        return Document(exit=result.exit, remarks=(f"Nothing ran: job {name!r} {result.skipped}.",))
    if run and run.reason:
        return Document(
            exit=result.exit,
            remarks=(f"Job {name!r} was ended: {run.reason}. Its next run goes on with what is left.",),
        )
    return Document(exit=result.exit)


def _command(_: dict[str, Any], others: dict[str, Any], context: click.Context) -> JobCommand:
    """The command of the job which is named, with what was typed for it; from here on it is this job's."""
    job = job_named(others.pop("name"), declared_jobs(context))
    file = others.pop("metrics")
    context.meta[JOB] = job.name
    put_log_field("job", job.name)
    more = typed(context, (*CONNECTION.groups["Connection"], *LOG))
    if file:
        more = ["--metrics-file", str(file), *more]
    command = parsed_command(job, context, *more)

    def work(seconds: float, run: UUID, asked: Callable[[], bool]) -> Worked:
        context.meta[JOB_RUN] = run
        limit = TimeLimit(seconds, asked)
        with command:
            exit_code = limit.ending_of(lambda: command.command.invoke(command))
        return Worked(exit_code, limit.time_over)

    file = command.params["metrics_file"]
    if not file:
        return JobCommand(job, work, ignore)
    return JobCommand(job, work, imported("mailmend.admin.metrics.declared:unbegun")(file, *run_name(command)))


RUN: Final = Command(
    name="run",
    summary="Run a job now, in this process.",
    about="""It runs the same command as by hand, with the declared options, limits and time. At the end of its
    window, or of its longest duration, the run is ended in good order, and the next run goes on. Options of the
    connection that a person types override the declaration.

    Two repairs of a keyspace never run at once, nor do two runs of a job, however they are started: the second is
    refused (exit 3), and names the process that is at work.

    Schedulers give --scheduled; mailmend jobs install writes their units.""",
    service="mailmend.admin.jobs.run:run_job",
    present="mailmend.admin.jobs.run:ended_document",
    options=(
        NAME,
        flag(
            "--scheduled",
            "Run it as schedulers do: it waits for its jitter, and where it is paused or its window closed nothing "
            "runs, and the exit is 0.",
        ),
        flag("--anyway", "Run it even if it is paused or its window is closed."),
        option("--metrics-file", str(METRICS_FILE.help), "metrics", type=FILE, metavar="FILE"),
    ),
    shared=(Shared("command", {}, _command), CONNECTION),
    output=(),
    examples="""
        mailmend jobs run nightly-repair
        mailmend jobs run nightly-repair --anyway         by day, though it has a window""",
    exits="as the job's command; 130 its time was over (the next run goes on), or it was interrupted; 2 also where it "
    "is paused or its window closed; 4 also where the ledger cannot be reached.",
)
