"""What a person is told: errors out of logs, progress, status."""

import json
import struct
from pathlib import Path

import pytest

from admin.local import ClusterState, ClusterStatus, NodeStatus, ServerState
from admin.local.cassandra_settings import ClusterRequest, first_settings
from admin.local.log_lines import tail, why_ended
from admin.local.native_protocol import frame, login_body, query_body, startup_body

LOG = """INFO  [main] 2026-11-20 19:00:36,000 A.java:1 - fine
ERROR [main] 2026-11-20 19:00:36,100 B.java:2 - first trouble
java.lang.RuntimeException: of no interest
ERROR [main] 2026-11-20 19:00:36,200 CassandraDaemon.java:900 - Exception encountered during startup
org.apache.cassandra.exceptions.ConfigurationException: Invalid yaml: [nonsense]
\tat org.apache.cassandra.config.X.y(X.java:1)
INFO  [main] 2026-11-20 19:00:36,300 A.java:1 - going down
"""


def test_the_why_ended_is_quoted_with_its_exception() -> None:
    """The last one is why it ended."""
    exception = "org.apache.cassandra.exceptions.ConfigurationException: Invalid yaml: [nonsense]"
    assert why_ended(LOG, "") == f"Exception encountered during startup {exception}"


@pytest.mark.parametrize("following", ["\tat a.b(C.java:1)", "INFO  [main] 2026 A.java:1 - next", "WARN  [x] y", ""])
def test_an_error_without_exception_stands_alone(following: str) -> None:
    """Neither a stack nor the next entry belongs to the message."""
    assert why_ended(f"ERROR [main] 2026 A.java:1 - out of luck\n{following}", "") == "out of luck"


@pytest.mark.parametrize(
    ("console", "said"),
    [
        (
            "Unrecognized VM option 'Foo'\nError: Could not create the Java Virtual Machine.\n",
            "Error: Could not create the Java Virtual Machine.",
        ),
        ("Exception in thread main\n\tat a.b(C.java:1)\n\n", "Exception in thread main"),
        ("", "it printed nothing"),
    ],
)
def test_a_process_that_never_logged_is_quoted_from_its_console(console: str, said: str) -> None:
    """Java itself may refuse to start."""
    assert why_ended("INFO  [main] x - fine", console) == said


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """The node may not have come as far as writing one."""
    assert tail(tmp_path / "none") == ""


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    """A log of any length fits."""
    long = tmp_path / "long.log"
    long.write_text("x" * 1_000_000 + "the end", encoding="utf-8")
    assert tail(long).endswith("the end")
    assert len(tail(long)) < 500_000


SETTINGS = first_settings(ClusterRequest(nodes=3, native_port=9142), 17_001)


def _status(*states: ServerState) -> ClusterStatus:
    nodes = [
        NodeStatus(
            number, f"127.0.0.{number}", 9142, state, 100 + number if state is ServerState.UP else None, Path("/l")
        )
        for number, state in enumerate(states, start=1)
    ]
    return ClusterStatus(Path("/srv"), SETTINGS, tuple(nodes))


@pytest.mark.parametrize(
    ("states", "together"),
    [
        ([ServerState.UP], ClusterState.UP),
        ([ServerState.UP] * 3, ClusterState.UP),
        ([ServerState.UP, ServerState.DEAD, ServerState.UP], ClusterState.PARTLY),
        ([ServerState.SILENT], ClusterState.PARTLY),
        ([ServerState.UP, ServerState.STOPPED], ClusterState.PARTLY),
        ([ServerState.DEAD], ClusterState.DOWN),
        ([ServerState.STOPPED, ServerState.DEAD, ServerState.STOPPED], ClusterState.DOWN),
        ([], ClusterState.DOWN),
    ],
)
def test_the_cluster_is_as_its_nodes_are(states: list[ServerState], together: ClusterState) -> None:
    """Up means all of it; a node that runs and does not answer is neither up nor down."""
    assert _status(*states).state is together


def test_the_status_is_a_contract_with_scripts() -> None:
    """Names and kinds of the JSON do not change."""
    document = json.loads(json.dumps(_status(ServerState.UP, ServerState.DEAD).as_json()))
    assert document == {
        "state": "partly",
        "version": SETTINGS.release.version,
        "local_dc": "datacenter1",
        "folder": "/srv",
        "heap_mib": 768,
        "nodes": [
            {"number": 1, "host": "127.0.0.1", "port": 9142, "state": "up", "pid": 101, "log": "/l"},
            {"number": 2, "host": "127.0.0.2", "port": 9142, "state": "dead", "pid": None, "log": "/l"},
        ],
    }


def test_no_cluster_has_a_status_too() -> None:
    """A script asks before the first start."""
    document = ClusterStatus(Path("/srv"), None, ()).as_json()
    assert (document["state"], document["version"], document["nodes"]) == ("down", None, [])


def test_a_request_is_a_header_and_a_body() -> None:
    """Version 4, no flags, stream 0, the kind, the length."""
    assert frame(0x05) == bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])
    assert frame(0x01, b"xy")[-6:] == b"\x00\x00\x00\x02xy"


def test_the_bodies_are_those_of_the_protocol() -> None:
    """A string map, a SASL token, a query with its consistency."""
    assert startup_body() == b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0"
    assert login_body("ann", "pw") == struct.pack(">i", 7) + b"\0ann\0pw"
    assert query_body("SELECT", 5) == b"\x00\x00\x00\x06SELECT\x00\x05\x00"
