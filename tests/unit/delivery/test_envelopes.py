"""What delivery reads of a mail in a queue, and remembers in its attributes between attempts."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.delivery.mail.entries import (
    DeliveryEntry,
    EntryAction,
    EntryChange,
    EntryId,
    OutgoingMail,
)
from mailmend.delivery.mail.envelopes import (
    REMEMBERED,
    SEVERAL_DOMAINS,
    mail_again,
    outgoing_of,
    plain_attributes,
    sub_queue_of,
    values_of,
)
from mailmend.delivery.mail.notices import NoticeCondition, ReturnedPart
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.admission import admitted
from mailmend.mailqueue.codec import attribute, payload_of
from mailmend.mailqueue.memory import MemoryDequeued, MemoryMailQueue
from mailmend.mailqueue.rules.mails import Mail, MailBlobs, QueuedMail, RecipientHeader
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.texts import noted
from tests.support.clock import VirtualClock

_NO_BLOBS = MailBlobs(BlobId("header"), BlobId("body"))
NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)


def taken(mail: Mail) -> MemoryDequeued:

    async def story() -> MemoryDequeued:
        queue = MemoryMailQueue(QueueName("outgoing"), VirtualClock())
        await queue.enqueue(mail, b"Subject: a\r\n\r\n")
        async with queue.dequeue() as mails:
            return await anext(mails)

    return asyncio.run(story())


def mail_with(**attributes: Any) -> Mail:
    recipients = ("bob@example.org", "cy@example.org")
    texts = {name.replace("_", "-"): attribute(value) for name, value in attributes.items()}
    return Mail("m", recipients, sender="ann@example.org", last_updated=NOON, attributes=texts)


def read(mail: Mail) -> tuple[OutgoingMail, tuple[DeliveryEntry, ...]]:
    return outgoing_of(taken(mail), NOON + timedelta(hours=1))


def test_each_recipient_is_an_entry_with_a_number() -> None:
    """Named by the mail's first id; nothing of it was tried yet."""
    dequeued = taken(mail_with())
    mail, entries = outgoing_of(dequeued, NOON + timedelta(hours=1))
    assert entries == (
        DeliveryEntry(EntryId(dequeued.enqueue_id, 0), "bob@example.org"),
        DeliveryEntry(EntryId(dequeued.enqueue_id, 1), "cy@example.org"),
    )
    assert mail == OutgoingMail(dequeued.enqueue_id, "ann@example.org", NOON)


def test_fields_of_policies_and_an_expiry_come_from_attributes() -> None:
    """As `queue enqueue --attribute jobid=newsletter` puts them."""
    mail, _ = read(mail_with(transportid="customer1", jobid="newsletter", tenantid=12, expires="2026-08-30T08:00:00Z"))
    assert mail.fields == {
        PickupField.TRANSPORT_ID: "customer1",
        PickupField.JOB_ID: "newsletter",
        PickupField.TENANT_ID: "12",
    }
    assert mail.transport == "customer1"
    assert mail.expires_at == datetime(2026, 8, 30, 8, tzinfo=UTC)


def test_an_urgent_mail_is_one_of_more_than_the_normal_priority() -> None:
    """As its attribute says, which James sets too."""
    assert read(Mail("m", ("bob@example.org",), attributes={"MAIL_PRIORITY": attribute(6)}))[0].urgent
    assert not read(Mail("m", ("bob@example.org",), attributes={"MAIL_PRIORITY": attribute(5)}))[0].urgent


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ('{"serializer":"BooleanSerializer","value":true}', True),
        ('{"serializer":"BooleanSerializer","value":false}', False),
        ('{"serializer":"StringSerializer","value":"yes"}', True),
        ('{"serializer":"StringSerializer","value":"false"}', False),
        ('{"serializer":"CollectionSerializer","value":[]}', True),
        ("nonsense", True),
        (None, False),
    ],
)
def test_a_mail_requires_tls_unless_its_attribute_says_that_it_does_not(text: str | None, required: bool) -> None:
    """What cannot be read is no reason to send it in the clear."""
    attributes = {} if text is None else {"REQUIRETLS": text}
    mail = QueuedMail(EnqueueId(UUID(int=1)), Mail("m", ("bob@example.org",), attributes=attributes), _NO_BLOBS)
    assert outgoing_of(SimpleNamespace(mail=mail.mail, enqueue_id=mail.enqueue_id), NOON)[0].requires_tls is required


