"""An mbox, read as a stream: where each message begins, which bytes are envelopes and separators, and what is doubtful.

An mbox has no length fields: a message ends where a line begins with `From `, and so may a sentence of a mail. A line
begins a message when it has one of the forms that mail programs write (a sender and a date) and a header line follows.
An empty line before it is the rule, but some programs write none. Lines end in LF, CRLF or CR, also mixed in one file.
A line that has some of these signs and lacks others is a doubt: it is named with its offset, whichever way it was read.

A message of an mboxcl or mboxcl2 says its length (`Content-Length`). Where an envelope, or the end of the file, follows
at that length, the message ends there, whatever is in it. Where none follows, the length is a doubt, and lines decide.

Every byte of the file belongs to exactly one of: an envelope line, a message, or the empty line after a message.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import SEEK_END
from pathlib import Path
from typing import IO

CHUNK_OCTETS = 2**18
_AHEAD_OCTETS = 2**13
_HEADER_OCTETS = 2**16
"""The largest header in which a `Content-Length` is looked for, in bytes."""
_LOOKED_AT_LINES = 6
_SHOWN_OCTETS = 80
_LINE_OCTETS_MAX = 1000
_TAIL_OCTETS = 6
DOUBTS_MAX = 100
"""The largest number of doubts of one message that are kept with their offsets; the others are only counted."""

FROM = b"From "
BOM = b"\xef\xbb\xbf"
LINE_END = re.compile(rb"\r?\r?\n|\r")
"""Also CRCRLF, which programs write that convert line ends twice."""
FIELD = re.compile(rb"([A-Za-z0-9][A-Za-z0-9_.\-]{0,76})[ \t]*:(?!//)")
"""The start of a header line as mail has it."""
_HEADER_END = re.compile(rb"(?>\r?\r?\n|\r)(?:\r?\r?\n|\r)")
_LENGTH = re.compile(rb"(?<![^\r\n])content-length[ \t]*:([^\r\n]*)", re.IGNORECASE)
_NUMBER = re.compile(rb"[ \t]*([0-9]{1,15})[ \t]*")
_LINES_AFTER = re.compile(rb"(?:\r?\r?\n|\r){0,2}")
"""What may be between the counted bytes of a message and the next envelope: its last line end, and an empty line."""
ANY_FIELD = re.compile(rb"(?:\A|[\r\n])" + FIELD.pattern)

_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_TIME = r"\d{1,2}:\d{2}(?::\d{2})?"
_ZONE = r"(?:[+-]\d{4}|[a-z]{1,5}(?: dst)?)"
_NAMED = r"(?: \([^)]{1,40}\))?"
_DATES = "|".join(
    (
        rf"{_DAY},? {_MONTH} \d{{1,2}} {_TIME}(?: {_ZONE}{_NAMED}){{0,2}} \d{{4}}(?: {_ZONE}{_NAMED})?",
        rf"{_DAY},? {_MONTH} \d{{1,2}} \d{{4}} {_TIME}(?: {_ZONE}{_NAMED})?",
        rf"(?:{_DAY},? )?\d{{1,2}} {_MONTH} \d{{4}} {_TIME}(?: {_ZONE}{_NAMED})?",
        r"\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?: ?(?:z|[+-]\d\d:?\d\d))?",
    )
)
_DATED = re.compile(rf"from (?:(?P<sender>.{{1,320}}?) )?(?P<date>{_DATES})(?: remote from \S+)?", re.IGNORECASE)
_TIMED = re.compile(r"From (?P<sender>\S+)(?: \S+){0,5} \d{1,2}:\d{2}(?::\d{2})?(?: \S+){0,3}")
_YEAR = re.compile(r"\b\d{4}\b")
_SENDERS = frozenset({"-", "nobody", "MAILER-DAEMON", "unknown"})
_KNOWN_FIELDS = frozenset(
    b"from to cc bcc subject date received return-path delivered-to message-id mime-version content-type reply-to "
    b"content-transfer-encoding sender status in-reply-to references dkim-signature authentication-results "
    b"arc-seal envelope-to errors-to importance priority precedence user-agent organization resent-from".split()
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A line that may be read either way: one that begins with `From `, or a `Content-Length` that is not right.

    Attributes:
        offset: of the line, in bytes from the start of the file.
        line: its start, for people.
        begins: whether it was taken as the envelope of a message; otherwise it belongs to the message around it.
        why: what speaks against the way it was read.
    """

    offset: int
    line: str
    begins: bool
    why: str


