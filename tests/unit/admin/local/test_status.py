"""The status of local servers: their state together, the exit code, the JSON, and what a person reads and types."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.frame.command import made
from mailmend.admin.frame.document import Verbatim
from mailmend.admin.local import ClusterRequest, ClusterState, ClusterStatus, LocalStatus, NodeStatus, ServerState
from mailmend.admin.local.cassandra_node import first_settings
from mailmend.admin.local.exports import exports_of
from mailmend.admin.local.local import LOCAL, exit_code, service_line, status_json, summary_line, up_document
from mailmend.admin.local.server import ServerStatus
from mailmend.admin.local.servers import SERVICES
from mailmend.model.errors import ExitCode

SETTINGS = first_settings(ClusterRequest(nodes=3, native_port=9142), 17_001)
UP, SILENT, DEAD, STOPPED = ServerState.UP, ServerState.SILENT, ServerState.DEAD, ServerState.STOPPED
CODES = {
    ClusterState.UP: ExitCode.FINE,
    ClusterState.PARTLY: ExitCode.PARTLY_FAILED,
    ClusterState.DOWN: ExitCode.CANNOT_REACH,
}
local = made(LOCAL)


def _service(state: ServerState) -> ServerStatus:
    contacts = {"amqp": "amqp://127.0.0.1:5672", "management": "http://127.0.0.1:15672"}
    return ServerStatus("rabbitmq", "RabbitMQ", state, (11, 12) if state is UP else (), contacts, Path("/l/r.log"))


def _status(nodes: list[ServerState], services: list[ServerState]) -> LocalStatus:
    found = (
        NodeStatus(number, f"127.0.0.{number}", 9142, state, 100 + number if state is UP else None, Path("/l"))
        for number, state in enumerate(nodes, 1)
    )
    cluster = ClusterStatus(Path("/srv"), SETTINGS if nodes else None, tuple(found))
    return LocalStatus(cluster, tuple(map(_service, services)))


def _json(found: LocalStatus) -> Any:
    return json.loads(json.dumps(status_json(found)))


@pytest.mark.parametrize(
    ("nodes", "services", "together"),
    [
        ([UP], [], ClusterState.UP),
        ([UP] * 3, [], ClusterState.UP),
        ([UP], [UP], ClusterState.UP),
        ([UP], [STOPPED], ClusterState.UP),
        ([UP], [DEAD], ClusterState.PARTLY),
        ([UP], [SILENT], ClusterState.PARTLY),
        ([UP, DEAD, UP], [], ClusterState.PARTLY),
        ([UP, DEAD], [UP], ClusterState.PARTLY),
        ([UP, STOPPED], [], ClusterState.PARTLY),
        ([SILENT], [], ClusterState.PARTLY),
        ([STOPPED], [UP], ClusterState.PARTLY),
        ([], [UP], ClusterState.PARTLY),
        ([STOPPED], [STOPPED], ClusterState.DOWN),
        ([STOPPED, DEAD, STOPPED], [], ClusterState.DOWN),
        ([DEAD], [DEAD], ClusterState.DOWN),
        ([], [STOPPED], ClusterState.DOWN),
        ([], [], ClusterState.DOWN),
    ],
)
def test_a_server_beside_counts_until_it_is_stopped(
    nodes: list[ServerState], services: list[ServerState], together: ClusterState
) -> None:
    """One that was stopped on purpose is not missed; one that fell over is."""
    found = _status(nodes, services)
    assert found.state is together
    assert exit_code(found) is CODES[together]


@given(st.lists(st.sampled_from(ServerState), max_size=3))
def test_without_servers_beside_it_the_cluster_is_the_whole(nodes: list[ServerState]) -> None:
    found = _status(nodes, [])
    assert found.state is found.cluster.state
    assert exit_code(found.cluster) is exit_code(found)


def test_the_status_is_a_contract_with_scripts() -> None:
    assert _json(_status([UP, DEAD], [UP])) == {
        "state": "partly",
        "version": SETTINGS.release.version,
        "local_dc": "datacenter1",
        "folder": "/srv",
        "heap_mib": 768,
        "nodes": [
            {"number": 1, "host": "127.0.0.1", "port": 9142, "state": "up", "pid": 101, "log": "/l"},
            {"number": 2, "host": "127.0.0.2", "port": 9142, "state": "dead", "pid": None, "log": "/l"},
        ],
        "services": [
            {
                "name": "rabbitmq",
                "title": "RabbitMQ",
                "state": "up",
                "pids": [11, 12],
                "contacts": {"amqp": "amqp://127.0.0.1:5672", "management": "http://127.0.0.1:15672"},
                "log": "/l/r.log",
            }
        ],
    }


def test_a_start_prints_the_environment_in_which_commands_find_the_servers() -> None:
    contacts = {"s3": "http://127.0.0.1:9001", "keys": "/l/my keys"}
    store = ServerStatus("s3", "S3Proxy", UP, (13,), contacts, Path("/l/s.log"))
    pulsar = ServerStatus("pulsar", "Pulsar", UP, (14,), {"pulsar": "pulsar://127.0.0.1:6650"}, Path("/l/p.log"))
    found = _status([UP, DEAD], [UP])
    found = replace(found, services=(*found.services, store, replace(pulsar, state=SILENT)))

    document = up_document(found)

    (lines,) = (part.text for part in document.body if isinstance(part, Verbatim))
    assert lines.splitlines() == [
        "export MAILMEND_HOST=127.0.0.1",
        "export MAILMEND_PORT=9142",
        "export MAILMEND_BROKER=amqp://guest@127.0.0.1:5672",
        "export MAILMEND_BROKER_PASSWORD=guest",
        "export MAILMEND_BROKER_MANAGEMENT=http://127.0.0.1:15672",
        "export MAILMEND_BLOBS='s3://mail?endpoint=http://127.0.0.1:9001'",
        "export AWS_SHARED_CREDENTIALS_FILE='/l/my keys'",
    ]
    assert document.json is not None
    assert document.json["environment"]["AWS_SHARED_CREDENTIALS_FILE"] == "/l/my keys"


def test_of_two_brokers_the_environment_has_the_first() -> None:
    contacts = {"pulsar": "pulsar://127.0.0.1:6650", "admin": "http://127.0.0.1:8080"}
    pulsar = ServerStatus("pulsar", "Pulsar", UP, (14,), contacts, Path("/l/p.log"))
    found = _status([UP], [UP])
    both = replace(found, services=(*found.services, pulsar))
    alone = replace(found, services=(pulsar,))

    assert exports_of(both)["MAILMEND_BROKER"] == "amqp://guest@127.0.0.1:5672"
    assert exports_of(alone)["MAILMEND_BROKER"] == "pulsar://127.0.0.1:6650/public/default"
    assert exports_of(alone)["MAILMEND_BROKER_MANAGEMENT"] == "http://127.0.0.1:8080"


def test_without_a_server_that_answers_there_is_no_environment() -> None:
    assert exports_of(_status([STOPPED], [DEAD])) == {}


def test_no_cluster_has_a_status_too() -> None:
    found = _json(_status([], []))
    assert (found["state"], found["version"], found["nodes"]) == ("down", None, [])


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([UP], ["Cassandra 5.0.9 is up. Use it with: --host 127.0.0.1 --port 9142"]),
        ([UP, DEAD], ["mailmend local up"]),
        ([STOPPED], ["It is down. Start it: mailmend local up"]),
        ([], ["/srv", "mailmend local up"]),
    ],
)
def test_the_last_line_says_what_to_type_next(states: list[ServerState], words: list[str]) -> None:
    line = summary_line(_status(states, []).cluster)
    assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (UP, ["is up", "amqp://127.0.0.1:5672", "http://127.0.0.1:15672"]),
        (SILENT, ["does not answer yet", "/l/r.log"]),
        (DEAD, ["is gone", "/l/r.log", "mailmend local up --with rabbitmq"]),
        (STOPPED, ["is stopped", "mailmend local up --with rabbitmq"]),
    ],
)
def test_a_server_beside_has_a_line_with_its_state_and_what_to_type(state: ServerState, words: list[str]) -> None:
    line = service_line(_service(state))
    assert all(word in line for word in words)


@pytest.mark.parametrize("command", ["up", "down", "status", "clean"])
def test_every_command_explains_itself(command: str) -> None:
    answer = CliRunner().invoke(local, [command, "--help"])
    assert answer.exit_code == 0
    assert "--dir" in answer.output
    assert "--json" in answer.output


def test_help_names_every_server_and_the_codes_of_status() -> None:
    assert all(name in CliRunner().invoke(local, ["up", "--help"]).output for name in SERVICES)
    shown = " ".join(CliRunner().invoke(local, ["status", "--help"]).output.split())
    assert "0 every node answers, 3 some do, 4 none does" in shown


@pytest.mark.parametrize(
    "options",
    [
        *(
            ["--nodes", "0"],
            ["--nodes", "4"],
            ["--heap", "1"],
            ["--port", "0"],
            ["--port", "x"],
            ["--ports", "9042"],
            ["--ports", "amqp=x"],
            ["--server-version", "3"],
        ),
        ["--with", "kafka"],
    ],
)
def test_impossible_options_are_refused_before_anything_is_touched(options: list[str], tmp_path: Path) -> None:
    answer = CliRunner().invoke(local, ["up", "--dir", str(tmp_path), *options])
    assert answer.exit_code == ExitCode.WRONG_USE
    assert options[0] in answer.output
    assert not list(tmp_path.iterdir())
