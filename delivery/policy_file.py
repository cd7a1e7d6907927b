"""The policy file: which deliveries are counted together, and how many of them there may be, in YAML.

All of a file is checked before any of it counts. Source: seed mta-queue-subsystem 2.3.1, facts/mta.md 1.3, 4.1 to 4.3.
"""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from delivery.policy_counting import ALL_FIELDS, counted_together
from delivery.policy_incoming import incoming_rules
from delivery.policy_nodes import FILE_BYTES_MAX, PolicyNode, ValueLists, yes_or_no
from delivery.policy_quotas import queue_quotas
from delivery.policy_schema import (
    COUNT,
    FILE_PARTS,
    POLICY_PARTS,
    RATE_PARTS,
    SECONDS,
    THRESHOLD_PARTS,
    WEIGHT,
)
from model.errors import WrongUse
from model.grammar import read_name
from model.pickup.policies import DocumentPath, PickupPolicies
from model.pickup.policy import (
    CounterPolicy,
    GroupName,
    PickupField,
    Threshold,
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
    weights = {key.parsed(read_name, "a tenant"): weight.parsed(_weight, "a weight") for _, key, weight in tenants}
    quotas = queue_quotas(found["quotas"], lists) if "quotas" in found else ()
    unused = tuple(name for name in lists.values if name not in lists.used)
    return PolicyFile(PickupPolicies(policies, algorithm, suspensions, unused, incoming, weights, quotas), top)


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
    found = counted_together(
        node.known("a policy", *POLICY_PARTS), lists, ALL_FIELDS, lambda one: _threshold(one, algorithm)
    )
    return CounterPolicy(found.fields, found.groups, found.conditions, found.default)


def _threshold(node: PolicyNode, algorithm: RateAlgorithm) -> Threshold:
    parts = node.known("a threshold", *THRESHOLD_PARTS)
    rate = _rate(parts["rate"]) if "rate" in parts else None
    if rate:
        try:
            algorithm.state(rate)
        except WrongUse as error:
            parts["rate"].fail(error.what, error.mend)
    cluster = parts["cluster"].parsed(yes_or_no, "cluster") if "cluster" in parts else True
    return Threshold(
        concurrency=parts["concurrency"].parsed(_count, "concurrency") if "concurrency" in parts else None,
        rate=rate,
        connect_interval=parts["connectinterval"].parsed(_nanos, "connectinterval")
        if "connectinterval" in parts
        else None,
        stop=parts["stop"].parsed(yes_or_no, "stop") if "stop" in parts else False,
        cluster=cluster,
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
