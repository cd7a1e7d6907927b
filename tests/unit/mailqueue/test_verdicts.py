"""The table of verdicts: total, in its order, and each verdict with one treatment."""

from itertools import product
from uuid import UUID

import pytest

from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.missing_row import RowState
from mailqueue.rabbitmq.verdicts import TREATMENTS, Blob, DeliveryVerdict, Settling, Sight, verdict_of
from model.ids import BlobId, EnqueueId
from model.queue.mails import Mail, MailBlobs, QueuedMail

QUEUED = QueuedMail(EnqueueId(UUID(int=1)), Mail("m", ("bob@example.org",)), MailBlobs(BlobId("h"), BlobId("b")))

SIGHTS = [
    Sight(queued, marked, row, blob, silence)
    for queued, marked, row, blob, silence in product(
        (None, QUEUED), (False, True), RowState, Blob, (None, "no answer")
    )
    if silence or queued is None or marked or blob is not Blob.UNSEEN
]
"""Every sight that looking can end with."""


@pytest.mark.parametrize("seen", SIGHTS)
def test_every_sight_has_a_verdict(seen: Sight) -> None:
    """Whatever was seen, one rule holds."""
    assert isinstance(verdict_of(seen), DeliveryVerdict)


@pytest.mark.parametrize("seen", [seen for seen in SIGHTS if seen.queued and seen.marked])
def test_a_mark_outweighs_whatever_is_missing(seen: Sight) -> None:
    """What an operator deleted never raises an alarm over its bytes, its row, or a server that is away."""
    assert verdict_of(seen) is DeliveryVerdict.FILTERED


@pytest.mark.parametrize("seen", [seen for seen in SIGHTS if seen.queued and not seen.marked and seen.silence])
def test_what_was_not_seen_decides_nothing(seen: Sight) -> None:
    """While anything did not answer, the delivery is neither dropped nor a dead letter."""
    assert verdict_of(seen) is DeliveryVerdict.LATER


@pytest.mark.parametrize("seen", [seen for seen in SIGHTS if seen.row is not RowState.EXPECTED])
def test_a_mail_without_its_row_is_never_delivered(seen: Sight) -> None:
    """It has left the queue, or nobody knows: whatever its bytes say."""
    assert verdict_of(seen) is not DeliveryVerdict.DELIVER


@pytest.mark.parametrize("seen", [seen for seen in SIGHTS if seen.row is RowState.LAPSED])
def test_a_mail_whose_row_may_have_expired_is_never_dropped(seen: Sight) -> None:
    """Only its mark would say that it has left the queue."""
    assert verdict_of(seen) is not DeliveryVerdict.GONE


def test_a_mail_is_delivered_only_with_its_bytes() -> None:
    """Of all sights that lead to the consumer, each has loaded them and neither mark nor silence."""
    delivered = [seen for seen in SIGHTS if verdict_of(seen) is DeliveryVerdict.DELIVER]
    assert delivered
    assert all(seen.blob is Blob.LOADED and not seen.marked and not seen.silence for seen in delivered)


def test_every_verdict_has_its_treatment() -> None:
    """And a count of its own, but for copies of what is delayed."""
    assert set(TREATMENTS) == set(DeliveryVerdict)
    counts = [treatment.count for verdict, treatment in TREATMENTS.items() if verdict is not DeliveryVerdict.DELAYED]
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
    assert TREATMENTS[verdict].settling is settling


def test_only_marked_mails_lose_their_bytes() -> None:
    """One that merely has no row may be delayed, or rescued into a later slice."""
    assert [verdict for verdict, treatment in TREATMENTS.items() if treatment.forgets_blobs] == [
        DeliveryVerdict.FILTERED
    ]
    assert TREATMENTS[DeliveryVerdict.GONE].count is QueueCount.GONE


def test_what_is_listed_is_no_dead_letter() -> None:
    """A row is taken back where its mail becomes one; what cannot be read names none, what is unsure has none."""
    assert [verdict for verdict, treatment in TREATMENTS.items() if treatment.takes_row] == [
        DeliveryVerdict.BLOB_MISSING
    ]
