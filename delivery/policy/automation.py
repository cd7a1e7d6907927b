"""Automatic limits: replies that come too often for a sub-queue suspend it, or slow it down.

Nothing here writes or waits: `AutomaticCounters` is told of each reply, and says when a rule is
triggered. Its memory is bounded: it forgets the sub-queues that had no reply for longest.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from mailmend.delivery.policy.policy import (
    CounterKey,
    ExactValue,
    PickupField,
    Threshold,
    ValuePattern,
)
from mailmend.delivery.policy.rates import DeliveryRate

TRIGGER_MAX: Final = 1_000
"""The largest number of replies that a rule waits for: the instant of each is remembered."""

TRIGGER_WITHIN_MAX: Final = timedelta(days=1)
"""The longest time within which a rule counts replies."""

LASTS_MIN: Final = timedelta(seconds=10)
"""The shortest time for which a rule orders something.

A server renews an order once half of its time has passed, so it writes at most once in 5 seconds
for a rule and a sub-queue.
"""

INSTANTS_MAX: Final = 100_000
"""Instants of replies that a server remembers, over all rules and sub-queues: about 4 MiB."""

SUB_QUEUES_MAX: Final = 10_000
"""Pairs of a rule and a sub-queue that a server remembers."""


CountedPlaces = set[tuple[str, CounterKey]]
"""Names of rules, with their sub-queues, that have counted the same pass of a recipient already."""

_OF_A_SERVER: Final = frozenset(
    (PickupField.REMOTE_MX, PickupField.REMOTE_IP, PickupField.LOCAL_IP),
)
"""Fields that an attempt lacks where no server is known; no mail that waits lacks them."""


@dataclass(frozen=True, slots=True)
class AutomaticRule:
    """What is ordered for a sub-queue when replies of some classes come too often.

    Attributes:
        classes: the replies that count.
        fields: what makes a sub-queue: attempts with the same values of these fields count
            together.
        patterns: attempts that count; each field must match by one of its patterns.
        trigger: how many replies, within which time.
        threshold: the limits of the sub-queue while the order lasts; None: it is suspended.
        lasts: how long the order lasts, from the reply that triggered it.
    """

    name: str
    classes: frozenset[str]
    fields: tuple[PickupField, ...]
    patterns: Mapping[PickupField, tuple[ValuePattern, ...]]
    trigger: DeliveryRate
    threshold: Threshold | None
    lasts: timedelta

    def counts(self, reply_class: str, values: Mapping[PickupField, str]) -> bool:
        """Whether a reply of this class to an attempt with these values counts.

        Without a server to try, an attempt has no values of the server: rules that need them do
        not count it.
        """
        if reply_class not in self.classes:
            return False
        for named in (*self.fields, *self.patterns):
            if named in _OF_A_SERVER and named not in values:
                return False
        for named, some in self.patterns.items():
            value = values.get(named, "")
            if not any(pattern.matches(value) for pattern in some):
                return False
        return True

    def names_mails(self, key: CounterKey) -> bool:
        """Whether a sub-queue has a value, or `if` asks for the mails without values."""
        if any(key):
            return True
        nothing = ExactValue("")
        return all(nothing in self.patterns.get(named, ()) for named in self.fields)


@dataclass(frozen=True, slots=True)
class TriggeredRule:
    """A rule that is triggered now, and the values of its fields that make the sub-queue."""

    rule: AutomaticRule
    key: CounterKey


@dataclass(slots=True, eq=False)
class AutomaticCounters:
    """When replies came, by rule and sub-queue.

    Instants are nanoseconds of a clock that never goes back.
    """

    rules: Sequence[AutomaticRule] = ()
    _seen: OrderedDict[tuple[str, CounterKey], deque[int]] = field(default_factory=OrderedDict)
    _instants: int = 0

    def use(self, rules: Sequence[AutomaticRule]) -> None:
        """Count by these rules from now on; a rule that is as it was counts on."""
        before = {rule.name: rule for rule in self.rules}
        same = {rule.name for rule in rules if before.get(rule.name) == rule}
        for name, key in list(self._seen):
            if name not in same:
                self._forget((name, key))
        self.rules = tuple(rules)

    def count(
        self,
        reply_class: str,
        values: Mapping[PickupField, str],
        now: int,
        counted: CountedPlaces,
    ) -> Iterator[TriggeredRule]:
        """Each rule that a reply of this class triggers; its count then begins anew.

        A field that an attempt lacks is empty, a value like others. A sub-queue without any value
        is not counted: mails without these fields may be all mails.
        A place in `counted` has counted this pass of the recipient already, and does not again;
        places that count it now are added.
        """
        for rule in self.rules:
            if not rule.counts(reply_class, values):
                continue
            key = tuple(values.get(named, "") for named in rule.fields)
            place = (rule.name, key)
            if place in counted or not rule.names_mails(key):
                continue
            counted.add(place)
            if self._reaches(rule, key, now):
                yield TriggeredRule(rule, key)

    @property
    def instants(self) -> int:
        """How many instants are remembered."""
        return self._instants

    def _reaches(self, rule: AutomaticRule, key: CounterKey, now: int) -> bool:
        """Whether this reply is the last one that the rule waits for."""
        place = (rule.name, key)
        seen = self._seen.setdefault(place, deque())
        self._seen.move_to_end(place)
        while seen and seen[0] <= now - rule.trigger.interval:
            seen.popleft()
            self._instants -= 1
        seen.append(now)
        self._instants += 1
        if len(seen) >= rule.trigger.count:
            self._forget(place)
            return True
        while self._instants > INSTANTS_MAX or len(self._seen) > SUB_QUEUES_MAX:
            self._forget(next(iter(self._seen)))
        return False

    def _forget(self, place: tuple[str, CounterKey]) -> None:
        self._instants -= len(self._seen.pop(place))
