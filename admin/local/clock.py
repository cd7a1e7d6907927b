"""Time, as the embedded servers need it: a monotonic clock and a pause, handed in so that tests own both."""

import time
from typing import Protocol


class Clock(Protocol):
    """What a wait needs to know."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def pause(self, seconds: float) -> None:
        """Let so much time go by."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds since the machine started, or so."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
