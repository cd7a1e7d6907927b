"""The table of verdicts: total, in its order, and each verdict with one treatment."""

from itertools import product
from uuid import UUID

import pytest

from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.verdicts import DeliveryVerdict, LookedUp, RowState, Settling, verdict_of
from model.ids import BlobId, EnqueueId
from model.queue.mails import Mail, MailBlobs, QueuedMail

QUEUED = QueuedMail(EnqueueId(UUID(int=1)), Mail("m", ("bob@example.org",)), MailBlobs(BlobId("h"), BlobId("b")))

FOUND = [
    LookedUp(*found)
    for found in product((None, QUEUED), (False, True), RowState, (None, b"", b"content"), (None, "no answer"))
]
"""Every answer that a look-up can end with."""


@pytest.mark.parametrize("seen", FOUND)
def test_every_answer_has_a_verdict(seen: LookedUp) -> None:
    """Whatever was found, one rule holds."""
    assert isinstance(verdict_of(seen), DeliveryVerdict)


@pytest.mark.parametrize("seen", [seen for seen in FOUND if seen.queued and seen.marked])
def test_a_mark_outweighs_whatever_is_missing(seen: LookedUp) -> None:
    """What an operator deleted never raises an alarm over its bytes, its row, or a server that is away."""
    assert verdict_of(seen) is DeliveryVerdict.FILTERED


@pytest.mark.parametrize("seen", [seen for seen in FOUND if seen.queued and not seen.marked and seen.silence])
def test_what_was_not_seen_decides_nothing(seen: LookedUp) -> None:
    """While anything did not answer, the delivery is neither dropped nor a dead letter."""
    assert verdict_of(seen) is DeliveryVerdict.LATER


@pytest.mark.parametrize("seen", [seen for seen in FOUND if seen.row is not RowState.EXPECTED])
def test_a_mail_without_its_row_is_never_delivered(seen: LookedUp) -> None:
    """It has left the queue, or nobody knows: whatever its bytes say."""
    assert verdict_of(seen) is not DeliveryVerdict.DELIVER


@pytest.mark.parametrize("seen", [seen for seen in FOUND if seen.row is RowState.LAPSED])
def test_a_mail_whose_row_may_have_expired_is_never_dropped(seen: LookedUp) -> None:
    """Only its mark would say that it has left the queue."""
    assert verdict_of(seen) is not DeliveryVerdict.GONE


def test_a_mail_is_delivered_only_with_its_bytes() -> None:
    """Of all answers that lead to the consumer, each has loaded them and neither mark nor silence."""
    delivered = [seen for seen in FOUND if verdict_of(seen) is DeliveryVerdict.DELIVER]
    assert delivered
    assert all(seen.content is not None and not seen.marked and not seen.silence for seen in delivered)


def test_every_verdict_has_its_treatment() -> None:
    """And a count of its own, but for copies of what is delayed."""
    counts = [verdict.count for verdict in DeliveryVerdict if verdict is not DeliveryVerdict.DELAYED]
    assert len(set(counts)) == len(counts)


@pytest.mark.parametrize(
    ("verdict", "settling"),
    [
        (DeliveryVerdict.DELIVER, Settling.NOTHING),
        (DeliveryVerdict.FILTERED, Settling.ACK),
        (DeliveryVerdict.DELAYED, Settling.ACK),
        (DeliveryVerdict.GONE, Settling.ACK),
        (DeliveryVerdict.UNSURE, Settling.DEAD_LETTER),
        (DeliveryVerdict.BAD, Settling.DEAD_LETTER),
        (DeliveryVerdict.BLOB_MISSING, Settling.DEAD_LETTER),
        (DeliveryVerdict.LATER, Settling.REQUEUE),
    ],
)
def test_what_the_broker_is_told(verdict: DeliveryVerdict, settling: Settling) -> None:
    """A dead letter is what nobody can work on, and what nobody can tell whether to."""
    assert verdict.settling is settling


def test_only_marked_mails_lose_their_bytes() -> None:
    """One that merely has no row may be delayed, or rescued into a later slice."""
    assert [verdict for verdict in DeliveryVerdict if verdict.forgets_blobs] == [DeliveryVerdict.FILTERED]
    assert DeliveryVerdict.GONE.count is QueueCount.GONE


def test_what_is_listed_is_no_dead_letter() -> None:
    """A row is taken back where its mail becomes one; what cannot be read names none, what is unsure has none."""
    assert [verdict for verdict in DeliveryVerdict if verdict.takes_row] == [DeliveryVerdict.BLOB_MISSING]
