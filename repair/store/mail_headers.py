"""A mail's date and flags, from its header and from what the source keeps with it.

A header is read line by line: a line that is no field (a bad line, a second `>From ` line) is passed over, and only an
empty line ends the header. What cannot be understood gives way to the next best source; nothing fails.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from mailmend.repair.store.flags import Flags, SystemFlag
from mailmend.repair.store.gmail_labels import gmail_flags
from mailmend.repair.store.mbox import BOM, FIELD, LINE_END, date_text

_HEADER_OCTETS_MAX = 2**20
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_AHEAD_MAX = timedelta(days=1)
_KEYWORD = re.compile(r"[^\s,(){%*\"\\\]\x00-\x1f\x7f]{1,200}")
_ASCTIME = re.compile(
    r"([A-Z][a-z]{2}) (\d{1,2}) (?:(\d{4}) )?(\d\d?:\d\d(?::\d\d)?)(?: ([A-Z]{1,5}(?: DST)?|[+-]\d{4}))?(?: (\d{4}))?"
    r"(?: ([+-]\d{4}))?"
)
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

_MOZILLA_FROM = b"From - "
_OLDER_FROM = ">from"
_MOZILLA_FLAGS = {0x1: SystemFlag.SEEN, 0x2: SystemFlag.ANSWERED, 0x4: SystemFlag.FLAGGED}
_MOZILLA_EXPUNGED = 0x8
_MOZILLA_FORWARDED = 0x1000
_MOZILLA_NEW = 0x10000
_MOZILLA_DELETED = 0x200000
_MOZILLA_LABEL_SHIFT = 25
_MOZILLA_STATUS = ("x-mozilla-status", "x-mozilla-status2", "x-mozilla-keys")
_ABOVE_MOZILLA = frozenset(
    {*_MOZILLA_STATUS, "x-account-key", "x-uidl", "x-imap", "status", "x-status", "x-keywords", "content-length"}
)
_MOZILLA_KEYS = {"junk": "$Junk", "nonjunk": "$NotJunk"}

HeaderFields = Mapping[str, Sequence[str]]
"""The values of a header by the names of its fields, lower-cased, in the header's order."""


def fields_of(header: bytes) -> HeaderFields:
    """The fields of a header, unfolded; lines that are no field are passed over, but for `>From ` lines."""
    fields: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in LINE_END.split(header[:_HEADER_OCTETS_MAX].removeprefix(BOM)):
        found = FIELD.match(line)
        if found:
            values = fields.setdefault(found[1].decode().lower(), [])
            values.append(_decoded(line[found.end() :]))
        elif line.startswith(b">From "):
            fields.setdefault(_OLDER_FROM, []).append(_decoded(line))
        elif values and line[:1] in (b" ", b"\t"):
            values[-1] = f"{values[-1]} {_decoded(line)}".strip()
    return fields


def internal_date_of(fields: HeaderFields, envelope: bytes, touched_at: float | None, now: datetime) -> datetime:
    """When the message arrived: by its last Received line, the mbox's line, its Date, its file, or now.

    Dates before 1970 or more than a day ahead are ignored. A placeholder (the year 1970, the fixed date of git's
    patches) is taken only where no source has another date. A line that a mail program wrote when it copied the message
    is believed after the Date: it tells when the copy was made.
    """
    received = _after_semicolon(_text(fields, "received"))
    sent = _text(fields, "date")
    line = envelope_date(envelope)
    sources: Iterable[str] = (received, sent, line) if _is_of_a_copy(fields, envelope) else (received, line, sent)
    dates = (*map(_parsed, sources), _from_seconds(touched_at))
    possible = [date for date in dates if date and _EARLIEST <= date <= now + _AHEAD_MAX]
    real = [date for date in possible if not _is_placeholder(date)]
    return next(iter(real or possible), now)


def flags_in_header(fields: HeaderFields, envelope: bytes) -> Flags:
    r"""Flags from the fields that mail programs write into an mbox. Without a sign of a first look: \Recent."""
    status = _text(fields, "status")
    system = _letters(_STATUS, status) | _letters(_X_STATUS, _text(fields, "x-status"))
    user = frozenset(_KEYWORD.findall(_text(fields, "x-keywords")))
    programs = [flags for flags in (mozilla_flags(fields, envelope), _gmail_flags(fields)) if flags]
    if not programs and "O" not in status:
        system |= {SystemFlag.RECENT}
    return Flags(system.union(*(flags.system for flags in programs)), user.union(*(flags.user for flags in programs)))


def mozilla_flags(fields: HeaderFields, envelope: bytes) -> Flags | None:
    """Flags from the status that Thunderbird keeps in a message; None without one."""
    if not _is_mozilla(fields, envelope):
        return None
    first, second = _mozilla(fields)
    system = {flag for bit, flag in _MOZILLA_FLAGS.items() if first & bit}
    if second & _MOZILLA_NEW:
        system.add(SystemFlag.RECENT)
    return Flags(frozenset(system), _mozilla_keywords(fields, first, second))


