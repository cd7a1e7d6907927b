"""A clock for queues that tests turn by hand: pausing moves it at once, in the order in which pauses end.

Its chance and its UUIDs are drawn from a seed, so that a run can be had again.
"""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.support.clock import START, VirtualClock

_TURNS = 40
"""How often the others have their turn before time moves on: what they do without pausing takes no time."""


class VirtualLoopClock(VirtualClock):
    """`mailqueue.ports.Clock` over a number; `model.ports.Clock` too, through `VirtualClock`.

    Args:
        micros: where it begins, in microseconds since 1970.
        seed: of chance and UUIDs.
    """

    def __init__(self, micros: int = START, seed: int = 0) -> None:
        super().__init__(micros)
        self._random = random.Random(seed)
        self._wakings: list[int] = []
        self._stirs = 0
        self.chances: list[float] = []
        """What `chance` answers first, before it draws."""

    @property
    def now(self) -> datetime:
        """The hand, as a datetime in UTC."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.micros())

    def turn_to(self, at: datetime) -> None:
        """Put the hand somewhere, back too."""
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
        """Whether it is; time moves on only when nobody began or ended a pause for some turns."""
        stirs = self._stirs
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._stirs == stirs and waking == min(self._wakings) and self.micros() < waking:
            self.advance((waking - self.micros()) / 1_000_000)
        return self.micros() >= waking

    def random_uuid(self) -> UUID:
        """A version-4 UUID, the same in every run."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def chance(self) -> float:
        """A number from 0 up to, and without, 1."""
        return self.chances.pop(0) if self.chances else self._random.random()
