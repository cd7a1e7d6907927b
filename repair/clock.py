"""Time and random numbers for all of mailmend, and the rule that derives T from clocks.

A repair writes as of T, a moment before its scan began (docs/design.md, "Rules of time"): T is the earliest clock
that can be read, less a margin greater than S + A, where S is the greatest difference between any two clocks and A the
longest time from taking a stamp to the commit of the write that carries it. Then whatever a user changes after the scan
began wins over the repair. The rule is only here; everything below the class is pure except the last function.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mailmend.model.errors import ClocksDiffer, UnsafeRequest
from mailmend.model.instants import MICROS
from mailmend.model.ports import Clock, NodeClocks

MARGIN_SECONDS = 30.0
"""The default of `--margin`: how long before the start of the scan T is."""

SKEW_SECONDS = 5.0
"""S: the greatest difference that is expected between any two clocks of writers and nodes."""

STAMP_AGE_SECONDS = 20.0
"""A (`stamp_age_max`): the longest time from taking a stamp to the commit, with every driver timeout inside."""


class SystemClock:
    """This machine's clock and random numbers. Implements `model.ports.Clock`."""

    def micros(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def new_uuid(self) -> UUID:
        return uuid.uuid1()

    def random_uuid(self) -> UUID:
        return uuid.uuid4()

    def chance(self) -> float:
        return random.random()  # noqa: S311 - decides how often to clean up, guards nothing


@dataclass(frozen=True, slots=True)
class Timing:
    """A run's assumptions about clocks and delays.

    Attributes:
        margin_seconds: how long before the start of the scan T is.
        skew_seconds: S.
        stamp_age_seconds: A.
        no_writers: the operator declares that no program writes, so no margin and no wait is
            needed.
    """

    margin_seconds: float = MARGIN_SECONDS
    skew_seconds: float = SKEW_SECONDS
    stamp_age_seconds: float = STAMP_AGE_SECONDS
    no_writers: bool = False

    def __post_init__(self) -> None:
        if min(self.margin_seconds, self.skew_seconds, self.stamp_age_seconds) < 0:
            raise UnsafeRequest("a margin, a clock skew and a stamp's age cannot be negative")
        if not self.no_writers and self.margin_seconds <= self.skew_seconds + self.stamp_age_seconds:
            raise UnsafeRequest(
                f"a margin of {self.margin_seconds:g} s is not more than the clocks' skew ({self.skew_seconds:g} s) "
                f"and a stamp's age ({self.stamp_age_seconds:g} s) together: a repair could overwrite a newer change",
                mend="Give a greater --margin, or declare with --no-writers that no program writes to the keyspace.",
            )

    @property
    def margin_micros(self) -> int:
        """The margin in microseconds; 0 without writers."""
        if self.no_writers:
            return 0
        return round(self.margin_seconds * MICROS)

    @property
    def skew_allowed_micros(self) -> int:
        """The largest difference between readable clocks that the margin covers, in microseconds."""
        return round((self.margin_seconds - self.stamp_age_seconds) * MICROS)

    @property
    def look_gap_seconds(self) -> float:
        """The time between two looks at a counter, in seconds: it must be more than A (docs/design.md)."""
        if self.no_writers:
            return 0.0
        return self.stamp_age_seconds + 1.0


@dataclass(frozen=True, slots=True)
class ClockReading:
    """All readable clocks, in microseconds: the local one before and after the nodes were asked."""

    before: int
    nodes: tuple[int, ...]
    after: int

    @property
    def earliest(self) -> int:
        return min((self.before, *self.nodes))

    @property
    def spread(self) -> int:
        """A lower bound of the greatest difference between two of the clocks, in microseconds.

        A node answers between our two looks at the local clock, so only what lies outside counts as difference.
        """
        behind = max((self.before - node for node in self.nodes), default=0)
        ahead = max((node - self.after for node in self.nodes), default=0)
        apart = max(self.nodes, default=0) - min(self.nodes, default=0) - (self.after - self.before)
        return max(0, behind, ahead, apart)


def as_of(reading: ClockReading, timing: Timing) -> int:
    """T: the earliest clock less the margin, in microseconds."""
    if not timing.no_writers and reading.spread >= timing.skew_allowed_micros:
        raise ClocksDiffer(
            f"the clocks of this machine and of the nodes differ by {reading.spread / MICROS:.3f} s; "
            f"a margin of {timing.margin_seconds:g} s covers less than {timing.skew_allowed_micros / MICROS:g} s",
            mend="Mend the clocks (chronyc tracking, on every node), or give a greater --margin.",
        )
    return reading.earliest - timing.margin_micros


def read_clocks(clock: Clock, nodes: NodeClocks) -> ClockReading:
    before = clock.micros()
    answers: Sequence[int] = nodes.node_micros()
    return ClockReading(before, tuple(answers), clock.micros())


def take_as_of(clock: Clock, nodes: NodeClocks, timing: Timing) -> int:
    """T for a scan that begins now, in microseconds."""
    return as_of(read_clocks(clock, nodes), timing)
