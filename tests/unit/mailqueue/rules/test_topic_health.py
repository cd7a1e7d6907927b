"""When the topics of a queue are unwell: each rule at its edge."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mailmend.mailqueue.rules.health import (
    ACK_STRETCHES_MAX,
    DELETIONS_MAX,
    OVERDUE_MAX,
    BacklogQuota,
    HealthProblem,
    HealthReason,
    QuotaKind,
    TopicFigures,
    TopicPolicies,
    judged_topics,
)
from mailmend.mailqueue.rules.mails import DELAY_MAX
from mailmend.model.ids import QueueName

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
OUT, LATER = "James-spool", "spool-scheduled"
BYTES = BacklogQuota(QuotaKind.BYTES, 1000)
AGE = BacklogQuota(QuotaKind.AGE, 3600)


def found(figures: TopicFigures) -> list[HealthReason]:
    return list(judged_topics(QueueName("spool"), figures))


def of(policies: TopicPolicies, *topics: str) -> list[HealthReason]:
    return found(TopicFigures("mail/queues", dict.fromkeys(topics, policies), delayed_topic=LATER))


def test_what_does_nothing_by_itself_is_well() -> None:
    assert of(TopicPolicies(), OUT, LATER) == []


@pytest.mark.parametrize(
    ("problem", "fine", "wrong", "says"),
    [
        (HealthProblem.MESSAGES_EXPIRE, {}, {"ttl": HOUR}, "delayed for 1 h is dropped"),
        (HealthProblem.KEPT_FOR_EVER, {}, {"keeps_all": True}, "disk fills"),
        (HealthProblem.SUBSCRIPTION_EXPIRES, {}, {"subscription_expiry": HOUR}, "without consumers for 1 h"),
        (HealthProblem.IDLE_TOPIC_DELETED, {}, {"idle_expiry": HOUR}, "removed after 1 h"),
        (HealthProblem.DELAYS_IGNORED, {}, {"delays": False}, "at once"),
        (
            HealthProblem.DELAYS_CUT,
            {"longest_delay": DELAY_MAX},
            {"longest_delay": DELAY_MAX - HOUR},
            "nothing back for more than 366 d",
        ),
        (
            HealthProblem.BACKLOG_DROPPED,
            {"quotas": (BYTES, AGE)},
            {"quotas": (replace(BYTES, drops=True), replace(AGE, drops=True))},
            "beyond 1,000 bytes or an age of 1 h",
        ),
        (
            HealthProblem.BACKLOG_FULL,
            {"quotas": (replace(BYTES, used=799), replace(AGE, used=2879))},
            {"quotas": (replace(BYTES, used=800), replace(AGE, used=2879))},
            "at 80% or more of 1,000 bytes",
        ),
        (
            HealthProblem.BACKLOG_FULL,
            {"quotas": (AGE,)},
            {"quotas": (replace(AGE, used=2880),)},
            "at 80% or more of an age of 1 h",
        ),
    ],
    ids=str,
)
def test_each_policy_at_its_edge(problem: HealthProblem, fine: Any, wrong: Any, says: str) -> None:
    """What, where, and the command that mends it."""
    assert of(replace(TopicPolicies(), **fine), LATER) == []
    (reason,) = of(replace(TopicPolicies(), **wrong), LATER)
    assert reason.trouble is problem
    assert says in reason.what
    assert reason.what.endswith(f": {LATER}")
    assert "pulsar-admin namespaces " in reason.mend
    assert "mail/queues" in reason.mend


def test_a_look_at_which_nothing_was_found_knows_of_no_topic_and_no_limit() -> None:
    """Given only the namespace: no topic is the one of delayed mails, and nothing lies there or is late."""
    seen = TopicFigures("a/b")

    assert (seen.delayed_topic, seen.deletions, seen.overdue, seen.unread) == ("", 0, timedelta(0), "")
    assert (seen.policies, seen.stretches) == ({}, {})
    assert (BYTES.used, BYTES.drops) == (0, False)


def test_what_is_the_same_of_several_topics_is_said_once() -> None:
    (reason,) = of(TopicPolicies(ttl=HOUR), OUT, LATER)
    first, second = found(TopicFigures("a/b", {OUT: TopicPolicies(ttl=HOUR), LATER: TopicPolicies(ttl=SECOND)}))

    assert reason.what.endswith(f": {OUT}, {LATER}")
    assert (first.what.endswith(f": {OUT}"), second.what.endswith(f": {LATER}")) == (True, True)


def test_whether_delays_are_kept_is_asked_of_the_topic_of_delayed_mails_alone() -> None:
    no_delays = TopicPolicies(delays=False, longest_delay=HOUR)

    assert of(no_delays, OUT) == []
    assert [one.trouble for one in of(no_delays, LATER)] == [
        HealthProblem.DELAYS_IGNORED,
        HealthProblem.DELAYS_CUT,
    ]


@pytest.mark.parametrize(("most", "edge"), [(ACK_STRETCHES_MAX, 8_000), (100, 80)])
def test_more_stretches_than_the_broker_remembers_are_said_before_it_forgets(most: int, edge: int) -> None:
    policies = {OUT: TopicPolicies(ack_stretches_max=most)}
    well = TopicFigures("a/b", policies, {OUT: edge - 1})

    assert found(well) == []
    (reason,) = found(replace(well, stretches={OUT: edge}))
    assert reason.trouble is HealthProblem.ACKS_FORGOTTEN
    assert f"in {OUT} lies in {edge:,} stretches" in reason.what
    assert f"remembers {most:,}" in reason.what
    assert "managedLedgerMaxUnackedRangesToPersist" in reason.mend


def test_where_nobody_may_read_policies_the_usual_limit_of_stretches_counts() -> None:
    assert len(found(TopicFigures("a/b", {}, {OUT: 8_000}, unread="no"))) == 1


@pytest.mark.parametrize(
    ("problem", "fine", "wrong", "says"),
    [
        (HealthProblem.NOT_TENDED, {"overdue": OVERDUE_MAX}, {"overdue": OVERDUE_MAX + SECOND}, "late by 5 min"),
        (
            HealthProblem.DELETIONS_PILE_UP,
            {"deletions": DELETIONS_MAX},
            {"deletions": DELETIONS_MAX + 1},
            "10,001 messages about deletions",
        ),
    ],
    ids=str,
)
def test_what_nobody_does_is_said_with_what_does_it(problem: HealthProblem, fine: Any, wrong: Any, says: str) -> None:
    assert found(replace(TopicFigures("a/b"), **fine)) == []
    (reason,) = found(replace(TopicFigures("a/b"), **wrong))
    assert (reason.trouble, says in reason.what) == (problem, True)
    assert "mailmend queue tend --queue spool" in reason.mend


RAISE_ACKS = (
    "Raise managedLedgerMaxUnackedRangesToPersist in broker.conf; what lies there longest: mailmend queue browse"
)
OF_TOPICS = "; of one topic: pulsar-admin topicPolicies --help"
QUOTAS = (
    "See: pulsar-admin namespaces get-backlog-quotas a/b; then: pulsar-admin namespaces remove-backlog-quota a/b "
    f"--type destination_storage or message_age{OF_TOPICS}"
)


@pytest.mark.parametrize(
    ("policies", "what", "mend"),
    [
        (
            TopicPolicies(ttl=HOUR),
            "what waits or is delayed for 1 h is dropped unseen: messages expire: James-spool",
            f"pulsar-admin namespaces set-message-ttl a/b --messageTTL 0{OF_TOPICS}",
        ),
        (
            TopicPolicies(quotas=(replace(BYTES, drops=True), AGE, replace(AGE, drops=True))),
            "the oldest mails are dropped once the backlog is beyond 1,000 bytes or an age of 1 h: James-spool",
            QUOTAS,
        ),
        (
            TopicPolicies(quotas=(replace(BYTES, used=1000), replace(AGE, used=3600))),
            (
                "the backlog is at 80% or more of 1,000 bytes and of an age of 1 h, and at all of it nothing is taken: "
                "James-spool"
            ),
            f"Have mails leave it, or allow more. {QUOTAS}",
        ),
        (
            TopicPolicies(keeps_all=True),
            "what is done with is kept for ever, so the disk fills: James-spool",
            f"pulsar-admin namespaces set-retention a/b --time 0 --size 0{OF_TOPICS}",
        ),
        (
            TopicPolicies(subscription_expiry=HOUR),
            (
                "a subscription without consumers for 1 h is removed, with the mails and deletions that wait for it: "
                "James-spool"
            ),
            "pulsar-admin namespaces set-subscription-expiration-time a/b --time 0",
        ),
        (
            TopicPolicies(idle_expiry=HOUR),
            (
                "a topic in which nothing is left is removed after 1 h, with its subscriptions: a mail that is "
                "published just then has none, and is lost: James-spool"
            ),
            (
                "pulsar-admin namespaces set-inactive-topic-policies a/b --disable-delete-while-inactive "
                f"--max-inactive-duration 60s --delete-mode delete_when_no_subscriptions{OF_TOPICS}"
            ),
        ),
        (
            TopicPolicies(delays=False),
            "the broker keeps no delayed message back, so James delivers them at once: James-spool",
            f"pulsar-admin namespaces set-delayed-delivery a/b --enable --time 1s{OF_TOPICS}",
        ),
        (
            TopicPolicies(longest_delay=HOUR),
            (
                "the broker keeps nothing back for more than 1 h: James can delay no mail for longer, and where it "
                "consumes it delivers ours too early: James-spool"
            ),
            f"pulsar-admin namespaces set-delayed-delivery a/b --enable --time 1s --maxDelay 0s{OF_TOPICS}",
        ),
    ],
    ids=["expires", "dropped", "full", "kept", "subscription", "idle", "no delays", "short delays"],
)
def test_an_operator_reads_a_whole_sentence_and_the_command_for_each_policy(
    policies: TopicPolicies, what: str, mend: str
) -> None:
    (reason,) = found(TopicFigures("a/b", {OUT: policies}, delayed_topic=OUT))

    assert (reason.what, reason.mend) == (what, mend)


@pytest.mark.parametrize(
    ("figures", "what", "mend"),
    [
        (
            TopicFigures("a/b", {OUT: TopicPolicies(ack_stretches_max=2_000)}, {OUT: 1_600}),
            (
                "what is acknowledged in James-spool lies in 1,600 stretches between what is not, and the broker "
                "remembers 2,000 over its restart: then mails that were done with would come again"
            ),
            f"{RAISE_ACKS} --queue spool --limit 1",
        ),
        (
            TopicFigures("a/b", overdue=timedelta(hours=3)),
            "a delayed mail is late by 3 h: no process moves due mails",
            "mailmend queue tend --queue spool",
        ),
        (
            TopicFigures("a/b", deletions=12_345),
            (
                "12,345 messages about deletions lie there, and each process reads them before its first mail; they "
                "expire where the queue is tended, and once nothing older than they waits or is delayed"
            ),
            "mailmend queue tend --queue spool --once",
        ),
    ],
    ids=["acknowledgements", "late", "deletions"],
)
def test_an_operator_reads_a_whole_sentence_and_the_command_for_each_figure(
    figures: TopicFigures, what: str, mend: str
) -> None:
    (reason,) = found(figures)

    assert (reason.what, reason.mend) == (what, mend)
