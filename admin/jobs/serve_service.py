"""A server that runs declared jobs at their times."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.event_loop import hangup_calls, run_async, stop_signal
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.whole_files import whole_file
from mailmend.admin.jobs.children import PROGRAM, Child, ChildProcess, Say
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.serving import JobServer
from mailmend.admin.jobs.tasks import TaskRunner
from mailmend.admin.jobs.tasks_service import TaskDesk, desk_of
from mailmend.admin.jobs.timers import ScheduledTimers
from mailmend.admin.metrics.metrics import Exposition
from mailmend.repair.log_fields import heard

Face = Callable[[TaskDesk, asyncio.Event], Coroutine[Any, Any, None]]
"""Serves whoever asks at the desk, until the event."""


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


@dataclass(frozen=True, slots=True)
class ServingEnded:
    """The server was asked to stop, and has."""


def serve(request: ServeRequest, caller: Caller) -> ServingEnded:
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
    return ServingEnded()


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
        folder: for a copy of these settings, which nobody else may read: they may hold a password.
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
        profile = ["--profile", self.request.profile] if self.request.profile else []
        return [*PROGRAM, "--config", str(self.settings), *profile, *command, *self.request.typed]
