"""The policy file: which deliveries are counted together, and how many of them there may be, in YAML.

All of a file is checked before any of it counts. Source: docs/policy-file.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mailmend.delivery.policy.file.counting import ALL_FIELDS, counted_together
from mailmend.delivery.policy.file.errors import BadPolicyFile
from mailmend.delivery.policy.file.incoming import incoming_rules
from mailmend.delivery.policy.file.nodes import (
    FILE_BYTES_MAX,
    PolicyNode,
    ValueLists,
    read_each,
    read_part,
    read_value,
    yes_or_no,
)
from mailmend.delivery.policy.file.quotas import queue_quotas
from mailmend.delivery.policy.file.schema import (
    COUNT,
    FILE_PARTS,
    POLICY_PARTS,
    RATE_PARTS,
    SECONDS,
    THRESHOLD_PARTS,
    WEIGHT,
)
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import CounterPolicy, GroupName, PickupField, Threshold, ValuePattern, field_named
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.suspensions import Suspension
from mailmend.delivery.policy.turns import WEIGHT_MAX
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import read_name
from mailmend.model.texts import Place


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The content of a policy file, and the place of each part."""

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
        with file.expanduser().open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise WrongUse(
                f"the policy file {file} is too large", mend=f"A policy file has at most {FILE_BYTES_MAX:,} bytes."
            )
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise WrongUse(f"the policy file {file} cannot be read: {why}") from error
    return policies_of(text, str(file))


def policies_of(text: str, file: str) -> PolicyFile:
    """The policies of a text: a list of them alone, or below `policies`, next to what else a file may hold.

    Raises:
        BadPolicyFile: something in it is refused; the error has each refused value.
    """
    top = PolicyNode.of_text(file, text)
    try:
        said = _said(top)
    except BadPolicyFile as error:
        top.refused.setdefault(error.place, error)
    top.raise_noted()
    return PolicyFile(said, top)


def _said(top: PolicyNode) -> PickupPolicies:
    parts = {"policies": top} if top.is_list else top.known("a policy file", *FILE_PARTS)
    lists = ValueLists(dict(_lists(parts["lists"])) if "lists" in parts else {})
    algorithm = read_part(parts, "rate", _rate_algorithm, RateAlgorithm.TOKEN_BUCKET)
    policies = read_part(parts, "policies", lambda node: _policies(node, lists, algorithm), ())
    suspensions = read_part(parts, "suspends", lambda node: _suspensions(node, lists), ())
    incoming = read_part(parts, "incoming", lambda node: incoming_rules(node, lists), ())
    weights = read_part(parts, "tenants", _weights, {})
    quotas = read_part(parts, "quotas", lambda node: queue_quotas(node, lists), ())
    unused = tuple(name for name in lists.values if name not in lists.used)
    return PickupPolicies(policies, algorithm, suspensions, unused, incoming, weights, quotas)


def _rate_algorithm(node: PolicyNode) -> RateAlgorithm:
    parts = node.known("rate", *RATE_PARTS)
    return read_value(parts, "algorithm", _algorithm, RateAlgorithm.TOKEN_BUCKET)


def _lists(node: PolicyNode) -> Iterator[tuple[str, Sequence[PolicyNode]]]:
    """The lists by name; one that is refused is there all the same, as its name is known."""
    for name, _, values in node.items("lists"):
        found = next(read_each([values], lambda node: list(node.listed("the values of a list"))), ())
        for _ in read_each(found, lambda value: value.text("a value")):
            pass
        yield name, found


def _policies(node: PolicyNode, lists: ValueLists, algorithm: RateAlgorithm) -> tuple[CounterPolicy, ...]:
    return tuple(read_each(node.listed("policies"), lambda policy: _policy(policy, lists, algorithm)))


def _suspensions(node: PolicyNode, lists: ValueLists) -> tuple[Suspension, ...]:
    numbers = count(1)
    return tuple(read_each(node.listed("suspends"), lambda one: _suspension(f"suspends {next(numbers)}", one, lists)))


def _weights(node: PolicyNode) -> Mapping[str, int]:
    weights = dict[str, int]()
    for _, key, weight in node.items("tenants"):
        for tenant in read_each([key], lambda node: node.parsed(read_name, "a tenant")):
            weights[tenant] = 1
            for turns in read_each([weight], lambda node: node.parsed(_weight, "a weight")):
                weights[tenant] = turns
    return weights


def _suspension(name: str, node: PolicyNode, lists: ValueLists) -> Suspension:
    """Fields, each with its values; `{}` is every mail."""
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in node.items("a suspension"):
        for named in read_each([key], lambda node: node.parsed(field_named, "a field")):
            wanted[named] = tuple(lists.patterns(named, values.one_or_more("values")))
            if any(isinstance(value, GroupName) for value in wanted[named]):
                values.note("a suspension knows no groups", "Write the values, or '@name' of a list.")
    return Suspension(name, wanted)


def _algorithm(text: str) -> RateAlgorithm:
    names = ", ".join(algorithm.value for algorithm in RateAlgorithm)
    try:
        return RateAlgorithm(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no algorithm of rates", mend=f"There are: {names}.") from None


def _policy(node: PolicyNode, lists: ValueLists, algorithm: RateAlgorithm) -> CounterPolicy:
    found = counted_together(
        node.known("a policy", *POLICY_PARTS), lists, ALL_FIELDS, lambda one: _threshold(one, algorithm)
    )
    return CounterPolicy(found.fields, found.groups, found.conditions, found.default)


def _threshold(node: PolicyNode, algorithm: RateAlgorithm) -> Threshold:
    parts = node.known("a threshold", *THRESHOLD_PARTS)
    return Threshold(
        concurrency=read_value(parts, "concurrency", _count, None),
        rate=read_part(parts, "rate", lambda node: _rate(node, algorithm), None),
        connect_interval=read_value(parts, "connectinterval", _nanos, None),
        stop=read_value(parts, "stop", yes_or_no, otherwise=False),
        cluster=read_value(parts, "cluster", yes_or_no, otherwise=True),
    )


def _rate(node: PolicyNode, algorithm: RateAlgorithm) -> DeliveryRate:
    """`X`, `X/Y` or `[X, Y]`: X deliveries in Y seconds, or in one."""
    if node.is_list:
        text = "/".join(number.text("a number of a rate") for number in node.listed("the numbers of a rate"))
    else:
        text = node.text("a rate")
    try:
        rate = DeliveryRate.parse(text)
        algorithm.state(rate)
    except WrongUse as error:
        node.fail(error.what, error.mend)
    return rate


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
