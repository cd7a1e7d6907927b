"""Processes by more than their number: a process id is reused, so a stale one must not be taken for our server.

A process is ours when its id, the moment it started and its command line all are what was written down.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from model.ports import Clock

_POLL_SECONDS: Final = 0.05
_PROC = Path("/proc")
_THREADS_FIELD: Final = 17  # of /proc/PID/stat, counted from the state, which follows the name in parentheses
_START_TIME_FIELD: Final = 19
_PS_DATE_WORDS: Final = 5


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process as it is written down: its number and when it started, in the words of this system."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as it is now."""

    id: ProcessId
    command: str
    zombie: bool = False


@dataclass(frozen=True, slots=True)
class _Child:
    handle: subprocess.Popen[bytes]
    command: str


# The servers that this very process started: a child has to be waited for, or it stays a zombie.
_children: dict[int, _Child] = {}


def is_ours(wanted: ProcessId, seen: Seen | None, mark: str) -> bool:
    """Whether the process that was written down still runs: same number, same start, and our mark in its command."""
    return seen is not None and not seen.zombie and seen.id == wanted and mark in seen.command


def look(pid: int) -> Seen | None:
    """The process of that number now, if there is one."""
    child = _children.get(pid)
    if child and child.handle.poll() is not None:
        del _children[pid]
        return None
    seen = _look_in_proc(pid) if _PROC.joinpath("self", "stat").exists() else _ask_ps(pid)
    # While a child is being started the system shows no command line for a moment; but we know what we started.
    return replace(seen, command=child.command, zombie=False) if seen and child else seen


def launch(
    command: Sequence[str], folder: Path, console: Path, environment: Mapping[str, str] | None = None
) -> ProcessId:
    """Start a server of its own session, so that no Ctrl-C meant for us reaches it; its output goes to a file.

    Args:
        command: its words.
        folder: where it starts.
        console: the file for its output; overwritten.
        environment: the whole of its environment; ours when not given.
    """
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
    _children[child.pid] = _Child(child, " ".join(command))
    seen = look(child.pid)
    return seen.id if seen else ProcessId(child.pid, "")


def ask_to_end(process: ProcessId, mark: str) -> None:
    """SIGTERM, if it is ours."""
    _send(process, mark, signal.SIGTERM)


def kill(process: ProcessId, mark: str) -> None:
    """SIGKILL, if it is ours."""
    _send(process, mark, signal.SIGKILL)


def wait_end(process: ProcessId, mark: str, clock: Clock, seconds_max: float) -> bool:
    """Wait until the process is gone; False when it still runs after that time."""
    deadline = clock.monotonic() + seconds_max
    while is_ours(process, look(process.pid), mark):
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(_POLL_SECONDS)
    return True


def parse_stat(pid: int, stat: str, command: str) -> Seen:
    """Read /proc/PID/stat: the name may hold blanks and parentheses, so what follows its last one is counted.

    A process whose first thread has ended while others still run looks like a zombie, but it still holds its ports.
    """
    fields = stat.rpartition(")")[2].split()
    ended = fields[0] in {"Z", "X"} and int(fields[_THREADS_FIELD]) <= 1
    return Seen(ProcessId(pid, fields[_START_TIME_FIELD]), command, zombie=ended)


def parse_ps(pid: int, line: str) -> Seen | None:
    """Read `ps -o lstart=,stat=,command=`: five words of date, the state, the command."""
    words = line.strip().split(maxsplit=_PS_DATE_WORDS + 1)
    if len(words) <= _PS_DATE_WORDS:
        return None
    started, state, command = words[:_PS_DATE_WORDS], words[_PS_DATE_WORDS], " ".join(words[_PS_DATE_WORDS + 1 :])
    return Seen(ProcessId(pid, " ".join(started)), command, zombie=state.startswith("Z"))


def _send(process: ProcessId, mark: str, number: signal.Signals) -> None:
    if is_ours(process, look(process.pid), mark):
        os.kill(process.pid, number)


def _look_in_proc(pid: int) -> Seen | None:
    folder = _PROC / str(pid)
    try:
        stat = folder.joinpath("stat").read_text(encoding=sys.getfilesystemencoding(), errors="replace")
        command = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return parse_stat(pid, stat, command)


def _ask_ps(pid: int) -> Seen | None:
    answer = subprocess.run(  # noqa: S603 (fixed words and a number)
        ["ps", "-ww", "-o", "lstart=,stat=,command=", "-p", str(pid)],  # noqa: S607 (where ps is differs)
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return parse_ps(pid, answer.stdout)
