"""What a delivery means: a table of verdicts from what was seen of its mail, and what each verdict asks for. Pure.

The order of the rules is the law: a mark outweighs everything that is missing, so that what an operator deleted is
dropped and never ends as a dead letter; what could not be seen decides nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.missing_row import RowState
from model.ids import EnqueueId
from model.queue.mails import QueuedMail


class DeliveryVerdict(Enum):
    """What a delivery is."""

    DELIVER = "deliver"  # a mail that waits, with its bytes
    FILTERED = "filtered"  # its mail is no longer in the queue: marked
    DELAYED = "delayed"  # another copy of the same try was delayed: the mail comes again
    GONE = "gone"  # it has left the queue: its row is gone, and its mark has expired
    UNSURE = "unsure"  # it has left the queue, or its row expired while nobody swept
    BAD = "bad"  # no mail can be read from it
    BLOB_MISSING = "blob missing"  # its mail waits, its bytes are nowhere
    LATER = "later"  # tables or blobs did not answer


class Blob(Enum):
    """How a mail's bytes were found."""

    UNSEEN = "unseen"  # not looked for
    LOADED = "loaded"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a delivery's mail.

    Attributes:
        queued: the mail; None where the body holds none that can be read.
        marked: whether it is marked.
        row: what is known of its row.
        silence: why something was not seen: an error's text; None where everything answered.
        content: header and body together.
    """

    queued: QueuedMail | None
    marked: bool = False
    row: RowState = RowState.EXPECTED
    blob: Blob = Blob.UNSEEN
    silence: str | None = None
    content: bytes = b""

    @property
    def enqueue_id(self) -> EnqueueId | None:
        """The mail's, where it can be read."""
        return self.queued.enqueue_id if self.queued else None


Rule = Callable[[Sight], bool]

RULES: Final[tuple[tuple[DeliveryVerdict, Rule], ...]] = (
    (DeliveryVerdict.BAD, lambda seen: seen.queued is None),
    (DeliveryVerdict.FILTERED, lambda seen: seen.marked),
    (DeliveryVerdict.LATER, lambda seen: seen.silence is not None),
    (DeliveryVerdict.GONE, lambda seen: seen.row is RowState.GONE),
    (DeliveryVerdict.UNSURE, lambda seen: seen.row is RowState.LAPSED),
    (DeliveryVerdict.BLOB_MISSING, lambda seen: seen.blob is Blob.MISSING),
    (DeliveryVerdict.DELIVER, lambda seen: seen.blob is Blob.LOADED),
)
"""The first that holds. `DELAYED` follows from no sight of the mail, only from what became of its first copy."""


def verdict_of(seen: Sight) -> DeliveryVerdict:
    """What the delivery is."""
    return next(verdict for verdict, rule in RULES if rule(seen))


class Settling(Enum):
    """What the broker is told."""

    NOTHING = "nothing"  # yet: the consumer has the mail
    ACK = "ack"
    REQUEUE = "requeue"
    DEAD_LETTER = "dead letter"


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a verdict asks for.

    Attributes:
        told: what the log says of it; "" for nothing.
        forgets_blobs: whether the mail's bytes go too. Never those of a mail that has merely no row: it may be
            delayed, or rescued into a later slice, and then its bytes are needed there.
        takes_row: whether its row goes, once the broker was told: a dead letter is not listed.
    """

    settling: Settling
    count: QueueCount
    told: str = ""
    forgets_blobs: bool = False
    takes_row: bool = False


TREATMENTS: Final[Mapping[DeliveryVerdict, Treatment]] = {
    DeliveryVerdict.DELIVER: Treatment(Settling.NOTHING, QueueCount.DELIVERED),
    DeliveryVerdict.FILTERED: Treatment(Settling.ACK, QueueCount.FILTERED, forgets_blobs=True),
    DeliveryVerdict.DELAYED: Treatment(Settling.ACK, QueueCount.FILTERED),
    DeliveryVerdict.GONE: Treatment(Settling.ACK, QueueCount.GONE, "has left the queue: neither row nor mark; dropped"),
    DeliveryVerdict.UNSURE: Treatment(
        Settling.DEAD_LETTER,
        QueueCount.UNSURE,
        "has neither row nor mark, and nobody swept for longer than rows live: nobody knows whether it waits; it is a "
        "dead letter now",
    ),
    DeliveryVerdict.BAD: Treatment(Settling.DEAD_LETTER, QueueCount.BAD, "cannot be read; it is a dead letter now"),
    DeliveryVerdict.BLOB_MISSING: Treatment(
        Settling.DEAD_LETTER, QueueCount.BLOB_MISSING, "has lost its bytes; it is a dead letter now", takes_row=True
    ),
    DeliveryVerdict.LATER: Treatment(Settling.REQUEUE, QueueCount.RETURNED, "goes back to the broker"),
}
