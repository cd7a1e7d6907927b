"""The policies that a running server works by, until it reads them again; HTTP tells them too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.delivery.policy_paths import policy_path, quota_path, suspension_path
from mailmend.admin.frame.values import instant_text
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.file.description import INCOMING, POLICY, QUOTA, SUSPENSION
from mailmend.delivery.policy.file.reading import PolicyFile
from mailmend.delivery.policy.policies import PickupPolicies
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
        self.read = policy_file(self.file) if self.file else None

    @property
    def said(self) -> PickupPolicies:
        return self.read.said if self.read else PickupPolicies()

    def reload(self, limit: Limit, now: datetime) -> PolicyChanges:
        """Let what the file says now hold, all of it; where it cannot be used, all stays as it was.

        Raises:
            BadPolicyFile: the server cannot use it; the message says where.
            WrongUse: it cannot be read, or asks for what only a new server does.
        """
        read = policy_file(self.file) if self.file else None
        found = read.said if read else PickupPolicies()
        if found.algorithm is not self.said.algorithm:
            raise WrongUse("the algorithm of rates has changed", mend="Start the server anew.")
        self.changes = limit(found)
        self.read = read
        self.read_at = now
        return self.changes


def policies_json(served: PoliciesInForce) -> Mapping[str, Any]:
    """The file, when it was read, and what it says, all of it in its order."""
    said = served.said
    return {
        "file": str(served.file) if served.file else None,
        "read_at": instant_text(served.read_at),
        "algorithm": said.algorithm.value,
        "policies": [
            POLICY.json(policy, policy=number + 1, line=_line(served, *policy_path(number)))
            for number, policy in enumerate(said.policies)
        ],
        "suspends": [
            SUSPENSION.json(suspension, suspension=number + 1, line=_line(served, *suspension_path(number)))
            for number, suspension in enumerate(said.suspensions)
        ],
        "incoming": [
            INCOMING.json(rule, rule=number + 1, line=_line(served, "incoming", number))
            for number, rule in enumerate(said.incoming)
        ],
        "quotas": [
            QUOTA.json(quota, line=_line(served, *quota_path(number))) for number, quota in enumerate(said.quotas)
        ],
        "tenants": dict(said.weights),
        "reload": changes_json(served.changes) if served.changes else None,
    }


def changes_json(changes: PolicyChanges) -> Mapping[str, Any]:
    """By their numbers in the file, from 1."""
    return {
        "kept": [{"before": before + 1, "now": now + 1} for before, now in changes.kept],
        "new": [index + 1 for index in changes.new],
        "dropped": [index + 1 for index in changes.dropped],
    }


def _line(served: PoliciesInForce, *path: str | int) -> int | None:
    return served.read.place_of(path).line if served.read else None
