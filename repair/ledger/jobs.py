"""Runs of declared jobs, planned runs that were begun, and pauses of jobs, as the ledger keeps them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mailmend.model.catalog.ledger import JOB_PAUSE, JOB_RUN, JOB_TURN
from mailmend.model.errors import INTERRUPTED, DoubtfulWrite, ExitCode, Outweighed
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
