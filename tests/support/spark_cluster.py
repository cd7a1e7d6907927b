"""A Spark of several processes on this machine: a standalone master and its workers, as small as Spark lets them be.

Everything listens to the loopback address, on free ports, and ends with the block. The workers have a Python that has
all the libraries and none of mailmend's own packages, as the machines of a real cluster would.
"""

import os
import re
import signal
import stat
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pyspark

from admin.local.java import SPARK, find_java

HOME = Path(pyspark.__file__).parent
_HOST = "127.0.0.1"
_SECONDS_TO_END = 10
_HEAP = "192m"
_BARE = """#!/bin/sh
# Without `site` no editable install is seen; the libraries are named instead.
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}"
exec {python} -S "$@"
"""


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """Where the master listens, and the Python of the workers."""

    master: str
    python: Path


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A master and so many workers with one core and room for one small executor each."""
    environment = small_environment()
    master = _service(environment, "master.Master", "--port", "0", until=r"Starting Spark master at (spark://\S+)")
    with master as url, _workers(workers, environment, url, folder):
        yield SparkCluster(url, bare_python(folder))


@contextmanager
def _workers(number: int, environment: Mapping[str, str], url: str, folder: Path) -> Iterator[None]:
    if number == 0:
        yield
        return
    arguments = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"worker{number}"), url)
    worker = _service(environment, "worker.Worker", *arguments, until=r"Successfully registered with master (\S+)")
    with worker, _workers(number - 1, environment, url, folder):
        yield


def small_environment() -> dict[str, str]:
    """The environment of Spark's own scripts and services: this Java, this Spark, this machine only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "MAILMEND", "SPARK"))}
    java = str(find_java(SPARK, os.environ).home)
    return kept | {"JAVA_HOME": java, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": _HOST}


def bare_python(folder: Path) -> Path:
    """A Python that imports every library of this one, but nothing of this checkout."""
    file = folder / "python"
    file.write_text(_BARE.format(libraries=sysconfig.get_path("purelib"), python=sys.executable))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@contextmanager
def _service(environment: Mapping[str, str], name: str, *arguments: str, until: str) -> Iterator[str]:
    """One of Spark's services, from the moment when it says that it is ready; what it then said of itself."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]  # becomes the service itself
    service = subprocess.Popen(
        [*command, "--host", _HOST, "--webui-port", "0", *arguments],
        env={**environment, "SPARK_DAEMON_MEMORY": _HEAP},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert service.stderr is not None
    with service.stderr as said:
        found = _found(iter(said.readline, ""), re.compile(until).search, name)
        listener = Thread(target=deque, args=(said, 0))  # a full pipe would stop the service
        listener.start()
        try:
            yield found
        finally:
            _end(service)
            listener.join()


def _found(lines: Iterator[str], search: Callable[[str], "re.Match[str] | None"], name: str) -> str:
    heard = []
    for line in lines:
        if match := search(line):
            return match[1]
        heard.append(line)
    raise AssertionError(f"{name} did not start: {''.join(heard[-20:])}")


def _end(service: "subprocess.Popen[str]") -> None:
    service.send_signal(signal.SIGTERM)
    try:
        service.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()
