"""Texts that people or foreign programs wrote. Pure.

Places in files: line, column, and the line with a caret. Notes about mails: texts that every store can keep. Options of
commands that messages show.
"""

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

_SHOWN = 100
"""The number of characters of a long line that are shown around the place."""

NOTE_BYTES_MAX: Final = 2_048
"""The largest number of bytes (UTF-8) of one note about a mail: a reply of a server, a reason, an error."""

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys instead of showing it: controls but line feed and tab, changes of direction; and surrogates."""

NAMES_SHOWN: Final = 50
"""The largest number of names that an error lists."""

_NAMES_COMPARED: Final = 1_000
"""A misspelt name is not compared with more names: each comparison takes microseconds."""

_NAME_CHARACTERS: Final = 80
_SIMILAR: Final = 0.6
_MUCH_ALIKE: Final = 0.75

_ADDRESS: Final = re.compile(r"(?<!\S)\S+@\S+")

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CUT: Final = "..."


def without_addresses(text: str) -> str:
    """A text whose words with `@`, which may be addresses of people, are `(address)`."""
    return _ADDRESS.sub("(address)", text)


def is_digits(text: str) -> bool:
    """Whether the text has only the digits 0 to 9, and at least one."""
    return text.isascii() and text.isdigit()


def similar_name(name: str, known: Collection[str]) -> str:
    """The known name that is most like a misspelt one, in whatever case; "" where none is like it.

    Args:
        name: a longer one than 80 characters is like none.
        known: of more than 1,000 names none is like it.
    """
    near = _similar_names(name, known, _SIMILAR)
    if not near:
        return ""
    return near[0]


def surely_meant(name: str, known: Collection[str]) -> str:
    """The only known name that is much like a misspelt one; "" where none is, or several are."""
    near = _similar_names(name, known, _MUCH_ALIKE)
    if len(near) == 1 or (near and near[0].lower() == name.lower()):
        return near[0]
    return ""


def _similar_names(name: str, known: Collection[str], least: float) -> list[str]:
    """The two most similar names at most, the better one first."""
    if len(name) > _NAME_CHARACTERS or len(known) > _NAMES_COMPARED:
        return []
    by_lower = {known_name.lower(): known_name for known_name in known}
    return [by_lower[near] for near in get_close_matches(name.lower(), by_lower, 2, least)]


def names_instead(
    name: str,
    known: Collection[str],
    there_are: str = "There are",
    mark: str = "",
) -> str:
    """What to write instead of a name that nothing has: the most similar one, then all of them.

    Args:
        name: the misspelt one.
        known: the names that there are, in the order in which they are listed; 50 at most are.
        there_are: what comes before the names.
        mark: what a name has before it where it is used.
    """
    shown = ", ".join(list(known)[:NAMES_SHOWN]) or "none"
    if len(known) > NAMES_SHOWN:
        shown = f"{shown} and {len(known) - NAMES_SHOWN:,} more"
    listed = f"{there_are}: {shown}."
    near = similar_name(name, known)
    if not near:
        return listed
    return f"Did you mean {mark + near!r}? {listed}"


def keyspace_option(keyspace: str) -> str:
    """The option that names a keyspace, as a shell takes it: a name in double quotes needs quotes around them."""
    return f"--keyspace {shlex.quote(keyspace)}"


def wellformed(text: str) -> str:
    """The text with U+FFFD in place of each half of a surrogate pair, which no store takes."""
    return _SURROGATE.sub(_REPLACEMENT, text)


def printable(text: str) -> str:
    """The text with U+FFFD in place of each character that a terminal obeys; line feeds and tabs stay.

    File names, reasons, owners and replies come from other people: an escape sequence in one of them could change what
    is on the screen, or what is typed next.
    """
    return _CONTROL.sub(_REPLACEMENT, text)


def escaped_json(line: str) -> str:
    """A JSON text with each such character as its escape, which means the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def noted(text: str | bytes, bytes_max: int = NOTE_BYTES_MAX) -> str:
    """Words of a foreign program as a note that every store can keep.

    Args:
        text: bytes are read as UTF-8. What is not UTF-8 becomes U+FFFD.
        bytes_max: the largest number of bytes of the note in UTF-8; a longer text is cut and ends with three dots.

    Returns:
        One line: each control character is a blank.
    """
    if isinstance(text, bytes):
        decoded = text.decode("utf-8", "replace")
    else:
        decoded = wellformed(text)
    if decoded.isprintable():
        return cut(decoded, bytes_max)
    blanks = {ord(char): " " for char in set(decoded) if not char.isprintable()}
    return cut(decoded.translate(blanks), bytes_max)


def cut(text: str, bytes_max: int = NOTE_BYTES_MAX) -> str:
    """The text, with U+FFFD in place of each half of a surrogate pair, cut to a number of bytes in UTF-8."""
    written = wellformed(text).encode()
    if len(written) <= bytes_max:
        return written.decode()
    return written[: max(0, bytes_max - len(_CUT))].decode("utf-8", "ignore") + _CUT[:bytes_max]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text.

    Attributes:
        line, column: counted from 1, as editors do; columns in characters.
        text: the whole line.
    """

    line: int
    column: int
    text: str

    @property
    def pointed(self) -> str:
        """The line with a caret under the column; a very long line is cut to the part around it."""
        at = self.column - 1
        first = max(0, at - _SHOWN // 2)
        shown = "".join(" " if mark.isspace() else mark for mark in self.text[first : first + _SHOWN])
        return f"{shown}\n{' ' * (at - first)}^"


def place_of(text: str, offset: int) -> Place:
    """The place of the character at that offset, which may be the end of the text."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    if end < 0:
        end = len(text)
    return Place(text.count("\n", 0, offset) + 1, offset - begin + 1, text[begin:end].removesuffix("\r"))
