"""What follows when all entries of a mail have ended: who is told what, and what comes again when."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mailmend.delivery.mail.entries import DeliveryEntry, EndedEntry, EntryEnd, EntryId, OutgoingMail
from mailmend.delivery.mail.notices import NoticeCondition, NoticeKind, RecipientNotice
from mailmend.delivery.mail.settling import MailSettlement, RetryInterval, RetrySchedule, settlement_of
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.ids import EnqueueId

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ID = EnqueueId(UUID(int=7))
MAIL = OutgoingMail(ID, "ann@example.org", NOON)
SCHEDULE = RetrySchedule((RetryInterval(MINUTE), RetryInterval(60 * MINUTE, notify=True)), count=2)


SUCCESS = frozenset({NoticeCondition.SUCCESS})


def ended(
    number: int,
    end: EntryEnd,
    refusals: int = 0,
    notify: frozenset[NoticeCondition] | None = None,
    **more: Any,
) -> EndedEntry:
    entry = DeliveryEntry(EntryId(ID, number), f"r{number}@example.com", refusals=refusals, notify=notify)
    return EndedEntry(entry, end, NOON, **more)


def settled(*some: EndedEntry, mail: OutgoingMail = MAIL, now: datetime = NOON) -> MailSettlement:
    return settlement_of(mail, some, SCHEDULE, now)


def notified(settlement: MailSettlement) -> list[tuple[str, NoticeKind]]:
    return [(one.recipient, one.kind) for one in settlement.notices]


def test_a_mail_that_was_delivered_to_all_leaves_nothing() -> None:
    """Nobody asked to be told."""
    assert settled(ended(0, EntryEnd.DELIVERED), ended(1, EntryEnd.DELIVERED)) == MailSettlement([], {})


def test_those_that_were_refused_for_now_come_again_together_and_those_that_were_not_do_not() -> None:
    """Given three recipients of which two were refused for now, they wait for the first interval, counted."""
    settlement = settled(ended(0, EntryEnd.REFUSED), ended(1, EntryEnd.DELIVERED), ended(2, EntryEnd.REFUSED))
    ((at, entries),) = settlement.again.items()
    assert at == NOON + MINUTE
    assert [(one.id.number, one.refusals) for one in entries] == [(0, 1), (2, 1)]
    assert not settlement.notices


def test_what_was_not_tried_comes_again_without_a_retry_being_counted() -> None:
    """Waiting for a policy is no attempt."""
    settlement = settled(ended(0, EntryEnd.RETURNED, refusals=1, wait=5 * MINUTE))
    ((at, (entry,)),) = settlement.again.items()
    assert (at, entry.refusals) == (NOON + 5 * MINUTE, 1)
    assert not settlement.notices


def test_who_was_refused_for_good_is_notified_of_and_does_not_come_again() -> None:
    """The sender hears why."""
    settlement = settled(ended(0, EntryEnd.FAILED, status="5.1.1"))
    assert not settlement.again
    (notice,) = settlement.notices
    assert notice.recipient == "r0@example.com"
    assert (notice.kind, notice.status, notice.expired) == (NoticeKind.FAILED, "5.1.1", False)


def test_a_notice_says_what_the_server_said_and_when() -> None:
    """All that is known of the recipient's last attempt."""
    original = "rfc822;r@example.com"
    entry = DeliveryEntry(EntryId(ID, 0), "r0@example.com", original=original, reply="550 no", host="mx.example.com")
    (notice,) = settled(EndedEntry(entry, EntryEnd.FAILED, NOON + MINUTE, "5.1.1", "a sentence")).notices
    assert notice == RecipientNotice(
        kind=NoticeKind.FAILED,
        recipient="r0@example.com",
        status="5.1.1",
        original="rfc822;r@example.com",
        reply="550 no",
        host="mx.example.com",
        why="a sentence",
        attempted_at=NOON + MINUTE,
        retry_until=NOON + timedelta(days=5),
    )


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (ended(0, EntryEnd.FAILED), "5.0.0"),
        (ended(0, EntryEnd.REFUSED, refusals=1), "4.0.0"),
        (ended(0, EntryEnd.DELIVERED, notify=SUCCESS), "2.0.0"),
        (ended(0, EntryEnd.DELIVERED, notify=SUCCESS, arrived=True), "2.0.0"),
    ],
)
def test_a_notice_without_a_code_has_that_of_its_kind(one: EndedEntry, status: str) -> None:
    """RFC 3463's X.0.0."""
    assert [notice.status for notice in settled(one).notices] == [status]