@dataclass(frozen=True, slots=True)
class MboxEntry:
    """One message of an mbox with the bytes around it.

    Attributes:
        offset: of its envelope line.
        envelope: that line with its line end.
        content: the message; None where it is larger than the limit.
        content_octets: the size of the message, also of one that is too large.
        separator_octets: the size of the empty line after it.
        next_offset: where reading continues after it.
        doubts: doubtful lines in it, and its own envelope if that is one; the first `DOUBTS_MAX`.
        doubtful: the number of all of them.
    """

    offset: int
    envelope: bytes
    content: bytes | None
    content_octets: int
    separator_octets: int
    next_offset: int
    doubts: tuple[Doubt, ...] = ()
    doubtful: int = 0


def entries_in(path: Path, start: int, octets_max: int) -> Iterator[MboxEntry]:
    """The messages of an mbox, from the offset of one of its `From ` lines on. Memory: about one message.

    Args:
        path: the file.
        start: an offset that an entry ended at; 0 for the whole file.
        octets_max: the largest message whose content is read, in bytes.
    """
    with path.open("rb") as file:
        file.seek(start)
        window = _Window(file, start)
        begun: Doubt | None = None
        while window.filled(_AHEAD_OCTETS):
            offset = window.offset
            envelope = window.take(_line_octets(window.peek(_AHEAD_OCTETS)))
            message = _Message(octets_max)
            begun = message.read(window, begun)
            yield message.entry(offset, envelope, window.offset)


def date_text(envelope: bytes) -> str:
    """The date of an envelope line as it is written; empty without one."""
    found = _DATED.fullmatch(_words(envelope))
    if not found:
        return ""
    return found["date"]


def is_envelope(start: bytes) -> bool:
    """Whether a file that begins so is an mbox, not one mail: an envelope with a date, and a header below."""
    lines = LINE_END.split(start.removeprefix(BOM), 2)
    return len(lines) > 1 and bool(_DATED.fullmatch(_words(lines[0]))) and bool(FIELD.match(lines[1]))


_COUNTED = "only the Content-Length of that message says so"
_NOT_COUNTED = "no message ends at this length"


@dataclass(slots=True)
class _Window:
    """The bytes of the file that are looked at: from `offset` on."""

    file: IO[bytes]
    offset: int
    buffer: bytes = b""
    place: int = 0
    ended: bool = False

    @property
    def left(self) -> int:
        return len(self.buffer) - self.place

    def filled(self, count: int) -> bool:
        """Hold at least `count` bytes, or all up to the end; False where nothing is left."""
        while self.left < count and not self.ended:
            chunk = self.file.read(CHUNK_OCTETS)
            self.ended = not chunk
            self.buffer = self.buffer[self.place :] + chunk
            self.place = 0
        return self.left > 0

    def peek(self, count: int) -> bytes:
        return self.buffer[self.place : self.place + count]

    def take(self, count: int) -> bytes:
        taken = self.peek(count)
        self.place += len(taken)
        self.offset += len(taken)
        return taken

    def ahead(self, count: int, octets: int) -> bytes:
        """The bytes after the next `count` ones, read apart from the window where they are beyond it."""
        if count + octets <= self.left:
            return self.buffer[self.place + count : self.place + count + octets]
        stands_at = self.file.tell()
        size = self.file.seek(0, SEEK_END)
        found = b""
        if self.offset + count < size:
            self.file.seek(self.offset + count)
            found = self.file.read(octets)
        self.file.seek(stands_at)
        return found

    def octets_before_from(self, last: bytes) -> int | None:
        """The number of bytes before the next line that begins with `From `; `last` is the byte before the window."""
        found = self.buffer.find(FROM, self.place)
        while found >= 0:
            before = last
            if found > self.place:
                before = self.buffer[found - 1 : found]
            if before in (b"", b"\n", b"\r"):
                return found - self.place
            found = self.buffer.find(FROM, found + 1)
        return None


