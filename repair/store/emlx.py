"""Apple Mail's files (`.emlx`): a line with a count of bytes, that many bytes of mail, then a property list.

The list keeps what a Maildir keeps in names: flags in one number, and the date of receipt. It is searched for these two
fields and not parsed: nothing in it can fail, refer elsewhere or grow.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from mailmend.repair.store.flags import Flags, SystemFlag

SUFFIX: Final = ".emlx"
PARTIAL: Final = ".partial.emlx"
"""The end of a file's name whose attachments Apple Mail keeps in files apart."""

_COUNT: Final = re.compile(rb"[ \t]*([0-9]{1,12})[ \t]*(?:\r?\n|\r)")
_LIST: Final = re.compile(rb"\s*(?:<\?xml|<!DOCTYPE|<plist)")
_NUMBER: Final = rb"<key>%s</key>\s*<(?:integer|real)>\s*([0-9]{1,15})"
_FLAGS: Final = re.compile(_NUMBER % b"flags")
_RECEIVED: Final = re.compile(_NUMBER % b"date-received")
_SYSTEM: Final = {
    0: SystemFlag.SEEN,
    2: SystemFlag.ANSWERED,
    4: SystemFlag.FLAGGED,
    5: SystemFlag.RECENT,
    6: SystemFlag.DRAFT,
}
_DELETED: Final = 1
_KEYWORDS: Final = {8: "$Forwarded", 24: "$Junk", 25: "$NotJunk"}
"""The numbers of bits in `flags`."""


class BrokenEmlx(ValueError):
    """The file is not of its form; the text says why."""


@dataclass(frozen=True, slots=True)
class AppleMail:
    """A file of Apple Mail.

    Attributes:
        content: the mail.
        beside_octets: the size of the first line and of the property list.
        is_deleted: whether Apple Mail has deleted it and only not yet removed the file.
        received_at: in seconds since 1970; None where the list has no such date.
    """

    content: bytes
    beside_octets: int
    flags: Flags = field(default_factory=Flags)
    is_deleted: bool = False
    received_at: float | None = None


def apple_mail(octets: bytes) -> AppleMail:
    """The mail in the bytes of a file.

    Raises:
        BrokenEmlx: the count is missing, or the mail does not end where it says.
    """
    first = _COUNT.match(octets)
    if first is None:
        raise BrokenEmlx("its first line is not the number of bytes of a mail")
    start = first.end()
    count = int(first[1])
    content = octets[start : start + count]
    rest = octets[start + count :]
    if len(content) < count:
        raise BrokenEmlx(f"it is cut short: of {count:,} bytes of mail it has {len(content):,}")
    if rest.strip() and not _LIST.match(rest):
        raise BrokenEmlx(f"its first line says {count:,} bytes, and no property list follows them")
    found = _FLAGS.search(rest)
    received = _RECEIVED.search(rest)
    bits = int(found[1]) if found else 0
    system = frozenset(flag for number, flag in _SYSTEM.items() if bits >> number & 1)
    keywords = frozenset(word for number, word in _KEYWORDS.items() if bits >> number & 1)
    received_at = float(received[1]) if received else None
    return AppleMail(content, len(octets) - count, Flags(system, keywords), bool(bits >> _DELETED & 1), received_at)
