"""A clock that goes before or after another, as the clocks of real machines do."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar
from uuid import UUID

from mailmend.model.ports import Clock
from tests.support.clock import uuid_at

C = TypeVar("C", bound=Clock)


@dataclass(slots=True)
class SkewedClock(Generic[C]):
    """The Clock port beside another clock.

    Attributes:
        ahead: what it is ahead of the other.
        numbers: make its version-1 UUIDs differ from everybody's.
    """

    clock: C
    ahead: timedelta
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def micros(self) -> int:
        return self.clock.micros() + self.ahead // timedelta(microseconds=1)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        await self.clock.pause(seconds)

    def new_uuid(self) -> UUID:
        return uuid_at(self.micros(), next(self.numbers))

    def random_uuid(self) -> UUID:
        return self.clock.random_uuid()

    def chance(self) -> float:
        return self.clock.chance()
