"""The jars on this machine: whole or not at all, verified, fetched once, used without network.

A server in this process has real jars in the layout of a Maven repository, and the faults that a test asks for.
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mailmend.admin.local import local_cluster
from mailmend.admin.local.cassandra_node import NEWEST
from mailmend.admin.local.jars import (
    JarStore,
    connector_is_here,
    connector_jars,
    connector_program,
    pins_of,
)
from mailmend.model.errors import LocalServerError
from mailmend.spark_repair.session import coordinates_here
from tests.support.servers import unavailable

JAMM = next(path for path in pins_of(NEWEST) if "/jamm/" in path)


@pytest.fixture(scope="module")
def real_jars() -> Path:
    cluster = local_cluster(Path("/nonexistent"))
    try:
        cluster.store.jars(NEWEST)
    except LocalServerError as error:
        unavailable(error)
    return cluster.store.folder(NEWEST)


@dataclass(slots=True)
class Repository:
    """A Maven repository over HTTP.

    Attributes:
        jars: the folder that has its jars.
        asked: the path of each request, in order.
        cut: paths whose next answer ends after half of its bytes.
        broken: paths that get status 503 until they are taken out.
        changed: paths whose content is another one.
        logins: the header Authorization of each request.
    """

    jars: Path
    address: str = ""
    asked: list[str] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    logins: list[str | None] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.removeprefix("/maven2/")
        self.asked.append(path)
        self.logins.append(request.headers["Authorization"])
        content = (self.jars / Path(path).name).read_bytes()
        if path in self.changed:
            content = b"changed"
        status = HTTPStatus.OK
        if path in self.broken:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            content = b""
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if path in self.cut:
            self.cut.remove(path)
            content = content[: len(content) // 2]
        request.wfile.write(content)


@pytest.fixture
def repository(real_jars: Path) -> Iterator[Repository]:
    served = Repository(real_jars)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        served.address = f"127.0.0.1:{server.server_port}/maven2"
        yield served
        server.shutdown()
        serving.join()


def _store(root: Path, repository: Repository) -> JarStore:
    return _store_of(root, f"http://{repository.address}/")


def _store_of(root: Path, address: str) -> JarStore:
    return JarStore(root / "store", {"MAILMEND_MAVEN_REPOSITORY": address})


def _names() -> set[str]:
    return {Path(path).name for path in pins_of(NEWEST)}


def test_whole_jars_are_used_without_network(real_jars: Path, tmp_path: Path) -> None:
    # Given a store with every jar, and a repository that does not answer
    store = _store_of(tmp_path, "http://127.0.0.1:1")
    shutil.copytree(real_jars, store.folder(NEWEST))
    # When the jars are asked for
    jars = store.jars(NEWEST)
    # Then there they are
    assert {jar.name for jar in jars} == _names()


def test_every_jar_is_fetched_once_into_an_empty_store(repository: Repository, tmp_path: Path) -> None:
    store = _store(tmp_path, repository)

    jars = store.jars(NEWEST)

    assert {jar.name for jar in jars} == _names()
    assert sorted(repository.asked) == sorted(pins_of(NEWEST))
    assert sorted(path.name for path in store.root.iterdir()) == [NEWEST.version, f"{NEWEST.version}.lock"]


def test_a_folder_serves_as_a_repository(real_jars: Path, tmp_path: Path) -> None:
    # Given a mirror in a folder
    for path in pins_of(NEWEST):
        place = tmp_path / "mirror" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(real_jars.resolve() / place.name)  # a hard link would need one file system
    # When a store fetches from it
    jars = _store_of(tmp_path, (tmp_path / "mirror").as_uri()).jars(NEWEST)
    # Then all jars are there
    assert {jar.name for jar in jars} == _names()


def test_a_mirror_gets_its_login(repository: Repository, tmp_path: Path) -> None:
    _store_of(tmp_path, f"http://me:secret@{repository.address}").jars(NEWEST)

    assert set(repository.logins) == {"Basic bWU6c2VjcmV0"}


def test_without_network_and_without_jars_the_error_names_what_to_set(tmp_path: Path) -> None:
    # Given an empty store, and a repository that does not answer
    store = _store_of(tmp_path, "http://me:secret@127.0.0.1:1")
    # When the jars are asked for
    with pytest.raises(LocalServerError, match="could not be fetched") as caught:
        store.jars(NEWEST)
    # Then the error has the address of a jar and the names of variables, no password, and no folder looks whole
    assert "http://127.0.0.1:1/" in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "https_proxy" in str(caught.value)
    assert "MAILMEND_MAVEN_REPOSITORY" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not store.folder(NEWEST).exists()


def test_a_connection_that_ends_early_is_tried_again(repository: Repository, tmp_path: Path) -> None:
    repository.cut.add(JAMM)

    jars = _store(tmp_path, repository).jars(NEWEST)

    assert {jar.name for jar in jars} == _names()
    assert repository.asked.count(JAMM) == 2


def test_the_connector_of_spark_is_fetched(tmp_path: Path) -> None:
    environment = dict(os.environ) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    try:
        jars = connector_jars(coordinates_here(), environment=environment)
    except LocalServerError as error:
        if "could not be fetched" not in str(error):
            raise
        unavailable(error)

    assert {jar.name for jar in jars} == {Path(path).name for path in pins_of(connector_program(coordinates_here()))}
    assert connector_is_here(coordinates_here(), environment)


def test_two_at_once_fetch_once(repository: Repository, tmp_path: Path) -> None:
    # Given an empty store and two that need it at the same moment
    store = _store(tmp_path, repository)
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda _: store.jars(NEWEST), range(2))
    # Then both have all jars, from one download
    assert first == second
    assert len(repository.asked) == len(pins_of(NEWEST))


@pytest.mark.parametrize("damage", ["truncated", "missing", "unexpected"])
def test_a_damaged_folder_is_fetched_again(repository: Repository, tmp_path: Path, damage: str) -> None:
    # Given a store in which one jar is not as it should be
    store = _store(tmp_path, repository)
    jar = store.jars(NEWEST)[0]
    match damage:
        case "truncated":
            jar.write_bytes(b"half")
        case "missing":
            jar.unlink()
        case _:
            jar.with_name("evil.jar").write_bytes(b"x")
    # When the jars are asked for again
    jars = store.jars(NEWEST)
    # Then they are whole
    assert {found.name for found in jars} == _names()


def test_jars_that_differ_from_the_tested_ones_are_not_used(repository: Repository, tmp_path: Path) -> None:
    # Given a mirror that changes one jar
    repository.changed.add(JAMM)
    store = _store(tmp_path, repository)
    # When the jars are asked for
    with pytest.raises(LocalServerError, match=f"{Path(JAMM).name} is not the jar that was tested"):
        store.jars(NEWEST)
    # Then none of them is where a start would look
    assert not store.folder(NEWEST).exists()


def test_an_interrupted_download_goes_on_with_what_is_missing(repository: Repository, tmp_path: Path) -> None:
    # Given a download that stopped half-way, and left half of a jar
    store = _store(tmp_path, repository)
    last = list(pins_of(NEWEST))[-1]
    repository.broken.add(last)
    with pytest.raises(LocalServerError, match=r"could not be fetched.*503"):
        store.jars(NEWEST)
    assert not store.folder(NEWEST).exists()
    before = set(repository.asked) - {last}
    # When it is tried again
    repository.broken.clear()
    repository.asked.clear()
    jars = store.jars(NEWEST)
    # Then it succeeds, and no jar is fetched twice
    assert {jar.name for jar in jars} == _names()
    assert last in repository.asked
    assert not before & set(repository.asked)
