"""One server on this machine, whatever kind it is: what the kind tells, and up, down, killed, wiped, cleaned.

Every change happens under a lock and is written down at once, so that a killed command leaves a
state that the next one understands. Only processes that were started here are ever touched. Reading
the status takes no lock.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.folders import cache_home, home_of, locked, write_json
from mailmend.admin.local.processes import (
    CHOOSE_ANOTHER,
    RECORD,
    ServerRecord,
    StartedProcess,
    free_port,
    is_free,
    is_taken,
    launch,
    read_record,
    require_free,
    this_process,
)
from mailmend.model.errors import LocalServerError, UnsafeRequest, WrongUse
from mailmend.model.ports import Clock, Progress, Silent
from mailmend.repair.clock import SystemClock

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a server may use of this machine to get its parts.

    Attributes:
        environment: where programs and proxies are looked up.
        cache: the user's cache folder of mailmend: what is fetched once belongs in a folder of it.
    """

    environment: Mapping[str, str] = field(repr=False)
    cache: Path
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def of_this_user(
        cls, environment: Mapping[str, str] | None = None, *, progress: Progress | None = None
    ) -> "Machine":
        """The user's environment; this process's environment when None."""
        if environment is None:
            environment = os.environ
        return cls(environment, cache_home(environment, home_of(environment)), progress or Silent())


@dataclass(frozen=True, slots=True)
class Site:
    """One server's folder, which `clean` removes, and its ports, which stay between starts."""

    folder: Path
    ports: Mapping[str, int]

    def console(self, name: str) -> Path:
        """The file with the output of that process."""
        return self.folder / f"{name}.console.log"


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a server, which has to stay the process that is started: a script must `exec`.

    Attributes:
        name: such as `server`; unique in its server. Its output goes to `Site.console(name)`.
        command: the words; nothing secret, because every user may read them.
        mark: text in the command line of this process, from its start, and of no other process.
        environment: the whole environment of the process.
    """

    name: str
    command: Sequence[str]
    mark: str
    environment: Mapping[str, str] = field(repr=False)


class ServerKind(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str:
        """What a person types after `--with`, and the name of its folder."""

    @property
    def title(self) -> str:
        """Its name and version in messages."""

    @property
    def host(self) -> str:
        """The loopback address on which it listens."""

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that it needs, by name: each with its usual number, taken at the first start if it is free."""

    def fetch(self, machine: Machine) -> Path:
        """Make sure that its parts are on this machine; the folder or file that `launches` needs.

        Fetched once under a lock, moved into place as a whole, used offline afterwards.

        Raises:
            LocalServerError: they cannot be fetched; the message says what to do.
        """

    def write_files(self, parts: Path, site: Site) -> None:
        """Write its configuration into the site's folder, which exists; called before every start."""

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        """Its processes in the order of their start; they are ended in reverse. Pure."""

    def is_ready(self, site: Site) -> bool:
        """Whether it serves after a start; quick, and False rather than an error."""

    def answers(self, site: Site) -> bool:
        """Whether it answers in its own protocol; quick, and False rather than an error."""

    def contacts(self, site: Site) -> Mapping[str, str]:
        """How it is reached, by name, for people and scripts: `{"amqp": "amqp://127.0.0.1:5672"}`; nothing secret."""

    def log(self, site: Site) -> Path:
        """Where to read why it did not start."""


