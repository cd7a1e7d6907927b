"""What is said to a server about a mail, by what it offers: MAIL, RCPT, and the content.

Once the last line is on its way, a server that goes without a reply may have taken the mail: that
is uncertain, and said so. Before, it has not.

Source: RFC 5321 4.1, RFC 1870 (SIZE), RFC 6152 (8BITMIME), RFC 6531 and 6533 (SMTPUTF8), RFC 3461
(DSN), RFC 8689 (REQUIRETLS), RFC 6710 (MT-PRIORITY).
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.mail.encoding import (
    BLOCK_BYTES,
    CannotEncode,
    canonical_lines,
    fits,
    fitted,
    transparent_blocks,
)
from mailmend.delivery.mail.entries import DeliveryEntry, OutgoingMail
from mailmend.delivery.mail.notices import NoticeCondition
from mailmend.delivery.transports import StageTimeouts
from mailmend.model.grammar import ascii_domain

_REPLY_BYTES_MAX: Final = 32_768
_LINE: Final = re.compile(rb"([2-5][0-9]{2})(?:([ -])(.*))?", re.DOTALL)


class ReplyParser:
    """Replies out of bytes as they come; what is no reply of RFC 5321 counts as one of ours.

    Attributes:
        replies: those that are whole.
    """

    def __init__(self) -> None:
        self.replies: deque[SmtpReply] = deque()
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._code = b""
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._bytes += len(line)
            self._take(line.rstrip(b"\r\n"))
        if self._bytes + len(self._buffer) > _REPLY_BYTES_MAX:
            self._buffer.clear()
            self._refuse("too long")

    def _take(self, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if not found or (self._code and found[1] != self._code):
            self._refuse(line.decode("utf-8", "replace"))
            return
        self._code = found[1]
        self._lines.append(found[3] or b"")
        if found[2] != b"-":
            text = b"\n".join(self._lines).decode("utf-8", "replace")
            self._whole(SmtpReply.parsed(int(self._code), text))

    def _refuse(self, text: str) -> None:
        self._whole(SmtpReply(451, "4.5.0", f"the server answered what is no reply: {text}", ours=True))

    def _whole(self, reply: SmtpReply) -> None:
        self.replies.append(reply)
        self._lines = []
        self._code = b""
        self._bytes = 0


def refusing(reply: SmtpReply) -> SmtpReply:
    """The reply, where it takes nothing; one that does, and was not asked for, counts as a refusal for now."""
    if not reply.positive:
        return reply
    return SmtpReply(451, "4.5.0", f"the server answered what was not asked: {reply}", ours=True)


class ContentSender(asyncio.Protocol):
    """Sends a content over a connection, and reads the replies.

    It takes the place of the connection's protocol for that time.

    Attributes:
        intact: whether the connection can be used further.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parser = ReplyParser()
        self._lost = transport.is_closing()
        self._lost_by: Exception | None = None
        self._paused = False
        self._changed = asyncio.Event()
        self.intact = True

    async def send(self, lines: bytes, replies: int, timeouts: StageTimeouts) -> tuple[Sequence[SmtpReply], bool]:
        """Send the lines, and the one of one dot.

        Args:
            lines: as the mail has them: dots are added while they are sent.
            replies: how many the server owes.
            timeouts: `data` for each piece, `end` for each reply.

        Returns:
            That many replies, or what stands for them, and whether all lines were sent.
        """
        refusal = await self._sent(lines, timeouts.data)
        if refusal:
            return [refusal] * replies, False
        ends = [await self._end(timeouts.end) for _ in range(replies)]
        self.intact &= not self._parser.replies
        return ends, True

    async def _sent(self, lines: bytes, limit: timedelta) -> SmtpReply | None:
        """Send; None once all of it is on its way, else what became of it instead: then its end was not sent."""
        for block in transparent_blocks(lines):
            await self._changes(lambda: not self._paused or self._stopped, limit)
            if self._parser.replies:
                self.intact = False
                return refusing(self._parser.replies.popleft())
            if self._lost or self._paused:
                return self._silence("before the end of the mail")
            self._transport.write(block)
        return None

    async def _end(self, limit: timedelta) -> SmtpReply:
        await self._changes(lambda: self._stopped, limit)
        if not self._parser.replies:
            return self._silence("after the end of the mail: the server may have taken it")
        reply = self._parser.replies.popleft()
        self.intact &= not reply.closes and not reply.ours
        return reply

    def _silence(self, when: str) -> SmtpReply:
        """What stands for the reply of a server that gives none; the connection is of no more use."""
        self.intact = False
        text = f"the server took too long {when}"
        if self._lost:
            text = f"the connection was lost {when}"
        if self._lost_by:
            text += f" ({self._lost_by})"
        return SmtpReply(451, "4.4.2", text, ours=True)

    @property
    def _stopped(self) -> bool:
        return self._lost or bool(self._parser.replies)

    async def _changes(self, condition: Callable[[], bool], limit: timedelta) -> None:
        """Wait until it holds, or for that long."""
        if condition():
            return
        try:
            async with asyncio.timeout(limit.total_seconds()):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._lost_by = exc
        self.intact = False
        self._changed.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._changed.set()


