"""Blobs in files of a real disk: whole or not there, durable when they are told of, and never taken for lost."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.blobs import files as file_blobs
from mailmend.mailqueue.blobs.files import LEFT_BEHIND_AFTER
from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import BlobMissing, BlobsUnreachable
from mailmend.model.ids import BlobId
from mailmend.repair.clock import SystemClock
from tests.support.blobs import RANDOM_IDS, SHARED_IDS
from tests.support.checkout import CHECKOUT
from tests.support.disk import full_after

BODY = BlobKind.BODY
OWN = BlobId("1_692_0f9a3c1e-7b0d-4c55-9a51-2f60d4a8c7e1")
# Writes a blob as a process that is killed at the very moment when its bytes would go to the disk.
_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.model.blobs import BlobKind

blobs = open_files(Path(sys.argv[1]))
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(blobs.put(b"x" * 100_000, BlobKind.BODY))
"""


# Writes a mail as a process that is killed at one of its syncs.
_KILLED_BETWEEN = """
import asyncio, os, signal, sys
from pathlib import Path
from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.mailqueue.blobs.stores import put_content

blobs = open_files(Path(sys.argv[1]))
left, fsync = int(sys.argv[2]), os.fsync

def sync(handle):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(handle)

os.fsync = sync
asyncio.run(put_content(blobs, b"Subject: x\\r\\n\\r\\n" + b"x" * 1_000))
print("acknowledged", flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "of mail" / "blobs"


@pytest.fixture
def blobs(root: Path) -> NamedBlobs:
    return open_files(root)


async def _listed(blobs: NamedBlobs) -> set[BlobId]:
    return {blob.blob_id async for blob in blobs.scan()}


def listed(blobs: NamedBlobs) -> set[BlobId]:
    return asyncio.run(_listed(blobs))


def test_blobs_are_found_by_whoever_opens_the_folder_next(root: Path, blobs: NamedBlobs) -> None:
    blob_id = asyncio.run(blobs.put(b"x", BODY))
    assert asyncio.run(open_files(root).get(blob_id)) == b"x"


def test_other_peoples_mail_is_nobody_elses_to_read(root: Path, blobs: NamedBlobs) -> None:
    before = os.umask(0)
    try:
        asyncio.run(open_files(root / "below").put(b"x", BODY))
        asyncio.run(blobs.put(b"x", BODY))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert modes == {0o700, 0o600}


@pytest.mark.parametrize("text", [*RANDOM_IDS, *SHARED_IDS])
def test_every_id_is_one_file_of_the_folder(root: Path, blobs: NamedBlobs, text: str) -> None:
    asyncio.run(blobs.store.keep(BlobId(text), b"x"))
    [file] = [path for path in root.iterdir() if path.name != ".unfinished"]
    assert file.is_file()
    assert file.read_bytes() == b"x"


def test_a_blob_is_on_the_disk_before_it_has_its_name(
    root: Path, blobs: NamedBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes, its name, then the folder that holds the name: told of only after all three."""
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "bytes")
        fsync(descriptor)

    def note_replace(path: Path, target: Path) -> Path:
        order.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    asyncio.run(blobs.put(b"x", BODY))
    assert order == ["bytes", "name", "folder"]


def test_a_writer_that_is_killed_leaves_no_blob(root: Path, blobs: NamedBlobs) -> None:
    # Given a blob, and a process that is killed while it writes another
    kept = asyncio.run(blobs.put(b"x", BODY))
    here = {"PYTHONPATH": str(CHECKOUT)}
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(root)], check=False, env=here)
    assert killed.returncode == -signal.SIGKILL
    # Then only the first is there
    assert listed(blobs) == {kept}
    [left] = (root / ".unfinished").iterdir()
    # And what is left stays as long as somebody may be writing it
    open_files(root)
    assert left.exists()
    long_ago = left.stat().st_mtime - LEFT_BEHIND_AFTER.total_seconds() - 60
    os.utime(left, (long_ago, long_ago))
    open_files(root)
    assert not left.exists()
    assert listed(blobs) == {kept}


