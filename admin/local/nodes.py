"""One node as a process: its files are written, it is started, waited for, asked to end.

SIGTERM is enough for a clean end: Cassandra's own shutdown hook stops taking clients, tells the other nodes, and
flushes every table ("Reason: DRAIN" in its log), so that the next start has nothing to replay. After kill -9 the commit
log is replayed.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from admin.local import cassandra_yaml, log_lines, ports, processes, readiness
from admin.local.command import node_command
from admin.local.java import Java
from admin.local.layout import Layout, NodeFolders
from admin.local.processes import ProcessId
from admin.local.settings import Settings
from admin.local.status import NodeState
from model.errors import LocalServerError
from model.ports import Clock
from repair.clock import SystemClock

READY_SECONDS_MAX: Final = 240.0
DRAIN_SECONDS_MAX: Final = 60.0
KILL_SECONDS_MAX: Final = 15.0
_POLL_SECONDS: Final = 0.1
_FIRST_ROLE: Final = ("cassandra", "cassandra")


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a local cluster."""

    layout: Layout
    settings: Settings
    number: int
    clock: Clock = field(default_factory=SystemClock)

    @property
    def host(self) -> str:
        """The loopback address of the node."""
        return self.settings.hosts[self.number - 1]

    @property
    def folders(self) -> NodeFolders:
        """Where its files are."""
        return self.layout.node(self.number)

    @property
    def mark(self) -> str:
        """What stands in the command line of this node's process and in no other."""
        return self.folders.yaml.as_uri()

    def state(self, process: ProcessId | None) -> NodeState:
        """How the node is, given the process that was written down for it."""
        if process is None:
            return NodeState.STOPPED
        if not self.runs(process):
            return NodeState.DEAD
        return NodeState.UP if self._answers() else NodeState.SILENT

    def runs(self, process: ProcessId) -> bool:
        """Whether the process that was written down is still this node."""
        return processes.is_ours(process, processes.look(process.pid), self.mark)

    def start(self, java: Java, jars: tuple[Path, ...]) -> ProcessId:
        """Write the node's files and start its process.

        Raises:
            LocalServerError: another program has one of its ports.
        """
        for port in (self.settings.native_port, self.settings.storage_port):
            ports.require_free(self.host, port)
        self._write_files()
        command = node_command(java, jars, self.settings, self.folders)
        return processes.launch(command, self.folders.data, self.folders.console)

    def wait_ready(self, process: ProcessId, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Wait until the node answers CQL.

        Raises:
            LocalServerError: its process ended, or it did not answer in time; the message names its log.
        """
        deadline = self.clock.monotonic() + seconds_max
        while not self._serves():
            if not self.runs(process):
                raise self._failure("ended while it started")
            if self.clock.monotonic() >= deadline:
                raise self._failure(f"did not answer within {seconds_max:.0f} s")
            self.clock.sleep(_POLL_SECONDS)

    def ask_to_end(self, process: ProcessId) -> None:
        """Let the node begin to drain; it ends by itself."""
        processes.ask_to_end(process, self.mark)

    def stop(self, process: ProcessId) -> None:
        """Let the node drain and end; kill it when that takes too long.

        Raises:
            LocalServerError: not even that ended it.
        """
        self.ask_to_end(process)
        if not processes.wait_end(process, self.mark, self.clock, DRAIN_SECONDS_MAX):
            self.kill(process)

    def kill(self, process: ProcessId) -> None:
        """End the node at once, as a crash would.

        Raises:
            LocalServerError: it did not end.
        """
        processes.kill(process, self.mark)
        if not processes.wait_end(process, self.mark, self.clock, KILL_SECONDS_MAX):
            raise LocalServerError(f"process {process.pid} of node {self.number} does not end")

    def _write_files(self) -> None:
        folders = self.folders
        for folder in (folders.conf, folders.logs, folders.data / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        document = cassandra_yaml.yaml_of(self.settings, self.number, folders)
        folders.yaml.write_text(cassandra_yaml.render(document), encoding="utf-8")
        folders.logback.write_text(cassandra_yaml.LOGBACK, encoding="utf-8")
        # The log at hand is this start's own, so an error found in it is this start's too.
        if folders.system_log.exists():
            folders.system_log.replace(folders.logs / "system.log.before")

    def _serves(self) -> bool:
        if not self._answers():
            return False
        if not cassandra_yaml.asks_passwords(self.settings) or self._roles_are_old():
            return True
        tls = cassandra_yaml.demands_tls(self.settings)
        return readiness.logs_in(self.host, self.settings.native_port, *_FIRST_ROLE, tls=tls)

    def _answers(self) -> bool:
        tls = cassandra_yaml.demands_tls(self.settings)
        return readiness.answers(self.host, self.settings.native_port, tls=tls)

    def _roles_are_old(self) -> bool:
        """Whether the node was started before: then its roles exist, and their passwords are not ours to know."""
        return (self.folders.logs / "system.log.before").exists()

    def _failure(self, what: str) -> LocalServerError:
        why = log_lines.last_error(log_lines.tail(self.folders.system_log), log_lines.tail(self.folders.console))
        return LocalServerError(
            f"node {self.number} of the local Cassandra ({self.host}:{self.settings.native_port}) {what}: {why}",
            mend=f"Its logs: {self.folders.system_log} and {self.folders.console}",
        )
