"""All servers of one local folder: Cassandra, and beside it what `--with` names; up, down, status, clean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from admin.local.cassandra_settings import ClusterRequest
from admin.local.cluster import ClusterState, ClusterStatus, LocalCluster, local_cluster
from admin.local.rabbitmq import RabbitMq
from admin.local.s3proxy import ObjectStore
from admin.local.server import LocalServer, started_together
from admin.local.server_kind import ServerKind, ServerState, ServerStatus
from model.errors import WrongUse
from model.ports import Progress

_KINDS: Final[tuple[ServerKind, ...]] = (RabbitMq(), ObjectStore())

SERVICES: Final[Mapping[str, ServerKind]] = {kind.name: kind for kind in _KINDS}
"""Every kind of server beside Cassandra, by the name that a person types."""


def parse_names(text: str) -> tuple[str, ...]:
    """The names in a text with commas, each once, in the order of `SERVICES`.

    Raises:
        WrongUse: one of them is not known, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SERVICES]
    if unknown or not names:
        raise WrongUse(f"{(unknown or [text])[0]!r} is none of the servers that can be started: {known_names()}")
    return tuple(name for name in SERVICES if name in names)


def known_names() -> str:
    return ", ".join(SERVICES)


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """The cluster's status, and that of every other server that was ever started there."""

    cluster: ClusterStatus
    services: tuple[ServerStatus, ...] = ()

    @property
    def state(self) -> ClusterState:
        """Up when all that was started and not stopped answers, down when nothing runs, else partly up."""
        started = {service.state for service in self.services} - {ServerState.STOPPED}
        states = {node.state for node in self.cluster.nodes} | started
        together = ClusterState.of(states)
        return together if self.cluster.nodes or together is ClusterState.DOWN else ClusterState.PARTLY

    def as_json(self) -> dict[str, Any]:
        """The cluster's status, with a list of the other servers beside it."""
        return {**self.cluster.as_json(), "services": [service.as_json() for service in self.services]}


@dataclass(frozen=True, slots=True)
class LocalServers:
    """Cassandra, and a server of every kind, whether it was started or not."""

    cluster: LocalCluster
    services: Mapping[str, LocalServer]

    def up(self, request: ClusterRequest, names: Sequence[str] = ()) -> LocalStatus:
        """Start the named servers, then Cassandra; after an error, those that this call started are ended.

        Raises:
            WrongUse: the request does not fit what runs there.
            LocalServerError: one did not start.
        """
        wanted = [self.services[name] for name in names]
        with started_together(wanted):
            for service in wanted:
                service.up()
            self.cluster.up(request)
        return self.status()

    def down(self) -> LocalStatus:
        """End all of them; only processes that were started here are touched."""
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
        return any([self.cluster.clean(), *(service.clean() for service in self.services.values())])


def local_servers(
    folder: Path | None = None, *, environment: Mapping[str, str] | None = None, progress: Progress | None = None
) -> LocalServers:
    """The local servers of this user, or those in a folder of their own.

    Args:
        folder: where their data are; the user's data folder when not given.
        environment: where programs and the XDG folders are looked up; that of this process when not given.
        progress: receives the progress; dropped when not given.
    """
    cluster = local_cluster(folder, environment=environment, progress=progress)
    root, lock = cluster.layout.root, cluster.layout.lock
    services = {name: LocalServer(kind, cluster.machine, root / name, lock) for name, kind in SERVICES.items()}
    return LocalServers(cluster, services)
