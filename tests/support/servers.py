"""Real servers for tests: found, started, ended; one fixture, whatever stands behind it.

`MAILMEND_TEST_CASSANDRA=host:port` names one that runs already; else Docker is used where it answers; else a node is
started from the same code as `mailmend local up`, with free ports and a folder of its own.
"""

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch
from uuid import uuid4

import pytest
from cassandra.cluster import ControlConnection, Session

from mailmend.admin.local import LOCAL_DC, ClusterRequest, ClusterState, LocalCluster, local_cluster
from mailmend.admin.local.cassandra_node import hosts_of
from mailmend.admin.local.processes import free_port
from mailmend.admin.local.server import LocalServer, Machine, ServerKind, throwaway_folder
from mailmend.cql.driver.session import CassandraCluster, Contact, connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql
from mailmend.model.errors import JavaMissing, LocalServerError, SchemaDisagreement

GIVEN = "MAILMEND_TEST_CASSANDRA"
PREFIX = "mailmend-test-"
_IMAGE = "cassandra:5.0.9"
_CQL_PORT = 9042
# System tables are not forced to disk: tables are created three times faster, and only a crash would tell.
_FAST_DDL = {"cassandra.unsafesystem": "true"}
# A node that missed a change of the schema asks for it after seconds, not after a minute.
_SOON_AGREED = {"cassandra.migration_delay_ms": "5000"}
# Off by default; without them views, masks and SASI would be compared with nothing.
_OPTIONAL_PARTS = {
    "materialized_views_enabled": True,
    "sasi_indexes_enabled": True,
    "dynamic_data_masking_enabled": True,
}
"""Parts of CQL that a server's configuration switches off by default."""
OPTIONAL_PARTS_4_1 = {"materialized_views_enabled": True, "sasi_indexes_enabled": True}
"""The same for Cassandra 4.1, which has no masks."""
# The first compiler only: a node of a short life is up for half of the processor time.
_SHORT_LIFE = ("-XX:TieredStopAtLevel=1",)
_DOCKER_SECONDS_MAX = 20
_CHANGES_MAX = 5
_AGREED_SECONDS = 12.0
_KILL_SECONDS_MAX = 15


@contextmanager
def throwaway_server(kind: ServerKind) -> Iterator[LocalServer]:
    """A server beside Cassandra of our own, up, with free ports and nothing in it; ended with the block."""
    with throwaway_folder(PREFIX) as folder:
        machine, place = Machine.of_this_user(), folder / "services" / kind.name
        run = LocalServer(kind, machine, place, folder / "lock", usual_ports=False)
        try:
            run.up()
        except JavaMissing as error:
            unavailable(error)
        except LocalServerError as error:
            if not any(words in str(error) for words in ("could not be fetched", "cannot be fetched")):
                raise
            unavailable(error)
        yield run


@dataclass(frozen=True, slots=True)
class CassandraServer:
    """A server that a test may use together with others: whoever needs a keyspace makes one of its own.

    Attributes:
        jmx_port: where nodetool reaches it; None: nowhere.
        sstables: the folder of its data files; None: elsewhere.
    """

    host: str
    port: int
    local_dc: str = LOCAL_DC
    jmx_port: int | None = None
    sstables: Path | None = None

    def keyspace(self) -> str:
        return f"t_{uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True)
class ThreeNodes:
    """Three nodes that a fault test may stop, kill and start; it leaves all of them running."""

    cluster: LocalCluster
    port: int
    hosts: tuple[str, ...]
    local_dc: str = LOCAL_DC

    def keyspace(self) -> str:
        return f"t_{uuid4().hex[:12]}"

    def stop(self, number: int) -> None:
        self.cluster.nodes[number - 1].down()

    def kill(self, number: int) -> None:
        self.cluster.nodes[number - 1].kill()

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """Node 1, 2 or 3 does nothing, as in a long collection of garbage, until the block ends."""
        pid = self.cluster.status().nodes[number - 1].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def start(self, number: int) -> None:
        """Start node 1, 2 or 3 again; where then all run, wait until they reach each other."""
        self.cluster.nodes[number - 1].up()
        self.cluster.wait_together()
        if self._all_up():
            self._settle()

    def start_all(self) -> None:
        """Start whatever a test left stopped, and wait until all reach each other."""
        if not self._all_up():
            self.cluster.up(ClusterRequest())
            self._settle()

    def _all_up(self) -> bool:
        return self.cluster.status().state is ClusterState.UP

    def _settle(self) -> None:
        """Change the schema until each node's change reaches the others.

        Right after a restart it may not, and a node that missed a DROP was seen not to ask for it in 90 s: another
        change brought it back to the others.
        """
        with connect(Contact(self.hosts, self.port, self.local_dc)) as cluster:
            for _ in self.hosts:  # the driver asks one after the other
                self._changed(cluster)

    def _changed(self, cluster: CassandraCluster) -> None:
        for _ in range(_CHANGES_MAX):
            with suppress(SchemaDisagreement):
                cluster.execute_ddl(keyspace_cql(self.keyspace(), in_every_data_centre(1)), agreed=_AGREED_SECONDS)
                return
        pytest.fail(f"the nodes do not agree on a schema, whatever is changed: see {self.cluster.layout.root}")


