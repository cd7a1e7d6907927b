"""The servers of one local folder: one to three nodes of Cassandra, and the servers that `--with` names.

What the nodes have in common (release, ports, heap) is written next to their data at the first
start, so that a later start needs no settings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from mailmend.admin.frame.settings import parse_port
from mailmend.admin.local import processes
from mailmend.admin.local.cassandra_node import (
    NATIVE_PORT_DEFAULT,
    CassandraNode,
    ClusterRequest,
    ClusterSettings,
    asks_passwords,
    first_settings,
    hosts_of,
    later_settings,
)
from mailmend.admin.local.folders import (
    ClusterFolder,
    cluster_folder,
    home_of,
    locked,
    read_json,
    write_json,
)
from mailmend.admin.local.jars import JarStore
from mailmend.admin.local.processes import free_port
from mailmend.admin.local.pulsar import Pulsar
from mailmend.admin.local.rabbitmq import RabbitMq
from mailmend.admin.local.s3proxy import ObjectStore
from mailmend.admin.local.server import (
    LocalServer,
    Machine,
    ServerKind,
    ServerState,
    ServerStatus,
    started_together,
)
from mailmend.model.errors import LocalServerError, WrongUse
from mailmend.model.ports import Progress
from mailmend.model.texts import is_digits, names_instead

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
        if states.isdisjoint({ServerState.UP, ServerState.SILENT}):
            return cls.DOWN
        return cls.PARTLY


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
    """All nodes of a local cluster; `settings` is None without a cluster."""

    folder: Path
    settings: ClusterSettings | None
    nodes: tuple[NodeStatus, ...]

    @property
    def state(self) -> ClusterState:
        return ClusterState.of({node.state for node in self.nodes})


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """One to three Cassandra nodes on the loopback addresses of this machine."""

    layout: ClusterFolder
    store: JarStore
    machine: Machine = field(repr=False)
    ready_seconds_max: float = READY_SECONDS_MAX

    @property
    def settings(self) -> ClusterSettings | None:
        return read_json(self.layout.state, lambda document: ClusterSettings.from_json(document["settings"]))

    @property
    def nodes(self) -> tuple[LocalServer, ...]:
        settings = self.settings
        if not settings:
            return ()
        return self._nodes_of(settings)

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
                self.wait_together()
        return self.status()

    def plan(self, request: ClusterRequest) -> None:
        """Write down with which settings the nodes are to be started.

        Raises:
            WrongUse: the request does not fit the cluster that runs there, or its data.
        """
        with locked(self.layout.lock):
            self._planned(request)

    def down(self) -> ClusterStatus:
        """Stop all nodes at the same time; each drains first."""
        with locked(self.layout.lock):
            for node in self.nodes:
                node.ask_to_end()
            for node in reversed(self.nodes):
                node.down()
        return self.status()

    def status(self) -> ClusterStatus:
        settings = self.settings
        if not settings:
            return ClusterStatus(self.layout.root, None, ())
        return ClusterStatus(self.layout.root, settings, tuple(map(_status_of, self._nodes_of(settings))))

    def clean(self) -> bool:
        """Remove all data of a stopped cluster; False when there was nothing to remove.

        The nodes' folders and the settings, nothing else: --dir may name a folder that holds other things too.

        Raises:
            UnsafeRequest: a node of it runs.
        """
        with locked(self.layout.lock):
            nodes = self.nodes
            existed = self.layout.state.exists()
            for node in nodes:
                node.refuse_running()
            for node in nodes:
                node.clean()
            self.layout.state.unlink(missing_ok=True)
            return existed

    def _planned(self, request: ClusterRequest) -> ClusterSettings:
        """Write down the settings for the start; a running cluster keeps its own."""
        known = self.settings
        if known is None:
            nodes = 1
            if request.nodes is not None:
                nodes = request.nodes
            native = request.native_port or NATIVE_PORT_DEFAULT
            settings = first_settings(request, free_port(hosts_of(nodes), besides={native}))
        else:
            settings = later_settings(known, request)
            if settings != known and any(node.is_running for node in self.nodes):
                raise WrongUse(
                    "the local cluster runs already, with other settings",
                    mend="See them with: mailmend local status, or stop it first: mailmend local down",
                )
        write_json(self.layout.state, {"settings": settings.as_json()})
        return settings

    def wait_together(self) -> None:
        """Wait until every node reaches all others; skipped where clients log in, or while a node is down."""
        status = self.status()
        clock = self.machine.clock
        settings = status.settings
        if settings is None or settings.nodes == 1 or asks_passwords(settings) or status.state is not ClusterState.UP:
            return
        deadline = clock.monotonic() + TOGETHER_SECONDS_MAX
        while not all(processes.reaches_all(node.host, node.port) for node in status.nodes):
            if clock.monotonic() >= deadline:
                raise LocalServerError(
                    f"the nodes did not find each other within {TOGETHER_SECONDS_MAX:.0f} s",
                    mend=f"Their logs: {', '.join(str(node.log) for node in status.nodes)}",
                )
            clock.sleep(TOGETHER_POLL_SECONDS)

    def _nodes_of(self, settings: ClusterSettings) -> tuple[LocalServer, ...]:
        nodes = []
        for number in range(1, settings.nodes + 1):
            node = LocalServer(
                CassandraNode(settings, number, self.store),
                self.machine,
                self.layout.node(number).root,
                self.layout.lock,
                fixed_ports=True,
                ready_seconds_max=self.ready_seconds_max,
            )
            nodes.append(node)
        return tuple(nodes)


def local_cluster(
    folder: Path | None = None, *, environment: Mapping[str, str] | None = None, progress: Progress | None = None
) -> LocalCluster:
    """The local cluster of this user, or the one in a folder of its own."""
    machine = Machine.of_this_user(environment, progress=progress)
    if folder is None:
        layout = cluster_folder(machine.environment, home_of(machine.environment))
    else:
        layout = ClusterFolder(folder.absolute())
    store = JarStore(machine.cache / "cassandra", machine.environment, machine.progress)
    return LocalCluster(layout, store, machine)


def running_contact(environment: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], int] | None:
    """Addresses and CQL port of those nodes of this user's local cluster that answer; None when none does."""
    try:
        nodes = local_cluster(environment=environment).status().nodes
    except LocalServerError:
        return None
    up = [node for node in nodes if node.state is ServerState.UP]
    if not up:
        return None
    return (tuple(node.host for node in up), up[0].port)


