"""What follows when all entries of a mail have ended: who is told what, and what comes again when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mailmend.delivery.mail.entries import (
    HELD_FOR,
    DeliveryEntry,
    EndedEntry,
    EntryAction,
    EntryChange,
    EntryEnd,
    EntryId,
    OutgoingMail,
)
from mailmend.delivery.mail.notices import NoticeCondition, NoticeKind, RecipientNotice
from mailmend.delivery.mail.settling import (
    MailSettlement,
    RetryInterval,
    RetrySchedule,
    all_as_ordered,
    as_ordered,
    settlement_of,
    spread_of,
    without_attempt,
)
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


def test_the_mails_own_expiry_is_the_one_that_its_sender_reads() -> None:
    mail = OutgoingMail(ID, "ann@example.org", NOON, expires_at=NOON + 90 * MINUTE)
    (notice,) = settled(ended(0, EntryEnd.REFUSED, refusals=1), mail=mail).notices
    assert notice.retry_until == NOON + 90 * MINUTE


def test_a_failure_of_a_mail_without_a_sender_is_left_to_a_postmaster() -> None:
    """All that a sender would read; a mail with a sender leaves nothing untold."""
    reported = settled(ended(0, EntryEnd.FAILED, status="5.1.1"), ended(1, EntryEnd.DELIVERED))
    untold = settled(
        ended(0, EntryEnd.FAILED, status="5.1.1"),
        ended(1, EntryEnd.DELIVERED),
        mail=OutgoingMail(ID, None, NOON),
    )
    assert untold == MailSettlement([], {}, tuple(reported.notices))
    assert (len(reported.notices), reported.untold) == (1, ())


def test_those_that_were_refused_equally_often_wait_from_the_last_refusal() -> None:
    """Whatever the order in which they are read, and whenever the mail is settled; a delivery is no refusal."""
    last = replace(ended(0, EntryEnd.REFUSED, journalled=True), at=NOON + timedelta(seconds=10))
    first = ended(1, EntryEnd.REFUSED, journalled=True)
    delivered = replace(ended(2, EntryEnd.DELIVERED, journalled=True), at=NOON + timedelta(seconds=20))
    settlement = settled(last, first, delivered, now=NOON + MINUTE)
    ((at, entries),) = settlement.again.items()
    assert at == NOON + MINUTE + timedelta(seconds=10)
    assert [entry.id.number for entry in entries] == [0, 1]


def test_those_of_the_journal_wait_apart_from_others() -> None:
    """Another server, after a crash, knows of the journal alone."""
    other = replace(ended(1, EntryEnd.REFUSED), at=NOON + timedelta(seconds=10))
    settlement = settled(ended(0, EntryEnd.REFUSED, journalled=True), other)
    assert list(settlement.again) == [NOON + MINUTE, NOON + MINUTE + timedelta(seconds=10)]


def test_what_comes_again_within_a_second_comes_together_at_its_end() -> None:
    early = ended(0, EntryEnd.RETURNED, wait=timedelta(seconds=5, microseconds=1))
    late = ended(1, EntryEnd.RETURNED, wait=timedelta(seconds=6))
    settlement = settled(early, late)
    ((at, entries),) = settlement.again.items()
    assert at == NOON + timedelta(seconds=6)
    assert [entry.id.number for entry in entries] == [0, 1]


def test_a_time_that_has_come_is_no_longer_the_entrys_own() -> None:
    """Given an entry that was deferred, its refusal leaves the schedule's time alone."""
    deferred = DeliveryEntry(EntryId(ID, 0), "r0@example.com", due_at=NOON)
    settlement = settled(EndedEntry(deferred, EntryEnd.REFUSED, NOON))
    assert settlement.again == {NOON + MINUTE: [replace(deferred, refusals=1, due_at=None)]}


