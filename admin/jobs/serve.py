"""`mailmend jobs serve`: a server that begins each job at its times as long as it leads.

One server of a keyspace leads: it holds a lease. After a leader was killed, another server leads
when the lease has expired. A run is begun by `mailmend jobs run NAME --scheduled`, as in every
other scheduler's unit, in a process of its own. That command keeps two runs of a job apart, and a
planned run from being run twice, whichever server leads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import click
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import hangup_calls, run_async, stop_signal
from mailmend.admin.frame.http.access import http_face
from mailmend.admin.frame.http.desk import HealthStatus, PartHealth
from mailmend.admin.frame.options import CONNECTION, LOG, typed
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.settings_file import PROFILE_NAME, read_again, settings_file_of
from mailmend.admin.frame.whole_files import whole_file
from mailmend.admin.jobs.children import PROGRAM, Apart, Child, ChildProcess, Say
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import declared_jobs
from mailmend.admin.jobs.schedule import TimeAfter, Timers, Turn, counts_from, due_after, due_turn
from mailmend.admin.jobs.tasks import TaskDesk, TaskRunner
from mailmend.admin.metrics.metrics import Exposition
from mailmend.mailqueue.concurrency import paused
from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import LeaseHeld, LeaseLost, MailmendError
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from mailmend.repair.ledger.jobs import ENDING, AdminTasks, JobRuns
from mailmend.repair.ledger.leases import TTL_SECONDS, Lease, Leases
from mailmend.repair.log_fields import heard

BEAT: Final = timedelta(seconds=TTL_SECONDS / 4)
"""How often the leader renews the lease, and each server on standby tries to take it."""

_EARLY: Final = timedelta(seconds=1)
"""A look may come this early and count for the lease: the next one may be a whole beat later."""

TASKS_EVERY: Final = timedelta(seconds=5)
"""How often the leader looks for tasks that other servers were asked for."""

_KILLED_SECONDS: Final = 5
"""How long the end of what was killed is waited for."""

_LOG: Final = logging.getLogger("mailmend.jobs")

Begin = Callable[[Job, Say], Awaitable[Child]]


@dataclass(slots=True, kw_only=True)
class JobServer:
    """Runs jobs until it is asked to stop.

    Attributes:
        declared: reads the settings anew, and is safe to call at any time; raises what is wrong with them.
        begin: starts the run of a job that is due.
        tasks: runs what is asked for over HTTP, on this server or another.
        jobs: the last ones that were declared rightly.
        lease: the leader's lease, while this server leads; None while another does.
        unreached: why the ledger could not be used the last time; "" where it could.
    """

    runs: JobRuns
    leases: Leases
    clock: Clock
    timers: Timers
    declared: Callable[[], Sequence[Job]]
    begin: Begin
    tasks: TaskRunner | None = None
    apart: Apart = asyncio.to_thread
    jobs: Sequence[Job] = ()
    lease: Lease | None = None
    unreached: str = ""
    _counts_from: dict[str, datetime] = field(default_factory=dict)
    _working: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _children: dict[str, Child] = field(default_factory=dict)
    _beat_at: float | None = None
    _standing_by: str = ""
    _reload: bool = False
    _closing: bool = False
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def reload(self) -> None:
        """Have the settings read again soon; wrong settings change nothing."""
        self._reload = True
        self.wake()

    def wake(self) -> None:
        """Have the server look for due jobs and waiting tasks at once."""
        self._woken.set()

    @property
    def name(self) -> str:
        return KeyspaceLease.SERVE.of(self.runs.keyspace)

    async def serve(self, stop: asyncio.Event) -> None:
        """Work until asked to stop; what runs then is ended in good order."""
        self.jobs = self.declared()
        _LOG.info("jobs are served", extra={"jobs": [job.name for job in self.jobs]})
        try:
            with self.timers:
                self.timers.set(self._times(), self.wake)
                while not stop.is_set():
                    self._woken.clear()
                    await self.look()
                    await paused(self.clock, TASKS_EVERY if self.tasks else BEAT, stop, self._woken)
        finally:
            await self._close()

    async def look(self) -> None:
        """Begin the runs that are due."""
        if self._reload:
            self._read_again()
        try:
            await self._lead()
            if self.lease:
                for job in self.jobs:
                    await self._begin_due(job)
            # The lease may be lost while the jobs begin.
            if self.lease and self.tasks:
                await self.tasks.look()
            self.unreached = ""
        except MailmendError as error:
            _LOG.warning("the ledger cannot be used", extra={"error": error.what})
            self.unreached = error.what

    @property
    def _at_work(self) -> list[asyncio.Task[None]]:
        at_work = list(self._working.values())
        if self.tasks:
            at_work += self.tasks.working
        return at_work

    def _times(self) -> Mapping[str, TimeAfter]:
        """When jobs are due, by the wall clock. The lease and tasks are looked at by the monotonic clock."""
        return {f"job {job.name}": partial(due_after, job) for job in self.jobs}

    def _now(self) -> datetime:
        return instant_of(self.clock.micros())

    def _read_again(self) -> None:
        self._reload = False
        try:
            self.jobs = self.declared()
        except MailmendError as error:
            _LOG.error("the settings stay as they were", extra={"error": str(error)})
            return
        self.timers.set(self._times(), self.wake)
        _LOG.info("the settings were read again", extra={"jobs": [job.name for job in self.jobs]})

    async def _lead(self) -> None:
        """Take the lease, or renew it, when that is due."""
        now = self.clock.monotonic()
        if self._beat_at is not None and now < self._beat_at:
            return
        self._beat_at = now + (BEAT - _EARLY).total_seconds()
        if self._closing and not self.lease:
            return
        if self.lease and self.lease.lives_until <= now:
            self._lose("the cluster did not answer in time")
        try:
            if self.lease:
                self.lease = await self.apart(self.leases.renew, self.lease)
                return
            self.lease = await self.apart(self.leases.acquire, self.name, "jobs serve")
        except LeaseLost as lost:
            self._lose(lost.what)
        except LeaseHeld as held:
            holder = held.what.split(", since")[0]
            if holder != self._standing_by:
                _LOG.info("this server stands by", extra={"reason": holder})
            self._standing_by = holder
        else:
            self._standing_by = ""
            self._counts_from.clear()
            _LOG.info("this server leads")

    def _lose(self, why: str) -> None:
        self.lease = None
        _LOG.warning("this server leads no longer, and what runs goes on", extra={"reason": why})

    async def _begin_due(self, job: Job) -> None:
        since = self._counts_from.get(job.name)
        if since is None:
            since = counts_from(job, await self.apart(self.runs.last_begun, job.name), self._now())
        turn = due_turn(job, since, self._now())
        if turn is None:
            self._counts_from[job.name] = since
            return
        pause = await self.apart(self.runs.pause_of, job.name)
        self._counts_from[job.name] = turn.due_at
        if pause:
            _LOG.info("a job does not begin: it is paused", extra={"job": job.name, "owner": pause.owner})
        elif job.name in self._working:
            _LOG.warning("a job does not begin: its run before is at work", extra={"job": job.name})
        else:
            self._working[job.name] = asyncio.create_task(self._run(job, turn))

    async def _run(self, job: Job, turn: Turn) -> None:
        _LOG.info("a job begins", extra={"job": job.name, "due_at": turn.due_at.isoformat()})

        def say(line: str) -> None:
            _LOG.info("a job says", extra={"job": job.name, "line": line})

        try:
            child = self._children[job.name] = await self.begin(job, say)
            if self._closing:
                child.stop()
            _LOG.info("a job ended", extra={"job": job.name, "exit": await child.wait()})
        except OSError as error:
            _LOG.error("a job cannot begin", extra={"job": job.name, "error": str(error.strerror)})
        finally:
            self._children.pop(job.name, None)
            del self._working[job.name]
            self.wake()

    async def _close(self) -> None:
        """End what runs, in good order as long as there is patience; lead until then."""
        self._closing = True
        until = self.clock.monotonic() + ENDING.total_seconds()
        if self._working:
            _LOG.info("jobs are ended", extra={"jobs": list(self._working)})
        for child in self._children.values():
            child.stop()
        if self.tasks:
            self.tasks.stop()
        while self._at_work and self.clock.monotonic() < until:
            self._woken.clear()
            with suppress(MailmendError):
                await self._lead()
            await paused(self.clock, BEAT, self._woken)
        for child in self._children.values():
            child.kill()
        if self.tasks:
            self.tasks.kill()
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=_KILLED_SECONDS)
        if self.lease:
            await self.apart(self.leases.release, self.lease)
            self.lease = None


class ScheduledTimers:
    """Timers by the clock of this machine. A time that was slept through wakes once, however often it came.

    The scheduler library keeps the times, and decides nothing: whether a job begins then, the lease and the ledger
    decide, which all servers share. A look too many does no harm, and a late one finds what was due.
    """

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        )

    def set(self, times: Mapping[str, TimeAfter], wake: Callable[[], None]) -> None:
        async def call() -> None:
            wake()  # in the loop: what is no coroutine would be called in a thread

        self._scheduler.remove_all_jobs()
        for name, time_after in times.items():
            self._scheduler.add_job(call, _Times(time_after), id=name)

    def __enter__(self) -> Self:
        self._scheduler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scheduler.shutdown(wait=False)


class _Times(BaseTrigger):  # type: ignore[misc]
    """A trigger of the library by our own rules of time zones, windows and days."""

    def __init__(self, time_after: TimeAfter) -> None:
        self._time_after = time_after

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        return self._time_after(previous_fire_time or now)


Face = Callable[[TaskDesk, asyncio.Event], Coroutine[Any, Any, None]]
"""Serves callers at the desk, until the event."""


class DeclaredJobs(NamedTuple):
    """The jobs that the settings file declares, and its text."""

    jobs: Sequence[Job]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Serve until a signal says otherwise.

    Attributes:
        declared: reads the settings anew; raises what is wrong with them.
        profile: the profile of the settings file; None: none.
        typed: the options of the connection as they were typed, for the commands of jobs.
        face: takes tasks from a network; None: this server takes none.
    """

    connection: ConnectionSettings
    declared: Callable[[], DeclaredJobs]
    profile: str | None = None
    typed: Sequence[str] = ()
    face: Face | None = None


