"""All servers of one local folder: Cassandra, and beside it what `--with` names; up, down, status, clean.

Each keeps its own state and can be started and stopped without the others; here they are only taken together.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from admin.local.cluster import LocalCluster, local_cluster
from admin.local.progress import Progress, Silent
from admin.local.service_kinds import SERVICES
from admin.local.service_runs import ServiceRun
from admin.local.services import Machine, ServiceStatus
from admin.local.settings import Wishes
from admin.local.status import ClusterState, ClusterStatus, NodeState


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """How the cluster is, and every server beside it that was ever started there."""

    cluster: ClusterStatus
    services: tuple[ServiceStatus, ...] = ()

    @property
    def state(self) -> ClusterState:
        """Up when all that was started and not stopped answers, down when nothing runs, partly in between."""
        started = {service.state for service in self.services} - {NodeState.STOPPED}
        states = {node.state for node in self.cluster.nodes} | started
        if states == {NodeState.UP} and self.cluster.nodes:
            return ClusterState.UP
        return ClusterState.PARTLY if states & {NodeState.UP, NodeState.SILENT} else ClusterState.DOWN

    def as_json(self) -> dict[str, Any]:
        """The status as `--json` prints it: that of the cluster, and a list beside it."""
        return {**self.cluster.as_json(), "services": [service.as_json() for service in self.services]}


@dataclass(frozen=True, slots=True)
class LocalServers:
    """Cassandra, and a server of every kind that there is, whether it was started or not."""

    cluster: LocalCluster
    services: Mapping[str, ServiceRun]

    def up(self, wishes: Wishes, names: Sequence[str] = ()) -> LocalStatus:
        """Start the servers named, then Cassandra; when something fails, what this call started is ended again.

        Raises:
            WrongUse: the wishes do not fit what runs there.
            LocalServerError: one did not start.
        """
        with self._undone_on_failure(names):
            for name in names:
                self.services[name].up()
            self.cluster.up(wishes)
        return self.status()

    def down(self) -> LocalStatus:
        """Let all of them end; only processes that were started here are touched."""
        for service in self.services.values():
            service.down()
        self.cluster.down()
        return self.status()

    def status(self) -> LocalStatus:
        """How all of them are now."""
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

    @contextmanager
    def _undone_on_failure(self, names: Sequence[str]) -> Iterator[None]:
        ran = {name for name in names if self.services[name].status().pids}
        try:
            yield
        except BaseException:
            for name in names:
                if name not in ran:
                    self.services[name].down()
            raise


def local_servers(
    folder: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LocalServers:
    """The local servers of this user, or those in a folder of their own.

    Args:
        folder: where their data are; the user's data folder when not given.
        environment: where programs and the XDG folders are looked up; that of this process when not given.
        progress: who is told what goes on; nobody when not given.
    """
    environment, progress = os.environ if environment is None else environment, progress or Silent()
    cluster = local_cluster(folder, environment=environment, progress=progress)
    machine = Machine.of_this_user(environment, progress=progress)
    root, lock = cluster.layout.root, cluster.layout.lock
    services = {name: ServiceRun(kind, machine, root / name, lock) for name, kind in SERVICES.items()}
    return LocalServers(cluster, services)
