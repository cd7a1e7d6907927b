"""One attempt to deliver one mail to one server: what is asked, what becomes of each recipient, and what is journalled.

An attempt ends with exactly one result for each recipient, whatever the server does. A recipient counts as delivered
only where the server took the mail: by a 2yz reply to the end of its content.

An attempt is written down before the content of its mail can go, and its outcome before the mail leaves the queue. What
has begun and has no outcome is uncertain: the server may have the mail.

Source: RFC 5321 (replies, stages and their time limits), RFC 3463 (enhanced status codes), RFC 3461 (what senders ask
for), RFC 2033 (LMTP), RFC 1047 (mails that go twice as an answer was lost), docs/adr/0040.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol, Self
from uuid import UUID

from mailmend.delivery.mail.entries import DeliveryEntry, EntryEnd, EntryId, OutgoingMail
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.transports import (
    ConnectionReuse,
    ContentSigner,
    DeliveryProtocol,
    SmtpLogin,
    SourceAddress,
    StageTimeouts,
    TlsLevel,
)
from mailmend.model.errors import MailmendError
from mailmend.model.grammar import host_and_port
from mailmend.model.ids import EnqueueId, micros_of
from mailmend.model.instants import instant_of
from mailmend.model.texts import noted

SMTP_PORT: Final = 25

_ENHANCED: Final = re.compile(r"([245]\.[0-9]{1,3}\.[0-9]{1,3})(?:\s+|$)")
_CODES: Final = range(200, 600)
_POSITIVE: Final = range(200, 300)
_PERMANENT: Final = range(500, 600)
_CLOSING: Final = 421
_TEXT_BYTES_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class SmtpReply:
    """The reply of a server, or our own reply where the server gave no usable one.

    All words of other hosts come in by this door: replies, errors of TLS, names in certificates. Whatever bytes a
    server sends, a reply is a text that every store can keep, of at most 2 KiB: it never decides over its mail.

    Attributes:
        code: of three digits.
        enhanced: as `5.1.1`; "" where the server gave none.
        text: without the codes; the lines of a reply of several are joined with blanks. Bytes that are not UTF-8 are
            U+FFFD, a long text is cut.
        ours: whether no server said it.
    """

    code: int
    enhanced: str
    text: str
    ours: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", noted(self.text, _TEXT_BYTES_MAX))

    @classmethod
    def parsed(cls, code: int, text: str) -> Self:
        """Of a server's code and text. What is no reply of RFC 5321 counts as one that refuses for now."""
        lines = text.splitlines()
        found = _ENHANCED.match(text)
        enhanced = ""
        if found and found[1][0] == str(code)[0]:
            enhanced = found[1]
            lines = [line.removeprefix(enhanced).lstrip() for line in lines]
        joined = " ".join(filter(None, (line.strip() for line in lines)))
        if code not in _CODES:
            said = text
            if code >= 0:
                said = f"{code} {text}"
            return cls(451, "4.5.0", f"the server answered what is no reply: {said}".rstrip(), ours=True)
        return cls(code, enhanced, joined)

    @property
    def positive(self) -> bool:
        """Whether it takes what was asked for: 2yz."""
        return self.code in _POSITIVE

    @property
    def permanent(self) -> bool:
        """Whether asking again is of no use: 5yz."""
        return self.code in _PERMANENT

    @property
    def temporary(self) -> bool:
        """Whether it may pass with another attempt: whatever is neither 2yz nor 5yz."""
        return not self.positive and not self.permanent

    @property
    def closes(self) -> bool:
        """Whether the server ends the connection with it, whatever was asked: 421."""
        return self.code == _CLOSING

    @property
    def status(self) -> str:
        """An enhanced status code in any case: the server's, else `X.0.0` of its code."""
        if self.enhanced:
            return self.enhanced
        if self.positive:
            return "2.0.0"
        if self.permanent:
            return "5.0.0"
        return "4.0.0"

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.code), self.enhanced, self.text)))


