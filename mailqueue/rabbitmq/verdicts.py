"""What a delivery means: a table of verdicts from what was seen of its mail, and what each verdict asks for. Pure.

The order of the rules is the law: a mark outweighs everything that is missing, so that what an operator deleted is
dropped and never ends as a dead letter; what could not be seen decides nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mailqueue.metrics import Count
from mailqueue.rabbitmq.missing_row import RowState
from model.ids import EnqueueId
from model.queue.mails import QueuedMail


class Verdict(Enum):
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

RULES: Final[tuple[tuple[Verdict, Rule], ...]] = (
    (Verdict.BAD, lambda seen: seen.queued is None),
    (Verdict.FILTERED, lambda seen: seen.marked),
    (Verdict.LATER, lambda seen: seen.silence is not None),
    (Verdict.GONE, lambda seen: seen.row is RowState.GONE),
    (Verdict.UNSURE, lambda seen: seen.row is RowState.LAPSED),
    (Verdict.BLOB_MISSING, lambda seen: seen.blob is Blob.MISSING),
    (Verdict.DELIVER, lambda seen: seen.blob is Blob.LOADED),
)
"""The first that holds. `DELAYED` follows from no sight of the mail, only from what became of its first copy."""


def verdict_of(seen: Sight) -> Verdict:
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
    count: Count
    told: str = ""
    forgets_blobs: bool = False
    takes_row: bool = False


TREATMENTS: Final[Mapping[Verdict, Treatment]] = {
    Verdict.DELIVER: Treatment(Settling.NOTHING, Count.DELIVERED),
    Verdict.FILTERED: Treatment(Settling.ACK, Count.FILTERED, forgets_blobs=True),
    Verdict.DELAYED: Treatment(Settling.ACK, Count.FILTERED),
    Verdict.GONE: Treatment(Settling.ACK, Count.GONE, "has left the queue: neither row nor mark; dropped"),
    Verdict.UNSURE: Treatment(
        Settling.DEAD_LETTER,
        Count.UNSURE,
        "has neither row nor mark, and nobody swept for longer than rows live: nobody knows whether it waits; it is a "
        "dead letter now",
    ),
    Verdict.BAD: Treatment(Settling.DEAD_LETTER, Count.BAD, "cannot be read; it is a dead letter now"),
    Verdict.BLOB_MISSING: Treatment(
        Settling.DEAD_LETTER, Count.BLOB_MISSING, "has lost its bytes; it is a dead letter now", takes_row=True
    ),
    Verdict.LATER: Treatment(Settling.REQUEUE, Count.RETURNED, "goes back to the broker"),
}
