"""A mail as its queue lists it, read by deliveries: the state of its recipients, and what commands make of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mailmend.delivery.mail.attempts import AttemptOutcome, JournalledAttempt
from mailmend.delivery.mail.entries import (
    DeliveryEntry,
    EntryAction,
    EntryChange,
    EntryField,
    EntryFilter,
    EntryId,
    EntryState,
    OutgoingMail,
)
from mailmend.delivery.mail.envelopes import (
    BYTES,
    GIVEN_BYTES_MAX,
    NOTES_BYTES_MAX,
    REMEMBERED,
    changed_mail,
    counted_mail,
    first_id,
    lacking_mail,
    mail_again,
    part_of_mail,
    plain_attributes,
    queued_entries,
    with_bytes,
    without_notes,
)
from mailmend.delivery.mail.notices import NoticeCondition, ReturnedPart
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.codec import attribute, attribute_value
from mailmend.mailqueue.rules.mails import Listed, Mail, MailBlobs, QueuedMail
from mailmend.model.ids import BlobId, EnqueueId
from mailmend.model.texts import NOTE_BYTES_MAX

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST = EnqueueId(UUID(int=1))
LATER = EnqueueId(UUID(int=2))
BOB, CY = "bob@example.org", "cy@Example.com"
HOLD = EntryChange(action=EntryAction.HOLD, at=NOON, owner="ann", reason="asked")
OUTGOING = OutgoingMail(FIRST, "ann@example.org", NOON)


def mail(attributes: Mapping[str, str] | None = None) -> Mail:
    return Mail("m", (BOB, CY), sender="ann@example.org", last_updated=NOON, attributes=attributes or {})


def listed(written: Mail, due_at: datetime | None = None) -> Listed:
    blobs = MailBlobs(BlobId("header"), BlobId("body"))
    return Listed.entering(QueuedMail(LATER, written, blobs), NOON, due_at)


def entries(**of_cy: object) -> list[DeliveryEntry]:
    """Bob's entry as it was at first, and Cy's with these fields."""
    cy = DeliveryEntry(EntryId(FIRST, 1), CY)
    return [DeliveryEntry(EntryId(FIRST, 0), BOB), replace(cy, **of_cy)]  # type: ignore[arg-type]


def again(**of_cy: object) -> Mail:
    return mail_again(mail(), OUTGOING, entries(**of_cy))


@pytest.mark.parametrize(
    ("of_cy", "due_at", "state", "until"),
    [
        ({}, None, EntryState.ACTIVE, None),
        ({"due_at": NOON}, None, EntryState.ACTIVE, None),
        ({"due_at": NOON + HOUR}, None, EntryState.DEFER, NOON + HOUR),
        ({}, NOON + HOUR, EntryState.DEFER, NOON + HOUR),
        ({}, NOON - HOUR, EntryState.DEFER, NOON - HOUR),
        ({"due_at": NOON + 2 * HOUR}, NOON + HOUR, EntryState.DEFER, NOON + 2 * HOUR),
        ({"due_at": NOON - HOUR}, NOON + HOUR, EntryState.DEFER, NOON + HOUR),
        ({"order": HOLD, "due_at": NOON + HOUR}, NOON + HOUR, EntryState.HOLD, None),
    ],
)
def test_a_recipient_waits_for_its_own_time_and_its_mails(
    of_cy: Mapping[str, object], due_at: datetime | None, state: EntryState, until: datetime | None
) -> None:
    """The later one counts; one that is held has no time."""
    _, cy = queued_entries(listed(again(**of_cy), due_at), NOON)
    assert (cy.state, cy.due_at, cy.enqueue_id) == (state, until, LATER)
    assert cy.entry == entries(**of_cy)[1]
    assert cy.mail == OUTGOING


def test_listings_show_the_attributes_that_are_texts_numbers_or_flags() -> None:
    given = {"a": attribute("b"), "n": attribute(3), "f": attribute(True), "l": attribute([1]), "x": "nonsense"}
    written = mail({**given, REMEMBERED: attribute("id"), BYTES: attribute(7)})
    shown = {"a": "b", "n": "3", "f": "True"}
    assert plain_attributes(written) == shown
    assert [entry.attributes for entry in queued_entries(listed(written), NOON)] == [shown, shown]


def test_a_mail_is_counted_once_for_each_domain_with_its_size() -> None:
    written = replace(with_bytes(mail({"jobid": attribute("news")}), b"12345"), recipients=(BOB, CY, "di@EXAMPLE.org"))
    counted = counted_mail(written)
    assert counted.values == (
        {PickupField.JOB_ID: "news", PickupField.RECIPIENT_DOMAIN: "example.org"},
        {PickupField.JOB_ID: "news", PickupField.RECIPIENT_DOMAIN: "example.com"},
    )
    assert counted.bytes == 5
    assert counted_mail(written, 9).bytes == 9
    assert counted_mail(written, 0).bytes == 0
    assert counted_mail(mail()).bytes == 0
    assert counted_mail(mail({BYTES: attribute(-1)})).bytes == 0


def test_the_domain_of_a_recipient_that_is_no_domain_is_counted_in_small_letters() -> None:
    (values,) = counted_mail(replace(mail(), recipients=("a@-B_.",))).values
    assert values[PickupField.RECIPIENT_DOMAIN].islower()


def test_an_entry_without_notes_is_tried_alike() -> None:
    (_, cy) = entries(refusals=2, reply="450 later", host="mx", due_at=NOON, order=HOLD, changed_at=NOON)
    (_, bare) = entries(refusals=2, due_at=NOON, order=replace(HOLD, owner="", reason=""), changed_at=NOON)
    assert without_notes(cy) == bare
    assert without_notes(entries()[0]) == entries()[0]


def test_the_first_id_of_a_mail_outlasts_its_passages() -> None:
    assert first_id(listed(mail()).queued) == LATER
    assert first_id(listed(again()).queued) == FIRST
    assert first_id(listed(mail({REMEMBERED: attribute({"id": "none"})})).queued) == LATER


def attempt(number: int, outcome: AttemptOutcome | None) -> JournalledAttempt:
    return JournalledAttempt(
        entry=EntryId(FIRST, number),
        mail=LATER,
        id=UUID(int=3),
        fields={},
        sources=(),
        host="mx",
        content_bytes=1,
        urgent=False,
        server="s",
        outcome=outcome,
    )


def test_a_mail_goes_again_to_those_alone_that_lack_it() -> None:
    queued = listed(again(refusals=3)).queued
    delivered = [attempt(0, AttemptOutcome.DELIVERED), attempt(1, AttemptOutcome.REFUSED), attempt(1, None)]

    left = lacking_mail(queued, delivered, NOON)

    assert left == mail_again(queued.mail, OUTGOING, entries(refusals=3)[1:])
    assert left is not None
    assert left.recipients == (CY,)
    assert lacking_mail(queued, delivered[1:], NOON) is queued.mail
    assert lacking_mail(queued, [*delivered, attempt(1, AttemptOutcome.DELIVERED)], NOON) is None


def test_a_part_of_a_mail_has_an_id_that_follows_from_its_recipients() -> None:
    whole = listed(again(refusals=1), NOON + HOUR)
    bob, cy = queued_entries(whole, NOON)

    part = part_of_mail(whole, [cy])

    assert part_of_mail(whole, [bob, cy]) is whole
    assert part.queued.mail == mail_again(whole.queued.mail, OUTGOING, [cy.entry])
    assert part_of_mail(whole, [cy]) == part
    assert len({whole.queued.enqueue_id, part.queued.enqueue_id, part_of_mail(whole, [bob]).queued.enqueue_id}) == 3
    assert replace(part, queued=whole.queued) == whole


CYS = EntryFilter(texts={EntryField.RECIPIENT: ("cy@*",)})
DELETE = EntryChange(action=EntryAction.DELETE, at=NOON + HOUR, owner="ann")
RETRY = replace(DELETE, action=EntryAction.RETRY)


def test_a_command_changes_the_recipients_that_it_chooses() -> None:
    """The mail is due with the first of them, and each recipient keeps its own time."""
    due_at = NOON + 3 * HOUR
    delayed = listed(again(), due_at)

    chosen, behind = changed_mail(delayed, CYS, RETRY, NOON)

    assert [entry.entry.recipient for entry in chosen] == [CY]
    assert behind is not None
    assert behind.due_at == NOON + HOUR
    bob, cy = queued_entries(listed(behind.mail, behind.due_at), NOON)
    assert (bob.entry.due_at, cy.entry.due_at, cy.entry.changed_at) == (due_at, NOON + HOUR, NOON + HOUR)


def test_what_a_command_deletes_is_gone_from_the_mail() -> None:
    delayed = listed(again(due_at=NOON + 5 * HOUR), NOON + 3 * HOUR)

    chosen, behind = changed_mail(delayed, CYS, DELETE, NOON)
    everybody, nothing = changed_mail(delayed, EntryFilter(), DELETE, NOON)

    assert [entry.entry.recipient for entry in chosen] == [CY]
    assert behind is not None
    assert (behind.mail.recipients, behind.due_at) == ((BOB,), NOON + 3 * HOUR)
    assert ([entry.entry.recipient for entry in everybody], nothing) == ([BOB, CY], None)


def test_a_command_that_changes_nothing_leaves_the_mail() -> None:
    nobody = EntryFilter(texts={EntryField.RECIPIENT: ("di@*",)})
    assert changed_mail(listed(again(), NOON + HOUR), nobody, DELETE, NOON) == ([], None)
    chosen, behind = changed_mail(listed(again()), CYS, DELETE, NOON)
    assert ([entry.entry.recipient for entry in chosen], behind) == ([CY], None)


def remembered(written: Mail) -> Any:
    return attribute_value(written.attributes[REMEMBERED])


def test_what_a_mail_remembers_has_a_fixed_form() -> None:
    """Other releases read it."""
    written = again(refusals=2, reply="450 later", host="mx", due_at=NOON, order=HOLD, changed_at=NOON + HOUR)

    assert remembered(written) == {
        "id": str(FIRST),
        "first_seen_at": "2026-08-29T12:00:00+00:00",
        "entries": [
            {"number": 0, "refusals": 0, "reply": "", "host": ""},
            {
                "number": 1,
                "refusals": 2,
                "reply": "450 later",
                "host": "mx",
                "due_at": "2026-08-29T12:00:00+00:00",
                "changed_at": "2026-08-29T13:00:00+00:00",
                "order": "hold",
                "owner": "ann",
                "reason": "asked",
                "at": "2026-08-29T12:00:00+00:00",
            },
        ],
    }


@pytest.mark.parametrize(
    "change", [{"order": "hold"}, {"order": "release", "at": NOON.isoformat()}, {"at": NOON.isoformat()}]
)
def test_an_order_of_another_program_does_not_count(change: Mapping[str, str]) -> None:
    written = mail({REMEMBERED: attribute({"entries": [change, "no entry"]})})

    assert [entry.entry.order for entry in queued_entries(listed(written), NOON)] == [None, None]


@pytest.mark.parametrize(("before", "replies", "after"), [("old", ("", ""), "old"), ("old", ("", "450 no"), "450 no")])
def test_the_error_of_a_mail_is_the_first_reply_of_its_recipients(
    before: str, replies: tuple[str, str], after: str
) -> None:
    bob, cy = entries()
    tried = [replace(bob, reply=replies[0]), replace(cy, reply=replies[1])]

    assert mail_again(replace(mail(), error_message=before), OUTGOING, tried).error_message == after


@pytest.mark.parametrize(("count", "note_bytes"), [(1, NOTE_BYTES_MAX), (1024, NOTES_BYTES_MAX // 1024)])
def test_the_notes_of_recipients_have_equal_parts_of_what_a_mail_may_hold(count: int, note_bytes: int) -> None:
    order = replace(HOLD, owner="o" * 9_999, reason="e" * 9_999)
    entry = replace(entries()[0], reply="r" * 9_999, host="h" * 9_999, order=order)

    noted = remembered(mail_again(mail(), OUTGOING, [entry] * count))["entries"][0]

    sizes = {name: len(noted[name]) for name in ("reply", "reason", "host", "owner")}
    assert sizes == {"reply": note_bytes, "reason": note_bytes, "host": 255, "owner": 255}


def test_notes_of_one_mail_take_a_quarter_of_a_mebibyte_and_hooks_a_quarter_of_that() -> None:
    assert (NOTES_BYTES_MAX, GIVEN_BYTES_MAX) == (2**18, 2**16)


def test_a_host_that_was_remembered_at_greater_length_is_cut() -> None:
    written = mail({REMEMBERED: attribute({"entries": [{"host": "h" * 300}, {}]})})

    assert len(queued_entries(listed(written), NOON)[0].entry.host) == 255


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"a": "b", "": "c"}, {"a"}),
        ({"a": "b" * (GIVEN_BYTES_MAX - 1)}, {"a"}),
        ({"a": "b" * GIVEN_BYTES_MAX, "c": "d"}, {"c"}),
        ({"a": "b" * (GIVEN_BYTES_MAX - 3), "c": "d", "e": "f"}, {"a", "c"}),
        ({"\ud800": "\ud800"}, {"\ufffd"}),
    ],
)
def test_attributes_of_hooks_are_kept_while_there_is_room(given: Mapping[str, str], kept: set[str]) -> None:
    written = mail_again(mail(), OUTGOING, entries(), given)

    assert written.attributes.keys() - {REMEMBERED} == kept


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-08-29T12:00:00Z", NOON),
        ("2026-08-29T14:00:00+02:00", NOON),
        ("2026-08-29T12:00:00", NOON),
        ("at noon", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_an_instant_of_an_attribute_is_in_utc(text: str, instant: datetime | None) -> None:
    expires_at = queued_entries(listed(mail({"expires": attribute(text)})), NOON)[0].mail.expires_at

    assert expires_at == instant
    assert expires_at is None or expires_at.tzinfo is UTC


@pytest.mark.parametrize(("value", "said"), [(-9, -9), (-10, None), (9, 9), (10, None), (False, None), ("1", None)])
def test_a_priority_of_a_sender_is_from_minus_nine_to_nine(value: object, said: int | None) -> None:
    written = mail({"MAIL_PRIORITY": attribute(value)})

    assert queued_entries(listed(written), NOON)[0].mail.priority == said


@pytest.mark.parametrize(
    ("notify", "conditions"),
    [
        (" success , Failure,other", {NoticeCondition.SUCCESS, NoticeCondition.FAILURE}),
        ("NEVER", {NoticeCondition.NEVER}),
        ("", None),
    ],
)
def test_conditions_of_notices_are_read_in_any_case(notify: str, conditions: set[NoticeCondition] | None) -> None:
    written = mail({"dsn-notify": attribute({BOB: notify})})

    assert queued_entries(listed(written), NOON)[0].entry.notify == conditions


@pytest.mark.parametrize(("text", "part"), [("full", ReturnedPart.FULL), ("HDRS", ReturnedPart.HEADER), ("no", None)])
def test_the_part_that_is_returned_is_read_in_any_case(text: str, part: ReturnedPart | None) -> None:
    written = mail({"dsn-ret": attribute(text)})

    assert queued_entries(listed(written), NOON)[0].mail.returned == part


@pytest.mark.parametrize(("address", "original"), [("utf-8;b@x.org", "utf-8;b@x.org"), ("b@x.org", "rfc822;b@x.org")])
def test_an_original_recipient_without_a_type_is_a_mail_address(address: str, original: str) -> None:
    written = mail({"dsn-orcpt": attribute({BOB: address})})

    assert queued_entries(listed(written), NOON)[0].entry.original == original


def test_a_mail_was_first_seen_when_it_was_last_updated_or_enqueued() -> None:
    untouched = replace(mail(), last_updated=None)

    assert queued_entries(listed(replace(mail(), last_updated=NOON - HOUR)), NOON)[0].mail.first_seen_at == NOON - HOUR
    assert queued_entries(listed(untouched), NOON + HOUR)[0].mail.first_seen_at == NOON
