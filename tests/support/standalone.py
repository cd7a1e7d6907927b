"""A Spark standalone cluster on this machine: one master and two small workers, by Spark's own classes."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

WORKERS = 2
_UP_SECONDS = 120


def spark_home() -> Path:
    """The folder of the Spark that PySpark ships."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """The master's URL, once both workers have joined; all of it ends with the block."""
    port, page = _free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        stack.enter_context(_daemon(folder, "master", "org.apache.spark.deploy.master.Master", where))
        _wait("the master", lambda: _answers(port))
        for number in range(WORKERS):
            size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "512m", "--work-dir", str(folder / "work")]
            worker = [*size, "--webui-port", "0", url]
            stack.enter_context(_daemon(folder, f"worker{number}", "org.apache.spark.deploy.worker.Worker", worker))
        _wait("both workers", lambda: _alive(page) == WORKERS)
        yield url


def _free_ports(number: int) -> list[int]:
    """Ports that nobody listens on, all different: they are held until the last is found."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


@contextmanager
def _daemon(folder: Path, name: str, kind: str, arguments: list[str]) -> Iterator[None]:
    env = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    with (folder / f"{name}.log").open("wb") as log:
        command = [str(spark_home() / "bin" / "spark-class"), kind, *arguments]
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            yield
        finally:
            daemon.terminate()
            daemon.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _alive(page: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
        text: str = answer.read().decode()
    return text.count('"state" : "ALIVE"')


def _wait(what: str, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + _UP_SECONDS
    while time.monotonic() < until:
        with suppress(OSError):
            if ready():
                return
        time.sleep(0.3)
    raise TimeoutError(f"{what} did not come up in {_UP_SECONDS} s")
