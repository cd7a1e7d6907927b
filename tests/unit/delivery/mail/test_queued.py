"""Which recipients conditions choose, and what commands make of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mailmend.delivery.mail.entries import (
    HELD_FOR,
    DeliveryEntry,
    EntryAction,
    EntryChange,
    EntryField,
    EntryFilter,
    EntryId,
    EntryState,
    OutgoingMail,
    QueuedEntry,
)
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.errors import WrongUse
from mailmend.model.ids import EnqueueId

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
FIRST, NOW = EnqueueId(UUID(int=7)), EnqueueId(UUID(int=8))
ONE = QueuedEntry(
    DeliveryEntry(EntryId(FIRST, 2), "Bob@Mx.Example.ORG", refusals=3, reply="421 4.3.2 busy", host="mx1.example.org"),
    OutgoingMail(
        FIRST,
        "Ann@Sender.example",
        NOON,
        fields={PickupField.TRANSPORT_ID: "Bulk", PickupField.JOB_ID: "j1", PickupField.TENANT_ID: "acme"},
    ),
    NOW,
    EntryState.DEFER,
    attributes={"campaign": "spring"},
)
NULL = QueuedEntry(
    DeliveryEntry(EntryId(FIRST, 0), "bob@x.example"), OutgoingMail(FIRST, None, NOON), NOW, EntryState.HOLD
)


def texts(named: EntryField, *some: str) -> dict[str, Any]:
    return {"texts": {named: some}}


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({}, True),
        ({"ids": frozenset({str(FIRST)})}, True),
        ({"ids": frozenset({str(NOW)})}, True),
        ({"ids": frozenset({f"{FIRST}:2", "other"})}, True),
        ({"ids": frozenset({f"{FIRST}:1"})}, False),
        (texts(EntryField.TRANSPORT, "Bulk"), True),
        (texts(EntryField.TRANSPORT, "bulk"), False),
        (texts(EntryField.TRANSPORT, "other", "B*"), True),
        (texts(EntryField.JOB, "j1"), True),
        (texts(EntryField.TENANT, "a*e"), True),
        (texts(EntryField.GROUPING, ""), True),
        (texts(EntryField.SENDER, "ann@sender.EXAMPLE"), True),
        (texts(EntryField.SENDER_DOMAIN, "sender.example"), True),
        (texts(EntryField.RECIPIENT, "bob@*"), True),
        (texts(EntryField.DOMAIN, "*.example.org"), True),
        (texts(EntryField.DOMAIN, "example.org"), False),
        (texts(EntryField.REMOTE_MX, "MX1.*"), True),
        (texts(EntryField.REPLY, "421 *"), True),
        (texts(EntryField.REPLY, "450 *"), False),
        ({"texts": {EntryField.JOB: ("j1",), EntryField.TENANT: ("other",)}}, False),
        ({"attributes": {"campaign": ("autumn", "spr*")}}, True),
        ({"attributes": {"campaign": ("autumn",)}}, False),
        ({"attributes": {"other": ("*",)}}, False),
        ({"states": frozenset({EntryState.DEFER, EntryState.HOLD})}, True),
        ({"states": frozenset({EntryState.ACTIVE})}, False),
        ({"refusals_min": 3, "refusals_max": 3}, True),
        ({"refusals_min": 4}, False),
        ({"refusals_max": 2}, False),
        ({"older_than_at": NOON + timedelta(seconds=1)}, True),
        ({"older_than_at": NOON}, False),
        ({"newer_than_at": NOON}, True),
        ({"newer_than_at": NOON + timedelta(seconds=1)}, False),
    ],
)
def test_conditions_of_a_kind_are_alternatives_and_kinds_add_up(conditions: dict[str, Any], holds: bool) -> None:
    """Addresses, domains, servers and replies in any case; names of ours as they are written."""
    assert EntryFilter(**conditions).matches(ONE) is holds


def test_a_text_of_many_stars_has_an_answer() -> None:
    """One came from a token that may only read, and stopped the server."""
    many = EntryFilter(texts={EntryField.RECIPIENT: ("*o" * 400 + "*!",)})

    assert not many.matches(replace(ONE, entry=replace(ONE.entry, recipient="o" * 500 + "@x.example")))


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(WrongUse, match="too long to be looked for"):
        EntryFilter(attributes={"via": ("*" * 1_001,)})


@pytest.mark.parametrize(
    ("named", "text", "wanted"),
    [
        (EntryField.DOMAIN, "Example.ORG", "example.org"),
        (EntryField.SENDER_DOMAIN, "*.Example.ORG", "*.example.org"),
        (EntryField.REMOTE_MX, "MX1.Example.ORG", "mx1.example.org"),
        (EntryField.REMOTE_MX, "192.0.2.1", "192.0.2.1"),
        (EntryField.SENDER, "<>", "<>"),
        (EntryField.RECIPIENT, "*@Bücher.example", "*@xn--bcher-kva.example"),
        (EntryField.REPLY, " 421 busy ", " 421 busy "),
        (EntryField.JOB, "Job 1", "Job 1"),
    ],
)
def test_what_is_looked_for_takes_the_form_in_which_it_is_compared(named: EntryField, text: str, wanted: str) -> None:
    assert named.wanted(text) == wanted


@pytest.mark.parametrize(
    ("named", "text", "what"),
    [
        (EntryField.DOMAIN, ".example.org", "domain"),
        (EntryField.SENDER_DOMAIN, "ann@example.org", "domain"),
        (EntryField.REMOTE_MX, "not a name", "server"),
        (EntryField.SENDER, "example.org", "mailbox"),
        (EntryField.RECIPIENT, "example.org", "mailbox"),
        (EntryField.JOB, " j1", "job"),
    ],
)
def test_what_no_entry_can_have_is_refused(named: EntryField, text: str, what: str) -> None:
    with pytest.raises(WrongUse, match=what):
        named.wanted(text)


def test_only_names_of_ours_have_cases() -> None:
    assert {named for named in EntryField if named.has_cases} == {
        EntryField.TRANSPORT,
        EntryField.JOB,
        EntryField.TENANT,
        EntryField.GROUPING,
    }


def test_the_null_sender_is_named_as_in_smtp() -> None:
    """It has no domain."""
    assert EntryFilter(**texts(EntryField.SENDER, "<>")).matches(NULL)
    assert EntryField.SENDER_DOMAIN.of(NULL) == ""


@pytest.mark.parametrize(
    ("recipient", "domain"),
    [('"a@b"@Example.ORG', "example.org"), ("bob@EXAMPLE.org", "example.org"), ("postmaster", "postmaster")],
)
def test_the_domain_of_an_address_is_what_stands_behind_its_last_at_sign(recipient: str, domain: str) -> None:
    one = replace(ONE, entry=replace(ONE.entry, recipient=recipient), mail=replace(ONE.mail, sender=recipient))

    assert (EntryField.DOMAIN.of(one), EntryField.SENDER_DOMAIN.of(one)) == (domain, domain)


LATER, LATEST = NOON + timedelta(hours=1), NOON + timedelta(hours=2)


def change(action: EntryAction, until: datetime | None = None) -> EntryChange:
    return EntryChange(action=action, at=NOON, owner="eve", reason="because", until=until)


def made(action: EntryAction, one: QueuedEntry, until: datetime | None = None) -> dict[str, Any]:
    """The order and the due time behind a command; {} where it changes nothing."""
    behind = change(action, until).of(one.entry, one.due_at, one.mail.expires_at)
    assert behind is not None
    if behind == one.entry:
        return {}
    found: dict[str, Any] = {"order": behind.order, "due_at": behind.due_at}
    assert behind == replace(one.entry, **found, changed_at=NOON)
    return found


def with_order(action: EntryAction) -> QueuedEntry:
    before = EntryChange(action=action, at=NOON - timedelta(days=1), owner="ann", reason="before")
    return replace(ONE, entry=replace(ONE.entry, order=before))


DUE_LATER = replace(ONE, due_at=LATER)
EXPIRES = replace(ONE, mail=replace(ONE.mail, expires_at=LATER))


@pytest.mark.parametrize(
    ("action", "one", "until", "found"),
    [
        (EntryAction.HOLD, ONE, None, {"order": change(EntryAction.HOLD), "due_at": NOON + HELD_FOR}),
        (
            EntryAction.HOLD,
            with_order(EntryAction.BOUNCE),
            None,
            {"order": change(EntryAction.HOLD), "due_at": NOON + HELD_FOR},
        ),
        (EntryAction.HOLD, with_order(EntryAction.HOLD), None, {}),
        (EntryAction.BOUNCE, ONE, None, {"order": change(EntryAction.BOUNCE), "due_at": NOON}),
        (
            EntryAction.BOUNCE,
            with_order(EntryAction.HOLD),
            None,
            {"order": change(EntryAction.BOUNCE), "due_at": NOON},
        ),
        (EntryAction.BOUNCE, with_order(EntryAction.BOUNCE), None, {}),
        (EntryAction.RELEASE, with_order(EntryAction.HOLD), None, {"order": None, "due_at": NOON}),
        (EntryAction.RELEASE, with_order(EntryAction.BOUNCE), None, {}),
        (EntryAction.RELEASE, DUE_LATER, None, {}),
        (EntryAction.RETRY, DUE_LATER, None, {"order": None, "due_at": NOON}),
        (EntryAction.RETRY, replace(ONE, due_at=NOON), None, {}),
        (EntryAction.RETRY, ONE, None, {}),
        (EntryAction.RETRY, replace(with_order(EntryAction.HOLD), due_at=LATER), None, {}),
        (EntryAction.DEFER, ONE, LATEST, {"order": None, "due_at": LATEST}),
        (EntryAction.DEFER, DUE_LATER, LATEST, {"order": None, "due_at": LATEST}),
        (EntryAction.DEFER, DUE_LATER, LATER, {}),
        (EntryAction.DEFER, EXPIRES, LATEST, {"order": None, "due_at": LATER}),
        (EntryAction.DEFER, ONE, None, {}),
        (EntryAction.DEFER, with_order(EntryAction.HOLD), LATEST, {}),
    ],
)
def test_a_command_changes_the_order_and_when_a_recipient_is_due_and_nothing_else(
    action: EntryAction, one: QueuedEntry, until: datetime | None, found: dict[str, Any]
) -> None:
    """It is written down with it when it was given."""
    assert made(action, one, until) == found


def test_a_recipient_is_gone_behind_a_delete_alone() -> None:
    assert [one for one in EntryAction if change(one).of(ONE.entry, None, None) is None] == [EntryAction.DELETE]


@pytest.mark.parametrize(
    ("changed_at", "until", "is_void"),
    [
        (None, None, False),
        (NOON - timedelta(seconds=1), None, False),
        (NOON, None, True),
        (LATER, None, True),
        (None, LATER + timedelta(seconds=1), False),
        (None, LATER, True),
        (LATER, LATEST, True),
    ],
)
def test_a_command_is_too_late_behind_a_later_one_or_once_its_time_is_over(
    changed_at: datetime | None, until: datetime | None, is_void: bool
) -> None:
    entry = replace(ONE.entry, changed_at=changed_at)
    assert change(EntryAction.DEFER, until).is_void(entry, LATER) is is_void


def test_a_bounce_and_a_deletion_end_a_recipient() -> None:
    assert {action for action in EntryAction if action.is_final} == {EntryAction.BOUNCE, EntryAction.DELETE}


def test_a_command_of_a_late_clock_is_later_than_the_change_before_it() -> None:
    """Given an entry that was changed by a host whose clock is an hour ahead."""
    ahead = NOON + timedelta(hours=1)
    entry = replace(ONE.entry, changed_at=ahead)

    held = change(EntryAction.HOLD).of(entry, None, None)
    follows = change(EntryAction.HOLD).after(entry)

    assert change(EntryAction.HOLD).is_void(entry, NOON)
    assert not follows.is_void(entry, NOON)
    assert held is not None
    assert held.changed_at == follows.at == ahead + timedelta(milliseconds=1)
    assert change(EntryAction.HOLD).after(ONE.entry) == change(EntryAction.HOLD)
