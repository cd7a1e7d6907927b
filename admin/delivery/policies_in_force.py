"""The policies that a running server works by, until it reads them again; HTTP tells them too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.delivery.policy_texts import policy_path, quota_path, suspension_path
from mailmend.admin.frame.values import instant_text, plain
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.file.description import INCOMING, POLICY, QUOTA, SUSPENSION
from mailmend.delivery.policy.file.reading import PolicyFile
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.model.errors import WrongUse

Limit = Callable[[PickupPolicies], PolicyChanges]
"""Has the server work by these from now on, in place of those before."""


@dataclass(slots=True, eq=False)
class PoliciesInForce:
    """What holds, since when.

    Attributes:
        file: None: nothing is limited.
        read: None without a file.
        changes: what reading it again has done last; None: it was read once.
    """

    file: Path | None
    read_at: datetime | None = None
    read: PolicyFile | None = field(init=False)
    changes: PolicyChanges | None = None

    def __post_init__(self) -> None:
        self.read = self._read_file()

    def _read_file(self) -> PolicyFile | None:
        if self.file is None:
            return None
        return policy_file(self.file)

    @property
    def said(self) -> PickupPolicies:
        return _said(self.read)

    def reload(self, limit: Limit, now: datetime) -> PolicyChanges:
        """Let what the file says now hold, all of it; where it cannot be used, all stays as it was.

        Raises:
            BadPolicyFile: the server cannot use it; the message says where.
            WrongUse: it cannot be read, or asks for what only a new server does.
        """
        read = self._read_file()
        found = _said(read)
        if found.algorithm is not self.said.algorithm:
            raise WrongUse("the algorithm of rates has changed", mend="Start the server anew.")
        self.changes = limit(found)
        self.read = read
        self.read_at = now
        return self.changes


def _said(read: PolicyFile | None) -> PickupPolicies:
    """What a file says; without one, nothing is limited."""
    if read is None:
        return PickupPolicies()
    return read.said


def policies_json(served: PoliciesInForce) -> Mapping[str, Any]:
    """The file, when it was read, and what it says, all of it in its order."""
    said = served.said
    policies = list[Mapping[str, Any]]()
    for number, policy in enumerate(said.policies):
        line = _line(served, policy_path(number))
        policies.append(POLICY.json(policy, policy=number + 1, line=line))
    suspensions = list[Mapping[str, Any]]()
    for number, suspension in enumerate(said.suspensions):
        line = _line(served, suspension_path(number))
        suspensions.append(SUSPENSION.json(suspension, suspension=number + 1, line=line))
    incoming = list[Mapping[str, Any]]()
    for number, rule in enumerate(said.incoming):
        line = _line(served, ("incoming", number))
        incoming.append(INCOMING.json(rule, rule=number + 1, line=line))
    quotas = list[Mapping[str, Any]]()
    for number, quota in enumerate(said.quotas):
        line = _line(served, quota_path(number))
        quotas.append(QUOTA.json(quota, line=line))
    changes = None
    if served.changes:
        changes = changes_json(served.changes)
    return {
        "file": plain(served.file),
        "read_at": instant_text(served.read_at),
        "algorithm": said.algorithm.value,
        "policies": policies,
        "suspends": suspensions,
        "incoming": incoming,
        "quotas": quotas,
        "tenants": dict(said.weights),
        "reload": changes,
    }


def changes_json(changes: PolicyChanges) -> Mapping[str, Any]:
    """By their numbers in the file, from 1."""
    return {
        "kept": [{"before": before + 1, "now": now + 1} for before, now in changes.kept],
        "new": [index + 1 for index in changes.new],
        "dropped": [index + 1 for index in changes.dropped],
    }


def _line(served: PoliciesInForce, path: DocumentPath) -> int | None:
    if served.read is None:
        return None
    return served.read.place_of(path).line
