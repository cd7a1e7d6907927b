"""Blobs of many mails in few turns of threads: what goes together, and that no writer is answered too early."""

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.blobs import batches as rule
from mailmend.mailqueue.blobs.batches import Batches, ThreadedBatches
from mailmend.mailqueue.blobs.files import FileStore
from mailmend.model.errors import BlobsUnreachable
from mailmend.model.ids import BlobId
from mailmend.repair import synced_files
from mailmend.repair.clock import SystemClock

LARGE = rule.FULL_BYTES


def begun(batches: Batches[str], *items: tuple[str, int]) -> list[str]:
    for item, size in items:
        batches.add(item, size)
    return ["".join(batch) for batch in iter(batches.begun, ())]


class TestRule:
    """A batch begins when none is under way, or when enough waits."""

    def test_the_first_goes_at_once_and_what_comes_meanwhile_goes_together(self) -> None:
        batches = Batches[str]()
        assert begun(batches, ("a", 1)) == ["a"]
        assert begun(batches, ("b", 1), ("c", 1)) == []
        batches.ended()
        assert begun(batches) == ["bc"]

    def test_enough_items_begin_another_batch_while_the_disk_is_slow(self) -> None:
        batches = Batches[str]()
        begun(batches, ("a", 1))
        assert begun(batches, *(("b", 1) for _ in range(rule.FULL_ITEMS))) == ["b" * rule.FULL_ITEMS]
        assert batches.under_way == 2

    def test_a_large_item_goes_alone_and_keeps_no_small_one_waiting(self) -> None:
        batches = Batches[str]()
        begun(batches, ("a", 1))
        assert begun(batches, ("b", 1), ("L", LARGE), ("c", 1)) == ["b", "L"]
        batches.ended()
        assert begun(batches) == []
        batches.ended()
        batches.ended()
        assert begun(batches) == ["c"]

    @given(st.lists(st.integers(0, LARGE) | st.none()))
    def test_batches_are_in_order_and_bounded_and_something_is_under_way_where_anything_waits(
        self, steps: list[int | None]
    ) -> None:
        batches = Batches[int]()
        sizes = list[int]()
        out = list[int]()
        for size in steps:
            if size is not None:
                batches.add(len(sizes), size)
                sizes.append(size)
            elif batches.under_way:
                batches.ended()
            for batch in iter(batches.begun, ()):
                out += batch
                assert len(batch) == 1 or sum(sizes[item] for item in batch) <= rule.FULL_BYTES
                assert len(batch) <= rule.BATCH_ITEMS
            assert batches.under_way <= rule.BATCHES_AT_ONCE
            assert batches.under_way or len(out) == len(sizes)
        assert out == list(range(len(out)))


class Disk:
    """Notes what happens to the names of one folder, by number of the step."""

    def __init__(self) -> None:
        self._steps = count()
        self.syncs = list[tuple[int, int]]()
        self.named = dict[str, int]()
        self.synced_files = set[int]()
        self.unsynced = list[str]()

    @contextmanager
    def watched(self) -> Iterator[None]:
        fsync, replace, sync_folder = os.fsync, Path.replace, synced_files.sync_folder

        def note_fsync(handle: int) -> None:
            fsync(handle)
            self.synced_files.add(os.fstat(handle).st_ino)

        def note_name(part: Path, path: Path) -> Path:
            if part.stat().st_ino not in self.synced_files:
                self.unsynced.append(path.name)
            named = replace(part, path)
            self.named[path.name] = next(self._steps)
            return named

        def note_sync(folder: Path) -> None:
            began = next(self._steps)
            sync_folder(folder)
            self.syncs.append((began, next(self._steps)))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "fsync", note_fsync)
            patched.setattr(Path, "replace", note_name)
            patched.setattr(synced_files, "sync_folder", note_sync)
            yield

    def is_durable(self, name: str) -> bool:
        """Whether a sync of the folder has begun after the file had its name, and has ended."""
        return any(began > self.named[name] for began, _ in self.syncs)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 10, LARGE])), min_size=1, max_size=24))
