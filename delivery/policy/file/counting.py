"""What a policy file says of what is counted together: policies and quotas, with their limits."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mailmend.delivery.policy.file.description import (
    CONDITION,
    GROUP_NAME,
    POLICY,
    QUOTA,
    QUOTA_LIMIT,
    THRESHOLD,
)
from mailmend.delivery.policy.file.nodes import (
    PolicyNode,
    read_each,
    read_part,
    read_parts,
    read_patterns,
)
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    ExactValue,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    ValuePattern,
    field_named,
)
from mailmend.delivery.policy.quotas import QUOTA_FIELDS, QueueQuota, QuotaLimit
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.model.errors import WrongUse

GroupedFields = Mapping[PickupField, tuple[FieldGroup, ...]]
"""The fields that something is counted by, with the groups of each."""

ReadPatterns = dict[PickupField, tuple[ValuePattern, ...]]

LimitReader = Callable[[PolicyNode], Any]
"""Reads the limits below `then` and `default`."""


def pickup_policies(algorithm: RateAlgorithm, node: PolicyNode) -> tuple[CounterPolicy, ...]:
    """The policies, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    return tuple(read_each(node.listed("policies"), partial(_policy, algorithm)))


def queue_quotas(node: PolicyNode) -> tuple[QueueQuota, ...]:
    """The quotas, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used, or two have one name.
    """
    return tuple(read_each(node.listed("quotas"), partial(_quota, set())))


def _policy(algorithm: RateAlgorithm, node: PolicyNode) -> CounterPolicy:
    limit = partial(_threshold, algorithm)
    return CounterPolicy(**_counted_together(node.parts(POLICY), tuple(PickupField), limit))


def _threshold(algorithm: RateAlgorithm, node: PolicyNode) -> Threshold:
    parts = node.parts(THRESHOLD)
    return Threshold(**read_parts(parts, THRESHOLD, rate=partial(_rate, algorithm)))


def _rate(algorithm: RateAlgorithm, node: PolicyNode) -> DeliveryRate:
    """`X`, `X/Y` or `[X, Y]`: X deliveries in Y seconds, or in one."""
    if node.is_list:
        numbers = node.listed("the numbers of a rate")
        text = "/".join(number.text("a number of a rate") for number in numbers)
    else:
        text = node.text("a rate")
    try:
        rate = DeliveryRate.parse(text)
        algorithm.state(rate)
    except WrongUse as error:
        node.fail(error.what, error.mend)
    return rate


def _quota(names: set[str], node: PolicyNode) -> QueueQuota:
    """A quota; `names` are the names of those before it."""
    parts = node.parts(QUOTA)
    if "name" not in parts:
        mend = "Clients are told which quota is full, and so are metrics: name it."
        node.note("a quota lacks its name", mend)
    name = read_parts(parts, QUOTA).get("name", "")
    if name and name in names:
        parts["name"].note(f"there are two quotas {name!r}")
    names.add(name)
    return QueueQuota(name=name, **_counted_together(parts, QUOTA_FIELDS, _quota_limit))


def _quota_limit(node: PolicyNode) -> QuotaLimit:
    return QuotaLimit(**read_parts(node.parts(QUOTA_LIMIT), QUOTA_LIMIT))


