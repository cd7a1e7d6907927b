"""The policies that a running server works by: those of a file, until it is read again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mailmend.admin.delivery.connections import policy_file
from mailmend.delivery.policy.counters import PolicyChanges
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
