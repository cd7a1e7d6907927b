"""Blobs in a store that speaks S3, or in files: how a queue opens them; the only module that imports obstore.

Requests have a timeout, and a bounded number and time of retries. What a refusal means is in `s3`; the few requests
that need botocore are in `exact_requests`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from mailqueue.blobs.exact_requests import ExactRequests
from mailqueue.blobs.files import FileStore
from mailqueue.blobs.s3 import NO_BUCKET, NO_BULK, S3Settings, code_in, failure, refuse_compressed
from mailqueue.blobs.stores import NamedBlobs
from mailqueue.concurrency import all_of
from model.errors import BadSettings, BlobMissing, BucketMissing
from model.ids import BlobId
from model.ports import Clock
from model.queue.blob_ids import BlobNaming
from model.queue.messages import StoredBlob
from repair.clock import SystemClock

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

T = TypeVar("T")

REQUESTS_AT_ONCE: Final = 64
"""How many requests of one store are under way at the same time; more wait for their turn."""

BULK_MIN: Final = 5
"""Fewer objects are deleted sooner one by one."""

BULK_MAX: Final = 1000
"""How many objects one request deletes: no store takes more."""

RETRIES: Final = 4
RETRY_TIME_MAX: Final = timedelta(seconds=15)
FIRST_WAIT: Final = timedelta(milliseconds=100)
LONGEST_WAIT: Final = timedelta(seconds=2)
CONNECT_TIME_MAX: Final = timedelta(seconds=5)
REQUEST_TIME_MAX: Final = timedelta(seconds=60)
"""From the connection to the last byte: a mail of 50 MB at 1 MB a second."""

_CAUSE_LENGTH_MAX: Final = 200


def open_files(root: Path, clock: Clock | None = None, naming: BlobNaming | None = None) -> NamedBlobs:
    """Blobs as files of a folder, which is made where there is none.

    Raises:
        BlobsUnreachable: it cannot be made.
    """
    clock = clock or SystemClock()
    store = FileStore(root, clock)
    store.create()
    return NamedBlobs(store, clock, naming)


def open_s3(settings: S3Settings, clock: Clock | None = None, naming: BlobNaming | None = None) -> NamedBlobs:
    """Blobs in a bucket; sends no request yet."""
    return NamedBlobs(S3Bucket(settings), clock or SystemClock(), naming)


async def create_bucket(settings: S3Settings) -> bool:
    """False where it exists already.

    Raises:
        BlobsUnreachable: the store does not answer, or does not let these keys.
    """
    return await ExactRequests(settings).create_bucket()


class S3Bucket:
    """Bytes in a bucket. Implements `mailqueue.blobs.stores.BlobStore`."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._store = _quick_store(settings)
        self._exactly = ExactRequests(settings)
        self._turns = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._in_bulk = True

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Put the object; creates the bucket where the settings say so."""
        try:
            await self._keep(blob_id, content)
        except BucketMissing:
            if not self._settings.create_bucket:
                raise
            await self._exactly.create_bucket()
            await self._keep(blob_id, content)

    async def get(self, blob_id: BlobId) -> bytes:
        if _needs_exactness(blob_id):
            return await self._exactly.get(blob_id)
        return await self._ask(lambda: self._content(blob_id), blob_id)

    async def remove(self, blob_id: BlobId) -> None:
        with suppress(BlobMissing):
            if _needs_exactness(blob_id):
                await self._exactly.remove(blob_id)
            else:
                await self._ask(lambda: obstore.delete_async(self._store, blob_id), blob_id)

    async def remove_all(self, blob_ids: Sequence[BlobId]) -> None:
        plain = [blob_id for blob_id in blob_ids if not _needs_exactness(blob_id)]
        if len(plain) < BULK_MIN:
            plain = []
        for first in range(0, len(plain), BULK_MAX):
            await self._remove_together(plain[first : first + BULK_MAX])
        await self._remove_each(set(blob_ids).difference(plain))

    async def exists(self, blob_id: BlobId) -> bool:
        try:
            if not _needs_exactness(blob_id):
                await self._ask(lambda: obstore.head_async(self._store, blob_id), blob_id)
                return True
        except BlobMissing:
            pass  # or it is the bucket that is missing: the answer to HEAD has no room to say so
        try:
            await self.get(blob_id)
        except BlobMissing:
            return False
        return True

    async def scan(self) -> AsyncIterator[StoredBlob]:
        page, after = await self._exactly.page("")
        while True:
            for blob in page:
                yield blob
            if not after:
                return
            page, after = await self._exactly.page(after)

    async def _remove_together(self, blob_ids: Sequence[BlobId]) -> None:
        """In one request; a store that does not support that is not asked again."""
        if self._in_bulk:
            async with self._turns:
                try:
                    await obstore.delete_async(self._bulk_store, list(blob_ids))
                except (BaseError, OSError) as error:
                    code = code_in(str(error))
                    if code not in NO_BULK:
                        raise failure(self._settings, code, _cause(error)) from None
                    self._in_bulk = False
                else:
                    return
        await self._remove_each(blob_ids)

    async def _remove_each(self, blob_ids: Iterable[BlobId]) -> None:
        await all_of(blob_ids, self.remove, REQUESTS_AT_ONCE)

    @cached_property
    def _bulk_store(self) -> S3Store:
        return _quick_store(self._settings, bulk=True)

    async def _keep(self, blob_id: BlobId, content: bytes) -> None:
        if _needs_exactness(blob_id):
            await self._exactly.keep(blob_id, content)
        else:
            await self._ask(lambda: obstore.put_async(self._store, blob_id, content, use_multipart=False), blob_id)

    async def _content(self, blob_id: BlobId) -> bytes:
        answer = await obstore.get_async(self._store, blob_id)
        refuse_compressed(self._settings, blob_id, answer.attributes)
        return bytes(await answer.bytes_async())

    async def _ask(self, request: Callable[[], Awaitable[T]], blob_id: BlobId) -> T:
        """A request's answer, errors as ours. Creating a request starts it, so that waits for a free place."""
        async with self._turns:
            try:
                return await request()
            except FileNotFoundError as error:
                if code_in(str(error)) == NO_BUCKET:
                    raise failure(self._settings, NO_BUCKET) from None
                raise BlobMissing(blob_id, mend=f"It was looked for in {self._settings.place}") from None
            except (BaseError, OSError) as error:
                raise failure(self._settings, code_in(str(error)), _cause(error)) from None


