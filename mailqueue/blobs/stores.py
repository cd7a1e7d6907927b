"""One way to name and to forget blobs, over whatever keeps bytes under a name.

What keeps them (memory, files, S3, Cassandra) says nothing about ids; what names them says nothing about where. So the
rule that a deduplicated blob is never deleted with a mail stands here, once.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Protocol

from model.errors import BadPayload, MailmendError
from model.ids import BlobId
from model.ports import Clock
from model.queue.blob_ids import BlobNaming, checked, is_deduplicated
from model.queue.messages import BlobKind, StoredBlob


class BlobStore(Protocol):
    """What keeps bytes under any id. Every method may raise `BlobsUnreachable`."""

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Keep the bytes durably, all or nothing, in place of what is there."""
        ...

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes; `BlobMissing` where there are none."""
        ...

    async def remove(self, blob_id: BlobId) -> None:
        """Forget the bytes, whoever may refer to them; none there is fine."""
        ...

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        """The same for many, none of them twice; where it fails some may be left."""
        ...

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there are bytes."""
        ...

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Everything that is kept, page by page, in the store's own order."""
        ...


class NamedBlobs:
    """Blobs in a store, named as James names them. Implements `model.ports.Blobs`.

    Attributes:
        store: for whoever knows every reference, and may `remove` what is deduplicated.
    """

    def __init__(self, store: BlobStore, clock: Clock, naming: BlobNaming | None = None) -> None:
        self.store = store
        self._clock = clock
        self._naming = naming or BlobNaming()

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:  # noqa: ARG002 - one place for headers and bodies
        """Keep the bytes durably and return their id; the same bytes again are simply put again.

        Asking first whether they are there would take as long as putting a mail, and a collector may come between.
        """
        blob_id = self._naming.name(data, self._clock.micros(), self._clock.random_uuid())
        keeping = asyncio.ensure_future(self.store.keep(blob_id, data))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await _to_its_end(self._undo(keeping, blob_id))
            raise
        return blob_id

    async def get(self, blob_id: BlobId) -> bytes:
        """The bytes under the id."""
        return await self.store.get(checked(blob_id))

    async def delete(self, blob_id: BlobId) -> None:
        """Forget the bytes, unless others may refer to them."""
        if not is_deduplicated(checked(blob_id)):
            await self.store.remove(blob_id)

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        """Forget the bytes of many; what is no id is told of when the others are gone."""
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
        """Whether there are bytes under the id."""
        return await self.store.exists(checked(blob_id))

    def scan(self) -> AsyncIterator[StoredBlob]:
        """Every blob."""
        return self.store.scan()

    async def _undo(self, keeping: "asyncio.Future[None]", blob_id: BlobId) -> None:
        """Nobody will hear of the id: its blob must not stay."""
        with suppress(MailmendError):
            await keeping
            await self.delete(blob_id)


async def _to_its_end(work: Coroutine[object, object, None]) -> None:
    """However often the one who waits is cancelled; what is done here takes no longer than the store's own limits."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
