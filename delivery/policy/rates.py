"""How many deliveries may begin in a stretch of time, by three algorithms.

Instants and intervals are whole nanoseconds of a clock that never goes back. Nothing here waits or reads a clock: a
state says from when the next delivery may begin, and is told of each that begins.
Source: docs/design.md, "Pickup" (4, 9).
"""

import re
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from mailmend.model.errors import WrongUse

SECOND: Final = 1_000_000_000
"""Nanoseconds."""

SLIDING_COUNT_MAX: Final = 10_000
"""The largest count of a sliding rate: it remembers as many instants, of 8 bytes each."""

LONG_AGO: Final = -(2**63)
"""An instant before all others: something may begin at once."""

_MEND: Final = "Write X deliveries in Y seconds as X/Y, like 100/60, or X alone for each second."
_TEXT: Final = re.compile(r"\s*(\d+)\s*(?:/\s*(\d+(?:\.\d+)?|\.\d+)\s*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeliveryRate:
    """The maximum number of deliveries that begin in an interval.

    Attributes:
        count: 1 or more.
        interval: nanoseconds, 1 or more.
    """

    count: int
    interval: int = SECOND

    def __post_init__(self) -> None:
        if self.count < 1:
            raise WrongUse("a rate must allow at least 1 delivery", mend="To let none through, suspend what is meant.")
        if self.interval < 1:
            raise WrongUse("the interval of a rate is not longer than nothing", mend=_MEND)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The rate that `X/Y` or `X` means: X deliveries in Y seconds, or in one.

        >>> DeliveryRate.parse("10/60")
        DeliveryRate(count=10, interval=60000000000)

        Raises:
            WrongUse: it is written otherwise, or either of them is 0.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise WrongUse(f"{text!r} is not a rate", mend=_MEND)
        count, seconds = found.groups("1")
        return cls(int(count), round(float(seconds) * SECOND))

    @property
    def apart(self) -> int:
        """The nanoseconds between two deliveries that are evenly spread, rounded up."""
        return -(-self.interval // self.count)


class TokenBucket:
    """Evenly spread, but for a burst of a tenth: in any interval at most the count and a tenth begin.

    The state is the instant at which the bucket is full again (the generic cell rate algorithm).
    """

    __slots__ = ("_full_at", "rate")

    def __init__(self, rate: DeliveryRate) -> None:
        self.rate = rate
        self._full_at = LONG_AGO

    def next_at(self) -> int:
        return self._full_at - (self.burst - 1) * self.rate.apart

    def begin(self, now: int) -> None:
        self._full_at = max(self._full_at, now) + self.rate.apart

    def change(self, rate: DeliveryRate, now: int) -> None:
        owed = max(self._full_at - now, 0)
        self._full_at = now + -(-owed * rate.apart // self.rate.apart)
        self.rate = rate

    def spend(self, many: int, now: int) -> None:
        self._full_at = max(self._full_at, now) + min(many, self.burst) * self.rate.apart

    def forgotten_at(self) -> int:
        return self._full_at

    def spent(self) -> "Spent":
        return ((self._full_at, 0),)

    def take_up(self, spent: "Spent") -> None:
        ((self._full_at, _),) = spent

    @property
    def burst(self) -> int:
        """How many may begin at one instant after a long rest."""
        return max(1, self.rate.count // 10)


class FixedWindow:
    """The count in each window; a window opens with the first delivery after the last one has closed.

    At the seam of two windows all but twice the count can begin within one interval.
    """

    __slots__ = ("_begun", "_opened_at", "rate")

    def __init__(self, rate: DeliveryRate) -> None:
        self.rate = rate
        self._opened_at = LONG_AGO
        self._begun = 0

    def next_at(self) -> int:
        if self._begun < self.rate.count:
            return LONG_AGO
        return self.forgotten_at()

    def begin(self, now: int) -> None:
        if now >= self.forgotten_at():
            self._opened_at = now
            self._begun = 0
        self._begun += 1

    def change(self, rate: DeliveryRate, now: int) -> None:  # noqa: ARG002 - the window stays open as it is
        self.rate = rate

    def spend(self, many: int, now: int) -> None:
        if now >= self.forgotten_at():
            self._begun = 0
        self._begun += many
        self._opened_at = max(now, self._opened_at)

    def forgotten_at(self) -> int:
        return self._opened_at + self.rate.interval

    def spent(self) -> "Spent":
        return ((self._opened_at, self._begun),)

    def take_up(self, spent: "Spent") -> None:
        ((self._opened_at, self._begun),) = spent


class SlidingWindow:
    """Never more than the count in any interval, wherever it begins: the instants of the last ones are remembered."""

    __slots__ = ("_begun_at", "_newest_dropped", "rate")

    def __init__(self, rate: DeliveryRate) -> None:
        self.rate = _remembered(rate)
        self._begun_at = deque[int]()
        self._newest_dropped = LONG_AGO

    def next_at(self) -> int:
        # Those that are no longer known may have been many: none begins within an interval of the newest of them.
        known = self._begun_at
        count = self.rate.count
        first = self._newest_dropped
        if len(known) >= count:
            first = known[len(known) - count]
        return first + self.rate.interval

    def begin(self, now: int) -> None:
        known = self._begun_at
        rate = self.rate
        known.append(now)
        while len(known) > rate.count and known[0] + rate.interval <= now:
            self._newest_dropped = known.popleft()

    def change(self, rate: DeliveryRate, now: int) -> None:  # noqa: ARG002 - what is known stays known
        self.rate = _remembered(rate)

    def spend(self, many: int, now: int) -> None:
        at = now
        if self._begun_at:
            at = max(now, self._begun_at[-1])
        for _ in range(many):
            self.begin(at)

    def forgotten_at(self) -> int:
        newest = LONG_AGO
        if self._begun_at:
            newest = self._begun_at[-1]
        return newest + self.rate.interval

    def spent(self) -> "Spent":
        """Those that began within a hundredth of the interval are one item, at the instant of the last of them."""
        found = [(self._newest_dropped, 0)]
        within = self.rate.interval // 100
        opened_at = LONG_AGO
        for at in self._begun_at:
            if at - opened_at > within:
                opened_at = at
                found.append((at, 1))
            else:
                found[-1] = (at, found[-1][1] + 1)
        return tuple(found)

    def take_up(self, spent: "Spent") -> None:
        (self._newest_dropped, _), *begun = spent
        self._begun_at = deque[int]()
        for at, many in begun:
            self._begun_at.extend([at] * many)


def _remembered(rate: DeliveryRate) -> DeliveryRate:
    if rate.count > SLIDING_COUNT_MAX:
        raise WrongUse(
            f"a sliding rate of {rate.count:,} would remember as many instants",
            mend=f"Count at most {SLIDING_COUNT_MAX:,}, over a shorter interval, or take the token bucket.",
        )
    return rate


Spent = tuple[tuple[int, int], ...]
"""What began under a rate, small enough to be kept: instants, and how many then; each algorithm has its own reading."""

RateState = TokenBucket | FixedWindow | SlidingWindow
"""What is remembered of the deliveries that began under one rate.

`next_at` is the instant from when one more may begin, now where it has passed; `begin` is called for each that does, by
callers that have seen that it may; `change` sets another rate, against which counts what has begun already; `spend`
counts some as begun, whether or not they might have, by which a window opens anew and a bucket is empty at most; from
`forgotten_at` on the state is as good as a new one; `spent` is what a state of the same rate takes up to be as strict
as this one, or a little stricter.
"""


class RateAlgorithm(Enum):
    """How deliveries are counted against a rate; the value is its name in a policy file."""

    TOKEN_BUCKET = "tokenbucket"  # noqa: S105 - an algorithm
    FIXED_WINDOW = "fixedwindow"
    SLIDING = "sliding"

    @classmethod
    def of(cls, state: RateState) -> Self:
        """The algorithm of a state."""
        kinds = {TokenBucket: "tokenbucket", FixedWindow: "fixedwindow", SlidingWindow: "sliding"}
        return cls(kinds[type(state)])

    def state(self, rate: DeliveryRate) -> RateState:
        """A state in which nothing has begun yet.

        Raises:
            WrongUse: the rate's count is more than a sliding one remembers.
        """
        match self:
            case RateAlgorithm.TOKEN_BUCKET:
                return TokenBucket(rate)
            case RateAlgorithm.FIXED_WINDOW:
                return FixedWindow(rate)
            case RateAlgorithm.SLIDING:
                return SlidingWindow(rate)
