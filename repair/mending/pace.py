"""Rows per second, kept: so that a repair leaves the cluster to those whose mail it is.

One number stands for the whole state of a pace: the instant until which rows were already granted. The arithmetic is
pure; `Pace` holds the number and does the waiting.
"""

from dataclasses import dataclass, field

from model.instants import MICROS
from model.ports import Clock

BURST_SECONDS = 0.25
"""What may be taken at once after a pause: this many seconds' worth of rows."""


def granted_until(until: int, now: int, rows: int, rows_per_second: float) -> int:
    """The instant until which rows are granted, once `rows` more are; in microseconds."""
    idle_since = now - round(BURST_SECONDS * MICROS)
    return max(until, idle_since) + round(rows * MICROS / rows_per_second)


def share(rows_per_second: int | None, workers: int) -> float | None:
    """One worker's part of a pace that all keep together; no pace, no part."""
    return None if rows_per_second is None else rows_per_second / max(1, workers)


@dataclass(slots=True)
class Pace:
    """A pace that one thread keeps: `take` before (or after) so many rows. None for the rate: no waiting at all."""

    rows_per_second: float | None
    clock: Clock
    _until: int = field(default=0, init=False)

    def take(self, rows: int) -> None:
        """Wait until so many rows are due."""
        if self.rows_per_second is None or rows <= 0:
            return
        now = self.clock.micros()
        self._until = granted_until(self._until, now, rows, self.rows_per_second)
        if self._until > now:
            self.clock.sleep((self._until - now) / MICROS)
