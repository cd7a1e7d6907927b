"""What senders are told of their mails: delivery status notifications, as text.

Which there are depends on what the sender asked for (NOTIFY) and on the mail: a mail without a sender has none, so no
notification is ever about one. How much of the mail comes back depends on RET, and on its size.
Source: RFC 3461 (NOTIFY, RET, ENVID, ORCPT), RFC 3464 (the report), facts/mta.md 4.10 (rule 36).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from enum import Enum
from typing import Final

RETURNED_BYTES_MAX: Final = 65_536
"""Where the sender did not ask for all of a mail, a longer one comes back as its header alone."""

_TEXT_MAX: Final = 900
"""Characters of one field: RFC 5322 allows lines of 998."""

_EXPIRED_STATUS: Final = "4.4.7"


class NoticeCondition(Enum):
    """When a sender wants to be told; the value is its word in NOTIFY."""

    NEVER = "NEVER"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    DELAY = "DELAY"


class NoticeKind(Enum):
    """What a sender is told of a recipient; the value is the report's Action."""

    FAILED = "failed"
    DELAYED = "delayed"
    RELAYED = "relayed"  # to a server that tells nothing itself
    DELIVERED = "delivered"

    @property
    def condition(self) -> NoticeCondition:
        match self:
            case NoticeKind.FAILED:
                return NoticeCondition.FAILURE
            case NoticeKind.DELAYED:
                return NoticeCondition.DELAY
            case NoticeKind.RELAYED | NoticeKind.DELIVERED:
                return NoticeCondition.SUCCESS

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SUBJECTS: Final = {
    NoticeKind.FAILED: "Your mail could not be delivered",
    NoticeKind.DELAYED: "Your mail is delayed",
    NoticeKind.RELAYED: "Your mail was passed on",
    NoticeKind.DELIVERED: "Your mail was delivered",
}
_SENTENCES: Final = {
    NoticeKind.FAILED: "It could not be delivered to these recipients, and is not tried again:",
    NoticeKind.DELAYED: "It could not be delivered to these recipients yet. It is tried again; nothing is to be done:",
    NoticeKind.RELAYED: "It was passed on to servers that may tell nothing further, for these recipients:",
    NoticeKind.DELIVERED: "It was delivered to these recipients:",
}


class ReturnedPart(Enum):
    """How much of a mail comes back in a report of a failure; the value is its word in RET."""

    FULL = "FULL"
    HEADER = "HDRS"


