"""The listing of a bucket, in parts that are read side by side.

A store lists its keys in order, and begins after whatever text it is given. So the keys are cut at bounds. Who lists a
part begins after its lower bound and goes on, into the parts behind it too, until one that another has taken. Whatever
the bounds and the keys are, each key is in one part, and each part is listed once; no key needs to be understood.

Where to cut is found in the bucket: by the first page, and by a look behind each beginning that ids have in common.
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from string import ascii_letters, digits
from typing import Final, Protocol

from mailmend.mailqueue.rules.blob_ids import SIDE_CAR
from mailmend.model.blobs import StoredBlob
from mailmend.model.errors import BlobsUnreachable

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
