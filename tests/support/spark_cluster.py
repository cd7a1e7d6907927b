"""A Spark cluster on this machine: a master and workers with folders, and where root asks also users, of their own."""

import getpass
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pyspark

from mailmend.admin.local.jars import SPARK, find_java

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
    """Where the master listens, the Python of the workers, the folder of all their files, and whose they are."""

    master: str
    python: Path
    folder: Path
    users: tuple[str, ...]


@contextmanager
def spark_cluster(*users: str) -> Iterator[SparkCluster]:
    """A worker for each user, who can be another one where this one is root, and they can run Spark's Python."""
    with TemporaryDirectory(prefix="mailmend-spark-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        python, users = _python_for(folder, users)
        environment = small_environment()
        master = _service(environment, "master.Master", "--port", "0", until=r"Starting Spark master at (spark://\S+)")
        with master as url, _workers(users, environment, url, folder):
            yield SparkCluster(url, python, folder, users)


def _python_for(folder: Path, users: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    usual = (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    for program in usual if os.geteuid() == 0 else ():
        python = bare_python(folder, program)
        command = [str(python), "-c", "import cassandra, pyspark, tenacity"]
        ran = (subprocess.run(command, **_as(user), capture_output=True, check=False) for user in users)
        if Path(program).exists() and not any(one.returncode for one in ran):
            return python, users
    return bare_python(folder), tuple(getpass.getuser() for _ in users)


def _as(user: str) -> dict[str, Any]:
    if user in {"", getpass.getuser()}:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": ()}


@contextmanager
def _workers(users: tuple[str, ...], environment: Mapping[str, str], url: str, folder: Path) -> Iterator[None]:
    if not users:
        yield
        return
    own = folder / f"worker{len(users)}"
    own.mkdir()
    shutil.chown(own, users[0])
    arguments = ("--cores", "1", "--memory", "600m", "--work-dir", str(own / "work"), url)
    where = {**environment, "SPARK_LOCAL_DIRS": str(own / "local"), "HOME": str(own)}
    until = r"Successfully registered with master (\S+)"
    worker = _service(where, "worker.Worker", *arguments, until=until, user=users[0])
    with worker, _workers(users[1:], environment, url, folder):
        yield


def small_environment() -> dict[str, str]:
    """The environment of Spark's own scripts and services: this Java, this Spark, this machine only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "MAILMEND", "SPARK"))}
    java = str(find_java(SPARK, os.environ).home)
    return kept | {"JAVA_HOME": java, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": _HOST}


def bare_python(folder: Path, program: str = sys.executable) -> Path:
    file = folder / "python"
    file.write_text(_BARE.format(libraries=_libraries_in(folder), python=program))
    file.chmod(0o755)
    return file


def _libraries_in(folder: Path) -> Path:
    """A folder of the libraries without mailmend, which an environment may have installed as a wheel."""
    libraries = folder / "libraries"
    if not libraries.exists():
        libraries.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith("mailmend"):
                (libraries / entry.name).symlink_to(entry)
    return libraries


@contextmanager
def _service(environment: Mapping[str, str], name: str, *arguments: str, until: str, user: str = "") -> Iterator[str]:
    """One of Spark's services, from the moment when it says that it is ready; what it then said of itself."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]  # becomes the service itself
    service = subprocess.Popen(
        [*command, "--host", _HOST, "--webui-port", "0", *arguments],
        env={**environment, "SPARK_DAEMON_MEMORY": _HEAP},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=environment.get("HOME"),
        text=True,
        **_as(user),
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
