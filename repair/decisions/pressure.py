"""How fast a run may go on a cluster that others use: decided from what it sees of its own requests. Pure.

The idea is TCP Vegas's, and that of Netflix's concurrency-limits: the latency that was seen while nothing was in the
way tells how much of the present one is a queue. A run asks for one small thing of always the same kind, again and
again; while the answers take longer than that by more than is tolerated the rate falls, in proportion, and where they
do not it rises. Between the two it stays, or the rate would swing for ever.
"""

from dataclasses import dataclass, replace
from enum import Enum
from math import inf, sqrt
from typing import Final

FLOOR: Final = 100.0
"""Rows per second below which no pressure brings a run: as fast as James's own task may be at most."""

LOOK_SECONDS: Final = 0.25
"""How often a run looks; all numbers of looks below are in these."""

CUT_ABOVE: Final = 1.5
"""The rate falls while answers take this many times as long as they did at best."""

GROW_BELOW: Final = 1.25
"""And rises while they take less than this."""

GROWTH: Final = 1.05
BACK_OFF: Final = 0.5
"""After a timeout or an overload error, and never more at once."""

QUIET_LOOKS: Final = 20
"""After such an error the rate does not rise for so long."""

COMPACTIONS_MORE: Final = 20
"""So many more pending compactions of a node than at best, and twice as many, are too many."""

COMPACTING: Final = 0.7
"""What is left of the rate after each reading of too many compactions."""

SLACK_SECONDS: Final = 0.0005
"""Added to the best latency: what a busy process and a fast network cannot tell from each other."""

_SAMPLE_MAX: Final = 4.0
"""Times the best latency: one collection of garbage shall not count for more."""

_FAST: Final = 4
_SLOW: Final = 32
_KNOWN: Final = 8
"""The best is known after so many samples. It is the least of a slow mean, for the least sample is luck."""

_FORGETS: Final = 1.01
"""At the floor the run is not in the way, so what is seen is the cluster's own: the best comes nearer to it."""

_MUCH: Final = 10.0
"""A rate of so many times what the run comes to does not bind it."""


class Strain(Enum):
    """Why a run slows down; the value is its name for people."""

    LATENCY = "slow answers"
    TIMEOUT = "timeouts"
    OVERLOAD = "overload errors"
    COMPACTIONS = "pending compactions"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a run saw since its last look.

    Attributes:
        rows_per_second: that the run has come to.
        seconds: the latency of its small read; None where it had no answer.
        timeouts, overloads: its requests that had none, or an error instead.
        compactions: the most that are pending on one node; None where that was not read.
    """

    rows_per_second: float
    seconds: float | None = None
    timeouts: int = 0
    overloads: int = 0
    compactions: int | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a run remembers of the cluster, and its rate in rows per second.

    Attributes:
        limit: the operator's; infinite without one.
        best, fast, slow: latencies in seconds: the best of the slow mean, and both means as they are.
        quiet: looks until the rate may rise again.
        compactions: the fewest that were pending.
    """

    limit: float = inf
    rate: float = inf
    samples: int = 0
    best: float = inf
    fast: float = 0.0
    slow: float = 0.0
    quiet: int = 0
    compactions: int | None = None
    compacting: bool = False

    @property
    def floor(self) -> float:
        return min(FLOOR, self.limit)

    @property
    def ratio(self) -> float:
        """How many times as long as at best the answers take now."""
        return self.fast / (self.best + SLACK_SECONDS) if self.samples else 0.0

    def limited(self, limit: float) -> "Pressure":
        """The same cluster under another limit; a run that was held by the old one alone goes to the new one."""
        return replace(self, limit=limit, rate=limit if self.rate >= self.limit else min(self.rate, limit))

    def after(self, seen: Observation) -> tuple["Pressure", Strain | None]:
        """The state after a look, and why it lowered the rate; None where it did not."""
        known = self._with_compactions(seen.compactions)
        known = known if seen.seconds is None else known._with_sample(seen.seconds)  # noqa: SLF001 - its own class
        strain, factor = known._strain(seen)  # noqa: SLF001
        if strain in (Strain.TIMEOUT, Strain.OVERLOAD):
            known = replace(known, quiet=QUIET_LOOKS)
        if strain is None:
            return known._grown(seen.rows_per_second), None  # noqa: SLF001
        own = min(known.rate, seen.rows_per_second)
        if own <= known.floor:  # it is not this run that is in the way
            return known._resigned(), None  # noqa: SLF001
        return replace(known, rate=max(known.floor, own * factor)), strain

    def _with_sample(self, seconds: float) -> "Pressure":
        number = self.samples + 1
        sample = seconds if number <= _KNOWN else min(seconds, _SAMPLE_MAX * (self.best + SLACK_SECONDS))
        fast = self.fast + (sample - self.fast) / min(number, _FAST)
        slow = self.slow + (sample - self.slow) / min(number, _SLOW)
        best = min(self.best, slow) if number > _KNOWN else slow
        return replace(self, samples=number, best=best, fast=fast, slow=slow)

    def _with_compactions(self, pending: int | None) -> "Pressure":
        if pending is None:
            return self
        least = pending if self.compactions is None else min(self.compactions, pending)
        return replace(self, compactions=least, compacting=pending > max(2 * least, least + COMPACTIONS_MORE))

    def _strain(self, seen: Observation) -> tuple[Strain | None, float]:
        if seen.timeouts:
            return Strain.TIMEOUT, BACK_OFF
        if seen.overloads:
            return Strain.OVERLOAD, BACK_OFF
        if seen.compactions is not None and self.compacting:
            return Strain.COMPACTIONS, COMPACTING
        if self.samples >= _KNOWN and seen.seconds is not None and self.ratio > CUT_ABOVE:
            return Strain.LATENCY, max(BACK_OFF, sqrt(CUT_ABOVE / self.ratio))
        return None, 1.0

    def _grown(self, rows_per_second: float) -> "Pressure":
        if self.quiet:
            return replace(self, quiet=self.quiet - 1)
        if self.compacting or self.ratio >= GROW_BELOW:
            return self._resigned()
        rate = min(self.limit, self.rate * GROWTH)
        unbound = FLOOR <= rows_per_second < rate / _MUCH
        return replace(self, rate=self.limit if unbound else rate)

    def _resigned(self) -> "Pressure":
        if self.rate > self.floor:
            return self
        return replace(self, best=max(self.best, min(self.best * _FORGETS, self.slow)))