class AttemptStage(Enum):
    """How far an attempt got; the value is its name in logs and metrics."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    GREETING = "greeting"  # until the answer to EHLO, HELO or LHLO
    MAIL = "mail"
    RECIPIENT = "recipient"
    DATA = "data"  # the command, the content, and the answer to its end


@dataclass(frozen=True, slots=True)
class NextHop:
    """A server at one of its addresses.

    Attributes:
        host: its name, which its certificate is held against; the address, where it has none.
        address: IPv4 or IPv6, as text without brackets.
        preference: of its MX record; the lower ones are tried first.
    """

    host: str
    address: str
    port: int = SMTP_PORT
    preference: int = 0

    def __str__(self) -> str:
        if self.host != self.address:
            return f"{self.host}[{self.address}]:{self.port}"
        return host_and_port(self.address, self.port)


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One mail, and the server that it is handed to for some of its recipients.

    Attributes:
        mail: its sender, and what the sender asked for, are said to the server.
        recipients: at least one.
        reuse: of its connection; None: as the relay has it for all attempts.
        login: as whom the mail is handed over; None: as no user.
        signer: None: the mail goes as it is.
    """

    mail: OutgoingMail
    recipients: tuple[DeliveryEntry, ...]
    hop: NextHop
    source: SourceAddress = field(default_factory=SourceAddress)
    tls: TlsLevel = TlsLevel.OPTIONAL
    protocol: DeliveryProtocol = DeliveryProtocol.SMTP
    timeouts: StageTimeouts = field(default_factory=StageTimeouts)
    reuse: ConnectionReuse | None = None
    login: SmtpLogin | None = None
    signer: ContentSigner | None = None


BeforeContent = Callable[[], Awaitable[None]]
"""What is waited for once a server would take the content of a mail; where it raises, none of it is sent."""


async def at_once() -> None:
    """Let the content follow."""


@dataclass(frozen=True, slots=True)
class RecipientResult:
    """What became of one recipient.

    Attributes:
        recipient: the address, as in the attempt.
        delivered: whether the server took the mail for it.
        stage: at which the reply came, or should have come.
        host: the server that was tried, by name; "" where none was known.
        uncertain: whether the server may have taken the mail all the same: all of it was sent, and no reply came.
        tells: whether the server reports to the sender what becomes of the mail, as the sender asked (it offers DSN).
        tls: the version of TLS, as `TLSv1.3`; "" where the connection was not secured.
    """

    recipient: str
    delivered: bool
    reply: SmtpReply
    stage: AttemptStage
    host: str = ""
    uncertain: bool = False
    tells: bool = False
    tls: str = ""

    def __post_init__(self) -> None:
        assert self.delivered == (self.reply.positive and self.stage is AttemptStage.DATA)
        assert not (self.delivered and (self.uncertain or self.reply.ours))


class NoNextHop(MailmendError):
    """No server is known that takes mail for a domain.

    Attributes:
        reply: instead of a server's reply: permanent where the domain takes no mail, temporary where DNS failed.
    """

    def __init__(self, domain: str, reply: SmtpReply) -> None:
        super().__init__(f"no server is known for {domain}: {reply.text}")
        self.domain = domain
        self.reply = reply


class NextHops(Protocol):
    """Which servers take mail for a domain. Adapters: `DnsNextHops`, and a table in tests."""

    async def of(self, domain: str) -> Sequence[NextHop]:
        """The servers, at least one, in the order in which they are to be tried.

        Raises:
            NoNextHop: there is no next hop, or it cannot be known now; its reply tells which.
        """
        ...


class MailRelay(Protocol):
    """Attempts to deliver. Adapters: `delivery.smtp.outgoing.relay.SmtpRelay`, and a twin in tests."""

    async def deliver(
        self, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent = at_once
    ) -> Sequence[RecipientResult]:
        """Hand one mail to one server; one result for each recipient, in order. Raises what `before_content` does."""
        ...

    async def close(self) -> None:
        """End the connections that are kept open."""
        ...


