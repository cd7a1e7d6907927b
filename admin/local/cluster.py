"""Cassandra on this machine: one to three nodes on its loopback addresses.

What the nodes have in common (release, ports, heap) is written beside their data at the first start, so that a later
start needs no settings.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from admin.local import layout as layouts
from admin.local import native_protocol
from admin.local.cassandra_config import asks_passwords
from admin.local.cassandra_node import CassandraNode
from admin.local.cassandra_settings import (
    LOCAL_DC,
    NATIVE_PORT_DEFAULT,
    ClusterRequest,
    ClusterSettings,
    first_settings,
    hosts_of,
    later_settings,
)
from admin.local.jars import JarStore
from admin.local.layout import Layout
from admin.local.ports import free_port
from admin.local.server import LocalServer, started_together
from admin.local.server_files import locked, read_json, write_json
from admin.local.server_kind import Machine, ServerState
from model.errors import LocalServerError, WrongUse
from model.ports import Progress, Silent

READY_SECONDS_MAX: Final = 240.0
TOGETHER_SECONDS_MAX: Final = 120.0
TOGETHER_POLL_SECONDS: Final = 0.2


class ClusterState(Enum):
    """The state of all nodes together."""

    UP = "up"
    PARTLY = "partly"
    DOWN = "down"

    @classmethod
    def of(cls, states: set[ServerState]) -> "ClusterState":
        """Up when every server answers, down when no process runs, partly in between."""
        if states == {ServerState.UP}:
            return cls.UP
        return cls.PARTLY if states & {ServerState.UP, ServerState.SILENT} else cls.DOWN


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: its address, its state, its log."""

    number: int
    host: str
    port: int
    state: ServerState
    pid: int | None
    log: Path


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """All nodes of a local cluster; `settings` is None where there is none."""

    folder: Path
    settings: ClusterSettings | None
    nodes: tuple[NodeStatus, ...]

    @property
    def state(self) -> ClusterState:
        return ClusterState.of({node.state for node in self.nodes})

    def as_json(self) -> dict[str, Any]:
        """The names are a contract with scripts."""
        return {
            "state": self.state.value,
            "version": self.settings.release.version if self.settings else None,
            "local_dc": LOCAL_DC,
            "folder": str(self.folder),
            "heap_mib": self.settings.heap_mib if self.settings else None,
            "nodes": [{**asdict(node), "state": node.state.value, "log": str(node.log)} for node in self.nodes],
        }


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """One to three Cassandra nodes on the loopback addresses of this machine."""

    layout: Layout
    store: JarStore
    machine: Machine = field(repr=False)
    ready_seconds_max: float = READY_SECONDS_MAX

    @property
    def settings(self) -> ClusterSettings | None:
        """The settings written beside the data; None where there is no cluster.

        Raises:
            LocalServerError: the file is there and is not ours.
        """
        return read_json(self.layout.state, lambda document: ClusterSettings.from_json(document["settings"]))

    @property
    def nodes(self) -> tuple[LocalServer, ...]:
        settings = self.settings
        return self._nodes_of(settings) if settings else ()

    def up(self, request: ClusterRequest) -> ClusterStatus:
        """Start every node that does not run, one after the other, and wait until all of them answer.

        Raises:
            WrongUse: the request does not fit the cluster that runs there, or its data.
            JavaMissing: no Java of a version that serves.
            LocalServerError: a node did not start; those that this call started are stopped again.
        """
        with locked(self.layout.lock):
            nodes = self._nodes_of(self._planned(request))
            with started_together(nodes):
                for node in nodes:
                    node.up()
                self._wait_together()
        return self.status()

    def start(self, number: int) -> None:
        """Start one node of a cluster that was up before, and wait until it answers."""
        self._node(number).up()
        self._wait_together()

    def down(self) -> ClusterStatus:
        """Stop all nodes at the same time; each drains first."""
        with locked(self.layout.lock):
            for node in self.nodes:
                node.ask_to_end()
            for node in reversed(self.nodes):
                node.down()
        return self.status()

    def stop(self, number: int) -> None:
        self._node(number).down()

    def kill(self, number: int) -> None:
        self._node(number).kill()

    def status(self) -> ClusterStatus:
        return ClusterStatus(self.layout.root, self.settings, tuple(map(_status_of, self.nodes)))

    def clean(self) -> bool:
        """Remove all data of a stopped cluster; False when there was nothing to remove.

        The nodes' folders and the settings, nothing else: --dir may name a folder that holds other things too.

        Raises:
            UnsafeRequest: a node of it runs.
        """
        with locked(self.layout.lock):
            nodes, existed = self.nodes, self.layout.state.exists()
            self.refuse_running()
            for node in nodes:
                node.clean()
            self.layout.state.unlink(missing_ok=True)
            return existed

    def refuse_running(self) -> None:
        """A guard for the removal of its data.

        Raises:
            UnsafeRequest: a node runs.
        """
        for node in self.nodes:
            node.refuse_running()

    def _planned(self, request: ClusterRequest) -> ClusterSettings:
        """Write down the settings for the start; a running cluster keeps its own."""
        known = self.settings
        if known is None:
            hosts = hosts_of(1 if request.nodes is None else request.nodes)
            native = request.native_port or NATIVE_PORT_DEFAULT
            settings = first_settings(request, free_port(hosts, besides={native}))
        else:
            settings = later_settings(known, request)
            if settings != known and any(node.is_running for node in self.nodes):
                raise WrongUse(
                    "the local cluster runs already, with other settings",
                    mend="See them with: mailmend local status, or stop it first: mailmend local down",
                )
        write_json(self.layout.state, {"settings": settings.as_json()})
        return settings

    def _wait_together(self) -> None:
        """Wait until every node reaches all others; skipped where clients log in, or while a node is down.

        Raises:
            LocalServerError: they did not find each other.
        """
        status, clock = self.status(), self.machine.clock
        settings = status.settings
        if settings is None or settings.nodes == 1 or asks_passwords(settings) or status.state is not ClusterState.UP:
            return
        deadline = clock.monotonic() + TOGETHER_SECONDS_MAX
        while not all(native_protocol.reaches_all(node.host, node.port) for node in status.nodes):
            if clock.monotonic() >= deadline:
                raise LocalServerError(
                    f"the nodes did not find each other within {TOGETHER_SECONDS_MAX:.0f} s",
                    mend=f"Their logs: {', '.join(str(node.log) for node in status.nodes)}",
                )
            clock.sleep(TOGETHER_POLL_SECONDS)

    def _node(self, number: int) -> LocalServer:
        nodes = self.nodes
        if not nodes:
            raise WrongUse("there is no local cluster yet", mend="Start one: mailmend local up")
        if not 1 <= number <= len(nodes):
            raise WrongUse(f"the local cluster has {len(nodes)} node(s), no node {number}")
        return nodes[number - 1]

    def _nodes_of(self, settings: ClusterSettings) -> tuple[LocalServer, ...]:
        return tuple(
            LocalServer(
                CassandraNode(settings, number, self.store),
                self.machine,
                self.layout.node(number).root,
                self.layout.lock,
                fixed_ports=True,
                ready_seconds_max=self.ready_seconds_max,
            )
            for number in range(1, settings.nodes + 1)
        )


