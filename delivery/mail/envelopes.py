"""A mail of a queue as its delivery sees it, and back: what is remembered between attempts is in its attributes.

Attributes that others set: `transportid`, `jobid`, `tenantid` and `grouping`, which policies count by; `expires`, an
instant like 2026-05-01T08:00:00Z; and those that James keeps of the sender's wishes (`dsn-envid`, `dsn-ret`,
`dsn-notify`, `dsn-orcpt`, `REQUIRETLS`, `MAIL_PRIORITY`): docs/mail-attributes.md. Of ours `mailmend.bytes` is the
mail's size, and `mailmend.delivery` holds the rest. What cannot be read counts as not there: a mail is delivered all
the same. What is remembered is bounded: a note of a server, a hook or a person never makes a mail too large for its
broker or its tables.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from mailmend.delivery.mail.attempts import AttemptOutcome, JournalledAttempt
from mailmend.delivery.mail.entries import (
    DeliveryEntry,
    EntryAction,
    EntryChange,
    EntryFilter,
    EntryId,
    EntryState,
    OutgoingMail,
    QueuedEntry,
    ValuesNote,
)
from mailmend.delivery.mail.notices import NoticeCondition, ReturnedPart
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.quotas import CountedMail
from mailmend.mailqueue.codec import attribute, attribute_value, priority_of
from mailmend.mailqueue.queue import ChangedMail, Dequeued
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.mails import (
    PRIORITY_ATTRIBUTE,
    PRIORITY_NORMAL,
    Listed,
    Mail,
    QueuedMail,
)
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.ids import EnqueueId
from mailmend.model.texts import NOTE_BYTES_MAX, noted, wellformed
from mailmend.model.values import in_utc

_LOG: Final = logging.getLogger("mailmend.delivery")

REMEMBERED: Final = "mailmend.delivery"
BYTES: Final = "mailmend.bytes"
EXPIRES: Final = "expires"
_VALUES: Final = "values"
REQUIRE_TLS: Final = "REQUIRETLS"
"""James sets it where a client asked for it. Any value but false, the flag or the word, means that TLS is required."""

_FALSE: Final = (False, "false")
_PRIORITIES_SAID: Final = range(-9, 10)
FIELDS: Final = (PickupField.TRANSPORT_ID, PickupField.JOB_ID, PickupField.TENANT_ID, PickupField.GROUPING)

SEVERAL_DOMAINS: Final = "several domains"
"""In place of the domain: a sub-queue of mails whose recipients have more than one."""

_OF_A_NAME: Final = re.compile(f" ({'|'.join(field.value for field in FIELDS)})=")

NOTES_BYTES_MAX: Final = 262_144
"""The largest number of bytes of all notes of one mail: its recipients have equal parts of it.

