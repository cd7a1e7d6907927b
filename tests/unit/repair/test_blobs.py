"""Blobs on disk: what `put` returned is there after a crash, whole, once, under a name that tells what it holds."""

import os
from pathlib import Path

import pytest

from model.errors import MailmendError
from repair.writing.blob_files import FileBlobs, MemoryBlobs, MessageBlobs, blob_id_of
from tests.support.disk import full_after


@pytest.fixture(params=["files", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> MessageBlobs:
    """Each adapter of the port."""
    return FileBlobs(tmp_path) if request.param == "files" else MemoryBlobs()


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000])
def test_what_is_kept_comes_back(blobs: MessageBlobs, data: bytes) -> None:
    """The same bytes under the id."""
    assert blobs.get(blobs.put(data)) == data


def test_equal_bytes_are_one_blob(blobs: MessageBlobs) -> None:
    """The id tells what it holds, as James's deduplicating store makes it."""
    assert blobs.put(b"hello") == blobs.put(b"hello") == "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="


@pytest.mark.parametrize("blob_id", [blob_id_of(b"never kept"), "not base64!", "../../etc/passwd", ""])
def test_what_was_never_kept_is_unknown(blobs: MessageBlobs, blob_id: str) -> None:
    """A KeyError; no id leads out of the directory."""
    with pytest.raises(KeyError):
        blobs.get(blob_id)


def test_a_file_appears_whole_and_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are synced before the name is given, the name before `put` returns."""
    order: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(handle: int) -> None:
        order.append("sync")
        sync(handle)

    def renamed(path: Path, target: Path) -> Path:
        order.append("name")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    store = FileBlobs(tmp_path)
    store.put(b"first")
    assert order[-3:] == ["sync", "name", "sync"]
    order.clear()
    store.put(b"first")
    assert order == [], "what is there already is not written again"


def test_a_leftover_draft_is_no_blob(tmp_path: Path) -> None:
    """A kill in the middle leaves a hidden draft, which nobody mistakes for the blob."""
    store = FileBlobs(tmp_path)
    path = store._path(blob_id_of(b"half"))
    path.parent.mkdir(parents=True)
    path.with_name(f".{path.name}.1.1").write_bytes(b"ha")
    assert store.get(store.put(b"half")) == b"half"


def test_damage_is_noticed(tmp_path: Path) -> None:
    """A file that no longer holds what its name says is not handed out."""
    store = FileBlobs(tmp_path)
    blob_id = store.put(b"hello")
    store._path(blob_id).write_bytes(b"jello")
    with pytest.raises(MailmendError, match="damaged"):
        store.get(blob_id)


def test_a_refusing_disk_is_said(tmp_path: Path) -> None:
    """No room, no permission, no directory: an error that names the place, before anything is written elsewhere."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MailmendError, match="could not be kept"):
        FileBlobs(tmp_path / "file" / "blobs").put(b"x")


def test_a_full_disk_leaves_no_half_blob_behind(tmp_path: Path) -> None:
    """What fitted is given back, so that there is room again for what follows; the same blob can be put later."""
    store = FileBlobs(tmp_path)

    with full_after(1000), pytest.raises(MailmendError, match="File too large"):
        store.put(b"x" * 5000)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert store.get(store.put(b"x" * 5000)) == b"x" * 5000
