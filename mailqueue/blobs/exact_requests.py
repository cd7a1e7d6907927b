"""The requests to S3 that obstore cannot make; the only module that imports botocore.

Keys with an empty part (`a//b`: one in a hundred of the ids that James 3.8 makes of bytes), listings that spell every
key as it is, buckets that are to be made. Each request takes a thread and about a millisecond of the processor, five
times what the quick library takes; so nothing else goes this way, and it is not loaded before it is needed.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from mailqueue.blobs.s3 import NO_OBJECT, S3Settings, failure, refuse_compressed
from model.errors import BlobMissing
from model.ids import BlobId
from model.queue.messages import StoredBlob
from model.schema.table import Row

T = TypeVar("T")

ATTEMPTS: Final = 3
CONNECT_SECONDS_MAX: Final = 5
READ_SECONDS_MAX: Final = 20
THREADS: Final = 8
PAGE_KEYS: Final = 1000
"""How many keys a page of a listing has; no store gives more."""

_MADE_ALREADY: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})


class ExactRequests:
    """Requests about one bucket; its client is made by the first of them."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._made: Any = None
        self._making = threading.Lock()
        self._turns = asyncio.Semaphore(THREADS)

    async def keep(self, key: BlobId, content: bytes) -> None:
        await self._ask(lambda: self._client().put_object(Key=key, Body=content, **self._bucket))

    async def get(self, key: BlobId) -> bytes:
        return await self._ask(lambda: self._content(key), key)

    async def remove(self, key: BlobId) -> None:
        await self._ask(lambda: self._client().delete_object(Key=key, **self._bucket))

    async def page(self, after: str) -> tuple[list[StoredBlob], str]:
        """Some objects, and the key to continue after; that key is empty at the end."""
        more = {"ContinuationToken": after} if after else {}
        answer = await self._ask(lambda: self._client().list_objects_v2(MaxKeys=PAGE_KEYS, **more, **self._bucket))
        return list(_listed(answer.get("Contents", ()))), answer.get("NextContinuationToken", "")

    async def create_bucket(self) -> bool:
        """False where it exists already."""
        return await self._ask(self._create_bucket)

    @property
    def _bucket(self) -> dict[str, str]:
        return {"Bucket": self._settings.bucket}

    def _create_bucket(self) -> bool:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - see the module

        region = self._settings.region
        elsewhere = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            self._client().create_bucket(**elsewhere, **self._bucket)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _MADE_ALREADY:
                raise
            self._client().head_bucket(**self._bucket)  # another's, where this is refused
            return False
        return True

    def _content(self, key: BlobId) -> bytes:
        answer = self._client().get_object(Key=key, **self._bucket)
        refuse_compressed(self._settings, key, {**answer.get("Metadata", {}), **_encoding(answer)})
        content: bytes = answer["Body"].read()
        return content

    async def _ask(self, request: Callable[[], T], key: BlobId | None = None) -> T:
        async with self._turns:
            return await asyncio.to_thread(self._translated, request, key)

    def _translated(self, request: Callable[[], T], key: BlobId | None) -> T:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # noqa: PLC0415 - see the module

        try:
            return request()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if key is not None and code in NO_OBJECT:
                raise BlobMissing(key, mend=f"It was looked for in {self._settings.place}") from None
            raise failure(self._settings, code) from error
        except (BotoCoreError, HTTPClientError) as error:
            raise failure(self._settings, "", type(error).__name__) from error

    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = _new_client(self._settings)
        return self._made


def _encoding(answer: Row) -> dict[str, str]:
    return {"content-encoding": answer["ContentEncoding"]} if "ContentEncoding" in answer else {}


def _listed(contents: Iterable[Row]) -> Iterator[StoredBlob]:
    for found in contents:
        yield StoredBlob(BlobId(found["Key"]), found["Size"], found["LastModified"])


def _new_client(settings: S3Settings) -> Any:
    """A client of the settings alone: profiles, files and variables of this machine are ignored."""
    from botocore.config import Config  # noqa: PLC0415 - see the module
    from botocore.session import Session  # noqa: PLC0415 - see the module

    session = Session(session_vars={"profile": (None, None, None, None), "config_file": (None, None, "", None)})
    return session.create_client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        verify=None if settings.tls_ca is None else str(settings.tls_ca),
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            connect_timeout=CONNECT_SECONDS_MAX,
            read_timeout=READ_SECONDS_MAX,
            max_pool_connections=THREADS,
            # A checksum in a trailer is news to many stores; the connection and the store have their own.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
