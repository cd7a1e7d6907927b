"""Mail on disk, one message at a time: mbox, Maildir, .eml; never a whole mbox in memory, nothing dropped silently.

A message's bytes are kept unchanged, well-formed or not: line ends, quoted `>From ` lines and broken headers stay.
What cannot be loaded (too large, unreadable, not a mail file) is yielded as a refusal that names it. The arrival time
and the flags come from the message's own headers; what cannot be understood is skipped for the next best source.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.errors import MessageError
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import IO

from model.errors import BadMail
from model.messages.flags import Flags, SystemFlag
from model.messages.message import NewMail, split_mail

OCTETS_MAX = 64 * 2**20
"""The largest message that is accepted, in bytes."""

_LINE_OCTETS_MAX = 2**20
_START_OCTETS = 4096
_DATED = re.compile(rb"From .*\d\d?:\d\d.*\d{4}")
_HEADER = re.compile(rb"(>From |[!-9;-~]+[ \t]*:)")


class FolderKind(Enum):
    """What a path holds."""

    MBOX = "mbox"
    MAILDIR = "maildir"
    EML_FILES = "eml files"
    EML = "eml"


@dataclass(frozen=True, slots=True)
class Found:
    """One message.

    Attributes:
        key: its name within the folder: the same at each reading.
        name: its location, for people.
        content: its bytes.
        envelope: the mbox line above it; empty without one.
        info: the flags in a Maildir file's name.
        recent: it is in the Maildir's `new`.
        touched_at: its file's modification time, in seconds since 1970; None for a message of an mbox.
        next_offset: the offset in the mbox after it.
    """

    key: str
    name: str
    content: bytes
    envelope: bytes = b""
    info: str = ""
    recent: bool = False
    touched_at: float | None = None
    next_offset: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused file or message, and why. `mail` is False for what is not mail at all."""

    key: str
    name: str
    why: str
    mail: bool = True
    next_offset: int = 0


def kind_of(path: Path) -> FolderKind:
    """The kind of mail folder at the path.

    Raises:
        BadMail: no mail can be read from it.
    """
    if path.is_dir():
        if (path / "cur").is_dir() and (path / "new").is_dir():
            return FolderKind.MAILDIR
        if any(_is_eml(file) for file in path.rglob("*")):
            return FolderKind.EML_FILES
        raise BadMail(f"{path} is neither a Maildir (cur, new) nor a directory with .eml files")
    if not path.is_file():
        raise BadMail(f"{path} does not exist, or is no file")
    start = _start_of(path)
    if len(start) < _START_OCTETS and not start.strip():
        raise BadMail(f"{path} is empty", mend="Nothing was loaded.")
    if _is_eml(path):
        return FolderKind.EML
    if not start.startswith(b"From "):
        raise BadMail(
            f"{path} is not an mbox: it does not begin with 'From '",
            mend="Give an mbox, a Maildir, a directory of .eml files, or one file whose name ends in .eml.",
        )
    return FolderKind.MBOX


def mail_in(path: Path, kind: FolderKind, start: int = 0, octets_max: int = OCTETS_MAX) -> Iterator[Found | Refused]:
    """The messages of a folder; of an mbox from offset `start` on."""
    try:
        yield from _items(path, kind, start, octets_max)
    except OSError as error:
        raise BadMail(f"{error.filename or path} cannot be read: {error.strerror}") from error


def _items(path: Path, kind: FolderKind, start: int, octets_max: int) -> Iterator[Found | Refused]:
    match kind:
        case FolderKind.MBOX:
            yield from mbox_messages(path, start, octets_max)
        case FolderKind.MAILDIR:
            yield from _maildir_messages(path, octets_max)
        case FolderKind.EML_FILES:
            yield from _eml_messages(path, octets_max)
        case FolderKind.EML:
            yield _file(path, path.name, octets_max)


def mbox_messages(path: Path, start: int = 0, octets_max: int = OCTETS_MAX) -> Iterator[Found | Refused]:
    """The messages of an mbox, from the offset of one of its `From ` lines on."""
    with path.open("rb") as file:
        file.seek(start)
        offset, envelope = start, file.readline(_LINE_OCTETS_MAX)
        while envelope:
            content, next_envelope = _message(file, octets_max)
            after = file.tell() - len(next_envelope)
            name = f"{path} at byte {offset}"
            if content is None:
                yield Refused(str(offset), name, f"larger than {octets_max} bytes", next_offset=after)
            else:
                yield Found(str(offset), name, content, envelope, next_offset=after)
            offset, envelope = after, next_envelope


def _message(file: IO[bytes], octets_max: int) -> tuple[bytes | None, bytes]:
    """The lines up to the next `From ` line (None when they exceed `octets_max` bytes), and that line."""
    lines: list[bytes] = []
    size, blank, whole = 0, True, True
    while line := file.readline(_LINE_OCTETS_MAX):
        if whole and blank and line.startswith(b"From ") and _separates(line, file):
            return _joined(lines, size, octets_max), line
        size += len(line)
        if size <= octets_max + 2:
            lines.append(line)
        else:
            lines.clear()
        blank = whole and line in (b"\n", b"\r\n")
        whole = line.endswith(b"\n")
    return _joined(lines, size, octets_max), b""


def _separates(line: bytes, file: IO[bytes]) -> bool:
    """Whether a `From ` line after an empty line begins a message: it has a date, or a header follows."""
    if _DATED.match(line):
        return True
    here = file.tell()
    follows = file.readline(_LINE_OCTETS_MAX)
    file.seek(here)
    return _HEADER.match(follows) is not None


