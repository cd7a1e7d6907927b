"""Suspensions by hand: mails that are not to be picked, whatever the policies say, until somebody lifts it or it ends.

Source: seed mta-queue-subsystem 2.3.2, facts/mta.md 1.4 and 4.7 (rules 25 and 30).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from model.pickup.policy import PickupField, ValuePattern


@dataclass(frozen=True, slots=True)
class Suspension:
    """Mails whose values match in each field that is named; none named is every mail.

    Attributes:
        patterns: by field; one of a field's must match. One of the source address leaves the others to the mail.
        ends_at: in nanoseconds of the engine's clock; None: somebody lifts it.
    """

    id: str
    patterns: Mapping[PickupField, tuple[ValuePattern, ...]] = field(default_factory=dict)
    ends_at: int | None = None

    def holds(self, values: Mapping[PickupField, str]) -> bool:
        return all(any(one.matches(values.get(named, "")) for one in some) for named, some in self.patterns.items())
