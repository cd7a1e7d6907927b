"""Naming and deleting of blobs, over any store that keeps bytes under a name.

Stores (memory, files, S3, Cassandra) know nothing of how ids are made. So the rule that a deduplicated blob is never
deleted with a mail stands only here.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from typing import Protocol

from mailqueue.concurrency import ended
from model.errors import BadPayload, MailmendError
from model.ids import BlobId
from model.ports import Clock
from model.queue.blob_ids import BlobNaming, checked, is_deduplicated
from model.queue.messages import BlobKind, StoredBlob


class BlobStore(Protocol):
    """A store of bytes under any id. Every method may raise `BlobsUnreachable`."""

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Keep the bytes durably, all or nothing, in place of what is there."""
        ...

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes; `BlobMissing` where there are none."""
        ...

    async def remove(self, blob_id: BlobId) -> None:
        """Delete the bytes, even if others refer to them; none there is fine."""
        ...

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        """As `remove`, for distinct ids; after an error some may be left."""
        ...

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there are bytes."""
        ...

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Every blob, page by page, in the store's own order."""
        ...


class NamedBlobs:
    """Blobs in a store, named as James names them. Implements `model.ports.Blobs`.

    Attributes:
        store: for callers that know every reference, and may `remove` deduplicated blobs.
    """

    def __init__(self, store: BlobStore, clock: Clock, naming: BlobNaming | None = None) -> None:
        self.store = store
        self._clock = clock
        self._naming = naming or BlobNaming()

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:  # noqa: ARG002 - one place for headers and bodies
        """Store the bytes durably and return their id; the same bytes are stored again.

        To ask first whether they exist would take as long, and a collector may delete them in between.
        """
        blob_id = self._naming.name(data, self._clock.micros(), self._clock.random_uuid())
        keeping = asyncio.ensure_future(self.store.keep(blob_id, data))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await ended((asyncio.ensure_future(self._undo(keeping, blob_id)),))
            raise
        return blob_id

    async def get(self, blob_id: BlobId) -> bytes:
        return await self.store.get(checked(blob_id))

    async def delete(self, blob_id: BlobId) -> None:
        if not is_deduplicated(checked(blob_id)):
            await self.store.remove(blob_id)

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        wanted, bad = dict[BlobId, None](), list[BadPayload]()
        for blob_id in blob_ids:
            try:
                if not is_deduplicated(checked(blob_id)):
                    wanted[blob_id] = None
            except BadPayload as error:
                bad.append(error)
        if wanted:
            await self.store.remove_all(tuple(wanted))
        if bad:
            raise bad[0]

    async def exists(self, blob_id: BlobId) -> bool:
        return await self.store.exists(checked(blob_id))

    def scan(self) -> AsyncIterator[StoredBlob]:
        return self.store.scan()

    async def _undo(self, keeping: "asyncio.Future[None]", blob_id: BlobId) -> None:
        """The caller was cancelled and never learns the id, so the blob is deleted."""
        with suppress(MailmendError):
            await keeping
            await self.delete(blob_id)
