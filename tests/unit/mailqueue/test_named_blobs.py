"""Naming and forgetting over any store, with stores that fail: what is put and not told of does not stay."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import BlobEncrypted, BlobsUnreachable
from mailmend.model.ids import BlobId
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import BlobCall, MemoryBlobs, MemoryStore
from tests.support.stored_forms import CHUNK, encrypted, packed

BODY = BlobKind.BODY


class Held(MemoryStore):
    """A store that keeps only when it is let, and tells when it has begun."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.begun, self.let = asyncio.Event(), asyncio.Event()

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
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
    clock = VirtualClock()

    blobs = MemoryBlobs(clock, surround=_refuse)
    putting = asyncio.create_task(blobs.put(b"x", BODY))
    await asyncio.sleep(0)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting


def test_a_put_that_fails_says_so() -> None:
    with pytest.raises(BlobsUnreachable, match="it refuses"):
        asyncio.run(MemoryBlobs(VirtualClock(), surround=_refuse).put(b"x", BODY))


async def test_others_have_their_turn_before_each_answer() -> None:
    clock = VirtualClock()

    blobs, turns = MemoryBlobs(clock), list[str]()

    async def one(name: str) -> None:
        turns.append(f"{name} begins")
        await blobs.exists(BlobId("1_692_x"))
        turns.append(f"{name} ends")

    await asyncio.gather(one("a"), one("b"))
    assert turns == ["a begins", "b begins", "a ends", "b ends"]


async def test_an_encrypted_blob_is_refused_by_name() -> None:
    """Packed or not: James alone has the key."""
    blobs = MemoryBlobs(VirtualClock())
    alone = BlobId("1_600_0f9a3c1e-7b0d-4c55-9a51-2f60d4a8c7e1")
    chunk, references = packed([encrypted(b"From: a@b.c")])
    await blobs.keep(alone, encrypted(b"From: a@b.c"))
    await blobs.keep(CHUNK, chunk)

    for blob_id in (alone, references[0]):
        with pytest.raises(BlobEncrypted, match=f"{blob_id} is encrypted") as caught:
            await blobs.get(blob_id)
        assert "its consumers take this mail" in caught.value.mend
        assert await blobs.exists(blob_id)


async def test_a_whole_chunk_is_no_content() -> None:
    blobs = MemoryBlobs(VirtualClock())
    await blobs.keep(CHUNK, packed([b"body"])[0])

    with pytest.raises(BlobsUnreachable, match="is a chunk of many blobs"):
        await blobs.get(CHUNK)


async def test_a_slot_beyond_the_end_of_its_chunk_is_refused() -> None:
    blobs = MemoryBlobs(VirtualClock())
    await blobs.keep(CHUNK, packed([b"body"])[0])

    with pytest.raises(BlobsUnreachable, match="its chunk ends after 0 bytes of it"):
        await blobs.get(BlobId(f"{CHUNK}~9000~40"))