def serve(request: ServeRequest, caller: Caller) -> None:
    """Run jobs until SIGTERM or Ctrl-C; SIGHUP reads the settings again.

    Raises:
        CannotReach: the cluster, at the start; later it is waited for.
    """
    with open_cluster(request.connection) as opened, TemporaryDirectory(prefix="mailmend-serve-") as folder:
        commands = Commands(request, Path(folder))
        runs = opened.job_runs()
        leases = opened.leases()
        tasks = opened.admin_tasks()
        server = JobServer(
            runs=runs,
            leases=leases,
            clock=opened.clock,
            timers=ScheduledTimers(),
            declared=commands.declared,
            begin=commands.begin,
        )
        server.tasks = TaskRunner(
            tasks=tasks,
            leases=leases,
            clock=opened.clock,
            begin=commands.begin_task,
            folder=commands.folder,
            apart=server.apart,
            wake=server.wake,
        )
        exposition = Exposition(opened, lambda: server.jobs)
        caller.remark("Serving until SIGTERM or Ctrl-C.")
        with heard("mailmend.jobs"):
            run_async(_until_stopped(server, request.face, desk_of(server, tasks, exposition.text)))


async def _until_stopped(server: JobServer, face: Face | None, desk: TaskDesk) -> None:
    with stop_signal() as stop, hangup_calls(server.reload):
        async with asyncio.TaskGroup() as together:
            together.create_task(server.serve(stop))
            if face:
                together.create_task(face(desk, stop))


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands that a server begins: with the settings that it has accepted, whatever the file says meanwhile.

    Args:
        folder: for a copy of these settings, which no other user may read: they may hold a
            password.
    """

    request: ServeRequest
    folder: Path

    @property
    def settings(self) -> Path:
        return self.folder / "config.toml"

    def declared(self) -> Sequence[Job]:
        found = self.request.declared()
        with whole_file(self.settings, mode=0o600) as stream:
            stream.write(found.text)
        return found.jobs

    async def begin(self, job: Job, say: Say) -> Child:
        return await ChildProcess.begin(self.words("jobs", "run", job.name, "--scheduled"), say)

    async def begin_task(self, command: Iterable[str], say: Say, printed: bytearray) -> Child:
        """Whatever level of log was typed for the server: so it says how far it is."""
        logged = ("--log-level", "info", "--log-format", "json")
        return await ChildProcess.begin([*self.words(*command), *logged], say, printed)

    def words(self, *command: str) -> list[str]:
        program = [*PROGRAM, "--config", str(self.settings)]
        if self.request.profile:
            program += ("--profile", self.request.profile)
        return [*program, *command, *self.request.typed]


def desk_of(server: JobServer, tasks: AdminTasks, exposition: Callable[[], bytes]) -> TaskDesk:
    health = lambda: job_health(leads=server.lease is not None, unreached=server.unreached)  # noqa: E731
    return TaskDesk(tasks, server.clock, server.wake, health, server.apart, exposition)


def job_health(*, leads: bool, unreached: str) -> Sequence[PartHealth]:
    """`unreached` says why the ledger cannot be used, or is ""."""
    ledger = PartHealth("Ledger", HealthStatus.HEALTHY)
    if unreached:
        ledger = PartHealth("Ledger", HealthStatus.UNHEALTHY, "the cluster does not answer")
    role = "it leads" if leads else "it is on standby"
    return (ledger, PartHealth("Jobs", HealthStatus.HEALTHY, role))


def served_document(_: None) -> Document:
    return Document(remarks=("Stopped on request; what ran has ended.",))


def _declared(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> Callable[[], DeclaredJobs]:  # noqa: ARG001
    def declared() -> DeclaredJobs:
        with read_again(context):
            _, text = settings_file_of(context)
            return DeclaredJobs(list(declared_jobs(context).values()), text)

    return declared


COMMAND_PARTS: Final = (
    Shared("declared", {}, _declared),
    Shared("profile", {}, lambda _own, _others, context: context.find_root().meta.get(PROFILE_NAME)),
    Shared("typed", {}, lambda _own, _others, context: typed(context, (*CONNECTION.groups["Connection"], *LOG))),
)
"""What a server of jobs begins commands with."""

FACE: Final = http_face(
    "--listen",
    "mailmend.admin.jobs.http:JOBS",
    "Listen at this address: James's tasks are taken there over HTTP, as /openapi.json says.",
)


SERVE: Final = Command(
    name="serve",
    summary="Run the jobs at their times, until it is stopped.",
    about="""Each run is `mailmend jobs run NAME --scheduled`, in a process of its own. Several
    servers of a keyspace are safe: one leads, the others stand by; one that was killed is followed
    by another within 75 seconds. A planned run is run once at most, whichever process begins it.

    SIGHUP reads the settings again. If one of them is wrong, all earlier settings stay in force. SIGTERM and Ctrl-C
    end the runs in good order, and then the server; a second signal does not wait for the runs. The server's log and
    the output of its runs are on stderr. A run cannot ask for a password: it comes from a file, a command or the
    environment.

    With --listen the server runs tasks for scripts that know James's webadmin: POST
    /messages?task=SolveInconsistencies, POST /mailboxes?task=..., DELETE /blobs?scope=unreferenced, /tasks. A task is
    recorded in the ledger before it is acknowledged; the leader runs it, tasks of one lease one
    after another. Addresses outside this machine are refused without tokens and TLS. This needs
    mailmend[serve].""",
    service="mailmend.admin.jobs.serve:serve",
    present="mailmend.admin.jobs.serve:served_document",
    shared=(*COMMAND_PARTS, FACE, CONNECTION),
    output=(),
    examples="""
        mailmend jobs serve
        mailmend jobs serve --listen 127.0.0.1:8000
        mailmend jobs serve --listen 0.0.0.0:8443 --tokens-file tokens --listen-tls-cert a.pem --listen-tls-key b.pem
        kill -HUP PID                           after the settings were changed""",
    exits="0 it was asked to stop, and what ran has ended; 2 a declaration is wrong, or the address; 4 the cluster "
    "cannot be reached (at the start; later it is waited for); 130 it was asked twice.",
)
