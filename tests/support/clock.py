"""A clock that tests turn by hand: sleeping moves it at once, and its UUIDs are the same in every run."""

import threading
from uuid import UUID

_UUID_EPOCH_100NS = 0x01B21DD213814000
_NODE = 0x0123456789AB

START = 1_788_000_000_000_000
"""Where a virtual clock begins unless told: a day in August 2026, in microseconds since 1970."""


class VirtualClock:
    """The Clock port over a number."""

    def __init__(self, micros: int = START) -> None:
        self._now = micros
        self._issued = 0
        self._lock = threading.Lock()
        self.slept: list[float] = []

    def micros(self) -> int:
        """Microseconds since 1970."""
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        """Let the hand jump; remembered in `slept`."""
        with self._lock:
            self.slept.append(seconds)
            self._now += round(max(0.0, seconds) * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Turn the hand, without anybody having slept."""
        with self._lock:
            self._now += round(seconds * 1_000_000)

    def new_uuid(self) -> UUID:
        """A version-1 UUID of now, unlike any before."""
        with self._lock:
            self._issued += 1
            return uuid_at(self._now, self._issued)


def uuid_at(micros: int, sequence: int = 0) -> UUID:
    """A version-1 UUID of that instant; equal arguments give equal UUIDs."""
    ticks = micros * 10 + _UUID_EPOCH_100NS
    low, middle, high = ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
    node = (_NODE + (sequence >> 14)) & 0xFFFFFFFFFFFF
    return UUID(fields=(low, middle, high, (sequence >> 8) & 0x3F, sequence & 0xFF, node), version=1)
