"""Blobs in a store that speaks S3: the one door to the library that does."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from mailqueue.blob_stores import NamedBlobs
from mailqueue.file_blobs import FileStore
from mailqueue.ports import Clock, StoredBlob
from model.blob_ids import BlobNaming
from model.errors import BlobMissing, BlobsUnreachable
from model.ids import BlobId
from repair.clock import LoopClock

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

RETRIES: Final = 3
RETRY_SECONDS_MAX: Final = 15
REQUEST_SECONDS_MAX: Final = 30
CONNECT_SECONDS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where a bucket is, and who asks for it.

    Attributes:
        endpoint: such as `https://s3.example.org:9000`; the bucket's name is not part of it.
        tls_ca: the PEM file of the authority that signed the server's certificate, where the system does not know it.
    """

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    allow_http: bool = False
    tls_ca: Path | None = None


def open_files(root: Path, clock: Clock | None = None, naming: BlobNaming | None = None) -> NamedBlobs:
    """Blobs as files of a folder, which is made where there is none.

    Raises:
        BlobsUnreachable: it cannot be made.
    """
    clock = clock or LoopClock()
    store = FileStore(root, clock)
    store.create()
    return NamedBlobs(store, clock, naming)


def open_s3(settings: S3Settings, clock: Clock | None = None, naming: BlobNaming | None = None) -> NamedBlobs:
    """Blobs in a bucket; nothing is asked of the server yet."""
    return NamedBlobs(S3Bucket(settings), clock or LoopClock(), naming)


class S3Bucket:
    """Bytes in a bucket. Implements `mailqueue.blob_stores.BlobStore`."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        client: ClientConfig = {
            "allow_http": settings.allow_http,
            "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
        }
        retry: RetryConfig = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX)}
        self._store = S3Store(
            settings.bucket,
            endpoint=settings.endpoint,
            region=settings.region,
            access_key_id=settings.access_key,
            secret_access_key=settings.secret_key,
            virtual_hosted_style_request=False,
            client_options=client,
            retry_config=retry,
        )

    async def keep(self, blob_id: BlobId, content: bytes) -> None:
        """Put the object."""
        try:
            await obstore.put_async(self._store, blob_id, content, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from error

    async def get(self, blob_id: BlobId) -> bytes:
        """The object's bytes."""
        try:
            answer = await obstore.get_async(self._store, blob_id)
            return bytes(await answer.bytes_async())
        except FileNotFoundError as error:
            raise BlobMissing(blob_id, mend=f"It was looked for in the bucket {self._settings.bucket}") from error
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from error

    async def remove(self, blob_id: BlobId) -> None:
        """Delete the object."""
        try:
            await obstore.delete_async(self._store, blob_id)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from error

    async def exists(self, blob_id: BlobId) -> bool:
        """Whether there is an object."""
        try:
            await obstore.head_async(self._store, blob_id)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._unreachable(error) from error
        return True

    async def scan(self) -> AsyncIterator[StoredBlob]:
        """Every object."""
        async for page in obstore.list(self._store):
            for found in page:
                yield StoredBlob(BlobId(found["path"]), found["size"], found["last_modified"])

    def _unreachable(self, error: Any) -> BlobsUnreachable:
        return BlobsUnreachable(
            f"the bucket {self._settings.bucket} at {self._settings.endpoint} cannot be reached: {error}",
            mend="Check the endpoint, the bucket and the credentials.",
        )