@pytest.mark.parametrize(("value", "said"), [(9, 9), (-9, -9), (10, None), (True, None), ("3", None)])
def test_the_priority_of_a_mail_is_what_james_says_of_it(value: Any, said: int | None) -> None:
    assert read(mail_with(MAIL_PRIORITY=value))[0].priority is None  # a hyphen: another attribute
    attributes = {"MAIL_PRIORITY": attribute(value)}
    assert read(Mail("m", ("bob@example.org",), last_updated=NOON, attributes=attributes))[0].priority == said


def test_the_wishes_that_james_keeps_of_a_sender_are_read() -> None:
    """NOTIFY and ORCPT by recipient, RET and ENVID of the mail; ENVID is xtext there."""
    mail, (bob, cy) = read(
        mail_with(
            dsn_envid="QQ+2B314159",
            dsn_ret="HDRS",
            dsn_notify={"bob@example.org": "SUCCESS,FAILURE"},
            dsn_orcpt={"cy@example.org": "cyrus@example.org"},
        )
    )
    assert (mail.envelope_id, mail.returned) == ("QQ+314159", ReturnedPart.HEADER)
    assert (bob.notify, bob.original) == (frozenset({NoticeCondition.SUCCESS, NoticeCondition.FAILURE}), "")
    assert (cy.notify, cy.original) == (None, "rfc822;cyrus@example.org")


@given(st.integers(0, 50), st.text(max_size=20), st.integers(0, 5))
def test_what_is_remembered_of_an_entry_comes_back_with_it(refusals: int, reply: str, number: int) -> None:
    """Its number, its refusals, the last reply; and of the mail its first id, and when it was first seen."""
    reply = noted(reply)
    first = OutgoingMail(read(mail_with())[0].id, "ann@example.org", NOON - timedelta(days=1))
    entry = DeliveryEntry(EntryId(first.id, number), "cy@example.org", refusals=refusals, reply=reply, host="mx")
    mail, entries = read(mail_again(mail_with(), first, [entry]))
    assert (mail.id, mail.first_seen_at) == (first.id, first.first_seen_at)
    assert entries == (entry,)


def test_a_mail_that_is_put_again_keeps_what_else_it_had() -> None:
    """Sender, state, other attributes and the headers of those recipients that stay."""
    before = mail_with(jobid="newsletter")
    headers = tuple(RecipientHeader(one, "X-For", one) for one in before.recipients)
    before = Mail(before.name, before.recipients, before.sender, "relay", None, recipient_headers=headers)
    outgoing, (_, cy) = read(before)
    again = mail_again(before, outgoing, [cy])
    assert (again.name, again.sender, again.state, again.recipients) == ("m", before.sender, "relay", (cy.recipient,))
    assert again.recipient_headers == headers[1:]


@pytest.mark.parametrize(
    "attributes",
    [
        {REMEMBERED: attribute("nonsense")},
        {REMEMBERED: attribute({"id": "none", "first_seen_at": "yesterday", "entries": 3})},
        {REMEMBERED: attribute({"entries": [1, 2]})},
        {REMEMBERED: attribute({"entries": [{"number": -1, "refusals": "many"}, {}]})},
        {"expires": attribute("soon"), "dsn-ret": attribute("SOME"), "dsn-notify": attribute(["bob"])},
        {"dsn-notify": attribute({"bob@example.org": "SOMETIMES"})},
        {"transportid": attribute(True), "jobid": attribute([])},
    ],
)
def test_attributes_that_cannot_be_read_count_as_not_there(attributes: Mapping[str, str]) -> None:
    """A mail is delivered all the same."""
    mail = Mail("m", ("bob@example.org", "cy@example.org"), "ann@example.org", last_updated=NOON, attributes=attributes)
    outgoing, entries = read(mail)
    assert (outgoing.first_seen_at, outgoing.expires_at, outgoing.returned, outgoing.fields) == (NOON, None, None, {})
    assert [(entry.id.number, entry.refusals) for entry in entries] == [(0, 0), (1, 0)]
    assert [(entry.notify, entry.original) for entry in entries] == [(None, ""), (None, "")]


