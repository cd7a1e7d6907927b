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


@pytest.mark.parametrize("seen", [seen for seen in FOUND if not seen.queued])
def test_what_cannot_be_read_is_bad_whatever_else_was_found(seen: LookedUp) -> None:
    """There is nothing to deliver, and no name to look for."""
    assert verdict_of(seen) is DeliveryVerdict.BAD


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


def test_a_mail_that_waits_with_its_bytes_is_delivered() -> None:
    """Unless anything speaks against it; bytes that are none are bytes too."""
    assert verdict_of(LookedUp(QUEUED, content=b"")) is DeliveryVerdict.DELIVER
    assert verdict_of(LookedUp(QUEUED)) is DeliveryVerdict.BLOB_MISSING


def test_what_was_looked_up_names_its_mail_where_it_can_be_read() -> None:
    """For the log."""
    assert LookedUp(QUEUED).enqueue_id == QUEUED.enqueue_id
    assert LookedUp(None).enqueue_id is None


@pytest.mark.parametrize(
    ("verdict", "settling", "count", "logged"),
    [
        (DeliveryVerdict.DELIVER, Settling.NOTHING, QueueCount.DELIVERED, False),
        (DeliveryVerdict.FILTERED, Settling.ACK, QueueCount.FILTERED, False),
        (DeliveryVerdict.DELAYED, Settling.ACK, QueueCount.FILTERED, False),
        (DeliveryVerdict.GONE, Settling.ACK, QueueCount.GONE, True),
        (DeliveryVerdict.UNSURE, Settling.DEAD_LETTER, QueueCount.UNSURE, True),
        (DeliveryVerdict.BAD, Settling.DEAD_LETTER, QueueCount.BAD, True),
        (DeliveryVerdict.BLOB_MISSING, Settling.DEAD_LETTER, QueueCount.BLOB_MISSING, True),
        (DeliveryVerdict.LATER, Settling.REQUEUE, QueueCount.RETURNED, True),
    ],
)
def test_every_verdict_has_its_treatment(
    verdict: DeliveryVerdict, settling: Settling, count: QueueCount, logged: bool
) -> None:
    """A dead letter is what nobody can work on, and what nobody can tell whether to; what is dropped is logged."""
    assert (verdict.settling, verdict.count, bool(verdict.log)) == (settling, count, logged)


def test_only_marked_mails_lose_their_bytes() -> None:
    """One that merely has no row may be delayed, or rescued into a later slice."""
    assert [verdict for verdict in DeliveryVerdict if verdict.forgets_blobs] == [DeliveryVerdict.FILTERED]


def test_what_is_listed_is_no_dead_letter() -> None:
    """A row is taken back where its mail becomes one; what cannot be read names none, what is unsure has none."""
    assert [verdict for verdict in DeliveryVerdict if verdict.takes_row] == [DeliveryVerdict.BLOB_MISSING]
