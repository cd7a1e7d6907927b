"""The jars on this machine: whole or not at all, verified, fetched once, used without network.

Where a download is played, a few lines of shell stand in for Java and Ivy: they put real jars where Ivy would.
"""

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailmend.admin.local import local_cluster
from mailmend.admin.local.cassandra_node import NEWEST
from mailmend.admin.local.jars import (
    JarStore,
    Java,
    connector_is_here,
    connector_jars,
    connector_program,
    find_java,
    pins_of,
)
from mailmend.model.errors import JavaMissing, LocalServerError
from mailmend.spark_repair.session import coordinates_here
from tests.support.servers import unavailable

NOWHERE = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1"
NO_JAVA = Java(Path("/nowhere/bin/java"), 17)
HALF_MODULES = (
    ("org.slf4j", "slf4j-api", "1.7.26"),
    ("org.reactivestreams", "reactive-streams", "1.0.3"),
)
# Finds the folder that Ivy was told to fill, notes that it was called, and fills it by hard links.
_IVY = """#!/bin/sh
for word in "$@"; do case "$word" in *"/[artifact]"*) lib="${{word%%/\\[*}}" ;; esac; done
echo called >> {calls}
mkdir -p "$lib" && ln {jars}/*.jar "$lib"/
{then}
"""


@pytest.fixture(scope="module")
def real_jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cluster = local_cluster(tmp_path_factory.mktemp("unused"))
    try:
        cluster.store.jars(NEWEST, find_java(NEWEST, cluster.machine.environment))
    except (JavaMissing, LocalServerError) as error:
        unavailable(error)
    return cluster.store.folder(NEWEST)