def test_no_writer_is_answered_before_a_sync_that_began_after_its_files_had_their_names(
    writers: list[tuple[int, int]],
) -> None:
    disk = Disk()

    async def write(store: FileStore, number: int, turns: int, size: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        ids = [BlobId(f"1_1_{number}{part}") for part in "ab"]
        assert await store.keep_all(dict.fromkeys(ids, b"x" * size)) == [None, None]
        assert all(disk.is_durable(blob_id) for blob_id in ids)

    async def all_written(store: FileStore) -> None:
        async with asyncio.TaskGroup() as group:
            for number, writer in enumerate(writers):
                group.create_task(write(store, number, *writer))

    with TemporaryDirectory() as folder:
        store = FileStore(Path(folder), SystemClock())
        store.create()
        with disk.watched():
            asyncio.run(all_written(store))
    assert not disk.unsynced
    assert len(disk.syncs) <= len(writers)


async def test_mails_that_wait_at_the_same_time_share_a_turn_and_a_sync(tmp_path: Path) -> None:
    disk = Disk()
    store = FileStore(tmp_path, SystemClock())
    store.create()
    with disk.watched():
        await asyncio.gather(*(store.keep_all({BlobId(f"1_1_{n}"): b"x"}) for n in range(rule.FULL_ITEMS)))
    assert len(disk.syncs) == 2, "the first one alone, the others together"


async def test_a_file_that_fails_fails_alone(tmp_path: Path) -> None:
    """Given a name that is taken by a folder, when three mails are kept together, then the other two are kept."""
    store = FileStore(tmp_path, SystemClock())
    store.create()
    (tmp_path / "1_1_bad").mkdir()
    names = ["good", "bad", "other"]
    failures = await store.keep_all({BlobId(f"1_1_{name}"): name.encode() for name in names})
    assert [isinstance(failure, BlobsUnreachable) for failure in failures] == [False, True, False]
    assert await store.get_all([BlobId("1_1_good"), BlobId("1_1_other")]) == [b"good", b"other"]
    assert not list((tmp_path / ".unfinished").iterdir())


async def test_a_folder_that_cannot_be_synced_fails_all_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path, SystemClock())
    store.create()

    def refuse(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(synced_files, "sync_folder", refuse)
    failures = await store.keep_all({BlobId("1_1_a"): b"x", BlobId("1_1_b"): b"y"})
    assert [isinstance(failure, BlobsUnreachable) for failure in failures] == [True, True]


async def test_files_of_a_batch_are_their_owners_alone(tmp_path: Path) -> None:
    store = FileStore(tmp_path, SystemClock())
    store.create()
    await store.keep(BlobId("1_1_a"), b"x")
    assert stat.S_IMODE((tmp_path / "1_1_a").stat().st_mode) == 0o600


async def test_a_caller_that_left_changes_nothing_for_the_others() -> None:
    """Given a batch under way and two callers that wait, when one of them leaves, then the other has its result."""
    turns = ThreadedBatches[int, int](lambda items: [item * 2 for item in items])
    first, left, other = (asyncio.ensure_future(turns.add(item)) for item in (1, 2, 3))
    await asyncio.sleep(0)
    left.cancel()
    assert await first == 2
    assert await other == 6
    assert await turns.add(4) == 8


async def test_an_error_of_a_batch_is_the_error_of_each_and_the_next_batch_goes_on() -> None:
    def failing(items: Sequence[int]) -> Sequence[int]:
        if 0 in items:
            raise OSError("no disk")
        return items

    turns = ThreadedBatches[int, int](failing)
    answers = await asyncio.gather(turns.add(0), turns.add(1), turns.add(0), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["no disk"] * 3
    assert await turns.add(7) == 7


async def test_a_thread_that_cannot_be_started_fails_its_batch_and_blocks_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = ThreadedBatches[int, int](lambda items: items)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
        async with asyncio.timeout(2):
            with pytest.raises(RuntimeError, match="start new thread"):
                await turns.add(1)
    async with asyncio.timeout(2):
        assert await turns.add(2) == 2
