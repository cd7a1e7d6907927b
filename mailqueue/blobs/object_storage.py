"""Blobs in a store that speaks S3, or in files; the only module that imports obstore, botocore.

Requests have a timeout, and a bounded number and time of retries. What a refusal means is in `s3`.

obstore is quick, and cannot make every request: keys with an empty part (`a//b`: one in a hundred
of the ids that James 3.8 makes of bytes), listings that spell every key as it is, buckets that are
to be made. Botocore makes these: each takes a thread and about a millisecond of the processor, five
times as much; it is not loaded before it is needed. Where no keys are given, botocore finds and
renews them for both (docs/adr/0017).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import obstore
from obstore.exceptions import BaseError, UnauthenticatedError
from obstore.store import S3Store

from mailmend.mailqueue.blobs.files import FileStore
from mailmend.mailqueue.blobs.s3 import (
    EXPIRED,
    NO_BUCKET,
    NO_BULK,
    NO_KEYS,
    NO_OBJECT,
    ListedPage,
    S3Settings,
    code_in,
    cut_off,
    failure,
    listed_in_parts,
    refuse_compressed,
)
from mailmend.mailqueue.blobs.stores import NamedBlobs, each_kept
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rules.blob_ids import BlobNaming
from mailmend.model.blobs import StoredBlob
from mailmend.model.errors import (
    BadSettings,
    BlobMissing,
    BlobsUnreachable,
    BucketMissing,
    MailmendError,
)
from mailmend.model.ids import BlobId
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock
from mailmend.repair.clock import SystemClock

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential


KEYS_VALID_FOR: Final = timedelta(minutes=1)
"""The validity that obstore is told of found keys: so short that it asks for them before each request, at most ten
times a second."""


class FoundKeys:
    """Keys that botocore finds: in the environment, a profile, by web identity, single sign-on, a process or a role.

    Botocore renews keys that expire. Keys from a file, which it does not renew, are read again when the store says that
    their token has expired.
    """

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._looking = threading.Lock()
        self._session: Any = None

    def __call__(self) -> "S3Credential":
        """The current keys; may block for seconds while a server is asked for them.

        Raises:
            BlobsUnreachable: there are no keys, or the server that issues them refuses.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only where keys are to be found

        place = self._settings.place
        try:
            found = self.session().get_credentials()
            keys = None
            if found:
                keys = found.get_frozen_credentials()
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            raise BlobsUnreachable(f"the keys to {place} cannot be had: {_reason(error)}", mend=NO_KEYS) from None
        if keys is None:
            raise BlobsUnreachable(f"no keys to {place} are found", mend=NO_KEYS)
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": instant_of(SystemClock().micros()) + KEYS_VALID_FOR,
        }

    def session(self) -> Any:
        from botocore.session import Session  # noqa: PLC0415 - only where keys are to be found

        with self._looking:
            if self._session is None:
                session = Session(profile=self._settings.profile or None)
                if session.get_config_variable("region") is None:  # who gives keys may need one
                    session.set_config_variable("region", self._settings.region)
                self._session = session
        return self._session

    def forget(self) -> None:
        self._session = None


