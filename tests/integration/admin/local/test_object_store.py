"""S3Proxy as `mailmend local up --with s3` runs it: its keys let in, no others; data and keys outlive a stop."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.admin.local import ServerState
from mailmend.admin.local.jars import JarStore
from mailmend.admin.local.s3proxy import S3PROXY, ObjectStore
from mailmend.admin.local.server import Machine, Site
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import LocalServerError
from tests.support.object_stores import OwnS3, throwaway_s3
from tests.support.s3_twin import s3_twin
from tests.support.servers import unavailable

pytestmark = pytest.mark.object_store


@pytest.fixture(scope="module")
def own() -> Iterator[OwnS3]:
    with throwaway_s3() as server:
        yield server


def test_it_says_where_it_is_and_where_its_keys_are(own: OwnS3) -> None:
    status = own.run.status()
    assert status.state is ServerState.UP
    assert status.contacts["s3"] == own.endpoint
    keys = Path(status.contacts["keys"])
    assert own.secret_key in keys.read_text(encoding="ascii")
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.run.folder.stat().st_mode) == 0o700
    [pid] = status.pids
    words = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    assert own.secret_key.encode() not in words
    assert own.access_key.encode() not in words


def test_what_it_prints_holds_no_keys(own: OwnS3) -> None:
    log = own.run.kind.log(own.run.site).read_text(encoding="utf-8", errors="replace")
    assert log
    assert own.secret_key not in log


def test_blobs_and_keys_outlive_a_stop(own: OwnS3) -> None:
    blobs = open_s3(own.bucket())
    blob_id = asyncio.run(blobs.put(b"x", BlobKind.BODY))
    own.stop()
    assert own.run.status().state is ServerState.STOPPED
    own.start()
    assert asyncio.run(blobs.get(blob_id)) == b"x"


def test_another_that_speaks_http_is_not_taken_for_it(tmp_path: Path) -> None:
    with s3_twin() as twin:
        port = int(twin.endpoint.rpartition(":")[2])
        twin.refusals = [(200, "")]
        assert not ObjectStore().answers(Site(tmp_path, {"s3": port}))
        assert twin.asked


def test_its_jar_is_fetched_once_and_verified(tmp_path: Path) -> None:
    """One that was tampered with is not started; with no way to another, that is an error."""
    environment = dict(os.environ)
    cached = JarStore(Machine.of_this_user().cache / S3PROXY.module, environment)
    try:
        [jar] = cached.jars(S3PROXY)
    except LocalServerError as error:
        unavailable(error)
    # Given a copy that somebody changed
    store = JarStore(tmp_path / "s3proxy", {"MAILMEND_MAVEN_REPOSITORY": "http://127.0.0.1:1"})
    store.folder(S3PROXY).mkdir(parents=True)
    (store.folder(S3PROXY) / jar.name).write_bytes(jar.read_bytes()[:-1] + b"x")
    # Then it is not used
    with pytest.raises(LocalServerError, match=r"s3proxy-4\.1\.0\S+ could not be fetched"):
        store.jars(S3PROXY)
    # And the right one is, without anything being fetched
    (store.folder(S3PROXY) / jar.name).write_bytes(jar.read_bytes())
    assert [path.name for path in store.jars(S3PROXY)] == [jar.name]
