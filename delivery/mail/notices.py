"""What senders are told of their mails: delivery status notifications, as text.

Which there are depends on what the sender asked for (NOTIFY) and on the mail: a mail without a sender has none, so no
sender is ever notified about one; a postmaster may be. How much of the mail comes back depends on RET, and on its size.

A report never has the fault that it is about. Every report is 7 bit with short lines. Where the form, the size or the
content of the mail was refused, only its header comes back.
Source: RFC 3461 (NOTIFY, RET, ENVID, ORCPT), RFC 3464 (the report), RFC 6533 (addresses in UTF-8).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from enum import Enum
from typing import Final

from mailmend.delivery.mail.encoding import CannotEncode, fits, fitted, quoted

RETURNED_BYTES_MAX: Final = 65_536
"""Where the sender did not ask for all of a mail, a longer one comes back as its header alone."""

_TEXT_MAX: Final = 900
"""Characters of one field: RFC 5322 allows lines of 998."""

_EXPIRED_STATUS: Final = "4.4.7"

HEADER_BYTES_MAX: Final = 65_536
"""The largest part of a header that comes back."""

_CONTENT_STATUS: Final = re.compile(r"[45]\.(?:6\.[0-9]+|2\.3|3\.4|7\.30)")
_CONTENT_CODE: Final = re.compile(r"55[24]\b")
_CONTENT_WORDS: Final = re.compile(
    r"8.?bit|smtputf8|utf-?8|mime|encod|\bbits?\b|\blines?\b|length|too (?:long|large|big)|\bsize|octets|"
    r"spam|virus|malware|phish|content|attachment|header|format|bare (?:cr|lf)|blocked|reject(?:ed)? by|policy",
    re.IGNORECASE,
)
"""What a refusal of a mail says that is not about its recipient."""


_UNPLAIN: Final = re.compile(r"[^!-*,-<>-\[\]-~]")
"""What an address of the type utf-8 holds as a number: all but visible ASCII, and three signs."""


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


class ReportReader(Enum):
    """Who is told that a report could not be delivered; the value is its name in metrics."""

    POSTMASTER = "postmaster"
    NOBODY = "nobody"


class ReturnedPart(Enum):
    """How much of a mail comes back in a report of a failure; the value is its word in RET."""

    FULL = "FULL"
    HEADER = "HDRS"


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

    @property
    def concerns_content(self) -> bool:
        """Whether the form, the size or the content of the mail was the fault: a report must not repeat that."""
        said = f"{self.reply} {self.why}"
        if _CONTENT_STATUS.fullmatch(self.status) or _CONTENT_CODE.match(self.reply):
            return True
        return self.kind is NoticeKind.FAILED and _CONTENT_WORDS.search(said) is not None

    def fields(self) -> Iterable[tuple[str, str]]:
        """The fields of the report about this recipient."""
        if self.original:
            yield "Original-Recipient", self.original
        yield "Final-Recipient", _typed_address(self.recipient)
        yield "Action", self.kind.value
        if self.expired:
            yield "Status", _EXPIRED_STATUS
        else:
            yield "Status", self.status
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
        envelope_id: the sender's own id of the mail (ENVID); "" without one.
        arrived_at: when the mail was first seen.
        content: of the mail that is reported on.
        returned: how much of that is to come back; None where the sender did not say.
        written_at: the date of the report.
        token: letters and digits that no other report has.
        to_postmaster: whether the mail has no sender, and `sender` is the postmaster of this host.
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
    to_postmaster: bool = False

    def rendered(self) -> bytes:
        """The report as a mail: header, blank line, body; 7 bit, and its lines end with CR and LF."""
        kind, encoding, returned = self._returned()
        boundary = self._boundary(returned)
        head = [
            f"From: Mail Delivery System <MAILER-DAEMON@{self.reporter}>",
            f"To: <{self.sender}>",
            f"Subject: {self._subject}",
            f"Date: {format_datetime(self.written_at)}",
            f"Message-ID: <{self.token}@{self.reporter}>",
            "Auto-Submitted: auto-replied",
            "MIME-Version: 1.0",
            f'Content-Type: multipart/report; report-type=delivery-status; boundary="{boundary}"',
            "Content-Transfer-Encoding: 7bit",
        ]
        parts = (
            _text_part(self._text()),
            _lines(["Content-Type: message/delivery-status", "", *self._report()]),
            _lines([f"Content-Type: {kind}", f"Content-Transfer-Encoding: {encoding}", ""]) + returned,
        )
        delimited = b"".join(f"--{boundary}\r\n".encode() + part + b"\r\n" for part in parts)
        return _lines([*head, ""]) + delimited + f"--{boundary}--\r\n".encode()

    @property
    def _worst(self) -> NoticeKind:
        return min((recipient.kind for recipient in self.recipients), key=list(NoticeKind).index)

    @property
    def _subject(self) -> str:
        if self.to_postmaster:
            return "A report could not be delivered"
        return _SUBJECTS[self._worst]

    @property
    def _returns_all(self) -> bool:
        if self._worst is not NoticeKind.FAILED or self.returned is ReturnedPart.HEADER:
            return False
        if any(recipient.concerns_content for recipient in self.recipients):
            return False
        return self.returned is ReturnedPart.FULL or len(self.content) <= RETURNED_BYTES_MAX

    def _returned(self) -> tuple[str, str, bytes]:
        """The type, the encoding and the bytes of what comes back: all of the mail, or its header."""
        if self._returns_all:
            whole = _seven_bit(self.content)
            if whole is not None:
                return "message/rfc822", "7bit", whole
        end = HEADER_BYTES_MAX
        for gap in (b"\r\n\r\n", b"\n\n"):
            at = self.content.find(gap, 0, HEADER_BYTES_MAX)
            if at >= 0:
                end = min(end, at)
        header = self.content[:end] + b"\r\n"
        if fits(header, eight_bit=False):
            return "text/rfc822-headers", "7bit", header
        return "text/rfc822-headers", "quoted-printable", quoted(header)

    def _boundary(self, returned: bytes) -> str:
        boundary = f"report-{self.token}"
        while boundary.encode() in returned:
            boundary += "-"
        return boundary

    def _text(self) -> Iterable[str]:
        if self.to_postmaster:
            yield (
                f"This is the mail system at {self.reporter}. The sender of a mail could not be told what became of it."
            )
            yield "A report, or another mail without a sender, was not taken, or no queue takes the sender's address."
            yield "What is attached shows which mail."
        else:
            yield f"This is the mail system at {self.reporter}, about a mail from you. What is attached shows which."
        for kind in NoticeKind:
            some = [recipient for recipient in self.recipients if recipient.kind is kind]
            if some:
                yield from ("", kind.sentence, "")
                for notice in some:
                    yield from notice.lines()

    def _report(self) -> Iterable[str]:
        if self.envelope_id:
            yield f"Original-Envelope-Id: {self.envelope_id}"
        yield f"Reporting-MTA: dns; {self.reporter}"
        yield f"Arrival-Date: {format_datetime(self.arrived_at)}"
        for recipient in self.recipients:
            yield ""
            for name, text in recipient.fields():
                yield f"{name}: {text}"


def _text_part(lines: Iterable[str]) -> bytes:
    """The part for people: in ASCII, or as quoted-printable UTF-8 where a server or a sender wrote something else."""
    texts = [_printable(line) for line in lines]
    if all(map(str.isascii, texts)):
        return _lines(["Content-Type: text/plain; charset=us-ascii", "", *texts])
    head = ["Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: quoted-printable", ""]
    return _lines(head) + quoted("\r\n".join([*texts, ""]).encode("utf-8", "replace"))


def _seven_bit(content: bytes) -> bytes | None:
    """A mail that can be part of a report; None where that would alter what must not be."""
    if fits(content, eight_bit=False):
        return content
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
    try:
        return fitted(lines, eight_bit=False)
    except CannotEncode:
        return None


def _lines(texts: Iterable[str]) -> bytes:
    """Lines of ASCII, whatever a server or a sender wrote."""
    return "".join(f"{_printable(text)}\r\n" for text in texts).encode("ascii", "replace")


def _printable(line: str) -> str:
    """One line, whatever a server or a sender wrote."""
    return "".join(char if char.isprintable() else " " for char in line)[:_TEXT_MAX]


def _typed_address(address: str) -> str:
    """An address behind its type; one that is not ASCII keeps each such character, as a number."""
    if address.isascii():
        return f"rfc822; {address}"
    return "utf-8; " + _UNPLAIN.sub(lambda found: f"\\x{{{ord(found[0]):02X}}}", address)