The largest message of RabbitMQ and the largest row of Cassandra have 16 MiB by default."""

GIVEN_BYTES_MAX: Final = 65_536
"""The largest number of bytes of all attributes that hooks give one mail; what is beyond that is not kept."""

_HOST_BYTES_MAX: Final = 255
_NO_MAIL: Final = EnqueueId(UUID(int=0))
"""The id of a mail that has none yet: its notes name no id, so it has the id under which its queue knows it."""

_XTEXT: Final = re.compile(r"\+([0-9A-F]{2})")


def outgoing_of(dequeued: Dequeued, now: datetime) -> tuple[OutgoingMail, tuple[DeliveryEntry, ...]]:
    """The mail, and an entry for each of its recipients."""
    return _outgoing(dequeued.mail, dequeued.enqueue_id, now)


def queued_entries(listed: Listed, now: datetime) -> tuple[QueuedEntry, ...]:
    """The entries of a mail as its queue lists it."""
    mail = listed.queued.mail
    enqueue_id = listed.queued.enqueue_id
    outgoing, entries = _outgoing(mail, enqueue_id, listed.enqueued_at)
    attributes = plain_attributes(mail)
    note = values_note_of(mail)
    found = []
    for entry in entries:
        due_at = max((at for at in (listed.due_at, entry.due_at) if at), default=now)
        deferred_until = None
        if entry.is_held:
            state = EntryState.HOLD
        elif listed.due_at is not None or due_at > now:
            state = EntryState.DEFER
            deferred_until = due_at
        else:
            state = EntryState.ACTIVE
        queued = QueuedEntry(
            entry,
            outgoing,
            enqueue_id,
            state,
            deferred_until,
            attributes,
            values_note=note,
        )
        found.append(queued)
    return tuple(found)


def counted_mail(mail: Mail, size: int | None = None) -> CountedMail:
    """As quotas count it; without `size` by its noted bytes, which are 0 where they were not noted."""
    fields = _fields(mail)
    domains = dict.fromkeys(_domain(recipient) for recipient in mail.recipients)
    values = tuple({**fields, PickupField.RECIPIENT_DOMAIN: domain} for domain in domains)
    if size is None:
        size = _number(_value(mail, BYTES), 0)
    return CountedMail(values, size)


def sub_queue_of(queued: QueuedMail) -> SubQueueName:
    """The sub-queue in whose backlog a mail waits where its mails do not leave.

    By all that its envelope tells policies, so that none of its mails waits for a limit that does
    not concern it.
    """
    mail = queued.mail
    domains = {_domain(recipient) for recipient in mail.recipients}
    words = [SEVERAL_DOMAINS]
    if len(domains) == 1:
        words = list(domains)
    fields = _fields(mail)
    tenant = fields.pop(PickupField.TENANT_ID, "")
    words += [f"{field.value}={text}" for field, text in fields.items()]
    return SubQueueName(tenant, " ".join(words))


def values_of(name: SubQueueName) -> Mapping[PickupField, str]:
    """The values that a name of `sub_queue_of` has; a value that looks like several is read as such."""
    domain, *rest = _OF_A_NAME.split(name.rest)
    values = {PickupField.RECIPIENT_DOMAIN: domain, PickupField.TENANT_ID: name.tenant}
    for named, text in zip(rest[::2], rest[1::2], strict=True):
        values[PickupField(named)] = text
    return values


def with_bytes(mail: Mail, content: bytes) -> Mail:
    """The mail with its size noted, for quotas."""
    return replace(mail, attributes={**mail.attributes, BYTES: attribute(len(content))})


def plain_attributes(mail: Mail) -> Mapping[str, str]:
    """The attributes of a mail that are texts, numbers or flags, but for our own."""
    plain = dict[str, str]()
    for name in mail.attributes:
        if name in {REMEMBERED, BYTES}:
            continue
        value = _value(mail, name)
        if isinstance(value, str | int):
            plain[wellformed(name)] = wellformed(str(value))
    return plain


def changed_mail(
    listed: Listed, where: EntryFilter, change: EntryChange, now: datetime
) -> tuple[Sequence[QueuedEntry], ChangedMail | None]:
    """The entries of a delayed mail that a command changes, and the mail behind it; None where nothing of it is left.

    Where no entry is changed there is no mail either: it stays as it is.
    """
    entries = queued_entries(listed, now)
    chosen = list[QueuedEntry]()
    left = list[DeliveryEntry]()
    for entry in entries:
        behind: DeliveryEntry | None = entry.entry
        if where.matches(entry):
            behind = change.of(entry.entry, entry.due_at, entry.mail.expires_at)
        if behind != entry.entry:
            chosen.append(entry)
        if behind:
            left.append(behind)
    if not chosen or not left or not listed.due_at:
        return chosen, None
    timed = [replace(entry, due_at=entry.due_at or listed.due_at) for entry in left]
    due_at = min(entry.due_at or listed.due_at for entry in timed)
    return chosen, ChangedMail(mail_again(listed.queued.mail, entries[0].mail, timed), due_at)


def with_values_note(mail: Mail, note: ValuesNote) -> Mail:
    """The mail with this note, which it keeps over all attempts."""
    remembered = {**_mapping(mail, REMEMBERED), _VALUES: _written(note)}
    return replace(mail, attributes={**mail.attributes, REMEMBERED: attribute(remembered)})


def values_note_of(mail: Mail) -> ValuesNote | None:
    """The note of the last command that set values; None without one that can be read."""
    written = _mapping(mail, REMEMBERED).get(_VALUES)
    if not isinstance(written, Mapping):
        return None
    change = _id(written.get("change"))
    at = _instant(written.get("at"))
    if change is None or at is None:
        return None
    before = dict[str, str | None]()
    for name, text in _texts_in(written.get("before")).items():
        before[name] = text or None
    recipients = dict[int, str]()
    for number, text in _texts_in(written.get("recipients")).items():
        if number.isdecimal():
            recipients[int(number)] = text
    owner = _text(written.get("owner"))
    reason = _text(written.get("reason"))
    return ValuesNote(
        change=change,
        at=at,
        owner=owner,
        reason=reason,
        before=before,
        recipients=recipients,
    )


def _written(note: ValuesNote) -> Mapping[str, Any]:
    return {
        "change": str(note.change),
        "at": note.at.isoformat(),
        "owner": noted(note.owner, _HOST_BYTES_MAX),
        "reason": noted(note.reason),
        "before": {name: text or "" for name, text in note.before.items()},
        "recipients": {str(number): text for number, text in note.recipients.items()},
    }


def _texts_in(value: Any) -> Mapping[str, str]:
    """The texts of a mapping, by name."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): text for name, text in value.items() if isinstance(text, str)}


