"""Limits of deliveries, as people and programs read them."""

from mailmend.delivery.policy.policy import Threshold
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.replaying import LimitKind


def limits_text(threshold: Threshold) -> str:
    """Limits as a person reads them."""
    most = threshold.concurrency
    rate = threshold.rate
    gap = threshold.connect_interval
    limits = [
        *([] if most is None else [f"concurrency {most:,}"]),
        *([f"rate {rate.count}/{rate.interval / SECOND:.9g}"] if rate else []),
        *([f"a connection each {gap / SECOND:.9g} s"] if gap else []),
    ]
    stop = ", and later policies are not consulted" if threshold.stop else ""
    alone = "" if threshold.cluster else ", for each server separately"
    return (", ".join(limits) or "no limit") + alone + stop


def threshold_texts(threshold: Threshold) -> dict[LimitKind, str]:
    found = dict[LimitKind, str]()
    if threshold.concurrency is not None:
        found[LimitKind.CONCURRENCY] = f"{threshold.concurrency:,}"
    if rate := threshold.rate:
        found[LimitKind.RATE] = f"{rate.count}/{rate.interval / SECOND:.9g}"
    if gap := threshold.connect_interval:
        found[LimitKind.CONNECT_INTERVAL] = f"{gap / SECOND:.9g}"
    return found
