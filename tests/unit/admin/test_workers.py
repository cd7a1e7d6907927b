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
import asyncio, os, sys
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
    return run_async(waits(link)) if sys.argv[1] == "waits" else fails(link)

def nothing():
    pass

workers = Workers(count=2, work=work, clock=SystemClock(), reload=nothing, stopped=nothing)
code = workers.run()
os.write(1, f"results {sorted(workers.results)}\\n".encode())
sys.exit(code)
"""

Parent = subprocess.Popen[str]


@pytest.fixture
def parent() -> Iterator[Parent]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "waits"], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    )
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


def test_a_worker_that_cannot_begin_ends_the_command_with_its_exit_code() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "fails"],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (4, "results []\n")
