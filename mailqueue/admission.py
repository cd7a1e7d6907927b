"""Which mails may come into a queue: those that James can read back.

James parses every address and attribute of a row again when it lists a queue, and of a message when
it is delivered. One mail that it cannot parse is dead-lettered there, and breaks its listing, size
and deletion of the whole queue. So such a mail is refused before anything of it is put anywhere. A
mail that a queue has already is not judged again: James or an older version put it there, and a
mail that is put off must not be lost for its address. The rules are the rules of James's own
parser, and the narrower one where versions differ: addresses are ASCII, a domain's last part does
not begin with a digit unless it all is an address.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from mailmend.mailqueue.codec import is_attribute, with_priority
from mailmend.mailqueue.rules.james_json import text_of
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.errors import BadPayload, WrongUse

DOMAIN_CHARACTERS_MAX: Final = 253

ENVELOPE_BYTES_MAX: Final = 4 * 2**20
"""Bytes of a mail without its content. Messages have at most 5 MiB in Pulsar and 16 in RabbitMQ, rows 8 in Cassandra
5.0 as it is installed."""

RECIPIENTS_TOGETHER: Final = 5_000
"""Recipients of one mail of the queue; a new mail with more becomes several, so that each fits into any queue."""

REMEMBERED_BYTES: Final = 200
"""What may be noted of each recipient while a mail is tried again, counted from the beginning."""

_ATOM: Final = r"[!#$%&'*+/0-9=?A-Z^_`a-z{|}~-]+"
_QUOTED: Final = r'"(?:[ !#-\[\]-~]|\\[ -+\--~])+"'
_LOCAL: Final = re.compile(rf"{_ATOM}(?:\.{_ATOM})*|(?!.*\.\.){_QUOTED}")
_LABEL: Final = r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
_DOMAIN: Final = re.compile(rf"(?:{_LABEL}\.)*(?![0-9]){_LABEL}")


def admitted(mail: Mail, priority: int | None, *, was_queued: bool = False) -> Mail:
    """The mail with this priority; None leaves the priority of its attribute.

    Args:
        mail: the envelope.
        priority: 0 to 9, or None.
        was_queued: whether the mail came out of the queue: then its envelope is not judged again.

    Raises:
        WrongUse: James could not read the mail, no queue has room for its envelope, or there is no such priority.
    """
    if priority is not None:
        mail = with_priority(mail, priority)
    if not was_queued:
        check_room(admissible(mail))
    return mail


def admissible(mail: Mail) -> Mail:
    faults = tuple(_faults(mail))
    if faults:
        raise WrongUse(
            f"this mail cannot be put into a queue of James's: {'; '.join(faults)}",
            mend="James could neither deliver nor list it, and it would break its listing of every other mail.",
        )
    return mail


def check_room(mail: Mail) -> None:
    """See that a new mail fits into the messages of brokers and the rows of tables, also when it is tried again.

    Raises:
        WrongUse: it never will.
    """
    count = _envelope_bytes(mail)
    if count > ENVELOPE_BYTES_MAX:
        raise WrongUse(
            f"the envelope of this mail, with {len(mail.recipients):,} recipients and {len(mail.attributes):,} "
            f"attributes, comes to {count:,} bytes, and no queue takes more than {ENVELOPE_BYTES_MAX:,}",
            mend="Enqueue it as several mails with fewer recipients each, or with smaller attributes.",
        )


def parted(mail: Mail) -> list[Mail]:
    """A new mail as the mails of which each has room in any queue: the recipients in their order, else the same.

    A mail stays whole whose recipients fit. A part with one recipient may still be too large: `check_room` refuses it.
    """
    room = ENVELOPE_BYTES_MAX - _envelope_bytes(replace(mail, recipients=(), recipient_headers=()))
    headers: dict[str, int] = {}
    for header in mail.recipient_headers:
        size = sum(map(_json_bytes, (header.recipient, header.name, header.value)))
        headers[header.recipient] = headers.get(header.recipient, 0) + size
    groups: list[list[str]] = [[]]
    used = 0
    for recipient in mail.recipients:
        size = _json_bytes(recipient) + REMEMBERED_BYTES + headers.get(recipient, 0)
        is_full = len(groups[-1]) >= RECIPIENTS_TOGETHER or used + size > room
        if groups[-1] and is_full:
            groups.append([])
            used = 0
        groups[-1].append(recipient)
        used += size
    if len(groups) == 1:
        return [mail]
    return [_for_recipients(mail, group) for group in groups]


def _for_recipients(mail: Mail, recipients: list[str]) -> Mail:
    own = frozenset(recipients)
    headers = tuple(header for header in mail.recipient_headers if header.recipient in own)
    return replace(mail, recipients=tuple(recipients), recipient_headers=headers)


def _envelope_bytes(mail: Mail) -> int:
    """As JSON writes its texts, with what may be noted of each recipient."""
    size = REMEMBERED_BYTES * len(mail.recipients)
    for _, text in (*_addresses(mail), *_texts(mail)):
        size += _json_bytes(text)
    return size


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def is_address(text: str) -> bool:
    local, _, domain = text.rpartition("@")
    return bool(_LOCAL.fullmatch(local)) and _is_domain(domain)


def _faults(mail: Mail) -> Iterator[str]:
    if not mail.name:
        yield "its name is empty"
    for where, text in _addresses(mail):
        if not is_address(text):
            yield f"{where} is no address"
    for name, value in mail.attributes.items():
        if not name:
            yield "an attribute has no name"
        if not is_attribute(value):
            yield f"the attribute {name!r} is not the JSON of one (mailmend.mailqueue.codec.attribute makes it)"
    for where, text in _texts(mail):
        try:
            text_of(text, where)
        except BadPayload as error:
            yield error.what


def _addresses(mail: Mail) -> Iterator[tuple[str, str]]:
    """The place of each address, and its text; the null sender is left out."""
    if mail.sender is not None:
        yield "its sender", mail.sender
    for place, text in enumerate(mail.recipients):
        yield f"recipients[{place}]", text
    for place, header in enumerate(mail.recipient_headers):
        yield f"the recipient of recipient_headers[{place}]", header.recipient


def _is_domain(text: str) -> bool:
    if len(text) > DOMAIN_CHARACTERS_MAX:
        return False
    if _DOMAIN.fullmatch(text):
        return True
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return _is_ip(text)


def _is_ip(text: str) -> bool:
    try:
        return bool(IPv4Address(text))
    except AddressValueError:
        return False


def _texts(mail: Mail) -> Iterator[tuple[str, str]]:
    """The place of each value that must be an address, and its text."""
    yield from (("its name", mail.name), ("its state", mail.state), ("its error_message", mail.error_message or ""))
    yield from (("its remote_addr", mail.remote_addr), ("its remote_host", mail.remote_host))
    for name, value in mail.attributes.items():
        yield from (("the name of an attribute", name), (f"the attribute {name!r}", value))
    for place, header in enumerate(mail.recipient_headers):
        yield f"the name of recipient_headers[{place}]", header.name
        yield f"the value of recipient_headers[{place}]", header.value