@pytest.fixture
def near(real_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("near") / "jars"
    shutil.copytree(real_jars, folder)
    return folder


def _store(root: Path, environment: Mapping[str, str] | None = None) -> JarStore:
    return JarStore(root / "store", environment or {"PATH": "/usr/bin:/bin"})


def _ivy(folder: Path, jars: Path, then: str = "") -> Java:
    program = folder / "java"
    program.write_text(_IVY.format(calls=folder / "calls", jars=jars, then=then), encoding="utf-8")
    program.chmod(0o755)
    return Java(program, 17)


def _calls(folder: Path) -> int:
    calls = folder / "calls"
    return len(calls.read_text(encoding="utf-8").splitlines()) if calls.exists() else 0


def test_whole_jars_are_used_without_running_anything(near: Path, tmp_path: Path) -> None:
    # Given a store with every jar, and no Java
    store = _store(tmp_path)
    shutil.copytree(near, store.folder(NEWEST))
    # When the jars are asked for
    jars = store.jars(NEWEST, NO_JAVA)
    # Then there they are
    assert {jar.name for jar in jars} == set(pins_of(NEWEST))


def test_without_network_and_without_jars_the_error_says_so(real_jars: Path, tmp_path: Path) -> None:
    # Given an empty store on a machine without network
    environment = dict(local_cluster(tmp_path).machine.environment) | {"JAVA_TOOL_OPTIONS": NOWHERE}
    store = _store(tmp_path, environment)
    # When the jars are asked for
    with pytest.raises(LocalServerError, match="could not be fetched") as caught:
        store.jars(NEWEST, find_java(NEWEST, environment))
    # Then the log is named and holds more, and nothing half-done is taken for jars
    log = store.root / f"{NEWEST.version}.log"
    assert str(log) in str(caught.value)
    assert "Connection refused" in log.read_text(encoding="utf-8")
    assert not store.folder(NEWEST).exists()


def test_the_connector_of_spark_is_fetched_where_maven_left_half_a_module(tmp_path: Path) -> None:
    """A description without its jar in ~/.m2, as any build by Maven leaves it, and in Ivy's own folder."""
    home, descriptions = tmp_path / "home", "<project><modelVersion>4.0.0</modelVersion>{}</project>"
    for organisation, module, version in HALF_MODULES:
        named = f"<groupId>{organisation}</groupId><artifactId>{module}</artifactId><version>{version}</version>"
        folder = home / ".m2" / "repository" / organisation.replace(".", "/") / module / version
        folder.mkdir(parents=True)
        (folder / f"{module}-{version}.pom").write_text(descriptions.format(named), encoding="utf-8")
        ivy = home / ".ivy2" / "local" / organisation / module / version / "ivys"
        ivy.mkdir(parents=True)
        (ivy / "ivy.xml").write_text("half", encoding="utf-8")
    java = {"JAVA_TOOL_OPTIONS": f"-Duser.home={home}", "HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment = dict(os.environ) | java

    try:
        jars = connector_jars(coordinates_here(), environment=environment)
    except LocalServerError as error:
        if "could not be fetched" not in str(error):
            raise
        unavailable(error)

    assert {jar.name for jar in jars} == set(pins_of(connector_program(coordinates_here())))
    assert connector_is_here(coordinates_here(), environment)


def test_a_jar_of_the_connector_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    environment = dict(os.environ) | {"JAVA_TOOL_OPTIONS": NOWHERE, "XDG_CACHE_HOME": str(tmp_path)}

    with pytest.raises(
        LocalServerError, match=r"module not found: com\.datastax\.oss#java-driver-shaded-guava"
    ) as caught:
        connector_jars(coordinates_here(), environment=environment)

    assert "MAILMEND_IVY_SETTINGS" in str(caught.value)


def test_two_at_once_fetch_once(near: Path, tmp_path: Path) -> None:
    # Given an empty store and two that need it at the same moment
    store, java = _store(tmp_path), _ivy(tmp_path, near)
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda _: store.jars(NEWEST, java), range(2))
    # Then both have all jars, from one download
    assert first == second
    assert len(first) == len(pins_of(NEWEST))
    assert _calls(tmp_path) == 1


@pytest.mark.parametrize("damage", ["truncated", "missing", "unexpected"])
def test_a_damaged_folder_is_fetched_again(near: Path, tmp_path: Path, damage: str) -> None:
    # Given a store in which one jar is not as it should be
    store, java = _store(tmp_path), _ivy(tmp_path, near)
    jar = store.jars(NEWEST, java)[0]
    match damage:
        case "truncated":
            jar.unlink()
            jar.write_bytes(b"half")
        case "missing":
            jar.unlink()
        case _:
            jar.with_name("evil.jar").write_bytes(b"x")
    # When the jars are asked for again
    jars = store.jars(NEWEST, java)
    # Then they are whole, from a second download
    assert {found.name for found in jars} == set(pins_of(NEWEST))
    assert _calls(tmp_path) == 2


def test_jars_that_differ_from_the_tested_ones_are_not_used(near: Path, tmp_path: Path) -> None:
    # Given a mirror that changes one jar
    java = _ivy(tmp_path, near, then='rm "$lib"/jamm-*.jar && echo changed > "$lib"/jamm-0.4.0.jar')
    store = _store(tmp_path)
    # When the jars are asked for
    with pytest.raises(LocalServerError, match=r"not the ones that were tested: jamm-0\.4\.0\.jar"):
        store.jars(NEWEST, java)
    # Then none of them is where a start would look
    assert not store.folder(NEWEST).exists()


def test_an_interrupted_download_leaves_nothing_that_looks_whole(near: Path, tmp_path: Path) -> None:
    # Given a download that stops half-way
    store = _store(tmp_path)
    broken = _ivy(tmp_path, near, then='rm "$lib"/c*.jar; exit 9')
    with pytest.raises(LocalServerError, match="could not be fetched"):
        store.jars(NEWEST, broken)
    assert not store.folder(NEWEST).exists()
    # When it is tried again
    jars = store.jars(NEWEST, _ivy(tmp_path, near))
    # Then it succeeds, and what was left over is gone
    assert len(jars) == len(pins_of(NEWEST))
    assert sorted(path.suffix for path in store.root.iterdir()) == [".9", ".lock", ".log"]
