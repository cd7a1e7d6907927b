"""Limits of a repair: rows per second, and failures in a row."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from model.instants import MICROS
from model.ports import Clock
from model.projections.findings import Finding, Suspect

BURST_SECONDS = 0.25
"""After a pause this many seconds' worth of rows may be taken at once."""

UNREACHED_MAX = 500
"""After this many unreached suspects in a row the rest is skipped; each batch has waited for its timeout."""

COUNTERS_UNREACHED_MAX = 5
"""The same for counters, which are visited one by one: each has waited for its own timeout."""


def granted_until(until: int, now: int, rows: int, rows_per_second: float) -> int:
    """The instant in microseconds until which the pace is used up, once `rows` more are granted."""
    idle_since = now - round(BURST_SECONDS * MICROS)
    return max(until, idle_since) + round(rows * MICROS / rows_per_second)


def share(rows_per_second: int | None, workers: int) -> float | None:
    """One worker's part of a common pace; None (no pace) stays None."""
    return None if rows_per_second is None else rows_per_second / max(1, workers)


@dataclass(slots=True)
class Pace:
    """A pace for one thread: call `take` before (or after) rows are read. Rate None: never waits."""

    rows_per_second: float | None
    clock: Clock
    _until: int = field(default=0, init=False)

    def take(self, rows: int) -> None:
        """Wait until `rows` more are due."""
        if self.rows_per_second is None or rows <= 0:
            return
        now = self.clock.micros()
        self._until = granted_until(self._until, now, rows, self.rows_per_second)
        if self._until > now:
            self.clock.sleep((self._until - now) / MICROS)


@dataclass(slots=True)
class Breaker:
    """Skips the rest of a run once the cluster is gone: counts unreached suspects in a row. Thread-safe.

    What is skipped is unchanged; the same command can be repeated later.
    """

    unreached_max: int = UNREACHED_MAX
    _unreached: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def open(self) -> bool:
        """Whether to skip the rest. It never closes again: a run that lost its cluster must not go on in part."""
        return self._unreached >= self.unreached_max

    def note(self, findings: Iterable[Finding]) -> None:
        """Count the results of suspects, in the order in which they were tried."""
        with self._lock:
            for finding in findings:
                if not self.open:
                    self._unreached = self._unreached + 1 if finding.unreached else 0

    def left(self, suspect: Suspect) -> Finding:
        error = f"not looked at again: the cluster could not be reached {self.unreached_max:,} times in a row"
        return Finding(suspect, suspect.verdict, error=error, unreached=True, untried=True)
