"""Places in texts, for messages about files that people wrote: line, column, and the line with a caret. Pure."""

from dataclasses import dataclass

_SHOWN = 100
"""So many characters of a long line are shown around the place."""


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
    line = text[begin:] if end < 0 else text[begin:end]
    return Place(text.count("\n", 0, offset) + 1, offset - begin + 1, line.removesuffix("\r"))
