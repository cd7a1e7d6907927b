"""The verdict on a delivery, from what was looked up of its mail, and what each verdict requires. Pure.

The order of the rules matters. A mark outweighs everything that is missing, so that a mail which an operator deleted is
dropped and never ends as a dead letter. A look-up without an answer decides nothing.
"""

from dataclasses import dataclass
from enum import Enum

from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rules.mails import QueuedMail
from mailmend.model.ids import EnqueueId


class Settling(Enum):
    """What the broker is told about a delivery."""

    NOTHING = "nothing"  # yet: the consumer has the mail
    ACK = "ack"
    REQUEUE = "requeue"
    DEAD_LETTER = "dead letter"


class DeliveryVerdict(Enum):
    """What a delivery is, and what follows.

    Attributes:
        log: what the log says of it; "" for nothing.
    """

    DELIVER = ("deliver", Settling.NOTHING, QueueCount.DELIVERED)
    """A mail that waits, with its bytes."""
    FILTERED = ("filtered", Settling.ACK, QueueCount.FILTERED)
    """Its mail is no longer in the queue: marked."""
    DELAYED = ("delayed", Settling.ACK, QueueCount.FILTERED)
    """Another copy of the same try was delayed: the mail comes again."""
    GONE = ("gone", Settling.ACK, QueueCount.GONE, "has left the queue: neither row nor mark; dropped")
    """Its row is gone, and its mark has expired."""
    UNSURE = (
        "unsure",
        Settling.DEAD_LETTER,
        QueueCount.UNSURE,
        (
            "has neither row nor mark, and nobody swept for longer than rows live: nobody knows whether it waits; "
            "it is a dead letter now"
        ),
    )
    BAD = ("bad", Settling.DEAD_LETTER, QueueCount.BAD, "cannot be read; it is a dead letter now")
    BLOB_MISSING = (
        "blob missing",
        Settling.DEAD_LETTER,
        QueueCount.BLOB_MISSING,
        "has lost its bytes; it is a dead letter now",
    )
    LATER = ("later", Settling.REQUEUE, QueueCount.RETURNED, "goes back to the broker")
    """Tables or blobs did not answer."""

    def __init__(self, _word: str, settling: Settling, count: QueueCount, log: str = "") -> None:
        self.settling = settling
        self.count = count
        self.log = log

    @property
    def forgets_blobs(self) -> bool:
        """Whether the mail's blobs are deleted too.

        Never the blobs of a mail that has merely no row: it may be delayed, or rescued into a later
        slice, and then its bytes are needed there.
        """
        return self is DeliveryVerdict.FILTERED

    @property
    def takes_row(self) -> bool:
        """Whether its row is removed after the broker got it: a dead letter is not listed."""
        return self is DeliveryVerdict.BLOB_MISSING


class RowState(Enum):
    """What is known of the row of a delivery's mail."""

    EXPECTED = "expected"  # it is there, or nothing would follow if it were not
    GONE = "gone"  # the mail has left the queue
    LAPSED = "lapsed"  # the mail has left the queue, or its row expired while nobody swept


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What was found of a delivery's mail.

    Attributes:
        queued: the mail; None where the body holds none that can be read.
        content: header and body together; None where they are missing, or were not looked for.
        silence: why something was not found out: an error's text; None where everything answered.
    """

    queued: QueuedMail | None
    marked: bool = False
    row: RowState = RowState.EXPECTED
    content: bytes | None = None
    silence: str | None = None

    @property
    def enqueue_id(self) -> EnqueueId | None:
        """The mail's id; None where the mail cannot be read."""
        if not self.queued:
            return None
        return self.queued.enqueue_id


def verdict_of(found: LookedUp) -> DeliveryVerdict:
    """The verdict on a delivery; never `DELAYED`, which follows only from what became of the mail's first copy."""
    if found.queued is None:
        return DeliveryVerdict.BAD
    if found.marked:
        return DeliveryVerdict.FILTERED
    if found.silence is not None:
        return DeliveryVerdict.LATER
    if found.row is RowState.GONE:
        return DeliveryVerdict.GONE
    if found.row is RowState.LAPSED:
        return DeliveryVerdict.UNSURE
    return DeliveryVerdict.BLOB_MISSING if found.content is None else DeliveryVerdict.DELIVER
