"""Worker processes of a command, with workers that only wait: crashes, signals, and the death of the parent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.patience import PATIENCE_SECONDS

PROGRAM = """
import asyncio, os, signal, sys
from datetime import timedelta
from mailmend.admin.frame import supervision
from mailmend.admin.frame.event_loop import run_async, stop_signal
from mailmend.admin.frame.workers import Workers
from mailmend.repair.clock import SystemClock

async def waits(link):
    with stop_signal() as stop:
        link.ready()
        os.write(1, f"{link.number} {os.getpid()}\\n".encode())
        await stop.wait()
    return link.number

def fails(link):
    sys.exit(4)

def work(link):
    return fails(link) if sys.argv[1] == "fails" else run_async(waits(link))

def nothing():
    pass

def has_no_process_left(forks=[0], fork=os.fork):
    forks[0] += 1
    if forks[0] == 3:
        raise BlockingIOError(11, "no process is left")
    return fork()

if sys.argv[1] == "is signalled":
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
if sys.argv[1] == "lacks processes":
    supervision.FIRST_PAUSE = timedelta(milliseconds=10)
    os.fork = has_no_process_left
if sys.argv[1] == "has none":
    os.fork = has_no_process_left
    os.fork.__defaults__[0][0] = 2
if sys.argv[1] == "reads wrong":
    nothing = lambda: 1 // 0

workers = Workers(count=2, work=work, clock=SystemClock(), reload=nothing, stopped=lambda: None)
code = workers.run()
os.write(1, f"results {sorted(workers.results)}\\n".encode())
sys.exit(code)
"""

Parent = subprocess.Popen[str]


@pytest.fixture
def parent(request: pytest.FixtureRequest) -> Iterator[Parent]:
    what = getattr(request, "param", "waits")
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, what], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
    yield process
    process.kill()
    process.communicate()


def began(parent: Parent) -> tuple[int, int]:
    """The number and the process id of the next worker that serves."""
    assert parent.stdout
    number, pid = parent.stdout.readline().split()
    return int(number), int(pid)


def test_a_killed_worker_begins_again_and_sigterm_ends_all(parent: Parent) -> None:
    """A worker that is signalled too, as service managers do, takes that for the same order."""
    workers = dict(began(parent) for _ in range(2))
    os.kill(workers[1], signal.SIGKILL)
    number, again = began(parent)

    parent.terminate()
    for pid in (again, workers[2]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    said, _ = parent.communicate(timeout=PATIENCE_SECONDS)

    assert (number, again != workers[1]) == (1, True)
    assert (parent.returncode, said) == (0, "results [1, 2]\n")


def test_workers_end_where_the_parent_is_killed(parent: Parent) -> None:
    """Their stdout is at its end once both are gone."""
    for _ in range(2):
        began(parent)
    parent.kill()
    said, _ = parent.communicate(timeout=PATIENCE_SECONDS)
    assert said == ""


@pytest.mark.parametrize("parent", ["lacks processes"], indirect=True)
def test_a_system_that_has_no_process_left_for_a_while_costs_no_other_worker(parent: Parent) -> None:
    workers = dict(began(parent) for _ in range(2))
    os.kill(workers[1], signal.SIGKILL)
    number, _ = began(parent)
    parent.terminate()
    said, _ = parent.communicate(timeout=PATIENCE_SECONDS)
    assert (number, parent.returncode, said) == (1, 0, "results [1, 2]\n")


@pytest.mark.parametrize("parent", ["reads wrong"], indirect=True)
def test_a_fault_where_the_parent_reads_its_settings_again_costs_no_worker(parent: Parent) -> None:
    workers = dict(began(parent) for _ in range(2))
    parent.send_signal(signal.SIGHUP)
    os.kill(workers[1], signal.SIGKILL)
    number, _ = began(parent)
    parent.terminate()
    said, _ = parent.communicate(timeout=PATIENCE_SECONDS)
    assert (number, parent.returncode, said) == (1, 0, "results [1, 2]\n")


def ended(what: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, what],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("what", "code"), [("fails", 4), ("has none", 3), ("is signalled", 130)])
def test_a_worker_that_cannot_begin_ends_the_command_with_its_exit_code(what: str, code: int) -> None:
    """A signal that comes between the fork and the work interrupts it, as it does any command."""
    command = ended(what)
    assert (command.returncode, command.stdout) == (code, "results []\n")
    assert "Traceback" not in command.stderr