# A local part, quoted or not, and a domain, which postmaster alone does without. Nothing that ends a command.
_ADDRESS: Final = re.compile(
    r"""(?P<local>"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"|[^\s"<>@\x00-\x1f\x7f]+)"""
    r"""(?:@(?P<domain>[^\s"<>@\x00-\x1f\x7f]+))?"""
)
_XTEXT_CODED: Final = re.compile(r"[^!-*,-<>-~]")
_UTF8_XTEXT_CODED: Final = re.compile(r"[^!-*,-<>-\[\]-~]")
_DIGITS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class ServerExtensions:
    """What a server said to EHLO or LHLO.

    Attributes:
        keywords: in small letters, with their parameters.
    """

    keywords: Mapping[str, str]

    def __contains__(self, keyword: str) -> bool:
        return keyword.lower() in self.keywords

    @property
    def size_max_bytes(self) -> int | None:
        """The largest mail that it takes; None where it does not say."""
        stated = self.keywords.get("size", "").strip()
        if not stated.isascii() or not stated.isdigit() or len(stated) > _DIGITS_MAX:
            return None
        return int(stated) or None  # SIZE=0 is no limit (RFC 1870)


CommandWords = tuple[bytes, ...]
"""A command, word by word."""


def lines_of(content: bytes) -> bytes:
    """The content as SMTP has it: every line ends with CR and LF, whatever ended it before, the last one too."""
    lines = canonical_lines(content)
    if lines and not lines.endswith(b"\r\n"):
        lines += b"\r\n"
    return lines


def goes_as_it_is(content: bytes, offered: ServerExtensions) -> bool:
    """Whether a content of one block needs no other form; False for all that are larger."""
    if len(content) > BLOCK_BYTES or lines_of(content) is not content:
        return False
    return fits(content, eight_bit="8bitmime" in offered)


def transparent(lines: bytes) -> bytes:
    """The lines as they are sent after DATA, with the line of one dot that ends them (RFC 5321 4.5.2)."""
    return b"".join(transparent_blocks(lines))


def refused_without_tls(mail: OutgoingMail, offered: ServerExtensions, *, secured: bool) -> SmtpReply | None:
    """What stands for a server that cannot be trusted with a mail that requires TLS; None where it can be."""
    if not mail.requires_tls or (secured and "requiretls" in offered):
        return None
    return tls_required("the server does not offer REQUIRETLS")


def tls_required(why: str) -> SmtpReply:
    """For good: a mail that requires TLS never goes another way (RFC 8689)."""
    return _refusal(550, "5.7.30", f"the mail requires TLS (REQUIRETLS): {why}")


async def fitted_lines(lines: bytes, offered: ServerExtensions) -> bytes | SmtpReply:
    """The content as this server takes it: 8-bit bytes and too long lines are encoded where they have to be.

    Returns:
        A reply where the mail must not be altered, which stands for one of the server.
    """
    eight_bit = "8bitmime" in offered
    if fits(lines, eight_bit=eight_bit):
        return lines
    try:
        return await asyncio.to_thread(fitted, lines, eight_bit=eight_bit)
    except CannotEncode as error:
        code = 554
        if error.status == "5.6.7":
            code = 550
        return _refusal(code, error.status, error.what)


