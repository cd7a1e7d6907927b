"""Shared reads: few are made, and each answer is of a read that began after it was asked for."""

import asyncio
import random

import pytest

from mailmend.mailqueue.rabbitmq.view.known_queues import SharedReads
from mailmend.model.errors import TimedOut


class Counter:
    """Something that grows, and is read slowly: what a read shows is of its beginning."""

    def __init__(self, turns: int = 3) -> None:
        self.value, self.reads, self.turns, self.failing = 0, 0, turns, False

    async def read(self, _: str) -> int:
        self.reads += 1
        seen = self.value
        for _turn in range(self.turns):
            await asyncio.sleep(0)
        if self.failing:
            raise TimedOut("no answer")
        return seen


@pytest.mark.parametrize("seed", range(20))
async def test_an_answer_is_never_older_than_its_question(seed: int) -> None:
    chance, counter = random.Random(seed), Counter()
    reads = SharedReads(counter.read)

    async def ask() -> None:
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        counter.value += 1
        mine = counter.value
        assert await reads.get("k") >= mine

    await asyncio.gather(*(ask() for _ in range(50)))
    assert counter.reads < 25


async def test_many_at_once_share_one_read() -> None:
    counter = Counter()
    reads = SharedReads(counter.read)
    first = [asyncio.ensure_future(reads.get("k")) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(reads.get("k")) for _ in range(10)]
    await asyncio.gather(*first, *later)
    assert counter.reads == 2
    await reads.get("k")
    assert counter.reads == 3


async def test_keys_are_read_by_themselves() -> None:
    counter = Counter()
    reads = SharedReads(counter.read)
    await asyncio.gather(*(reads.get(key) for key in "abc"))
    assert counter.reads == 3


async def test_a_failure_is_raised_to_all_who_wait_and_to_nobody_later() -> None:
    counter = Counter()
    reads = SharedReads(counter.read)
    counter.failing = True
    answers = await asyncio.gather(*(reads.get("k") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in answers] == [TimedOut] * 3
    counter.failing = False
    assert await reads.get("k") == 0


async def test_a_read_that_waits_for_one_that_fails_is_made_all_the_same() -> None:
    counter = Counter()
    reads = SharedReads(counter.read)
    counter.failing = True
    first = asyncio.ensure_future(reads.get("k"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.ensure_future(reads.get("k"))
    with pytest.raises(TimedOut):
        await first
    counter.failing = False
    assert await second == 0


async def test_whoever_is_cancelled_leaves_the_read_to_the_others() -> None:
    counter = Counter()
    reads = SharedReads(counter.read)
    asking = [asyncio.ensure_future(reads.get("k")) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    assert await asking[1] == 0
    counter.failing = True
    alone = asyncio.ensure_future(reads.get("k"))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    counter.failing = False
    assert await reads.get("k") == 0
