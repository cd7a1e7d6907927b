"""Where the tables and keys of a TOML text are: `tomllib` gives values without places. Pure.

The text is one that `tomllib` takes, so nothing is judged here. A path is the names and list
numbers from the top to a value: `("truth", "users", "mirror")`.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Final

TomlPath = tuple[str | int, ...]

_BLANK: Final = re.compile(r"[ \t]*")
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*\n)*(?:#[^\n]*)?")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEXT: Final = re.compile(
    r'"""(?:(?:""?)?(?:[^"\\]|\\[\s\S]))*"{3,5}'
    r"|'''(?:(?:''?)?[^'])*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
)
_WORD: Final = re.compile(r"[^\s,\]}#]+(?: \d[^\s,\]}#]*)?")
"""A number, an instant (its date and time may be apart by a blank), true or false."""


def toml_offsets(text: str) -> Mapping[TomlPath, int]:
    """The offset of each table, key and list item, by its path; the whole begins at 0."""
    index = _Index(text)
    index.read()
    return index.offsets


def offset_at(offsets: Mapping[TomlPath, int], path: TomlPath) -> int:
    """The offset of a path; else of the nearest part that holds it."""
    while path and path not in offsets:
        path = path[:-1]
    return offsets.get(path, 0)


class _Index:
    """One walk through a text.

    Attributes:
        at: the offset up to which the text is read.
        table: the path of the table whose keys come next.
        lists: the number of tables so far in each list of tables.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.table: TomlPath = ()
        self.lists: dict[TomlPath, int] = {}
        self.offsets: dict[TomlPath, int] = {(): 0}

    def read(self) -> None:
        self.skip(_SPACE)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                self.header()
            else:
                self.entry(self.table)
            self.skip(_SPACE)

    def skip(self, what: re.Pattern[str]) -> str:
        """Read what matches here, and give it."""
        found = what.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found[0]

    def header(self) -> None:
        is_list = self.text.startswith("[[", self.at)
        brackets = 1 + is_list
        self.at += brackets
        path: TomlPath = ()
        for name, offset in self.dotted():
            path = self.within_list((*path, name))
            self.offsets.setdefault(path, offset)
        if is_list:
            parent = path
            if isinstance(path[-1], int):
                parent = path[:-1]
            number = self.lists.get(parent, 0)
            self.lists[parent] = number + 1
            self.offsets.setdefault(parent, self.offsets[path])
            path = (*parent, number)
            self.offsets[path] = offset
        self.table = path
        self.at += brackets

    def within_list(self, path: TomlPath) -> TomlPath:
        """The path; of a list of tables, the path of its latest table."""
        if path in self.lists:
            return (*path, self.lists[path] - 1)
        return path

    def dotted(self) -> list[tuple[str, int]]:
        """The names of a dotted key, each with its offset."""
        names = []
        while True:
            self.skip(_BLANK)
            names.append((self.name(), self.at))
            self.at += len(self.peek_name())
            self.skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def peek_name(self) -> str:
        found = _TEXT.match(self.text, self.at) or _BARE.match(self.text, self.at)
        if found is None:
            raise ValueError(f"no key at offset {self.at}")
        return found[0]

    def name(self) -> str:
        spelling = self.peek_name()
        if spelling[0] not in "\"'":
            return spelling
        read: str = tomllib.loads(f"name = {spelling}")["name"]
        return read

    def entry(self, table: TomlPath) -> None:
        path = table
        for name, offset in self.dotted():
            path = (*path, name)
            self.offsets.setdefault(path, offset)
        self.at += 1  # the equals sign
        self.skip(_BLANK)
        self.value(path)

    def value(self, path: TomlPath) -> None:
        match self.text[self.at]:
            case "[":
                self.items(path)
            case "{":
                self.inline(path)
            case '"' | "'":
                self.skip(_TEXT)
            case _:
                self.skip(_WORD)

    def items(self, path: TomlPath) -> None:
        number = 0
        while self.goes_on("]"):
            self.offsets[(*path, number)] = self.at
            self.value((*path, number))
            number += 1

    def inline(self, path: TomlPath) -> None:
        while self.goes_on("}"):
            self.entry(path)

    def goes_on(self, end: str) -> bool:
        """Read up to the next item of a list or inline table; False at its end."""
        if self.text[self.at] in "[{":
            self.at += 1
        self.skip(_SPACE)
        if self.text[self.at] == ",":
            self.at += 1
            self.skip(_SPACE)
        if self.text[self.at] != end:
            return True
        self.at += 1
        return False
