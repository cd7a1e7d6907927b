"""The texts that several commands use about a policy file: places in it, limits, and what is counted."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mailmend.delivery.policy.explaining import QuotaShare
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import CountedTogether, PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.replaying import LimitKind
from mailmend.model.errors import WrongUse

_IN_WORDS: Final = {
    LimitKind.CONCURRENCY: "concurrency {}",
    LimitKind.RATE: "rate {}",
    LimitKind.CONNECT_INTERVAL: "a connection each {} s",
}


def policy_path(policy: int) -> DocumentPath:
    return ("policies", policy)


def suspension_path(suspension: int) -> DocumentPath:
    return ("suspends", suspension)


def quota_path(quota: int) -> DocumentPath:
    return ("quotas", quota)


def transport_path(transport: str) -> DocumentPath:
    return ("transports", transport)


def quota_limit_path(file: PickupPolicies, share: QuotaShare) -> DocumentPath | None:
    """As `limits_path`."""
    return _limits(file.quotas[share.quota], quota_path(share.quota), share.condition)


def limits_path(file: PickupPolicies, policy: int, condition: int | None) -> DocumentPath | None:
    """The way to what sets the limits: a condition or the default; None where there is neither."""
    return _limits(file.policies[policy], policy_path(policy), condition)


def _limits(counted: CountedTogether[Any], path: DocumentPath, condition: int | None) -> DocumentPath | None:
    if condition is not None:
        return (*path, "conditions", condition)
    if not counted.default:
        return None
    return (*path, "default")


def counted_text(counted: Mapping[PickupField, str]) -> str:
    """As what a mail is counted; "" where everything is counted together."""
    return ", ".join(f"{field.value} {text or '(empty)'}" for field, text in counted.items())


def counted_json(fields: Sequence[PickupField], key: Sequence[str]) -> dict[str, str]:
    """The same for programs: by the names of the fields."""
    return {field.value: text for field, text in zip(fields, key, strict=True)}


def limits_text(threshold: Threshold) -> str:
    """Limits as a person reads them."""
    texts = [_IN_WORDS[kind].format(text) for kind, text in threshold_texts(threshold).items()]
    limits = ", ".join(texts) or "no limit"
    if not threshold.cluster:
        limits += ", for each server separately"
    if threshold.stop:
        limits += ", and later policies are not consulted"
    return limits


def threshold_texts(threshold: Threshold) -> dict[LimitKind, str]:
    """Each limit that there is; the connection interval is in seconds."""
    found = dict[LimitKind, str]()
    if threshold.concurrency is not None:
        found[LimitKind.CONCURRENCY] = f"{threshold.concurrency:,}"
    if rate := threshold.rate:
        found[LimitKind.RATE] = f"{rate.count}/{rate.interval / SECOND:.9g}"
    if gap := threshold.connect_interval:
        found[LimitKind.CONNECT_INTERVAL] = f"{gap / SECOND:.9g}"
    return found


def refuse_undeclared(values: Mapping[PickupField, str], said: PickupPolicies) -> None:
    """Refuse a value of a field that the file does not have.

    Raises:
        WrongUse: the file does not declare the field.
    """
    known = frozenset((*PickupField, *said.custom.values()))
    for named in values:
        if named not in known:
            declared = ", ".join(said.custom) or "none"
            mend = f"The file declares: {declared}. Write it below fields at its top."
            raise WrongUse(f"the file does not declare {named.value} as a field", mend=mend)