def _reason(error: Exception) -> str:
    """What failed, without texts of others: a process may have printed a key."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    answer = getattr(error, "response", {})
    beside = getattr(error, "kwargs", {})
    named = answer.get("Error", {}).get("Code") or beside.get("provider") or beside.get("profile")
    if named:
        return f"{type(error).__name__} ({named})"
    return type(error).__name__


def found_keys(settings: S3Settings) -> FoundKeys | None:
    """The keys that botocore finds; None where the settings hold keys."""
    if settings.access_key:
        return None
    return FoundKeys(settings)


T = TypeVar("T")

REQUESTS_AT_ONCE: Final = 64
"""How many requests of one store are under way at the same time; more wait for their turn."""

BULK_MIN: Final = 5
"""Fewer objects than this are deleted one by one, which is then faster."""

BULK_MAX: Final = 1000
"""How many objects one request deletes: no store takes more."""

RETRIES: Final = 4
RETRY_TIME_MAX: Final = timedelta(seconds=15)
FIRST_WAIT: Final = timedelta(milliseconds=100)
LONGEST_WAIT: Final = timedelta(seconds=2)
CONNECT_TIME_MAX: Final = timedelta(seconds=5)
REQUEST_TIME_MAX: Final = timedelta(seconds=60)
"""How long one request may take, from the connection to the last byte: enough for a mail of 50 MB at 1 MB a second."""

ATTEMPTS: Final = 3
CONNECT_SECONDS_MAX: Final = 5
READ_SECONDS_MAX: Final = 20
THREADS: Final = 8
KEYS_AGAIN_SECONDS: Final = 0.2

_MADE_ALREADY: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})

_CAUSE_LENGTH_MAX: Final = 200


def open_files(
    root: Path, clock: Clock | None = None, naming: BlobNaming | None = None, *, makes: bool = True
) -> NamedBlobs:
    """Blobs as files of a folder, which is made where it is missing, if `makes`.

    Raises:
        BlobsUnreachable: it cannot be made.
    """
    clock = clock or SystemClock()
    store = FileStore(root, clock)
    if makes:
        store.create()
    return NamedBlobs(store, clock, naming)


def open_s3(settings: S3Settings, clock: Clock | None = None, naming: BlobNaming | None = None) -> NamedBlobs:
    """Blobs in a bucket; sends no request yet."""
    return NamedBlobs(S3Bucket(settings), clock or SystemClock(), naming)


async def create_bucket(settings: S3Settings) -> bool:
    """Create the bucket; False where it exists already.

    Raises:
        BlobsUnreachable: the store does not answer, or does not let these keys create a bucket.
    """
    return await ExactRequests(settings).create_bucket()


class ExactRequests:
    """Requests about one bucket, made by botocore; the first of them makes the client."""

    def __init__(self, settings: S3Settings, keys: FoundKeys | None = None) -> None:
        self._settings = settings
        self._keys = keys or found_keys(settings)
        self._made: Any = None
        self._making = threading.Lock()
        self._turns = asyncio.Semaphore(THREADS)

    async def keep(self, key: BlobId, content: bytes) -> None:
        await self._ask(lambda: self._client().put_object(Key=key, Body=content, **self._bucket))

    async def get(self, key: BlobId) -> bytes:
        return await self._ask(lambda: self._content(key), key)

    async def remove(self, key: BlobId) -> None:
        await self._ask(lambda: self._client().delete_object(Key=key, **self._bucket))

    async def stored_at(self, key: BlobId) -> datetime:
        answer = await self._ask(lambda: self._client().head_object(Key=key, **self._bucket), key)
        stored_at: datetime = answer["LastModified"]
        return stored_at

    async def page(self, *, after: str, token: str, most: int) -> ListedPage:
        """One page of the listing, as `mailqueue.blobs.s3.Pages` describes it.

        Raises:
            BlobsUnreachable: the page is not the last one, and does not say how to go on.
        """
        where = {}
        if token:
            where["ContinuationToken"] = token
        elif after:
            where["StartAfter"] = after
        answer = await self._ask(lambda: self._client().list_objects_v2(MaxKeys=most, **where, **self._bucket))
        more = answer.get("NextContinuationToken", "")
        if answer.get("IsTruncated", False) and more in {"", token}:
            raise cut_off(self._settings)
        listed = answer.get("Contents", ())
        return [StoredBlob(BlobId(entry["Key"]), entry["Size"], entry["LastModified"]) for entry in listed], more

    async def create_bucket(self) -> bool:
        """Create the bucket; False where it exists already."""
        return await self._ask(self._create_bucket)

    @property
    def _bucket(self) -> dict[str, str]:
        return {"Bucket": self._settings.bucket}

    def _create_bucket(self) -> bool:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - see above

        region = self._settings.region
        elsewhere: dict[str, Any] = {}
        if region != "us-east-1":
            elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}}
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
        for fields in (answer.get("Metadata", {}), {"content-encoding": answer.get("ContentEncoding", "")}):
            refuse_compressed(self._settings, key, fields)
        content: bytes = answer["Body"].read()
        return content

    async def _ask(self, request: Callable[[], T], key: BlobId | None = None) -> T:
        async with self._turns:
            return await asyncio.to_thread(self._translated, request, key)

    def _translated(self, request: Callable[[], T], key: BlobId | None, *, again: bool = False) -> T:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # noqa: PLC0415 - see above

        try:
            if self._keys:
                self._keys()
            return request()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if self._keys and code in EXPIRED and not again:
                self._keys.forget()
                self._made = None
                return self._translated(request, key, again=True)
            if key is not None and code in NO_OBJECT:
                raise BlobMissing(key, mend=f"It was looked for in {self._settings.place}") from None
            raise failure(self._settings, code) from error
        except (BotoCoreError, HTTPClientError) as error:
            raise failure(self._settings, "", type(error).__name__) from error

    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                session = None
                if self._keys:
                    session = self._keys.session()
                self._made = _new_client(self._settings, session)
        return self._made


def _instant(text: str) -> datetime:
    """A listing's instants without botocore's own parser, which takes twice as long as all the rest of a page."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):  # those of headers, and of who gives keys
        from botocore.utils import parse_timestamp  # noqa: PLC0415 - see above

        return cast("datetime", parse_timestamp(text))


