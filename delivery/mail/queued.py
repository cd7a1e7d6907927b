"""Entries as listings of their queue show them: their state, the conditions that choose them, and what commands change.

Source: docs/adr/0039.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from mailmend.delivery.mail.entries import HELD_FOR, DeliveryEntry, EntryOrder, EntryOrderKind, EntryState, OutgoingMail
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.rules.mails import NULL_SENDER
from mailmend.model.grammar import comparable_mailbox, read_name, read_server, wanted_domain, wanted_mailbox
from mailmend.model.ids import EnqueueId
from mailmend.model.matching import check_wildcard, text_fits

_APART: Final = timedelta(milliseconds=1)
"""The time between two changes of one entry: the ledger keeps instants in milliseconds."""


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    """One recipient of a mail in a queue.

    Attributes:
        enqueue_id: of the mail's present passage through the queue.
        state: only the server of an active entry knows whether it waits or is being delivered.
        due_at: when a deferred one is tried again; None for others.
        attributes: the mail's attributes that are texts, numbers or flags.
        after_attempt: of an active one: what is to follow once its attempt has ended.
    """

    entry: DeliveryEntry
    mail: OutgoingMail
    enqueue_id: EnqueueId
    state: EntryState
    due_at: datetime | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    after_attempt: "EntryChange | None" = None


class EntryField(Enum):
    """What entries are chosen and grouped by; the value is its name in commands."""

    TRANSPORT = "transport"
    JOB = "job"
    TENANT = "tenant"
    GROUPING = "grouping"
    SENDER = "sender"
    SENDER_DOMAIN = "sender-domain"
    RECIPIENT = "recipient"
    DOMAIN = "domain"
    REMOTE_MX = "remote-mx"
    REPLY = "reply"

    def of(self, one: QueuedEntry) -> str:
        """The entry's own; "" where it has none."""
        return _OWN[self](one)

    def wanted(self, text: str) -> str:
        """A text that entries are chosen by, in the form in which they are compared; `*` stands for any text.

        Raises:
            WrongUse: no entry can have it.
        """
        if self in {EntryField.DOMAIN, EntryField.SENDER_DOMAIN}:
            return wanted_domain(text)
        if self is EntryField.REMOTE_MX:
            return wanted_domain(text, read_server)
        if self in {EntryField.SENDER, EntryField.RECIPIENT}:
            return wanted_mailbox(text)
        if self is EntryField.REPLY:
            return text
        return read_name(text, self.value)

    @property
    def has_cases(self) -> bool:
        """Whether upper and lower case mean something."""
        return self in {EntryField.TRANSPORT, EntryField.JOB, EntryField.TENANT, EntryField.GROUPING}


def _of_mail(named: PickupField) -> Callable[[QueuedEntry], str]:
    return lambda one: one.mail.fields.get(named, "")


