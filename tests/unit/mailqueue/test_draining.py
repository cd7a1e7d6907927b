"""Whose turn it is: by weight, without starving, first come first served within a level."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.every_queue import Drain, checked_prefetch, next_turn, weight_of
from mailmend.mailqueue.rules.mails import PRIORITIES
from mailmend.model.errors import WrongUse

LEVELS = st.sets(st.sampled_from(PRIORITIES), min_size=1)


@given(LEVELS)
def test_a_round_gives_each_level_turns_by_its_weight(levels: set[int]) -> None:
    """Over as many turns as all weights together, each that always waits has as many as its weight."""
    owed, had = dict[int, int](), Counter[int]()
    for _ in range(sum(map(weight_of, levels))):
        level, owed = next_turn(owed, levels)
        had[level] += 1
    assert had == {level: weight_of(level) for level in levels}


@given(st.lists(LEVELS, min_size=1, max_size=60))
def test_a_turn_goes_to_who_waits_and_debts_cancel_out(waits: list[set[int]]) -> None:
    """Whoever comes and goes, the turn is somebody's who waits; only they are remembered."""
    owed = dict[int, int]()
    for waiting in waits:
        level, owed = next_turn(owed, waiting)
        assert level in waiting
        assert set(owed) == waiting


def test_the_lowest_level_waits_for_one_round_at_most() -> None:
    owed, seen = dict[int, int](), list[int]()
    for _ in range(55):
        level, owed = next_turn(owed, PRIORITIES)
        seen.append(level)
    assert 0 in seen


async def test_within_a_level_the_first_is_first() -> None:
    drain: Drain[str] = Drain()
    for priority, name in ((5, "a"), (5, "b"), (9, "x"), (9, "y")):
        drain.put(priority, name)
    drain.drop(9)
    drain.drop(3)
    assert (len(drain), list(drain)) == (2, ["a", "b"])
    assert [await anext(drain), await anext(drain)] == ["a", "b"]


async def test_whoever_waits_is_woken_and_whoever_gave_up_took_none() -> None:
    drain: Drain[str] = Drain()
    gave_up, waits = asyncio.ensure_future(anext(drain)), asyncio.ensure_future(anext(drain))
    await asyncio.sleep(0)
    gave_up.cancel()
    drain.put(5, "one")
    assert await waits == "one"
    assert len(drain) == 0


async def test_a_failure_comes_after_what_is_held() -> None:
    drain: Drain[str] = Drain()
    drain.put(5, "last")
    drain.fail(ValueError("gone"))
    assert await anext(drain) == "last"
    for _ in range(2):
        with pytest.raises(ValueError, match="gone"):
            await anext(drain)


def test_what_is_cleared_is_handed_back() -> None:
    drain: Drain[str] = Drain()
    drain.put(1, "a")
    drain.put(2, "b")
    assert (drain.clear(), len(drain)) == (["a", "b"], 0)


def test_a_prefetch_takes_something() -> None:
    assert checked_prefetch(1) == 1
    with pytest.raises(WrongUse):
        checked_prefetch(0)
