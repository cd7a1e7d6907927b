"""`mailmend local`: bring a cluster on this machine up, take it down, say how it is, remove what is left of it.

Every change happens under the cluster's lock and is written down at once, so that a killed command leaves a state that
the next one understands. Reading the status takes no lock.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from admin.local import layout as layouts
from admin.local import readiness
from admin.local.cassandra_yaml import asks_passwords
from admin.local.jars import JarStore
from admin.local.java import find_java
from admin.local.layout import Layout
from admin.local.locks import locked
from admin.local.nodes import READY_SECONDS_MAX, Node
from admin.local.ports import free_port
from admin.local.processes import ProcessId
from admin.local.progress import Progress, Silent
from admin.local.settings import NATIVE_PORT_DEFAULT, Settings, Wishes, first_settings, hosts_of, later_settings
from admin.local.state import State, read_state, write_state
from admin.local.status import ClusterState, ClusterStatus, NodeState, NodeStatus
from model.errors import LocalServerError, UnsafeRequest, WrongUse
from model.ports import Clock
from repair.clock import SystemClock

TOGETHER_SECONDS_MAX: Final = 120.0
TOGETHER_POLL_SECONDS: Final = 0.2
LOCK_SECONDS_MAX: Final = 1800.0  # the first one may be fetching jars over a slow line


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """One to three Cassandra nodes on the loopback addresses of this machine."""

    layout: Layout
    store: JarStore
    environment: Mapping[str, str]
    progress: Progress = field(default_factory=Silent)
    clock: Clock = field(default_factory=SystemClock)
    ready_seconds_max: float = READY_SECONDS_MAX

    def up(self, wishes: Wishes) -> ClusterStatus:
        """Start every node that does not run, one after the other; return when all of them answer.

        Raises:
            WrongUse: the wishes do not fit the cluster that runs there, or its data.
            JavaMissing: no Java of a version that serves.
            LocalServerError: a node did not start; those that this call started are stopped again.
        """
        with self._locked():
            state = self._planned(wishes)
            settings = _settings_of(state)
            with self._undone_on_failure(state):
                for number in range(1, settings.nodes + 1):
                    self._start(number)
                self._wait_together()
        return self.status()

    def start(self, number: int) -> None:
        """Start one node of a cluster that was up before, and wait until it answers."""
        with self._locked():
            self._start(number)
            self._wait_together()

    def down(self) -> ClusterStatus:
        """Let every node drain and end; only processes that this cluster started are touched."""
        with self._locked():
            state = read_state(self.layout.state)
            for number, process in state.processes.items():
                self._node(state, number).ask_to_end(process)  # all of them drain at the same time
            for number in sorted(state.processes, reverse=True):
                self._stop(number)
        return self.status()

    def stop(self, number: int) -> None:
        """Let one node drain and end."""
        with self._locked():
            self._stop(number)

    def kill(self, number: int) -> None:
        """End one node as a crash would: nothing is written down, as nobody would."""
        state = read_state(self.layout.state)
        if process := state.processes.get(number):
            self._node(state, number).kill(process)

    def status(self) -> ClusterStatus:
        """How the cluster is now."""
        state = read_state(self.layout.state)
        if state.settings is None:
            return ClusterStatus(self.layout.root, None, ())
        numbers = range(1, state.settings.nodes + 1)
        return ClusterStatus(self.layout.root, state.settings, tuple(self._node_status(state, n) for n in numbers))

    def clean(self) -> bool:
        """Remove all data of a stopped cluster; False when there was nothing to remove.

        Raises:
            UnsafeRequest: a node of it runs.
        """
        with self._locked():
            state = read_state(self.layout.state)
            if running := self._running(state):
                raise UnsafeRequest(
                    f"node(s) {', '.join(map(str, sorted(running)))} of the local cluster run",
                    mend="Stop them first: mailmend local down",
                )
            if state.settings is None:
                return False
            # The nodes' folders and the state, nothing else: --dir may name a folder that holds other things too.
            for number in range(1, state.settings.nodes + 1):
                shutil.rmtree(self.layout.node(number).root, ignore_errors=True)
            self.layout.state.unlink()
            return True

    def _planned(self, wishes: Wishes) -> State:
        """The state to reach, written down; a cluster that runs is not changed behind its clients' backs."""
        state = read_state(self.layout.state)
        if state.settings is None:
            hosts = hosts_of(1 if wishes.nodes is None else wishes.nodes)
            native = wishes.native_port or NATIVE_PORT_DEFAULT
            state = State(first_settings(wishes, free_port(hosts, besides={native})))
        else:
            wanted = later_settings(state.settings, wishes)
            if wanted != state.settings and self._running(state):
                raise WrongUse(
                    "the local cluster runs already, with other settings",
                    mend="See them with: mailmend local status, or stop it first: mailmend local down",
                )
            state = State(wanted, state.processes)
        write_state(self.layout.state, state)
        return state

    def _start(self, number: int) -> None:
        state = read_state(self.layout.state)
        node, known = self._node(state, number), state.processes.get(number)
        if known is None or not node.runs(known):
            java = find_java(node.settings.release, self.environment)
            jars = self.store.jars(node.settings.release, java)
            self.progress.begin(f"starting Cassandra {node.settings.release.version} on {node.host}")
            known = node.start(java, jars)
            write_state(self.layout.state, state.with_process(number, known))
        elif node.state(known) is NodeState.UP:
            self.progress.end(f"node {number} runs already, on {node.host}:{node.settings.native_port}")
            return
        began = self.clock.monotonic()
        node.wait_ready(known, self.ready_seconds_max)
        took = self.clock.monotonic() - began
        self.progress.end(f"node {number} answers on {node.host}:{node.settings.native_port} after {took:.1f} s")

    def _wait_together(self) -> None:
        """Wait until each of several nodes reaches all others; not where clients log in, or while a node is away.

        Raises:
            LocalServerError: they did not find each other.
        """
        status = self.status()
        settings = status.settings
        if settings is None or settings.nodes == 1 or asks_passwords(settings) or status.state is not ClusterState.UP:
            return
        deadline = self.clock.monotonic() + TOGETHER_SECONDS_MAX
        while not all(readiness.reaches_all(node.host, node.port) for node in status.nodes):
            if self.clock.monotonic() >= deadline:
                raise LocalServerError(
                    f"the nodes did not find each other within {TOGETHER_SECONDS_MAX:.0f} s",
                    mend=f"Their logs: {', '.join(str(node.log) for node in status.nodes)}",
                )
            self.clock.sleep(TOGETHER_POLL_SECONDS)

    def _stop(self, number: int) -> None:
        state = read_state(self.layout.state)
        process = state.processes.get(number)
        if process is None:
            return
        self.progress.begin(f"stopping node {number}")
        self._node(state, number).stop(process)
        write_state(self.layout.state, state.without(number))
        self.progress.end(f"node {number} stopped")

    @contextmanager
    def _undone_on_failure(self, before: State) -> Iterator[None]:
        """Whatever ends the block early, Ctrl-C too, the nodes that were started in it are stopped again."""
        ran = self._running(before)
        try:
            yield
        except BaseException:
            state = read_state(self.layout.state)
            for number, process in state.processes.items():
                if number not in ran:
                    self._node(state, number).kill(process)
                    state = state.without(number)
            write_state(self.layout.state, state)
            raise

    def _running(self, state: State) -> dict[int, ProcessId]:
        return {
            number: process for number, process in state.processes.items() if self._node(state, number).runs(process)
        }

    def _node(self, state: State, number: int) -> Node:
        settings = _settings_of(state)
        if not 1 <= number <= settings.nodes:
            raise WrongUse(f"the local cluster has {settings.nodes} node(s), no node {number}")
        return Node(self.layout, settings, number, self.clock)

    def _node_status(self, state: State, number: int) -> NodeStatus:
        node, process = self._node(state, number), state.processes.get(number)
        how = node.state(process)
        pid = process.pid if process and how in {NodeState.UP, NodeState.SILENT} else None
        return NodeStatus(number, node.host, node.settings.native_port, how, pid, node.folders.system_log)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.layout.lock, self.clock, LOCK_SECONDS_MAX):
            yield


def local_cluster(
    folder: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LocalCluster:
    """The local cluster of this user, or the one in a folder of its own.

    Args:
        folder: where its data are; the user's data folder when not given.
        environment: where Java and the XDG folders are looked up; that of this process when not given.
        progress: who is told what goes on; nobody when not given.
    """
    environment = os.environ if environment is None else environment
    progress = progress or Silent()
    home = Path.home()
    layout = layouts.default_layout(environment, home) if folder is None else Layout(folder.absolute())
    store = JarStore(layouts.cache_home(environment, home) / "cassandra", environment, progress)
    return LocalCluster(layout, store, environment, progress)


def running_contact(environment: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], int] | None:
    """Addresses and CQL port of the nodes of this user's local cluster that answer; None when none does."""
    try:
        nodes = local_cluster(environment=environment).status().nodes
    except LocalServerError:
        return None
    up = tuple(node for node in nodes if node.state is NodeState.UP)
    return (tuple(node.host for node in up), up[0].port) if up else None


def _settings_of(state: State) -> Settings:
    if state.settings is None:
        raise WrongUse("there is no local cluster yet", mend="Start one: mailmend local up")
    return state.settings
