"""What a client says of a mail that it hands over, and the mail that becomes of it.

Addresses are those that a queue can hold: ASCII alone, so SMTPUTF8 is not offered. Source: RFC 5321
4.1.1 (paths), 4.4 (Received) and 6.3 (loops), RFC 1870 (SIZE), RFC 6152 (8BITMIME), RFC 3461 4
(RET, ENVID, NOTIFY, ORCPT).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.policy.incoming import IncomingField, IncomingValues
from mailmend.mailqueue.admission import is_address
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.rules.mails import Mail

RECEIVED_MAX: Final = 50
"""A mail with more of these header fields goes round in a circle."""

# One address in angle brackets, behind the route that once stood before it; then parameters.
_PATH: Final = re.compile(
    r"""\s*<(?:@[^:<>\s]+:)?(?P<address>(?:"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"|[^\s"<>\\\x00-\x1f\x7f])*)>"""
    r"""(?:[ \t]+(?P<parameters>.*))?"""
)
# Only what stands for printable characters: anything else could end a line of a report.
_XTEXT: Final = r"(?:[!-*,-<>-~]|\+(?:[2-6][0-9A-F]|7[0-9A-E]))"
_HEX: Final = re.compile(r"\+([0-9A-F]{2})")
_CONDITION: Final = r"(?:SUCCESS|FAILURE|DELAY)"
_MAIL_PARAMETERS: Final = {
    "SIZE": re.compile(r"=([0-9]{1,20})"),
    "BODY": re.compile(r"=(7BIT|8BITMIME)", re.IGNORECASE),
    "RET": re.compile(r"=(FULL|HDRS)", re.IGNORECASE),
    "ENVID": re.compile(rf"=((?=.{{1,100}}$){_XTEXT}+)"),
}
_RCPT_PARAMETERS: Final = {
    "NOTIFY": re.compile(rf"=(NEVER|{_CONDITION}(?:,{_CONDITION})*)", re.IGNORECASE),
    "ORCPT": re.compile(rf"=((?=.{{1,500}}$)[A-Za-z0-9-]+;{_XTEXT}+)"),
}
HEADER_READ_MAX: Final = 1_048_576
"""Bytes of a mail among which header fields are looked for."""

FIELD_READ_MAX: Final = 998
"""Characters of a header field's value; a longer one counts as none."""

_FIELD: Final = re.compile(rb"^([!-9;-~]+)[ \t]*:([^\n]*(?:\n[ \t][^\n]*)*)(?:\n|\Z)", re.MULTILINE)
_FOLD: Final = re.compile(r"\r?\n(?=[ \t])")
_HEADER_END: Final = re.compile(rb"(?:^|\n)\r?\n")
_RECEIVED: Final = re.compile(rb"^received[ \t]*:", re.IGNORECASE | re.MULTILINE)
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


@dataclass(frozen=True, slots=True)
class NamedSender:
    """What MAIL says.

    Attributes:
        address: None for the null sender.
        returned: RET; "" where it is not said.
        envelope_id: ENVID, still in xtext.
        size: SIZE, in bytes; 0 where it is not said.
    """

    address: str | None
    returned: str = ""
    envelope_id: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class NamedRecipient:
    """What RCPT says; NOTIFY, and ORCPT as `rfc822;bob@example.org`, are "" where they are not said."""

    address: str
    notify: str = ""
    original: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailOrigin:
    """Where a mail came from.

    Attributes:
        client: its address.
        greeted_as: what it calls itself.
        protocol: as Received names it: SMTP, ESMTP or LMTP.
        user: who logged in; "" where the client did not.
    """

    client: str
    greeted_as: str
    protocol: str
    user: str = ""

    @property
    def answers_each(self) -> bool:
        """Whether each recipient has an answer of its own behind the end of a mail."""
        return self.protocol.startswith("LMTP")


def sender_in(words: str, mail_bytes_max: int) -> NamedSender | SmtpReply:
    """Read the text after MAIL; a reply where it is refused."""
    found = _path_in(words, "FROM", _MAIL_PARAMETERS)
    if isinstance(found, SmtpReply):
        return found
    address, values = found
    if address and not is_address(address):
        return _no_address(address, "5.1.7")
    size = int(values.get("SIZE", 0))
    if size > mail_bytes_max:
        return too_large(mail_bytes_max)
    return NamedSender(address or None, values.get("RET", "").upper(), values.get("ENVID", ""), size)


def recipient_in(words: str, host_name: str) -> NamedRecipient | SmtpReply:
    """Read the text after RCPT; a reply where it is refused. A postmaster without a domain is this host's."""
    found = _path_in(words, "TO", _RCPT_PARAMETERS)
    if isinstance(found, SmtpReply):
        return found
    address, values = found
    if address.lower() == "postmaster":
        address = f"{address}@{host_name}"
    if not is_address(address):
        return _no_address(address, "5.1.3")
    return NamedRecipient(address, values.get("NOTIFY", "").upper(), _decoded(values.get("ORCPT", "")))


def too_large(mail_bytes_max: int) -> SmtpReply:
    return SmtpReply(552, "5.3.4", f"a mail may have {mail_bytes_max} bytes at most", ours=True)


def goes_in_a_circle(content: bytes) -> bool:
    """Whether it has passed the number of servers that marks a loop."""
    end = len(content)
    found = _HEADER_END.search(content)
    if found:
        end = found.start() + 1
    return len(_RECEIVED.findall(content, 0, end)) > RECEIVED_MAX


def has_long_header(content: bytes) -> bool:
    """Whether the header has more than `HEADER_READ_MAX` bytes, so that rules would not see all of its fields."""
    return len(content) > HEADER_READ_MAX and _HEADER_END.search(content, 0, HEADER_READ_MAX) is None


def header_values(content: bytes, names: Collection[str]) -> Mapping[str, str]:
    """The values of header fields, of each the first, by names in small letters.

    What is long, no UTF-8, or holds characters that cannot be shown is left out, as if it were not
    there.
    """
    if not names:
        return {}
    found = dict[str, bytes]()
    for field in _header_fields(content):
        name = field[1].lower().decode()
        if name in names:
            found.setdefault(name, field[2])
    values = dict[str, str]()
    for name, value in found.items():
        text = _FOLD.sub("", value.decode(errors="replace")).strip().replace("\t", " ")
        if len(text) <= FIELD_READ_MAX and _can_be_shown(text):
            values[name] = text
    return values


def without_fields(content: bytes, names: Collection[str]) -> bytes:
    """The mail without these header fields, which are named in small letters."""
    if not names:
        return content
    kept = bytearray()
    end = 0
    for field in _header_fields(content):
        if field[1].lower().decode() in names:
            kept += content[end : field.start()]
            end = field.end()
    if not end:
        return content
    return bytes(kept + content[end:])


def _header_fields(content: bytes) -> Iterator[re.Match[bytes]]:
    end = min(len(content), HEADER_READ_MAX)
    found = _HEADER_END.search(content, 0, HEADER_READ_MAX)
    if found:
        end = found.start() + 1
    return _FIELD.finditer(content, 0, end)


def _can_be_shown(text: str) -> bool:
    return text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text


def incoming_values(
    sender: NamedSender, recipient: NamedRecipient, origin: MailOrigin, header: Mapping[str, str]
) -> IncomingValues:
    """What rules compare of a mail and one of its recipients."""
    from_ = sender.address or ""
    to = recipient.address
    said = {
        IncomingField.CLIENT: origin.client,
        IncomingField.HELO: origin.greeted_as,
        IncomingField.USER: origin.user,
        IncomingField.SENDER: from_,
        IncomingField.SENDER_DOMAIN: from_.rpartition("@")[2],
        IncomingField.RECIPIENT: to,
        IncomingField.RECIPIENT_DOMAIN: to.rpartition("@")[2],
    }
    values = {(named, ""): named.of(text) for named, text in said.items()}
    for name, text in header.items():
        values[IncomingField.HEADER, name] = text
    return values


def received_field(origin: MailOrigin, host_name: str, mail_id: str, at: datetime) -> bytes:
    """The header field that tells that a mail came, to stand before all others; `at` in UTC."""
    name = "unknown"
    if _HOST_NAME.fullmatch(origin.greeted_as):
        name = origin.greeted_as
    text = (
        f"Received: from {name} ({_literal(origin.client)})\r\n\tby {host_name} with {origin.protocol} id {mail_id};"
        f"\r\n\t{format_datetime(at)}\r\n"
    )
    return text.encode()


def incoming_mail(
    mail_id: str, sender: NamedSender, recipients: Sequence[NamedRecipient], origin: MailOrigin, at: datetime
) -> Mail:
    """The envelope as a queue holds it, with the sender's wishes where James keeps them."""
    notify = dict[str, str]()
    original = dict[str, str]()
    for recipient in recipients:
        if recipient.notify:
            notify[recipient.address] = recipient.notify
        if recipient.original:
            original[recipient.address] = recipient.original
    wishes: dict[str, Any] = {
        "dsn-ret": sender.returned,
        "dsn-envid": sender.envelope_id,
        "dsn-notify": notify,
        "dsn-orcpt": original,
    }
    return Mail(
        f"Mail-{mail_id}",
        tuple(dict.fromkeys(recipient.address for recipient in recipients)),
        sender=sender.address,
        remote_addr=origin.client,
        remote_host=origin.client,
        last_updated=at,
        attributes={name: attribute(value) for name, value in wishes.items() if value},
    )


def _path_in(
    words: str, keyword: str, known: Mapping[str, re.Pattern[str]]
) -> tuple[str, Mapping[str, str]] | SmtpReply:
    before, _, rest = words.partition(":")
    path = _PATH.fullmatch(rest)
    if before.strip().upper() != keyword or not path:
        return SmtpReply(501, "5.5.4", f"an address is missing: {keyword}:<address>", ours=True)
    values = dict[str, str]()
    for word in (path["parameters"] or "").split():
        name = word.partition("=")[0].upper()
        if name not in known:
            return SmtpReply(555, "5.5.4", "there is a parameter that is not known here", ours=True)
        value = known[name].fullmatch(word[len(name) :])
        if name in values or not value:
            return SmtpReply(501, "5.5.4", f"the parameter {name} cannot be read", ours=True)
        values[name] = value[1]
    return path["address"], values


def _no_address(text: str, status: str) -> SmtpReply:
    if not text.isascii():
        return SmtpReply(553, "5.6.7", "addresses are taken in ASCII alone", ours=True)
    return SmtpReply(553, status, "this is no address", ours=True)


def _decoded(xtext: str) -> str:
    return _HEX.sub(lambda found: chr(int(found[1], 16)), xtext)


def _literal(client: str) -> str:
    """An address as SMTP writes it (RFC 5321 4.1.3)."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, IPv6Address):
        return f"[IPv6:{address}]"
    return f"[{address}]"