@dataclass(slots=True)
class _Message:
    """The message that is being read."""

    octets_max: int
    parts: list[bytes] = field(default_factory=list)
    octets: int = 0
    tail: bytes = b""
    doubts: list[Doubt] = field(default_factory=list)
    doubtful: int = 0

    def read(self, window: _Window, begun: Doubt | None) -> Doubt | None:
        """Take what belongs to the message; what is doubtful about the envelope that ends it."""
        if begun:
            self._doubt(begun)
        end = self._counted_end(window)
        while window.filled(CHUNK_OCTETS):
            counted = None
            if end is not None and end > window.offset:
                counted = end - window.offset
            count = window.octets_before_from(self.tail[-1:])
            if count is None or (counted is not None and count > counted):
                self._take_text(window, counted)
                continue
            window.filled(count + _AHEAD_OCTETS)
            self._take(window, count)
            if window.offset == end:
                return None
            begins, why = self._judged_here(window, is_counted=counted is not None)
            doubt = None
            if why:
                doubt = Doubt(window.offset, _shown(window.peek(_SHOWN_OCTETS)), begins, why)
            if begins:
                return doubt
            if doubt:
                self._doubt(doubt)
            self._take(window, len(FROM))
        return None

    def _judged_here(self, window: _Window, *, is_counted: bool) -> tuple[bool, str]:
        """As `_judged`; a line within the counted bytes begins no message, and that it looks so is a doubt."""
        begins, why = _judged(window.peek(_AHEAD_OCTETS), after_empty=_ends_empty(self.tail))
        if not is_counted:
            return begins, why
        if begins:
            return False, _COUNTED
        return False, ""

    def _take_text(self, window: _Window, counted: int | None) -> None:
        """Take what the window holds, at most the counted bytes, where no line in it begins with `From `."""
        seen = window.left
        if not window.ended:
            seen -= len(FROM)  # the last bytes may be the begin of such a line
        if counted is not None:
            seen = min(seen, counted)
        self._take(window, seen)

    def _counted_end(self, window: _Window) -> int | None:
        """The offset at which the message ends by its `Content-Length`; None where it has none that is right."""
        window.filled(_HEADER_OCTETS)
        start = window.place
        header_end = _HEADER_END.search(window.buffer, start, start + _HEADER_OCTETS)
        if header_end is None:
            return None
        fields = list(_LENGTH.finditer(window.buffer, start, header_end.end()))
        if not fields:
            return None
        before_from = window.octets_before_from(b"\n")
        if before_from is not None and start + before_from < header_end.start():
            return None  # another message begins before this one has a body
        for name_and_number in fields:
            number = _NUMBER.fullmatch(name_and_number[1])
            if number is None:
                continue
            end = self._end_after(window, header_end.end() - start + int(number[1]))
            if end is not None:
                return end
        offset = window.offset + fields[0].start() - start
        line = _shown(fields[0][0][:_SHOWN_OCTETS])
        self._doubt(Doubt(offset, line, begins=False, why=_NOT_COUNTED))
        return None

    def _end_after(self, window: _Window, counted: int) -> int | None:
        """The offset of what follows the counted bytes: an envelope, or the end of the file; None where it is text."""
        last = window.ahead(counted - 1, 1)
        ahead = window.ahead(counted, _AHEAD_OCTETS)
        lines = b""
        if found := _LINES_AFTER.match(ahead):
            lines = found[0]
        rest = ahead[len(lines) :]
        ends = bool(last)
        if rest:
            is_line = (last + lines)[-1:] in (b"\n", b"\r") and rest.startswith(FROM)
            ends = is_line and _judged(rest, after_empty=True)[0]
        if not ends:
            return None
        return window.offset + counted + len(lines)

    def entry(self, offset: int, envelope: bytes, next_offset: int) -> MboxEntry:
        separator = b""
        if _ends_empty(self.tail):
            separator = _line_end_of(self.tail)
        size = self.octets - len(separator)
        content = None
        if size <= self.octets_max:
            content = b"".join(self.parts)[:size]
        doubts = tuple(self.doubts)
        return MboxEntry(offset, envelope, content, size, len(separator), next_offset, doubts, self.doubtful)

    def _take(self, window: _Window, count: int) -> None:
        taken = window.take(count)
        self.octets += len(taken)
        self.tail = (self.tail + taken[-_TAIL_OCTETS:])[-_TAIL_OCTETS:]
        if self.octets <= self.octets_max + _TAIL_OCTETS:
            self.parts.append(taken)
        else:
            self.parts.clear()

    def _doubt(self, doubt: Doubt) -> None:
        self.doubtful += 1
        if len(self.doubts) < DOUBTS_MAX:
            self.doubts.append(doubt)


