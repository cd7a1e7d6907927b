"""Processes by more than their number: a process id is reused, so a stale one must not be taken for our server.

A process is ours when its id, the moment it started and its command line all are what was written down.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from mailmend.admin.local.folders import read_json
from mailmend.model.ports import Clock

_POLL_SECONDS: Final = 0.05
_SAME_START_SECONDS: Final = 1.0
"""The start is given in ticks since boot and the time of boot: setting the clock moves it a little."""


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process as it is written down.

    Attributes:
        started_at: seconds since 1970.
        mark: words of its command line that no other process has.
    """

    pid: int
    started_at: float
    mark: str

    @property
    def runs(self) -> bool:
        return self._found() is not None

    def ask_to_end(self) -> None:
        if found := self._found():
            found.terminate()

    def kill(self) -> None:
        if found := self._found():
            found.kill()

    def wait_end(self, clock: Clock, seconds_max: float) -> bool:
        """Wait until it has ended; False when it still runs after `seconds_max`."""
        deadline = clock.monotonic() + seconds_max
        while self.runs:
            if clock.monotonic() >= deadline:
                return False
            clock.sleep(_POLL_SECONDS)
        return True

    def _found(self) -> psutil.Process | None:
        child = _children.get(self.pid)
        if child and child.poll() is not None:
            del _children[self.pid]
            return None
        with suppress(psutil.Error):  # gone, a zombie, or another user's
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.started_at) >= _SAME_START_SECONDS:
                return None
            # A child that is being started shows no command line for a moment; but we know what we started.
            if child or self.mark in " ".join(found.cmdline()):
                return found
        return None


# The servers that this very process started: a child has to be waited for, or it stays a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


def this_process() -> StartedProcess:
    own = psutil.Process()
    return StartedProcess(own.pid, own.create_time(), "")


def launch(
    command: Sequence[str], mark: str, folder: Path, console: Path, environment: Mapping[str, str] | None = None
) -> StartedProcess:
    """Start a server in a session of its own, so that Ctrl-C does not reach it; its output goes to a file."""
    with console.open("wb") as output:
        child = subprocess.Popen(  # noqa: S603 (our own command line)
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    _children[child.pid] = child
    try:
        return StartedProcess(child.pid, psutil.Process(child.pid).create_time(), mark)
    except psutil.Error:
        return StartedProcess(child.pid, 0.0, mark)  # it has ended already


RECORD: Final = "server.json"


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server's ports, and its processes in the order of their start; both may be empty."""

    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, StartedProcess] = field(default_factory=dict)

    @property
    def last_first(self) -> tuple[tuple[str, StartedProcess], ...]:
        return tuple(reversed(tuple(self.processes.items())))

    def with_process(self, name: str, process: StartedProcess) -> "ServerRecord":
        return ServerRecord(self.ports, {**self.processes, name: process})

    def without(self, name: str) -> "ServerRecord":
        processes = dict(self.processes)
        processes.pop(name, None)
        return ServerRecord(self.ports, processes)


def read_record(path: Path) -> ServerRecord:
    return read_json(path, _record_of) or ServerRecord()


def _record_of(document: Any) -> ServerRecord:
    processes = {str(name): StartedProcess(**process) for name, process in document["processes"].items()}
    ports = {str(name): int(port) for name, port in document["ports"].items()}
    return ServerRecord(ports, processes)
