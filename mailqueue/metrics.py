"""What the queue counts, for whoever watches it; the one door to Prometheus's own library.

The queue adds to `Counts` and knows nothing of Prometheus. `PrometheusCounts` keeps them in a registry of its own, so
that two queues' services in one process, and tests, do not meet in the library's global one.
"""

from enum import Enum
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, generate_latest

from model.ids import QueueName


class Count(Enum):
    """What is counted: the word in the metric's name, and what one of it means."""

    ENQUEUED = ("enqueued", "Mails put into the queue, confirmed by the broker")
    ENQUEUE_FAILED = ("enqueue_failed", "Mails that were refused to their sender and taken back")
    DELIVERED = ("delivered", "Mails handed to a consumer")
    ACKED = ("acked", "Mails whose consumer succeeded")
    RETRIED = ("retried", "Mails put back to be tried later")
    REJECTED = ("rejected", "Mails that their consumer sent to the dead letter queue")
    FILTERED = ("filtered", "Deliveries of mails that were marked: dropped")
    GONE = ("gone", "Deliveries from swept slices with neither row nor mark: dropped")
    BAD = ("bad", "Deliveries that no mail could be read from: sent to the dead letter queue")
    BLOB_MISSING = ("blob_missing", "Deliveries without their bytes: sent to the dead letter queue")
    RETURNED = ("returned", "Deliveries given back to the broker because tables or blobs did not answer")
    DUE_MOVED = ("due_moved", "Delayed mails whose time came")
    REMOVED = ("removed", "Mails deleted or purged by an operator")
    REPUBLISHED = ("republished", "Mails published again from their rows")
    BROWSE_START_MOVED = ("browse_start_moved", "Moves of the browse start")
    MOVED_BACK = ("moved_back", "Backward moves of the browse start that somebody else made")
    SWEPT_SLICES = ("swept_slices", "Slices swept")
    SWEPT_ROWS = ("swept_rows", "Rows that went with their slices")
    SWEPT_BLOBS = ("swept_blobs", "Left-over blobs that the sweep removed")
    RESCUED = ("rescued", "Unmarked mails that the sweep found before the browse start and put back")
    RENEWED = ("renewed", "Mails put again before they would have expired")
    ORPHAN_MARKS = ("orphan_marks", "Marks written for mails whose slice was swept before")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


class Counts(Protocol):
    """Where the queue says what happened. Never raises, never waits."""

    def add(self, name: Count, queue: QueueName, n: int = 1) -> None:
        """It happened `n` times more in the queue."""
        ...


class NoCounts:
    """Nobody watches."""

    def add(self, name: Count, queue: QueueName, n: int = 1) -> None:
        """Forget it."""


class PrometheusCounts:
    """One Prometheus counter for each kind, with the queue as its label: `mailmend_queue_acked_total{queue="spool"}`.

    Args:
        registry: where the counters live; a new one by default.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._counters = {
            count: Counter(f"mailmend_queue_{count.word}", count.meaning, ("queue",), registry=self._registry)
            for count in Count
        }

    def add(self, name: Count, queue: QueueName, n: int = 1) -> None:
        """Add to the counter."""
        self._counters[name].labels(queue=queue).inc(n)

    def text(self) -> str:
        """Everything in the registry, in Prometheus's text form."""
        return generate_latest(self._registry).decode()
