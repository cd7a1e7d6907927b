"""Naming and deleting of blobs, over any store that keeps bytes under a name.

Stores (memory, files, S3, Cassandra) know nothing of how ids are made. So the rule that a
deduplicated blob is never deleted with a mail is only here. A mail has two: header and body, both
or none.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Final

from mailmend.mailqueue.concurrency import ended, finished
from mailmend.mailqueue.rules.blob_ids import BlobNaming, checked, is_deduplicated
from mailmend.mailqueue.rules.mails import MailBlobs
from mailmend.mailqueue.rules.stored_forms import (
    content_in,
    refuse_chunk,
    refuse_encrypted,
    slot_of,
    stored_as,
)
from mailmend.model.blobs import BlobKind, Blobs, BlobStore, StoredBlob
from mailmend.model.errors import BadPayload, MailmendError
from mailmend.model.ids import BlobId
from mailmend.model.ports import Clock

_BLANK_LINE: Final = re.compile(rb"(?:\A|\n)\r?\n")

_LOG: Final = logging.getLogger("mailmend.queue")


class NamedBlobs:
    """Blobs in a store, named as James names them. Implements `model.blobs.Blobs`.

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
        """The bytes of a mail, a packed one's too. Encrypted bytes are refused."""
        slot = slot_of(checked(blob_id))
        if slot:
            content = content_in(slot, await self.store.part(*slot))
        else:
            refuse_chunk(blob_id)
            content = await self.store.get(blob_id)
        refuse_encrypted(blob_id, content)
        return content

    async def delete(self, blob_id: BlobId) -> None:
        if not is_deduplicated(checked(blob_id)):
            await self.store.remove(blob_id)

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        wanted = dict[BlobId, None]()
        bad = list[BadPayload]()
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
        return await self.store.exists(stored_as(checked(blob_id)))

    def scan(self) -> AsyncIterator[StoredBlob]:
        return self.store.scan()

    async def _undo(self, keeping: "asyncio.Future[None]", blob_id: BlobId) -> None:
        """The caller was cancelled and never learns the id, so the blob is deleted."""
        with suppress(MailmendError):
            await keeping
            await self.delete(blob_id)


def split(content: bytes) -> tuple[bytes, bytes]:
    """The header with its blank line, and the body; together the content again. Without a blank line: all header.

    Lines end with CRLF (RFC 5322) or with LF alone.
    """
    found = _BLANK_LINE.search(content)
    end = len(content)
    if found:
        end = found.end()
    return content[:end], content[end:]


async def put_content(blobs: Blobs, content: bytes) -> MailBlobs:
    """Store a mail's bytes; if one blob fails, or the caller is cancelled, the other is deleted."""
    header, body = split(content)
    putting = (
        asyncio.ensure_future(blobs.put(header, BlobKind.HEADER)),
        asyncio.ensure_future(blobs.put(body, BlobKind.BODY)),
    )
    try:
        return MailBlobs(*await asyncio.gather(*putting))
    except BaseException:
        await finished(_unput(blobs, putting))
        raise


async def content_of(blobs: Blobs, kept: MailBlobs) -> bytes:
    loading = asyncio.ensure_future(blobs.get(kept.header))
    try:
        body = await blobs.get(kept.body)
    except BaseException:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        raise
    return await loading + body


async def forget(blobs: Blobs, kept: MailBlobs) -> None:
    """Delete both, unless another mail may refer to them."""
    await blobs.delete_all((kept.header, kept.body))


async def _unput(blobs: Blobs, putting: "tuple[asyncio.Future[BlobId], ...]") -> None:
    for task in putting:
        task.cancel()
    await ended(putting)
    for task in putting:
        if not task.cancelled() and task.exception() is None:
            await _unput_one(blobs, task.result())


async def _unput_one(blobs: Blobs, blob_id: BlobId) -> None:
    try:
        await blobs.delete(blob_id)
    except MailmendError as failure:
        _LOG.warning("a blob is left that nobody refers to", extra={"error": failure.what})
