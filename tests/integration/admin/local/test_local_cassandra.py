"""A real Cassandra of one's own: up, down, killed, refused, cleaned; nothing of anybody else's is touched.

One node is shared by most of these tests. Each leaves it running.
"""

import asyncio
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import aio_pika
import psutil
import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

from mailmend.admin.local import ClusterRequest, ClusterState, LocalCluster, ServerState, local_servers, processes
from mailmend.admin.local.cassandra_node import ClusterSettings
from mailmend.admin.local.processes import free_port, this_process
from mailmend.admin.local.server import sweep_folders
from mailmend.admin.main import run
from mailmend.model.errors import ExitCode, LocalServerError, UnsafeRequest, WrongUse
from mailmend.repair.clock import SystemClock
from tests.support.brokers import Broker
from tests.support.servers import PREFIX, CassandraServer, ThreeNodes, throwaway_cluster

OFFLINE = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1"


@dataclass(frozen=True, slots=True)
class One:
    """The node that these tests share."""

    cluster: LocalCluster
    port: int
    settings: ClusterSettings | None

    @property
    def pid(self) -> int | None:
        return self.cluster.status().nodes[0].pid

    def options(self) -> list[str]:
        return ["--dir", str(self.cluster.layout.root)]


@pytest.fixture(scope="module")
def one(cassandra: CassandraServer) -> Iterator[One]:
    with throwaway_cluster() as cluster:
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": OFFLINE}
        machine = replace(cluster.machine, environment=environment)
        offline = replace(cluster, machine=machine, store=replace(cluster.store, environment=environment))
        port = free_port(["127.0.0.1"])
        offline.up(ClusterRequest(native_port=port, heap_mib=400, java_options=("-XX:TieredStopAtLevel=1",)))
        yield One(offline, port, offline.settings)


