"""What may be wrong with a queue and with its topics, as values. Pure.

Source: Pulsar's policies of namespaces and topics, and its `broker.conf`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final

from mailmend.mailqueue.rules.mails import DELAY_MAX
from mailmend.model.ids import QueueName


class HealthProblem(Enum):
    """What may be wrong with a queue."""

    BROWSE_START_OLD = "browse_start_old"
    MOVED_BACK = "moved_back"
    NOT_SWEPT = "not_swept"
    STAYS_TOO_LONG = "stays_too_long"
    MARKS_EXPIRE_FIRST = "marks_expire_first"
    DEAD_LETTERS = "dead_letters"
    LACKS_MESSAGE = "lacks_message"
    NO_CONSUMER = "no_consumer"
    BROKER_AWAY = "broker_away"
    BROKER_ALARM = "broker_alarm"
    MESSAGES_EXPIRE = "messages_expire"
    BACKLOG_DROPPED = "backlog_dropped"
    BACKLOG_FULL = "backlog_full"
    KEPT_FOR_EVER = "kept_for_ever"
    SUBSCRIPTION_EXPIRES = "subscription_expires"
    IDLE_TOPIC_DELETED = "idle_topic_deleted"
    DELAYS_IGNORED = "delays_ignored"
    DELAYS_CUT = "delays_cut"
    ACKS_FORGOTTEN = "acks_forgotten"
    NOT_TENDED = "not_tended"
    DELETIONS_PILE_UP = "deletions_pile_up"


@dataclass(frozen=True, slots=True)
class HealthReason:
    """One thing that is wrong: what, in a sentence, and what to do about it."""

    trouble: HealthProblem
    what: str
    mend: str


def days(span: timedelta) -> str:
    for unit, word in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min")):
        if span >= unit:
            return f"{span / unit:.1f}".removesuffix(".0") + f" {word}"
    return f"{span.total_seconds():.0f} s"


ACK_STRETCHES_MAX: Final = 10_000
"""Of how many stretches of acknowledged messages a broker remembers that they are, if it is not told otherwise."""

NEARLY: Final = 0.8
"""Which part of a limit is nearly all of it."""

OVERDUE_MAX: Final = timedelta(minutes=5)
"""How much later than due a delayed mail may be moved."""

DELETIONS_MAX: Final = 10_000
"""Up to how many messages about deletions a process reads at its start without being slow."""


class QuotaKind(Enum):
    """What a backlog quota bounds, as Pulsar names it."""

    BYTES = "destination_storage"
    AGE = "message_age"


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """How much of a topic may be unacknowledged: in bytes, or its oldest message in seconds.

    Attributes:
        used: how much it is now; of several partitions, the most.
        drops: whether the oldest are dropped then; else new ones are refused.
    """

    kind: QuotaKind
    limit: int
    used: int = 0
    drops: bool = False


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """What the broker does with the messages and subscriptions of a topic automatically; nothing by default.

    Attributes:
        ttl: after so long a message counts as acknowledged; None: never.
        keeps_all: whether acknowledged messages are kept for ever.
        subscription_expiry: how long a subscription without consumers is kept; None: for ever.
        idle_expiry: how long an unused topic with nothing unacknowledged is kept; None: for ever.
        delays: whether it keeps delayed messages back.
        longest_delay: it keeps none back for longer; None: it has no bound.
        ack_stretches_max: of how many stretches of acknowledged messages it remembers that they are.
    """

    ttl: timedelta | None = None
    keeps_all: bool = False
    quotas: tuple[BacklogQuota, ...] = ()
    subscription_expiry: timedelta | None = None
    idle_expiry: timedelta | None = None
    delays: bool = True
    longest_delay: timedelta | None = None
    ack_stretches_max: int = ACK_STRETCHES_MAX


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What one look at the topics of a queue showed.

    Attributes:
        namespace: tenant/namespace.
        policies: of each topic that is there.
        stretches: how many stretches of acknowledged messages each has behind its first unacknowledged one.
        delayed_topic: which of them holds the delayed mails.
        deletions: how many messages about deletions lie there.
        overdue: by how much the delayed mail that is late by most should have been moved before; as far as was looked.
        unread: what of the policies could not be read, and why; "": nothing.
    """

    namespace: str
    policies: Mapping[str, TopicPolicies] = field(default_factory=dict)
    stretches: Mapping[str, int] = field(default_factory=dict)
    delayed_topic: str = ""
    deletions: int = 0
    overdue: timedelta = timedelta(0)
    unread: str = ""


def judged_topics(queue: QueueName, figures: TopicFigures) -> Iterator[HealthReason]:
    """Everything that is wrong with the topics; what is the same of several is said once."""
    for rule in _RULES:
        said = dict[str, list[str]]()
        for topic, policies in figures.policies.items():
            if (what := rule.says(policies)) and (topic == figures.delayed_topic or not rule.delayed_only):
                said.setdefault(what, []).append(topic)
        for what, topics in said.items():
            yield HealthReason(rule.problem, f"{what}: {', '.join(topics)}", rule.mend.format(figures.namespace))
    for topic, count in figures.stretches.items():
        most = figures.policies.get(topic, TopicPolicies()).ack_stretches_max
        if count >= most * NEARLY:
            yield HealthReason(
                HealthProblem.ACKS_FORGOTTEN,
                f"what is acknowledged in {topic} lies in {count:,} stretches between what is not, and the broker "
                f"remembers {most:,} over its restart: then mails that were done with would come again",
                f"Raise managedLedgerMaxUnackedRangesToPersist in broker.conf; what lies there longest: mailmend queue "
                f"browse --queue {queue} --limit 1",
            )
    if figures.overdue > OVERDUE_MAX:
        yield HealthReason(
            HealthProblem.NOT_TENDED,
            f"a delayed mail is late by {days(figures.overdue)}: no process moves due mails",
            f"mailmend queue tend --queue {queue}",
        )
    if figures.deletions > DELETIONS_MAX:
        yield HealthReason(
            HealthProblem.DELETIONS_PILE_UP,
            f"{figures.deletions:,} messages about deletions lie there, and each process reads "
            "them before its first mail; they expire where the queue is tended, and once nothing "
            "older than they waits or is delayed",
            f"mailmend queue tend --queue {queue} --once",
        )


