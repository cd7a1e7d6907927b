"""Policies of topics as Pulsar's admin API tells them. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from mailmend.mailqueue.rules.topic_health import ACK_STRETCHES_MAX, BacklogQuota, QuotaKind, TopicPolicies

_CAUGHT_UP: Final = "delete_when_subscriptions_caught_up"
_DROPS: Final = "consumer_backlog_eviction"


class TopicPolicy(Enum):
    """Those that are asked of a topic: its own, the namespace's, or the broker's, whichever is in force."""

    TTL = "messageTTL"
    RETENTION = "retention"
    QUOTAS = "backlogQuotaMap"
    DELAYED = "delayedDelivery"
    IDLE = "inactiveTopicPolicies"


def policies_of(
    answers: Mapping[TopicPolicy, Any],
    expiry_minutes: int | None,
    broker: Mapping[str, str],
    stats: Iterable[Mapping[str, Any]],
) -> TopicPolicies:
    """What the answers mean together.

    Args:
        answers: to each of the policies.
        expiry_minutes: after which the namespace's subscriptions expire; None: as the broker says.
        broker: its configuration; empty where we may not read it.
        stats: of each partition.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: these are no such answers.
    """
    retention, delayed, idle = (
        answers[policy] or {} for policy in (TopicPolicy.RETENTION, TopicPolicy.DELAYED, TopicPolicy.IDLE)
    )
    deletes = idle.get("deleteWhileInactive") and idle.get("inactiveTopicDeleteMode") == _CAUGHT_UP
    if expiry_minutes is None:
        expiry_minutes = int(broker.get("subscriptionExpirationTimeMinutes") or 0)
    return TopicPolicies(
        _span(seconds=answers[TopicPolicy.TTL] or 0),
        retention.get("retentionTimeInMinutes") == retention.get("retentionSizeInMB") == -1,
        _quotas(answers[TopicPolicy.QUOTAS] or {}, list(stats)),
        _span(minutes=expiry_minutes),
        _span(seconds=idle["maxInactiveDurationSeconds"]) if deletes else None,
        delayed.get("active", True),
        _span(milliseconds=delayed.get("maxDeliveryDelayInMillis") or 0),
        int(broker.get("managedLedgerMaxUnackedRangesToPersist") or ACK_STRETCHES_MAX),
    )


def _quotas(found: Mapping[str, Any], stats: Iterable[Mapping[str, Any]]) -> tuple[BacklogQuota, ...]:
    """Those that bound something. In a quota of an age the limit in bytes means nothing, and the other way round."""
    quotas = list[BacklogQuota]()
    for kind, limit, used in (
        (QuotaKind.BYTES, "limitSize", "backlogSize"),
        (QuotaKind.AGE, "limitTime", "oldestBacklogMessageAgeSeconds"),
    ):
        quota = found.get(kind.value) or {}
        if (most := quota.get(limit) or 0) > 0:
            now = max((int(stat.get(used) or 0) for stat in stats), default=0)
            quotas.append(BacklogQuota(kind, most, max(0, now), quota.get("policy") == _DROPS))
    return tuple(quotas)


def _span(**length: int) -> timedelta | None:
    """None for none: Pulsar says that with 0, or less."""
    found = timedelta(**length)
    return found if found > timedelta(0) else None
