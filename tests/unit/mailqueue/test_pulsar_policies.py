"""Policies as a real Pulsar 4.2.4 told them."""

from datetime import timedelta
from typing import Any

import pytest

from mailmend.mailqueue.pulsar.admin_api import TopicPolicy, policies_of
from mailmend.mailqueue.rules.health import BacklogQuota, QuotaKind, TopicPolicies

UNLIMITED = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
FRESH = {
    TopicPolicy.TTL: 0,
    TopicPolicy.RETENTION: {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    TopicPolicy.QUOTAS: {"destination_storage": UNLIMITED, "message_age": UNLIMITED},
    TopicPolicy.DELAYED: {"tickTime": 200, "active": True, "maxDeliveryDelayInMillis": 0},
    TopicPolicy.IDLE: {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": True,
    },
}
BROKER = {"managedLedgerMaxUnackedRangesToPersist": "10000", "subscriptionExpirationTimeMinutes": "0"}
STATS = [{"backlogSize": 700, "oldestBacklogMessageAgeSeconds": -1}, {"backlogSize": 70}]


def test_a_pulsar_as_it_comes_does_nothing_by_itself() -> None:
    assert policies_of(FRESH, None, BROKER, STATS) == TopicPolicies()
    assert policies_of(FRESH, None, {}, []) == TopicPolicies()


@pytest.mark.parametrize(
    ("policy", "answer", "understood"),
    [
        (TopicPolicy.TTL, 7200, TopicPolicies(ttl=timedelta(hours=2))),
        (
            TopicPolicy.RETENTION,
            {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            TopicPolicies(keeps_all=True),
        ),
        (TopicPolicy.RETENTION, {"retentionTimeInMinutes": -1, "retentionSizeInMB": 10}, TopicPolicies()),
        (TopicPolicy.RETENTION, None, TopicPolicies()),
        (
            TopicPolicy.QUOTAS,
            {
                "message_age": {"limit": 0, "limitSize": 0, "limitTime": 60, "policy": "consumer_backlog_eviction"},
                "destination_storage": {**UNLIMITED, "limitSize": 900},
            },
            TopicPolicies(
                quotas=(BacklogQuota(QuotaKind.BYTES, 900, 700), BacklogQuota(QuotaKind.AGE, 60, 0, drops=True))
            ),
        ),
        (TopicPolicy.DELAYED, {"tickTime": 1000, "active": False}, TopicPolicies(delays=False)),
        (
            TopicPolicy.DELAYED,
            {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 3_600_000},
            TopicPolicies(longest_delay=timedelta(hours=1)),
        ),
        (
            TopicPolicy.IDLE,
            {
                "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
                "maxInactiveDurationSeconds": 100,
                "deleteWhileInactive": True,
            },
            TopicPolicies(idle_expiry=timedelta(seconds=100)),
        ),
    ],
    ids=str,
)
def test_each_answer_is_understood(policy: TopicPolicy, answer: Any, understood: TopicPolicies) -> None:
    assert policies_of({**FRESH, policy: answer}, None, BROKER, STATS) == understood


def test_a_namespace_that_says_how_long_subscriptions_stay_is_heard_before_its_broker() -> None:
    broker = {"subscriptionExpirationTimeMinutes": "30", "managedLedgerMaxUnackedRangesToPersist": "77"}

    own, of_broker = (policies_of(FRESH, said, broker, STATS) for said in (5, None))
    off = policies_of(FRESH, 0, broker, STATS)

    assert own.subscription_expiry == timedelta(minutes=5)
    assert (of_broker.subscription_expiry, of_broker.ack_stretches_max) == (timedelta(minutes=30), 77)
    assert off.subscription_expiry is None