def part_of_mail(listed: Listed, entries: Sequence[QueuedEntry]) -> Listed:
    """The mail as if it had these recipients alone, under an id that follows from them, to be kept before they go."""
    queued = listed.queued
    part_id = queued.enqueue_id
    if len(entries) < len(queued.mail.recipients):
        names = ",".join(str(entry.entry.id) for entry in entries)
        part_id = EnqueueId(uuid5(queued.enqueue_id, names))
    elif not any(entry.entry.changed_at for entry in entries):
        return listed
    mail = mail_again(queued.mail, entries[0].mail, [entry.entry for entry in entries])
    return replace(listed, queued=replace(queued, enqueue_id=part_id, mail=mail))


def _outgoing(mail: Mail, enqueue_id: EnqueueId, now: datetime) -> tuple[OutgoingMail, tuple[DeliveryEntry, ...]]:
    remembered = _mapping(mail, REMEMBERED)
    outgoing = OutgoingMail(
        id=_id(remembered.get("id")) or enqueue_id,
        sender=mail.sender,
        first_seen_at=_instant(remembered.get("first_seen_at")) or mail.last_updated or now,
        expires_at=_instant(_value(mail, EXPIRES)),
        fields=_fields(mail),
        envelope_id=_decoded(_text(_value(mail, "dsn-envid"))),
        returned=_returned(_text(_value(mail, "dsn-ret"))),
        urgent=priority_of(mail) > PRIORITY_NORMAL,
        requires_tls=REQUIRE_TLS in mail.attributes and _value(mail, REQUIRE_TLS) not in _FALSE,
        priority=_priority_said(_value(mail, PRIORITY_ATTRIBUTE)),
    )
    return outgoing, tuple(_entries(mail, outgoing.id, remembered.get("entries")))


