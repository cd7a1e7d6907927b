"""What a policy file says of quotas: how much of what is counted together may be in the queue."""

from typing import Final

from mailmend.delivery.policy.file.counting import counted_together
from mailmend.delivery.policy.file.nodes import PolicyNode, ValueLists, read_each, read_value
from mailmend.delivery.policy.file.schema import BYTES, GROUP_NAME, MESSAGES, QUOTA_LIMIT_PARTS, QUOTA_PARTS
from mailmend.delivery.policy.quotas import QUOTA_FIELDS, QueueQuota, QuotaLimit
from mailmend.model.errors import WrongUse

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def queue_quotas(node: PolicyNode, lists: ValueLists) -> tuple[QueueQuota, ...]:
    """The quotas, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used, or two have one name.
    """
    names = set[str]()
    return tuple(read_each(node.listed("quotas"), lambda quota: _quota(quota, lists, names)))


def _quota(node: PolicyNode, lists: ValueLists, names: set[str]) -> QueueQuota:
    parts = node.known("a quota", *QUOTA_PARTS)
    if "name" not in parts:
        node.note("a quota lacks its name", "Clients are told which quota is full, and so are metrics: name it.")
    name = read_value(parts, "name", _name, "")
    if name and name in names:
        parts["name"].note(f"there are two quotas {name!r}")
    names.add(name)
    found = counted_together(parts, lists, QUOTA_FIELDS, _limit)
    return QueueQuota(found.fields, found.groups, found.conditions, found.default, name=name)


def _name(text: str) -> str:
    if not GROUP_NAME.fullmatch(text):
        raise WrongUse(f"{text!r} is no name of a quota", mend="Letters, digits, '.', '-' and '_' make one.")
    return text


def _limit(node: PolicyNode) -> QuotaLimit:
    parts = node.known("the limits of a quota", *QUOTA_LIMIT_PARTS)
    return QuotaLimit(
        read_value(parts, "messages", _messages, None),
        read_value(parts, "bytes", _bytes, None),
    )


def _messages(text: str) -> int:
    if not MESSAGES.fullmatch(text):
        raise WrongUse(f"{text!r} is no number of mails", mend="Write 0, which lets none in, or more.")
    return int(text)


def _bytes(text: str) -> int:
    found = BYTES.fullmatch(text)
    if not found:
        raise WrongUse(f"{text!r} is no number of bytes", mend="Write it like 5000000, 500M or 5G; K is 1024.")
    return int(found[1]) * _UNITS[found[2].upper()]
