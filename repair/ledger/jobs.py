"""What a server of jobs runs, as the ledger keeps it: declared jobs, their pauses, and administrative tasks.

A planned run is begun by one scheduler only. A task is submitted over HTTP to any server, and run
by the leader: the server that takes the request writes the task, the leader writes its status, and
the server that takes a cancellation writes that. Their writes follow each other, and each is
stamped after what is seen, whatever the clocks say. So no write needs a condition, and a killed
server loses nothing that it has acknowledged.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

from mailmend.model.catalog.ledger import ADMIN_TASK, JOB_PAUSE, JOB_RUN, JOB_TURN
from mailmend.model.errors import INTERRUPTED, DoubtfulWrite, ExitCode, MailmendError, Outweighed, WrongUse
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import Level, Put, PutIfAbsent, Read, Remove, Scan
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Row
from mailmend.model.texts import noted, wellformed
from mailmend.repair.ledger.expiring import AHEAD_SECONDS, stamp_after
from mailmend.repair.ledger.runs import RunState

ENDING = timedelta(minutes=5)
"""How long a run may take to end in an orderly way after it was asked to."""


BY_SOMEBODY = "it was interrupted"
"""The reason of a run that was ended early, neither by its time limit nor by a pause of its job."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job.

    Attributes:
        command: the command that ran.
        ends_by: when the scheduler ends it, if it still runs then.
        exit_code: the command's exit code; None while it runs.
        reason: why it was ended early; "" where it was not.
    """

    id: UUID
    job: str
    command: str
    state: RunState
    started_at: datetime
    ends_by: datetime
    ended_at: datetime | None = None
    exit_code: int | None = None
    owner: str = ""
    reason: str = ""

    def at(self, now: datetime) -> "JobRun":
        """The run as of `now`: it counts as INTERRUPTED if it should be over and its end was not recorded."""
        if self.state is not RunState.RUNNING or now <= self.ends_by + ENDING:
            return self
        return replace(self, state=RunState.INTERRUPTED, reason="its end was not recorded: killed, or its ledger lost")

    def ended(self, at: datetime, exit_code: int, reason: str) -> "JobRun":
        return replace(self, state=state_after(exit_code), ended_at=at, exit_code=exit_code, reason=reason)

    @property
    def needs_attention(self) -> bool:
        """Whether a person should look: it failed, found or left drift, or was ended before its time."""
        return self.state is RunState.FAILED or self.exit_code == ExitCode.DRIFT or self.reason == BY_SOMEBODY


@dataclass(frozen=True, slots=True)
class JobPause:
    """Who paused a job, and why."""

    job: str
    paused_at: datetime
    owner: str
    reason: str


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """A planned run that was begun, and who began it."""

    due_at: datetime
    begun_at: datetime
    owner: str


@dataclass(frozen=True, slots=True)
class JobRuns:
    """The runs and pauses of one mail keyspace's jobs.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
        owner: a description of this process, for people.
    """

    tables: Tables
    keyspace: str
    clock: Clock
    owner: str

    def start(self, job: str, command: str, ends_by: datetime) -> JobRun:
        """Record a run before its command begins."""
        started_at = instant_of(self.clock.micros())
        run = JobRun(self.clock.new_uuid(), job, command, RunState.RUNNING, started_at, ends_by, owner=self.owner)
        self._keep(run)
        return run

    def finish(self, ended: JobRun) -> None:
        self._keep(ended)

    def begin_turn(self, job: str, due_at: datetime) -> BegunTurn | None:
        """Take the run that is planned for this time; None where it is ours now, else who has begun it already.

        It stays begun even if its process is then killed: a planned run is run at most once.
        """
        claim = self.clock.new_uuid()
        begun_at = instant_of(self.clock.micros())
        row = JOB_TURN.key_row((self.keyspace, job, due_at))
        put = PutIfAbsent(JOB_TURN, row | {"claim": claim, "owner": noted(self.owner), "begunat": begun_at})
        try:
            answer = self.tables.attempt(put)
            if answer.applied:
                return None
            standing = answer.current
        except DoubtfulWrite:
            seen = self.tables.read(Read(JOB_TURN, (self.keyspace, job, due_at), Level.SERIAL))
            if not seen:
                raise
            standing = seen[0].row
            if standing["claim"] == claim:
                return None
        if not standing:
            return None
        return BegunTurn(due_at, standing["begunat"], standing["owner"])

    def last_begun(self, job: str) -> datetime | None:
        """The planned time of the newest run that a scheduler began; without one the start of the newest run."""
        turns = self.tables.scan(Scan(JOB_TURN, ("dueat",), Level.QUORUM, under=(self.keyspace, job), limit=1))
        newest = next((row["dueat"] for row in turns), None)
        if newest is None and (run := self.newest(job)):
            return run.started_at
        return newest

    def of(self, job: str) -> list[JobRun]:
        """All recorded runs of a job as of now, newest first."""
        now = instant_of(self.clock.micros())
        return [_run_of(seen.row).at(now) for seen in self.tables.read(Read(JOB_RUN, (self.keyspace, job)))]

    def newest(self, job: str) -> JobRun | None:
        return next(self.last(job, 1), None)

    def last(self, job: str, limit: int) -> Iterator[JobRun]:
        """The newest recorded runs of a job, at most `limit`."""
        rows = self.tables.scan(Scan(JOB_RUN, JOB_RUN.names, Level.QUORUM, under=(self.keyspace, job), limit=limit))
        return (_run_of(row).at(instant_of(self.clock.micros())) for row in rows)

    def pause(self, job: str, reason: str) -> JobPause:
        """Keep schedulers from running a job.

        Raises:
            Outweighed: a resumption by a clock more than a day ahead hides the pause: the job is not paused.
        """
        pause = JobPause(job, instant_of(self.clock.micros()), noted(self.owner), noted(reason))
        cells = {"pausedat": pause.paused_at, "owner": pause.owner, "reason": pause.reason}
        row = JOB_PAUSE.key_row((self.keyspace, job)) | cells
        read = Read(JOB_PAUSE, (self.keyspace, job), times=True)
        for seconds in AHEAD_SECONDS:
            at = stamp_after(self.clock.micros() + seconds * MICROS, self.tables.read(read))
            self.tables.write(Put(JOB_PAUSE, row, at=at))
            seen = self.tables.read(read)
            if seen and seen[0].newest == at:
                return pause
        raise Outweighed(f"job {job!r} is not paused: a resumption outweighs it", mend=Outweighed.MEND)

    def resume(self, job: str) -> JobPause | None:
        """End the pause of a job and return it; None where there was none.

        Raises:
            Outweighed: the job is still paused: another host pauses it again and again.
        """
        pause = self.pause_of(job)
        key = (self.keyspace, job)
        for _ in AHEAD_SECONDS:
            seen = self.tables.read(Read(JOB_PAUSE, key, times=True))
            if not seen:
                return pause
            self.tables.write(Remove(JOB_PAUSE, key, at=stamp_after(self.clock.micros(), seen)))
        if self.pause_of(job):
            raise Outweighed(f"job {job!r} is still paused", mend=Outweighed.MEND)
        return pause

    def pause_of(self, job: str) -> JobPause | None:
        seen: Sequence[Any] = self.tables.read(Read(JOB_PAUSE, (self.keyspace, job)))
        if not seen or not seen[0].row:
            return None
        row = seen[0].row
        return JobPause(job, row["pausedat"], row["owner"], row.get("reason") or "")

    def _keep(self, run: JobRun) -> None:
        cells = {
            "command": wellformed(run.command),
            "state": run.state.value,
            "startedat": run.started_at,
            "endsby": run.ends_by,
            "endedat": run.ended_at,
            "exitcode": run.exit_code,
            "owner": noted(run.owner),
            "reason": noted(run.reason),
        }
        self.tables.write(Put(JOB_RUN, JOB_RUN.key_row((self.keyspace, run.job, run.id)) | cells))


def state_after(exit_code: int) -> RunState:
    """The state of a run by its command's exit code; drift that was found or left is no failure."""
    if exit_code == INTERRUPTED:
        return RunState.INTERRUPTED
    if exit_code in (ExitCode.FINE, ExitCode.DRIFT):
        return RunState.DONE
    return RunState.FAILED