def ask(host: str, port: int, *statements: str) -> list[Any]:
    profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([host]), request_timeout=30)
    cluster = Cluster([host], port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        session = cluster.connect()
        return [list(session.execute(statement)) for statement in statements][-1]
    finally:
        cluster.shutdown()


def _make_table(port: int, keyspace: str, value: str) -> None:
    ask(
        "127.0.0.1",
        port,
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
        f"CREATE TABLE {keyspace}.kept (id int PRIMARY KEY, value text)",
        f"INSERT INTO {keyspace}.kept (id, value) VALUES (1, '{value}')",
    )


def _kept(port: int, keyspace: str) -> str:
    return str(ask("127.0.0.1", port, f"SELECT value FROM {keyspace}.kept WHERE id = 1")[0].value)


def test_up_starts_the_release_offline(one: One) -> None:
    row = ask("127.0.0.1", one.port, "SELECT release_version, data_center FROM system.local")[0]
    assert (row.release_version, row.data_center) == ("5.0.9", "datacenter1")


def test_up_again_changes_nothing(one: One) -> None:
    # Given a running node
    before = one.pid
    # When it is started again, with and without repeating its settings
    again = one.cluster.up(ClusterRequest())
    repeated = one.cluster.up(ClusterRequest(native_port=one.port, nodes=1, version="5.0", heap_mib=400))
    # Then it is the same one
    assert before is not None
    assert again.nodes[0].pid == repeated.nodes[0].pid == before


@pytest.mark.parametrize(
    "wishes",
    [
        ClusterRequest(native_port=1),
        ClusterRequest(heap_mib=999),
        ClusterRequest(nodes=2),
        ClusterRequest(version="4.1"),
    ],
)
def test_a_running_node_is_not_changed_behind_its_clients(one: One, wishes: ClusterRequest) -> None:
    before = one.pid
    with pytest.raises(WrongUse):
        one.cluster.up(wishes)
    assert one.pid == before
    assert one.cluster.settings == one.settings


def test_nothing_but_loopback_is_listened_on(one: One) -> None:
    for host in ("127.0.0.2", "127.0.0.3"):
        assert not processes.speaks_cql(host, one.port)
    assert processes.speaks_cql("127.0.0.1", one.port)


def test_its_native_libraries_are_in_its_own_folder(one: One) -> None:
    """So a /tmp that is mounted without exec is enough."""
    mapped = {Path(region.path) for region in psutil.Process(one.pid).memory_maps()}
    of_jna = {path for path in mapped if path.name.startswith("jna")}
    libraries = {path for path in mapped if ".so" in path.name and path.is_relative_to(tempfile.gettempdir())}

    assert of_jna
    assert all(path.is_relative_to(one.cluster.layout.root) for path in of_jna | libraries)


def test_the_command_tells_the_status(one: One, capsys: pytest.CaptureFixture[str]) -> None:
    # When a script asks
    code = run(["local", "status", "--json", *one.options()])
    # Then it reads where and how
    document = json.loads(capsys.readouterr().out)
    assert code == ExitCode.FINE
    assert (document["state"], document["nodes"][0]["port"]) == ("up", one.port)


def test_the_command_tells_a_person_where_to_connect(one: One, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["local", "up", *one.options()]) == ExitCode.FINE
    said = capsys.readouterr()
    assert f"--host 127.0.0.1 --port {one.port}" in said.out
    assert "--host" not in said.err


async def _let_in(url: str) -> None:
    async with await aio_pika.connect(url):
        pass


def test_a_broker_is_started_beside_it(one: One, rabbitmq: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    # Given a node; the parts of a broker are there, as that of the fixture runs of them
    broker = local_servers(one.cluster.layout.root).services["rabbitmq"]
    before = one.pid
    try:
        # When a broker is started beside the node
        assert run(["local", "up", "--with", "rabbitmq", *one.options()]) == ExitCode.FINE
        # Then a person is told of both, and a script too
        said = capsys.readouterr().out
        assert f"--port {one.port}" in said
        assert broker.status().contacts["amqp"] in said
        assert run(["local", "status", "--json", *one.options()]) == ExitCode.FINE
        document = json.loads(capsys.readouterr().out)
        assert [service["state"] for service in document["services"]] == ["up"]
        # And a client is let in at the address that is told
        url = document["services"][0]["contacts"]["amqp"].replace("amqp://", "amqp://guest:guest@")
        asyncio.run(_let_in(f"{url}/"))
        # And when it falls over, some answer and some do not
        broker.kill()
        assert run(["local", "status", *one.options()]) == ExitCode.PARTLY_FAILED
        assert "RabbitMQ was started and is gone" in capsys.readouterr().out
    finally:
        broker.kill()
        broker.down()
        broker.clean()
    assert run(["local", "status", *one.options()]) == ExitCode.FINE
    assert one.pid == before


def test_a_running_node_is_not_cleaned_away(one: One, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsafeRequest, match="mailmend local down"):
        one.cluster.clean()
    assert run(["local", "clean", *one.options()]) == ExitCode.WRONG_USE
    assert "mailmend local down" in capsys.readouterr().err
    assert one.cluster.status().state is ClusterState.UP


@pytest.mark.thorough
def test_down_drains_and_up_finds_the_data(one: One, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is flushed at the end, so that the next start replays nothing and finds every row."""
    # Given a row
    _make_table(one.port, "kept_over_down", "drained")
    log = one.cluster.status().nodes[0].log
    # When the node is taken down
    assert run(["local", "down", *one.options()]) == ExitCode.FINE
    # Then it has drained, and the status says that it is stopped
    assert "Reason: DRAIN" in log.read_text(encoding="utf-8")
    assert one.cluster.status().nodes[0].state is ServerState.STOPPED
    capsys.readouterr()
    assert run(["local", "status", "--json", *one.options()]) == ExitCode.CANNOT_REACH
    assert json.loads(capsys.readouterr().out)["state"] == "down"
    # And when it is started again, without repeating any setting, the row is there
    one.cluster.up(ClusterRequest())
    assert _kept(one.port, "kept_over_down") == "drained"


@pytest.mark.thorough
def test_a_killed_node_is_seen_dead_and_comes_back(one: One) -> None:
    # Given a row, older than the tenth of a second that a crash may cost
    _make_table(one.port, "kept_over_kill", "replayed")
    time.sleep(0.5)  # Cassandra's own clock decides when its commit log is safe: nothing can be asked for it
    before = one.pid
    assert before is not None
    # When the process is killed from outside
    os.kill(before, signal.SIGKILL)
    while psutil.pid_exists(before):
        one.cluster.status()  # which reaps a child of ours
        SystemClock().sleep(0.05)
    # Then it is known to be dead
    assert one.cluster.status().nodes[0].state is ServerState.DEAD
    # And when it is started again, another process has the row
    one.cluster.up(ClusterRequest())
    assert one.pid not in {None, before}
    assert _kept(one.port, "kept_over_kill") == "replayed"


def test_a_broken_configuration_names_the_reason_and_the_log() -> None:
    with throwaway_cluster() as cluster:
        # Given a setting that Cassandra does not know
        wishes = ClusterRequest(native_port=free_port(["127.0.0.1"]), yaml={"no_such_setting": 1})
        # When the node is started
        with pytest.raises(LocalServerError, match="no_such_setting") as caught:
            cluster.up(wishes)
        # Then the log is named, and no process is left
        assert str(cluster.layout.node(1).system_log) in str(caught.value)
        assert caught.value.exit_code is ExitCode.CANNOT_REACH
        assert cluster.status().nodes[0].state is ServerState.STOPPED


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with throwaway_cluster() as cluster, socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code = run(["local", "up", "--port", port, "--dir", str(cluster.layout.root)])
        said = capsys.readouterr().err
        assert code == ExitCode.CANNOT_REACH
        assert f"port {port} on 127.0.0.1 is taken" in said
        assert "--port" in said
        assert cluster.status().state is ClusterState.DOWN


def test_clean_removes_the_data_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Given a folder with somebody's file, in which a start has failed
    kept = tmp_path / "letter.txt"
    kept.write_text("dear all", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as other:
        run(["local", "up", "--port", str(other.getsockname()[1]), "--dir", str(tmp_path)])
    assert (tmp_path / "state.json").exists()
    # When it is cleaned twice
    codes = [run(["local", "clean", "--json", "--dir", str(tmp_path)]) for _ in range(2)]
    # Then ours is gone, theirs is not
    removed = [json.loads(line)["removed"] for line in capsys.readouterr().out.splitlines()]
    assert codes == [ExitCode.FINE, ExitCode.FINE]
    assert removed == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_state_that_is_not_ours_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    for text in ("", "[]", '{"settings": 1}', '{"processes": {}, "settings": {"release": "9.9"}}'):
        state.write_text(text, encoding="utf-8")
        code = run(["local", "up", "--dir", str(tmp_path)])
        assert code in {ExitCode.CANNOT_REACH, ExitCode.WRONG_USE}
        assert state.read_text(encoding="utf-8") == text
    assert "cannot be read" in capsys.readouterr().err


def test_down_where_nothing_is_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["local", "down", "--dir", str(tmp_path / "none")]) == ExitCode.FINE
    assert run(["local", "status", "--dir", str(tmp_path / "none")]) == ExitCode.CANNOT_REACH
    assert "mailmend local up" in capsys.readouterr().out


@pytest.mark.thorough
def test_three_nodes_know_each_other(three_nodes: ThreeNodes) -> None:
    for host in three_nodes.hosts:
        peers = {str(row.peer) for row in ask(host, three_nodes.port, "SELECT peer FROM system.peers")}
        assert peers == set(three_nodes.hosts) - {host}


@pytest.mark.thorough
def test_a_killed_node_of_three_comes_back(three_nodes: ThreeNodes) -> None:
    # When one is killed
    three_nodes.kill(3)
    # Then the others serve and the whole is only partly there
    status = three_nodes.cluster.status()
    assert [node.state for node in status.nodes] == [ServerState.UP, ServerState.UP, ServerState.DEAD]
    assert status.state is ClusterState.PARTLY
    # And when it is started again, everything is whole
    three_nodes.start(3)
    assert all(processes.reaches_all(host, three_nodes.port) for host in three_nodes.hosts)


def test_the_sessions_server_gives_every_test_its_own_keyspace(cassandra: CassandraServer) -> None:
    names = {cassandra.keyspace() for _ in range(100)}
    assert len(names) == 100
    assert all(name.isidentifier() and name.islower() for name in names)


def test_what_a_killed_test_run_left_is_swept(tmp_path: Path) -> None:
    # Given the folder of a run that is gone, that of a living one, and one that is being made
    for name, owner in (("gone", replace(this_process(), started_at=1.0)), ("alive", this_process())):
        folder = tmp_path / f"mailmend-test-{name}"
        folder.mkdir()
        folder.joinpath("owner.json").write_text(json.dumps(asdict(owner)))
    (tmp_path / "mailmend-test-new").mkdir()
    # When the next run sweeps
    sweep_folders(PREFIX, tmp_path)
    # Then only the first one is removed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mailmend-test-alive", "mailmend-test-new"]
