"""What programs of the operator's own may decide as a mail comes in, before and after an attempt, and order with it.

Values only.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Generic, TypeVar
from uuid import UUID

from mailmend.delivery.mail.attempts import SMTP_PORT, AttemptStage
from mailmend.delivery.mail.entries import EntryEnd, EntryId
from mailmend.delivery.policy.arrivals import DELAY_MAX, refusing_reply
from mailmend.delivery.policy.orders import (
    NOTHING_BEGINS,
    ORDER_MAX,
    Order,
    OrderKind,
    new_order,
    normal_scope,
    refuse_negative_limits,
)
from mailmend.delivery.policy.policy import PatternTexts, PickupField, Threshold
from mailmend.delivery.transports import SourceAddress, TlsLevel
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.texts import noted

_OWN_NAMES: Final = ("mailmend.", "dsn-")
"""What names of attributes begin with that hooks may not set: how far a mail is, and what its sender wishes."""


@dataclass(frozen=True, slots=True)
class HookedRecipient:
    """A recipient of a mail, as a hook sees it.

    Attributes:
        sender: None for the null sender.
        fields: what policies count by, as far as the mail itself says it.
        attributes: the mail's attributes that are texts, numbers or flags, and the ones that hooks
            have set.
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
    attributes: Mapping[str, str] = field(default_factory=dict)


class AttemptState(Enum):
    """How a recipient came to its end; the value is its name for people."""

    ANSWERED = "answered"  # by a server, by a broken connection, or by the journal of a server that died
    UNROUTABLE = "unroutable"  # no server could be tried: DNS, or none of our addresses reaches one
    EXPIRED = "expired"  # while it waited for its turn
    WAITED = "waited"  # for too long, or without room for others: it goes back to the queue
    ELSEWHERE = "elsewhere"  # only other servers of the queue have a part of its limit: it goes back
    REROUTED = "rerouted"  # its transport has other addresses, or another server, now: it goes back
    LIMITED = "limited"  # a server did not answer, and the limits of the next one allow no attempt now
    UNCERTAIN = "uncertain"  # its server may have the mail
    CUT_OFF = "cut-off"  # this server lost its membership, so what shared limits count was broken off
    STOPPING = "stopping"  # this server stops
    NO_JOURNAL = "no-journal"  # the journal of attempts does not answer, and no mail may go twice
    FAULT = "fault"  # an error of ours


@dataclass(frozen=True, slots=True)
class HookedAttempt:
    """How an attempt ended, or a wait for one, as the hook behind it sees it.

    It may come again, where a server died before it could follow it.

    Attributes:
        end: what follows unless the hook decides otherwise.
        status: an enhanced status code.
        reply: of the server; "" where it said nothing, or no server was asked. The reply of the last
            attempt that was is in `recipient`.
        why: a sentence of ours, where the server said nothing.
        stage: how far it got; None where no server could be tried.
        is_last: whether a refusal for now means that it has failed: by its age, or by the number of
            attempts.
        reply_class: of a refusal, as `mailmend policy classify` says it; "" for other ends.
        state: how it came to that.
    """

    recipient: HookedRecipient
    end: EntryEnd
    status: str
    reply: str
    why: str
    host: str
    stage: AttemptStage | None
    is_last: bool
    reply_class: str = ""
    state: AttemptState = AttemptState.ANSWERED


@dataclass(frozen=True, slots=True)
class TryDelivery:
    """Try, with what is named here in place of what the server would do.

    Attributes:
        host: the next server, in place of the domain's or its transport's; "" leaves it to these.
        sender: of the envelope.
        recipient: of the envelope; its domain says where the mail goes.
        sources: which addresses to send from; none: the addresses of its transport.
        fields: for the policies, in place of the mail's own; transportid also chooses how the mail
            is sent.
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
    """Give up, without a report."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class HoldRecipient:
    """Hold it until it is released with `mailmend delivery release`."""

    reason: str = ""


