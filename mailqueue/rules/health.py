"""What may be wrong with a queue, as values. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


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
