"""A cluster that is gone is not asked a million times: after so many failures in a row the rest is left at once.

What is left is as it was; the same command goes on with it later. The state is one number, shared by everything that
one process does for one errand.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from repair.decisions.findings import Outcome, Suspect

UNREACHED_MAX = 500
"""Suspects in a row that could not be reached, after which the rest is left: each batch of them has waited its time."""

COUNTERS_UNREACHED_MAX = 5
"""The same for counters, which are looked at one after the other: each has waited its time alone."""


@dataclass(slots=True)
class Breaker:
    """Counts what could not be reached since something last could. Thread-safe."""

    unreached_max: int = UNREACHED_MAX
    _unreached: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def open(self) -> bool:
        """Whether the rest is to be left. It stays so: a run that lost its cluster is not to go on by halves."""
        return self._unreached >= self.unreached_max

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Take in what became of some suspects, in the order in which they were tried."""
        with self._lock:
            for outcome in outcomes:
                if not self.open:
                    self._unreached = self._unreached + 1 if outcome.unreached else 0

    def left(self, suspect: Suspect) -> Outcome:
        """The outcome of a suspect that is not tried any more."""
        error = f"not looked at again: the cluster could not be reached {self.unreached_max:,} times in a row"
        return Outcome(suspect, suspect.verdict, error=error, unreached=True, untried=True)