def test_a_wait_is_longer_by_the_spread_of_the_mail_and_its_refusals() -> None:
    """So a server that settles the mail again, after a crash, finds the same time."""
    schedule = RetrySchedule((RetryInterval(timedelta(days=1)),), jitter=1.0)
    settlement = settlement_of(MAIL, [ended(0, EntryEnd.REFUSED, refusals=1)], schedule, NOON)
    (at,) = settlement.again
    exact = timedelta(days=1) * (1 + spread_of(ID, 2))
    assert timedelta() <= at - NOON - exact < timedelta(seconds=1)


def test_a_delay_is_notified_once_where_one_interval_alone_says_so() -> None:
    """At the second of three refusals."""
    schedule = RetrySchedule((RetryInterval(MINUTE), RetryInterval(MINUTE, notify=True), RetryInterval(MINUTE)))
    delays = list[list[tuple[str, NoticeKind]]]()
    for refusals in range(3):
        refused = ended(0, EntryEnd.REFUSED, refusals=refusals)
        delays.append(notified(settlement_of(MAIL, [refused], schedule, NOON)))
    assert delays == [[], [("r0@example.com", NoticeKind.DELAYED)], []]


def entry_of(**more: Any) -> DeliveryEntry:
    return DeliveryEntry(EntryId(ID, 0), "r0@example.com", reply="450 later", host="mx.example.com", **more)


def order(action: EntryAction, until: datetime | None = None) -> EntryChange:
    return EntryChange(action=action, at=NOON, owner="ann", reason="spam?", until=until)


HOLD, BOUNCE, DELETE = order(EntryAction.HOLD), order(EntryAction.BOUNCE), order(EntryAction.DELETE)
LATER = NOON + 10 * MINUTE


def test_what_is_held_comes_again_after_its_long_wait_though_its_mail_is_too_old() -> None:
    """Only what is held does not expire."""
    held = entry_of(order=HOLD)
    old = OutgoingMail(ID, "ann@example.org", NOON - timedelta(days=9))
    assert settled(EndedEntry(held, EntryEnd.RETURNED, LATER), mail=old).again == {LATER + HELD_FOR: [held]}
    soon = EndedEntry(held, EntryEnd.RETURNED, LATER, wait=MINUTE)
    assert settled(soon, mail=old).again == {LATER + MINUTE: [held]}


class TestWithoutAttempt:
    """Entries that end before they are tried."""

    def test_what_is_held_returns_for_long(self) -> None:
        """Though its mail has expired."""
        held = entry_of(order=HOLD)
        assert without_attempt(held, NOON, NOON) == EndedEntry(held, EntryEnd.RETURNED, NOON, wait=HELD_FOR)

    def test_what_is_to_be_bounced_fails_with_the_reason_of_the_order(self) -> None:
        """What a server said before is not why."""
        found = without_attempt(entry_of(order=BOUNCE), NOON, LATER)
        assert found == EndedEntry(
            replace(entry_of(order=BOUNCE), reply="", host=""), EntryEnd.FAILED, NOON, why="spam?"
        )

    def test_what_is_not_due_returns_until_it_is(self) -> None:
        deferred = entry_of(due_at=NOON + MINUTE)
        found = without_attempt(deferred, NOON, LATER)
        assert found == EndedEntry(deferred, EntryEnd.RETURNED, NOON, wait=MINUTE)

    @pytest.mark.parametrize(
        ("due_at", "expires_at"),
        [(None, LATER), (NOON - MINUTE, LATER), (NOON, LATER), (LATER, NOON), (LATER, NOON - MINUTE)],
    )
    def test_what_is_due_or_has_expired_is_tried(self, due_at: datetime | None, expires_at: datetime) -> None:
        """At the very instant, too."""
        assert without_attempt(entry_of(due_at=due_at), NOON, expires_at) is None