def _needs_exactness(blob_id: BlobId) -> bool:
    """The library obstore refuses `a//b`, and takes `/a` and `a/` for `a`."""
    return "" in blob_id.split("/")


def _cause(error: Exception) -> str:
    """The end of the first line of a connection error, which cannot hold text of an answer."""
    return str(error).partition("\n")[0].rpartition(" - ")[2].strip()[:_CAUSE_LENGTH_MAX]


def _quick_store(settings: S3Settings, *, bulk: bool = False) -> S3Store:
    """A client of the settings alone: a token in the environment may belong to other keys."""
    keys: S3Credential = {
        "access_key_id": settings.access_key,
        "secret_access_key": settings.secret_key,
        "token": None,
        "expires_at": None,
    }
    options: ClientConfig = {
        "allow_http": settings.allow_http,
        "connect_timeout": CONNECT_TIME_MAX,
        "timeout": REQUEST_TIME_MAX,
    }
    if settings.tls_ca is not None:
        options["root_certificate"] = _read_ca(settings)
    return S3Store(
        settings.bucket,
        aws_endpoint_url_s3=settings.endpoint.rstrip("/"),  # what a variable of that name is weaker than
        region=settings.region,
        credential_provider=lambda: keys,
        virtual_hosted_style_request=False,
        skip_signature=False,
        disable_bulk_delete=not bulk,  # not every store has it, and none takes one object faster by it
        client_options=options,
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": RETRY_TIME_MAX,
            "backoff": {"init_backoff": FIRST_WAIT, "max_backoff": LONGEST_WAIT, "base": 2},
        },
    )


def _read_ca(settings: S3Settings) -> bytes:
    assert settings.tls_ca is not None
    try:
        return settings.tls_ca.read_bytes()
    except OSError as error:
        raise BadSettings(
            f"the certificate {settings.tls_ca} cannot be read: {error.strerror}", mend="Name a PEM file with tls_ca."
        ) from error
