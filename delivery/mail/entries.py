"""Recipients of mails on their way out: their state, the conditions that choose them, and what commands make of them.

Source: docs/adr/0039.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Final, Self
from uuid import UUID

from mailmend.delivery.mail.notices import NoticeCondition, NoticeKind, ReturnedPart
from mailmend.delivery.policy.policy import PickupField
from mailmend.mailqueue.rules.mails import NULL_SENDER
from mailmend.model.grammar import (
    comparable_mailbox,
    read_name,
    read_server,
    wanted_domain,
    wanted_mailbox,
)
from mailmend.model.ids import EnqueueId
from mailmend.model.matching import check_wildcard, text_fits


class EntryState(Enum):
    """The three states of an entry; the value is its name in commands."""

    HOLD = "hold"  # until somebody releases it
    DEFER = "defer"  # until its time
    ACTIVE = "active"  # to be delivered now


class EntryStage(Enum):
    """The state of an entry, and within the active state its step; the value is its name in commands."""

    HOLD = "hold"
    DEFER = "defer"
    PRE_DELIVERY = "pre-delivery"
    DNS = "dns"
    WAITING = "waiting"
    DELIVERING = "delivering"
    POST_DELIVERY = "post-delivery"
    GONE = "gone"

    @property
    def state(self) -> EntryState | None:
        """None once it is gone."""
        match self:
            case EntryStage.HOLD:
                return EntryState.HOLD
            case EntryStage.DEFER:
                return EntryState.DEFER
            case EntryStage.GONE:
                return None
            case _:
                return EntryState.ACTIVE

    @property
    def is_attempted(self) -> bool:
        """Whether an attempt is under way: nothing but its end changes the entry."""
        return self in {EntryStage.DELIVERING, EntryStage.POST_DELIVERY}


_RESTING: Final = frozenset({EntryStage.HOLD, EntryStage.DEFER, EntryStage.GONE})

NEXT_STAGES: Final[Mapping[EntryStage, frozenset[EntryStage]]] = MappingProxyType(
    {
        EntryStage.HOLD: frozenset({EntryStage.DEFER, EntryStage.PRE_DELIVERY, EntryStage.GONE}),
        EntryStage.DEFER: frozenset({EntryStage.HOLD, EntryStage.PRE_DELIVERY, EntryStage.GONE}),
        EntryStage.PRE_DELIVERY: frozenset({EntryStage.DNS, EntryStage.POST_DELIVERY, *_RESTING}),
        EntryStage.DNS: frozenset({EntryStage.WAITING, EntryStage.POST_DELIVERY, *_RESTING}),
        EntryStage.WAITING: frozenset({EntryStage.DELIVERING, EntryStage.POST_DELIVERY, *_RESTING}),
        # What is being delivered is touched by nobody: its attempt ends first.
        EntryStage.DELIVERING: frozenset({EntryStage.POST_DELIVERY}),
        EntryStage.POST_DELIVERY: _RESTING,
        EntryStage.GONE: frozenset[EntryStage](),
    }
)
"""Which stages may follow each."""


HELD_FOR: Final = timedelta(days=300)
"""How far ahead the time of a held entry lies, as a queue needs one; once it has come it is put off by as much."""


_APART: Final = timedelta(milliseconds=1)
"""The time between two changes of one entry: the ledger keeps instants in milliseconds."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """What one command, or a hook, does with an entry.

    Attributes:
        at: when it was given; the same again changes nothing.
        owner: who ordered it.
        until: DEFER's; a mail that names its own expiry is deferred no longer than that.
    """

    action: EntryAction
    at: datetime
    owner: str
    reason: str = ""
    until: datetime | None = None

    def of(
        self, entry: "DeliveryEntry", due_at: datetime | None, expires_at: datetime | None
    ) -> "DeliveryEntry | None":
        """The entry behind it: the same where nothing changes; None where it is gone.

        Args:
            entry: as it is before.
            due_at: when it is tried again, where it is deferred.
            expires_at: the mail's own expiry.
        """
        if self.action is EntryAction.DELETE:
            return None
        behind = self._behind(entry, due_at, expires_at)
        if behind == entry:
            return behind
        return replace(behind, changed_at=self.after(entry).at)

    def after(self, entry: "DeliveryEntry") -> "EntryChange":
        """The same change, given later than the entry's last one: that one may be by a clock that is ahead."""
        if entry.changed_at is None:
            return self
        return replace(self, at=max(self.at, entry.changed_at + _APART))

    def is_void(self, entry: "DeliveryEntry", now: datetime) -> bool:
        """Whether it comes too late: the entry was changed by a later command, or its time is over."""
        is_older = entry.changed_at is not None and self.at <= entry.changed_at
        return is_older or (self.until is not None and self.until <= now)

    def _behind(self, entry: "DeliveryEntry", due_at: datetime | None, expires_at: datetime | None) -> "DeliveryEntry":
        order = entry.order
        behind = entry
        match self.action:
            case EntryAction.HOLD if not entry.is_held:
                behind = replace(entry, order=self, due_at=self.at + HELD_FOR)
            case EntryAction.BOUNCE if order is None or order.action is not EntryAction.BOUNCE:
                behind = replace(entry, order=self, due_at=self.at)
            case EntryAction.RELEASE if entry.is_held:
                behind = replace(entry, order=None, due_at=self.at)
            case EntryAction.RETRY if order is None and due_at and due_at > self.at:
                behind = replace(entry, due_at=self.at)
            case EntryAction.DEFER if order is None and self.until:
                until = min(self.until, expires_at or self.until)
                if due_at != until:
                    behind = replace(entry, due_at=until)
            case _:
                pass
        return behind


