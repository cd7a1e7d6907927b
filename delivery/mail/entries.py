"""One recipient of one mail on its way out: its state, and what becomes of it.

Source: docs/adr/0039.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Final, Self

from mailmend.delivery.mail.notices import NoticeWish, ReturnedPart
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.ids import EnqueueId


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


class EntryOrderKind(Enum):
    """What a person, or a hook, may have ordered of an entry that rests."""

    HOLD = "hold"
    BOUNCE = "bounce"


@dataclass(frozen=True, slots=True)
class EntryOrder:
    """What a server does with an entry in place of an attempt.

    Attributes:
        owner: who ordered it.
        at: since when.
    """

    kind: EntryOrderKind
    owner: str
    reason: str
    at: datetime


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
        reply: of the server, at the last attempt; "" where there was none.
        host: which server that was.
        due_at: no attempt begins before; None: as its mail is due.
        order: None: it is to be tried.
        changed_at: when the command was given that changed it last: what was ordered before that counts no more.
    """

    id: EntryId
    recipient: str
    stage: EntryStage = EntryStage.PRE_DELIVERY
    refusals: int = 0
    wish: NoticeWish = field(default_factory=NoticeWish)
    reply: str = ""
    host: str = ""
    due_at: datetime | None = None
    order: EntryOrder | None = None
    changed_at: datetime | None = None

    @property
    def is_held(self) -> bool:
        return self.order is not None and self.order.kind is EntryOrderKind.HOLD

    @property
    def domain(self) -> str:
        return self.recipient.rpartition("@")[2].lower()

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