def _new_client(settings: S3Settings, finds_keys: Any = None) -> Any:
    """A client of the settings alone: with keys in them, profiles, files and variables of this machine are ignored."""
    from botocore.config import Config  # noqa: PLC0415 - see above
    from botocore.session import Session  # noqa: PLC0415 - see above

    alone = {"profile": (None, None, None, None), "config_file": (None, None, "", None)}
    session = finds_keys or Session(session_vars=alone)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_instant)
    tls_ca = None
    if settings.tls_ca is not None:
        tls_ca = str(settings.tls_ca)
    return session.create_client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id=settings.access_key or None,
        aws_secret_access_key=settings.secret_key or None,
        aws_session_token=settings.session_token or None,
        verify=tls_ca,
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


class S3Bucket:
    """Bytes in a bucket. Implements `model.blobs.BlobStore`."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._keys = found_keys(settings)
        self._store = _quick_store(settings, self._keys)
        self._exactly = ExactRequests(settings, self._keys)
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

    async def keep_all(self, blobs: Mapping[BlobId, bytes]) -> Sequence[MailmendError | None]:
        return await each_kept(self.keep, blobs)

    async def get(self, blob_id: BlobId) -> bytes:
        if _needs_exactness(blob_id):
            return await self._exactly.get(blob_id)
        return await self._ask(lambda: self._content(blob_id), blob_id)

    async def get_all(self, blob_ids: Sequence[BlobId]) -> Sequence[bytes]:
        return await all_of(blob_ids, self.get, REQUESTS_AT_ONCE)

    async def part(self, blob_id: BlobId, offset: int, length: int) -> bytes:
        """Some of the bytes. Of an object whose key obstore does not take, all are read."""
        if _needs_exactness(blob_id):
            return (await self._exactly.get(blob_id))[offset : offset + length]
        try:
            return await self._ask(lambda: self._range(blob_id, offset, length), blob_id)
        except BlobsUnreachable:
            there = await self._ask(lambda: obstore.head_async(self._store, blob_id), blob_id)
            if there["size"] > offset:
                raise
            return b""

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

    async def stored_at(self, blob_id: BlobId) -> datetime | None:
        try:
            if _needs_exactness(blob_id):
                return await self._exactly.stored_at(blob_id)
            found = await self._ask(lambda: obstore.head_async(self._store, blob_id), blob_id)
        except BlobMissing:
            return None
        return found["last_modified"]

    def scan(self) -> AsyncIterator[StoredBlob]:
        return listed_in_parts(self._exactly.page, self._settings.place)

    async def _remove_together(self, blob_ids: Sequence[BlobId]) -> None:
        """In one request; a store that does not support that is not asked again."""
        if self._in_bulk:
            async with self._turns:
                try:
                    await self._with_keys(lambda: obstore.delete_async(self._bulk_store, list(blob_ids)))
                except (BaseError, OSError) as error:
                    if code_in(str(error)) not in NO_BULK:
                        raise await self._failure(error) from None
                    self._in_bulk = False
                else:
                    return
        await self._remove_each(blob_ids)

    async def _remove_each(self, blob_ids: Iterable[BlobId]) -> None:
        await all_of(blob_ids, self.remove, REQUESTS_AT_ONCE)

    @cached_property
    def _bulk_store(self) -> S3Store:
        return _quick_store(self._settings, self._keys, bulk=True)

    async def _keep(self, blob_id: BlobId, content: bytes) -> None:
        if _needs_exactness(blob_id):
            await self._exactly.keep(blob_id, content)
        else:
            await self._ask(lambda: obstore.put_async(self._store, blob_id, content, use_multipart=False), blob_id)

    async def _content(self, blob_id: BlobId) -> bytes:
        answer = await obstore.get_async(self._store, blob_id)
        refuse_compressed(self._settings, blob_id, answer.attributes)
        return bytes(await answer.bytes_async())

    async def _range(self, blob_id: BlobId, offset: int, length: int) -> bytes:
        there = await obstore.get_range_async(self._store, blob_id, start=offset, length=length)
        return bytes(there)

    async def _ask(self, request: Callable[[], Awaitable[T]], blob_id: BlobId) -> T:
        """A request's answer, errors as ours. Creating a request starts it, so that waits for a free place."""
        async with self._turns:
            try:
                return await self._with_keys(request)
            except FileNotFoundError as error:
                if code_in(str(error)) == NO_BUCKET:
                    raise failure(self._settings, NO_BUCKET) from None
                raise BlobMissing(blob_id, mend=f"It was looked for in {self._settings.place}") from None
            except (BaseError, OSError) as error:
                raise await self._failure(error) from None

    async def _with_keys(self, request: Callable[[], Awaitable[T]]) -> T:
        """Made again, once, with keys that are looked for anew, where the store calls the token expired."""
        try:
            return await request()
        except BaseError as error:
            if not self._keys or code_in(str(error)) not in EXPIRED:
                raise
        self._keys.forget()
        await asyncio.sleep(KEYS_AGAIN_SECONDS)
        return await request()

    async def _failure(self, error: Exception) -> BlobsUnreachable:
        code = code_in(str(error))
        if self._keys and not code and isinstance(error, UnauthenticatedError):
            await asyncio.to_thread(self._keys)  # raises what obstore wraps
        return failure(self._settings, code, _cause(error))


def _needs_exactness(blob_id: BlobId) -> bool:
    """The library obstore refuses `a//b`, and takes `/a` and `a/` for `a`."""
    return "" in blob_id.split("/")


def _cause(error: Exception) -> str:
    """The end of the first line of a connection error, which cannot hold text of an answer."""
    return str(error).partition("\n")[0].rpartition(" - ")[2].strip()[:_CAUSE_LENGTH_MAX]


def _quick_store(settings: S3Settings, found: FoundKeys | None, *, bulk: bool = False) -> S3Store:
    """A client of the settings alone: a token in the environment may belong to other keys."""
    keys: S3Credential = {
        "access_key_id": settings.access_key,
        "secret_access_key": settings.secret_key,
        "token": settings.session_token or None,
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
        credential_provider=found or (lambda: keys),
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