def test_the_entries_of_a_mail_whose_recipients_somebody_changed_are_counted_anew() -> None:
    """What is remembered is of others."""
    outgoing, (bob, cy) = read(mail_with())
    again = mail_again(mail_with(), outgoing, [DeliveryEntry(EntryId(UUID(int=1), 9), cy.recipient, refusals=4)])  # type: ignore[arg-type]
    changed = Mail("m", (bob.recipient, cy.recipient), attributes=again.attributes)
    assert [(one.id.number, one.refusals) for one in read(changed)[1]] == [(0, 0), (1, 0)]


@given(st.integers(1, 300), st.text(max_size=5_000), st.text(max_size=300), st.dictionaries(st.text(), st.text()))
@example(1_000, "\x01" * 5_000, "\ud800", {"\ud800": "\x00" * 70_000, "kept": "yes", "": "no"})
def test_no_note_keeps_a_mail_from_its_queue(count: int, reply: str, reason: str, given: Mapping[str, str]) -> None:
    """Whatever a server, a hook or a person says: the message stays well below the largest one, 16 MiB."""
    first = OutgoingMail(EnqueueId(UUID(int=1)), "ann@example.org", NOON)
    order = EntryChange(action=EntryAction.HOLD, at=NOON, owner=reason, reason=reason)
    recipients = [f"r{number}@example.org" for number in range(count)]
    entries = [
        DeliveryEntry(EntryId(first.id, number), one, reply=reply, host=reply, order=order)
        for number, one in enumerate(recipients)
    ]
    before = replace(mail_with(), recipients=tuple(recipients))

    again = mail_again(before, first, entries, given)

    body = payload_of(QueuedMail(first.id, admitted(again, None), MailBlobs(BlobId("h"), BlobId("b"))))
    assert len(body) < 4 * 2**20
    assert again.recipients == before.recipients
    assert [one.recipient for one in read(again)[1]] == recipients


def test_attributes_with_halves_of_surrogate_pairs_are_read_as_replacements() -> None:
    """JSON that James takes may hold them; no store does."""
    texts = {"jobid": '{"serializer":"StringSerializer","value":"a\\ud800b"}'}
    mail = replace(mail_with(), attributes=texts)
    assert read(mail)[0].fields == {PickupField.JOB_ID: "a\ufffdb"}
    assert plain_attributes(mail) == {"jobid": "a\ufffdb"}


WORDS = st.text("ab =", max_size=5)


@given(WORDS, WORDS, WORDS, st.sampled_from([("a.example",), ("a.example", "a.example"), ("a.example", "b.example")]))
def test_the_name_of_a_sub_queue_tells_the_values_of_its_mails(
    tenant: str, job: str, grouping: str, domains: tuple[str, ...]
) -> None:
    """The domain too, where all recipients have one."""
    fields = {PickupField.TENANT_ID: tenant, PickupField.JOB_ID: job, PickupField.GROUPING: grouping}
    mail = mail_with(**{named.value: text for named, text in fields.items()})
    mail = replace(mail, recipients=tuple(f"bob@{domain}" for domain in domains))
    name = sub_queue_of(QueuedMail(EnqueueId(UUID(int=1)), mail, _NO_BLOBS))
    domain = SEVERAL_DOMAINS
    if len(set(domains)) == 1:
        domain = domains[0]
    known = {named: text for named, text in values_of(name).items() if text}
    assert known == {PickupField.RECIPIENT_DOMAIN: domain} | {named: text for named, text in fields.items() if text}
