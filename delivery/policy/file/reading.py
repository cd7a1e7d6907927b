"""The policy file: which deliveries are counted together, and how many of them there may be, in YAML.

All of a file is checked before any of it counts. Source: docs/policy-file.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from mailmend.delivery.policy.file.counting import pickup_policies, queue_quotas
from mailmend.delivery.policy.file.description import FILE, RATE, WEIGHT
from mailmend.delivery.policy.file.errors import BadPolicyFile
from mailmend.delivery.policy.file.incoming import incoming_rules
from mailmend.delivery.policy.file.nodes import (
    FILE_BYTES_MAX,
    PolicyNode,
    read_each,
    read_part,
    read_parts,
    read_ungrouped,
)
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import PickupField, ValuePattern, field_named
from mailmend.delivery.policy.rates import RateAlgorithm
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
        if self.top.is_list:
            path = path[1:]
        return self.top.place_of(path)


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
        why: str | None = "it is not UTF-8"
        if isinstance(error, OSError):
            why = error.strerror
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
    parts: Mapping[str, PolicyNode] = {"policies": top}
    if not top.is_list:
        parts = top.parts(FILE)
    if "lists" in parts:
        top.lists.values = dict(_lists(parts["lists"]))
    algorithm = read_part(parts, "rate", _algorithm, RateAlgorithm.TOKEN_BUCKET)
    said = read_parts(
        parts,
        FILE,
        policies=partial(pickup_policies, algorithm),
        suspends=_suspensions,
        incoming=incoming_rules,
        tenants=_weights,
        quotas=queue_quotas,
    )
    unused = tuple(name for name in top.lists.values if name not in top.lists.used)
    return PickupPolicies(**said, algorithm=algorithm, unused_lists=unused)


def _algorithm(node: PolicyNode) -> RateAlgorithm:
    found = read_parts(node.parts(RATE), RATE)
    algorithm: RateAlgorithm = found.get("algorithm", RateAlgorithm.TOKEN_BUCKET)
    return algorithm


def _lists(node: PolicyNode) -> Iterator[tuple[str, Sequence[PolicyNode]]]:
    """The lists by name; one that is refused is there all the same, as its name is known."""
    for name, _, values in node.items("lists"):
        found = next(read_each([values], lambda node: list(node.listed("the values of a list"))), ())
        for _ in read_each(found, lambda value: value.text("a value")):
            pass
        yield name, found


def _suspensions(node: PolicyNode) -> tuple[Suspension, ...]:
    numbers = count(1)
    suspended = node.listed("suspends")
    return tuple(read_each(suspended, lambda node: _suspension(f"suspends {next(numbers)}", node)))


def _suspension(name: str, node: PolicyNode) -> Suspension:
    """Fields, each with its values; `{}` is every mail."""
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in node.items("a suspension"):
        for named in read_each([key], lambda node: node.parsed(field_named, "a field")):
            wanted[named] = read_ungrouped(named, values, "a suspension knows no groups")
    return Suspension(name, wanted)


def _weights(node: PolicyNode) -> Mapping[str, int]:
    weights = dict[str, int]()
    for _, key, weight in node.items("tenants"):
        for tenant in read_each([key], lambda node: node.parsed(read_name, "a tenant")):
            weights[tenant] = 1
            for turns in read_each([weight], lambda node: node.parsed(WEIGHT.parse, "a weight")):
                weights[tenant] = turns
    return weights
