"""A mail's header and body in the blob store: stored, loaded and deleted side by side; both or none."""

import asyncio
import logging
import re
from typing import Final

from mailqueue.concurrency import ended, finished
from model.errors import MailmendError
from model.ids import BlobId
from model.ports import Blobs
from model.queue.mails import MailBlobs
from model.queue.messages import BlobKind

_BLANK_LINE: Final = re.compile(rb"(?:\A|\n)\r?\n")

_LOG: Final = logging.getLogger("mailmend.queue")


def split(content: bytes) -> tuple[bytes, bytes]:
    """The header with its blank line, and the body; together the content again. Without a blank line: all header.

    Lines end with CRLF (RFC 5322) or with LF alone.
    """
    found = _BLANK_LINE.search(content)
    end = found.end() if found else len(content)
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
    """Header and body together, as they were enqueued."""
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
    for one in putting:
        one.cancel()
    await ended(putting)
    for one in putting:
        if not one.cancelled() and one.exception() is None:
            await _unput_one(blobs, one.result())


async def _unput_one(blobs: Blobs, blob_id: BlobId) -> None:
    try:
        await blobs.delete(blob_id)
    except MailmendError as failure:
        _LOG.warning("a blob is left that nobody refers to: %s", failure.what)
