"""A clock that tests turn by hand: sleeping moves it at once, and its UUIDs are the same in every run."""

import asyncio
import random
import threading
import types
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import UUID

from mailmend.admin.jobs.schedule import TimeAfter
from mailmend.model.ports import Clock
from tests.support.thread_calls import calls_of_this_loop

_UUID_EPOCH_100NS = 0x01B21DD213814000
_NODE = 0x0123456789AB

_TURNS = 40
"""How often the others have their turn before time moves on: what they do without pausing takes no time."""

START = 1_788_000_000_000_000
"""Where a virtual clock begins unless told: a day in August 2026, in microseconds since 1970."""


@types.coroutine
def _others_have(turns: int) -> Generator[None]:
    """Let others have their turns: as often as `asyncio.sleep(0)`, for less of a processor's time."""
    for _ in range(turns):
        yield


class VirtualClock:
    """The Clock port over a number: sleeping turns the hand at once; pauses end in their order, with others at work.

    Args:
        micros: where it begins, in microseconds since 1970.
        seed: of chance and random UUIDs.
    """

    def __init__(self, micros: int = START, seed: int = 0) -> None:
        self._now = micros
        self._issued = 0
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._wakings: list[int] = []
        self._stirs = 0
        self.slept: list[float] = []
        self.chances: list[float] = []
        """What `chance` answers first, before it draws."""

    def micros(self) -> int:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self._now += round(max(0.0, seconds) * 1_000_000)

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += round(seconds * 1_000_000)

    def new_uuid(self) -> UUID:
        with self._lock:
            self._issued += 1
            return uuid_at(self._now, self._issued)

    def monotonic(self) -> float:
        return self.micros() / 1_000_000

    @property
    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.micros())

    def turn_to(self, at: datetime) -> None:
        self.advance((at - self.now).total_seconds())

    async def pause(self, seconds: float) -> None:
        """Let others work; then the hand jumps to the end of the pause that ends first, until it is this one."""
        waking = self.micros() + round(max(0.0, seconds) * 1_000_000)
        self.slept.append(seconds)
        self._wakings.append(waking)
        self._stirs += 1
        try:
            while not await self._is_over(waking):
                pass
        finally:
            self._wakings.remove(waking)
            self._stirs += 1

    async def _is_over(self, waking: int) -> bool:
        """Whether it is; time moves on only after some turns without a new pause, and without a call in a thread."""
        calls = calls_of_this_loop()
        await calls.ended()
        stirs, begun = self._stirs, calls.begun
        await _others_have(_TURNS)
        is_quiet = self._stirs == stirs and calls.begun == begun
        if is_quiet and waking == min(self._wakings) and self.micros() < waking:
            self.advance((waking - self.micros()) / 1_000_000)
        return self.micros() >= waking

    def random_uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def chance(self) -> float:
        return self.chances.pop(0) if self.chances else self._random.random()


class VirtualTimers:
    """Timers by a clock that is turned by hand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def set(self, times: Mapping[str, TimeAfter], wake: Callable[[], None]) -> None:
        self._end()
        self._tasks = [asyncio.create_task(self._wake_at(one, wake)) for one in times.values()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._clock.micros())

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _wake_at(self, time_after: TimeAfter, wake: Callable[[], None]) -> None:
        at = self._now()
        while True:
            at = time_after(at)
            await self._clock.pause((at - self._now()).total_seconds())
            wake()


def uuid_at(micros: int, sequence: int = 0) -> UUID:
    """A version-1 UUID of that instant; equal arguments give equal UUIDs."""
    ticks = micros * 10 + _UUID_EPOCH_100NS
    low, middle, high = ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
    node = (_NODE + (sequence >> 14)) & 0xFFFFFFFFFFFF
    return UUID(fields=(low, middle, high, (sequence >> 8) & 0x3F, sequence & 0xFF, node), version=1)
