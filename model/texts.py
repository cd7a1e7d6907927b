"""Where a character of a text stands, in the words of an editor: line and column, and the line itself with a caret.

For messages about files that people wrote; pure, so that every reader of files tells places the same way.
"""

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
        """The line with a caret under the column; a very long line is cut to what is near."""
        at = self.column - 1
        first = max(0, at - _SHOWN // 2)
        shown = "".join(" " if mark.isspace() else mark for mark in self.text[first : first + _SHOWN])
        return f"{shown}\n{' ' * (at - first)}^"


def place_of(text: str, offset: int) -> Place:
    """Where the character at that offset stands; the end of the text is a place too."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[begin:] if end < 0 else text[begin:end]
    return Place(text.count("\n", 0, offset) + 1, offset - begin + 1, line.removesuffix("\r"))
