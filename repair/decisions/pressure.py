"""The rate of a run on a cluster that others use, decided from the latencies and errors of its own requests. Pure.

The idea comes from TCP Vegas and Netflix's concurrency-limits: compared with the lowest latency seen, the present
latency tells how much of it is waiting in queues. A run repeats a small read of one kind. While its latency is above
`CUT_ABOVE` times the best, the rate falls in proportion; while it is below `GROW_BELOW` times the best, it rises. In
between the rate stays, as it would oscillate otherwise.
"""

from dataclasses import dataclass, replace
from enum import Enum
from math import inf, sqrt
from typing import Final

FLOOR: Final = 100.0
"""The lowest rate under pressure, in rows per second; James's own task is never faster than this."""

LOOK_SECONDS: Final = 0.25
"""The time between two looks at the cluster, in seconds. Numbers of looks below count these."""

CUT_ABOVE: Final = 1.5
"""The rate falls while the latency is more than this many times the best."""

GROW_BELOW: Final = 1.25
"""The rate rises while the latency is less than this many times the best."""

GROWTH: Final = 1.05
BACK_OFF: Final = 0.5
"""The factor on the rate after a timeout or an overload error; no step lowers the rate by more."""

QUIET_LOOKS: Final = 20
"""The number of looks after such an error during which the rate does not rise."""

COMPACTIONS_MORE: Final = 20
"""Pending compactions of a node are too many if they are this many more than at best, and at least twice as many."""

COMPACTING: Final = 0.7
"""The factor on the rate after each reading of too many pending compactions."""

SLACK_SECONDS: Final = 0.0005
"""A tolerance that is added to the best latency: smaller differences may come from this process itself."""

_SAMPLE_MAX: Final = 4.0
"""Times the best latency: one collection of garbage shall not count for more."""

_FAST: Final = 4
_SLOW: Final = 32
_KNOWN: Final = 8
"""The number of samples after which the best is known. It is the least of a slow mean, for the least sample is luck."""

_FORGETS: Final = 1.01
"""At the floor the run is not in the way, so what is seen is the cluster's own: the best comes nearer to it."""

_MUCH: Final = 10.0
"""A rate of at least this multiple of the run's own rate does not bind it."""


class Strain(Enum):
    """Why a run slows down; the value is its name for people."""

    LATENCY = "slow answers"
    TIMEOUT = "timeouts"
    OVERLOAD = "overload errors"
    COMPACTIONS = "pending compactions"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a run observed since its last look at the cluster.

    Attributes:
        rows_per_second: the rate that the run achieved.
        seconds: the latency of its small read; None where there was no answer.
        timeouts, overloads: the numbers of its requests without an answer in time, and of its
            requests refused as overload.
        compactions: the number of pending compactions of the node with the most; None where it was not read.
    """

    rows_per_second: float
    seconds: float | None = None
    timeouts: int = 0
    overloads: int = 0
    compactions: int | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a run knows of the cluster's load, and its rate in rows per second.

    Attributes:
        limit: the operator's limit, in rows per second; infinite without a limit.
        best, fast, slow: latencies in seconds: the lowest slow mean so far, the present fast mean and slow mean.
        quiet: the number of looks until the rate may rise again.
        compactions: the smallest number of pending compactions so far.
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
        """The present latency divided by the best one; 0 without a sample."""
        if not self.samples:
            return 0.0
        return self.fast / (self.best + SLACK_SECONDS)

    def limited(self, limit: float) -> "Pressure":
        """The same knowledge with another limit; a rate that was at the old limit becomes the new one."""
        if self.rate >= self.limit:
            return replace(self, limit=limit, rate=limit)
        return replace(self, limit=limit, rate=min(self.rate, limit))

    def after(self, seen: Observation) -> tuple["Pressure", Strain | None]:
        """The state after a look, and why it lowered the rate; None where it did not."""
        known = self._with_compactions(seen.compactions)
        if seen.seconds is not None:
            known = known._with_sample(seen.seconds)  # noqa: SLF001 - its own class
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
        best_is_known = number > _KNOWN
        sample = seconds
        if best_is_known:
            sample = min(seconds, _SAMPLE_MAX * (self.best + SLACK_SECONDS))
        fast = self.fast + (sample - self.fast) / min(number, _FAST)
        slow = self.slow + (sample - self.slow) / min(number, _SLOW)
        best = slow
        if best_is_known:
            best = min(self.best, slow)
        return replace(self, samples=number, best=best, fast=fast, slow=slow)

    def _with_compactions(self, pending: int | None) -> "Pressure":
        if pending is None:
            return self
        least = pending
        if self.compactions is not None:
            least = min(self.compactions, pending)
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
        if FLOOR <= rows_per_second < rate / _MUCH:  # the rate does not bind the run
            rate = self.limit
        return replace(self, rate=rate)

    def _resigned(self) -> "Pressure":
        if self.rate > self.floor:
            return self
        return replace(self, best=max(self.best, min(self.best * _FORGETS, self.slow)))
