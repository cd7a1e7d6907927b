"""Naming and deleting of blobs, over any store that keeps bytes under a name.

Stores (memory, files, S3, Cassandra) know nothing of how ids are made. So the rule that a
deduplicated blob is never deleted with a mail is only here. A mail has two: header and body, both
or none.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from mailmend.mailqueue.concurrency import all_of, ended
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
from mailmend.model.errors import BadPayload, MailmendError, raise_first
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

    async def put(self, data: bytes, kind: BlobKind) -> BlobId:
        """Store the bytes durably and return their id; the same bytes are stored again.

        To ask first whether they exist would take as long, and a collector may delete them in between.
        """
        (blob_id,) = await self.put_all(((data, kind),))
        return blob_id

    async def put_all(self, contents: Sequence[tuple[bytes, BlobKind]]) -> Sequence[BlobId]:
        """Store the bytes of one mail, all or none of them; headers and bodies are in one place."""
        now = self._clock.micros()
        ids = [self._naming.name(data, now, self._clock.random_uuid()) for data, _ in contents]
        blobs = dict(zip(ids, (data for data, _ in contents), strict=True))
        keeping = asyncio.ensure_future(self._kept(blobs))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await ended((asyncio.ensure_future(self._undo(keeping, ids)),))
            raise
        return ids

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

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        if any(slot_of(checked(blob_id)) for blob_id in blob_ids):
            return await all_of(blob_ids, self.get, len(blob_ids))
        for blob_id in blob_ids:
            refuse_chunk(blob_id)
        contents = await self.store.get_all(blob_ids)
        for blob_id, content in zip(blob_ids, contents, strict=True):
            refuse_encrypted(blob_id, content)
        return contents

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

    async def _kept(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Keep all of them; if one fails, the others are deleted."""
        failures = await self.store.keep_all(blobs)
        if any(failures):
            for blob_id, failure in zip(blobs, failures, strict=True):
                if failure is None:
                    await self._forget(blob_id)
            raise_first(failures)

    async def _undo(self, keeping: "asyncio.Future[None]", blob_ids: Collection[BlobId]) -> None:
        """The caller was cancelled and never learns the ids, so the blobs are deleted."""
        with suppress(MailmendError):
            await keeping
            await self.delete_all(blob_ids)

    async def _forget(self, blob_id: BlobId) -> None:
        try:
            await self.delete(blob_id)
        except MailmendError as failure:
            _LOG.warning("a blob is left without a reference", extra={"error": failure.what})


async def each_kept(
    keep: Callable[[BlobId, bytes], Awaitable[None]], blobs: Mapping[BlobId, bytes]
) -> Sequence[MailmendError | None]:
    """`BlobStore.keep_all` of a store that keeps one blob by a request: requests side by side."""
    answers = await asyncio.gather(*(keep(*blob) for blob in blobs.items()), return_exceptions=True)
    failures = list[MailmendError | None]()
    for answer in answers:
        if answer is not None and not isinstance(answer, MailmendError):
            raise answer
        failures.append(answer)
    return failures


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
    return MailBlobs(*await blobs.put_all(((header, BlobKind.HEADER), (body, BlobKind.BODY))))


async def content_of(blobs: Blobs, kept: MailBlobs) -> bytes:
    return b"".join(await blobs.get_all((kept.header, kept.body)))


async def forget(blobs: Blobs, kept: MailBlobs) -> None:
    """Delete both, unless another mail may refer to them."""
    await blobs.delete_all((kept.header, kept.body))
