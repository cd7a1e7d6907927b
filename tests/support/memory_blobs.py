"""A blob store in memory, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any

from mailmend.mailqueue.blobs.stores import NamedBlobs, each_kept
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rules.blob_ids import BlobNaming
from mailmend.model.blobs import StoredBlob
from mailmend.model.errors import BlobMissing, MailmendError
from mailmend.model.ids import BlobId
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock


class BlobVerb(Enum):
    """The calls of a blob store."""

    PUT = "put"
    GET = "get"
    DELETE = "delete"
    EXISTS = "exists"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
class BlobCall:
    """One call of the store, as `surround` sees it; `blob_id` is None for a scan."""

    verb: BlobVerb
    blob_id: BlobId | None


Surround = Callable[[BlobCall, Callable[[], Any]], Any]
"""Wrapped around every call: gets it and what carries it out; may fail before, after, or instead."""


class MemoryStore:
    """Bytes in a dictionary. Implements `model.blobs.BlobStore`.

    Args:
        surround: for tests of crashes and of stores that do not answer.
    """

    def __init__(self, clock: Clock, surround: Surround | None = None) -> None:
        self.surround: Surround = surround or (lambda _, carry_out: carry_out())
        self._clock = clock
        self._kept: dict[BlobId, tuple[bytes, StoredBlob]] = {}

    @property
    def ids(self) -> set[BlobId]:
        return set(self._kept)

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        blob = StoredBlob(blob_id, len(content), instant_of(self._clock.micros()))
        await self._surrounded(BlobVerb.PUT, blob_id, lambda: self._kept.update({blob_id: (bytes(content), blob)}))

    async def keep_all(self, blobs: Mapping[BlobId, bytes]) -> Sequence[MailmendError | None]:
        return await each_kept(self.keep, blobs)

    async def get(self, blob_id: BlobId) -> bytes:
        content: bytes = await self._surrounded(BlobVerb.GET, blob_id, lambda: self._content(blob_id))
        return content

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        return await all_of(blob_ids, self.get, max(1, len(blob_ids)))

    async def part(self, blob_id: BlobId, offset: int, length: int) -> bytes:
        return (await self.get(blob_id))[offset : offset + length]

    async def remove(self, blob_id: BlobId) -> None:
        await self._surrounded(BlobVerb.DELETE, blob_id, lambda: self._kept.pop(blob_id, None))

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        await asyncio.sleep(0)
        for blob_id in blob_ids:
            self.surround(BlobCall(BlobVerb.DELETE, blob_id), partial(self._kept.pop, blob_id, None))

    async def exists(self, blob_id: BlobId) -> bool:
        there: bool = await self._surrounded(BlobVerb.EXISTS, blob_id, lambda: blob_id in self._kept)
        return there

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        await asyncio.sleep(0)
        return self._kept[blob_id][1].stored_at if blob_id in self._kept else None

    async def scan(self) -> AsyncIterator[StoredBlob]:
        for _, blob in await self._surrounded(BlobVerb.SCAN, None, lambda: list(self._kept.values())):
            yield blob

    async def _surrounded(self, verb: BlobVerb, blob_id: BlobId | None, carry_out: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)  # others have their turn, as with a store that is far away
        return self.surround(BlobCall(verb, blob_id), carry_out)

    def _content(self, blob_id: BlobId) -> bytes:
        if blob_id not in self._kept:
            raise BlobMissing(blob_id)
        return self._kept[blob_id][0]


class MemoryBlobs(NamedBlobs):
    """Blobs in memory. Implements `model.blobs.Blobs`; `ids`, `keep` and `lose` are for tests."""

    store: MemoryStore

    def __init__(self, clock: Clock, naming: BlobNaming | None = None, surround: Surround | None = None) -> None:
        super().__init__(MemoryStore(clock, surround), clock, naming)

    @property
    def ids(self) -> set[BlobId]:
        return self.store.ids

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Store bytes under an id that somebody else made."""
        await self.store.keep(blob_id, content)

    async def lose(self, blob_id: BlobId) -> None:
        await self.store.remove(blob_id)
