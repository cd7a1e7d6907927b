"""The policy file by which a server of deliveries works: when it was read, what it says, and its JSON."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from mailmend.admin.delivery.connections import served_policy_file
from mailmend.admin.delivery.policy_texts import (
    policy_path,
    quota_path,
    suspension_path,
    transport_path,
)
from mailmend.admin.frame.values import plain
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.file.description import INCOMING, POLICY, QUOTA, SUSPENSION
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import PolicyFile
from mailmend.delivery.policy.file.reply_description import AUTOMATIC_RULE, REPLY_RULE
from mailmend.delivery.policy.file.transport_forms import TRANSPORT
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.model.errors import WrongUse
from mailmend.model.json_forms import JsonField, JsonForm

Limit = Callable[[PickupPolicies], PolicyChanges]
"""Has the server work by these from now on, in place of those before."""


@dataclass(slots=True, eq=False)
class PoliciesInForce:
    """What holds, since when.

    Attributes:
        file: None: no file says anything.
        read: None without a file.
        changes: what reading it again has done last; None: it was read once.
        domain_concurrency: attempts at once for one domain, where the file has no policies; 0: no
            limit.
    """

    file: Path | None
    read_at: datetime | None = None
    domain_concurrency: int = 0
    read: PolicyFile | None = field(init=False)
    changes: PolicyChanges | None = None

    def __post_init__(self) -> None:
        self.read = self._read_file()

    def _read_file(self) -> PolicyFile | None:
        if self.file is None:
            return None
        try:
            return served_policy_file(self.file)
        except BadPolicyFile as error:
            raise error.in_short from None

    @property
    def said(self) -> PickupPolicies:
        return self._said(self.read)

    def line(self, path: DocumentPath) -> int | None:
        """The line of a place in the file; None for a limit that the file does not name."""
        read = self.read
        if read is None:
            return None
        if path[0] == "policies" and not read.said.policies:
            return None
        return read.place_of(path).line

    def reload(self, limit: Limit, now: datetime) -> PolicyChanges:
        """Let what the file says now hold, all of it; where it cannot be used, all stays as it was.

        Raises:
            BadPolicyFile: the server cannot use it; the message says where.
            WrongUse: it cannot be read, or asks for what only a new server does.
        """
        read = self._read_file()
        found = self._said(read)
        if found.algorithm is not self.said.algorithm:
            raise WrongUse("the algorithm of rates has changed", mend="Start the server anew.")
        self.changes = limit(found)
        self.read = read
        self.read_at = now
        return self.changes

    def _said(self, read: PolicyFile | None) -> PickupPolicies:
        """What a file says, with the limit that holds where it has no policies."""
        said = PickupPolicies()
        if read is not None:
            said = read.said
        return said.with_domain_limit(self.domain_concurrency)


def _all_from_one(numbers: Iterable[int]) -> list[int]:
    return [number + 1 for number in numbers]


_KEPT_POLICY: Final = JsonForm(
    body="KeptPolicy",
    about="A policy whose counts go on; its numbers in the file before and now.",
    answers={"before": JsonField(int, attribute=None), "now": JsonField(int, attribute=None)},
)


def _kept_policies(kept: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    return [_KEPT_POLICY.json(None, before=before + 1, now=now + 1) for before, now in kept]


_RELOAD: Final = JsonForm(
    body="ReloadBody",
    about="What reading the file again has done.",
    answers={
        "kept": JsonField(_KEPT_POLICY, to_json=_kept_policies, many=True),
        "new": JsonField(list[int], to_json=_all_from_one),
        "dropped": JsonField(list[int], "Numbers in the file before.", to_json=_all_from_one),
    },
)
POLICIES_IN_FORCE: Final = JsonForm(
    body="PoliciesAnswer",
    about="The policies that hold now.",
    answers={
        "file": JsonField(str | None, "null: no file; a domain has its --domain-concurrency."),
        "read_at": JsonField(datetime),
        "algorithm": JsonField(
            Literal["tokenbucket", "fixedwindow", "sliding"],
            "",
            "said.algorithm",
        ),
        "fields": JsonField(list[str], "Attributes of mails that are fields.", "said.custom", list),
        "policies": JsonField(POLICY, "", None, many=True),
        "suspends": JsonField(SUSPENSION, "", None, many=True),
        "incoming": JsonField(INCOMING, "", None, many=True),
        "quotas": JsonField(QUOTA, "", None, many=True),
        "classes": JsonField(REPLY_RULE, "They come before the shipped rules.", None, many=True),
        "automation": JsonField(AUTOMATIC_RULE, "", None, many=True),
        "transports": JsonField(TRANSPORT, "", None, many=True),
        "tenants": JsonField(
            dict[str, int],
            "What tenants weigh that weigh more than others.",
            "said.weights",
        ),
        "reload": JsonField(
            _RELOAD,
            "null: the file was read once, at the start.",
            "changes",
            optional=True,
        ),
    },
)


def policies_json(served: PoliciesInForce) -> Mapping[str, Any]:
    """The file, when it was read, and what it says, all of it in its order."""
    said = served.said
    policies = list[Mapping[str, Any]]()
    for number, policy in enumerate(said.policies):
        line = served.line(policy_path(number))
        policies.append(POLICY.json(policy, policy=number + 1, line=line))
    suspensions = list[Mapping[str, Any]]()
    for number, suspension in enumerate(said.suspensions):
        line = served.line(suspension_path(number))
        suspensions.append(SUSPENSION.json(suspension, suspension=number + 1, line=line))
    incoming = list[Mapping[str, Any]]()
    for number, rule in enumerate(said.incoming):
        line = served.line(("incoming", number))
        incoming.append(INCOMING.json(rule, rule=number + 1, line=line))
    quotas = list[Mapping[str, Any]]()
    for number, quota in enumerate(said.quotas):
        line = served.line(quota_path(number))
        quotas.append(QUOTA.json(quota, line=line))
    classes = list[Mapping[str, Any]]()
    for number, reply_rule in enumerate(said.classes):
        line = served.line(("classes", number))
        classes.append(REPLY_RULE.json(reply_rule, rule=number + 1, line=line))
    automation = list[Mapping[str, Any]]()
    for number, automatic_rule in enumerate(said.automation):
        line = served.line(("automation", number))
        automation.append(AUTOMATIC_RULE.json(automatic_rule, line=line))
    transports = list[Mapping[str, Any]]()
    for name, transport in said.transports.items():
        line = served.line(transport_path(name))
        transports.append(TRANSPORT.json(transport, transport=name, line=line))
    found: Mapping[str, Any] = plain(
        POLICIES_IN_FORCE.json(
            served,
            policies=policies,
            suspends=suspensions,
            incoming=incoming,
            quotas=quotas,
            classes=classes,
            automation=automation,
            transports=transports,
        )
    )
    return found