def _gmail_flags(fields: HeaderFields) -> Flags | None:
    """Flags from the labels of a Gmail export; None without them."""
    return gmail_flags(_text(fields, "x-gmail-labels")) if "x-gmail-labels" in fields else None


def flags_in_name(info: str, *, recent: bool, keywords: Sequence[str] = ()) -> Flags:
    """Flags from the name of a Maildir's file.

    Args:
        info: the letters; small ones are keywords of dovecot.
        recent: the file is in `new`.
        keywords: the keywords of the folder's `dovecot-keywords`, in the order of their numbers.
    """
    system = _letters(_MAILDIR, info) | ({SystemFlag.RECENT} if recent else set())
    numbers = [ord(letter) - ord("a") for letter in info if "a" <= letter <= "z"]
    user = {keywords[number] for number in numbers if number < len(keywords)} - {""}
    passed = {_PASSED} if "P" in info else set()
    return Flags(system, frozenset(user | passed))


def is_deleted(fields: HeaderFields, envelope: bytes) -> bool:
    """Whether Thunderbird has deleted the message: it stays in the file until the folder is compacted."""
    if not _is_mozilla(fields, envelope):
        return False
    first, second = _mozilla(fields)
    return bool(first & _MOZILLA_EXPUNGED or second & _MOZILLA_DELETED)


def dovecot_keywords(text: str) -> list[str]:
    """The keywords of a `dovecot-keywords` file by their numbers (`0 $Forwarded`); "" for a number without one."""
    names = [""] * 26
    for line in text.splitlines():
        number, _, name = line.partition(" ")
        if number.isascii() and number.isdigit() and int(number) < len(names) and _KEYWORD.fullmatch(name):
            names[int(number)] = name
    return names


def envelope_date(line: bytes) -> str:
    """The date of an mbox's line in a form that can be parsed; empty without one."""
    text = date_text(line)
    found = _ASCTIME.search(text)
    if not found:
        return text
    month, day, early_year, time, zone, late_year, late_zone = found.groups()
    year = early_year or late_year
    return f"{day} {month} {year} {time} {late_zone or zone or '+0000'}" if year else text


def _is_of_a_copy(fields: HeaderFields, envelope: bytes) -> bool:
    """Whether a mail program wrote the mbox's line: Thunderbird's `From - `, or one above an older such line."""
    return envelope.removeprefix(BOM).startswith(_MOZILLA_FROM) or _OLDER_FROM in fields


def _is_placeholder(date: datetime) -> bool:
    """Whether programs write this date where they know none: 1970, git's 2001-09-17, the first day of DOS."""
    if date.year == _EARLIEST.year:
        return True
    return date in (datetime(2001, 9, 17, tzinfo=UTC), datetime(1980, 1, 1, tzinfo=UTC))


def _is_mozilla(fields: HeaderFields, envelope: bytes) -> bool:
    """Whether Thunderbird wrote the status: senders could write such fields too, but not above all others."""
    if "x-mozilla-status" not in fields and "x-mozilla-status2" not in fields:
        return False
    if envelope.removeprefix(BOM).startswith(_MOZILLA_FROM):
        return True
    names = [name for name in fields if name != _OLDER_FROM]
    above = names[: next(place for place, name in enumerate(names) if name in _MOZILLA_STATUS)]
    return all(name in _ABOVE_MOZILLA for name in above)


def _mozilla(fields: HeaderFields) -> tuple[int, int]:
    return _hexadecimal(_text(fields, "x-mozilla-status")), _hexadecimal(_text(fields, "x-mozilla-status2"))


def _mozilla_keywords(fields: HeaderFields, first: int, second: int) -> frozenset[str]:
    words = [_MOZILLA_KEYS.get(word.lower(), word) for word in _KEYWORD.findall(_text(fields, "x-mozilla-keys"))]
    label = second >> _MOZILLA_LABEL_SHIFT & 0x7
    labels = [f"$Label{label}"] if label else []
    passed = [_PASSED] if first & _MOZILLA_FORWARDED else []
    return frozenset((*words, *labels, *passed))


def _hexadecimal(text: str) -> int:
    try:
        return int(text[:16], 16)
    except ValueError:
        return 0


def _letters(meanings: dict[str, SystemFlag], letters: str) -> frozenset[SystemFlag]:
    return frozenset(meanings[letter] for letter in letters if letter in meanings)


def _text(fields: HeaderFields, name: str) -> str:
    """The first value of a field: for `Received` the last hop's; "" without one."""
    return next(iter(fields.get(name, ())), "")


def _decoded(octets: bytes) -> str:
    return octets.decode("utf-8", "replace").strip()


def _after_semicolon(received: str) -> str:
    return received.rpartition(";")[2] if ";" in received else ""


def _from_seconds(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _parsed(text: str) -> datetime | None:
    words = " ".join(text.split())
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = parse(words)
            return date.replace(tzinfo=date.tzinfo or UTC).astimezone(UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None
