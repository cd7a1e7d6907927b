"""What every store of a staging area does: a folder, and a bucket behind a server that speaks S3."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.model.errors import StateUnwritable
from mailmend.repair.staging.area import StagingStore
from mailmend.repair.staging.bucket import StagingBucket
from mailmend.repair.staging.folder import StagingFolder
from tests.support.s3_twin import SECRET, S3Twin, s3_twin


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Twin]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_twin() as server:
        yield server


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StagingStore]:
    in_folder = request.param == "folder"
    made: StagingStore = StagingFolder(tmp_path / "x") if in_folder else bucket(request.getfixturevalue("twin"))
    with made.held():
        yield made


def bucket(twin: S3Twin) -> StagingBucket:
    return StagingBucket(twin.bucket, "mail/staged", twin.endpoint, "us-east-1")


def test_nothing_is_there_at_first(store: StagingStore) -> None:
    assert (store.names(), store.read("one")) == ({}, None)


def test_a_file_is_read_as_it_was_written_last(store: StagingStore) -> None:
    store.write("one", b"first")
    store.write("two", b"")
    store.write("one", b"second")

    assert (store.names(), store.read("one"), store.read("two")) == ({"one": 6, "two": 0}, b"second", b"")


def test_what_is_removed_is_gone_and_what_is_not_there_may_be_removed(store: StagingStore) -> None:
    store.write("one", b"1")
    store.write("two", b"2")

    store.remove(["one", "never"])

    assert (store.names(), store.read("one"), store.read("two")) == ({"two": 1}, None, b"2")


def test_a_refusal_is_reported_without_what_was_signed(twin: S3Twin) -> None:
    twin.refusals = [(403, "AccessDenied")] * 9

    with pytest.raises(StateUnwritable, match="cannot be used: ACCESS_DENIED") as refused:
        bucket(twin).write("one", b"1")

    assert (SECRET in str(refused.value), "AKIATEST" in str(refused.value)) == (False, False)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StagingFolder(tmp_path)
    store.write("one", b"first")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StateUnwritable, match="No space left on device"):
            store.write("one", b"second")

    assert (store.names(), store.read("one")) == ({"one": 5}, b"first")