@dataclass(frozen=True, slots=True)
class EntryId:
    """A recipient of a mail: the mail's first id in the queue, which it keeps over all attempts, and a number."""

    mail: EnqueueId
    number: int

    def __str__(self) -> str:
        return f"{self.mail}:{self.number}"


@dataclass(frozen=True, slots=True)
class DeliveryEntry:
    """One recipient of a mail.

    Attributes:
        refusals: attempts that were refused for now.
        notify: what the sender asked to be told; None where nothing was asked: failures and delays are told.
        original: the recipient as the sender wrote it, with the type of the address: `rfc822;bob@example.org`.
        reply: of the server, at the last attempt; "" where there was none.
        host: which server that was.
        due_at: no attempt begins before; None: as its mail is due.
        order: what a server does with it in place of an attempt, a HOLD or a BOUNCE; None: it is to be tried.
        changed_at: when the command was given that changed it last: what was ordered before that counts no more.
    """

    id: EntryId
    recipient: str
    stage: EntryStage = EntryStage.PRE_DELIVERY
    refusals: int = 0
    notify: frozenset[NoticeCondition] | None = None
    original: str = ""
    reply: str = ""
    host: str = ""
    due_at: datetime | None = None
    order: EntryChange | None = None
    changed_at: datetime | None = None

    @property
    def is_held(self) -> bool:
        return self.order is not None and self.order.action is EntryAction.HOLD

    @property
    def domain(self) -> str:
        return self.recipient.rpartition("@")[2].lower()

    def notifies(self, kind: NoticeKind) -> bool:
        """Whether the sender wants to be told this."""
        if self.notify is None:
            return kind in {NoticeKind.FAILED, NoticeKind.DELAYED}
        return kind.condition in self.notify

    def moved(self, stage: EntryStage) -> Self:
        """The entry at its next stage."""
        assert stage in NEXT_STAGES[self.stage], f"{self.stage} is not followed by {stage}"
        return replace(self, stage=stage)


@dataclass(frozen=True, slots=True)
class OutgoingMail:
    """What all entries of a mail share.

    Attributes:
        id: as in `EntryId`.
        sender: None for the null sender.
        first_seen_at: when it was taken from its queue for the first time, or put there.
        expires_at: its own expiry; None: its age decides.
        fields: what policies count by, as far as the mail itself says it.
        envelope_id: the sender's own id of it (ENVID), decoded; "" without one.
        returned: how much of it is to come back with a report; None where the sender did not say.
        requires_tls: whether it may only go over verified TLS, to servers that promise the same (REQUIRETLS, RFC 8689).
        priority: as servers are told (MT-PRIORITY, RFC 6710), -9 to 9; None: nothing is said.
        is_international: whether the mail has to go as SMTPUTF8 (RFC 6531) even if all addresses are ASCII.
    """

    id: EnqueueId
    sender: str | None
    first_seen_at: datetime
    expires_at: datetime | None = None
    fields: Mapping[PickupField, str] = field(default_factory=dict)
    envelope_id: str = ""
    returned: ReturnedPart | None = None
    urgent: bool = False
    requires_tls: bool = False
    priority: int | None = None
    is_international: bool = False

    @property
    def transport(self) -> str:
        return self.fields.get(PickupField.TRANSPORT_ID, "")


class EntryEnd(Enum):
    """How the active time of an entry ended."""

    DELIVERED = "delivered"
    REFUSED = "refused for now"
    FAILED = "failed"
    EXPIRED = "expired"
    RETURNED = "returned"  # not tried, or not to the end: no retry is counted
    DELETED = "deleted"  # by a hook or a command: nobody is told


@dataclass(frozen=True, slots=True)
class EndedEntry:
    """An entry whose active time has ended.

    Attributes:
        status: an enhanced status code; "" where no attempt was made.
        why: a sentence of ours, where no server said anything.
        tells: whether the server that took it reports what becomes of it, as the sender asked.
        arrived: whether the server that took it is the recipient's own, by LMTP.
        wait: how long it waits, where it comes again; None: as its schedule says, or not at all where it was returned.
        changed: whether the entry is not what its queue has, though it was returned.
        journalled: whether the journal of attempts leads to the same end at the same time for each reader.
    """

    entry: DeliveryEntry
    end: EntryEnd
    at: datetime
    status: str = ""
    why: str = ""
    tells: bool = False
    arrived: bool = False
    wait: timedelta | None = None
    changed: bool = False
    journalled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesNote:
    """What a mail remembers of the last `mailmend delivery set` that changed it.

    Attributes:
        change: the id of the command.
        before: the attributes that it changed, as they were: JSON texts; None: there was none.
        recipients: the recipients that it changed, as they were, by the numbers of their entries.
    """

    change: UUID
    at: datetime
    owner: str
    reason: str = ""
    before: Mapping[str, str | None] = field(default_factory=dict)
    recipients: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    """One recipient of a mail in a queue.

    Attributes:
        enqueue_id: of the mail's present passage through the queue.
        state: only the server of an active entry knows whether it waits or is being delivered.
        due_at: when a deferred one is tried again; None for others.
        attributes: the mail's attributes that are texts, numbers or flags.
        after_attempt: of an active one: what is to follow once its attempt has ended.
        reply_class: of the last reply; "" without a reply, or where it is not looked for.
        values_note: of the command that set values of the mail last.
    """

    entry: DeliveryEntry
    mail: OutgoingMail
    enqueue_id: EnqueueId
    state: EntryState
    due_at: datetime | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    after_attempt: EntryChange | None = None
    reply_class: str = ""
    values_note: ValuesNote | None = None


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
