"""The reader of a file of projections (TOML). Pure.

Every error has file, line, column and what to write instead. Reading goes on behind an error, so
that one error tells all places. Nothing in a file is evaluated.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import FileForm
from mailmend.model.names import name_of, spelled
from mailmend.model.projections.declaration_form import FILE_FORM, MIRROR_FORM, TRUTH_FORM
from mailmend.model.projections.declarations import (
    EXAMPLE,
    LEFT_OUT,
    MIRROR,
    RENAMED,
    Declaration,
    DeclaredMirror,
    DeclaredTruth,
    cql_name,
)
from mailmend.model.texts import Place, names_instead, place_of
from mailmend.model.toml_places import TomlPath, offset_at, toml_offsets

T = TypeVar("T")

FILE_CHARACTERS_MAX: Final = 2**18
"""Characters of a file of projections; a larger one is refused."""

REFUSED_SHOWN: Final = 20
"""The largest number of refused places that an error shows."""

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class BadDeclaration(WrongUse):
    """A file of projections that cannot be used; the message says where, and what to write instead.

    Args:
        file: its name, as it was given.
        place: where.
        problem: what is wrong there.
        refused: the errors of several places, in the order of the file; the message shows the
            first of them.
    """

    def __init__(
        self,
        file: str,
        place: Place,
        problem: str,
        *,
        mend: str = "",
        refused: Sequence["BadDeclaration"] = (),
    ) -> None:
        what = f"{file}, line {place.line}, column {place.column}: {problem}\n{place.pointed}"
        if refused:
            what = "\n".join(map(str, refused[:REFUSED_SHOWN]))
        more = len(refused) - REFUSED_SHOWN
        if more > 0:
            what = f"{what}\nand {more} more"
        super().__init__(what, mend=mend)
        self.file = file
        self.place = place
        self.problem = problem
        self.refused = tuple(refused)

    @property
    def each(self) -> Sequence["BadDeclaration"]:
        """The error of each place, in the order of the file."""
        return self.refused or (self,)


@dataclass(slots=True)
class _Source:
    """A file that is being read, and the first error of each place so far."""

    file: str
    text: str
    offsets: Mapping[TomlPath, int] = field(default_factory=dict)
    refused: dict[int, BadDeclaration] = field(default_factory=dict)

    def error(self, offset: int, problem: str, mend: str = "") -> BadDeclaration:
        return BadDeclaration(self.file, place_of(self.text, offset), problem, mend=mend)

    def note(self, path: TomlPath, problem: str, mend: str = "") -> None:
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
class DeclarationFile:
    """A declaration, and where its parts are in its file.

    Attributes:
        offsets: by paths of canonical names.
    """

    file: str
    text: str
    declaration: Declaration
    offsets: Mapping[TomlPath, int]

    def place_of(self, path: TomlPath) -> Place:
        """The place of a path of canonical names; else of the nearest part that holds it."""
        return place_of(self.text, offset_at(self.offsets, path))


def read_declaration(text: str, file: str) -> Declaration:
    """The declaration of a file.

    Args:
        text: of the file.
        file: its name, for errors.

    Raises:
        BadDeclaration: it is not TOML, or not a declaration.
    """
    return read_file(text, file).declaration


def read_file(text: str, file: str) -> DeclarationFile:
    """The declaration of a file, with its places.

    Args:
        text: of the file.
        file: its name, for errors.

    Raises:
        BadDeclaration: it is not TOML, or not a declaration.
    """
    source = _Source(file, text)
    top = _Node(source, (), _parsed(source))
    truths: tuple[DeclaredTruth, ...] = ()
    for part in top.parts(FILE_FORM).values():
        truths = tuple(part.each("truth", _truth))
    if not truths and not source.refused:
        top.note("no truth is declared", EXAMPLE)
    source.finish()
    declaration = top.made(lambda: Declaration(truths))
    source.finish()
    assert declaration is not None
    offsets = {_canonical(path): offset for path, offset in source.offsets.items()}
    return DeclarationFile(file, source.text, declaration, offsets)


def _canonical(path: TomlPath) -> TomlPath:
    steps: list[str | int] = []
    for step in path:
        if isinstance(step, str):
            steps.append(spelled(name_of(step)))
        else:
            steps.append(step)
    return tuple(steps)


def _parsed(source: _Source) -> Mapping[str, Any]:
    if len(source.text) > FILE_CHARACTERS_MAX:
        mend = f"A file of projections has at most {FILE_CHARACTERS_MAX:,} characters."
        raise source.error(0, "the file is too large", mend)
    try:
        document = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        found = _PLACE.search(said)
        if found is None:
            raise source.error(0, f"this is not TOML: {said}") from error
        offset = _offset_of(source.text, found)
        raise source.error(offset, f"this is not TOML: {said[: found.start()]}") from error
    except (ValueError, RecursionError) as error:
        raise source.error(0, f"this is not TOML: {error}") from error
    source.text = source.text.replace("\r\n", "\n")
    source.offsets = toml_offsets(source.text)
    return document


def _offset_of(text: str, found: re.Match[str]) -> int:
    """The offset of the place that an error of `tomllib` names."""
    if found[1] is None:
        return len(text)
    before = text.split("\n")[: int(found[1]) - 1]
    begin = sum(len(line) + 1 for line in before)
    return min(len(text), begin + int(found[2]) - 1)


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of the file at its path."""

    source: _Source
    path: TomlPath
    value: Any

    @property
    def name(self) -> str:
        """The key under which it is written."""
        return str(self.path[-1])

    def note(self, problem: str, mend: str = "") -> None:
        """Refuse the file for this, and read on."""
        self.source.note(self.path, problem, mend)

    def below(self, what: str, mend: str) -> "Iterator[_Node]":
        """The entries of a table."""
        if not isinstance(self.value, dict):
            self.note(f"{what} is not a table", mend)
            return
        for name, value in self.value.items():
            yield _Node(self.source, (*self.path, name), value)

    def parts(self, form: FileForm) -> "Mapping[str, _Node]":
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

    def each(self, kind: str, read: "Callable[[_Node], T | None]") -> Iterator[T]:
        """What is read of the tables below it, each under its name."""
        for node in self.below(kind, f"Write a table like [{'.'.join(map(str, self.path))}.NAME]."):
            value = read(node)
            if value is not None:
                yield value

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