def test_entries_that_have_just_come_have_no_past() -> None:
    """Nothing was refused or said, and nobody reports for us."""
    entry = DeliveryEntry(EntryId(ID, 0), "r0@example.com")
    assert (entry.refusals, entry.reply, entry.host) == (0, "", "")
    one = EndedEntry(entry, EntryEnd.RETURNED, NOON)
    assert (one.status, one.why, one.tells, one.arrived, one.wait) == ("", "", False, False, None)
    assert (MAIL.envelope_id, MAIL.returned, MAIL.urgent, MAIL.transport) == ("", None, False, "")
    assert OutgoingMail(ID, None, NOON, fields={PickupField.TRANSPORT_ID: "t"}).transport == "t"


def test_a_hook_that_names_a_wait_has_it_instead_of_the_schedules() -> None:
    """Counted all the same, and even where the schedule would give up; its age sets the end."""
    settlement = settled(ended(0, EntryEnd.REFUSED, refusals=9, wait=7 * MINUTE))
    ((at, (entry,)),) = settlement.again.items()
    assert (at, entry.refusals) == (NOON + 7 * MINUTE, 10)
    expired = OutgoingMail(ID, "ann@example.org", NOON - timedelta(days=5))
    assert not settled(ended(0, EntryEnd.REFUSED, wait=MINUTE), mail=expired).again


def test_who_was_deleted_is_neither_reported_nor_tried_again() -> None:
    """As a hook has it."""
    assert settled(ended(0, EntryEnd.DELETED)) == MailSettlement([], {})


def test_a_refusal_beyond_the_count_is_a_failure() -> None:
    """Given two retries, the third refusal was the last."""
    settlement = settled(ended(0, EntryEnd.REFUSED, refusals=2, status="4.2.0"))
    assert not settlement.again
    assert [(one.kind, one.expired) for one in settlement.notices] == [(NoticeKind.FAILED, True)]


def test_a_delay_is_notified_at_the_interval_that_says_so() -> None:
    """With the second refusal, here; until when it is tried is in it."""
    (notice,) = settled(ended(0, EntryEnd.REFUSED, refusals=1)).notices
    assert (notice.kind, notice.retry_until) == (NoticeKind.DELAYED, NOON + timedelta(days=5))


@pytest.mark.parametrize("end", EntryEnd)
@pytest.mark.parametrize("condition", NoticeCondition)
def test_the_sender_is_notified_what_it_asked_for(end: EntryEnd, condition: NoticeCondition) -> None:
    """Success, failure, delay, each alone; or never anything."""
    settlement = settled(ended(0, end, refusals=1, notify=frozenset({condition})))
    happened = {
        EntryEnd.DELIVERED: NoticeCondition.SUCCESS,
        EntryEnd.REFUSED: NoticeCondition.DELAY,
        EntryEnd.FAILED: NoticeCondition.FAILURE,
        EntryEnd.EXPIRED: NoticeCondition.FAILURE,
        EntryEnd.RETURNED: None,
        EntryEnd.DELETED: None,
    }[end]
    assert bool(settlement.notices) == (happened is condition)


def test_a_sender_without_a_wish_is_notified_of_failures_and_delays() -> None:
    """RFC 3461 5.2: so it is left to us."""
    entry = DeliveryEntry(EntryId(ID, 0), "r0@example.com")
    assert [kind for kind in NoticeKind if entry.notifies(kind)] == [NoticeKind.FAILED, NoticeKind.DELAYED]


def test_a_server_that_tells_the_sender_itself_is_left_to_it() -> None:
    """Given that the next server was told NOTIFY, nothing is said of the success."""
    assert notified(settled(ended(0, EntryEnd.DELIVERED, notify=SUCCESS))) == [("r0@example.com", NoticeKind.RELAYED)]
    assert not notified(settled(ended(0, EntryEnd.DELIVERED, notify=SUCCESS, tells=True)))
    arrived = settled(ended(0, EntryEnd.DELIVERED, notify=SUCCESS, arrived=True))
    assert notified(arrived) == [("r0@example.com", NoticeKind.DELIVERED)]


@pytest.mark.parametrize("end", EntryEnd)
def test_the_null_sender_is_notified_nothing(end: EntryEnd) -> None:
    """A notification is such a mail: none is ever about one."""
    notify = frozenset({NoticeCondition.SUCCESS, NoticeCondition.FAILURE, NoticeCondition.DELAY})
    report = OutgoingMail(ID, None, NOON)
    assert not settled(ended(0, end, refusals=1, notify=notify), mail=report).notices


def test_what_was_returned_comes_again_no_later_than_it_expires() -> None:
    """And at once where it has expired already: then it ends as such."""
    mail = OutgoingMail(ID, "ann@example.org", NOON - timedelta(days=5) + MINUTE)
    assert list(settled(ended(0, EntryEnd.RETURNED, wait=60 * MINUTE), mail=mail).again) == [NOON + MINUTE]
    later = NOON + 10 * MINUTE
    assert list(settled(ended(0, EntryEnd.RETURNED, wait=60 * MINUTE), mail=mail, now=later).again) == [later]