def local_cluster(
    folder: Path | None = None, *, environment: Mapping[str, str] | None = None, progress: Progress | None = None
) -> LocalCluster:
    """The local cluster of this user, or the one in a folder of its own.

    Args:
        folder: where its data are; the user's data folder when not given.
        environment: where Java and the XDG folders are looked up; that of this process when not given.
        progress: receives the progress; dropped when not given.
    """
    environment = os.environ if environment is None else environment
    machine = Machine.of_this_user(environment, progress=progress or Silent())
    layout = layouts.default_layout(environment, Path.home()) if folder is None else Layout(folder.absolute())
    return LocalCluster(layout, JarStore(machine.cache / "cassandra", environment, machine.progress), machine)


def running_contact(environment: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], int] | None:
    """Addresses and CQL port of those nodes of this user's local cluster that answer; None when none does."""
    try:
        nodes = local_cluster(environment=environment).status().nodes
    except LocalServerError:
        return None
    up = tuple(node for node in nodes if node.state is ServerState.UP)
    return (tuple(node.host for node in up), up[0].port) if up else None


def _status_of(node: LocalServer) -> NodeStatus:
    kind, status = node.kind, node.status()
    assert isinstance(kind, CassandraNode)
    pid = status.pids[0] if status.pids else None
    return NodeStatus(kind.number, kind.host, kind.settings.native_port, status.state, pid, status.log)