def _joined(lines: list[bytes], size: int, octets_max: int) -> bytes | None:
    """The message without the empty line that an mbox adds after each; None when it is too large."""
    if lines and lines[-1] in (b"\n", b"\r\n"):
        size -= len(lines.pop())
    return b"".join(lines) if size <= octets_max else None


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_START_OCTETS)
    except OSError as error:
        raise BadMail(f"{path} cannot be read: {error.strerror}") from error


def _maildir_messages(path: Path, octets_max: int) -> Iterator[Found | Refused]:
    """Files of cur and new in the order of their names, which begin with the time of delivery."""
    files = [file for folder in ("cur", "new") for file in (path / folder).iterdir() if not file.name.startswith(".")]
    for file in sorted(files, key=lambda one: one.name):
        unique, _, info = file.name.partition(":2,")
        yield _file(file, unique, octets_max, info=info, recent=file.parent.name == "new")
    for folder in sorted(one for one in path.iterdir() if one.is_dir() and one.name not in ("cur", "new", "tmp")):
        yield Refused(folder.name, str(folder), "a folder of its own: load it into a mailbox of its own", mail=False)


def _eml_messages(path: Path, octets_max: int) -> Iterator[Found | Refused]:
    for file in sorted(one for one in path.rglob("*") if not one.is_dir()):
        key = str(file.relative_to(path))
        yield _file(file, key, octets_max) if _is_eml(file) else Refused(key, str(file), "not an .eml file", mail=False)


def _file(path: Path, key: str, octets_max: int, *, info: str = "", recent: bool = False) -> Found | Refused:
    try:
        status = path.stat()
        if status.st_size > octets_max:
            return Refused(key, str(path), f"larger than {octets_max} bytes")
        content = path.read_bytes()
    except OSError as error:
        return Refused(key, str(path), error.strerror or "cannot be read")
    if not content.strip():
        return Refused(key, str(path), "it is empty")
    return Found(key, str(path), content, info=info, recent=recent, touched_at=status.st_mtime)


def _is_eml(path: Path) -> bool:
    return path.suffix.lower() == ".eml" and not path.is_dir()


_HEADER_OCTETS_MAX = 2**20
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_AHEAD_MAX = timedelta(days=1)
_KEYWORD = re.compile(r"[^\s,(){%*\"\\\]\x00-\x1f\x7f]{1,200}")
_ASCTIME = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}) (\d\d?:\d\d(?::\d\d)?)(?: ([A-Z]{3,4}|[+-]\d{4}))? (\d{4})")
_STATUS = {"R": SystemFlag.SEEN}
_X_STATUS = {
    "A": SystemFlag.ANSWERED,
    "D": SystemFlag.DELETED,
    "F": SystemFlag.FLAGGED,
    "T": SystemFlag.DRAFT,
}
_MAILDIR = {
    "D": SystemFlag.DRAFT,
    "F": SystemFlag.FLAGGED,
    "R": SystemFlag.ANSWERED,
    "S": SystemFlag.SEEN,
    "T": SystemFlag.DELETED,
}
_PASSED = "$Forwarded"


def mail_of(found: Found, now: datetime) -> NewMail:
    """The message to store, with its date and flags as far as they can be read."""
    header, body = split_mail(found.content)
    fields = _fields(header)
    return NewMail(header, body, internal_date_of(found, fields, now), flags=_flags_of(found, fields))


def internal_date_of(found: Found, fields: Message, now: datetime) -> datetime:
    """When the message arrived: by its last Received line, the mbox's line, its Date, its file, or now.

    Dates before 1970 or more than a day ahead are ignored.
    """
    sources: Iterable[str] = (
        _after_semicolon(_text(fields, "Received")),
        _envelope_date(found.envelope),
        _text(fields, "Date"),
    )
    dates = (*map(_parsed, sources), _from_seconds(found.touched_at))
    return next((date for date in dates if date and _EARLIEST <= date <= now + _AHEAD_MAX), now)


def _flags_of(found: Found, fields: Message) -> Flags:
    """Flags from a Maildir's file name, or from the fields that mail programs write into an mbox."""
    if not found.envelope:
        system = _letters(_MAILDIR, found.info)
        recent = {SystemFlag.RECENT} if found.recent else set()
        return Flags(system | recent, frozenset({_PASSED} if "P" in found.info else ()))
    status = _text(fields, "Status")
    system = _letters(_STATUS, status) | _letters(_X_STATUS, _text(fields, "X-Status"))
    recent = set() if "O" in status else {SystemFlag.RECENT}
    return Flags(system | recent, frozenset(_KEYWORD.findall(_text(fields, "X-Keywords"))))


def _letters(meanings: dict[str, SystemFlag], letters: str) -> frozenset[SystemFlag]:
    return frozenset(meanings[letter] for letter in letters if letter in meanings)


def _fields(header: bytes) -> Message:
    try:
        return BytesHeaderParser().parsebytes(header[:_HEADER_OCTETS_MAX])
    except (MessageError, ValueError, LookupError):
        return Message()


def _text(fields: Message, name: str) -> str:
    try:
        return str(fields.get(name, "")).encode("utf-8", "replace").decode()
    except (MessageError, ValueError, LookupError):
        return ""


def _after_semicolon(received: str) -> str:
    return received.rpartition(";")[2] if ";" in received else ""


def _envelope_date(line: bytes) -> str:
    found = _ASCTIME.search(" ".join(line.decode("latin-1").split()[2:]))
    if not found:
        return ""
    month, day, time, zone, year = found.groups()
    return f"{day} {month} {year} {time} {zone or '+0000'}"


def _from_seconds(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _parsed(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(" ".join(text.split()))
        return date.replace(tzinfo=date.tzinfo or UTC).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
