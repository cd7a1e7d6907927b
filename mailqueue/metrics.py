"""What a queue counts of itself; `mailqueue.prometheus` shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

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
