"""What a node is started with: its configuration and its command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.local.cassandra_node import (
    DAEMON,
    ClusterRequest,
    ClusterSettings,
    asks_passwords,
    first_settings,
    node_command,
    properties_of,
    render,
    yaml_of,
)
from mailmend.admin.local.folders import ClusterFolder, NodeFolder, cache_home, cluster_folder, data_home
from mailmend.admin.local.jars import Java

FOLDERS = ClusterFolder(Path("/srv/local")).node(2)
JARS = (Path("/jars/cassandra-all-5.0.9.jar"), Path("/jars/jamm-0.4.0.jar"))
JAVA = Java(Path("/opt/jdk/bin/java"), 17)


def _settings(**asked: Any) -> ClusterSettings:
    return first_settings(ClusterRequest(**{"nodes": 3, "native_port": 9142, **asked}), 17_001)


def _yaml(number: int = 2, **asked: Any) -> dict[str, Any]:
    return yaml_of(_settings(**asked), number, FOLDERS)


def _command(java: Java = JAVA, **asked: Any) -> list[str]:
    return node_command(java, JARS, _settings(**asked), FOLDERS)


@pytest.mark.parametrize(("number", "host"), [(1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.3")])
def test_a_node_listens_on_its_loopback_address_only(number: int, host: str) -> None:
    document = _yaml(number)
    assert (document["listen_address"], document["rpc_address"]) == (host, host)


def test_all_nodes_share_ports_and_seed() -> None:
    for number in (1, 2, 3):
        document = _yaml(number)
        assert (document["native_transport_port"], document["storage_port"]) == (9142, 17_001)
        assert document["seed_provider"][0]["parameters"] == [{"seeds": "127.0.0.1:17001"}]


def test_everything_a_node_writes_is_in_its_own_folder() -> None:
    document = _yaml()
    folders = [document[name] for name in document if name.endswith("_directory")] + document["data_file_directories"]
    assert len(folders) == 5
    assert all(Path(folder).is_relative_to(FOLDERS.data) for folder in folders)


def test_the_callers_settings_come_last() -> None:
    document = _yaml(yaml={"read_request_timeout": "1s", "hinted_handoff_enabled": False})
    assert document["read_request_timeout"] == "1s"
    assert document["hinted_handoff_enabled"] is False


def test_a_dropped_keyspace_leaves_no_snapshot() -> None:
    assert _yaml()["auto_snapshot"] is False


@pytest.mark.parametrize(
    ("authenticator", "asks", "authorizer"),
    [
        ("AllowAllAuthenticator", False, "AllowAllAuthorizer"),
        ("PasswordAuthenticator", True, "CassandraAuthorizer"),
        ("org.apache.cassandra.auth.PasswordAuthenticator", True, "CassandraAuthorizer"),
    ],
)
def test_permissions_are_checked_where_clients_log_in(authenticator: str, asks: bool, authorizer: str) -> None:
    assert asks_passwords(_settings(authenticator=authenticator)) is asks
    assert _yaml(authenticator=authenticator)["authorizer"] == authorizer


@pytest.mark.parametrize("heap", [256, 768, 4096])
def test_memtables_take_a_fifth_of_the_heap(heap: int) -> None:
    assert _yaml(heap_mib=heap)["memtable_heap_space"] == f"{heap // 5}MiB"


def test_the_configuration_is_readable_text() -> None:
    assert json.loads(render(_yaml())) == _yaml()


def test_jamm_is_the_java_agent() -> None:
    assert "-javaagent:/jars/jamm-0.4.0.jar" in _command()


def test_the_main_class_comes_last_after_every_jar() -> None:
    """The node's own configuration folder is before the jars, so that no jar's settings win."""
    command = _command()
    assert command[-1] == DAEMON
    assert command[-2] == ":".join([str(FOLDERS.conf), *map(str, JARS)])


@pytest.mark.parametrize(
    ("heap", "collector"), [(512, "-XX:+UseSerialGC"), (1024, "-XX:+UseSerialGC"), (2048, "-XX:+UseG1GC")]
)
def test_the_heap_is_stated_and_its_collector_fits(heap: int, collector: str) -> None:
    command = _command(heap_mib=heap)
    assert f"-Xmx{heap}m" in command
    assert [option for option in command if option.endswith("GC")] == [collector]


@pytest.mark.parametrize(("major", "allowed"), [(17, False), (21, True)])
def test_newer_java_is_asked_to_allow_the_security_manager(major: int, allowed: bool) -> None:
    """Cassandra sets one at start; Java 21 forbids it unless told, Java 17 does not know that it could."""
    command = _command(Java(Path("/j"), major))
    assert ("-Djava.security.manager=allow" in command) is allowed


def test_no_port_for_remote_management_is_opened() -> None:
    """JMX without a password on a port would let every local user in."""
    assert not [option for option in _command() if "jmxremote" in option or "cassandra.jmx" in option]


def test_properties_of_the_caller_come_last() -> None:
    properties = properties_of(
        _settings(properties={"cassandra.unsafesystem": "true", "cassandra.ring_delay_ms": "1"}), FOLDERS
    )
    assert properties["cassandra.unsafesystem"] == "true"
    assert properties["cassandra.ring_delay_ms"] == "1"


def test_java_options_of_the_caller_come_after_ours() -> None:
    command = _command(java_options=("-Xmx333m",))
    assert [option for option in command if option.startswith("-Xmx")] == ["-Xmx768m", "-Xmx333m"]


def test_one_node_waits_less_than_three() -> None:
    alone, together = (properties_of(_settings(nodes=nodes), FOLDERS)["cassandra.ring_delay_ms"] for nodes in (1, 3))
    assert int(alone) < int(together)


def test_the_command_line_names_the_node() -> None:
    assert any(FOLDERS.yaml.as_uri() in option for option in _command())


HOME = Path("/home/ann")


@pytest.mark.parametrize(
    ("environment", "data", "cache"),
    [
        ({}, "/home/ann/.local/share/mailmend", "/home/ann/.cache/mailmend"),
        ({"XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c"}, "/d/mailmend", "/c/mailmend"),
        (
            {"XDG_DATA_HOME": "relative", "XDG_CACHE_HOME": ""},
            "/home/ann/.local/share/mailmend",
            "/home/ann/.cache/mailmend",
        ),
    ],
)
def test_folders_follow_the_xdg_specification(environment: dict[str, str], data: str, cache: str) -> None:
    assert (data_home(environment, HOME), cache_home(environment, HOME)) == (Path(data), Path(cache))


def test_clusters_and_nodes_do_not_share_files() -> None:
    one, other = cluster_folder({}, HOME, "one"), cluster_folder({}, HOME, "other")
    assert one.root != other.root
    assert one.node(1).root != one.node(2).root
    assert not one.lock.is_relative_to(one.root)
    assert isinstance(one.node(1), NodeFolder)