class AttemptOutcome(Enum):
    """What came of an attempt, or what a hook made of that; the value is its name in rows."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # for now
    FAILED = "failed"
    RETURNED = "returned"  # not to the end: another server is tried, or it comes again, and no retry is counted


OUTCOMES: Final[Mapping[EntryEnd, AttemptOutcome]] = MappingProxyType(
    {
        EntryEnd.DELIVERED: AttemptOutcome.DELIVERED,
        EntryEnd.REFUSED: AttemptOutcome.REFUSED,
        EntryEnd.FAILED: AttemptOutcome.FAILED,
        EntryEnd.EXPIRED: AttemptOutcome.FAILED,
        EntryEnd.DELETED: AttemptOutcome.FAILED,
        EntryEnd.RETURNED: AttemptOutcome.RETURNED,
    }
)

ENDS: Final[Mapping[AttemptOutcome, EntryEnd]] = MappingProxyType(
    {
        AttemptOutcome.DELIVERED: EntryEnd.DELIVERED,
        AttemptOutcome.REFUSED: EntryEnd.REFUSED,
        AttemptOutcome.FAILED: EntryEnd.FAILED,
        AttemptOutcome.RETURNED: EntryEnd.RETURNED,
    }
)


class UncertainPolicy(Enum):
    """What becomes of a recipient whose server may have the mail; the value is its name in settings."""

    RETRY = "retry"  # it is tried again, and may get the mail twice
    HOLD = "hold"  # a person decides
    ASSUME = "assume"  # it counts as delivered, and may never have got the mail

    @property
    def doubles(self) -> bool:
        """Whether a recipient may get a mail twice."""
        return self is UncertainPolicy.RETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledAttempt:
    """One attempt to hand one recipient's mail to one server. It names no person, and no words of a server.

    Attributes:
        entry: the recipient, by the first id of its mail.
        mail: the passage of the mail through its queue.
        id: its time is when the attempt began.
        fields: what policies counted it by, as far as it had them, with the address that it came from.
        sources: the addresses that it could have come from.
        host: the server that was tried, by name.
        server: the process that tried.
        ready_at: since when it could be picked.
        outcome: None: none is known.
        stage: how far it got; None while it goes on.
        status: an enhanced status code; "" while it goes on.
        reply_class: of the status; "" where it gives no class. The ledger does not keep it.
    """

    entry: EntryId
    mail: EnqueueId
    id: UUID
    fields: Mapping[PickupField, str]
    sources: tuple[str, ...]
    host: str
    content_bytes: int
    urgent: bool
    server: str
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    stage: AttemptStage | None = None
    status: str = ""
    reply_class: str = ""

    @property
    def started_at(self) -> datetime:
        return instant_of(micros_of(self.id))

    @property
    def doubt(self) -> str:
        """Who may have the mail, for people."""
        address = self.fields.get(PickupField.REMOTE_IP)
        known = self.host
        if address and address != self.host:
            known = f"{self.host} [{address}]"
        began = f"{self.started_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"{known} may have the mail: an attempt of {began} has no known outcome (by {self.server})"


def decisive(attempts: Iterable[JournalledAttempt], passage: EnqueueId) -> JournalledAttempt | None:
    """The attempt that says what becomes of a recipient whose mail comes again.

    A delivery decides in whichever passage through the queue it was made: a server that was killed while it put a
    recipient off may leave it in two passages. Apart from that only attempts of the same passage decide.

    Args:
        attempts: the recipient's attempts, in their order.
        passage: the mail's present one.

    Returns:
        One that delivered the mail, else the last one; None where there is no attempt, or it came
        to nothing.
    """
    last: JournalledAttempt | None = None
    for attempt in attempts:
        if attempt.outcome is AttemptOutcome.DELIVERED:
            return attempt
        if attempt.mail == passage:
            last = attempt
    if last and last.outcome is AttemptOutcome.RETURNED:
        return None
    return last