def _status_of(node: LocalServer) -> NodeStatus:
    kind = node.kind
    status = node.status()
    assert isinstance(kind, CassandraNode)
    pid = None
    if status.pids:
        pid = status.pids[0]
    return NodeStatus(kind.number, kind.host, kind.settings.native_port, status.state, pid, status.log)


_KINDS: Final[tuple[ServerKind, ...]] = (RabbitMq(), ObjectStore(), Pulsar())

SERVICES: Final[Mapping[str, ServerKind]] = {kind.name: kind for kind in _KINDS}
"""Every kind of server except Cassandra, by the name that a person types."""


def parse_names(text: str) -> tuple[str, ...]:
    """The names in a text with commas, each once, in the order of `SERVICES`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise WrongUse(f"{text!r} is not a server that can be started: {known_names()}")
    for name in names:
        if name not in SERVICES:
            raise WrongUse(f"{name!r} is not a server that can be started: {known_names()}")
    return tuple(name for name in SERVICES if name in names)


def known_names() -> str:
    return ", ".join(SERVICES)


_OWN_NUMBER: Final = "Give each port a number of its own."

STORAGE_PORT: Final = "storage"
"""The name of the port at which nodes of Cassandra talk to each other."""


def _servers_of_ports() -> dict[str, str]:
    servers = {STORAGE_PORT: "cassandra"}
    for kind in _KINDS:
        servers.update(dict.fromkeys(kind.ports, kind.name))
    return servers


_SERVER_OF_PORT: Final[Mapping[str, str]] = _servers_of_ports()
"""The server of each port, by the port's name; the port for CQL has an option of its own."""


def known_ports() -> str:
    return ", ".join(_SERVER_OF_PORT)


def parse_ports(text: str) -> dict[str, int]:
    """Ports by name: `amqp=5673,s3=9001`.

    Raises:
        WrongUse: no server has a port of that name, or the number is no port, or it is there twice.
    """
    ports = dict[str, int]()
    for item in filter(None, map(str.strip, text.split(","))):
        name, is_there, number = item.partition("=")
        if name not in _SERVER_OF_PORT:
            mend = names_instead(name, _SERVER_OF_PORT)
            raise WrongUse(f"no server has a port {name!r}", mend=mend)
        if not is_there or not is_digits(number):
            problem = f"{item!r} is not the name of a port with its number"
            raise WrongUse(problem, mend=f"Write it like {name}=5673.")
        port = parse_port(int(number))
        if name in ports or port in ports.values():
            raise WrongUse(f"{item!r} repeats a port or its name", mend=_OWN_NUMBER)
        ports[name] = port
    return ports


