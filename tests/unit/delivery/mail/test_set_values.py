"""Values of a delayed mail that a command sets: what the mail is behind it, and how that is undone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.entries import EntryAction, EntryChange, EntryFilter
from mailmend.delivery.mail.envelopes import (
    GIVEN_BYTES_MAX,
    REMEMBERED,
    changed_mail,
    mail_again,
    queued_entries,
    values_note_of,
)
from mailmend.delivery.mail.set_values import (
    NAMES,
    MailBehindSet,
    ValueChange,
    entries_without,
    mail_with_values,
    normal_value,
    value_name,
)
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.codec import attribute, attribute_value, priority_of
from mailmend.mailqueue.rules.mails import Listed, Mail, MailBlobs, QueuedMail, RecipientHeader
from mailmend.model.errors import WrongUse
from mailmend.model.ids import BlobId, EnqueueId

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ID = EnqueueId(UUID(int=2))
BOB, CY, DI = "bob@example.org", "cy@example.com", "di@example.net"
ALL = EntryFilter()
BOB_ALONE = EntryFilter(ids=frozenset({f"{ID}:0"}))


def delayed(recipients: tuple[str, ...] = (BOB, CY), **attributes: Any) -> Listed:
    written = {name.replace("dsn_", "dsn-"): attribute(value) for name, value in attributes.items()}
    mail = Mail("m", recipients, sender="ann@example.org", last_updated=NOON, attributes=written)
    return Listed.entering(QueuedMail(ID, mail, MailBlobs(BlobId("header"), BlobId("body"))), NOON, NOON + HOUR)


def changing(number: int = 1, undoes: int = 0, *, whole_mails: bool = False, **values: str | None) -> ValueChange:
    undone = UUID(int=undoes) if undoes else None
    return ValueChange(
        id=UUID(int=number),
        at=NOON,
        owner="ann",
        reason="asked",
        values=values,
        whole_mails=whole_mails,
        undoes=undone,
    )


def behind(listed: Listed, found: MailBehindSet) -> Listed:
    """The mail as its queue lists it behind a change."""
    assert found.mail is not None
    return replace(listed, queued=replace(listed.queued, mail=found.mail.mail), due_at=found.mail.due_at)


def made(listed: Listed, change: ValueChange, where: EntryFilter = ALL) -> Listed:
    return behind(listed, mail_with_values(listed, where, change, NOON))


def own_attributes(listed: Listed) -> Mapping[str, str]:
    """The attributes of a mail without what deliveries remember of it."""
    return {name: text for name, text in listed.queued.mail.attributes.items() if name != REMEMBERED}


def test_what_a_mail_is_counted_by_and_its_priority_are_set_and_removed() -> None:
    """In the form that deliveries read; the time of the next attempt stays."""
    was = delayed(transportid="news", grouping="old", MAIL_PRIORITY=3)
    change = changing(transport="bulk", tenant="acme", grouping=None, priority="9")
    found = mail_with_values(was, ALL, change, NOON)
    now = behind(was, found)
    entry = queued_entries(now, NOON)[0]
    assert entry.mail.fields == {PickupField.TRANSPORT_ID: "bulk", PickupField.TENANT_ID: "acme"}
    assert (priority_of(now.queued.mail), entry.mail.urgent, now.due_at) == (9, True, NOON + HOUR)
    assert [dict(one.before) for one in found.entries] == [
        {"transport": "news", "tenant": None, "grouping": "old", "priority": "3"}
    ] * 2
    assert dict(found.entries[0].behind) == {"transport": "bulk", "tenant": "acme", "grouping": None, "priority": "9"}


def test_the_same_again_changes_nothing() -> None:
    was = delayed(transportid="news")
    now = made(was, changing(transport="bulk"))
    assert mail_with_values(now, ALL, changing(2, transport="bulk"), NOON) == MailBehindSet()
    assert mail_with_values(was, ALL, changing(transport="news", job=None), NOON) == MailBehindSet()


def test_a_value_of_a_mail_is_set_where_all_of_its_recipients_are_chosen() -> None:
    """Or where whole mails are meant; any other mail is left, and it is said why."""
    was = delayed()
    left = mail_with_values(was, BOB_ALONE, changing(transport="bulk"), NOON)
    assert (left.mail, left.entries, left.why_left) == (None, (), "1 of its 2 recipients are not chosen")
    found = mail_with_values(was, BOB_ALONE, changing(whole_mails=True, transport="bulk"), NOON)
    assert [one.queued.entry.recipient for one in found.entries] == [BOB, CY]
    assert mail_with_values(was, EntryFilter(ids=frozenset({"other"})), changing(job="x"), NOON) == MailBehindSet()


def test_a_recipient_is_set_with_what_is_kept_under_its_address() -> None:
    """Headers of its own, and what the sender wants to know of it; others keep theirs."""
    was = delayed(dsn_notify={BOB: "NEVER", CY: "DELAY"}, dsn_orcpt={BOB: "rfc822;robert@example.org"})
    headers = (RecipientHeader(BOB, "X-For", "bob"), RecipientHeader(CY, "X-For", "cy"))
    was = replace(was, queued=replace(was.queued, mail=replace(was.queued.mail, recipient_headers=headers)))
    now = made(was, changing(recipient=DI), BOB_ALONE)
    di, cy = queued_entries(now, NOON)
    assert (di.entry.recipient, di.entry.original, str(di.entry.id)) == (DI, "rfc822;robert@example.org", f"{ID}:0")
    bob = queued_entries(was, NOON)[0]
    assert (di.entry.notify, cy.entry.recipient, bob.entry.notify is None) == (bob.entry.notify, CY, False)
    assert attribute_value(own_attributes(now)["dsn-notify"]) == {DI: "NEVER", CY: "DELAY"}
    assert [(one.recipient, one.value) for one in now.queued.mail.recipient_headers] == [(DI, "bob"), (CY, "cy")]
    back = made(now, changing(2, undoes=1))
    assert (back.queued.mail.recipients, own_attributes(back)) == ((BOB, CY), own_attributes(was))


@pytest.mark.parametrize("where", [ALL, BOB_ALONE])
def test_two_recipients_of_a_mail_never_become_one(where: EntryFilter) -> None:
    """What a mail keeps of its recipients is kept by their addresses."""
    found = mail_with_values(delayed(), where, changing(recipient="CY@example.com"), NOON)
    assert (found.mail, found.why_left) == (None, "two of its recipients would have the same address")


def test_an_expiry_before_the_next_attempt_is_the_time_of_that_attempt() -> None:
    """A held recipient has no such time: it stays held."""
    hold = EntryChange(action=EntryAction.HOLD, at=NOON, owner="ann")
    _, held = changed_mail(delayed(), BOB_ALONE, hold, NOON)
    assert held is not None
    was = replace(delayed(), queued=replace(delayed().queued, mail=held.mail), due_at=held.due_at)
    now = made(was, changing(expires="2026-08-29T12:30:00Z"))
    bob, cy = queued_entries(now, NOON)
    assert (bob.entry.is_held, bob.entry.due_at, cy.due_at) == (True, NOON + timedelta(days=300), NOON + HOUR / 2)
    assert (cy.mail.expires_at, now.due_at) == (NOON + HOUR / 2, NOON + HOUR / 2)


def test_a_mail_remembers_who_changed_it_over_its_attempts() -> None:
    now = made(delayed(transportid="news"), changing(7, transport="bulk"))
    bob, cy = queued_entries(now, NOON)
    again = mail_again(now.queued.mail, bob.mail, [bob.entry, cy.entry], {"x": "y"})
    note = values_note_of(again)
    assert note is not None
    assert (note.change, note.at, note.owner, note.reason) == (UUID(int=7), NOON, "ann", "asked")
    assert note.before == {"transportid": attribute("news")}
    assert bob.values_note == note


@pytest.mark.parametrize("written", ["x", {"change": "x"}, {"change": str(UUID(int=1)), "at": "x"}, {"at": 5}])
def test_a_note_that_cannot_be_read_counts_as_not_there(written: object) -> None:
    mail = replace(delayed().queued.mail, attributes={REMEMBERED: attribute({"values": written})})
    assert values_note_of(mail) is None


def test_an_undo_is_of_the_last_change_alone() -> None:
    """What another command has set since stays."""
    now = made(delayed(), changing(1, transport="bulk"))
    later = made(now, changing(2, job="spring"))
    assert mail_with_values(later, ALL, changing(3, undoes=1), NOON) == MailBehindSet()
    assert own_attributes(made(later, changing(3, undoes=2))) == own_attributes(now)


def test_what_is_too_large_to_be_remembered_is_not_changed() -> None:
    was = delayed(x="x" * GIVEN_BYTES_MAX)
    change = replace(changing(), values={"attribute.x": "y"})
    assert mail_with_values(was, ALL, change, NOON).why_left == "what it has now is too large to be remembered"


def test_an_undo_gives_back_an_expiry_that_nothing_can_read() -> None:
    """As the mail came with it; it counts as not there."""
    was = delayed(expires="soon")
    now = made(was, changing(expires="2026-09-01T00:00:00Z"))
    back = made(now, changing(2, undoes=1))
    assert (own_attributes(back), back.due_at) == (own_attributes(was), was.due_at)


def test_an_undo_gives_no_mail_up() -> None:
    """Given an expiry that was put off, and is over by now: the mail is left as it is."""
    now = made(delayed(expires="2026-08-29T12:10:00Z"), changing(expires="2026-09-01T00:00:00Z"))
    undo = replace(changing(2, undoes=1), at=NOON + HOUR)
    found = mail_with_values(now, ALL, undo, NOON + HOUR)
    assert (found.mail, found.why_left) == (None, "its expiry would be over: 2026-08-29T12:10:00Z")


@pytest.mark.parametrize("of_bob", [{BOB: "SUCCESS"}, {}])
def test_wishes_for_a_recipient_that_has_left_are_of_no_other(of_bob: dict[str, str]) -> None:
    """Given a mail that was delivered to an address already, and gets it for another recipient."""
    now = made(delayed((BOB,), dsn_notify={**of_bob, DI: "NEVER"}), changing(recipient=DI))
    bob = queued_entries(delayed((BOB,), dsn_notify=of_bob), NOON)[0]
    assert queued_entries(now, NOON)[0].entry.notify == bob.entry.notify


def test_entries_that_lack_values_are_those_that_a_change_is_meant_for() -> None:
    """An active one counts where it would change, and no longer where it has the values."""
    was = delayed(transportid="bulk")
    change = changing(job="spring", recipient=DI)
    assert [one.entry.recipient for one in entries_without(was, BOB_ALONE, change, NOON)] == [BOB]
    assert not entries_without(was, ALL, changing(transport="bulk", job=None), NOON)
    assert not entries_without(was, ALL, changing(2, undoes=1), NOON)
    assert not entries_without(was, EntryFilter(ids=frozenset({"other"})), change, NOON)
    now = made(was, changing(recipient=DI), BOB_ALONE)
    active = replace(now, due_at=None)
    assert not entries_without(active, BOB_ALONE, changing(2, recipient=DI), NOON)
    assert [one.entry.recipient for one in entries_without(active, ALL, changing(2, undoes=1), NOON)] == [DI]


TEXTS = st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=1, max_size=5)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "transport": st.none() | TEXTS,
        "tenant": st.none() | TEXTS,
        "priority": st.none() | st.sampled_from("0123456789"),
        "expires": st.none() | st.just("2026-09-01T00:00:00Z"),
        "attribute.x": st.none() | TEXTS,
        "recipient": st.just(DI),
    },
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["transportid", "tenantid", "x", "y"]), TEXTS | st.integers(0, 9))


@given(VALUES, ATTRIBUTES)
def test_an_undo_gives_back_all_that_was_there(values: dict[str, str | None], attributes: dict[str, Any]) -> None:
    """Attributes to the byte, and recipients."""
    was = delayed((BOB,), **attributes)
    found = mail_with_values(was, ALL, replace(changing(), values=values), NOON)
    if found.mail is None:
        assert not found.why_left
        return
    now = behind(was, found)
    assert (own_attributes(now), now.queued.mail.recipients) != (own_attributes(was), (BOB,))
    back = made(now, changing(2, undoes=1))
    assert (own_attributes(back), back.queued.mail.recipients) == (own_attributes(was), (BOB,))
    assert values_note_of(back.queued.mail) is not None


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("transport", "bulk mail", "bulk mail"),
        ("priority", "05", "5"),
        ("expires", "2d", "2026-08-31T12:00:00Z"),
        ("expires", "2026-08-30T00:00:00+02:00", "2026-08-29T22:00:00Z"),
        ("recipient", "Bob@Example.org", "Bob@example.org"),
        ("recipient", "bob@büro.example", "bob@xn--bro-hoa.example"),
        ("attribute.x", "", ""),
    ],
)
def test_a_value_is_kept_in_one_form(name: str, text: str, kept: str) -> None:
    assert normal_value(value_name(name), text, NOON) == kept


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("transport", ""),
        ("transport", " bulk"),
        ("tenant", "x\n"),
        ("priority", "10"),
        ("priority", "-1"),
        ("priority", "high"),
        ("expires", "soon"),
        ("expires", "2026-09-01T00:00:00"),
        ("expires", "2026-08-29T11:00:00Z"),
        ("expires", "400d"),
        ("recipient", "bob"),
        ("recipient", "<>"),
        ("recipient", "büro@example.org"),
        ("attribute.x", "x" * 1001),
    ],
)
def test_a_value_that_no_mail_can_have_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(WrongUse, match=f"^{name}: "):
        normal_value(name, text, NOON)


@pytest.mark.parametrize(
    "name",
    ["transports", "", "attribute.", "attribute.transportid", "attribute.mailmend.delivery", "attribute.dsn-notify"],
)
def test_a_name_that_cannot_be_set_is_refused_with_what_can_be(name: str) -> None:
    with pytest.raises(WrongUse) as refused:
        value_name(name)
    assert any(known in refused.value.mend for known in NAMES)
