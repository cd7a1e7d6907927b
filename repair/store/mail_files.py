"""Mail on disk, one message at a time: mbox, Maildir, .eml, .emlx; no whole mbox in memory, nothing dropped silently.

A message's bytes are kept unchanged, well-formed or not: line ends, quoted `>From ` lines and broken headers stay.
What is no mail (too large, unreadable, packed, without a header) is refused by name. What belongs to another mailbox or
is another kind of file is skipped by name.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import islice
from pathlib import Path
from shlex import quote

from mailmend.model.errors import BadMail
from mailmend.repair.store.file_kinds import PARTIAL, START_OCTETS, SUFFIX, BrokenEmlx, apple_mail, foreign, not_a_mail
from mailmend.repair.store.mail_headers import (
    HeaderFields,
    dovecot_keywords,
    fields_of,
    flags_in_header,
    flags_in_name,
    internal_date_of,
    is_deleted,
    mozilla_flags,
)
from mailmend.repair.store.mbox import BOM, FROM, Doubt, MboxEntry, entries_in, is_envelope
from mailmend.repair.store.message import Flags, NewMail, split_mail

OCTETS_MAX = 64 * 2**20
"""The largest message that is accepted, in bytes."""

_INFO = re.compile(r"[:;!]2,")
"""What separates the name of a Maildir's file from its flags; some file systems allow no colon."""
_NOTES = re.compile(
    r"dovecot.*|\.dovecot.*|subscriptions|\.subscriptions|maildirfolder|maildirsize|courier.*|\.keep|\.gitkeep"
    r"|\.DS_Store|table_of_contents|Info\.plist|Thumbs\.db|desktop\.ini|\.nfs.*|\.lock",
    re.IGNORECASE,
)
"""Files that mail servers and desktops keep for themselves in a mail folder."""


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
        envelope: the mbox line above it; empty without one. A file keeps it in its content.
        info: the flags in a Maildir file's name.
        recent: it is in the Maildir's `new`.
        keywords: what the small letters in `info` mean.
        touched_at: its file's modification time, in seconds since 1970; None for a message of an mbox.
        next_offset: the offset in the mbox after it.
        separator_octets: the size of the empty line after it in the mbox.
        doubts: doubtful `From ` lines in it, the first of them.
        doubtful: the number of all of them.
        beside_octets: the size of what its file keeps in addition to the mail: Apple's first line
            and property list.
        flags: the flags that its file keeps in addition to the mail; None where they are in its
            name or header.
    """

    key: str
    name: str
    content: bytes
    envelope: bytes = b""
    info: str = ""
    recent: bool = False
    keywords: tuple[str, ...] = ()
    touched_at: float | None = None
    next_offset: int = 0
    separator_octets: int = 0
    doubts: tuple[Doubt, ...] = ()
    doubtful: int = 0
    beside_octets: int = 0
    flags: Flags | None = None


class WhyNotStored(Enum):
    """Why a file or message is not stored."""

    REFUSED = "refused"  # mail that cannot be stored, or what is no mail where mail was expected
    SKIPPED = "skipped"  # another mailbox, or a file of another kind
    DELETED = "deleted"  # the source has deleted it


@dataclass(frozen=True, slots=True)
class Refused:
    """A file or message that is not stored, and why.

    Attributes:
        why: the reason for people.
        mend: what to do about it; "" where there is nothing.
        octets: the size of the message in the mbox, without envelope and separator.
    """

    key: str
    name: str
    why: str
    reason: WhyNotStored = WhyNotStored.REFUSED
    mend: str = ""
    next_offset: int = 0
    octets: int = 0
    envelope: bytes = b""
    separator_octets: int = 0
    doubts: tuple[Doubt, ...] = ()
    doubtful: int = 0
    beside_octets: int = 0


def kind_of(path: Path) -> FolderKind:
    """The kind of mail folder at the path.

    Raises:
        BadMail: no mail can be read from it.
    """
    if path.is_dir():
        return _kind_of_directory(path)
    if not path.is_file():
        raise BadMail(f"{path} does not exist, or is no file")
    start = _start_of(path)
    if len(start) < START_OCTETS and not start.strip():
        raise BadMail(f"{path} is empty", mend="Nothing was loaded.")
    packed = foreign(start)
    if packed:
        raise BadMail(f"{path} is no mail: it is {packed.name}", mend=packed.mend.format(path=quote(str(path))))
    if _is_emlx(path):
        return FolderKind.EML
    if _is_eml(path):
        if is_envelope(start) and len(list(islice(entries_in(path, 0, OCTETS_MAX), 2))) > 1:
            return FolderKind.MBOX
        return FolderKind.EML
    if not start.removeprefix(BOM).startswith(FROM):
        raise BadMail(
            f"{path} is not an mbox: it does not begin with 'From '",
            mend="Give an mbox, a Maildir, a directory of .eml files, or one file whose name ends in .eml.",
        )
    return FolderKind.MBOX


def _kind_of_directory(path: Path) -> FolderKind:
    if (path / "cur").is_dir() or (path / "new").is_dir():  # archives leave empty directories out
        return FolderKind.MAILDIR
    if any(_is_eml(file) or _is_emlx(file) for file in path.rglob("*")):
        return FolderKind.EML_FILES
    folders = sorted(child for child in path.iterdir() if _is_folder(child))
    mend = ""
    if folders:
        mend = f"Load each mail folder in it: mailmend load {quote(str(folders[0]))} --user USER --mailbox NAME"
    raise BadMail(f"{path} is neither a Maildir (cur, new) nor a directory with .eml files", mend=mend)


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
    for entry in entries_in(path, start, octets_max):
        yield _without_deleted(_of_entry(path, entry, octets_max))


def _of_entry(path: Path, entry: MboxEntry, octets_max: int) -> Found | Refused:
    key = str(entry.offset)
    name = f"{path} at byte {entry.offset}"
    found = Found(
        key,
        name,
        entry.content or b"",
        entry.envelope,
        next_offset=entry.next_offset,
        separator_octets=entry.separator_octets,
        doubts=entry.doubts,
        doubtful=entry.doubtful,
    )
    if entry.content is None:
        return replace(_refused(found, f"larger than {octets_max} bytes"), octets=entry.content_octets)
    return _judged(found)


def _judged(found: Found) -> Found | Refused:
    """The message, or its refusal where its bytes are no mail, or where its source has deleted it."""
    if not found.content.strip():
        return _refused(found, "it is empty")
    kind = not_a_mail(found.content)
    if kind:
        mend = ""
        if not found.envelope:  # a file of its own, which can be named
            mend = kind.mend.format(path=quote(found.name))
        return replace(_refused(found, f"it is {kind.name}"), mend=mend)
    return found


def _without_deleted(item: Found | Refused) -> Found | Refused:
    """The item of a folder of a mail program; a message that the program has deleted stays away."""
    if isinstance(item, Found):
        header, _ = split_mail(item.content)
        if is_deleted(fields_of(header), item.envelope):
            return replace(_refused(item, "its mail program has deleted it"), reason=WhyNotStored.DELETED)
    return item


def _refused(found: Found, why: str) -> Refused:
    return Refused(
        found.key,
        found.name,
        why,
        next_offset=found.next_offset,
        octets=len(found.content),
        envelope=found.envelope,
        separator_octets=found.separator_octets,
        doubts=found.doubts,
        doubtful=found.doubtful,
        beside_octets=found.beside_octets,
    )


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(START_OCTETS)
    except OSError as error:
        raise BadMail(f"{path} cannot be read: {error.strerror}") from error


def _maildir_messages(path: Path, octets_max: int) -> Iterator[Found | Refused]:
    """Files of cur and new in the order of their names, which begin with the time of delivery."""
    keywords = _keywords_of(path)
    names = [name for name in ("cur", "new") if (path / name).is_dir()] or ["new"]
    listed = []
    hidden = []
    for name in names:
        for file in (path / name).iterdir():
            if file.name.startswith("."):
                hidden.append(file)
            else:
                listed.append(file)
    for file in sorted(listed, key=lambda file: file.name):
        unique, *rest = _INFO.split(file.name, maxsplit=1)
        recent = file.parent.name == "new"
        item = _without_deleted(_file(file, unique, octets_max))
        if isinstance(item, Found):
            item = replace(item, info="".join(rest), recent=recent, keywords=keywords)
        yield item
    yield from _skipped_files(path, [*hidden, *_in_tmp(path)])
    yield from _skipped_beside(path)


def _keywords_of(maildir: Path) -> tuple[str, ...]:
    try:
        text = (maildir / "dovecot-keywords").read_text("utf-8", "replace")
    except OSError:
        return ()
    return tuple(dovecot_keywords(text))


def _in_tmp(maildir: Path) -> list[Path]:
    tmp = maildir / "tmp"
    if not tmp.is_dir():
        return []
    return list(tmp.iterdir())


def _skipped_files(maildir: Path, files: Iterable[Path]) -> Iterator[Refused]:
    """Files that a Maildir does not list: hidden ones, and deliveries that did not end."""
    for file in sorted(files):
        if _matters(file):
            key = str(file.relative_to(maildir))
            mend = f"If it is mail: cp {quote(str(file))} NEW.eml, then load NEW.eml."
            yield Refused(key, str(file), "a Maildir does not list it", WhyNotStored.SKIPPED, mend)


def _skipped_beside(maildir: Path) -> Iterator[Refused]:
    """What else is in the directory: sub-folders with mail, and other files."""
    for path in sorted(maildir.iterdir()):
        if path.name in ("cur", "new", "tmp") or not _matters(path):
            continue
        if _is_folder(path):
            mend = _load_next(path, path.name.removeprefix("."))
            yield Refused(path.name, str(path), "a folder of its own", WhyNotStored.SKIPPED, mend)
        else:
            yield Refused(path.name, str(path), "no part of the Maildir", WhyNotStored.SKIPPED)


def _load_next(path: Path, mailbox: str) -> str:
    return f"Load it: mailmend load {quote(str(path))} --user USER --mailbox {quote(mailbox)}"


def _eml_messages(path: Path, octets_max: int) -> Iterator[Found | Refused]:
    for file in sorted(child for child in path.rglob("*") if not child.is_dir()):
        key = str(file.relative_to(path))
        if _is_eml(file) or _is_emlx(file):
            yield _file(file, key, octets_max)
        elif _matters(file):
            mend = ""
            if _is_folder(file):
                mend = _load_next(file, file.stem)
            yield Refused(key, str(file), "not an .eml or .emlx file", WhyNotStored.SKIPPED, mend)


def _file(path: Path, key: str, octets_max: int) -> Found | Refused:
    """One mail of a file, whole: also with the mbox line that some programs put above it."""
    try:
        status = path.stat()
        if status.st_size > octets_max:
            return Refused(key, str(path), f"larger than {octets_max} bytes")
        content = path.read_bytes()
    except OSError as error:
        return Refused(key, str(path), error.strerror or "cannot be read")
    if _is_emlx(path):
        return _of_apple(path, key, content, status.st_mtime)
    if not is_envelope(content[:START_OCTETS]):
        return _judged(Found(key, str(path), content, touched_at=status.st_mtime))
    first, *others = entries_in(path, 0, octets_max)
    if others:
        why = f"an mbox of {len(others) + 1} messages, not one mail"
        return Refused(key, str(path), why, mend=_load_next(path, path.stem))
    return _judged(Found(key, str(path), content, first.envelope, touched_at=status.st_mtime))


def _of_apple(path: Path, key: str, octets: bytes, touched_at: float) -> Found | Refused:
    """The mail of a file of Apple Mail, with the flags and the date from its property list."""
    if path.name.lower().endswith(PARTIAL):
        why = "Apple Mail keeps its attachments in other files, so it is not whole"
        return Refused(key, str(path), why, mend="Save it in Apple Mail as Raw Message Source; then load that file.")
    try:
        mail = apple_mail(octets)
    except BrokenEmlx as error:
        mend = f"See where the mail is; what is below the first line: tail -n +2 {quote(str(path))} > NEW.eml"
        return Refused(key, str(path), str(error), mend=mend, octets=len(octets))
    at = mail.received_at
    if at is None:
        at = touched_at
    found = Found(key, str(path), mail.content, touched_at=at, beside_octets=mail.beside_octets, flags=mail.flags)
    if mail.is_deleted:
        return replace(_refused(found, "its mail program has deleted it"), reason=WhyNotStored.DELETED)
    return _judged(found)


def _matters(path: Path) -> bool:
    """Whether a user may miss what is there: not the notes of a mail server, nothing empty."""
    if _NOTES.fullmatch(path.name):
        return False
    try:
        if path.is_dir():
            return any(child.is_file() and not _NOTES.fullmatch(child.name) for child in path.rglob("*"))
        return path.stat().st_size > 0
    except OSError:
        return True


def _is_folder(path: Path) -> bool:
    """Whether `load` reads this as a folder of its own."""
    try:
        return kind_of(path) is not FolderKind.EML
    except (BadMail, OSError):
        return False


def _is_eml(path: Path) -> bool:
    return path.suffix.lower() == ".eml" and not path.is_dir()


def _is_emlx(path: Path) -> bool:
    return path.suffix.lower() == SUFFIX and not path.is_dir()


def mail_of(found: Found, now: datetime) -> NewMail:
    """The message to store, with its date and flags as far as they can be read."""
    header, body = split_mail(found.content)
    fields = fields_of(header)
    date = internal_date_of(fields, found.envelope, found.touched_at, now)
    return NewMail(header, body, date, flags=_flags_of(found, fields))


def _flags_of(found: Found, fields: HeaderFields) -> Flags:
    """Flags from a Maildir's name or Apple's list, or from the fields that mail programs write."""
    if found.flags is not None:
        return found.flags
    if found.envelope and not found.info:
        return flags_in_header(fields, found.envelope)
    named = flags_in_name(found.info, recent=found.recent, keywords=found.keywords)
    if found.info or found.recent:
        return named
    return mozilla_flags(fields, found.envelope) or named