def _run_of(row: Row) -> JobRun:
    return JobRun(
        id=row["run"],
        job=row["job"],
        command=row["command"],
        state=RunState(row["state"]),
        started_at=row["startedat"],
        ends_by=row["endsby"],
        ended_at=row.get("endedat"),
        exit_code=row.get("exitcode"),
        owner=row.get("owner") or "",
        reason=row.get("reason") or "",
    )


LISTED_MAX: Final = 1_000
"""The largest number of tasks that are read, the newest ones, to be listed or run."""

OPEN_MAX: Final = 100
"""The largest number of tasks that may wait or be at work."""


class TaskStatus(Enum):
    """The status of a task, in James's words; the last three are final."""

    WAITING = "waiting"
    IN_PROGRESS = "inProgress"
    CANCEL_REQUESTED = "canceledRequested"
    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (TaskStatus.COMPLETED, TaskStatus.CANCELED, TaskStatus.FAILED)


class UnknownTask(WrongUse):
    """The ledger keeps no task of that id (any more)."""


class TooManyTasks(MailmendError):
    """The maximum number of tasks wait, so no more are taken."""


@dataclass(frozen=True, slots=True)
class AdminTask:
    """An administrative task.

    Attributes:
        type: James's name of the task, such as `solve-message-inconsistencies`.
        options: the parameters of the request.
        submitted_by, cancelled_by: the names of the tokens; "" where the server asks for none.
        information: the results so far, with James's names; empty where they were not read.
    """

    id: UUID
    type: str
    options: Mapping[str, Any]
    status: TaskStatus
    submitted_at: datetime
    submitted_from: str
    submitted_by: str = ""
    started_at: datetime | None = None
    executed_on: str | None = None
    ended_at: datetime | None = None
    cancelled_from: str | None = None
    cancelled_by: str | None = None
    information: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdminTasks:
    """The administrative tasks of one mail keyspace.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
        host: the name of this machine, for people.
    """

    tables: Tables
    keyspace: str
    clock: Clock
    host: str

    def submit(self, kind: str, options: Mapping[str, Any], by: str) -> AdminTask:
        """Record a task that is to be run.

        Raises:
            TooManyTasks: `OPEN_MAX` tasks wait or are at work already.
        """
        if len(self.open()) >= OPEN_MAX:
            raise TooManyTasks(f"{OPEN_MAX} tasks wait already", mend="Cancel some, or wait for them.")
        now = instant_of(self.clock.micros())
        task = AdminTask(self.clock.new_uuid(), kind, options, TaskStatus.WAITING, now, self.host, by)
        cells = {"type": kind, "options": json.dumps(dict(options)), "submittedat": now}
        self._put(task.id, **cells, status=task.status.value, submittedfrom=self.host, submittedby=by)
        return task

    def get(self, task: UUID) -> AdminTask:
        """Read a task.

        Raises:
            UnknownTask: the ledger keeps no task of that id (any more).
        """
        unknown = UnknownTask(f"{task} can not be found")
        if task.version != 1:  # ids of tasks have a time; no other can be bound to the column
            raise unknown
        rows = self.tables.read(Read(ADMIN_TASK, (self.keyspace, task)))
        if not rows:
            raise unknown
        found = _task_of(rows[0].row)
        if found is None:
            raise unknown
        return found

    def listed(self, *, whole: bool = True) -> list[AdminTask]:
        """The newest tasks, the newest first; their `information` is read only with `whole`."""
        columns = ADMIN_TASK.names
        if not whole:
            columns = tuple(name for name in columns if name != "information")
        scan = Scan(ADMIN_TASK, columns, Level.QUORUM, under=(self.keyspace,), limit=LISTED_MAX)
        tasks = []
        for row in self.tables.scan(scan):
            task = _task_of(row)
            if task:
                tasks.append(task)
        return tasks

    def open(self) -> list[AdminTask]:
        """The tasks that wait or are at work, the oldest first."""
        return [task for task in reversed(self.listed(whole=False)) if not task.status.is_over]

    def ask_to_cancel(self, task: UUID, by: str) -> None:
        """Record that the task is to be cancelled; nothing happens to a task that is over."""
        if not self.get(task).status.is_over:
            self._put(task, cancelledfrom=self.host, cancelledby=by)

    def start(self, task: UUID) -> None:
        now = instant_of(self.clock.micros())
        self._put(task, status=TaskStatus.IN_PROGRESS.value, startedat=now, executedon=self.host)

    def tell(self, task: UUID, information: Mapping[str, Any]) -> None:
        """Record the task's results so far."""
        self._put(task, information=json.dumps(dict(information)))

    def put_back(self, task: UUID) -> None:
        """Let the task wait again, so that another server runs it."""
        self._put(task, status=TaskStatus.WAITING.value)

    def end(self, task: UUID, status: TaskStatus, information: Mapping[str, Any]) -> None:
        now = instant_of(self.clock.micros())
        self._put(task, status=status.value, endedat=now, information=json.dumps(dict(information)))

    def _put(self, task: UUID, **cells: Any) -> None:
        """Write cells so that they are in force, also where another host's clock is ahead."""
        key = (self.keyspace, task)
        at = stamp_after(self.clock.micros(), self.tables.read(Read(ADMIN_TASK, key, times=True)))
        self.tables.write(Put(ADMIN_TASK, ADMIN_TASK.key_row(key) | cells, at=at))


def _task_of(row: Row) -> AdminTask | None:
    """None where only late cells of a task are left that has expired."""
    if not row.get("type") or not row.get("status"):
        return None
    status = TaskStatus(row["status"])
    if row.get("cancelledfrom") and not status.is_over:
        status = TaskStatus.CANCEL_REQUESTED
    return AdminTask(
        id=row["task"],
        type=row["type"],
        options=json.loads(row["options"]),
        status=status,
        submitted_at=row["submittedat"],
        submitted_from=row["submittedfrom"],
        submitted_by=row.get("submittedby") or "",
        started_at=row.get("startedat"),
        executed_on=row.get("executedon"),
        ended_at=row.get("endedat"),
        cancelled_from=row.get("cancelledfrom"),
        cancelled_by=row.get("cancelledby"),
        information=json.loads(row.get("information") or "{}"),
    )