def _truth(node: _Node) -> DeclaredTruth | None:
    table = node.cql_name(node.name, "table name")
    mirrors: tuple[DeclaredMirror, ...] = ()
    for part in node.parts(TRUTH_FORM).values():
        mirrors = tuple(part.each(MIRROR, _mirror))
    if node.source.refused or table is None:
        return None
    return node.made(lambda: DeclaredTruth(table, mirrors))


def _mirror(node: _Node) -> DeclaredMirror | None:
    table = node.cql_name(node.name, "table name")
    parts = node.parts(MIRROR_FORM)
    renamed: list[tuple[str, str]] = []
    left_out: list[str] = []
    if RENAMED in parts:
        renamed = list(_renamed(parts[RENAMED]))
    if LEFT_OUT in parts:
        left_out = list(_names(parts[LEFT_OUT]))
    if table is None:
        return None
    return node.made(lambda: DeclaredMirror(table, tuple(renamed), tuple(left_out)))


def _renamed(node: _Node) -> Iterator[tuple[str, str]]:
    for pair in node.below(RENAMED, 'Write it like { column_of_projection = "column_of_truth" }.'):
        own = pair.cql_name(pair.name, "column name")
        source = pair.cql_name(pair.value, "column name")
        if own is not None and source is not None:
            yield own, source


def _names(node: _Node) -> Iterator[str]:
    if not isinstance(node.value, list):
        node.note(f"{node.name} is a list of columns", 'Write it like ["note", "size"].')
        return
    for number, value in enumerate(node.value):
        item = _Node(node.source, (*node.path, number), value)
        name = item.cql_name(value, "column name")
        if name is not None:
            yield name