@contextmanager
def one_node(java_options: tuple[str, ...] = _SHORT_LIFE) -> Iterator[CassandraServer]:
    if given := os.environ.get(GIVEN):
        host, _, port = given.rpartition(":")
        yield CassandraServer(host, int(port))
    elif docker_answers():
        with _container() as server:
            yield server
    else:
        with local_node(
            ClusterRequest(properties=_FAST_DDL, yaml=_OPTIONAL_PARTS, java_options=java_options)
        ) as server:
            yield server


@contextmanager
def patient_driver() -> Iterator[None]:
    """Let each request of the driver wait four times as long: on a busy machine a node that works answers late.

    What a repair writes keeps its own, shorter wait: between a stamp and its moment several of those fit.
    """
    names = [field.name for field in fields(Contact)]
    build: Any = Contact.__init__
    before = build.__defaults__
    after = dict(zip(names[-len(before) :], before, strict=True))
    after["request_seconds"] *= 4
    build.__defaults__ = tuple(after.values())
    try:
        yield
    finally:
        build.__defaults__ = before


@contextmanager
def driver_without_schema() -> Iterator[None]:
    """Let the driver read no description of the keyspaces where there is one node.

    It reads all of it for each connection, and a table's again after each change, to route requests among nodes. On one
    node that costs more than the rest of a command. It waits until the nodes agree all the same.

    ScyllaDB's driver is left as it is: it waits by another method, and its lanes show what a driver does that reads.
    """
    if hasattr(Session, "wait_for_schema_agreement"):
        yield
        return
    refresh = ControlConnection._refresh_schema  # to switch the setting off would say that the nodes do not agree

    def agree(control: Any, connection: Any, *given: Any, schema_agreement_wait: Any = None, **named: Any) -> bool:
        if len(control._cluster.metadata.all_hosts()) > 1:
            return bool(refresh(control, connection, *given, schema_agreement_wait=schema_agreement_wait, **named))
        return bool(control.wait_for_schema_agreement(connection, wait_time=schema_agreement_wait))

    with patch.object(ControlConnection, "_refresh_schema", agree):
        yield


@contextmanager
def local_node(wishes: ClusterRequest) -> Iterator[CassandraServer]:
    jmx_port = free_port(hosts_of(1))
    properties = {**(wishes.properties or {}), "cassandra.jmx.local.port": str(jmx_port)}
    with throwaway_cluster() as cluster:
        port = _up(cluster, replace(wishes, properties=properties))
        sstables = cluster.layout.root / "node1" / "data" / "sstables"
        yield CassandraServer("127.0.0.1", port, jmx_port=jmx_port, sstables=sstables)


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A node of one test, which may stop it, change its files, and start it again.

    Attributes:
        sstables: the folder of its data files.
    """

    cluster: LocalCluster
    server: CassandraServer
    sstables: Path

    def stop(self) -> None:
        """End it in good order: it writes all that it has to its files first."""
        self.cluster.nodes[0].down()

    def start(self) -> None:
        self.cluster.nodes[0].up()


@contextmanager
def own_node() -> Iterator[OwnNode]:
    with throwaway_cluster() as cluster:
        port = _up(cluster, ClusterRequest(yaml=_OPTIONAL_PARTS))
        sstables = cluster.layout.root / "node1" / "data" / "sstables"
        yield OwnNode(cluster, CassandraServer("127.0.0.1", port, sstables=sstables), sstables)


@contextmanager
def three_local_nodes(yaml: Mapping[str, Any] | None = None) -> Iterator[ThreeNodes]:
    with throwaway_cluster() as cluster:
        port = _up(cluster, ClusterRequest(nodes=3, heap_mib=400, yaml=yaml, properties=_SOON_AGREED))
        yield ThreeNodes(cluster, port, hosts_of(3))


@contextmanager
def throwaway_cluster() -> Iterator[LocalCluster]:
    """A cluster in a folder that goes away with it; what killed test runs have left is removed first."""
    with throwaway_folder(PREFIX) as folder:
        yield local_cluster(folder / "cluster")


def docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=_DOCKER_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0


def unavailable(reason: object) -> NoReturn:
    """A part is missing."""
    pytest.skip(str(reason))


def _up(cluster: LocalCluster, wishes: ClusterRequest) -> int:
    port = free_port(hosts_of(wishes.nodes or 1))
    java_options = _SHORT_LIFE if wishes.java_options is None else wishes.java_options
    try:
        cluster.up(replace(wishes, native_port=port, java_options=java_options))
    except JavaMissing as error:
        unavailable(error)
    except LocalServerError as error:
        if "could not be fetched" not in str(error):
            raise
        unavailable(error)
    return port


@contextmanager
def _container() -> Iterator[CassandraServer]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.community.cassandra import CassandraContainer  # noqa: PLC0415 - only where Docker answers

        container = CassandraContainer(_IMAGE).start()
    try:
        host, port = container.get_container_host_ip(), int(container.get_exposed_port(_CQL_PORT))
        yield CassandraServer(host, port, container.get_local_datacenter())
    finally:
        container.stop()
