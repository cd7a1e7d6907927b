"""What programs of the operator's own may decide before and after an attempt: values only.

Source: seed mta-queue-subsystem 2.2.2, facts/mta.md 1.2 and 4.10 (rule 37).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from model.delivery.attempts import SMTP_PORT, AttemptStage, SourceAddress, TlsLevel
from model.delivery.entries import EntryEnd, EntryId
from model.pickup.policy import PickupField


@dataclass(frozen=True, slots=True)
class HookedRecipient:
    """A recipient of a mail, as a hook sees it.

    Attributes:
        sender: None for the null sender.
        fields: what policies count by, as far as the mail itself says it.
        refusals: attempts that were refused for now.
        reply: of the server, at the last attempt; "" where there was none.
        content_bytes: the length of the mail, header and body.
    """

    id: EntryId
    sender: str | None
    recipient: str
    fields: Mapping[PickupField, str]
    refusals: int
    reply: str
    first_seen_at: datetime
    expires_at: datetime
    content_bytes: int


@dataclass(frozen=True, slots=True)
class HookedAttempt:
    """How an attempt ended, as the hook behind it sees it; again, where a server died before it could follow it.

    Attributes:
        end: what follows unless the hook decides otherwise.
        status: an enhanced status code.
        reply: of the server; "" where it said nothing.
        why: a sentence of ours, where the server said nothing.
        stage: how far it got; None where no server could be tried.
        is_last: whether a refusal for now means that it has failed: by its age, or by the number of attempts.
    """

    recipient: HookedRecipient
    end: EntryEnd
    status: str
    reply: str
    why: str
    host: str
    stage: AttemptStage | None
    is_last: bool


@dataclass(frozen=True, slots=True)
class TryDelivery:
    """Try, with what is named here in place of what the server would do.

    Attributes:
        host: the next server, in place of the domain's; "" leaves it to the domain.
        sender: of the envelope.
        recipient: of the envelope; its domain says where the mail goes.
        sources: which addresses to send from; none: those of the server.
        fields: for the policies, in place of the mail's own.
    """

    host: str = ""
    port: int = SMTP_PORT
    sender: str = ""
    recipient: str = ""
    sources: tuple[SourceAddress, ...] = ()
    tls: TlsLevel | None = None
    fields: Mapping[PickupField, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutOffDelivery:
    """Come again later.

    Attributes:
        delay: None for the schedule's interval, or where no retry is counted, for some minutes.
        counts: whether that is a retry.
    """

    delay: timedelta | None = None
    counts: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BounceRecipient:
    """Give up, and tell the sender."""

    reason: str
    status: str = "5.7.1"


@dataclass(frozen=True, slots=True)
class DeleteRecipient:
    """Give up, and tell nobody."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class HoldRecipient:
    """Hold it until somebody releases it: `mailmend delivery release`."""

    reason: str = ""


PreDecision = TryDelivery | PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient
PostDecision = PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient | None
"""None leaves it as it is; whoever has the mail already can neither be put off, held, bounced nor deleted."""

PreDelivery = Callable[[HookedRecipient], PreDecision | Awaitable[PreDecision]]
PostDelivery = Callable[[HookedAttempt], PostDecision | Awaitable[PostDecision]]
