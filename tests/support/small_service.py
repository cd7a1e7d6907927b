"""A server of two processes that is up in the blink of an eye: what runs servers is tested with it, not with RabbitMQ.

Each of the two is a few lines of Python: it notes in a file that it came and that it was let go, and answers on a port.
"""

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mailmend.admin.local.server import HOST, Launch, LocalServer, Machine, Site
from mailmend.model.errors import LocalServerError
from mailmend.repair.clock import SystemClock

_PROGRAM = """
import pathlib, signal, socket, sys
folder, name, port, how = sys.argv[1:]
notes = pathlib.Path(folder, "notes.txt")
def note(what):
    with notes.open("a") as file:
        file.write(f"{name} {what}\\n")
def end(number, frame):
    note("ended")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "deaf" else end)
if how == "broken":
    print("ERROR: out of luck", flush=True)
    sys.exit("consequence")
with socket.create_server(("127.0.0.1", int(port))) as server:
    note("came")
    server.settimeout(300)  # whatever a failing test forgets is gone in the end
    while True:
        visitor, _ = server.accept()
        with visitor:
            visitor.sendall(b"silence" if how == "stuck" else b"ready")
"""


@dataclass(frozen=True, slots=True)
class SmallService:
    """Two processes, a first and a second.

    Attributes:
        how: `well`, or what ails the second one: `broken` ends at once, `stuck` never answers as it should, `deaf` does
            not hear SIGTERM.
        usual: the ports that it takes when they are free.
        fetched: whether its parts can be had.
    """

    how: str = "well"
    usual: Mapping[str, int] | None = None
    fetched: bool = True
    host: str = HOST

    @property
    def name(self) -> str:
        return "small"

    @property
    def title(self) -> str:
        return "Small 1.0"

    @property
    def ports(self) -> Mapping[str, int]:
        return self.usual or {"first": 1, "second": 2}

    def fetch(self, machine: Machine) -> Path:
        if not self.fetched:
            raise LocalServerError("Small 1.0 could not be fetched")
        return machine.cache

    def write_files(self, parts: Path, site: Site) -> None:
        (site.folder / "small.conf").write_text(str(parts), encoding="utf-8")

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:  # noqa: ARG002
        return (self._launch("first", "well", site), self._launch("second", self.how, site))

    def is_ready(self, site: Site) -> bool:
        return self.answers(site)

    def answers(self, site: Site) -> bool:
        return all(_says_ready(port) for port in site.ports.values())

    def contacts(self, site: Site) -> Mapping[str, str]:
        return {"small": f"small://{HOST}:{site.ports['second']}"}

    def log(self, site: Site) -> Path:
        return site.folder / "notes.txt"

    def _launch(self, name: str, how: str, site: Site) -> Launch:
        words = (sys.executable, "-S", "-E", "-c", _PROGRAM, str(site.folder), name, str(site.ports[name]), how)
        return Launch(name, words, f"{site.folder} {name}", {"LANG": "C.UTF-8"})


def _says_ready(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            return connection.recv(10) == b"ready"
    except OSError:
        return False


class HurriedClock(SystemClock):
    """Time runs fifteen times faster for whoever waits by it: half a minute of patience is two seconds."""

    def monotonic(self) -> float:
        return super().monotonic() * 15


def small_run(folder: Path, service: SmallService | None = None) -> LocalServer:
    """One that has not been started yet, in a folder below this one."""
    machine = Machine({}, folder / "cache")
    return LocalServer(service or SmallService(), machine, folder / "small", folder / "lock", usual_ports=False)


def hurried(run: LocalServer) -> LocalServer:
    return replace(run, machine=replace(run.machine, clock=HurriedClock()))


def notes(run: LocalServer) -> list[str]:
    log = run.kind.log(run.site)
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []
