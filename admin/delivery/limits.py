"""Limits of deliveries, as people and programs read them."""

from typing import Final

from mailmend.delivery.policy.policy import Threshold
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.replaying import LimitKind

_IN_WORDS: Final = {
    LimitKind.CONCURRENCY: "concurrency {}",
    LimitKind.RATE: "rate {}",
    LimitKind.CONNECT_INTERVAL: "a connection each {} s",
}


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
