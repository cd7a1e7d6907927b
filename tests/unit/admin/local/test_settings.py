"""What a cluster is: defaults, what a second start may change, what its data forbid."""

import json

import pytest

from mailmend.admin.local.cassandra_node import (
    NEWEST,
    RELEASES,
    ClusterRequest,
    ClusterSettings,
    first_settings,
    heap_mib,
    hosts_of,
    later_settings,
    release_named,
)
from mailmend.admin.local.jars import JarProgram
from mailmend.model.errors import WrongUse

STORAGE_PORT = 17_001


def _known(nodes: int = 1) -> ClusterSettings:
    return first_settings(ClusterRequest(nodes=nodes, native_port=9999), STORAGE_PORT)


@pytest.mark.parametrize(
    ("text", "size"), [("768m", 768), ("2g", 2048), (" 1500M ", 1500), ("1G", 1024), ("256m", 256)]
)
def test_heap_sizes_are_written_as_java_writes_them(text: str, size: int) -> None:
    assert heap_mib(text) == size


@pytest.mark.parametrize("text", ["", "768", "lots", "-1g", "1.5g", "64m", "0g", "1t", "g0"])
def test_other_heap_sizes_are_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="not a heap size"):
        heap_mib(text)


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [(1, ("127.0.0.1",)), (2, ("127.0.0.1", "127.0.0.2")), (3, ("127.0.0.1", "127.0.0.2", "127.0.0.3"))],
)
def test_each_node_has_a_loopback_address(nodes: int, hosts: tuple[str, ...]) -> None:
    assert hosts_of(nodes) == hosts


@pytest.mark.parametrize("nodes", [-1, 0, 4, 100])
def test_other_numbers_of_nodes_are_refused(nodes: int) -> None:
    with pytest.raises(WrongUse, match="Between 1 and 3"):
        hosts_of(nodes)


def test_who_asked_nothing_gets_one_small_node_of_the_newest_release() -> None:
    settings = first_settings(ClusterRequest(), STORAGE_PORT)
    assert settings == ClusterSettings(
        release=NEWEST, nodes=1, native_port=9042, storage_port=STORAGE_PORT, heap_mib=768
    )


def test_all_that_is_asked_for_is_in_the_settings() -> None:
    asked = ClusterRequest("4.1", 3, 9142, 512, "PasswordAuthenticator", {"num_tokens": 1}, {"a": "b"}, ("-Xint",))
    settings = first_settings(asked, STORAGE_PORT)
    assert settings.release.version == "4.1.10"
    assert (settings.nodes, settings.native_port, settings.heap_mib) == (3, 9142, 512)
    assert settings.authenticator == "PasswordAuthenticator"
    assert (settings.yaml, settings.properties) == ({"num_tokens": 1}, {"a": "b"})
    assert settings.java_options == ("-Xint",)


@pytest.mark.parametrize("request_", [ClusterRequest(), ClusterRequest(version="5.0", nodes=1)])
def test_a_later_start_changes_nothing_unless_asked_for_something_else(request_: ClusterRequest) -> None:
    assert later_settings(_known(), request_) == _known()


def test_a_later_start_may_change_port_heap_and_overrides() -> None:
    """None of these is written in the data."""
    changed = later_settings(
        _known(), ClusterRequest(native_port=9043, heap_mib=1024, yaml={"x": 1}, properties={"y": "z"})
    )
    assert (changed.native_port, changed.heap_mib, changed.yaml, changed.properties) == (
        9043,
        1024,
        {"x": 1},
        {"y": "z"},
    )
    assert changed.storage_port == STORAGE_PORT


@pytest.mark.parametrize("asked", [ClusterRequest(nodes=3), ClusterRequest(version="4.1")])
def test_what_the_data_fix_is_not_changed_in_silence(asked: ClusterRequest) -> None:
    with pytest.raises(WrongUse, match="mailmend local clean"):
        later_settings(_known(), asked)


@pytest.mark.parametrize("nodes", [1, 3])
def test_settings_survive_being_written_down(nodes: int) -> None:
    settings = later_settings(_known(nodes), ClusterRequest(java_options=("-Xint",), yaml={"a": [1]}))
    assert ClusterSettings.from_json(json.loads(json.dumps(settings.as_json()))) == settings


@pytest.mark.parametrize(("line", "release"), RELEASES.items(), ids=list(RELEASES))
def test_a_release_is_known_by_line_and_by_version(line: str, release: JarProgram) -> None:
    assert release_named(line) == release_named(release.version) == release


def test_an_unknown_release_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(WrongUse, match=r"Known are: 5\.0, 4\.1"):
        release_named("3.11")