def mail_again(
    mail: Mail, outgoing: OutgoingMail, entries: Sequence[DeliveryEntry], given: Mapping[str, str] | None = None
) -> Mail:
    """The mail as it is put into its queue again, for these entries alone, with what hooks gave it.

    Every note fits any store: see `NOTES_BYTES_MAX` and `GIVEN_BYTES_MAX`.
    """
    note_bytes = min(NOTE_BYTES_MAX, NOTES_BYTES_MAX // max(1, len(entries)))
    remembered: dict[str, Any] = {
        "id": str(outgoing.id),
        "first_seen_at": outgoing.first_seen_at.isoformat(),
        "entries": [_remembered(entry, note_bytes) for entry in entries],
    }
    if note := values_note_of(mail):
        remembered[_VALUES] = _written(note)
    error_message = mail.error_message
    for entry in entries:
        if entry.reply:
            error_message = noted(entry.reply) or error_message
            break
    attributes = dict(mail.attributes)
    for name, text in kept_attributes(given or {}).items():
        attributes[name] = attribute(text)
    attributes[REMEMBERED] = attribute(remembered)
    recipients = tuple(entry.recipient for entry in entries)
    known = frozenset(recipients)
    headers = tuple(header for header in mail.recipient_headers if header.recipient in known)
    return replace(
        mail,
        recipients=recipients,
        recipient_headers=headers,
        error_message=error_message,
        attributes=attributes,
    )


def held_mail(mail: Mail, at: datetime, owner: str, reason: str) -> Mail:
    """A new mail as it is put into its queue where all of its recipients are held from the beginning."""
    note_bytes = min(NOTE_BYTES_MAX, NOTES_BYTES_MAX // max(1, len(mail.recipients)))
    hold = EntryChange(action=EntryAction.HOLD, at=at, owner=owner, reason=reason)
    notes = list[Mapping[str, Any]]()
    for number, recipient in enumerate(mail.recipients):
        held = hold.of(DeliveryEntry(EntryId(_NO_MAIL, number), recipient), None, None)
        assert held is not None
        notes.append(_remembered(held, note_bytes))
    remembered = {"first_seen_at": at.isoformat(), "entries": notes}
    return replace(mail, attributes={**mail.attributes, REMEMBERED: attribute(remembered)})


def delayed_mail(mail: Mail, due_at: datetime) -> Mail:
    """A new mail that is to be due later: the time of its retries begins then."""
    remembered = {"first_seen_at": due_at.isoformat()}
    return replace(mail, attributes={**mail.attributes, REMEMBERED: attribute(remembered)})


def own_expiry(mail: Mail) -> datetime | None:
    """When the mail fails by what it says itself; None: it does not say."""
    return _instant(_value(mail, EXPIRES))


def lacking_mail(queued: QueuedMail, attempts: Iterable[JournalledAttempt], now: datetime) -> Mail | None:
    """The mail for those recipients that lack it; None where every recipient has it.

    Args:
        queued: a mail that was taken from its queue before.
        attempts: what the journal has of it, by `first_id`.
        now: the present.
    """
    mail = queued.mail
    had = {attempt.entry.number for attempt in attempts if attempt.outcome is AttemptOutcome.DELIVERED}
    outgoing, entries = _outgoing(mail, queued.enqueue_id, now)
    left = [entry for entry in entries if entry.id.number not in had]
    if len(left) == len(entries):
        return mail
    if not left:
        return None
    return mail_again(mail, outgoing, left)


def first_id(queued: QueuedMail) -> EnqueueId:
    """The mail's first id in its queue, by which the journal has its attempts."""
    return _id(_mapping(queued.mail, REMEMBERED).get("id")) or queued.enqueue_id


def without_notes(entry: DeliveryEntry) -> DeliveryEntry:
    """The entry without what anybody said of it: what is left decides when and whether it is tried."""
    order = entry.order
    if order:
        order = replace(order, owner="", reason="")
    return replace(entry, reply="", host="", order=order)


def kept_attributes(given: Mapping[str, str]) -> Mapping[str, str]:
    """Attributes of hooks, as far as there is room for them."""
    kept = dict[str, str]()
    left = GIVEN_BYTES_MAX
    for name, text in given.items():
        written_name = wellformed(name)
        written = wellformed(text)
        size = len(written_name.encode()) + len(written.encode())
        if written_name and size <= left:  # James reads no attribute without a name
            kept[written_name] = written
            left -= size
        else:
            _LOG.warning("an attribute of a hook is not kept", extra={"attribute": noted(name, 100), "bytes": size})
    return kept


def _remembered(entry: DeliveryEntry, note_bytes: int) -> Mapping[str, Any]:
    order = entry.order
    remembered: dict[str, Any] = {
        "number": entry.id.number,
        "refusals": entry.refusals,
        "reply": noted(entry.reply, note_bytes),
        "host": noted(entry.host, min(note_bytes, _HOST_BYTES_MAX)),
    }
    if entry.due_at:
        remembered["due_at"] = entry.due_at.isoformat()
    if entry.changed_at:
        remembered["changed_at"] = entry.changed_at.isoformat()
    if order:
        remembered["order"] = order.action.value
        remembered["owner"] = noted(order.owner, min(note_bytes, _HOST_BYTES_MAX))
        remembered["reason"] = noted(order.reason, note_bytes)
        remembered["at"] = order.at.isoformat()
    return remembered


def _order(of_it: Mapping[str, Any]) -> EntryChange | None:
    """One without an instant, or of a kind that is not known, was written by another program: the entry is tried."""
    at = _instant(of_it.get("at"))
    for action in (EntryAction.HOLD, EntryAction.BOUNCE):
        if at and action.value == of_it.get("order"):
            owner = _text(of_it.get("owner"))
            return EntryChange(action=action, at=at, owner=owner, reason=_text(of_it.get("reason")))
    return None


def _entries(mail: Mail, mail_id: EnqueueId, remembered: Any) -> Iterable[DeliveryEntry]:
    known: Sequence[Any] = ()
    if isinstance(remembered, list) and len(remembered) == len(mail.recipients):
        known = remembered
    notify = _mapping(mail, "dsn-notify")
    original = _mapping(mail, "dsn-orcpt")
    for place, recipient in enumerate(mail.recipients):
        of_it: Mapping[str, Any] = {}
        if known and isinstance(known[place], Mapping):
            of_it = known[place]
        yield DeliveryEntry(
            EntryId(mail_id, _number(of_it.get("number"), place)),
            recipient,
            refusals=_number(of_it.get("refusals"), 0),
            notify=_conditions(_text(notify.get(recipient))),
            original=_original(_text(original.get(recipient))),
            reply=noted(_text(of_it.get("reply"))),
            host=noted(_text(of_it.get("host")), _HOST_BYTES_MAX),
            due_at=_instant(of_it.get("due_at")),
            order=_order(of_it),
            changed_at=_instant(of_it.get("changed_at")),
        )


def _value(mail: Mail, name: str) -> Any:
    try:
        return attribute_value(mail.attributes[name])
    except (KeyError, BadPayload):
        return None


def _mapping(mail: Mail, name: str) -> Mapping[str, Any]:
    value = _value(mail, name)
    if isinstance(value, Mapping):
        return value
    return {}


def _fields(mail: Mail) -> dict[PickupField, str]:
    """The texts of a mail that policies count it by."""
    fields = dict[PickupField, str]()
    for field in FIELDS:
        text = _text(_value(mail, field.value))
        if text:
            fields[field] = text
    return fields


def _text(value: Any) -> str:
    """A text or number of an attribute, as every store takes it: JSON may hold halves of surrogate pairs."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return wellformed(str(value))
    return ""


def _domain(address: str) -> str:
    domain = address.rpartition("@")[2]
    try:
        return PickupField.RECIPIENT_DOMAIN.normal(domain)
    except WrongUse:
        return domain.lower()


def _priority_said(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value in _PRIORITIES_SAID:
        return value
    return None


def _number(value: Any, otherwise: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return otherwise


def _instant(value: Any) -> datetime | None:
    try:
        return in_utc(datetime.fromisoformat(_text(value)))
    except (ValueError, OverflowError):  # in UTC it may be before the year 1, or after the year 9999
        return None


def _id(value: Any) -> EnqueueId | None:
    try:
        return EnqueueId(UUID(_text(value)))
    except ValueError:
        return None


def _decoded(text: str) -> str:
    """Of xtext (RFC 3461 4), in which James keeps the sender's id of a mail."""
    return _XTEXT.sub(lambda found: chr(int(found[1], 16)), text)


def _returned(text: str) -> ReturnedPart | None:
    for part in ReturnedPart:
        if part.value == text.upper():
            return part
    return None


def _conditions(text: str) -> frozenset[NoticeCondition] | None:
    known = {condition.value: condition for condition in NoticeCondition}
    words = [word.strip().upper() for word in text.split(",")]
    return frozenset(known[word] for word in words if word in known) or None


def _original(address: str) -> str:
    if address and ";" not in address:
        return f"rfc822;{address}"
    return address