def _judged(ahead: bytes, *, after_empty: bool) -> tuple[bool, str]:
    """Whether a `From ` line begins a message, and what is doubtful about that; "" where nothing is.

    Args:
        ahead: the bytes from that line on; fewer than `_AHEAD_OCTETS` where the file ends with them.
        after_empty: an empty line, or nothing, is before it.
    """
    line, *below = LINE_END.split(ahead, _LOOKED_AT_LINES)
    words = _words(line)
    dated = _DATED.fullmatch(words)
    one_word = dated is not None and " " not in (dated["sender"] or "")
    below_it = next(iter(below), b"")
    has_field = bool(FIELD.match(below_it)) or below_it.startswith(b">From ")
    if dated and one_word and has_field:
        return True, ""
    if dated and one_word and after_empty and _is_empty_entry(ahead, below):
        return True, ""
    if dated and after_empty and (has_field or _has_known_field(below)):
        return True, "its sender or the line below it is unusual"
    if after_empty and _has_known_field(below[:1]) and _looks_written(words):
        return True, "its date has no known form"
    if after_empty or (dated and one_word):
        why = "no header line follows it"
        if not dated:
            why = "it has no date of a known form"
        return False, why
    return False, ""


def _is_empty_entry(ahead: bytes, below: list[bytes]) -> bool:
    """Whether nothing but empty lines are between this line and the next envelope, or the end of the file."""
    text = next((line for line in below if line.strip()), None)
    if text is None:
        return len(ahead) < _AHEAD_OCTETS
    return bool(_DATED.fullmatch(_words(LINE_END.split(text, 1)[0])))


def _has_known_field(lines: list[bytes]) -> bool:
    """Whether a usual header line is among these, before an empty one."""
    for line in lines:
        if not line.strip():
            return False
        found = FIELD.match(line)
        if found and (found[1].lower() in _KNOWN_FIELDS or found[1].lower().startswith((b"x-", b"list-"))):
            return True
    return False


def _looks_written(words: str) -> bool:
    """Whether the line looks like an envelope of another form: of a sender alone, or with a time and a year."""
    sender = words.split(" ")[1:2]
    if not sender or not ("@" in sender[0] or sender[0] in _SENDERS):
        return False
    timed = _TIMED.fullmatch(words)
    return " " not in words[len(FROM) :] or (timed is not None and _YEAR.search(words) is not None)


def _words(line: bytes) -> str:
    """The line in words, one blank between them; "" for one that is too long for an envelope."""
    if len(line) > _LINE_OCTETS_MAX:
        return ""
    return " ".join(line.removeprefix(BOM).decode("latin-1").split())


def _line_octets(octets: bytes) -> int:
    """The size of the first line with its line end; of all bytes where no line ends in them."""
    found = LINE_END.search(octets)
    if not found:
        return len(octets)
    return found.end()


def _line_end_of(octets: bytes) -> bytes:
    for end in (b"\r\r\n", b"\r\n", b"\n", b"\r"):
        if octets.endswith(end):
            return end
    return b""


def _ends_empty(tail: bytes) -> bool:
    """Whether an empty line, or nothing, ends here: the last bytes of a message, at least two line ends of them."""
    end = _line_end_of(tail)
    rest = tail.removesuffix(end)
    return not rest or (bool(end) and rest.endswith((b"\n", b"\r")))


def _shown(octets: bytes) -> str:
    line = LINE_END.split(octets, 1)[0]
    return line.decode("utf-8", "replace")
