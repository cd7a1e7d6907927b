"""Which recipients conditions choose."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from model.delivery.entries import DeliveryEntry, EntryId, EntryState, OutgoingMail
from model.delivery.queued import EntryField, EntryFilter, QueuedEntry
from model.ids import EnqueueId
from model.pickup.policy import PickupField

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


def test_the_null_sender_is_named_as_in_smtp() -> None:
    """It has no domain."""
    assert EntryFilter(**texts(EntryField.SENDER, "<>")).matches(NULL)
    assert EntryField.SENDER_DOMAIN.of(NULL) == ""
