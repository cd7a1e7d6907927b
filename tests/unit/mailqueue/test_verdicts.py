"""The table of verdicts: total, in its order, and each verdict with one treatment."""

from itertools import product
from typing import Any
from uuid import UUID

import pytest

from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.verdicts import DeliveryVerdict, LookedUp, RowState, Settling, verdict_of
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail
from mailmend.model.ids import BlobId, EnqueueId

QUEUED = QueuedMail(EnqueueId(UUID(int=1)), Mail("m", ("bob@example.org",)), MailBlobs(BlobId("h"), BlobId("b")))

FOUND = [
    LookedUp(*found)
    for found in product((None, QUEUED), (False, True), RowState, (None, b"", b"content"), (None, "no answer"))
]
"""Every answer that a look-up can end with."""


ANSWERED = {"queued": QUEUED, "marked": False, "silence": None}


def verdicts(**seen: Any) -> set[DeliveryVerdict]:
    """The verdicts on every answer that agrees with what was seen."""
    return {verdict_of(one) for one in FOUND if all(getattr(one, name) == value for name, value in seen.items())}


def test_what_cannot_be_read_is_bad_whatever_else_was_found() -> None:
    """There is nothing to deliver, and no name to look for."""
    assert verdicts(queued=None) == {DeliveryVerdict.BAD}


def test_a_mark_outweighs_whatever_is_missing() -> None:
    """What an operator deleted never raises an alarm over its bytes, its row, or a server that is away."""
    assert verdicts(queued=QUEUED, marked=True) == {DeliveryVerdict.FILTERED}


def test_what_was_not_seen_decides_nothing() -> None:
    """While anything did not answer, the delivery is neither dropped nor a dead letter."""
    assert verdicts(queued=QUEUED, marked=False, silence="no answer") == {DeliveryVerdict.LATER}


def test_a_mail_without_its_row_has_left_unless_the_row_may_have_expired() -> None:
    """Then only its mark would say that it has left; whatever its bytes say."""
    assert verdicts(**ANSWERED, row=RowState.GONE) == {DeliveryVerdict.GONE}
    assert verdicts(**ANSWERED, row=RowState.LAPSED) == {DeliveryVerdict.UNSURE}


def test_a_mail_that_waits_is_delivered_with_its_bytes() -> None:
    """Bytes that are none are bytes too."""
    assert verdicts(**ANSWERED, row=RowState.EXPECTED, content=None) == {DeliveryVerdict.BLOB_MISSING}
    assert verdicts(**ANSWERED, row=RowState.EXPECTED, content=b"") == {DeliveryVerdict.DELIVER}
    assert verdict_of(LookedUp(QUEUED, content=b"content")) is DeliveryVerdict.DELIVER


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
