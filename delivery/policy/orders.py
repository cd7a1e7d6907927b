"""Orders: what an operator or a hook has all servers of a queue do for a while, in addition to their policy files.

A suspension keeps the mails that it names from being picked, whatever the policies say. A condition sets limits that
are tested before the policy file's own conditions: it changes the limits of the policies that count by exactly its
fields, and makes no counter. Where no policy counts by these fields, the condition is parked until a reload brings one.
Source: docs/design.md, "Pickup" (2, 8).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
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
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import ascii_domain
from mailmend.model.ids import QueueName, micros_of
from mailmend.model.instants import instant_of

ORDER_MAX: Final = timedelta(days=365)
"""The longest time for which something may be ordered."""

HOOK_OWNER: Final = "hook "
"""The owner of a hook's order begins with this, before the hook's name; no other owner begins with it."""

AUTOMATIC_OWNER: Final = "automatic rule "
"""The owner of an automatic limit begins with this, before the name of the rule."""

NOTHING_BEGINS: Final = Threshold(concurrency=0)
"""The effect of a suspension, and of a condition whose limits cannot be read."""

_OF_PROGRAMS: Final = (HOOK_OWNER, AUTOMATIC_OWNER)

_CONDITION_IDS: Final = UUID("1f0b3c3e-5d0a-4c58-9d2e-0c6d8f5f7a11")


class OrderKind(Enum):
    """What an order does; the value is its name in rows and answers."""

    SUSPENSION = "suspension"
    CONDITION = "condition"


_FILE_NAMES: Final = {
    OrderKind.SUSPENSION: (("#", "@"), "a group or a list"),
    OrderKind.CONDITION: (("@",), "a list"),
}
"""What values begin with that only a policy file gives a meaning, and what such a value names."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """Mails whose values match in each field that is named; without fields, every mail.

    Attributes:
        patterns: by field; one of a field's must match. One of the source address leaves the others to the mail.
        ends_at: in nanoseconds of the engine's clock; None: until it is removed.
    """

    id: str
    patterns: Mapping[PickupField, tuple[ValuePattern, ...]] = field(default_factory=dict)
    ends_at: int | None = None

    def holds(self, values: Mapping[PickupField, str]) -> bool:
        for named, some in self.patterns.items():
            value = values.get(named, "")
            if not any(pattern.matches(value) for pattern in some):
                return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A suspension or a condition that an operator or a hook made for all servers of a queue.

    Attributes:
        values: which mails, by the name of a field: one of a field's values must match, and each field; without
            values, every mail. The values have the spelling of `pattern_text`.
        fields: of a condition: what the policies count by whose limits it sets, by name, in alphabetical order.
        threshold: the effect. The limits of a condition replace all limits of the file; a suspension lets none begin.
        owner: who ordered it.
        made_at: when it was made first; the id of a suspension has the same time.
        ends_at: None: until it is removed.
        damage: why the ledger does not tell all of it; "" where it does. A suspension then holds every mail, and a
            condition lets nothing begin.
        has_scope: whether the ledger tells the fields and values of a condition.
    """

    kind: OrderKind
    id: UUID
    queue: QueueName
    values: PatternTexts
    fields: tuple[str, ...] = ()
    threshold: Threshold = NOTHING_BEGINS
    owner: str
    reason: str
    made_at: datetime
    ends_at: datetime | None = None
    damage: str = ""
    has_scope: bool = True

    def has_scope_of(self, other: "Order") -> bool:
        """Whether both are of the same mails, in whatever order their values are named."""
        ours = {name: set(texts) for name, texts in self.values.items()}
        theirs = {name: set(texts) for name, texts in other.values.items()}
        return self.has_scope and (self.kind, self.fields, ours) == (other.kind, other.fields, theirs)

    def has_ended(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now

    @property
    def is_of_program(self) -> bool:
        """Whether a hook or an automatic rule ordered it, and no person."""
        return self.owner.startswith(_OF_PROGRAMS)

    @property
    def rank(self) -> tuple[bool, datetime, UUID]:
        """The condition with the lower rank is tested first: people come before programs."""
        return self.is_of_program, self.made_at, self.id

    @property
    def patterns(self) -> Mapping[PickupField, tuple[ValuePattern, ...]]:
        """The values as the engine compares them.

        Raises:
            WrongUse: this version does not know a field or a value.
        """
        return dict(_read_values(name, texts) for name, texts in self.values.items())

    @property
    def counted_by(self) -> frozenset[PickupField]:
        """The fields of a condition, as policies have them.

        Raises:
            WrongUse: this version does not know a field.
        """
        return frozenset(map(field_named, self.fields))

    @property
    def unread(self) -> tuple[str, ...]:
        """Why fields of a suspension cannot be read, such as an expression of an older version; () where all can."""
        return self._readable()[1]

    @property
    def holds_every_mail(self) -> bool:
        """Whether a suspension names no mails, or cannot be read in any field."""
        return not self._readable()[0]

    def suspension(self, ends_at: int | None) -> Suspension:
        """A suspension as the engine has it; `ends_at` is in nanoseconds of the engine's clock.

        A field that cannot be read matches every mail. The suspension then holds more mails than it names, because a
        mail that waits can still go, and a mail that went cannot come back.
        """
        return Suspension(str(self.id), self._readable()[0], ends_at)

    def _readable(self) -> tuple[Mapping[PickupField, tuple[ValuePattern, ...]], tuple[str, ...]]:
        """The patterns of each field that can be read, and why the other fields cannot."""
        patterns = dict[PickupField, tuple[ValuePattern, ...]]()
        unread = list[str]()
        if self.damage:
            unread.append(self.damage)
        for name, texts in self.values.items():
            try:
                named, some = _read_values(name, texts)
                patterns[named] = some
            except WrongUse as error:
                unread.append(error.what)
        return patterns, tuple(unread)


def _read_values(name: str, texts: Iterable[str]) -> tuple[PickupField, tuple[ValuePattern, ...]]:
    named = field_named(name)
    return named, tuple(kept_pattern(named, text) for text in texts)


def new_order(
    kind: OrderKind,
    queue: QueueName,
    scope: tuple[tuple[str, ...], PatternTexts],
    *,
    owner: str,
    reason: str,
    now: datetime,
    lasts: timedelta | None,
    new_id: UUID,
    threshold: Threshold = NOTHING_BEGINS,
) -> Order:
    """An order that begins now, for the fields and values that `normal_scope` gives.

    With `lasts` None it holds until it is removed. `new_id` is a version-1 UUID of now, and the id of a suspension. The
    id of a condition follows from its scope.
    """
    fields, values = scope
    order_id = new_id
    made_at = instant_of(micros_of(new_id))
    if kind is OrderKind.CONDITION:
        program = ""
        if owner.startswith(_OF_PROGRAMS):
            program = owner
        order_id = condition_id(queue, fields, values, program)
        made_at = now
    ends_at = None
    if lasts is not None:
        ends_at = now + lasts
    return Order(
        kind=kind,
        id=order_id,
        queue=queue,
        values=values,
        fields=fields,
        threshold=threshold,
        owner=owner,
        reason=reason,
        made_at=made_at,
        ends_at=ends_at,
    )


def condition_id(
    queue: QueueName,
    fields: Sequence[str],
    values: PatternTexts,
    program: str = "",
) -> UUID:
    """The id of a condition without a given id: the same fields and values always make the same id.

    A condition of a hook or an automatic rule is another one than the same condition of people:
    `program` is its owner.
    """
    return uuid5(_CONDITION_IDS, repr((queue, tuple(fields), sorted(values.items()))) + program)


def normal_value(kind: OrderKind, named: PickupField, text: str) -> str:
    """A value of an order as a policy file spells it, in the one spelling of what means the same.

    Raises:
        WrongUse: no mail can have it, or it is a name that only a policy file has: of a list, or in a suspension also
            of a group.
    """
    marks, what = _FILE_NAMES[kind]
    if text.startswith(marks):
        meant = "Write values."
        if ascii_domain(text[1:]):
            meant = f"Did you mean {text[1:]!r}?"
        raise WrongUse(f"{text!r} names {what}, which only a policy file has", mend=meant)
    return pattern_text(pattern_of(named, text))


def normal_scope(
    kind: OrderKind, values: PatternTexts, fields: Iterable[str] = ()
) -> tuple[tuple[str, ...], PatternTexts]:
    """The fields and values of an order in one spelling, each once, so that what means the same is the same.

    Values of a condition are sorted, because its id follows from them. Values of a suspension keep their order.

    Raises:
        WrongUse: an unknown field, a value that is not valid, or a value of a field that the condition does not have.
    """
    names = tuple(sorted({field_named(name).value for name in fields}))
    if kind is OrderKind.CONDITION:
        _refuse_other_fields(names, values)
    spelled = dict[str, tuple[str, ...]]()
    for name, texts in values.items():
        named = field_named(name)
        spelled[name] = tuple(dict.fromkeys(normal_value(kind, named, text) for text in texts))
    if kind is OrderKind.CONDITION:
        spelled = {name: tuple(sorted(spelled[name])) for name in sorted(spelled)}
    return names, spelled


def refuse_negative_limits(threshold: Threshold) -> None:
    """Raises WrongUse: a limit is below 0."""
    if (threshold.concurrency or 0) < 0 or (threshold.connect_interval or 0) < 0:
        raise WrongUse("limits must not be negative", mend="0 deliveries at once lets none begin.")


def _refuse_other_fields(names: Sequence[str], values: PatternTexts) -> None:
    for name in values:
        if field_named(name).value not in names:
            counted = ", ".join(names) or "nothing"
            raise WrongUse(f"such a policy does not count by {name}", mend=f"It counts by: {counted}.")


@dataclass(frozen=True, slots=True)
class PlacedCondition:
    """What became of a condition under the policies of a file.

    Attributes:
        policies: the numbers of those whose limits it sets, from 0.
        groups: by the value that it names, the group that this value is counted as there.
        parked: why it sets no limits now; "" where it does.
    """

    order: Order
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
    policies: Sequence[CounterPolicy], orders: Iterable[Order], algorithm: RateAlgorithm
) -> tuple[tuple[CounterPolicy, ...], tuple[PlacedCondition, ...]]:
    """The policies with the conditions before their own, in their rank; and what became of each.

    A condition is parked where it cannot be read which mails it limits: an expression that an older version took, a
    field of a later version, a damaged row.
    """
    before = [list[ThresholdCondition[Threshold]]() for _ in policies]
    placed = list[PlacedCondition]()
    for condition in sorted(orders, key=lambda order: order.rank):
        placed.append(_placed(condition, policies, before, algorithm))
    merged = list[CounterPolicy]()
    for policy, some in zip(policies, before, strict=True):
        if some:
            merged.append(replace(policy, conditions=(*some, *policy.conditions)))
        else:
            merged.append(policy)
    return tuple(merged), tuple(placed)