_OWN: Final[Mapping[EntryField, Callable[[QueuedEntry], str]]] = {
    EntryField.TRANSPORT: _of_mail(PickupField.TRANSPORT_ID),
    EntryField.JOB: _of_mail(PickupField.JOB_ID),
    EntryField.TENANT: _of_mail(PickupField.TENANT_ID),
    EntryField.GROUPING: _of_mail(PickupField.GROUPING),
    EntryField.SENDER: lambda one: comparable_mailbox(one.mail.sender or NULL_SENDER),
    EntryField.SENDER_DOMAIN: lambda one: comparable_mailbox(one.mail.sender or "").rpartition("@")[2].lower(),
    EntryField.RECIPIENT: lambda one: comparable_mailbox(one.entry.recipient),
    EntryField.DOMAIN: lambda one: comparable_mailbox(one.entry.recipient).rpartition("@")[2].lower(),
    EntryField.REMOTE_MX: lambda one: one.entry.host,
    EntryField.REPLY: lambda one: one.entry.reply,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Conditions that must all hold; of each condition one of its values.

    Attributes:
        ids: of mails, at first or now, or of entries, as `mail:number`; none is no condition, here and below.
        texts: `*` stands for anything.
        attributes: by name, with the same patterns.
        refusals_min, refusals_max: how often it was refused for now.
        older_than_at: its mail was first seen before.
        newer_than_at: the same, then or later.

    Raises:
        WrongUse: a text is too long.
    """

    ids: frozenset[str] = frozenset()
    texts: Mapping[EntryField, tuple[str, ...]] = field(default_factory=dict)
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    states: frozenset[EntryState] = frozenset()
    refusals_min: int = 0
    refusals_max: int | None = None
    older_than_at: datetime | None = None
    newer_than_at: datetime | None = None

    def __post_init__(self) -> None:
        for some in (*self.texts.values(), *self.attributes.values()):
            for wanted in some:
                check_wildcard(wanted)

    def matches(self, one: QueuedEntry) -> bool:
        entry = one.entry
        seen_at = one.mail.first_seen_at
        fits = (
            (not self.states or one.state in self.states)
            and (not self.ids or not self.ids.isdisjoint((str(entry.id), str(entry.id.mail), str(one.enqueue_id))))
            and entry.refusals >= self.refusals_min
            and (self.refusals_max is None or entry.refusals <= self.refusals_max)
            and (self.older_than_at is None or seen_at < self.older_than_at)
            and (self.newer_than_at is None or seen_at >= self.newer_than_at)
        )
        if not fits:
            return False
        for named, patterns in self.texts.items():
            own = named.of(one)
            if not any(text_fits(pattern, own, any_case=not named.has_cases) for pattern in patterns):
                return False
        for name, patterns in self.attributes.items():
            if name not in one.attributes:
                return False
            if not any(text_fits(pattern, one.attributes[name]) for pattern in patterns):
                return False
        return True


class EntryAction(Enum):
    """What a command does with entries; the value is its name."""

    HOLD = "hold"
    RELEASE = "release"
    RETRY = "retry"
    DEFER = "defer"
    BOUNCE = "bounce"
    DELETE = "delete"

    @property
    def is_final(self) -> bool:
        """Whether the entry is gone behind it."""
        return self in {EntryAction.BOUNCE, EntryAction.DELETE}

    @property
    def follows_attempt(self) -> bool:
        """Whether it may be ordered of an active entry, for after its attempt."""
        return self not in {EntryAction.RELEASE, EntryAction.RETRY}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """What one command does.

    Attributes:
        at: when it was given; the same again changes nothing.
        until: DEFER's; a mail that names its own expiry is deferred no longer than that.
    """

    action: EntryAction
    at: datetime
    owner: str
    reason: str = ""
    until: datetime | None = None

    def of(self, one: QueuedEntry) -> DeliveryEntry | None:
        """The entry behind it: the same where nothing changes; None where it is gone."""
        if self.action is EntryAction.DELETE:
            return None
        behind = self._behind(one)
        if behind == one.entry:
            return behind
        return replace(behind, changed_at=self.after(one.entry).at)

    def after(self, entry: DeliveryEntry) -> "EntryChange":
        """The same change, given later than the entry's last one: that one may be by a clock that is ahead."""
        if entry.changed_at is None:
            return self
        return replace(self, at=max(self.at, entry.changed_at + _APART))

    def is_void(self, entry: DeliveryEntry, now: datetime) -> bool:
        """Whether it comes too late: the entry was changed by a later command, or its time is over."""
        is_older = entry.changed_at is not None and self.at <= entry.changed_at
        return is_older or (self.until is not None and self.until <= now)

    def _behind(self, one: QueuedEntry) -> DeliveryEntry:
        entry = one.entry
        order = one.entry.order
        behind = entry
        match self.action:
            case EntryAction.HOLD if not entry.is_held:
                behind = replace(entry, order=self._order(EntryOrderKind.HOLD), due_at=self.at + HELD_FOR)
            case EntryAction.BOUNCE if order is None or order.kind is not EntryOrderKind.BOUNCE:
                behind = replace(entry, order=self._order(EntryOrderKind.BOUNCE), due_at=self.at)
            case EntryAction.RELEASE if entry.is_held:
                behind = replace(entry, order=None, due_at=self.at)
            case EntryAction.RETRY if order is None and one.due_at and one.due_at > self.at:
                behind = replace(entry, due_at=self.at)
            case EntryAction.DEFER if order is None and self.until:
                until = min(self.until, one.mail.expires_at or self.until)
                if one.due_at != until:
                    behind = replace(entry, due_at=until)
            case _:
                pass
        return behind

    def _order(self, kind: EntryOrderKind) -> EntryOrder:
        return EntryOrder(kind, self.owner, self.reason, self.at)
