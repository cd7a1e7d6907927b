"""Files next to mboxes: Apple Mail's .emlx, and files that are no mail, by their first bytes.

The list keeps what a Maildir keeps in names: flags in one number, and the date of receipt. It is
searched for these two fields and not parsed: nothing in it can fail, refer elsewhere or grow.

A program that packed or converted mail must not have its bytes stored as a message: no client could
read it. Nothing is unpacked here: what comes out has no bound, and the operator decides where it
goes.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from mailmend.repair.store.mbox import ANY_FIELD, BOM
from mailmend.repair.store.message import Flags, SystemFlag, split_mail

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
    bits = 0
    if found:
        bits = int(found[1])
    received_at = None
    if received:
        received_at = float(received[1])
    system = frozenset(flag for number, flag in _SYSTEM.items() if bits >> number & 1)
    keywords = frozenset(word for number, word in _KEYWORDS.items() if bits >> number & 1)
    return AppleMail(content, len(octets) - count, Flags(system, keywords), bool(bits >> _DELETED & 1), received_at)


START_OCTETS = 4096
"""How much of a file's start tells its kind, in bytes."""

_TAR_MARK = (257, b"ustar")


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kind of file that is no mail.

    Attributes:
        name: of the kind, with its article.
        mend: what to do about it; `{path}` stands for the file, quoted for a shell.
    """

    name: str
    mend: str = ""


_UNPACK = "Unpack it: {command} {{path}} > NEW_FILE; then load NEW_FILE."


def _packed(name: str, command: str) -> Foreign:
    return Foreign(f"a {name} file", _UNPACK.format(command=command))


_EXTRACT = "Extract it into a new directory, then load what is there."
_UTF16 = Foreign("text in UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE; then load NEW_FILE.")
_MAC = Foreign(
    "an AppleDouble file", "It is a macOS side file (attributes of another file); the mail is in the file without '._'."
)
_STARTS = (
    (b"\x1f\x8b", _packed("gzip", "gzip -dc")),
    (b"\x1f\x9d", _packed("compress", "gzip -dc")),
    (b"BZh", _packed("bzip2", "bzip2 -dc")),
    (b"\xfd7zXZ\x00", _packed("xz", "xz -dc")),
    (b"\x5d\x00\x00\x80\x00", _packed("lzma", "xz -dc")),
    (b"\x28\xb5\x2f\xfd", _packed("zstd", "zstd -dc")),
    (b"\x04\x22\x4d\x18", _packed("lz4", "lz4 -dc")),
    (b"\x02\x21\x4c\x18", _packed("lz4", "lz4 -dc")),
    (b"LZIP", _packed("lzip", "lzip -dc")),
    (b"PK\x03\x04", Foreign("a zip archive", _EXTRACT)),
    (b"PK\x05\x06", Foreign("an empty zip archive", _EXTRACT)),
    (b"7z\xbc\xaf\x27\x1c", Foreign("a 7z archive", _EXTRACT)),
    (b"Rar!\x1a\x07", Foreign("a RAR archive", _EXTRACT)),
    (b"%PDF-", Foreign("a PDF document")),
    (b"!BDN", Foreign("an Outlook data file (PST)", "Convert it: readpst -o DIRECTORY {path}; then load the mboxes.")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Foreign("an Outlook or Office file", "Save the mail as .eml.")),
    (b"\xcf\xad\x12\xfe", Foreign("an Outlook Express folder (DBX)", "Convert it with readdbx, then load the mbox.")),
    (b"\x00\x05\x16\x07", _MAC),
    (b"\x00\x05\x16\x00", Foreign("an AppleSingle file")),
    (b"SQLite format 3\x00", Foreign("an SQLite database")),
    (b"CRYPTED\x03\x07", Foreign("a mail that dovecot encrypted", "Export it with doveadm, then load the export.")),
    (b"\xff\xfe\x00\x00", Foreign("text in UTF-32", _UTF16.mend.replace("16", "32"))),
    (b"\x00\x00\xfe\xff", Foreign("text in UTF-32", _UTF16.mend.replace("16", "32"))),
    (b"\xff\xfe", _UTF16),
    (b"\xfe\xff", _UTF16),
    (b"\x7fELF", Foreign("a program")),
    (b"\x89PNG\r\n\x1a\n", Foreign("a picture")),
    (b"\xff\xd8\xff", Foreign("a picture")),
)
_NO_HEADER = Foreign("no mail: it has no header field", "See what it is; a mail begins with lines like 'From: ...'.")
_ZEROES_MIN = 4


def foreign(start: bytes) -> Foreign | None:
    """What a file is, by its first `START_OCTETS` bytes; None where it may be mail."""
    for mark, kind in _STARTS:
        if start.startswith(mark):
            return kind
    offset, mark = _TAR_MARK
    if start[offset:].startswith(mark):
        return Foreign("a tar archive", _EXTRACT)
    if _is_wide(start[:64]):
        return _UTF16
    return None


def not_a_mail(content: bytes) -> Foreign | None:
    """What a message's bytes are; None where they are a mail: where some line of the header is a field."""
    kind = foreign(content[:START_OCTETS])
    if kind is not None:
        return kind
    header, _ = split_mail(content)
    if ANY_FIELD.search(header.removeprefix(BOM)):
        return None
    return _NO_HEADER


def _is_wide(start: bytes) -> bool:
    """Whether each second byte is 0, as in a Latin text of two bytes a character."""
    for first in (0, 1):
        zeroes = start[first::2]
        others = start[1 - first :: 2]
        if len(zeroes) >= _ZEROES_MIN and not any(zeroes) and all(others):
            return True
    return False