def _counted_together(
    parts: Mapping[str, PolicyNode], known: Collection[PickupField], limit: LimitReader
) -> dict[str, Any]:
    """What `fields`, `conditions` and `default` say, by the attributes of `CountedTogether`.

    Args:
        parts: by name, as far as they are there.
        known: the fields that there are here.
        limit: reads the part below `then` and `default`.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    fields = dict[PickupField, tuple[FieldGroup, ...]]()
    listed = list[PolicyNode]()
    if "fields" in parts:
        listed = list(parts["fields"].listed("fields"))
    for node, (named, grouped) in read_each(listed, lambda node: (node, _field(node, known))):
        if named in fields:
            node.fail(f"{named.value} is counted by twice")
        fields[named] = ()
        if grouped:
            fields[named] = tuple(_groups(named, grouped))
    known_fields: GroupedFields | None = None
    if len(fields) == len(listed):
        known_fields = fields
    condition = partial(_condition, known_fields, limit)
    conditions = read_part(parts, "conditions", lambda node: tuple(read_each(node.listed("conditions"), condition)), ())
    return {
        "fields": tuple(fields),
        "groups": {named: groups for named, groups in fields.items() if groups},
        "conditions": conditions,
        "default": read_part(parts, "default", limit, None),
    }


def _field(node: PolicyNode, known: Collection[PickupField]) -> tuple[PickupField, PolicyNode | None]:
    """A field, and its groups where it has any: `remotemx`, or `remotemx: {gsuite: ['*.google.com']}`."""
    if not node.is_mapping:
        return _known_field(node, known), None
    entries = list(node.items("a field with groups"))
    if len(entries) != 1:
        node.fail("a field with groups is one name, with its groups below it")
    ((_, key, groups),) = entries
    return _known_field(key, known), groups


def _known_field(node: PolicyNode, known: Collection[PickupField]) -> PickupField:
    named = node.parsed(field_named, "a field")
    if named not in known:
        node.fail(f"{named.value} is no field here", f"There are: {', '.join(field.value for field in known)}.")
    return named


def _groups(named: PickupField, node: PolicyNode) -> Iterator[FieldGroup]:
    for name, key, patterns in node.items("groups"):
        if not GROUP_NAME.matches(name):
            key.note(f"{name!r} {GROUP_NAME.problem}", GROUP_NAME.mend)
        listed = patterns.listed("the patterns of a group")
        yield FieldGroup(name, read_patterns(named, listed))


def _condition(fields: GroupedFields | None, limit: LimitReader, node: PolicyNode) -> ThresholdCondition[Any]:
    """A condition; `fields` is None where one of them is refused: all fields are taken then."""
    parts = node.parts(CONDITION)
    wanted = read_part(parts, "if", partial(_wanted, fields), {})
    if "then" not in parts:
        node.fail("a condition lacks its then", "Write the limits below then; then: {} sets no limit.")
    return ThresholdCondition(wanted, limit(parts["then"]))


def _wanted(fields: GroupedFields | None, node: PolicyNode) -> ReadPatterns:
    wanted = ReadPatterns()
    for _, key, values in node.items("if"):
        for named in read_each([key], partial(_counted_field, fields)):
            wanted[named] = read_patterns(named, values.one_or_more("values"))
            if fields is not None:
                _refuse_unknown(named, values, fields[named])
                _refuse_members(values, wanted[named], fields[named])
    return wanted


def _counted_field(fields: GroupedFields | None, node: PolicyNode) -> PickupField:
    named = node.parsed(field_named, "a field")
    if fields is not None and named not in fields:
        counted = ", ".join(field.value for field in fields) or "nothing"
        node.fail(f"this does not count by {named.value}", f"It counts by: {counted}.")
    return named


def _refuse_unknown(named: PickupField, node: PolicyNode, groups: Sequence[FieldGroup]) -> None:
    known = {group.name for group in groups}
    for value in node.one_or_more("values"):
        text = value.text("a value")
        if text.startswith("#") and text[1:] not in known:
            value.note(f"{named.value} has no group {text!r} here", f"It has: {', '.join(known) or 'none'}.")


def _refuse_members(node: PolicyNode, patterns: Iterable[ValuePattern], groups: Sequence[FieldGroup]) -> None:
    """A value that belongs to a group is counted as that: no condition on it alone would ever hold."""
    for pattern in patterns:
        if not isinstance(pattern, ExactValue) or not pattern.value:
            continue
        for group in groups:
            if group.holds(pattern.value):
                node.note(f"{pattern.value} is counted as #{group.name}, and never alone", f"Write '#{group.name}'.")
                break
