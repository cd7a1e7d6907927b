"""Naming and forgetting over any store, with stores that fail: what is put and not told of does not stay."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.model.blobs import BlobKind
from mailmend.model.errors import BlobsUnreachable
from mailmend.model.ids import BlobId
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import BlobCall, MemoryBlobs, MemoryStore

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
