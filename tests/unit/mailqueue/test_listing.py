"""A bucket that is listed in parts: each key once, whatever keys there are, however a store puts them in order."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.blobs import s3
from mailmend.mailqueue.blobs.s3 import PAGES_AT_ONCE, KeyParts, ListedPage, listed_in_parts
from mailmend.model.blobs import StoredBlob
from mailmend.model.errors import BlobsUnreachable
from mailmend.model.ids import BlobId

WHEN = datetime(2026, 11, 20, tzinfo=UTC)
ORDERS: dict[str, Callable[[str], Any]] = {"bytes": str.encode, "UTF-16": lambda key: key.encode("utf-16-be")}
BEGINNINGS = ("", "1_628_", "1_629_", "12_7_", "1/628/", "recovery/", "recovery/1_628_", "zz")
KEYS = st.sets(
    st.builds("{}{}".format, st.sampled_from(BEGINNINGS), st.text("ab01_/-=é\uffff\U0001f600", max_size=6)).filter(len)
    | st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
    max_size=40,
)


@dataclass(slots=True)
class Store:
    """A store's listing; it answers after as many turns of the loop as `turns` says next.

    Attributes:
        begins: whether it begins after what it is told, in the look and in the pages.
    """

    keys: Iterable[str]
    page_keys: int = 3
    order: Callable[[str], Any] = str.encode
    turns: Iterable[int] = (0,)
    begins: tuple[bool, bool] = (True, True)
    asked: int = 0
    under_way: int = 0
    most_under_way: int = 0
    _turns: Any = field(init=False)

    def __post_init__(self) -> None:
        self.keys = sorted(self.keys, key=self.order)
        self._turns = cycle(self.turns)

    async def __call__(self, *, after: str, token: str, most: int) -> ListedPage:
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        for _ in range(next(self._turns)):
            await asyncio.sleep(0)
        self.under_way -= 1
        begin = token or (after if self.begins[most > 1] else "")
        left = [key for key in self.keys if self.order(key) > self.order(begin)]
        some = left[: min(most, self.page_keys)]
        blobs = [StoredBlob(BlobId(key), len(key), WHEN) for key in some]
        return blobs, some[-1] if len(left) > len(some) else ""


async def listed(store: Store) -> list[str]:
    return [blob.blob_id async for blob in listed_in_parts(store, "the bucket of a test")]


@given(KEYS, st.sets(st.text("ab01_/~", max_size=4)))
def test_every_key_is_in_one_part_that_begins_before_it(keys: set[str], bounds: set[str]) -> None:
    parts, ends = KeyParts(bounds), sorted(bounds - {""})
    for key in keys:
        part = parts.part_of(key)
        assert parts.begins_after(part) < key
        assert part == len(ends) or key <= ends[part]
        for order in ORDERS.values():
            assert [order(one) < order(key) for one in ends] == [at < part for at in range(len(ends))]


@given(
    KEYS,
    st.integers(1, 4),
    st.sampled_from(sorted(ORDERS)),
    st.lists(st.integers(0, 9), min_size=1),
    st.booleans(),
)
def test_each_key_is_listed_once(keys: set[str], page_keys: int, order: str, turns: list[int], begins: bool) -> None:
    """In whatever order pages come; a store that does not begin where it is told to is listed page after page."""
    store = Store(keys, page_keys, ORDERS[order], turns, (begins, begins))
    assert sorted(asyncio.run(listed(store))) == sorted(keys)
    assert store.most_under_way <= PAGES_AT_ONCE


def ids(count: int, *beginnings: str) -> list[str]:
    chance = Random(7)
    return [f"{one}{UUID(int=chance.getrandbits(128))}" for one in beginnings for _ in range(count)]


@pytest.mark.parametrize("beginnings", [("1_628_",), ("",), ("1_620_", "1_621_", "1_622_"), ("", "1_628_", "1/628/")])
async def test_pages_of_ids_are_read_side_by_side(beginnings: tuple[str, ...]) -> None:
    """No look is for nothing more than a few times, and all but the first pages have others beside them."""
    keys = ids(6_000 // len(beginnings), *beginnings)
    store = Store(keys, 50, turns=(5,))
    rounds = 0

    async def reported() -> list[str]:
        nonlocal rounds
        task = asyncio.ensure_future(listed(store))
        while not task.done():
            rounds += 1
            await asyncio.sleep(0)
        return await task

    assert sorted(await reported()) == sorted(keys)
    assert store.most_under_way == PAGES_AT_ONCE
    assert 120 <= store.asked <= 120 * 1.3
    assert rounds < 120 * 6 / 2, "half the time that a page after the other takes"


async def test_a_small_bucket_is_not_asked_for_much_more_than_it_has() -> None:
    store = Store(ids(250, "1_628_"), 50)
    await listed(store)
    assert 5 <= store.asked <= 8


async def test_a_store_that_goes_back_is_not_believed() -> None:
    """It began where it was told when it was looked at, and no more when it was listed."""
    with pytest.raises(BlobsUnreachable, match="contradict"):
        await listed(Store(ids(100, "1_628_"), begins=(True, False)))


async def test_a_store_without_an_order_is_listed_page_after_page() -> None:
    keys = ids(200, "1_628_")
    store = Store(keys, 50, lambda key: key[::-1].encode())
    assert sorted(await listed(store)) == sorted(keys)
    assert (store.asked, store.most_under_way) == (4, 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_last_page_is_not_believed_where_others_have_more(first: int) -> None:
    """Whether these came before it or come after."""
    parts = KeyParts(["b", "d"])
    assert parts.take() == 2
    pages = [(0, ["a"], True), (2, ["e"], False)]
    parts.own(pages[first][0], pages[first][1], ended=pages[first][2])
    with pytest.raises(ValueError, match=r"\d"):
        parts.own(pages[1 - first][0], pages[1 - first][1], ended=pages[1 - first][2])


async def test_who_stops_using_it_ends_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PAGES_AT_ONCE", 4)
    store = Store(ids(100, "1_628_"), turns=(0, 0, 3))
    blobs = listed_in_parts(store, "the bucket of a test")
    for _ in range(4):
        await anext(blobs)
    asked = store.asked
    await blobs.aclose()  # type: ignore[attr-defined]
    assert asked <= 2 + 4 + 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
