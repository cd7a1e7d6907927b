"""The policy file: which deliveries are counted together, and how many of them there may be, in YAML.

All of a file is checked before any of it counts. Source: seed mta-queue-subsystem 2.3.1, facts/mta.md 1.3, 4.1 to 4.3.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from delivery.policy_incoming import incoming_rules
from delivery.policy_nodes import PolicyNode, ValueLists, yes_or_no
from delivery.policy_schema import (
    CONDITION_PARTS,
    COUNT,
    FILE_PARTS,
    GROUP_NAME,
    POLICY_PARTS,
    RATE_PARTS,
    SECONDS,
    THRESHOLD_PARTS,
    WEIGHT,
)
from model.errors import WrongUse
from model.pickup.policies import DocumentPath, PickupPolicies
from model.pickup.policy import (
    CounterPolicy,
    FieldGroup,
    GroupName,
    PickupField,
    Threshold,
    ThresholdCondition,
    ValuePattern,
    field_named,
)
from model.pickup.rates import SECOND, DeliveryRate, RateAlgorithm
from model.pickup.suspensions import Suspension
from model.pickup.turns import WEIGHT_MAX
from model.texts import Place


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """What a policy file says, and where each part of it stands."""

    said: PickupPolicies
    top: PolicyNode

    def place_of(self, path: DocumentPath) -> Place:
        """Where that is; a file that is a list alone is one of policies."""
        return self.top.place_of(path[1:] if self.top.is_list else path)


def read_policies(file: Path) -> PolicyFile:
    """The policies of a file.

    Raises:
        WrongUse: it cannot be read.
        BadPolicyFile: it cannot be used.
    """
    try:
        text = file.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise WrongUse(f"the policy file {file} cannot be read: {why}") from error
    return policies_of(text, str(file))


def policies_of(text: str, file: str) -> PolicyFile:
    """The policies of a text: a list of them alone, or below `policies`, beside what else a file may hold."""
    top = PolicyNode.of_text(file, text)
    found = {"policies": top} if top.is_list else top.known("a policy file", *FILE_PARTS)
    algorithm, lists = RateAlgorithm.TOKEN_BUCKET, ValueLists({})
    if "rate" in found:
        rate = found["rate"].known("rate", *RATE_PARTS)
        algorithm = rate["algorithm"].parsed(_algorithm, "the algorithm") if "algorithm" in rate else algorithm
    if "lists" in found:
        named = found["lists"].items("lists")
        lists = ValueLists({name: list(values.listed("the values of a list")) for name, _, values in named})
        for one in chain.from_iterable(lists.values.values()):
            one.text("a value")
    listed = found["policies"].listed("policies") if "policies" in found else ()
    suspended = found["suspends"].listed("suspends") if "suspends" in found else ()
    policies = tuple(_policy(one, lists, algorithm) for one in listed)
    suspensions = tuple(_suspension(f"suspends {number}", one, lists) for number, one in enumerate(suspended, 1))
    incoming = incoming_rules(found["incoming"], lists) if "incoming" in found else ()
    tenants = found["tenants"].items("tenants") if "tenants" in found else ()
    weights = {tenant: weight.parsed(_weight, "a weight") for tenant, _, weight in tenants}
    unused = tuple(name for name in lists.values if name not in lists.used)
    return PolicyFile(PickupPolicies(policies, algorithm, suspensions, unused, incoming, weights), top)


def _suspension(name: str, node: PolicyNode, lists: ValueLists) -> Suspension:
    """Fields, each with its values; `{}` is every mail."""
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in node.items("a suspension"):
        named = key.parsed(field_named, "a field")
        wanted[named] = tuple(lists.patterns(named, values.one_or_more("values")))
        if any(isinstance(one, GroupName) for one in wanted[named]):
            values.fail("a suspension knows no groups", "Write the values, or '@name' of a list.")
    return Suspension(name, wanted)


def _algorithm(text: str) -> RateAlgorithm:
    names = ", ".join(one.value for one in RateAlgorithm)
    try:
        return RateAlgorithm(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no algorithm of rates", mend=f"There are: {names}.") from None


def _policy(node: PolicyNode, lists: ValueLists, algorithm: RateAlgorithm) -> CounterPolicy:
    parts = node.known("a policy", *POLICY_PARTS)
    fields, groups = list[PickupField](), dict[PickupField, tuple[FieldGroup, ...]]()
    for one in parts["fields"].listed("fields") if "fields" in parts else ():
        name, grouped = _field(one)
        if name in fields:
            one.fail(f"{name.value} is counted by twice")
        fields.append(name)
        if grouped:
            groups[name] = tuple(_groups(name, grouped, lists))
    conditions = tuple(
        _condition(one, fields, groups, lists, algorithm)
        for one in (parts["conditions"].listed("conditions") if "conditions" in parts else ())
    )
    default = _threshold(parts["default"], algorithm) if "default" in parts else None
    return CounterPolicy(tuple(fields), groups, conditions, default)


def _field(node: PolicyNode) -> tuple[PickupField, PolicyNode | None]:
    """A field, and its groups where it has any: `remotemx`, or `remotemx: {gsuite: ['*.google.com']}`."""
    if not node.is_mapping:
        return node.parsed(field_named, "a field"), None
    entries = list(node.items("a field with groups"))
    if len(entries) != 1:
        node.fail("a field with groups is one name, with its groups below it")
    ((_, key, groups),) = entries
    return key.parsed(field_named, "a field"), groups


def _groups(named: PickupField, node: PolicyNode, lists: ValueLists) -> Iterator[FieldGroup]:
    for name, key, patterns in node.items("groups"):
        if not GROUP_NAME.fullmatch(name):
            key.fail(f"{name!r} is no name of a group", "Letters, digits, '.', '-' and '_' make one.")
        yield FieldGroup(name, tuple(lists.patterns(named, patterns.listed("the patterns of a group"))))


def _condition(
    node: PolicyNode,
    fields: Sequence[PickupField],
    groups: Mapping[PickupField, Sequence[FieldGroup]],
    lists: ValueLists,
    algorithm: RateAlgorithm,
) -> ThresholdCondition:
    parts = node.known("a condition", *CONDITION_PARTS)
    if "then" not in parts:
        node.fail("a condition lacks its then", "Write the limits below then; then: {} is none.")
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in parts["if"].items("if") if "if" in parts else ():
        named = key.parsed(field_named, "a field")
        if named not in fields:
            counted = ", ".join(one.value for one in fields) or "nothing"
            key.fail(f"this policy does not count by {named.value}", f"It counts by: {counted}.")
        known = {group.name for group in groups.get(named, ())}
        for value in values.one_or_more("values"):
            text = value.text("a value")
            if text.startswith("#") and text[1:] not in known:
                value.fail(f"{named.value} has no group {text!r} here", f"It has: {', '.join(known) or 'none'}.")
        wanted[named] = tuple(lists.patterns(named, values.one_or_more("values")))
        _refuse_members(values, wanted[named], groups.get(named, ()))
    return ThresholdCondition(wanted, _threshold(parts["then"], algorithm))


def _refuse_members(node: PolicyNode, patterns: Iterable[ValuePattern], groups: Sequence[FieldGroup]) -> None:
    """A value that belongs to a group is counted as that: no condition on it alone would ever hold."""
    for pattern in patterns:
        value = None if isinstance(pattern, GroupName) else getattr(pattern, "value", None)
        group = next((one for one in groups if value and one.holds(value)), None)
        if group:
            node.fail(f"{value} is counted as #{group.name}, and never by itself", f"Write '#{group.name}'.")


def _threshold(node: PolicyNode, algorithm: RateAlgorithm) -> Threshold:
    parts = node.known("a threshold", *THRESHOLD_PARTS)
    rate = _rate(parts["rate"]) if "rate" in parts else None
    if rate:
        try:
            algorithm.state(rate)
        except WrongUse as error:
            parts["rate"].fail(error.what, error.mend)
    return Threshold(
        concurrency=parts["concurrency"].parsed(_count, "concurrency") if "concurrency" in parts else None,
        rate=rate,
        connect_interval=parts["connectinterval"].parsed(_nanos, "connectinterval")
        if "connectinterval" in parts
        else None,
        stop=parts["stop"].parsed(yes_or_no, "stop") if "stop" in parts else False,
    )


def _rate(node: PolicyNode) -> DeliveryRate:
    """`X`, `X/Y` or `[X, Y]`: X deliveries in Y seconds, or in one."""
    if not node.is_list:
        return node.parsed(DeliveryRate.parse, "a rate")
    numbers = [one.text("a number of a rate") for one in node.listed("the numbers of a rate")]
    try:
        return DeliveryRate.parse("/".join(numbers))
    except WrongUse as error:
        node.fail(error.what, error.mend)


def _count(text: str) -> int:
    if not COUNT.fullmatch(text):
        raise WrongUse(f"{text!r} is no number of deliveries", mend="Write 0, which lets none begin, or more.")
    return int(text)


def _weight(text: str) -> int:
    if not WEIGHT.fullmatch(text):
        raise WrongUse(f"{text!r} is no weight of a tenant", mend=f"Write 1 to {WEIGHT_MAX}; a suspension holds mails.")
    return int(text)


def _nanos(text: str) -> int:
    if not SECONDS.fullmatch(text):
        raise WrongUse(f"{text!r} is no number of seconds", mend="Write it like 5, or 0.5.")
    return round(float(text) * SECOND)
