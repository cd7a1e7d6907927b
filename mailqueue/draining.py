"""What a consumer takes next: the order of the levels of a queue, and room for the bytes of its mails.

*Order*: levels are drained by weight, so urgent mail is fast and no mail starves. Smooth weighted
round robin over the levels that have a delivery: a level of priority n has the weight n + 1, so of
mail that waits at all ten levels the highest gets ten turns for each one of the lowest, evenly
spread.

*Room*: while the room for the bytes that one consumer holds at once is full, no further content is
loaded. The broker's prefetch bounds how many mails a consumer has, not how large they are. A
content's size is known once it is loaded; until then it counts as large as the largest of the last
ones. The first mail is loaded however large it is.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import Final, Generic, TypeVar

from mailmend.model.errors import WrongUse

D = TypeVar("D")


def checked_prefetch(prefetch: int) -> int:
    """The given prefetch.

    Raises:
        WrongUse: it is below 1; a broker takes 0 for no limit.
    """
    if prefetch < 1:
        raise WrongUse(f"a prefetch of {prefetch} takes nothing", mend="Ask for 1 or more.")
    return prefetch


def weight_of(priority: int) -> int:
    """How many turns the level has, relative to the other levels that have mail."""
    return priority + 1


def next_turn(owed: Mapping[int, int], waiting: Collection[int]) -> tuple[int, dict[int, int]]:
    """The level whose turn it is, and what each waiting level is owed now, in turns times the sum of weights.

    A level that has no mail is dropped: it neither saves turns nor pays for past ones.

    Args:
        owed: from the turn before; empty at the beginning.
        waiting: the levels that have mail; at least one.
    """
    now_owed = {level: owed.get(level, 0) + weight_of(level) for level in waiting}
    chosen = max(now_owed, key=lambda level: (now_owed[level], level))
    now_owed[chosen] -= sum(map(weight_of, waiting))
    return chosen, now_owed


class Drain(Generic[D]):
    """Deliveries not yet taken, handed out by weight; first in, first out within a level."""

    def __init__(self) -> None:
        self._lanes: dict[int, deque[D]] = {}
        self._owed: dict[int, int] = {}
        self._filled = asyncio.Event()
        self._failure: BaseException | None = None

    def put(self, priority: int, delivery: D) -> None:
        self._lanes.setdefault(priority, deque()).append(delivery)
        self._filled.set()

    def fail(self, error: BaseException) -> None:
        """Nothing more will come: iterating raises the error once all deliveries were handed out."""
        self._failure = error
        self._filled.set()

    def drop(self, priority: int) -> None:
        self._lanes.pop(priority, None)

    def clear(self) -> list[D]:
        """Remove all deliveries and return them."""
        left = list(self)
        self._lanes.clear()
        return left

    def __aiter__(self) -> "Drain[D]":
        return self

    async def __anext__(self) -> D:
        """The next delivery; waits for one. If cancelled, it has taken none, and may be asked again."""
        while not self._lanes:
            if self._failure is not None:
                raise self._failure
            self._filled.clear()
            await self._filled.wait()
        level, self._owed = next_turn(self._owed, self._lanes)
        delivery = self._lanes[level].popleft()
        if not self._lanes[level]:
            del self._lanes[level]
        return delivery

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[D]:
        return chain.from_iterable(self._lanes.values())


LOADS_MAX: Final = 16
"""The largest number of contents that are loaded at once: more than the bound is held by these at most."""

_REMEMBERED: Final = 100


class ContentRoom:
    """The contents of one consumer's mails.

    Args:
        bytes_max: how many bytes may be held; None: there is no bound.

    Attributes:
        held: how many bytes are held.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._max = bytes_max
        self.held = 0
        self._loading = 0
        self._sizes: deque[int] = deque([(bytes_max or 0) // LOADS_MAX], maxlen=_REMEMBERED)
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def load(self) -> AsyncGenerator[None]:
        """Load a content once there is room for it: the caller that waits longest is next."""
        await self._enter()
        try:
            yield
        finally:
            self._loading -= 1
            self._admit()

    def hold(self, size: int) -> None:
        """Count a content that was loaded."""
        self.held += size
        self._sizes.append(size)

    def let_go(self, size: int) -> None:
        """Count it no more."""
        self.held -= size
        self._admit()

    async def _enter(self) -> None:
        if not self._waiting and self._has_room:
            self._loading += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was admitted at that moment
                self._loading -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._has_room:
            turn = self._waiting.popleft()
            if not turn.done():
                self._loading += 1
                turn.set_result(None)

    @property
    def _has_room(self) -> bool:
        if self._max is None or not (self.held or self._loading):
            return True
        expected = (self._loading + 1) * max(self._sizes)
        return self._loading < LOADS_MAX and self.held + expected <= self._max
