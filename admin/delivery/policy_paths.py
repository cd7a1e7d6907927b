"""Paths of what a policy file says, under which its lines are found."""

from typing import Any

from mailmend.delivery.policy.explaining import QuotaShare
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import CountedTogether


def policy_path(policy: int) -> DocumentPath:
    return ("policies", policy)


def suspension_path(suspension: int) -> DocumentPath:
    return ("suspends", suspension)


def quota_path(quota: int) -> DocumentPath:
    return ("quotas", quota)


def quota_limit_path(file: PickupPolicies, share: QuotaShare) -> DocumentPath | None:
    """As `limits_path`."""
    return _limits(file.quotas[share.quota], quota_path(share.quota), share.condition)


def limits_path(file: PickupPolicies, policy: int, condition: int | None) -> DocumentPath | None:
    """The way to what sets the limits: a condition or the default; None where there is neither."""
    return _limits(file.policies[policy], policy_path(policy), condition)


def _limits(counted: CountedTogether[Any], path: DocumentPath, condition: int | None) -> DocumentPath | None:
    if condition is not None:
        return (*path, "conditions", condition)
    return (*path, "default") if counted.default else None
