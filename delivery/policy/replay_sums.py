"""What a replay comes to, next to what was recorded: sums that may be made of each group of a record and then added."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import CounterKey, PickupField
from mailmend.delivery.policy.replaying import (
    MILLI,
    AttemptReplay,
    BegunAttempt,
    CounterUse,
    LimitKind,
    RecordedAttempt,
    most_refusing,
)

LOOKED_AT: Final = (PickupField.RECIPIENT_DOMAIN, PickupField.TRANSPORT_ID, PickupField.TENANT_ID)
"""The fields whose values are shown by how much they were delayed."""

_DIGITS: Final = 3
"""The number of digits to which waits are counted, and no finer than a millisecond."""


@dataclass(slots=True)
class WaitSums:
    """When attempts began, how long they waited, and when they ended, in milliseconds.

    Attributes:
        waits: how many waited for how long, rounded up to three digits.
        longest: exactly.
        last_begun, last_ended: since 1970; None: nothing began.
    """

    begun: int = 0
    waits: Counter[int] = field(default_factory=Counter)
    longest: int = 0
    last_begun: int | None = None
    last_ended: int | None = None

    def count(self, ready_at: int, begun_at: int, ended_at: int) -> None:
        wait = max(0, begun_at - ready_at)
        self.begun += 1
        self.waits[_rounded(wait)] += 1
        self._widen(begun_at, ended_at, wait)

    def add(self, other: "WaitSums") -> None:
        if other.last_begun is None or other.last_ended is None:
            return
        self.begun += other.begun
        self.waits.update(other.waits)
        self._widen(other.last_begun, other.last_ended, other.longest)

    def percentile(self, percent: int) -> int | None:
        """A percentile of the waits, rounded up to three digits; None: nothing began."""
        seen = 0
        for wait in sorted(self.waits):
            seen += self.waits[wait]
            if seen * 100 >= self.begun * percent:
                return min(wait, self.longest)
        return None

    def _widen(self, last_begun: int, last_ended: int, longest: int) -> None:
        if self.last_begun is not None:
            last_begun = max(self.last_begun, last_begun)
        if self.last_ended is not None:
            last_ended = max(self.last_ended, last_ended)
        self.last_begun = last_begun
        self.last_ended = last_ended
        self.longest = max(self.longest, longest)


def _rounded(wait: int) -> int:
    step: int = 10 ** max(0, len(str(wait)) - _DIGITS)
    return -(-wait // step) * step


@dataclass(slots=True)
class DelayedValue:
    """Attempts of one value of a field.

    Attributes:
        delayed: how many began later than recorded, or never.
        never: how many never begin.
        later: by how much they began later, all together, in milliseconds.
        latest: by how much one did at most.
    """

    attempts: int = 0
    delayed: int = 0
    never: int = 0
    later: int = 0
    latest: int = 0

    def add(self, other: "DelayedValue") -> None:
        self.attempts += other.attempts
        self.delayed += other.delayed
        self.never += other.never
        self.later += other.later
        self.latest = max(self.latest, other.latest)


@dataclass(slots=True)
class PolicyUse:
    """What became of the limits of a policy, of all its counters together.

    Attributes:
        counters: how many with limits counted deliveries or refused some; refusing: how many refused.
        held: how many attempts waited for a counter of it; for two of them: twice.
        most: deliveries at once that one counter counted.
    """

    counters: int = 0
    refusing: int = 0
    refusals: Counter[LimitKind] = field(default_factory=Counter)
    held: int = 0
    most: int = 0

    def count(self, use: CounterUse) -> None:
        self.add(PolicyUse(1, int(bool(use.refusals)), use.refusals, use.held, use.most))

    def add(self, other: "PolicyUse") -> None:
        self.counters += other.counters
        self.refusing += other.refusing
        self.refusals.update(other.refusals)
        self.held += other.held
        self.most = max(self.most, other.most)


DelayedValues = dict[tuple[PickupField, str], DelayedValue]


@dataclass(slots=True)
class ReplaySums:
    """What was recorded, and what a replay makes of it.

    Attributes:
        total: of all attempts; its `attempts` is how many there are.
        without_end: how many had no end on record.
        first_ready: in milliseconds since 1970; None: there was no attempt.
        policies: by the number of the policy.
        uses: of those counters that held back most, and of all suspensions.
        sources: how many attempts began from each address.
        values: of each value of the fields that are looked at.
    """

    total: DelayedValue = field(default_factory=DelayedValue)
    without_end: int = 0
    first_ready: int | None = None
    recorded: WaitSums = field(default_factory=WaitSums)
    simulated: WaitSums = field(default_factory=WaitSums)
    policies: dict[int, PolicyUse] = field(default_factory=dict)
    uses: dict[tuple[int, CounterKey], CounterUse] = field(default_factory=dict)
    sources: Counter[str] = field(default_factory=Counter)
    values: DelayedValues = field(default_factory=dict)
    _kept: int = 0

    def replay(self, attempts: Iterable[RecordedAttempt], said: PickupPolicies, lasting: int, top: int) -> None:
        """Replay a group of the record, sorted, and count what comes of it; of its counters `top` are kept."""
        again = AttemptReplay(said, lasting)
        for begun in again.begun(attempts):
            self._begun(begun)
        for attempt in again.left:
            self._recorded(attempt, lasting)
            self._delayed(attempt, None)
        for (number, _), use in again.uses.items():
            if number >= 0:
                self.policies.setdefault(number, PolicyUse()).count(use)
        self._keep(again.uses, top)

    def add(self, other: "ReplaySums", top: int) -> None:
        """Count what came of other groups too."""
        self.total.add(other.total)
        self.without_end += other.without_end
        if other.first_ready is not None:
            self._ready(other.first_ready)
        self.recorded.add(other.recorded)
        self.simulated.add(other.simulated)
        self.sources.update(other.sources)
        for number, policy in other.policies.items():
            self.policies.setdefault(number, PolicyUse()).add(policy)
        self._keep(other.uses, top)
        for name, value in other.values.items():
            self.values.setdefault(name, DelayedValue()).add(value)

    def _keep(self, uses: Mapping[tuple[int, CounterKey], CounterUse], top: int) -> None:
        """A suspension may hold attempts of several groups; a counter only of one."""
        for place, use in uses.items():
            if place in self.uses:
                self.uses[place].add(use)
            else:
                self.uses[place] = use
        if len(self.uses) > self._kept + top:
            self.uses = {counter_use.place: counter_use for counter_use in most_refusing(self.uses, top)}
            self._kept = len(self.uses)

    def _begun(self, begun: BegunAttempt) -> None:
        one = begun.recorded
        at = begun.at // MILLI
        self._recorded(one, (begun.ends_at - begun.at) // MILLI)
        self.simulated.count(one.ready_at, at, begun.ends_at // MILLI)
        self.sources[begun.source] += 1
        self._delayed(one, max(0, at - one.started_at))

    def _recorded(self, one: RecordedAttempt, lasting: int) -> None:
        self.without_end += one.ended_at is None
        self._ready(one.ready_at)
        ended_at = one.ended_at
        if ended_at is None:
            ended_at = one.started_at + lasting
        self.recorded.count(one.ready_at, one.started_at, ended_at)

    def _ready(self, at: int) -> None:
        if self.first_ready is None or at < self.first_ready:
            self.first_ready = at

    def _delayed(self, one: RecordedAttempt, later: int | None) -> None:
        """`later` than recorded, in milliseconds; None: it never begins."""
        found = DelayedValue(attempts=1)
        if later is None:
            found.delayed = 1
            found.never = 1
        elif later:
            found.delayed = 1
            found.later = later
            found.latest = later
        self.total.add(found)
        for named in LOOKED_AT:
            if value := one.mail.values.get(named):
                self.values.setdefault((named, value), DelayedValue()).add(found)


def most_delayed(values: Mapping[tuple[PickupField, str], DelayedValue], top: int) -> DelayedValues:
    """Field by field the values that were delayed most; those that never begin come first."""
    found = DelayedValues()
    for named in LOOKED_AT:
        some = list[tuple[str, DelayedValue]]()
        for (value_field, value), delayed in values.items():
            if value_field is named and delayed.delayed:
                some.append((value, delayed))
        some.sort(key=lambda pair: (-pair[1].never, -pair[1].later, -pair[1].delayed, pair[0]))
        for value, delayed in some[:top]:
            found[named, value] = delayed
    return found


class AttemptRecord(Protocol):
    """Recorded attempts of a queue. Adapters: `LocalAttempts` of `delivery.ledger`, `SparkAttempts` of `spark_repair`.

    Attributes:
        attempts: how many there are.
        incomplete: rows that lack when they were ready or began, as their time to live ends; they are left out.
        lasting: the median duration in milliseconds, which those have of which no end is known; None: none is known.
    """

    @property
    def attempts(self) -> int: ...

    @property
    def incomplete(self) -> int: ...

    @property
    def lasting(self) -> int | None: ...

    def replay(self, said: PickupPolicies, top: int) -> ReplaySums:
        """What becomes of them under these policies, with the `top` counters and values of each field.

        Raises:
            WrongUse: more would wait at once than there is room for.
        """
        ...

    def close(self) -> None: ...