class ServerState(Enum):
    """The state of one server."""

    UP = "up"  # it answers
    SILENT = "silent"  # its processes run and it does not answer: it is starting, or stuck
    DEAD = "dead"  # it was started and a process is gone: killed, or it fell over
    STOPPED = "stopped"  # it was stopped, or never started


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of one server now."""

    name: str
    title: str
    state: ServerState
    pids: tuple[int, ...]
    contacts: Mapping[str, str]
    log: Path


READY_SECONDS_MAX: Final = 120.0
END_SECONDS_MAX: Final = 60.0
KILL_SECONDS_MAX: Final = 15.0
_POLL_SECONDS: Final = 0.1
_PORT_TAKEN: Final = "End that program, or choose another port with --ports NAME=PORT."


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server of some kind, in a folder of its own.

    Attributes:
        lock: held while it is changed.
        usual_ports: whether the usual ports are taken at the first start, where they are free.
        fixed_ports: whether exactly the usual ports are taken, at every start.
    """

    kind: ServerKind
    machine: Machine
    folder: Path
    lock: Path
    usual_ports: bool = True
    fixed_ports: bool = False
    ready_seconds_max: float = READY_SECONDS_MAX

    @property
    def exists(self) -> bool:
        return self._file.exists()

    @property
    def site(self) -> Site:
        """The server's folder and ports; before the first start it has no ports."""
        return Site(self.folder, self.record.ports)

    @property
    def record(self) -> ServerRecord:
        return read_record(self._file)

    @property
    def is_running(self) -> bool:
        return any(process.runs for process in self.record.processes.values())

    def up(self, asked: Mapping[str, int] | None = None) -> ServerStatus:
        """Start the processes that do not run, and wait until it answers; data and ports of an earlier start are kept.

        Args:
            asked: ports by name; the others stay as they were at an earlier start.

        Raises:
            WrongUse: the folder holds something else, or it runs already with other ports.
            LocalServerError: it did not start; what this call started is ended again.
        """
        asked = asked or {}
        with locked(self.lock):
            self._refuse_other_ports(asked)
            status = self.status()
            if status.state is ServerState.UP:
                return status
            parts = self.kind.fetch(self.machine)
            self._plan(asked)
            with self._undone_on_failure():
                self._start(parts)
                self._wait_ready()
        return self.status()

    def taken_ports(self, asked: Mapping[str, int] | None = None) -> dict[str, int]:
        """The ports that it needs now and that another program has, by name; none while it runs.

        A usual port that is taken is not among them: a free one is chosen instead.
        """
        if self.is_running:
            return {}
        needed = {**self.record.ports, **(asked or {})}
        if self.fixed_ports:
            needed = dict(self.kind.ports)
        return {name: port for name, port in needed.items() if is_taken(self.kind.host, port)}

    def _refuse_other_ports(self, asked: Mapping[str, int]) -> None:
        if not self.is_running:
            return
        for name, port in asked.items():
            known = self.record.ports.get(name)
            if known != port:
                raise WrongUse(
                    f"{self.kind.title} runs already, with {known} as its port {name}, not {port}",
                    mend="Stop it first: mailmend local down",
                )

    def ask_to_end(self) -> None:
        for _, process in self.record.last_first:
            process.ask_to_end()

    def down(self) -> ServerStatus:
        """End its processes, the last one first; those that do not end are killed."""
        with locked(self.lock):
            for name, process in self.record.last_first:
                self.machine.progress.stage(f"stopping {self.kind.title} ({name})")
                process.ask_to_end()
                if not process.wait_end(self.machine.clock, END_SECONDS_MAX):
                    self._kill(process)
                self._write(self.record.without(name))
        return self.status()

    def kill(self) -> None:
        """End it as a crash would: the record is not updated."""
        for _, process in self.record.last_first:
            self._kill(process)

    def wipe(self) -> None:
        with locked(self.lock):
            self.refuse_running()
            kept = ServerRecord(self.record.ports)
            shutil.rmtree(self.folder, ignore_errors=True)
            self._write(kept)

    def clean(self) -> bool:
        with locked(self.lock):
            self.refuse_running()
            existed = self.exists
            if existed:
                shutil.rmtree(self.folder, ignore_errors=True)
            return existed

    def status(self) -> ServerStatus:
        record = self.record
        site = Site(self.folder, record.ports)
        pids = tuple(process.pid for process in record.processes.values() if process.runs)
        contacts: Mapping[str, str] = {}
        if record.ports:
            contacts = self.kind.contacts(site)
        return ServerStatus(
            name=self.kind.name,
            title=self.kind.title,
            state=self._state(record, site, running=len(pids)),
            pids=pids,
            contacts=contacts,
            log=self.kind.log(site),
        )

    def refuse_running(self) -> None:
        """Refuse to remove the data of a server that runs.

        Raises:
            UnsafeRequest: it runs.
        """
        if self.is_running:
            raise UnsafeRequest(f"{self.kind.title} runs", mend="Stop it first: mailmend local down")

    def _state(self, record: ServerRecord, site: Site, *, running: int) -> ServerState:
        if not record.processes:
            return ServerState.STOPPED
        if running < len(record.processes):
            return ServerState.DEAD
        if self.kind.answers(site):
            return ServerState.UP
        return ServerState.SILENT

    def _plan(self, asked: Mapping[str, int]) -> None:
        record = self.record
        if not record.ports and self.folder.is_dir() and any(self.folder.iterdir()):
            raise WrongUse(f"{self.folder} holds something else", mend="Name another folder with --dir.")
        if self.fixed_ports:
            chosen = dict(self.kind.ports)
        else:
            chosen = self._chosen_ports({**record.ports, **asked})
        self._write(ServerRecord(chosen, record.processes))
        self.folder.chmod(0o700)

    def _chosen_ports(self, known: Mapping[str, int]) -> dict[str, int]:
        """A port for every name: the known one, the usual one where it is free, or any free one."""
        chosen: dict[str, int] = {}
        for name, number in self.kind.ports.items():
            if name in known:
                chosen[name] = known[name]
                continue
            promised = {*chosen.values(), *known.values()}
            if self.usual_ports and number not in promised and is_free(self.kind.host, number):
                chosen[name] = number
            else:
                chosen[name] = free_port([self.kind.host], besides=promised)
        return chosen

    def _start(self, parts: Path) -> None:
        site = self.site
        processes = self.record.processes
        launches = self.kind.launches(parts, site, environment_of_others(self.machine.environment))
        waiting = [planned for planned in launches if planned.name not in processes or not processes[planned.name].runs]
        if len(waiting) == len(launches):
            mend = _PORT_TAKEN
            if self.fixed_ports:
                mend = CHOOSE_ANOTHER
            for port in site.ports.values():
                require_free(self.kind.host, port, mend=mend)
        if not waiting:
            return
        self.machine.progress.stage(f"starting {self.kind.title}")
        self.kind.write_files(parts, site)
        for planned in waiting:
            process = launch(
                planned.command, planned.mark, self.folder, site.console(planned.name), planned.environment
            )
            self._write(self.record.with_process(planned.name, process))

    def _wait_ready(self) -> None:
        clock = self.machine.clock
        site = self.site
        began = clock.monotonic()
        while not self.kind.is_ready(site):
            if not all(process.runs for process in self.record.processes.values()):
                raise self._failure("ended while it started")
            if clock.monotonic() - began >= self.ready_seconds_max:
                raise self._failure(f"did not answer within {self.ready_seconds_max:.0f} s")
            clock.sleep(_POLL_SECONDS)

    def _kill(self, process: StartedProcess) -> None:
        process.kill()
        if not process.wait_end(self.machine.clock, KILL_SECONDS_MAX):
            raise LocalServerError(f"process {process.pid} of {self.kind.title} does not end")

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """Whatever ends the block early, Ctrl-C too, the processes started in it are ended."""
        ran = {name for name, process in self.record.processes.items() if process.runs}
        try:
            yield
        except BaseException:
            for name, process in self.record.last_first:
                if name not in ran:
                    self._kill(process)
                    self._write(self.record.without(name))
            raise

    def _failure(self, what: str) -> LocalServerError:
        site = self.site
        log = self.kind.log(site)
        printed = "\n".join(tail(site.console(name)) for name in self.record.processes)
        return LocalServerError(
            f"{self.kind.title} {what}: {why_ended(tail(log), printed)}",
            mend=f"Its logs: {log} and the files next to {site.console('*')}",
        )

    @property
    def _file(self) -> Path:
        return self.folder / RECORD

    def _write(self, record: ServerRecord) -> None:
        write_json(self._file, asdict(record))