@pytest.mark.parametrize("sync", [1, 2, 3, 4])
def test_a_mail_that_is_killed_at_a_sync_is_not_acknowledged_and_leaves_whole_blobs(
    root: Path, blobs: NamedBlobs, sync: int
) -> None:
    # Given a process that is killed at one of its syncs; a mail has three
    words = [sys.executable, "-c", _KILLED_BETWEEN, str(root), str(sync)]
    ended = subprocess.run(words, check=False, env={"PYTHONPATH": str(CHECKOUT)}, capture_output=True)
    # Then a mail is acknowledged only behind all of them, and what has a name is whole
    assert ended.stdout == (b"acknowledged\n" if sync > 3 else b"")
    sizes = {path.stat().st_size for path in root.iterdir() if path.is_file()}
    assert sizes <= {len(b"Subject: x\r\n\r\n"), 1_000}
    assert len(sizes) == min(sync - 1, 2)


def test_what_is_being_written_is_young_by_the_stores_own_clock(root: Path, blobs: NamedBlobs) -> None:
    writing = root / ".unfinished" / "of another"
    writing.write_bytes(b"x")

    class Later(SystemClock):
        def micros(self) -> int:
            return super().micros() + (LEFT_BEHIND_AFTER + timedelta(minutes=1)) // timedelta(microseconds=1)

    open_files(root)
    assert writing.exists()
    open_files(root, Later())
    assert not writing.exists()


def test_what_somebody_else_put_there_is_neither_listed_nor_touched(root: Path, blobs: NamedBlobs) -> None:
    (root / "lost+found").mkdir()
    (root / ".hidden").write_text("x")
    (root / "a note.txt").write_text("x")
    (root / "1_692_link").symlink_to("/etc/hostname")
    blob_id = asyncio.run(blobs.put(b"x", BODY))
    assert listed(blobs) == {blob_id}
    assert len(list(root.iterdir())) == 6


ASKS: dict[str, Callable[[NamedBlobs], Awaitable[object]]] = {
    "put": lambda blobs: blobs.put(b"x", BODY),
    "get": lambda blobs: blobs.get(OWN),
    "exists": lambda blobs: blobs.exists(OWN),
    "delete": lambda blobs: blobs.delete(OWN),
    "scan": _listed,
}


async def _result(asked: Awaitable[object]) -> object:
    return await asked


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_a_disk_that_is_gone_is_no_store_without_blobs(
    root: Path, blobs: NamedBlobs, ask: Callable[[NamedBlobs], Awaitable[object]]
) -> None:
    """An empty folder where it was mounted would have every mail given up; what is there is left alone."""
    # Given a store whose disk goes away, and leaves the folder that it was mounted on
    (root / ".unfinished").rmdir()
    # Then it cannot be reached
    with pytest.raises(BlobsUnreachable, match="cannot be reached") as caught:
        asyncio.run(_result(ask(blobs)))
    assert str(root) in caught.value.what
    assert "mounted" in caught.value.mend


def test_a_missing_blob_is_missing_where_the_store_is_there(root: Path, blobs: NamedBlobs) -> None:
    with pytest.raises(BlobMissing) as caught:
        asyncio.run(blobs.get(OWN))
    assert str(root) in caught.value.mend


def test_a_full_disk_leaves_nothing_half(root: Path, blobs: NamedBlobs) -> None:
    kept = asyncio.run(blobs.put(b"x", BODY))
    with full_after(1000), pytest.raises(BlobsUnreachable, match="cannot be reached"):
        asyncio.run(blobs.put(b"x" * 5000, BODY))
    assert listed(blobs) == {kept}
    assert not list((root / ".unfinished").iterdir())
    assert asyncio.run(blobs.put(b"x" * 5000, BODY)) in listed(blobs)


@pytest.mark.parametrize("place", ["/proc/blobs", "a file"])
def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("x")
    with pytest.raises(BlobsUnreachable, match="cannot be reached") as caught:
        open_files(tmp_path / place)
    assert caught.value.mend


async def test_many_are_written_at_once_and_listed_in_pages(
    root: Path, blobs: NamedBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_blobs, "PAGE_FILES", 7)
    ids = await asyncio.gather(*(blobs.put(str(number).encode(), BODY) for number in range(50)))
    assert await _listed(blobs) == set(ids)
    assert len(list(root.iterdir())) == 51
