"""Values of queued mails that a command sets: which there are, and what a mail is behind it. Pure.

A recipient belongs to its entry. Every other value is an attribute of the mail, which all of its
entries share: transport, job, tenant, grouping, priority, expiry and further attributes. A mail
remembers what the last command changed, so that `undoes` can put it back (docs/adr/0085).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from mailmend.delivery.mail.entries import DeliveryEntry, EntryFilter, QueuedEntry, ValuesNote
from mailmend.delivery.mail.envelopes import (
    EXPIRES,
    GIVEN_BYTES_MAX,
    mail_again,
    own_expiry,
    queued_entries,
    with_values_note,
)
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.admission import admissible, check_room, is_address
from mailmend.mailqueue.codec import attribute, attribute_value
from mailmend.mailqueue.queue import ChangedMail
from mailmend.mailqueue.rules.james_json import json_text, object_in
from mailmend.mailqueue.rules.mails import DELAY_MAX, PRIORITIES, PRIORITY_ATTRIBUTE, Listed, Mail
from mailmend.model.durations import parse_duration
from mailmend.model.errors import BadPayload, WrongUse
from mailmend.model.grammar import ascii_domain, comparable_mailbox, read_mailbox, read_name
from mailmend.model.texts import names_instead
from mailmend.model.values import in_utc

RECIPIENT: Final = "recipient"
ATTRIBUTE: Final = "attribute."
"""What is in front of the name of an attribute that has no name of its own here."""

ATTRIBUTES: Final[Mapping[str, str]] = {
    "transport": PickupField.TRANSPORT_ID.value,
    "job": PickupField.JOB_ID.value,
    "tenant": PickupField.TENANT_ID.value,
    "grouping": PickupField.GROUPING.value,
    "priority": PRIORITY_ATTRIBUTE,
    "expires": EXPIRES,
}
"""The values that are attributes of the mail, by their names in commands."""

NAMES: Final = (*ATTRIBUTES, RECIPIENT, f"{ATTRIBUTE}NAME")
_BY_ATTRIBUTE: Final = {named: name for name, named in ATTRIBUTES.items()}
_BY_RECIPIENT: Final = ("dsn-notify", "dsn-orcpt")
"""The attributes that are mappings of recipients."""

_OWN: Final = "mailmend."


def value_name(text: str) -> str:
    """Check the name of a value.

    Raises:
        WrongUse: no value that can be set has this name.
    """
    if text in ATTRIBUTES or text == RECIPIENT:
        return text
    named = text.removeprefix(ATTRIBUTE)
    if named == text or not named:
        mend = names_instead(text, NAMES)
        raise WrongUse(f"{text!r} is no value of a queued mail that can be set", mend=mend)
    if named in _BY_ATTRIBUTE:
        own = _BY_ATTRIBUTE[named]
        raise WrongUse(f"the attribute {named!r} has a name of its own", mend=f"Set {own!r}.")
    if named.startswith(_OWN) or named in _BY_RECIPIENT:
        mend = f"Attributes that can be set hold one text. {names_instead(text, NAMES)}"
        raise WrongUse(f"the attribute {named!r} cannot be set", mend=mend)
    read_name(named, "name of an attribute")
    return text


def normal_value(name: str, text: str, now: datetime) -> str:
    """A value in the form in which it is kept; an expiry may be a stretch of time, from now on.

    Raises:
        WrongUse: no mail can have it; the message begins with the name.
    """
    try:
        return _normal_value(name, text, now)
    except WrongUse as error:
        raise WrongUse(f"{name}: {error.what}", mend=error.mend) from error


def _normal_value(name: str, text: str, now: datetime) -> str:
    if name == RECIPIENT:
        return _recipient(text)
    if name == "priority":
        if text.isdecimal() and text.isascii() and int(text) in PRIORITIES:
            return str(int(text))
        mend = "Priorities go from 0, the last, to 9, the first; 5 is normal."
        raise WrongUse(f"{text!r} is not a priority", mend=mend)
    if name == "expires":
        return _expiry(text, now)
    if not text and name in ATTRIBUTES:
        raise WrongUse("the value is empty", mend=f"To remove the value: --unset {name}")
    return read_name(text, "value")


def _recipient(text: str) -> str:
    """An address in ASCII; the case of its local part stays."""
    read_mailbox(text)
    local, _, domain = text.rpartition("@")
    address = f"{local}@{ascii_domain(domain) or domain}"
    if not is_address(address):
        mend = "Write it in ASCII, like bob@example.org."
        raise WrongUse(f"{text!r} is no address that James can read", mend=mend)
    return address


def _expiry(text: str, now: datetime) -> str:
    mend = "Write an instant like 2026-05-01T08:00:00Z, or a stretch of time from now on, like 2d."
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise WrongUse(f"{text!r} has no offset from UTC", mend=mend)
        at = in_utc(at)
    except (ValueError, OverflowError):
        try:
            at = now + parse_duration(text, maximum=DELAY_MAX, zero=False)
        except WrongUse as error:
            raise WrongUse(f"{text!r} is no end of the retries", mend=mend) from error
    if at <= now:
        mend = "To give recipients up now: mailmend delivery bounce."
        raise WrongUse(f"{text!r} is over", mend=mend)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """What one command sets.

    Attributes:
        id: a version-1 UUID; its time is when the command was given.
        owner: who gave it.
        values: by name, in the form of `normal_value`; None: the value is removed.
        whole_mails: whether the values of a mail are set where only some of its recipients are
            chosen.
        undoes: the id of the change that is put back; then there are no values.
    """

    id: UUID
    at: datetime
    owner: str
    reason: str = ""
    values: Mapping[str, str | None] = field(default_factory=dict)
    whole_mails: bool = False
    undoes: UUID | None = None

    @property
    def attributes(self) -> Mapping[str, str | None]:
        """The attributes that are set, as JSON texts; None: removed."""
        found = dict[str, str | None]()
        for name, text in self.values.items():
            if name != RECIPIENT:
                found[attribute_named(name)] = _serialised(name, text)
        return found


@dataclass(frozen=True, slots=True)
class SetEntry:
    """An entry with the values that change, by name; None: there is no value."""

    queued: QueuedEntry
    before: Mapping[str, str | None]
    behind: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class MailBehindSet:
    """A delayed mail behind a change.

    Attributes:
        entries: the entries that change; without any the mail stays as it is.
        why_left: why the mail stays as it is although entries of it are chosen; "": nothing is to
            be changed.
    """

    entries: Sequence[SetEntry] = ()
    mail: ChangedMail | None = None
    why_left: str = ""


def attribute_named(name: str) -> str:
    """The attribute that keeps a value."""
    return ATTRIBUTES.get(name) or name.removeprefix(ATTRIBUTE)


def name_of_attribute(named: str) -> str:
    """The name in commands of the value that an attribute keeps."""
    return _BY_ATTRIBUTE.get(named) or f"{ATTRIBUTE}{named}"


def text_of_attribute(serialised: str | None) -> str | None:
    """The value of an attribute as people read it; None: it has no value."""
    if serialised is None:
        return None
    try:
        value = attribute_value(serialised)
    except BadPayload:
        return serialised
    if isinstance(value, str | int):
        return str(value)
    return serialised


def entries_without(
    listed: Listed,
    where: EntryFilter,
    change: ValueChange,
    now: datetime,
) -> Sequence[QueuedEntry]:
    """The entries of a mail that a change is meant for, and that do not have its values yet."""
    entries = queued_entries(listed, now)
    chosen = [entry for entry in entries if where.matches(entry)]
    if not chosen:
        return ()
    wanted = _wanted(change, entries, chosen)
    if wanted.attributes_before(listed.queued.mail):
        return chosen
    recipients = wanted.recipients_before(entries)
    return [entry for entry in chosen if entry.entry.id.number in recipients]


def mail_with_values(
    listed: Listed,
    where: EntryFilter,
    change: ValueChange,
    now: datetime,
) -> MailBehindSet:
    """What a change makes of a delayed mail; the same change again makes nothing of it."""
    entries = queued_entries(listed, now)
    chosen = [entry for entry in entries if where.matches(entry)]
    if not chosen or listed.due_at is None:
        return MailBehindSet()
    wanted = _wanted(change, entries, chosen)
    before = wanted.attributes_before(listed.queued.mail)
    recipients = wanted.recipients_before(entries)
    if not before and not recipients:
        return MailBehindSet()
    attributes = {named: wanted.attributes[named] for named in before}
    moved = {number: wanted.recipients[number] for number in recipients}
    if before and len(chosen) < len(entries) and not change.whole_mails:
        why = f"{len(entries) - len(chosen):,} of its {len(entries):,} recipients are not chosen"
        return MailBehindSet(why_left=why)
    note = ValuesNote(
        change=change.id,
        at=change.at,
        owner=change.owner,
        reason=change.reason,
        before=before,
        recipients=recipients,
    )
    try:
        changed = _changed(listed, entries, note, attributes, moved)
    except WrongUse as error:
        return MailBehindSet(why_left=error.what)
    return MailBehindSet(_set_entries(entries, before, attributes, moved), changed)


@dataclass(frozen=True, slots=True)
class _WantedValues:
    """What a mail is to have: attributes as JSON texts, recipients by their numbers."""

    attributes: Mapping[str, str | None] = field(default_factory=dict)
    recipients: Mapping[int, str] = field(default_factory=dict)

    def attributes_before(self, mail: Mail) -> Mapping[str, str | None]:
        """What the mail has now of the attributes that are to change."""
        found = dict[str, str | None]()
        for named, serialised in self.attributes.items():
            had = mail.attributes.get(named)
            if had != serialised:
                found[named] = had
        return found

    def recipients_before(self, entries: Sequence[QueuedEntry]) -> Mapping[int, str]:
        """The recipients that are to change, as they are now."""
        found = dict[int, str]()
        for queued in entries:
            entry = queued.entry
            if self.recipients.get(entry.id.number, entry.recipient) != entry.recipient:
                found[entry.id.number] = entry.recipient
        return found


def _wanted(
    change: ValueChange,
    entries: Sequence[QueuedEntry],
    chosen: Sequence[QueuedEntry],
) -> _WantedValues:
    if change.undoes:
        note = entries[0].values_note
        if note is None or note.change != change.undoes:
            return _WantedValues()
        return _WantedValues(note.before, note.recipients)
    recipient = change.values.get(RECIPIENT)
    if recipient is None:
        return _WantedValues(change.attributes)
    recipients = {entry.entry.id.number: recipient for entry in chosen}
    return _WantedValues(change.attributes, recipients)


def _changed(
    listed: Listed,
    entries: Sequence[QueuedEntry],
    note: ValuesNote,
    attributes: Mapping[str, str | None],
    recipients: Mapping[int, str],
) -> ChangedMail:
    """The mail with these attributes and recipients.

    Raises:
        WrongUse: the mail cannot have them; the message says why.
    """
    if sum(len((text or "").encode()) for text in note.before.values()) > GIVEN_BYTES_MAX:
        raise WrongUse("what it has now is too large to be remembered")
    mail = _renamed(listed.queued.mail, note.recipients, recipients)
    kept = {named: text for named, text in mail.attributes.items() if named not in attributes}
    kept |= {named: text for named, text in attributes.items() if text is not None}
    mail = with_values_note(replace(mail, attributes=kept), note)
    last_at = None
    if EXPIRES in attributes:
        last_at = own_expiry(mail)
    if last_at and last_at <= note.at:
        raise WrongUse(f"its expiry would be over: {text_of_attribute(attributes[EXPIRES])}")
    timed = list[DeliveryEntry]()
    for queued in entries:
        entry = queued.entry
        due_at = entry.due_at or listed.due_at
        if last_at and due_at and not entry.is_held:
            due_at = min(due_at, last_at)
        recipient = recipients.get(entry.id.number, entry.recipient)
        timed.append(replace(entry, recipient=recipient, due_at=due_at))
    _refuse_same_recipients(timed, recipients)
    due_at = min((entry.due_at for entry in timed if entry.due_at), default=note.at)
    if listed.due_at and last_at is None:
        due_at = listed.due_at
    behind = mail_again(mail, entries[0].mail, timed)
    check_room(admissible(behind))
    return ChangedMail(behind, due_at)


def _refuse_same_recipients(entries: Sequence[DeliveryEntry], new: Mapping[int, str]) -> None:
    """What a mail keeps of its recipients is kept by their addresses."""
    known = set[str]()
    for entry in entries:
        if entry.id.number not in new:
            known.add(comparable_mailbox(entry.recipient).lower())
    for recipient in new.values():
        if comparable_mailbox(recipient).lower() in known:
            raise WrongUse("two of its recipients would have the same address")
        known.add(comparable_mailbox(recipient).lower())


def _renamed(mail: Mail, before: Mapping[int, str], behind: Mapping[int, str]) -> Mail:
    """The mail with what it keeps of recipients under their new addresses."""
    names = {before[number]: recipient for number, recipient in behind.items()}
    if not names:
        return mail
    headers = []
    for header in mail.recipient_headers:
        headers.append(replace(header, recipient=names.get(header.recipient, header.recipient)))
    attributes = dict(mail.attributes)
    for named in _BY_RECIPIENT:
        if named in attributes:
            attributes[named] = _with_names(attributes[named], names)
    return replace(mail, recipient_headers=tuple(headers), attributes=attributes)


def _with_names(serialised: str, names: Mapping[str, str]) -> str:
    """A mapping of recipients with other keys; any other attribute as it is.

    What it has under a new key is of a recipient that has left: the mail forgets that.
    """
    try:
        found = object_in(serialised, "the attribute")
    except BadPayload:
        return serialised
    value: Any = found.get("value")
    if not isinstance(value, Mapping) or (names.keys() | set(names.values())).isdisjoint(value):
        return serialised
    renamed = dict[str, Any]()
    for recipient, kept in value.items():
        if recipient in names:
            renamed[names[recipient]] = kept
        elif recipient not in names.values():
            renamed[recipient] = kept
    return json_text({**found, "value": renamed})


def _set_entries(
    entries: Sequence[QueuedEntry],
    before: Mapping[str, str | None],
    attributes: Mapping[str, str | None],
    recipients: Mapping[int, str],
) -> Sequence[SetEntry]:
    was = {name_of_attribute(named): text_of_attribute(text) for named, text in before.items()}
    now = {name_of_attribute(named): text_of_attribute(text) for named, text in attributes.items()}
    found = list[SetEntry]()
    for queued in entries:
        own_was = dict(was)
        own_now = dict(now)
        if recipient := recipients.get(queued.entry.id.number):
            own_was[RECIPIENT] = queued.entry.recipient
            own_now[RECIPIENT] = recipient
        if own_now:
            found.append(SetEntry(queued, own_was, own_now))
    return found


def _serialised(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    if name == "priority":
        return attribute(int(text))
    return attribute(text)
