"""Time and chance, for the whole of mailmend: the one door to them, and the rule that turns clocks into T.

A repair writes as of T, a moment before its scan began (DESIGN idea 4, model-checked): T is the earliest clock that can
be read, less a margin greater than S + A, where S is the greatest difference between any two clocks and A the longest
time from taking a stamp to the commit of the write that carries it. Then whatever a user changes after the scan began
wins over the repair. The law stands here and nowhere else; everything below the class is pure but for its last step.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from model.errors import ClocksDiffer, UnsafeRequest
from model.instants import MICROS
from model.ports import Clock, NodeClocks

MARGIN_SECONDS = 30.0
"""What T lies before the scan, unless `--margin` says otherwise."""

SKEW_SECONDS = 5.0
"""S: the greatest difference that is expected between any two clocks of writers and nodes."""

STAMP_AGE_SECONDS = 20.0
"""A (`stamp_age_max`): the longest time from taking a stamp to the commit, with every driver timeout inside."""


class SystemClock:
    """This machine's clock, and its chance. Implements `model.ports.Clock`."""

    def micros(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds since the machine started, or so."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass; blocks the thread."""
        time.sleep(max(0.0, seconds))

    async def pause(self, seconds: float) -> None:
        """Let time pass, while the event loop runs others."""
        await asyncio.sleep(max(0.0, seconds))

    def new_uuid(self) -> UUID:
        """A version-1 UUID of now."""
        return uuid.uuid1()

    def random_uuid(self) -> UUID:
        """A UUID that nobody can guess or draw again."""
        return uuid.uuid4()

    def chance(self) -> float:
        """A number from 0 up to, and without, 1."""
        return random.random()  # noqa: S311 - decides how often to clean up, guards nothing


@dataclass(frozen=True, slots=True)
class Timing:
    """What a run assumes of everybody's clocks.

    Attributes:
        margin_seconds: what T lies before the start of the scan.
        skew_seconds: S.
        stamp_age_seconds: A.
        no_writers: the operator declares that nobody writes: then no margin and no wait is needed.
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
                mend="Give a greater --margin, or declare with --no-writers that nobody writes to the keyspace.",
            )

    @property
    def margin_micros(self) -> int:
        """The margin that T takes off: none where nobody writes."""
        return 0 if self.no_writers else round(self.margin_seconds * MICROS)

    @property
    def skew_allowed_micros(self) -> int:
        """The difference between readable clocks that the margin still covers."""
        return round((self.margin_seconds - self.stamp_age_seconds) * MICROS)

    @property
    def look_gap_seconds(self) -> float:
        """How far apart two looks at a counter must lie: more than A, as asof-model C11 found."""
        return 0.0 if self.no_writers else self.stamp_age_seconds + 1.0


@dataclass(frozen=True, slots=True)
class ClockReading:
    """All the clocks that could be read: the local one before and after asking the nodes, in microseconds."""

    before: int
    nodes: tuple[int, ...]
    after: int

    @property
    def earliest(self) -> int:
        """The earliest of them."""
        return min((self.before, *self.nodes))

    @property
    def spread(self) -> int:
        """The least difference that certainly lies between some two of them.

        A node answers somewhere between our two looks at the local clock: only what lies outside counts against it.
        """
        behind = max((self.before - node for node in self.nodes), default=0)
        ahead = max((node - self.after for node in self.nodes), default=0)
        apart = max(self.nodes, default=0) - min(self.nodes, default=0) - (self.after - self.before)
        return max(0, behind, ahead, apart)


def as_of(reading: ClockReading, timing: Timing) -> int:
    """T: the earliest clock less the margin, in microseconds.

    Raises:
        ClocksDiffer: the clocks differ by more than the margin covers.
    """
    if not timing.no_writers and reading.spread >= timing.skew_allowed_micros:
        raise ClocksDiffer(
            f"the clocks of this machine and of the nodes differ by {reading.spread / MICROS:.3f} s; "
            f"a margin of {timing.margin_seconds:g} s covers less than {timing.skew_allowed_micros / MICROS:g} s",
            mend="Mend the clocks (chronyc tracking, on every node), or give a greater --margin.",
        )
    return reading.earliest - timing.margin_micros


def read_clocks(clock: Clock, nodes: NodeClocks) -> ClockReading:
    """Look at the local clock, at every node's, and at the local one again."""
    before = clock.micros()
    answers: Sequence[int] = nodes.node_micros()
    return ClockReading(before, tuple(answers), clock.micros())


def take_as_of(clock: Clock, nodes: NodeClocks, timing: Timing) -> int:
    """T for a scan that begins now.

    Raises:
        ClocksDiffer: the clocks differ by more than the margin covers.
    """
    return as_of(read_clocks(clock, nodes), timing)