@dataclass(frozen=True, slots=True)
class NoticeWish:
    """What the sender asked for, for one recipient.

    Attributes:
        conditions: None where nothing was asked: failures and delays are told.
        original: the recipient as the sender wrote it, with the type of the address: `rfc822;bob@example.org`.
    """

    conditions: frozenset[NoticeCondition] | None = None
    original: str = ""

    def wants(self, kind: NoticeKind) -> bool:
        if self.conditions is None:
            return kind in {NoticeKind.FAILED, NoticeKind.DELAYED}
        return kind.condition in self.conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipientNotice:
    """What the sender is told of one recipient.

    Attributes:
        status: an enhanced status code, as `5.1.1`.
        reply: of the server, as it sent it; "" where none answered.
        host: the server; "" where none was reached.
        why: a sentence of ours, where there is no reply.
        expired: whether the mail failed by its age, or by the number of attempts.
        retry_until: how long it is tried, where it is delayed.
    """

    kind: NoticeKind
    recipient: str
    status: str
    original: str = ""
    reply: str = ""
    host: str = ""
    why: str = ""
    attempted_at: datetime | None = None
    retry_until: datetime | None = None
    expired: bool = False

    def fields(self) -> Iterable[tuple[str, str]]:
        """The fields of the report about this recipient."""
        if self.original:
            yield "Original-Recipient", self.original
        yield "Final-Recipient", f"rfc822; {self.recipient}"
        yield "Action", self.kind.value
        yield "Status", _EXPIRED_STATUS if self.expired else self.status
        if self.host:
            yield "Remote-MTA", f"dns; {self.host}"
        if self.reply:
            yield "Diagnostic-Code", f"smtp; {self.reply}"
        if self.attempted_at:
            yield "Last-Attempt-Date", format_datetime(self.attempted_at)
        if self.retry_until and self.kind is NoticeKind.DELAYED:
            yield "Will-Retry-Until", format_datetime(self.retry_until)

    def lines(self) -> Iterable[str]:
        """The lines for the person."""
        yield f"  {self.recipient}"
        if self.expired:
            yield "    it was tried for as long as it may be"
        if self.reply:
            yield f"    {self.host or 'the server'} said: {self.reply}"
        elif self.why:
            yield f"    {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNotification:
    """A report to the sender of a mail about some of its recipients.

    Attributes:
        sender: who is told.
        reporter: the name of this host, as others know it.
        envelope_id: the sender's own id of the mail (ENVID); "" where there is none.
        arrived_at: when the mail was first seen.
        content: of the mail that is reported on.
        returned: how much of that is to come back; None where the sender did not say.
        written_at: the date of the report.
        token: letters and digits that no other report has.
    """

    sender: str
    reporter: str
    recipients: Sequence[RecipientNotice]
    content: bytes
    arrived_at: datetime
    written_at: datetime
    token: str
    envelope_id: str = ""
    returned: ReturnedPart | None = None

    def rendered(self) -> bytes:
        """The report as a mail: header, blank line, body; its lines end with CR and LF."""
        returned, boundary = self._returned(), self._boundary()
        is_ascii = returned.isascii()
        encoding = "7bit" if is_ascii else "8bit"
        kind = "message/rfc822" if self._returns_all else "text/rfc822-headers"
        head = [
            f"From: Mail Delivery System <MAILER-DAEMON@{self.reporter}>",
            f"To: <{self.sender}>",
            f"Subject: {_SUBJECTS[self._worst]}",
            f"Date: {format_datetime(self.written_at)}",
            f"Message-ID: <{self.token}@{self.reporter}>",
            "Auto-Submitted: auto-replied",
            "MIME-Version: 1.0",
            f'Content-Type: multipart/report; report-type=delivery-status; boundary="{boundary}"',
            f"Content-Transfer-Encoding: {encoding}",
        ]
        parts = (
            (["Content-Type: text/plain; charset=us-ascii"], self._text()),
            (["Content-Type: message/delivery-status"], self._report()),
        )
        lines = [*head, ""]
        for header, body in parts:
            lines += [f"--{boundary}", *header, "", *body, ""]
        lines += [f"--{boundary}", f"Content-Type: {kind}", f"Content-Transfer-Encoding: {encoding}", "", ""]
        before = "\r\n".join(map(_safe, lines)).encode("ascii")
        return before + returned + f"\r\n--{boundary}--\r\n".encode()

    @property
    def _worst(self) -> NoticeKind:
        return min((one.kind for one in self.recipients), key=list(NoticeKind).index)

    @property
    def _returns_all(self) -> bool:
        if self._worst is not NoticeKind.FAILED or self.returned is ReturnedPart.HEADER:
            return False
        return self.returned is ReturnedPart.FULL or len(self.content) <= RETURNED_BYTES_MAX

    def _returned(self) -> bytes:
        if self._returns_all:
            return self.content
        ends = [at for gap in (b"\r\n\r\n", b"\n\n") if (at := self.content.find(gap)) >= 0]
        return self.content[: min(ends, default=len(self.content))] + b"\r\n"

    def _boundary(self) -> str:
        boundary = f"report-{self.token}"
        while boundary.encode() in self.content:
            boundary += "-"
        return boundary

    def _text(self) -> Iterable[str]:
        yield f"This is the mail system at {self.reporter}, about a mail from you. What is attached shows which."
        for kind in NoticeKind:
            some = [one for one in self.recipients if one.kind is kind]
            if some:
                yield from ("", kind.sentence, "")
                yield from (line for one in some for line in one.lines())

    def _report(self) -> Iterable[str]:
        if self.envelope_id:
            yield f"Original-Envelope-Id: {self.envelope_id}"
        yield f"Reporting-MTA: dns; {self.reporter}"
        yield f"Arrival-Date: {format_datetime(self.arrived_at)}"
        for one in self.recipients:
            yield ""
            yield from (f"{name}: {text}" for name, text in one.fields())


def _safe(line: str) -> str:
    """One line of ASCII, whatever a server or a sender wrote."""
    text = "".join(one if one.isprintable() else " " for one in line)
    return text.encode("ascii", "replace").decode()[:_TEXT_MAX]
