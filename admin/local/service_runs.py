"""One server beside Cassandra: up, down, killed, wiped, cleaned; whatever kind it is.

Every change happens under a lock and is written down at once, so that a killed command leaves a state that the next one
understands. Only processes that were started here are ever touched. Reading the status takes no lock.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from admin.local import log_lines, ports, processes
from admin.local.locks import locked
from admin.local.service_state import ServiceState, Started, read_service_state, write_service_state
from admin.local.services import HOST, Launch, Machine, Service, ServiceStatus, Site
from admin.local.status import NodeState
from model.errors import LocalServerError, UnsafeRequest, WrongUse

READY_SECONDS_MAX: Final = 120.0
END_SECONDS_MAX: Final = 30.0
KILL_SECONDS_MAX: Final = 15.0
LOCK_SECONDS_MAX: Final = 1800.0  # the first one may be fetching its parts over a slow line
_POLL_SECONDS: Final = 0.1
_PORT_TAKEN: Final = "End that program; or give up the server's data, and have other ports chosen: mailmend local clean"


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """A server of some kind, in a folder of its own.

    Attributes:
        lock: held while it is changed.
        usual_ports: whether the usual ports are taken at the first start, where they are free.
    """

    service: Service
    machine: Machine
    folder: Path
    lock: Path
    usual_ports: bool = True
    ready_seconds_max: float = READY_SECONDS_MAX

    @property
    def exists(self) -> bool:
        """Whether it was ever started here, and not cleaned away."""
        return self._state_file.exists()

    @property
    def site(self) -> Site:
        """Where it is; without ports before the first start."""
        return Site(self.folder, self._state().ports)

    def up(self) -> ServiceStatus:
        """Start what of it does not run, and wait until it answers; data and ports of an earlier start are kept.

        Raises:
            WrongUse: the folder holds something else.
            LocalServerError: it did not start; what this call started is ended again.
        """
        with self._locked():
            parts = self.service.fetch(self.machine)
            self._plan()
            with self._undone_on_failure():
                self._start(parts)
                self._wait_ready()
        return self.status()

    def down(self) -> ServiceStatus:
        """Let its processes end, the last one first; those that do not are killed."""
        with self._locked():
            for name, started in self._state().last_first:
                self._stop(name, started)
        return self.status()

    def kill(self) -> None:
        """End it as a crash would: nothing is written down, as nobody would.

        Raises:
            LocalServerError: it did not end.
        """
        for _, started in self._state().last_first:
            self._kill(started)

    def wipe(self) -> None:
        """Forget all that it stored; its ports stay.

        Raises:
            UnsafeRequest: it runs.
        """
        with self._locked():
            self.refuse_running()
            kept = ServiceState(self._state().ports)
            shutil.rmtree(self.folder, ignore_errors=True)
            self._write(kept)

    def clean(self) -> bool:
        """Remove it; False when there was nothing to remove.

        Raises:
            UnsafeRequest: it runs.
        """
        with self._locked():
            self.refuse_running()
            existed = self.exists
            if existed:
                shutil.rmtree(self.folder, ignore_errors=True)
            return existed

    def status(self) -> ServiceStatus:
        """How it is now."""
        state = self._state()
        site = Site(self.folder, state.ports)
        pids = tuple(started.process.pid for started in state.processes.values() if _runs(started))
        return ServiceStatus(
            name=self.service.name,
            title=self.service.title,
            state=self._how(state, site, running=len(pids)),
            pids=pids,
            contacts=self.service.contacts(site) if state.ports else {},
            log=self.service.log(site),
        )

    def refuse_running(self) -> None:
        """A guard, before its data are removed.

        Raises:
            UnsafeRequest: it runs.
        """
        if any(map(_runs, self._state().processes.values())):
            raise UnsafeRequest(f"{self.service.title} runs", mend="Stop it first: mailmend local down")

    def _how(self, state: ServiceState, site: Site, *, running: int) -> NodeState:
        if not state.processes:
            return NodeState.STOPPED
        if running < len(state.processes):
            return NodeState.DEAD
        return NodeState.UP if self.service.answers(site) else NodeState.SILENT

    def _plan(self) -> None:
        """Write down the ports at the first start, so that they stay."""
        state = self._state()
        if not state.ports and self.folder.is_dir() and any(self.folder.iterdir()):
            raise WrongUse(f"{self.folder} holds something else", mend="Name another folder with --dir.")
        chosen = _chosen_ports(self.service.ports, state.ports, usual=self.usual_ports)
        self._write(ServiceState(chosen, state.processes))
        self.folder.chmod(0o700)

    def _start(self, parts: Path) -> None:
        site = self.site
        launches = self.service.launches(parts, site, self.machine.environment)
        waiting = [launch for launch in launches if not self._is_running(launch)]
        if waiting == list(launches):
            for port in site.ports.values():
                ports.require_free(HOST, port, mend=_PORT_TAKEN)
        if not waiting:
            return
        self.machine.progress.begin(f"starting {self.service.title}")
        self.service.write_files(parts, site)
        for launch in waiting:
            process = processes.launch(launch.command, self.folder, site.console(launch.name), launch.environment)
            self._write(self._state().with_process(launch.name, Started(process, launch.mark)))

    def _wait_ready(self) -> None:
        clock, site = self.machine.clock, self.site
        began = clock.monotonic()
        while not self.service.answers(site):
            if not all(map(_runs, self._state().processes.values())):
                raise self._failure("ended while it started")
            if clock.monotonic() - began >= self.ready_seconds_max:
                raise self._failure(f"did not answer within {self.ready_seconds_max:.0f} s")
            clock.sleep(_POLL_SECONDS)
        self.machine.progress.end(f"{self.service.title} answers after {clock.monotonic() - began:.1f} s")

    def _stop(self, name: str, started: Started) -> None:
        self.machine.progress.begin(f"stopping {self.service.title} ({name})")
        processes.ask_to_end(started.process, started.mark)
        if not processes.wait_end(started.process, started.mark, self.machine.clock, END_SECONDS_MAX):
            self._kill(started)
        self._write(self._state().without(name))
        self.machine.progress.end(f"{self.service.title} ({name}) stopped")

    def _kill(self, started: Started) -> None:
        processes.kill(started.process, started.mark)
        if not processes.wait_end(started.process, started.mark, self.machine.clock, KILL_SECONDS_MAX):
            raise LocalServerError(f"process {started.process.pid} of {self.service.title} does not end")

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """Whatever ends the block early, Ctrl-C too, the processes that were started in it are ended again."""
        ran = {name for name, started in self._state().processes.items() if _runs(started)}
        try:
            yield
        except BaseException:
            for name, started in self._state().last_first:
                if name not in ran:
                    self._kill(started)
                    self._write(self._state().without(name))
            raise

    def _is_running(self, launch: Launch) -> bool:
        started = self._state().processes.get(launch.name)
        return started is not None and _runs(started)

    def _failure(self, what: str) -> LocalServerError:
        site = self.site
        log = self.service.log(site)
        printed = "\n".join(log_lines.tail(site.console(name)) for name in self._state().processes)
        return LocalServerError(
            f"{self.service.title} {what}: {log_lines.why_ended(log_lines.tail(log), printed)}",
            mend=f"Its logs: {log} and those beside {site.console('*')}",
        )

    @property
    def _state_file(self) -> Path:
        return self.folder / "service.json"

    def _state(self) -> ServiceState:
        return read_service_state(self._state_file)

    def _write(self, state: ServiceState) -> None:
        write_service_state(self._state_file, state)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.lock, self.machine.clock, LOCK_SECONDS_MAX):
            yield


def _runs(started: Started) -> bool:
    return processes.is_ours(started.process, processes.look(started.process.pid), started.mark)


def _chosen_ports(wanted: Mapping[str, int], known: Mapping[str, int], *, usual: bool) -> dict[str, int]:
    """A port for every name: the one that it had, the usual one where it is free, or any that is free."""
    chosen: dict[str, int] = {}
    for name, number in wanted.items():
        if name in known:
            chosen[name] = known[name]
        elif usual and ports.is_free(HOST, number):
            chosen[name] = number
        else:
            chosen[name] = ports.free_port([HOST], besides=chosen.values())
    return chosen