def require_free_ports(servers: Iterable[LocalServer], asked: Mapping[str, int]) -> None:
    """Check the ports of all servers that are to be started, before any of them is.

    Raises:
        LocalServerError: other programs have some of them; the message names each.
    """
    problems = list[str]()
    options = dict[str, str]()
    for server in servers:
        for name, port in server.taken_ports(_own_ports(server.kind, asked)).items():
            what = f"port {port} on {server.kind.host} is taken by another program"
            problems.append(f"{what} ({server.kind.title}: {name})")
            options[name] = f"--ports {name}=PORT"
            if name == "cql":
                options[name] = "--port PORT"
    if problems:
        mend = f"Choose others with {' '.join(options.values())}, or end those programs."
        raise LocalServerError("; ".join(problems), mend=mend)


def _own_ports(kind: ServerKind, asked: Mapping[str, int]) -> dict[str, int]:
    return {name: port for name, port in asked.items() if name in kind.ports}


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """The cluster's status, and the status of every other server that was ever started there."""

    cluster: ClusterStatus
    services: tuple[ServerStatus, ...] = ()

    @property
    def state(self) -> ClusterState:
        """Up when all that was started and not stopped answers, down when nothing runs, else partly up."""
        started = {service.state for service in self.services} - {ServerState.STOPPED}
        states = {node.state for node in self.cluster.nodes} | started
        together = ClusterState.of(states)
        if together is ClusterState.UP and not self.cluster.nodes:
            return ClusterState.PARTLY
        return together


@dataclass(frozen=True, slots=True)
class LocalServers:
    """Cassandra, and a server of every kind, whether it was started or not."""

    cluster: LocalCluster
    services: Mapping[str, LocalServer]

    def up(
        self,
        request: ClusterRequest,
        names: Sequence[str] = (),
        ports: Mapping[str, int] | None = None,
    ) -> LocalStatus:
        """Start Cassandra and the named servers, after all of their ports were found to be free.

        Args:
            request: what Cassandra is to be.
            names: of the other servers.
            ports: by name, in place of the usual ones.

        Raises:
            WrongUse: a port belongs to a server that is not named.
            LocalServerError: a port is taken, or a server did not start; what this started is stopped.
        """
        ports = ports or {}
        for port in ports:
            server = _SERVER_OF_PORT[port]
            if server not in {"cassandra", *names}:
                problem = f"{port} is a port of {server}, which is not to be started"
                raise WrongUse(problem, mend=f"Name it: --with {server}")
        if request.native_port in ports.values():
            raise WrongUse(f"port {request.native_port} is named twice", mend=_OWN_NUMBER)
        request = replace(request, storage_port=ports.get(STORAGE_PORT))
        wanted = [self.services[name] for name in names]
        self.cluster.plan(request)
        require_free_ports([*self.cluster.nodes, *wanted], ports)
        with started_together(wanted):
            for service in wanted:
                service.up(_own_ports(service.kind, ports))
            self.cluster.up(request)
        return self.status()

    def down(self) -> LocalStatus:
        for service in self.services.values():
            service.down()
        self.cluster.down()
        return self.status()

    def status(self) -> LocalStatus:
        services = [service.status() for service in self.services.values() if service.exists]
        return LocalStatus(self.cluster.status(), tuple(services))

    def clean(self) -> bool:
        """Remove the data of all of them; False when there was nothing to remove.

        Raises:
            UnsafeRequest: one of them runs; then nothing is removed.
        """
        for service in self.services.values():
            service.refuse_running()
        removed = self.cluster.clean()
        for service in self.services.values():
            # Each of them is cleaned, whatever the others had.
            removed = service.clean() or removed
        return removed


def local_servers(
    folder: Path | None = None, *, environment: Mapping[str, str] | None = None, progress: Progress | None = None
) -> LocalServers:
    """The local servers of this user, or those in a folder of their own."""
    cluster = local_cluster(folder, environment=environment, progress=progress)
    root = cluster.layout.root
    lock = cluster.layout.lock
    services = {name: LocalServer(kind, cluster.machine, root / name, lock) for name, kind in SERVICES.items()}
    return LocalServers(cluster, services)