def _placed(
    condition: Order,
    policies: Sequence[CounterPolicy],
    before: Sequence[list[ThresholdCondition[Threshold]]],
    algorithm: RateAlgorithm,
) -> PlacedCondition:
    """Add a condition to those before the conditions of each policy whose limits it sets; what became of it."""
    if not condition.has_scope:
        return PlacedCondition(condition, parked=f"it cannot be read: {condition.damage}")
    try:
        patterns = condition.patterns
        counted_by = condition.counted_by
    except WrongUse as error:
        return PlacedCondition(condition, parked=f"it cannot be read: {error.what}")
    why = _refused(condition.threshold, algorithm)
    if why:
        return PlacedCondition(condition, parked=why)
    found = list[int]()
    groups = dict[str, str]()
    for number in _counting_by(counted_by, policies):
        why = _lacking_group(policies[number], patterns)
        if not why:
            known, grouped = _as_policy_counts(policies[number], patterns)
            before[number].append(ThresholdCondition(known, condition.threshold))
            groups |= grouped
            found.append(number)
    if found:
        return PlacedCondition(condition, tuple(found), groups)
    named = ", ".join(condition.fields) or "no field"
    return PlacedCondition(condition, parked=why or f"no policy counts by exactly {named}")


def _as_policy_counts(
    policy: CounterPolicy, patterns: Mapping[PickupField, Sequence[ValuePattern]]
) -> tuple[Mapping[PickupField, tuple[ValuePattern, ...]], Mapping[str, str]]:
    """The patterns that a policy compares for these, and by each value that it counts as a group, that group."""
    known = dict[PickupField, tuple[ValuePattern, ...]]()
    groups = dict[str, str]()
    for named, some in patterns.items():
        counted = _as_counted(policy, named, some)
        known[named] = tuple(dict.fromkeys(counted.values()))
        for pattern, counted_pattern in counted.items():
            if pattern != counted_pattern:
                groups[pattern_text(pattern)] = pattern_text(counted_pattern)
    return known, groups


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
        found[pattern] = pattern
        for group in policy.groups.get(named, ()):
            if _holds_all(group, pattern):
                found[pattern] = GroupName(group.name)
                break
    return found


def _holds_all(group: FieldGroup, pattern: ValuePattern) -> bool:
    return not isinstance(pattern, GroupName) and any(covers(value, pattern) for value in group.patterns)