def commands_for(
    mail: OutgoingMail, recipients: Sequence[DeliveryEntry], lines: bytes, offered: ServerExtensions
) -> tuple[CommandWords, Sequence[CommandWords | SmtpReply]] | SmtpReply:
    """The commands for the mail; a reply of ours, in place of the server's, where the server cannot take the mail.

    Returns:
        MAIL, and RCPT by recipient; a reply stands for a recipient that cannot be written.
    """
    size = len(lines)
    size_max = offered.size_max_bytes
    if size_max is not None and size > size_max:
        return _refusal(552, "5.3.4", f"the mail has {size} bytes, and the server takes {size_max} at most")
    addresses = [mail.sender or "", *(entry.recipient for entry in recipients)]
    international = mail.is_international or any(not _local_of(address).isascii() for address in addresses)
    if international and "smtputf8" not in offered:
        return _refusal(550, "5.6.7", "the mail needs SMTPUTF8, which the server does not offer")
    sender: bytes | None = b""
    if mail.sender:
        sender = _written(mail.sender, international=international)
    if sender is None:
        return _refusal(553, "5.1.7", "the sender's address is not valid")
    words = (b"MAIL", b"FROM:<" + sender + b">", *_mail_parameters(mail, lines, offered, international=international))
    return words, [_recipient_words(entry, offered, international=international) for entry in recipients]


def _recipient_words(
    entry: DeliveryEntry, offered: ServerExtensions, *, international: bool
) -> CommandWords | SmtpReply:
    written = _written(entry.recipient, international=international)
    if written is None:
        return _refusal(553, "5.1.3", "the recipient's address is not valid")
    return (b"RCPT", b"TO:<" + written + b">", *_recipient_parameters(entry, offered))


def _mail_parameters(
    mail: OutgoingMail, lines: bytes, offered: ServerExtensions, *, international: bool
) -> Iterable[bytes]:
    if "size" in offered:
        yield f"SIZE={len(lines)}".encode()
    if not lines.isascii():
        yield b"BODY=8BITMIME"
    if international:
        yield b"SMTPUTF8"
    if mail.requires_tls:
        yield b"REQUIRETLS"
    if mail.priority is not None and "mt-priority" in offered:
        yield f"MT-PRIORITY={mail.priority}".encode()
    if "dsn" in offered:
        if mail.returned:
            yield f"RET={mail.returned.value}".encode()
        if mail.envelope_id and mail.envelope_id.isascii():
            yield b"ENVID=" + _xtext(mail.envelope_id)


def _recipient_parameters(entry: DeliveryEntry, offered: ServerExtensions) -> Iterable[bytes]:
    if "dsn" not in offered:
        return
    conditions = entry.notify or frozenset[NoticeCondition]()
    if NoticeCondition.NEVER in conditions:  # goes with no other word
        yield b"NOTIFY=NEVER"
    elif conditions:
        words = [condition.value for condition in NoticeCondition if condition in conditions]
        yield f"NOTIFY={','.join(words)}".encode()
    kind, _, address = entry.original.partition(";")
    if address and address.isascii() and re.fullmatch(r"[A-Za-z0-9-]+", kind):
        yield b"ORCPT=" + kind.encode() + b";" + _xtext(address)
    elif address and "smtputf8" in offered:
        yield b"ORCPT=utf-8;" + _utf8_xtext(address)


def _written(address: str, *, international: bool) -> bytes | None:
    """The address in the form of a command; None where it is not an address."""
    found = _ADDRESS.fullmatch(address)
    if not found:
        return None
    local = found["local"]
    domain = found["domain"]
    if domain is None or domain.startswith("["):
        if not address.isascii():
            return None
        return address.encode()
    name = ascii_domain(domain)
    if name is None:
        return None
    if international or domain.isascii():
        return f"{local}@{domain}".encode()
    return f"{local}@{name}".encode()


def _local_of(address: str) -> str:
    return address.rpartition("@")[0] or address


def _xtext(text: str) -> bytes:
    return _XTEXT_CODED.sub(lambda found: f"+{ord(found[0]):02X}", text).encode()


def _utf8_xtext(text: str) -> bytes:
    r"""As RFC 6533 3 writes it where commands have to be ASCII: `\x{E4}`."""
    return _UTF8_XTEXT_CODED.sub(lambda found: f"\\x{{{ord(found[0]):02X}}}", text).encode()


def _refusal(code: int, enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(code, enhanced, text, ours=True)
