"""Run-time conditions: limits that an operator or hook sets for a while, tested before the policy file's conditions.

Each is of the policies that count by exactly its fields: it changes their limits, and makes no counter. Where there is
no such policy it is parked, until a reload brings one.
Source: docs/design.md, "Pickup" (2, 8).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID, uuid5

from mailmend.delivery.policy.covering import covers, pattern_text
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    GroupName,
    PatternTexts,
    PickupField,
    Threshold,
    ThresholdCondition,
    ValuePattern,
    field_named,
    kept_pattern,
    pattern_of,
)
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.suspensions import HOOK_OWNER
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import ascii_domain
from mailmend.model.ids import QueueName

_IDS: Final = UUID("1f0b3c3e-5d0a-4c58-9d2e-0c6d8f5f7a11")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCondition:
    """Limits that an operator or hook set for all servers of a queue.

    Attributes:
        fields: the fields of the policy, by name, in alphabetical order.
        values: for which they hold, by the name of their field, in the spelling of `pattern_text`; none is always.
        threshold: all of the limits: nothing comes from the file then.
        owner: who set them.
        made_at: the earlier one is tested first; conditions of people come before conditions of
            hooks.
        ends_at: None: until it is removed.
        unread: why the ledger does not tell all of it: `threshold` lets nothing begin then; "" where it tells all.
        has_target: whether the ledger tells its fields and values.
    """

    id: UUID
    queue: QueueName
    fields: tuple[str, ...]
    values: PatternTexts
    threshold: Threshold
    owner: str
    reason: str
    made_at: datetime
    ends_at: datetime | None = None
    unread: str = ""
    has_target: bool = True

    def names_the_same(self, fields: Sequence[str], values: PatternTexts) -> bool:
        """Whether it is of the same policy and the same values; both as `normal_texts` gives them."""
        return self.has_target and (self.fields, self.values) == (tuple(fields), values)

    def has_ended(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now

    @property
    def is_of_hook(self) -> bool:
        return self.owner.startswith(HOOK_OWNER)

    @property
    def rank(self) -> tuple[bool, datetime, UUID]:
        """The lower is tested first."""
        return self.is_of_hook, self.made_at, self.id

    @property
    def patterns(self) -> Mapping[PickupField, tuple[ValuePattern, ...]]:
        """Raises WrongUse: one of a field or value that this version does not know."""
        return {
            (named := field_named(name)): tuple(kept_pattern(named, text) for text in texts)
            for name, texts in self.values.items()
        }

    @property
    def counted_by(self) -> frozenset[PickupField]:
        return frozenset(map(field_named, self.fields))


def normal_condition_value(named: PickupField, text: str) -> str:
    """A value of a condition in one spelling; unlike a suspension's value it may name a group.

    Raises:
        WrongUse: no mail can have it, or it names a list.
    """
    if text.startswith("@"):
        meant = f"Did you mean {text[1:]!r}?" if ascii_domain(text[1:]) else "Write values."
        raise WrongUse(f"{text!r} names a list, which only a policy file has", mend=meant)
    return pattern_text(pattern_of(named, text))


def normal_texts(fields: Iterable[str], values: PatternTexts) -> tuple[tuple[str, ...], PatternTexts]:
    """The fields of a policy and the values of a condition in one spelling, so that what means the same is the same.

    Raises:
        WrongUse: an unknown field, a value that is not valid, a value of a field that is not given,
            or a list.
    """
    names = tuple(sorted({field_named(name).value for name in fields}))
    for name in values:
        if field_named(name).value not in names:
            counted = ", ".join(names) or "nothing"
            raise WrongUse(f"such a policy does not count by {name}", mend=f"It counts by: {counted}.")
    spelled = {name: {normal_condition_value(field_named(name), text) for text in values[name]} for name in values}
    return names, {name: tuple(sorted(spelled[name])) for name in sorted(spelled)}


def condition_id(queue: QueueName, fields: Sequence[str], values: PatternTexts, hook: str = "") -> UUID:
    """The id of a condition without a given id: the same fields and values always make the same id.

    What a hook sets is another condition than what people set: `hook` is its owner.
    """
    return uuid5(_IDS, repr((queue, tuple(fields), sorted(values.items()))) + hook)


@dataclass(frozen=True, slots=True)
class PlacedCondition:
    """What became of a condition under the policies of a file.

    Attributes:
        policies: the numbers of those whose limits it sets, from 0.
        groups: by the value that it names, the group that this value is counted as there.
        parked: why it sets no limits now; "" where it does.
    """

    made: MadeCondition
    policies: tuple[int, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    parked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPolicies:
    """What one server of a queue counts by.

    Attributes:
        server: the process.
        policies: of its file, in their order; policies read from the ledger have neither conditions nor limits.
    """

    server: str
    policies: tuple[CounterPolicy, ...]
    algorithm: RateAlgorithm
    said_at: datetime


def with_conditions(
    policies: Sequence[CounterPolicy], made: Iterable[MadeCondition], algorithm: RateAlgorithm
) -> tuple[tuple[CounterPolicy, ...], tuple[PlacedCondition, ...]]:
    """The policies with the conditions before their own, in their rank; and what became of each.

    A condition is parked where it cannot be read which mails it limits: an expression that an older version took, a
    field of a later version, a damaged row.
    """
    before = [list[ThresholdCondition[Threshold]]() for _ in policies]
    placed = list[PlacedCondition]()
    for condition in sorted(made, key=lambda one: one.rank):
        if not condition.has_target:
            placed.append(PlacedCondition(condition, parked=f"it cannot be read: {condition.unread}"))
            continue
        try:
            patterns, counted_by = condition.patterns, condition.counted_by
        except WrongUse as error:
            placed.append(PlacedCondition(condition, parked=f"it cannot be read: {error.what}"))
            continue
        found = list[int]()
        groups = dict[str, str]()
        why = _refused(condition.threshold, algorithm)
        for number in _counting_by(counted_by, policies) if not why else ():
            why = _lacking_group(policies[number], patterns)
            if not why:
                counted = {named: _as_counted(policies[number], named, some) for named, some in patterns.items()}
                known = {named: tuple(dict.fromkeys(some.values())) for named, some in counted.items()}
                before[number].append(ThresholdCondition(known, condition.threshold))
                pairs = (pair for some in counted.values() for pair in some.items())
                groups |= {pattern_text(said): pattern_text(now) for said, now in pairs if said != now}
                found.append(number)
        why = "" if found else why or f"no policy counts by exactly {', '.join(condition.fields) or 'no field'}"
        placed.append(PlacedCondition(condition, tuple(found), groups, why))
    together = zip(policies, before, strict=True)
    merged = (replace(policy, conditions=(*some, *policy.conditions)) if some else policy for policy, some in together)
    return tuple(merged), tuple(placed)


def _counting_by(fields: frozenset[PickupField], policies: Sequence[CounterPolicy]) -> list[int]:
    return [number for number, policy in enumerate(policies) if frozenset(policy.fields) == fields]


def _refused(threshold: Threshold, algorithm: RateAlgorithm) -> str:
    """Why the servers' way to count cannot keep to these limits."""
    try:
        if threshold.rate:
            algorithm.state(threshold.rate)
    except WrongUse as error:
        return error.what
    return ""


def _lacking_group(policy: CounterPolicy, patterns: Mapping[PickupField, Sequence[ValuePattern]]) -> str:
    for named, some in patterns.items():
        known = {GroupName(group.name) for group in policy.groups.get(named, ())}
        for pattern in some:
            if isinstance(pattern, GroupName) and pattern not in known:
                return f"the policy has no group {pattern_text(pattern)} of {named.value}"
    return ""


def _as_counted(
    policy: CounterPolicy, named: PickupField, patterns: Iterable[ValuePattern]
) -> Mapping[ValuePattern, ValuePattern]:
    """For each pattern the group as which all of its values are counted; itself without a group."""
    found = dict[ValuePattern, ValuePattern]()
    for pattern in patterns:
        group = next(
            (field_group for field_group in policy.groups.get(named, ()) if _holds_all(field_group, pattern)), None
        )
        found[pattern] = GroupName(group.name) if group else pattern
    return found


def _holds_all(group: FieldGroup, pattern: ValuePattern) -> bool:
    return not isinstance(pattern, GroupName) and any(covers(value, pattern) for value in group.patterns)