class TestAsOrdered:
    """Orders that are carried out in place of the next attempt."""

    def test_what_is_to_be_deleted_is_gone_for_the_reason_of_the_order(self) -> None:
        found = as_ordered(MAIL, entry_of(), DELETE, LATER)
        assert found == EndedEntry(entry_of(), EntryEnd.DELETED, LATER, why="spam?")

    def test_what_is_to_be_held_is_held_from_now(self) -> None:
        """The entry is another than its queue has."""
        held = entry_of(order=HOLD, due_at=NOON + HELD_FOR, changed_at=NOON)
        assert as_ordered(MAIL, entry_of(), HOLD, LATER) == EndedEntry(
            held, EntryEnd.RETURNED, LATER, why="spam?", wait=HELD_FOR, changed=True
        )

    @pytest.mark.parametrize(
        ("own_expiry", "due_at"), [(None, NOON + 60 * MINUTE), (NOON + 30 * MINUTE, NOON + 30 * MINUTE)]
    )
    def test_what_is_to_be_deferred_waits_until_then_or_until_its_mail_expires(
        self, own_expiry: datetime | None, due_at: datetime
    ) -> None:
        mail = replace(MAIL, expires_at=own_expiry)
        found = as_ordered(mail, entry_of(), order(EntryAction.DEFER, NOON + 60 * MINUTE), LATER)
        assert found == EndedEntry(
            entry_of(due_at=due_at, changed_at=NOON),
            EntryEnd.RETURNED,
            LATER,
            why="spam?",
            wait=due_at - LATER,
            changed=True,
        )

    def test_an_order_that_comes_too_late_changes_nothing(self) -> None:
        """A later command counts, and a time that has passed defers nothing."""
        assert as_ordered(MAIL, entry_of(changed_at=LATER), DELETE, LATER) is None
        assert as_ordered(MAIL, entry_of(), order(EntryAction.DEFER, LATER), LATER) is None

    def test_an_order_that_leaves_the_entry_as_it_is_lets_it_go_on(self) -> None:
        """Though it waits for a time of its own: its queue has that already."""
        deferred = entry_of(due_at=LATER + MINUTE)
        assert as_ordered(MAIL, deferred, order(EntryAction.RELEASE), LATER) is None

    def test_what_is_released_is_tried(self) -> None:
        assert as_ordered(MAIL, entry_of(order=HOLD), order(EntryAction.RELEASE), LATER) is None


class TestAllAsOrdered:
    """Orders of all entries of a mail."""

    def test_only_what_would_come_again_is_changed_by_what_was_ordered_of_it(self) -> None:
        """Who has the mail has it, and nobody else is touched; the refusal is counted."""
        refused, delivered, other = ended(0, EntryEnd.REFUSED), ended(1, EntryEnd.DELIVERED), ended(2, EntryEnd.REFUSED)
        found = all_as_ordered(MAIL, [refused, delivered, other], {0: HOLD, 1: HOLD}, SCHEDULE, LATER)
        held = replace(refused.entry, refusals=1, order=HOLD, due_at=NOON + HELD_FOR, changed_at=NOON)
        assert found == [
            EndedEntry(held, EntryEnd.RETURNED, LATER, why="spam?", wait=HELD_FOR, changed=True),
            delivered,
            other,
        ]

    def test_an_order_that_changes_nothing_leaves_the_end_as_it_was(self) -> None:
        refused = ended(0, EntryEnd.REFUSED)
        assert all_as_ordered(MAIL, [refused], {0: order(EntryAction.RELEASE)}, SCHEDULE, LATER) == [refused]

    @pytest.mark.parametrize(
        ("first_seen_at", "own_expiry", "end"),
        [
            (NOON - timedelta(days=5), None, EntryEnd.REFUSED),
            (NOON, LATER, EntryEnd.REFUSED),
            (NOON - timedelta(days=5), LATER + MINUTE, EntryEnd.DELETED),
        ],
    )
    def test_what_has_expired_stays_refused_whatever_was_ordered(
        self, first_seen_at: datetime, own_expiry: datetime | None, end: EntryEnd
    ) -> None:
        """By the mail's own expiry, where it names one, else by its age."""
        mail = OutgoingMail(ID, "ann@example.org", first_seen_at, expires_at=own_expiry)
        (found,) = all_as_ordered(mail, [ended(0, EntryEnd.REFUSED)], {0: DELETE}, SCHEDULE, LATER)
        assert found.end is end
