"""What jars are compared with, and where they are fetched from."""

import hashlib
from pathlib import Path

import pytest

from mailmend.admin.local import jars
from mailmend.admin.local.cassandra_node import RELEASES
from mailmend.admin.local.jars import (
    JarProgram,
    MavenRepository,
    connector_program,
    differences,
    parse_pins,
    pins_of,
)
from mailmend.admin.local.pulsar import PULSAR
from mailmend.admin.local.s3proxy import S3PROXY
from mailmend.model.errors import LocalServerError, WrongUse
from mailmend.repair.retries import Retries, RetryPolicy
from mailmend.spark_repair.session import CONNECTORS
from tests.support.clock import VirtualClock
from tests.support.james_jars import PINNED
from tests.support.james_jars import PROGRAM as JAMES
from tests.support.proxies import set_proxies, small_server

PROGRAMS = (*RELEASES.values(), PULSAR, S3PROXY, *map(connector_program, CONNECTORS.values()))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.module}-{program.version}")
def test_every_jar_of_a_program_has_its_checksum_and_its_path_in_a_repository(program: JarProgram) -> None:
    pins = pins_of(program)

    assert [path for path in pins if path.endswith(f"/{program.module}/{program.version}/{Path(path).name}")]
    assert {len(digest) for digest in pins.values()} == {64}
    # Maven's layout: the name of a jar begins with the module and the version, which are its folders.
    for path in pins:
        *_, module, version, name = path.split("/")
        assert name.startswith(f"{module}-{version}")
        assert name.endswith(".jar")


def test_no_two_jars_of_a_program_have_the_same_name() -> None:
    for program in PROGRAMS:
        paths = pins_of(program)
        assert len({Path(path).name for path in paths}) == len(paths)


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.version)
def test_every_cassandra_has_its_one_agent(release: JarProgram) -> None:
    assert len([path for path in pins_of(release) if "/jamm/" in path]) == 1


@pytest.mark.parametrize("coordinates", CONNECTORS.values())
def test_the_connector_brings_no_scala_as_spark_has_its_own(coordinates: str) -> None:
    assert not [path for path in pins_of(connector_program(coordinates)) if "/scala-library/" in path]


def test_a_list_of_jars_may_lie_elsewhere() -> None:
    names = {Path(path).name for path in pins_of(JAMES, PINNED)}

    assert {"james-server-queue-rabbitmq-3.8.1.jar", "blob-cassandra-3.8.1.jar", "guice-5.1.0.jar"} < names


def test_pins_are_what_sha256sum_writes() -> None:
    assert parse_pins("aa  x/one/1/one-1.jar\nbb  y/two/2/two-2.jar\n\n") == {
        "x/one/1/one-1.jar": "aa",
        "y/two/2/two-2.jar": "bb",
    }


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
    assert differences({"org/a/1/a": "1", "org/b/1/b": "2"}, seen) == wrong


def test_without_a_mirror_jars_come_from_maven_central() -> None:
    assert MavenRepository.of({}) == MavenRepository("https://repo1.maven.org/maven2")


def test_the_password_of_a_mirror_is_in_no_text() -> None:
    # "a:b" and "p@ss", as an address has to spell them
    environment = {"MAILMEND_MAVEN_REPOSITORY": "https://a%3Ab:p%40ss@maven.example:8443/all/"}

    mirror = MavenRepository.of(environment)

    assert mirror.address == "https://maven.example:8443/all"
    assert mirror.authorization == "Basic YTpiOnBAc3M="
    assert mirror.authorization not in repr(mirror)


def test_an_address_of_another_kind_is_refused_without_its_password() -> None:
    with pytest.raises(WrongUse, match="MAILMEND_MAVEN_REPOSITORY") as caught:
        MavenRepository.of({"MAILMEND_MAVEN_REPOSITORY": "ftp://user:secret@maven.example/all"})

    assert "ftp://maven.example/all" in str(caught.value)
    assert "secret" not in str(caught.value)


JAR = b"a jar"
DIGEST = hashlib.sha256(JAR).hexdigest()


def test_a_jar_beyond_a_proxy_is_fetched_through_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with small_server(content=JAR) as proxy:
        set_proxies(monkeypatch, http_proxy=proxy.url)
        MavenRepository("http://maven.example.org/all", "Basic bWU6c2VjcmV0").fetch("org/a+b/a.jar", DIGEST, tmp_path)

    assert (tmp_path / "a.jar").read_bytes() == JAR
    assert proxy.asked == ["GET http://maven.example.org/all/org/a%2Bb/a.jar"]
    assert proxy.seen[0]["Authorization"] == "Basic bWU6c2VjcmV0"


def test_a_mirror_on_this_machine_is_asked_without_the_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_proxies(monkeypatch, http_proxy="http://127.0.0.1:1")
    with small_server(content=JAR) as mirror:
        MavenRepository(mirror.url).fetch("org/a.jar", DIGEST, tmp_path)

    assert mirror.asked == ["GET /org/a.jar"]


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (407, 1), (429, 3), (503, 3)])
def test_an_answer_that_may_pass_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, tries: int
) -> None:
    monkeypatch.setattr(jars, "_RETRIES", Retries(VirtualClock(), RetryPolicy(retries=2)))
    with small_server(status) as mirror, pytest.raises(LocalServerError, match=f"the repository answers {status}"):
        MavenRepository(mirror.url).fetch("org/a.jar", DIGEST, tmp_path)

    assert len(mirror.asked) == tries


def test_a_folder_without_the_jar_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match=r"org/a.jar could not be fetched: .*No such file"):
        MavenRepository.of({"MAILMEND_MAVEN_REPOSITORY": tmp_path.as_uri()}).fetch("org/a.jar", DIGEST, tmp_path)
