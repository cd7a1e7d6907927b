"""A bucket of a store that speaks S3: its address, its credentials, what its refusals mean, its listing.

It needs no library. Settings are checked before the first request, and shown without their secrets.
An answer's own text is never shown: it may hold the signed string and the name of the key.

The bucket is listed in parts that are read side by side. A store lists its keys in order, and
begins after whatever text it is given. So the keys are cut at bounds. Who lists a part begins after
its lower bound and goes on, into the parts behind it too, until one that another has taken.
Whatever the bounds and the keys are, each key is in one part, and each part is listed once; no key
needs to be understood.

Where to cut is found in the bucket: by the first page, and by a look behind each beginning that ids
have in common.
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from string import ascii_letters, digits
from typing import Final, Protocol
from urllib.parse import urlsplit

from mailmend.mailqueue.rules.blob_ids import SIDE_CAR
from mailmend.model.blobs import StoredBlob
from mailmend.model.errors import BadSettings, BlobsUnreachable, BucketMissing
from mailmend.model.grammar import can_be_looked_up

_BUCKET: Final = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """A bucket of a store that speaks S3.

    Attributes:
        endpoint: such as `https://s3.example.org:9000`; the bucket's name is no part of it.
        access_key, secret_key: both, or neither: then they are looked for where all of Amazon's tools look.
        session_token: belongs to keys that are valid for a limited time.
        profile: the profile of the files in ~/.aws where keys are looked for; by default the
            profile of AWS_PROFILE, else `default`.
        region: any word will do where the store has no regions.
        allow_http: whether mails and requests may travel in the clear.
        tls_ca: the PEM file of the authority that signed the server's certificate, where the system does not trust it.
        create_bucket: whether a bucket that is missing is made by the first put; for demonstrations and tests.
    """

    endpoint: str
    bucket: str
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    region: str = "us-east-1"
    allow_http: bool = False
    tls_ca: Path | None = None
    create_bucket: bool = False
    session_token: str = field(default="", repr=False)
    profile: str = ""

    def __post_init__(self) -> None:
        _check_endpoint(self.endpoint, allow_http=self.allow_http)
        if not _BUCKET.fullmatch(self.bucket):
            raise BadSettings(
                f"{self.bucket!r} is not the name of a bucket",
                mend="It has 3 to 63 lower-case letters, digits, '-' and '.'; the first and last are no '-' or '.'.",
            )
        if not _REGION.fullmatch(self.region):
            raise BadSettings(f"{self.region!r} is not the name of a region", mend="us-east-1 serves most stores.")
        if bool(self.access_key) != bool(self.secret_key) or (self.session_token and not self.access_key):
            raise BadSettings(
                f"one of the keys to the bucket {self.bucket} is missing",
                mend="Give access key and secret key; or neither, and both are found as Amazon's tools find them.",
            )

    @property
    def place(self) -> str:
        return f"the bucket {self.bucket} at {self.endpoint}"


NO_KEYS: Final = (
    "Give keys with MAILMEND_S3_ACCESS_KEY and MAILMEND_S3_SECRET_KEY, --s3-keys-file, or as Amazon's tools take them: "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (aws configure; --s3-profile), a web identity, the role of "
    "the machine. `aws sts get-caller-identity` says what is found here."
)


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    parts = urlsplit(endpoint)
    known = parts.scheme in {"http", "https"} and parts.hostname and can_be_looked_up(parts.hostname)
    if not known or parts.query or parts.fragment:
        raise BadSettings(f"{_shown(endpoint)!r} is not an endpoint of S3", mend="Such as: https://s3.example.org")
    if parts.username or parts.password:
        raise BadSettings(
            f"the endpoint {_shown(endpoint)!r} holds a name or password", mend="The keys are settings of their own."
        )
    if parts.scheme == "http" and not allow_http:
        raise BadSettings(
            f"the endpoint {endpoint!r} is not encrypted", mend="Name its https address, or allow http for a test."
        )


def _shown(endpoint: str) -> str:
    """Without the part before an @: it may be a password."""
    return re.sub(r"//[^/]*@", "//...@", endpoint)


NO_BUCKET: Final = "NoSuchBucket"
NO_OBJECT: Final = frozenset({"NoSuchKey", "404", "NotFound"})
NO_BULK: Final = frozenset(
    {"NotImplemented", "MethodNotAllowed", "InvalidRequest", "MalformedXML", "400", "405", "501"}
)
"""Error codes and HTTP statuses of a store that cannot delete many objects by one request."""

EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "400"})
"""Error codes of a store for keys that are no longer valid. 400 is one, since the answer to HEAD has no room for a
reason."""

_PLAIN: Final = frozenset({"", "identity", "aws-chunked"})
_CODE: Final = re.compile(r"<Code>\s*(\w{1,80})\s*</Code>|\(code: (\w{1,80})\)")
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_KEYS: Final = (
    "Check the access key and the secret key; they have to be allowed to get, put and delete objects and to list the "
    "bucket: without the last, a store refuses to say that an object is missing."
)
_ADDRESS: Final = "Check the endpoint: is it the right address, does it answer, is its certificate known (tls_ca)?"

_LOG: Final = "Look at the store's own log for the reason."

_MENDS: Final[Mapping[str, str]] = {
    NO_BUCKET: "Create it: aws s3 mb s3://{bucket} --endpoint-url {endpoint} (or set create_bucket, for a test).",
    "AccessDenied": _KEYS,
    "AccountProblem": _KEYS,
    "AllAccessDisabled": _KEYS,
    **dict.fromkeys(EXPIRED, "Log in anew (aws sso login, or what made the session token), and set the new token."),
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "400": f"Keys that were valid for a while may be over: log in anew (aws sso login). {_LOG}",
    "401": _KEYS,
    "403": _KEYS,
    "RequestTimeTooSkewed": "Mend the clock of this machine (chronyc tracking): signatures are valid for minutes only.",
    "AuthorizationHeaderMalformed": "Check the region: the store has another one for this bucket.",
    "PermanentRedirect": "Check the region and the endpoint: the bucket is somewhere else.",
    "301": "Check the region and the endpoint: the bucket is somewhere else.",
    "SlowDown": "The store asks for fewer requests: wait, or run fewer consumers.",
    "503": _LOG,
    "InsufficientStorage": "The store is full: make room.",
    "507": "The store is full: make room.",
}


def code_in(text: str) -> str:
    """S3's error code in a library's message, else the HTTP status, else ""."""
    found = _CODE.search(text) or _STATUS.search(text)
    if found is None:
        return ""
    code: str = next(filter(None, found.groups()))
    return code


def failure(settings: S3Settings, code: str, cause: str = "") -> BlobsUnreachable:
    """The error to raise, in words for an operator.

    Args:
        settings: where it was tried.
        code: of S3, or a status of HTTP; empty where there was no answer.
        cause: why there was none.
    """
    if code:
        mend = _MENDS.get(code, _LOG)
        why = f"it answered {code}"
    else:
        mend = _ADDRESS
        why = f"no answer ({cause or 'the connection failed'})"
    kind = BucketMissing if code == NO_BUCKET else BlobsUnreachable
    return kind(
        f"{settings.place} cannot be used: {why}",
        mend=mend.format(bucket=settings.bucket, endpoint=settings.endpoint),
    )


def cut_off(settings: S3Settings) -> BlobsUnreachable:
    return BlobsUnreachable(
        f"the listing of {settings.place} ends in the middle: a page says that there are more, and not how to go on",
        mend="Ask again; where that does not help, the store, or a proxy before it, does not list as S3 does.",
    )


def refuse_compressed(settings: S3Settings, blob_id: str, metadata: Mapping[str, str]) -> None:
    """Refuse a blob that a newer James has compressed, as the object's metadata says.

    Raises:
        BlobsUnreachable: its bytes are not the bytes of the mail.
    """
    for name, encoding in metadata.items():
        if name.lower() == "content-encoding" and encoding.lower() not in _PLAIN:
            raise BlobsUnreachable(
                f"the blob {blob_id} in {settings.place} is compressed ({encoding}), which mailmend does not read",
                mend="Let James store blobs uncompressed (its compression.enabled); its own consumers take this mail.",
            )


PAGE_KEYS: Final = 1000
"""How many keys a page has; no store gives more."""

PAGES_AT_ONCE: Final = 8
"""How many pages are requested at the same time. As many more may be in memory, waiting to be used."""

_MORE_AFTER: Final = 3
"""The number of pages after which one more is asked for at the same time."""

LOOKS_MAX: Final = 100
"""How many common beginnings of keys are looked for, to cut the bucket at them; what lies behind the last is one
part."""

_BEGINNING: Final = re.compile(rf"(?:{SIDE_CAR})?(?:[0-9]{{1,9}}[_/][0-9]{{1,12}}[_/])?")
_LIKELY: Final = ("1/", "1_", SIDE_CAR)
"""Where else to look where ids without any beginning lie between, as an upgraded James leaves them: its family."""

_NEXT: Final = (*digits, *ascii_letters, *"+-/=_")
"""What ids go on with, however their bytes are spelled."""

ListedPage = tuple[Sequence[StoredBlob], str]
"""Objects in the order of their keys, and the token of the next page; that is empty at the end."""


class Pages(Protocol):
    """A store's listing, a page at a time.

    A page has at most `most` objects: those whose keys are greater than `after`, or those that follow the page of
    `token`.
    """

    async def __call__(self, *, after: str, token: str, most: int) -> ListedPage: ...


class KeyParts:
    """The keys of a bucket, cut at bounds: a part has the keys above the bound before it, up to and with its own bound.

    The first part is taken from the start. Bounds are ASCII, so no key is on another side of them whether a store
    orders by bytes, code points or UTF-16 (S3Proxy).
    """

    def __init__(self, bounds: Iterable[str] = ()) -> None:
        self._bounds = sorted(filter(None, set(bounds)))
        self._taken = [True] + [False] * len(self._bounds)
        self._reached = 0
        self._end = len(self._bounds)

    def part_of(self, key: str) -> int:
        return bisect_left(self._bounds, key)

    def begins_after(self, part: int) -> str:
        if part == 0:
            return ""
        return self._bounds[part - 1]

    def take(self) -> int | None:
        """The middle of the longest stretch that is not taken; None where all are."""
        longest: list[int] = []
        for taken, parts in groupby(range(len(self._taken)), self._taken.__getitem__):
            stretch = list(parts)
            if not taken and len(stretch) > len(longest):
                longest = stretch
        if not longest:
            return None
        part = longest[len(longest) // 2]
        self._taken[part] = True
        return part

    def own(self, part: int, keys: Sequence[str], *, ended: bool) -> tuple[int, int | None]:
        """How many keys of a page belong to the reader of `part`, and the part it goes on with; None: it has ended.

        Raises:
            ValueError: keys go backwards, or the listing ended before keys that it has elsewhere.
        """
        last = part
        if keys:
            last = self.part_of(keys[-1])
            self._reached = max(last, self._reached)
        if ended:
            self._end = min(last, self._end)
        if self._reached > self._end:
            raise ValueError(last)
        for count, key in enumerate(keys):
            found = self.part_of(key)
            if found < part:
                raise ValueError(key)
            part = self._taken_until(found, part)
            if part < found:
                return count, None
        if ended:
            self._taken_until(len(self._bounds), part)
            return len(keys), None
        return len(keys), part

    def _taken_until(self, last: int, part: int) -> int:
        """Take the next parts too, up to the last one, or before one that another has."""
        while part < last and not self._taken[part + 1]:
            part += 1
            self._taken[part] = True
        return part


@dataclass(slots=True)
class _Listing:
    """Pages that are under way, each with its part. Few at first: for a small bucket most would be for nothing."""

    pages: Pages
    place: str
    parts: KeyParts
    count: int = 0
    under_way: dict[asyncio.Task[ListedPage], int] = field(default_factory=dict)

    def ask(self, part: int, *, after: str = "", token: str = "") -> None:
        self.under_way[asyncio.create_task(self.pages(after=after, token=token, most=PAGE_KEYS))] = part

    def used(self, part: int, page: ListedPage) -> Sequence[StoredBlob]:
        """What of a page is new; what follows it is asked for before that is used."""
        blobs, token = page
        self.count += 1
        try:
            count, goes_on = self.parts.own(part, [blob.blob_id for blob in blobs], ended=not token)
        except ValueError as error:
            raise _contradicted(self.place) from error
        if goes_on is not None:
            self.ask(goes_on, token=token)
        return blobs[:count]

    async def blobs(self) -> AsyncIterator[StoredBlob]:
        while self.under_way:
            at_once = min(PAGES_AT_ONCE, self.count // _MORE_AFTER)
            while len(self.under_way) < at_once and (part := self.parts.take()) is not None:
                self.ask(part, after=self.parts.begins_after(part))
            done, _ = await asyncio.wait(self.under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                page = task.result()
                for blob in self.used(self.under_way.pop(task), page):
                    yield blob

    async def end(self) -> None:
        for task in self.under_way:
            task.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)


async def listed_in_parts(pages: Pages, place: str) -> AsyncIterator[StoredBlob]:
    """Every object, each once, in no order.

    A store whose listing cannot begin after a given key is read page after page.

    Raises:
        BlobsUnreachable: pages contradict each other.
    """
    page, token = await pages(after="", token="", most=PAGE_KEYS)
    for blob in page:
        yield blob
    if not token:
        return
    listing = _Listing(pages, place, KeyParts(await _bounds(pages, page)))
    listing.used(0, (page, token))
    try:
        async for blob in listing.blobs():
            yield blob
    finally:
        await listing.end()


async def _bounds(pages: Pages, page: Sequence[StoredBlob]) -> list[str]:
    """Where to cut: behind each beginning, by the next character. None where the store is not in order."""
    keys = [blob.blob_id for blob in page]
    if not keys or keys != sorted(keys):
        return []
    beginnings = set(map(_beginning, keys))
    last = str(keys[-1])
    for _ in range(LOOKS_MAX):
        after = _behind(last)
        if not after:
            break
        found, _ = await pages(after=after, token="", most=1)
        if not found:
            break
        last = found[0].blob_id
        if last <= after:
            return []
        beginnings.add(_beginning(last))
    bounds = []
    for beginning in beginnings:
        bounds += [beginning + character for character in _NEXT]
    return bounds


def _beginning(key: str) -> str:
    """What ids of one family and generation have in common; "" for others."""
    found = _BEGINNING.match(key)
    if found is None:
        return ""
    return found[0]


def _behind(key: str) -> str:
    """What is greater than all that begin like the key."""
    if beginning := _beginning(key):
        return beginning[:-1] + chr(ord(beginning[-1]) + 1)
    for likely in _LIKELY:
        if likely > key:
            return likely
    return ""


def _contradicted(place: str) -> BlobsUnreachable:
    return BlobsUnreachable(
        f"the pages of the listing of {place} contradict each other: one goes back, or was the last and is not",
        mend="Ask again; where that does not help, the store, or a proxy before it, does not list as S3 does.",
    )
