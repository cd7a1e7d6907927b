"""Naming and forgetting over any store, with stores that fail: what is put and not told of does not stay."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mailqueue.blobs.stores import NamedBlobs
from model.errors import BlobMissing, BlobsUnreachable
from model.ids import BlobId
from model.queue.blob_ids import BlobNaming, BlobsMode
from model.queue.messages import BlobKind
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import BlobCall, BlobVerb, MemoryBlobs, MemoryStore
from tests.support.striking import Strike, verb

BODY = BlobKind.BODY


class Held(MemoryStore):
    """A store that keeps only when it is let, and tells when it has begun."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.begun, self.let = asyncio.Event(), asyncio.Event()

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Begin, wait, keep."""
        self.begun.set()
        await self.let.wait()
        await super().keep(blob_id, content)


async def test_a_cancelled_put_is_undone_only_when_it_has_ended() -> None:
    """A store may keep what was sent whether or not somebody waits for its answer."""
    clock = VirtualClock()

    # Given a put that the store has begun with
    store = Held(clock)
    putting = asyncio.create_task(NamedBlobs(store, clock).put(b"x", BODY))
    await store.begun.wait()
    # When it is cancelled, twice
    for _ in range(2):
        putting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not putting.done()
    # Then it waits for the store's answer, and takes back what was kept
    store.let.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert store.ids == set()


async def test_a_cancelled_put_of_shared_bytes_leaves_them() -> None:
    """Another mail may refer to them since; the collector finds them where none does."""
    clock = VirtualClock()

    store = Held(clock)
    putting = asyncio.create_task(NamedBlobs(store, clock, BlobNaming(BlobsMode.DEDUPLICATED)).put(b"x", BODY))
    await store.begun.wait()
    putting.cancel()
    store.let.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert len(store.ids) == 1


def _refuse(_: BlobCall, __: Callable[[], Any]) -> Any:
    raise BlobsUnreachable("it refuses")


async def test_a_cancelled_put_into_a_store_that_refuses_is_just_cancelled() -> None:
    """There is nothing to undo, and no other error in its place."""
    clock = VirtualClock()

    blobs = MemoryBlobs(clock, surround=_refuse)
    putting = asyncio.create_task(blobs.put(b"x", BODY))
    await asyncio.sleep(0)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting


def test_a_put_that_fails_says_so() -> None:
    """With the store's own error, at once."""
    with pytest.raises(BlobsUnreachable, match="it refuses"):
        asyncio.run(MemoryBlobs(VirtualClock(), surround=_refuse).put(b"x", BODY))


class TestTwin:
    """What others' tests ask of the twin besides."""

    async def test_calls_are_seen_with_their_ids_and_may_fail_after_the_deed(self) -> None:
        """As a store does whose answer is lost."""
        blobs = MemoryBlobs(
            VirtualClock(), surround=Strike(verb(BlobVerb.PUT), BlobsUnreachable("no answer"), done=True)
        )
        with pytest.raises(BlobsUnreachable, match="no answer"):
            await blobs.put(b"x", BODY)
        seen = blobs.store.surround = Strike(lambda _: True)
        [blob_id] = blobs.ids
        assert await blobs.get(blob_id) == b"x"
        assert await blobs.exists(blob_id)
        await blobs.delete(blob_id)
        assert [blob async for blob in blobs.scan()] == []
        verbs = [BlobVerb.GET, BlobVerb.EXISTS, BlobVerb.DELETE]
        assert seen.struck == [*(BlobCall(verb, blob_id) for verb in verbs), BlobCall(BlobVerb.SCAN, None)]

    async def test_a_blob_may_be_lost_and_brought_from_elsewhere(self) -> None:
        """Whatever its id says of who may delete it."""
        clock = VirtualClock()

        blobs, blob_id = MemoryBlobs(clock), BlobId("1_692_shared")
        await blobs.keep(blob_id, b"x")
        await blobs.delete(blob_id)
        assert await blobs.get(blob_id) == b"x"
        await blobs.lose(blob_id)
        with pytest.raises(BlobMissing):
            await blobs.get(blob_id)

    async def test_others_have_their_turn_before_each_answer(self) -> None:
        """Or a race that a real store shows would be hidden."""
        clock = VirtualClock()

        blobs, turns = MemoryBlobs(clock), list[str]()

        async def one(name: str) -> None:
            turns.append(f"{name} begins")
            await blobs.exists(BlobId("1_692_x"))
            turns.append(f"{name} ends")

        await asyncio.gather(one("a"), one("b"))
        assert turns == ["a begins", "b begins", "a ends", "b ends"]

    async def test_times_are_those_of_the_clock(self) -> None:
        """Which a test turns."""
        clock = VirtualClock()

        blobs = MemoryBlobs(clock)
        await blobs.put(b"x", BODY)
        clock.advance(60)
        await blobs.put(b"yy", BODY)
        found = [blob async for blob in blobs.scan()]
        assert [blob.size_bytes for blob in found] == [1, 2]
        assert (found[1].stored_at - found[0].stored_at).total_seconds() == 60
