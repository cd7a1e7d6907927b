"""In which order the levels of a queue are drained: by weight, so that urgent mail is fast and no mail starves.

Smooth weighted round robin over the levels that have something in hand: a level of priority n has the weight n + 1, so
of mail that waits at all ten levels the highest gets ten turns for each one of the lowest, evenly spread.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from model.errors import WrongUse

D = TypeVar("D")


def checked_prefetch(prefetch: int) -> int:
    """How many messages of a level may be in hand at once.

    Raises:
        WrongUse: none may: a broker would take that for any number.
    """
    if prefetch < 1:
        raise WrongUse(f"a prefetch of {prefetch} takes nothing", mend="Ask for 1 or more.")
    return prefetch


def weight_of(priority: int) -> int:
    """How many turns the level has, against the others that wait."""
    return priority + 1


@dataclass(frozen=True, slots=True)
class Turns:
    """Where the round robin stands: what each level that waits is owed, in turns times the sum of weights."""

    owed: Mapping[int, int] = field(default_factory=dict)


def next_turn(turns: Turns, waiting: Collection[int]) -> tuple[int, Turns]:
    """The level whose turn it is, and where the round robin stands then.

    A level that has nothing to give is forgotten: it neither saves turns up nor pays for those that it had.

    Args:
        turns: where it stands.
        waiting: the levels that have something; not none.
    """
    owed = {level: turns.owed.get(level, 0) + weight_of(level) for level in waiting}
    chosen = max(owed, key=lambda level: (owed[level], level))
    owed[chosen] -= sum(map(weight_of, waiting))
    return chosen, Turns(owed)


class Drain(Generic[D]):
    """What was delivered and not yet asked for, handed out by weight; first come, first served within a level."""

    def __init__(self) -> None:
        self._lanes: dict[int, deque[D]] = {}
        self._turns = Turns()
        self._filled = asyncio.Event()
        self._failure: BaseException | None = None

    def put(self, priority: int, delivery: D) -> None:
        """Add one at the end of its level."""
        self._lanes.setdefault(priority, deque()).append(delivery)
        self._filled.set()

    def fail(self, error: BaseException) -> None:
        """Nothing will come any more: whoever asks is told why, once what is in hand has been handed out."""
        self._failure = error
        self._filled.set()

    def drop(self, priority: int) -> None:
        """Forget what is in hand of a level."""
        self._lanes.pop(priority, None)

    def clear(self) -> list[D]:
        """Empty it; what was in hand."""
        left = [delivery for lane in self._lanes.values() for delivery in lane]
        self._lanes.clear()
        return left

    async def take(self) -> D:
        """The next one, as soon as there is one. Cancelled, it has taken none."""
        while not self._lanes:
            if self._failure is not None:
                raise self._failure
            self._filled.clear()
            await self._filled.wait()
        level, self._turns = next_turn(self._turns, self._lanes)
        delivery = self._lanes[level].popleft()
        if not self._lanes[level]:
            del self._lanes[level]
        return delivery

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[D]:
        return (delivery for lane in self._lanes.values() for delivery in lane)