@dataclass(frozen=True, slots=True)
class _PolicyRule:
    """One rule: what it says of a topic's policies, "" where they are well, and how to mend it.

    Attributes:
        mend: with {} for the namespace.
        delayed_only: whether it is about delayed mails.
    """

    problem: HealthProblem
    says: Callable[[TopicPolicies], str]
    mend: str
    delayed_only: bool = False


def _expiry(policies: TopicPolicies) -> str:
    if policies.ttl is None:
        return ""
    return f"what waits or is delayed for {days(policies.ttl)} is dropped unseen: messages expire"


def _drops(policies: TopicPolicies) -> str:
    limits = [_limit(quota) for quota in policies.quotas if quota.drops]
    if not limits:
        return ""
    return f"the oldest mails are dropped once the backlog is beyond {' or '.join(limits)}"


def _full(policies: TopicPolicies) -> str:
    full = [_limit(quota) for quota in policies.quotas if not quota.drops and quota.used >= quota.limit * NEARLY]
    if not full:
        return ""
    return f"the backlog is at {NEARLY:.0%} or more of {' and of '.join(full)}, and at all of it nothing is taken"


def _kept(policies: TopicPolicies) -> str:
    if not policies.keeps_all:
        return ""
    return "what is done with is kept for ever, so the disk fills"


def _subscription(policies: TopicPolicies) -> str:
    if policies.subscription_expiry is None:
        return ""
    return (
        f"a subscription without consumers for {days(policies.subscription_expiry)} is removed, "
        "with the mails and deletions that wait for it"
    )


def _idle(policies: TopicPolicies) -> str:
    if policies.idle_expiry is None:
        return ""
    return (
        f"a topic in which nothing is left is removed after {days(policies.idle_expiry)}, with its subscriptions: a "
        "mail that is published just then has none, and is lost"
    )


def _delays(policies: TopicPolicies) -> str:
    if policies.delays:
        return ""
    return "the broker keeps no delayed message back, so James delivers them at once"


def _longest(policies: TopicPolicies) -> str:
    if policies.longest_delay is None or policies.longest_delay >= DELAY_MAX:
        return ""
    return (
        f"the broker keeps nothing back for more than {days(policies.longest_delay)}: James can delay no mail for "
        "longer, and where it consumes it delivers ours too early"
    )


def _limit(quota: BacklogQuota) -> str:
    if quota.kind is QuotaKind.BYTES:
        return f"{quota.limit:,} bytes"
    return f"an age of {days(timedelta(seconds=quota.limit))}"


_OF_TOPICS: Final = "; of one topic: pulsar-admin topicPolicies --help"
_QUOTAS: Final = (
    "See: pulsar-admin namespaces get-backlog-quotas {0}; then: pulsar-admin namespaces remove-backlog-quota {0} --type"
    f" {' or '.join(kind.value for kind in QuotaKind)}{_OF_TOPICS}"
)
_RULES: Final[Sequence[_PolicyRule]] = (
    _PolicyRule(
        HealthProblem.MESSAGES_EXPIRE,
        _expiry,
        f"pulsar-admin namespaces set-message-ttl {{0}} --messageTTL 0{_OF_TOPICS}",
    ),
    _PolicyRule(HealthProblem.BACKLOG_DROPPED, _drops, _QUOTAS),
    _PolicyRule(HealthProblem.BACKLOG_FULL, _full, f"Have mails leave it, or allow more. {_QUOTAS}"),
    _PolicyRule(
        HealthProblem.KEPT_FOR_EVER,
        _kept,
        f"pulsar-admin namespaces set-retention {{0}} --time 0 --size 0{_OF_TOPICS}",
    ),
    _PolicyRule(
        HealthProblem.SUBSCRIPTION_EXPIRES,
        _subscription,
        "pulsar-admin namespaces set-subscription-expiration-time {0} --time 0",
    ),
    _PolicyRule(
        HealthProblem.IDLE_TOPIC_DELETED,
        _idle,
        "pulsar-admin namespaces set-inactive-topic-policies {0} --disable-delete-while-inactive "
        f"--max-inactive-duration 60s --delete-mode delete_when_no_subscriptions{_OF_TOPICS}",
    ),
    _PolicyRule(
        HealthProblem.DELAYS_IGNORED,
        _delays,
        f"pulsar-admin namespaces set-delayed-delivery {{0}} --enable --time 1s{_OF_TOPICS}",
        delayed_only=True,
    ),
    _PolicyRule(
        HealthProblem.DELAYS_CUT,
        _longest,
        f"pulsar-admin namespaces set-delayed-delivery {{0}} --enable --time 1s --maxDelay 0s{_OF_TOPICS}",
        delayed_only=True,
    ),
)
