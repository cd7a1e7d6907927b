"""What is said to a server about a mail, by what the server offers: the words of MAIL and RCPT, and the content.

Source: RFC 5321 4.1, RFC 1870 (SIZE), RFC 6152 (8BITMIME), RFC 6531 and 6533 (SMTPUTF8), RFC 3461 (DSN), RFC 8689
(REQUIRETLS), RFC 6710 (MT-PRIORITY).
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mailmend.delivery.mail.attempts import EnvelopeRecipient, MailEnvelope, SmtpReply
from mailmend.delivery.mail.encoding import CannotEncode, fits, fitted
from mailmend.delivery.mail.mail_lines import canonical_lines, transparent_blocks
from mailmend.delivery.mail.notices import NoticeCondition
from mailmend.model.grammar import ascii_domain

# A local part, quoted or not, and a domain, which postmaster alone does without. Nothing that ends a command.
_ADDRESS: Final = re.compile(
    r"""(?P<local>"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"|[^\s"<>@\x00-\x1f\x7f]+)"""
    r"""(?:@(?P<domain>[^\s"<>@\x00-\x1f\x7f]+))?"""
)
_XTEXT_PLAIN: Final = re.compile(r"[!-*,-<>-~]")
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
        return int(stated) or None if stated.isascii() and stated.isdigit() and len(stated) <= _DIGITS_MAX else None


@dataclass(frozen=True, slots=True)
class MailCommands:
    """The words of MAIL, and of RCPT by recipient; a reply stands for a recipient that cannot be written."""

    mail: tuple[bytes, ...]
    recipients: Sequence[tuple[bytes, ...] | SmtpReply]


def lines_of(content: bytes) -> bytes:
    """The content as SMTP has it: every line ends with CR and LF, whatever ended it before, the last one too."""
    lines = canonical_lines(content)
    return lines if lines.endswith(b"\r\n") or not lines else lines + b"\r\n"


def transparent(lines: bytes) -> bytes:
    """The lines as they are sent after DATA, with the line of one dot that ends them (RFC 5321 4.5.2)."""
    return b"".join(transparent_blocks(lines))


def refused_without_tls(envelope: MailEnvelope, offered: ServerExtensions, *, secured: bool) -> SmtpReply | None:
    """What stands for a server that cannot be trusted with a mail that requires TLS; None where it can be."""
    if not envelope.requires_tls or (secured and "requiretls" in offered):
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
        code = 550 if error.status == "5.6.7" else 554
        return _refusal(code, error.status, error.what)


def commands_for(envelope: MailEnvelope, lines: bytes, offered: ServerExtensions) -> MailCommands | SmtpReply:
    """What is to be said; a reply where this server cannot be given this mail, which stands for one of the server."""
    size = len(lines)
    size_max = offered.size_max_bytes
    if size_max is not None and size > size_max:
        return _refusal(552, "5.3.4", f"the mail has {size} bytes, and the server takes {size_max} at most")
    addresses = [envelope.sender or "", *(recipient.address for recipient in envelope.recipients)]
    international = envelope.is_international or any(not _local_of(address).isascii() for address in addresses)
    if international and "smtputf8" not in offered:
        return _refusal(550, "5.6.7", "the mail needs SMTPUTF8, which the server does not offer")
    sender = _written(envelope.sender, international=international) if envelope.sender else b""
    if sender is None:
        return _refusal(553, "5.1.7", "the sender's address is not valid")
    mail = (
        b"MAIL",
        b"FROM:<" + sender + b">",
        *_mail_parameters(envelope, lines, offered, international=international),
    )
    return MailCommands(
        mail, [_recipient_words(recipient, offered, international=international) for recipient in envelope.recipients]
    )


def _recipient_words(
    recipient: EnvelopeRecipient, offered: ServerExtensions, *, international: bool
) -> tuple[bytes, ...] | SmtpReply:
    written = _written(recipient.address, international=international)
    if written is None:
        return _refusal(553, "5.1.3", "the recipient's address is not valid")
    return (b"RCPT", b"TO:<" + written + b">", *_recipient_parameters(recipient, offered))


def _mail_parameters(
    envelope: MailEnvelope, lines: bytes, offered: ServerExtensions, *, international: bool
) -> Iterable[bytes]:
    if "size" in offered:
        yield f"SIZE={len(lines)}".encode()
    if not lines.isascii():
        yield b"BODY=8BITMIME"
    if international:
        yield b"SMTPUTF8"
    if envelope.requires_tls:
        yield b"REQUIRETLS"
    if envelope.priority is not None and "mt-priority" in offered:
        yield f"MT-PRIORITY={envelope.priority}".encode()
    if "dsn" in offered:
        if envelope.returned:
            yield f"RET={envelope.returned.value}".encode()
        if envelope.envelope_id and envelope.envelope_id.isascii():
            yield b"ENVID=" + _xtext(envelope.envelope_id)


def _recipient_parameters(recipient: EnvelopeRecipient, offered: ServerExtensions) -> Iterable[bytes]:
    if "dsn" not in offered:
        return
    conditions = recipient.wish.conditions
    if conditions:
        never = NoticeCondition.NEVER in conditions  # goes with no other word
        words = [
            condition.value
            for condition in NoticeCondition
            if condition in conditions and (condition is NoticeCondition.NEVER) == never
        ]
        yield f"NOTIFY={','.join(words)}".encode()
    kind, _, address = recipient.wish.original.partition(";")
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
        return address.encode() if address.isascii() else None
    name = ascii_domain(domain)
    if name is None:
        return None
    return f"{local}@{domain if international or domain.isascii() else name}".encode()


def _local_of(address: str) -> str:
    return address.rpartition("@")[0] or address


def _xtext(text: str) -> bytes:
    return "".join(
        character if _XTEXT_PLAIN.fullmatch(character) else f"+{ord(character):02X}" for character in text
    ).encode()


def _utf8_xtext(text: str) -> bytes:
    r"""As RFC 6533 3 writes it where commands have to be ASCII: `\x{E4}`."""
    plain = (
        character if _XTEXT_PLAIN.fullmatch(character) and character != "\\" else f"\\x{{{ord(character):02X}}}"
        for character in text
    )
    return "".join(plain).encode()


def _refusal(code: int, enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(code, enhanced, text, ours=True)
