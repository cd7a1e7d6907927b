"""A message's arrival time and flags, from its own headers. Pure, and never fails.

Mail of all ages and origins is read here: what cannot be understood is skipped for the next best source, and the
message itself stays unchanged.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.errors import MessageError
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime

from model.messages.flags import Flags, SystemFlag
from model.messages.message import Mail, split_mail
from repair.writing.mail_files import Found

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


def mail_of(found: Found, now: datetime) -> Mail:
    """The message to store, with its date and flags as far as they can be read."""
    header, body = split_mail(found.content)
    fields = _fields(header)
    return Mail(header, body, internal_date_of(found, fields, now), flags=_flags_of(found, fields))


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
    """The asctime date of an mbox's `From ` line, as a mail date."""
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
