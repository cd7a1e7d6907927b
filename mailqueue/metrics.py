"""What a queue counts of itself, the figures that one look at it shows, and the rules that judge whether it is well.

Pure values and rules; `mailqueue.prometheus` shows the counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Protocol

from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.rules.health import HealthProblem, HealthReason, TopicFigures, days, judged_topics
from mailmend.model.ids import QueueName


class QueueCount(Enum):
    """What is counted: the word in the metric's name, and what one of it means."""

    ENQUEUED = ("enqueued", "Mails put into the queue, confirmed by the broker")
    ENQUEUE_FAILED = ("enqueue_failed", "Mails that were refused to their sender and taken back")
    DELIVERED = ("delivered", "Mails handed to a consumer")
    ACKED = ("acked", "Mails whose consumer succeeded")
    RETRIED = ("retried", "Mails put back to be tried later")
    REJECTED = ("rejected", "Mails that their consumer sent to the dead letter queue")
    FILTERED = ("filtered", "Deliveries of mails that were marked: dropped")
    GONE = ("gone", "Deliveries of mails that have left the queue, with neither row nor mark: dropped")
    UNSURE = ("unsure", "Deliveries whose row may have expired: sent to the dead letter queue")
    BAD = ("bad", "Deliveries that no mail could be read from: sent to the dead letter queue")
    BLOB_MISSING = ("blob_missing", "Deliveries without their bytes: sent to the dead letter queue")
    RETURNED = ("returned", "Deliveries given back to the broker because tables or blobs did not answer")
    DUE_MOVED = ("due_moved", "Delayed mails whose time came")
    REMOVED = ("removed", "Mails deleted or purged by an operator")
    REPUBLISHED = ("republished", "Mails published again from their rows")
    BROWSE_START_MOVED = ("browse_start_moved", "Moves of the browse start")
    MOVED_BACK = ("moved_back", "Backward moves of the browse start by other programs")
    SWEPT_SLICES = ("swept_slices", "Slices swept")
    SWEPT_ROWS = ("swept_rows", "Rows that went with their slices")
    SWEPT_BLOBS = ("swept_blobs", "Left-over blobs that the sweep removed")
    RESCUED = ("rescued", "Unmarked mails that the sweep found before the browse start and put back")
    RENEWED = ("renewed", "Mails put again before they would have expired")
    CONSUMER_LOST = ("consumer_lost", "Consumers that the broker took away or whose connection broke: set up anew")
    ORPHAN_MARKS = ("orphan_marks", "Marks written for mails whose slice was swept before")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


class QueueCounts(Protocol):
    """Where the queue counts events. Never raises, never waits."""

    def add(self, name: QueueCount, queue: QueueName, n: int = 1) -> None:
        """Count `n` more events in the queue."""
        ...


class NoCounts:
    """Counts nothing."""

    def add(self, name: QueueCount, queue: QueueName, n: int = 1) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class QueueRates:
    """How fast mails come and go, between two looks; in mails per second."""

    enqueued: float
    marked: float


@dataclass(frozen=True, slots=True)
class TrafficSums:
    """How many mails had come and gone at an instant, as far back as that is counted.

    Attributes:
        slices: the stretches of time whose mails are counted.
    """

    at: datetime
    slices: Sequence[datetime]
    enqueued: int
    marked: int


def pace_between(first: TrafficSums | None, second: TrafficSums | None) -> QueueRates | None:
    """The rates between two looks; None where they cannot be known."""
    if first is None or second is None or second.at <= first.at:
        return None
    seconds = (second.at - first.at).total_seconds()
    return QueueRates(
        max(0, second.enqueued - first.enqueued) / seconds,
        max(0, second.marked - first.marked) / seconds,
    )


BROWSE_START_AGE_MAX: Final = timedelta(days=7)
"""The greatest age of a browse start, as in James's own health check: beyond it, one stuck mail makes every listing
read a week of slices."""