@contextmanager
def started_together(servers: Sequence[LocalServer]) -> Iterator[None]:
    """Where the block ends with an error or Ctrl-C, end those servers that did not run before it."""
    ran = [server.is_running for server in servers]
    try:
        yield
    except BaseException:
        for server, before in zip(servers, ran, strict=True):
            if not before:
                server.kill()
                server.down()
        raise


_TAIL_BYTES: Final = 1 << 18
_EXCEPTION: Final = re.compile(r"[\w.$]+(Exception|Error): ")
_COMPLAINT: Final = re.compile(r"\bERROR\b|\[error\]|\bError:|\bException\b")


def why_ended(log: str, printed: str) -> str:
    """The last error that Cassandra logged, with its exception; else the first complaint; else the last line printed.

    Of other servers the first complaint, as what follows it is often only its consequence.
    """
    if logged := _logged_by_cassandra(log.splitlines()):
        return logged
    for line in [*printed.splitlines(), *log.splitlines()]:
        if _COMPLAINT.search(line):
            return line.strip()
    for line in reversed(printed.splitlines()):
        if line.strip():
            return line.strip()
    return "it printed nothing"


def tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _logged_by_cassandra(lines: list[str]) -> str | None:
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith("ERROR ["):
            message = lines[number].partition(" - ")[2] or lines[number]
            return " ".join([message.strip(), *filter(_EXCEPTION.match, lines[number + 1 : number + 2])])
    return None


_OWNER: Final = "owner.json"


@contextmanager
def throwaway_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder of mode 700, removed after the block; first removes what killed processes left under that prefix."""
    parent = parent or Path(tempfile.gettempdir())
    sweep_folders(prefix, parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    folder.joinpath(_OWNER).write_text(json.dumps(asdict(this_process())), encoding="utf-8")
    try:
        yield folder
    finally:
        _remove(folder)


def sweep_folders(prefix: str, parent: Path) -> None:
    """End and remove the servers whose owners have ended."""
    for folder in parent.glob(f"{prefix}*"):
        if _is_abandoned(folder):
            _remove(folder)


def _remove(folder: Path) -> None:
    for record in folder.rglob(RECORD):
        for _, process in read_record(record).last_first:
            process.kill()
            process.wait_end(SystemClock(), KILL_SECONDS_MAX)
    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        owner = StartedProcess(**json.loads(folder.joinpath(_OWNER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return False  # being made just now, or not ours
    return not owner.runs
