"""Commands as processes of their own, each in a session that can be signalled, and that one can see is over."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.checkout import CHECKOUT
from tests.support.commands import CommandLine

MAILMEND: Final = "from mailmend.admin.main import main; main()"
ON_EXECUTORS: Final = (
    f"from mailmend.spark_repair import message_inconsistencies as engine; engine.IN_DRIVER_MAX = 0; {MAILMEND}"
)
"""However few there are, suspects are looked at again and mended by Spark's Python workers."""

SPARK: Final = ("--engine", "spark", "--master", "local[2]")
SECONDS_MAX: Final = 400


def begun(mailmend: CommandLine, program: str, *words: str) -> "subprocess.Popen[str]":
    """The command as that shell would begin it, with Spark's jars of this user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAILMEND_")}
    caches = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env={**kept, **caches, **mailmend.environment, "HOME": str(mailmend.home), "PYTHONPATH": str(CHECKOUT)},
        cwd=mailmend.home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_until(happened: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    """Wait for it, as long as the process is at work."""
    began = time.monotonic()
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < SECONDS_MAX
        time.sleep(0.1)


def java_of(process: "subprocess.Popen[str]") -> int:
    """The id of its Java process."""
    (java,) = (line.split()[0] for line in _listed(process.pid, "pid=,comm=") if line.endswith("java"))
    return int(java)


def all_gone(process: "subprocess.Popen[str]") -> None:
    """Neither the JVM nor a Python worker outlives the command."""
    until = time.monotonic() + 10
    while living := [line for line in _listed(process.pid, "stat=,args=") if not line.startswith("Z")]:
        assert time.monotonic() < until, living
        time.sleep(0.1)


def _listed(session: int, what: str) -> list[str]:
    listed = subprocess.run(["ps", "-o", what, "-g", str(session)], capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()