class FigureScope(Enum):
    """How much of a queue is read for its figures; each scope includes those before it."""

    STARTS = "starts"  # how far it was swept, how long mails live: no mail is looked at
    MAILS = "mails"  # the mails, as they are listed
    ALL = "all"  # what carries them


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What one look at a queue showed.

    Attributes:
        at: when the figures were read, in UTC.
        mails, delayed: how many wait, and are delayed; None where only the broker knows, and does not answer.
        exact: whether `mails` and `delayed` are counts, not estimates.
        oldest_at: when the mail that has waited longest was enqueued; None where none waits.
        furthest_start: the latest browse start that was ever seen; None where that is not kept.
        swept_at: the end of the last sweep; None where there was none, or that is not kept.
        remembers: whether the keyspace has the table that keeps the last two.
        row_ttl: after so long a row expires unless it is renewed; None: never.
        slack: how much longer rows live than any mail is meant to stay; None: they never expire.
        marks_outlive_rows: whether a mark is there as long as the row that it hides.
        marks_expire: whether marks expire; in James's own tables they stay.
        depth: the broker's counts of messages; None where it was not asked, or did not answer.
        lacking: how many mails surely have no message, at the least; None where that is not known.
        lacking_at_most: how many have no message in the queue; their messages may be dead letters.
        broker_away: why the broker did not answer; None where it did, or was not asked.
        tabled: whether the queue has tables; else its topics are all of it.
        topics: what these showed; None without topics, or where the broker did not answer.
    """

    queue: QueueName
    at: datetime
    mails: int | None = 0
    delayed: int | None = 0
    exact: bool = True
    oldest_at: datetime | None = None
    browse_start: datetime | None = None
    content_start: datetime | None = None
    furthest_start: datetime | None = None
    swept_at: datetime | None = None
    remembers: bool = True
    row_ttl: timedelta | None = None
    slack: timedelta | None = None
    marks_outlive_rows: bool = True
    marks_expire: bool = True
    depth: Depth | None = None
    lacking: int | None = None
    lacking_at_most: int | None = None
    broker_away: str | None = None
    tabled: bool = True
    topics: TopicFigures | None = None


def judged(figures: QueueFigures) -> tuple[HealthReason, ...]:
    """Everything that is wrong; empty: the queue is well."""
    reasons = [*_of_starts(figures), *_of_lifetimes(figures), *_of_broker(figures)]
    if figures.topics:
        reasons += judged_topics(figures.queue, figures.topics)
    return tuple(reasons)


def _of_starts(figures: QueueFigures) -> Iterator[HealthReason]:
    start = figures.browse_start
    furthest = figures.furthest_start
    if start is not None and figures.at - start > BROWSE_START_AGE_MAX:
        yield HealthReason(
            HealthProblem.BROWSE_START_OLD,
            f"the browse start is {days(figures.at - start)} old, so every listing reads all slices since then",
            "mailmend runbook show browse-start-is-stuck",
        )
    if start is not None and furthest is not None and start < furthest:
        yield HealthReason(
            HealthProblem.MOVED_BACK,
            f"the browse start was moved back by {days(furthest - start)}: James does so without looking",
            f"mailmend queue sweep --queue {figures.queue}",
        )


def _of_lifetimes(figures: QueueFigures) -> Iterator[HealthReason]:
    """A sweep renews a mail at the earliest when half the slack is left, so half of it is how long none may end."""
    since = figures.swept_at or figures.browse_start
    if figures.slack is not None and figures.remembers and figures.browse_start is not None and since is not None:
        ago = figures.at - since
        if ago > figures.slack / 2:
            swept = f"the last sweep is {days(ago)} ago"
            if figures.swept_at is None:
                swept = "nothing was ever swept"
            yield HealthReason(
                HealthProblem.NOT_SWEPT,
                f"{swept}; a mail that waits is renewed by the sweep only, and would expire",
                f"mailmend queue sweep --queue {figures.queue}",
            )
    if figures.row_ttl is not None and figures.slack is not None and figures.oldest_at is not None:
        stay = figures.row_ttl - figures.slack
        age = figures.at - figures.oldest_at
        if age > stay:
            yield HealthReason(
                HealthProblem.STAYS_TOO_LONG,
                f"a mail has waited for {days(age)}; the tables are made for {days(stay)} at most",
                "mailmend runbook show queue-does-not-drain",
            )
    if not figures.marks_outlive_rows:
        yield HealthReason(
            HealthProblem.MARKS_EXPIRE_FIRST,
            "marks expire before the rows that they hide: a mail that was deleted shows up again, and is delivered",
            "Give deletedMailsV2 a longer default_time_to_live; see: mailmend schema advise",
        )


def _of_broker(figures: QueueFigures) -> Iterator[HealthReason]:
    depth = figures.depth
    if depth is not None and depth.dead:
        yield HealthReason(
            HealthProblem.DEAD_LETTERS,
            f"{depth.dead:,} dead letters: mails that were rejected or could not be delivered",
            "mailmend runbook show queue-does-not-drain",
        )
    lacking = figures.lacking or 0
    if lacking:
        yield HealthReason(
            HealthProblem.LACKS_MESSAGE,
            f"{lacking:,} mails wait whose messages the broker lacks: it will not deliver them",
            f"mailmend queue reconcile --queue {figures.queue}; then: mailmend runbook show rabbitmq-was-lost",
        )
    elif figures.lacking_at_most:
        yield HealthReason(
            HealthProblem.LACKS_MESSAGE,
            f"{figures.lacking_at_most:,} mails wait that have at most a dead letter: the broker will not deliver them",
            f"mailmend queue reconcile --queue {figures.queue} tells which; it puts back what has no message",
        )
    if depth is not None and (depth.ready or lacking) and not depth.consumers:
        yield HealthReason(
            HealthProblem.NO_CONSUMER,
            f"{depth.ready + lacking:,} mails wait, and no consumer takes any",
            "Start what consumes the queue (James's spooler, or your service).",
        )
    if figures.broker_away is not None:
        lost = "rabbitmq-was-lost" if figures.tabled else "pulsar-was-lost"
        yield HealthReason(
            HealthProblem.BROKER_AWAY,
            f"the broker does not answer, so no mail comes or goes: {figures.broker_away}",
            f"Start it again; where its messages are lost: mailmend runbook show {lost}",
        )
    if depth is not None and depth.alarms:
        yield HealthReason(
            HealthProblem.BROKER_ALARM,
            f"the broker takes no new mail, for it is short of {', '.join(depth.alarms)}; what waits is delivered",
            "Give it what it lacks; see: rabbitmq-diagnostics alarms",
        )


def marks_that_stay(about: int | None) -> str:
    """A sentence for operators: marks that never expire are no fault. `about` estimates how many there are."""
    number = ""
    if about is not None:
        number = f", about {about:,} of all queues,"
    return (
        f"deletedMailsV2 has no time to live here: the marks of removed mails stay{number} and the table grows. They "
        "are needed while the broker may deliver such a mail. When it cannot: "
        "mailmend repair queues --marks empty --dry-run"
    )


_OF_ANY: Final = frozenset({HealthProblem.DEAD_LETTERS, HealthProblem.NO_CONSUMER, HealthProblem.BROKER_AWAY})
_OF_TOPICS: Final = frozenset(
    {
        HealthProblem.MESSAGES_EXPIRE,
        HealthProblem.BACKLOG_DROPPED,
        HealthProblem.BACKLOG_FULL,
        HealthProblem.KEPT_FOR_EVER,
        HealthProblem.SUBSCRIPTION_EXPIRES,
        HealthProblem.IDLE_TOPIC_DELETED,
        HealthProblem.DELAYS_IGNORED,
        HealthProblem.DELAYS_CUT,
        HealthProblem.ACKS_FORGOTTEN,
        HealthProblem.NOT_TENDED,
        HealthProblem.DELETIONS_PILE_UP,
    }
)


def problems_of(figures: QueueFigures) -> tuple[HealthProblem, ...]:
    """What can be wrong with such a queue, as far as was looked."""
    if figures.tabled:
        return tuple(problem for problem in HealthProblem if problem not in _OF_TOPICS)
    seen = _OF_ANY
    if figures.topics is not None:
        seen = _OF_ANY | _OF_TOPICS
    return tuple(problem for problem in HealthProblem if problem in seen)
