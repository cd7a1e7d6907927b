"""A clock that goes before or after another, as the clocks of real machines do."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from model.ports import Clock
from tests.support.clock import uuid_at


@dataclass(slots=True)
class SkewedClock:
    """The Clock port beside another clock.

    Attributes:
        skew_micros: what it is ahead.
        numbers: make its UUIDs differ from everybody's.
    """

    clock: Clock
    skew_micros: int
    numbers: Iterator[int]

    def micros(self) -> int:
        """Microseconds since 1970, as this process believes."""
        return self.clock.micros() + self.skew_micros

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.sleep(seconds)

    def new_uuid(self) -> UUID:
        """A version-1 UUID of what this process believes to be now."""
        return uuid_at(self.micros(), next(self.numbers))
