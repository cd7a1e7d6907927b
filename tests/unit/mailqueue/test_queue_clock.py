"""The queue tests' clock: without it behaving, none of them means anything."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.clock import VirtualClock


async def test_pauses_end_in_the_order_of_their_ends() -> None:
    """A long pause does not let a short one oversleep, whichever began first."""
    clock, woken = VirtualClock(), []

    async def sleeper(seconds: float) -> None:
        begun = clock.micros()
        await clock.pause(seconds)
        woken.append((seconds, clock.micros() - begun))

    async with asyncio.TaskGroup() as tasks:
        for seconds in (60.0, 1.0, 5.0):
            tasks.create_task(sleeper(seconds))
    assert woken == [(1.0, 1_000_000), (5.0, 5_000_000), (60.0, 60_000_000)]


async def test_whoever_woke_may_pause_again_before_a_longer_pause_ends() -> None:
    """Time does not jump past the next pause of somebody who has only just woken."""
    clock = VirtualClock()
    begun, woken = clock.micros(), list[int]()

    async def often() -> None:
        for _ in range(10):
            await clock.pause(1)
            woken.append(clock.micros() - begun)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(clock.pause(60))
        tasks.create_task(clock.pause(300))
        tasks.create_task(often())
    assert woken == [seconds * 1_000_000 for seconds in range(1, 11)]
    assert clock.micros() - begun == 300_000_000


async def test_a_cancelled_pause_holds_nobody_up() -> None:
    """What was cancelled is forgotten: the next pause moves the hand all by itself."""
    clock = VirtualClock()

    begun = clock.micros()
    short = asyncio.create_task(clock.pause(1))
    await asyncio.sleep(0)
    short.cancel()
    with pytest.raises(asyncio.CancelledError):
        await short
    await clock.pause(10)
    assert clock.micros() - begun == 10_000_000


def test_one_seed_gives_one_run() -> None:
    """Chance and UUIDs are those of the seed; what a test puts first comes first."""
    one, other = VirtualClock(seed=7), VirtualClock(seed=7)
    other.chances.append(0.0)
    assert one.random_uuid() == other.random_uuid()
    assert other.chance() == 0.0
    assert one.chance() == other.chance()


def test_the_hand_can_be_put_anywhere() -> None:
    clock = VirtualClock()
    start = clock.now
    clock.turn_to(start + timedelta(hours=2))
    clock.turn_to(start - timedelta(hours=1))
    assert clock.now == start - timedelta(hours=1)
