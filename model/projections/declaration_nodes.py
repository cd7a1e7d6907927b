"""The parts of a file of projections while it is read: a value at its path, and what is refused.

An error has file, line, column and what to write instead. Reading goes on behind an error.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import BadFile, FileForm
from mailmend.model.projections.toml_values import cql_name
from mailmend.model.texts import names_instead, place_of
from mailmend.model.toml_places import TomlPath, offset_at

T = TypeVar("T")


class BadDeclaration(BadFile):
    """A file of projections that cannot be used."""


@dataclass(slots=True)
class DeclarationText:
    """A file that is being read, and the first error of each place so far."""

    file: str
    text: str
    offsets: Mapping[TomlPath, int] = field(default_factory=dict)
    refused: dict[int, BadDeclaration] = field(default_factory=dict)

    def error(self, offset: int, problem: str, mend: str = "") -> BadDeclaration:
        return BadDeclaration(self.file, place_of(self.text, offset), problem, mend=mend)

    def note(self, path: TomlPath, problem: str, mend: str) -> None:
        offset = offset_at(self.offsets, path)
        self.refused.setdefault(offset, self.error(offset, problem, mend))

    def finish(self) -> None:
        """Raise what was refused."""
        errors = [self.refused[offset] for offset in sorted(self.refused)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BadDeclaration(self.file, errors[0].place, errors[0].problem, refused=errors)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file at its path."""

    source: DeclarationText
    path: TomlPath
    value: Any

    @property
    def name(self) -> str:
        """The key under which it is written."""
        return str(self.path[-1])

    def note(self, problem: str, mend: str = "") -> None:
        """Refuse the file for this, and read on."""
        self.source.note(self.path, problem, mend)

    def below(self, what: str, mend: str) -> "Iterator[Node]":
        """The entries of a table."""
        if not isinstance(self.value, dict):
            self.note(f"{what} is not a table", mend)
            return
        for name, value in self.value.items():
            yield Node(self.source, (*self.path, name), value)

    def parts(self, form: FileForm) -> "Mapping[str, Node]":
        """The entries of a table that may have no others than the parts of a form."""
        found = {}
        known = form.names
        for node in self.below(form.what, f"Write a table with: {', '.join(known)}."):
            if node.name in known:
                found[node.name] = node
            else:
                mend = names_instead(node.name, known, "It may have")
                node.note(f"{form.what} has no {node.name!r}", mend)
        return found

    def each(self, kind: str, read: "Callable[[Node], T | None]") -> Iterator[T]:
        """What is read of the tables below it, each under its name."""
        for node in self.below(kind, f"Write a table like [{'.'.join(map(str, self.path))}.NAME]."):
            value = read(node)
            if value is not None:
                yield value

    def items(self, problem: str, mend: str) -> "Iterator[Node]":
        """The items of a list."""
        if not isinstance(self.value, list):
            self.note(problem, mend)
            return
        for number, value in enumerate(self.value):
            yield Node(self.source, (*self.path, number), value)

    def made(self, make: Callable[[], T]) -> T | None:
        """What a maker of values makes; what it refuses is noted here."""
        try:
            return make()
        except WrongUse as error:
            self.note(error.what, error.mend)
            return None

    def cql_name(self, text: Any, what: str) -> str | None:
        """A name of CQL; what is not a name is noted here."""
        if not isinstance(text, str):
            self.note(f"a {what} is a text", f'Write it between quotes: "{text}".')
            return None
        return self.made(lambda: cql_name(text, what))
