"""How the jars are asked for, what Ivy's lines mean, and what a download is compared with."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mailmend.admin.local.cassandra_node import RELEASES
from mailmend.admin.local.jars import (
    JarProgram,
    Java,
    differences,
    event_in,
    jars_listed,
    module_text,
    parse_pins,
    pins_of,
    problem_in,
    resolve_command,
)
from mailmend.admin.local.pulsar import PULSAR
from mailmend.admin.local.s3proxy import S3PROXY
from tests.support.james_jars import PINNED
from tests.support.james_jars import PROGRAM as JAMES

JAVA = Java(Path("/jdk/bin/java"), 17)
RELEASE = RELEASES["5.0"]


MODULE = Path("/module.xml")


def _command(environment: dict[str, str], program: JarProgram = RELEASE) -> list[str]:
    module = MODULE if module_text(program, jars_listed(program)) else None
    places = {"lib": Path("/lib"), "cache": Path("/cache")}
    return resolve_command(JAVA, Path("/ivy.jar"), program, module=module, **places, environment=environment)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("\tfound org.slf4j#slf4j-api;2.0.17 in public\n", "found"),
        ("\t[SUCCESSFUL ] org.ow2.asm#asm;9.4!asm.jar (353ms)\n", "fetched"),
        ("downloading somewhere/asm-9.4.jar ...\n", None),
        (".... (33kB)\n", None),
        ("", None),
        ("we found it in public", None),
    ],
)
def test_progress_is_read_from_ivys_lines(line: str, event: str | None) -> None:
    assert event_in(line) == event


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (
            "x\n\tServer access error at url u (Connection refused)\ny",
            "Server access error at url u (Connection refused)",
        ),
        (":: problems ::\n\t\tmodule not found: a#b;1\n", "module not found: a#b;1"),
        ("\t\t:: org.x#y;5: not found\n", "org.x#y;5: not found"),
        ("all is well", ""),
        ("", ""),
    ],
)
def test_the_first_problem_is_quoted(output: str, problem: str) -> None:
    assert problem_in(output) == problem


def test_the_release_is_asked_for_by_coordinate() -> None:
    command = _command({})
    assert command[command.index("-dependency") + 1 :][:3] == ["org.apache.cassandra", "cassandra-all", RELEASE.version]
    assert "/lib/[artifact]-[revision](-[classifier]).[ext]" in command
    assert "-ivy" not in command


def test_one_jar_of_several_is_asked_for_in_a_module() -> None:
    """Ivy's command line has no word for a classifier; and what the jar's pom needs is in the jar already."""
    command = _command({}, S3PROXY)
    assert command[command.index("-ivy") + 1] == str(MODULE)
    assert "-dependency" not in command
    [dependency] = ET.fromstring(module_text(S3PROXY)).iter("dependency")
    named = {"org": "org.gaul", "name": "s3proxy", "rev": "4.1.0", "conf": "default"}
    assert dependency.attrib == {**named, "transitive": "false"}
    [artifact] = dependency
    assert artifact.attrib["{http://ant.apache.org/ivy/maven}classifier"] == "jar-with-dependencies"


def test_a_program_of_several_modules_is_asked_for_in_a_module() -> None:
    command = _command({}, JAMES)
    assert command[command.index("-ivy") + 1] == str(MODULE)
    needed = list(ET.fromstring(module_text(JAMES)).iter("dependency"))
    assert [(one.get("org"), one.get("name"), one.get("rev")) for one in needed] == [JAMES.coordinate, *JAMES.beside]
    assert not any("transitive" in one.attrib for one in needed)
    assert not module_text(RELEASE)


def test_a_program_whose_jars_are_listed_gets_these_and_no_others() -> None:
    """Pulsar's own poms rely on versions that a pom imports, which Ivy does not read."""
    command, needed = _command({}, PULSAR), ET.fromstring(module_text(PULSAR, jars_listed(PULSAR))).iter("dependency")
    assert command[command.index("-ivy") + 1] == str(MODULE)
    found = [(one.get("name"), one.get("rev"), one.get("transitive"), len(one)) for one in needed]
    assert ("pulsar-broker", PULSAR.version, "false", 1) in found
    assert ("netty-transport-native-epoll", "4.1.136.Final", "false", 2) in found
    assert {transitive for _, _, transitive, _ in found} == {"false"}


def test_every_listed_jar_is_pinned() -> None:
    named = {
        f"{module}-{version}{'-' * bool(classifier)}{classifier}.jar"
        for (_, module, version), classifier in jars_listed(PULSAR)
    }
    assert named == pins_of(PULSAR).keys()
    assert not jars_listed(S3PROXY)


def test_a_list_of_checksums_may_lie_elsewhere() -> None:
    pinned = pins_of(JAMES, PINNED)
    assert {"james-server-queue-rabbitmq-3.8.1.jar", "blob-cassandra-3.8.1.jar", "guice-5.1.0.jar"} < pinned.keys()
    assert all(len(digest) == 64 for digest in pinned.values())


def test_one_jar_is_pinned_under_the_name_that_ivy_gives_it() -> None:
    assert list(pins_of(S3PROXY)) == [f"s3proxy-{S3PROXY.version}-{S3PROXY.classifier}.jar"]
    assert S3PROXY.name == "S3Proxy 4.1.0"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, []),
        ({"https_proxy": ""}, []),
        ({"https_proxy": "http://proxy.example:3129"}, ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3129"]),
        ({"HTTPS_PROXY": "proxy.example"}, ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]),
    ],
)
def test_the_proxy_of_the_environment_is_handed_to_java(environment: dict[str, str], expected: list[str]) -> None:
    assert [option for option in _command(environment) if "proxy" in option] == expected


def test_a_settings_file_of_the_site_replaces_the_default_resolver() -> None:
    command = _command({"MAILMEND_IVY_SETTINGS": "/etc/ivy.xml"})
    assert command[command.index("-settings") + 1] == "/etc/ivy.xml"
    assert "-settings" not in _command({})


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.version)
def test_every_release_has_its_jars_pinned(release: JarProgram) -> None:
    pins = pins_of(release)
    assert f"cassandra-all-{release.version}.jar" in pins
    assert len([name for name in pins if name.startswith("jamm-")]) == 1
    assert all(len(digest) == 64 for digest in pins.values())


def test_pins_are_what_sha256sum_writes() -> None:
    assert parse_pins("aa  one.jar\nbb  two.jar\n\n") == {"one.jar": "aa", "two.jar": "bb"}


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        ({"a": "1", "b": "2"}, []),
        ({"a": "1"}, ["b"]),
        ({"a": "1", "b": "9"}, ["b"]),
        ({"a": "1", "b": "2", "c": "3"}, ["c"]),
        ({}, ["a", "b"]),
    ],
    ids=["same", "missing", "changed", "unexpected", "empty"],
)
def test_every_difference_from_the_pins_is_named(seen: dict[str, str], wrong: list[str]) -> None:
    assert differences({"a": "1", "b": "2"}, seen) == wrong