PreDecision = TryDelivery | PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient
"""What a hook decides about a recipient before an attempt."""

PostDecision = PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient | None
"""None leaves it as it is; a recipient that has the mail already can neither be put off, held, bounced nor deleted.

What has expired cannot be put off.
"""


@dataclass(frozen=True, slots=True)
class ArrivedRecipient:
    """A recipient of a mail that comes in, with what rules of incoming say of it.

    Attributes:
        hold: why a rule holds it; "": none does.
        delay: how much later it is delivered by a rule.
    """

    address: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    hold: str = ""
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedArrival:
    """A mail behind the last byte of its content: nothing of it is stored, and its client waits for an answer.

    Attributes:
        id: as in the Received field that the mail gets.
        client: the address that hands it over.
        greeted_as: what the client calls itself.
        protocol: SMTP, ESMTP or LMTP; with S over TLS.
        user: who logged in; "" where the client did not.
        sender: None for the null sender.
        recipients: those that were not refused; at least one.
        content: header and body, with CR LF at the end of each line.
    """

    id: str
    client: str
    greeted_as: str
    protocol: str
    user: str = ""
    sender: str | None
    recipients: tuple[ArrivedRecipient, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class AcceptMail:
    """Put it into the queue for all of its recipients, to be delivered at once, whatever rules hold or delay."""


@dataclass(frozen=True, slots=True)
class DelayMail:
    """Put it into the queue, to be delivered that much later.

    Raises:
        WrongUse: the delay is negative, or longer than a year.
    """

    delay: timedelta

    def __post_init__(self) -> None:
        if not timedelta() <= self.delay <= DELAY_MAX:
            raise WrongUse(f"{self.delay} is no time to wait", mend=f"At most {DELAY_MAX.days} days.")


@dataclass(frozen=True, slots=True)
class RejectMail:
    """Refuse it, for all of its recipients; nothing is stored.

    Attributes:
        reply: `550 5.7.1 no such mails here` for good, `451 4.7.1 come again later` for now; a text
            alone is for good.

    Raises:
        WrongUse: it is no reply that refuses.
    """

    reply: str = "true"

    def __post_init__(self) -> None:
        if not refusing_reply(self.reply):
            raise WrongUse("a mail cannot be refused with false", mend="Return AcceptMail() to take it.")

    @property
    def line(self) -> str:
        """With code and enhanced status code."""
        return refusing_reply(self.reply)


ArrivalDecision = AcceptMail | HoldRecipient | DelayMail | RejectMail | None
"""What a hook decides about a mail at the end of DATA; None leaves it as the rules of incoming say."""


@dataclass(frozen=True, slots=True)
class SuspendMails:
    """Let no mails with these values begin to be delivered for a while, on all servers of the queue.

    Said again it is renewed, once less than half of its time is left.

    Attributes:
        values: by field, as a policy file spells them; one of a field's must match, and each field.
        lasts: from now; no time at all ends what hooks of the same name have suspended by the same
            values.
        reason: for those who find mails waiting.

    Raises:
        WrongUse: it names no mails, something is no value of its field, or the time is too long.
    """

    values: Mapping[PickupField, Sequence[str]]
    lasts: timedelta
    reason: str

    def __post_init__(self) -> None:
        _refuse_time(self.lasts)
        if not self.values:
            raise WrongUse("it is not said which mails are suspended", mend="Name values of a field.")
        self.scope()

    def scope(self) -> tuple[tuple[str, ...], PatternTexts]:
        return normal_scope(OrderKind.SUSPENSION, _texts(self.values))


@dataclass(frozen=True, slots=True)
class LimitMails:
    """Set limits for a while, before the limits of the policy file, on all servers of the queue: a run-time condition.

    Renewed like a suspension. Conditions that people set are tested before conditions of hooks.

    Attributes:
        values: for which they hold, by field; without values they always hold.
        threshold: the limits, all of them.
        lasts: from now; no time at all ends what hooks of the same name have set for the same
            fields and values.
        fields: the fields of the policy whose limits they are; none: the fields of the values.

    Raises:
        WrongUse: something is no value of its field, a limit is below nothing, or the time is too
            long.
    """

    values: Mapping[PickupField, Sequence[str]]
    threshold: Threshold
    lasts: timedelta
    reason: str
    fields: tuple[PickupField, ...] = ()

    def __post_init__(self) -> None:
        _refuse_time(self.lasts)
        refuse_negative_limits(self.threshold)
        self.scope()

    def scope(self) -> tuple[tuple[str, ...], PatternTexts]:
        fields = [pickup_field.value for pickup_field in self.fields or self.values]
        return normal_scope(OrderKind.CONDITION, _texts(self.values), fields)


HookOrder = SuspendMails | LimitMails
"""What a hook orders for all servers of the queue."""


def order_of(given: HookOrder, queue: QueueName, owner: str, now: datetime, new_id: UUID) -> Order:
    """The order that a hook gives, as a new one; `new_id` is a version-1 UUID of now."""
    kind = OrderKind.SUSPENSION
    threshold = NOTHING_BEGINS
    if isinstance(given, LimitMails):
        kind = OrderKind.CONDITION
        threshold = given.threshold
    return new_order(
        kind,
        queue,
        given.scope(),
        owner=owner,
        reason=noted(given.reason),
        now=now,
        lasts=given.lasts,
        new_id=new_id,
        threshold=threshold,
    )


D = TypeVar("D", bound=PreDecision | PostDecision | ArrivalDecision)


@dataclass(frozen=True, slots=True)
class HookResult(Generic[D]):
    """What a hook decides, and what else is to follow.

    Attributes:
        orders: heeded at once by this server, and within seconds by the others; whatever has become
            of the mail.
        attributes: of the mail: kept with it when it comes again, for all of its recipients. At the
            end of DATA they come before what rules set.

    Raises:
        WrongUse: an attribute is not the hooks' to set.
    """

    decision: D
    orders: tuple[HookOrder, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, text in self.attributes.items():
            if not name or name.lower().startswith(_OWN_NAMES):
                mend = f"Take a name that begins neither with {' nor with '.join(_OWN_NAMES)}"
                raise WrongUse(f"{name!r} is no attribute that a hook may set", mend=f"{mend}.")
            if not isinstance(text, str):
                raise WrongUse(f"the attribute {name!r} is no text", mend="Write it as text.")


def _refuse_time(lasts: timedelta) -> None:
    if not timedelta(0) <= lasts <= ORDER_MAX:
        raise WrongUse(f"{lasts} is no time for which something may be ordered", mend=f"At most {ORDER_MAX.days} days.")


def _texts(values: Mapping[PickupField, Sequence[str]]) -> PatternTexts:
    for texts in values.values():
        if isinstance(texts, str) or not texts:
            raise WrongUse(f"{texts!r} is no list of values", mend="Write it like ('example.org',).")
    return {named.value: tuple(sorted(set(texts))) for named, texts in values.items()}


PreDelivery = Callable[
    [HookedRecipient], PreDecision | HookResult[PreDecision] | Awaitable[PreDecision | HookResult[PreDecision]]
]
"""A hook before each attempt: a function or a coroutine function."""

PostDelivery = Callable[
    [HookedAttempt], PostDecision | HookResult[PostDecision] | Awaitable[PostDecision | HookResult[PostDecision]]
]
"""A hook after each attempt: a function or a coroutine function."""

EndOfData = Callable[
    [HookedArrival],
    ArrivalDecision | HookResult[ArrivalDecision] | Awaitable[ArrivalDecision | HookResult[ArrivalDecision]],
]
"""A hook behind the content of a mail that comes in: a function or a coroutine function."""

AskedAtArrival = Callable[[HookedArrival], Awaitable[HookResult[ArrivalDecision]]]
"""Asks the hook; one that fails refuses the mail for now."""
