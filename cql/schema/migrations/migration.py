"""Migrations as values: what a file's name, head and text say, and the chain that makes a folder one history.

A migration is a file of hand-written CQL, `NNNN_{pre|post}_name.cql`. Its head says why it is there, what it does and
how it is undone. Its checksum is over its text; the chain runs over names and checksums in order, so that a file that
was edited, removed or put in between shows in every chain value after it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256

from mailmend.cql.statements import Parsed
from mailmend.model.errors import BadMigration

NUMBER_MAX = 9999
_FILE_NAME = re.compile(r"(\d{4})_(pre|post)_([a-z0-9]+(?:_[a-z0-9]+)*)\.cql")
_COMMENT = re.compile(r"--[ \t]?(.*)")
_PARTS = ("Why", "Effect", "Undo")
_FORM = "NNNN_pre_what_it_does.cql or NNNN_post_what_it_does.cql, such as 0007_pre_add_labels.cql"


class Phase(Enum):
    """Whether a migration runs before (pre) or after (post) the release of the software that uses the tables."""

    PRE = "pre"  # before the new software is rolled out: it adds, so that old and new software both work
    POST = "post"  # after the old software is gone: it may take away


@dataclass(frozen=True, slots=True)
class FileName:
    """What a migration's file name says."""

    number: int
    phase: Phase
    name: str

    def __str__(self) -> str:
        return f"{self.number:04}_{self.phase.value}_{self.name}.cql"


@dataclass(frozen=True, slots=True)
class Head:
    """What the comment at the top of a migration says."""

    why: str
    effect: str
    undo: str


@dataclass(frozen=True, slots=True)
class Migration:
    r"""One migration.

    Attributes:
        text: the file's, with its line ends made `\n`.
        chain: the chain's value at this place of its folder; "" for a file outside a folder.
    """

    file: FileName
    text: str
    head: Head
    statements: tuple[Parsed, ...]
    chain: str = ""
    checksum: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checksum", checksum_of(self.text))

    @property
    def number(self) -> int:
        """The migration's number, from 1, in the order of the folder."""
        return self.file.number

    def cql(self, position: int) -> str:
        """The statement at that position (from 0) as written, without the semicolon."""
        span = self.statements[position].span
        return self.text[span.start : span.end]

    def line(self, position: int) -> int:
        """The line of the file on which that statement begins, from 1."""
        return self.text.count("\n", 0, self.statements[position].span.start) + 1


def normalised(text: str) -> str:
    r"""The text with its line ends made `\n`, so that a checkout on Windows has the same checksum."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def checksum_of(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def file_name(text: str) -> FileName:
    """Parse the name of a migration file.

    Raises:
        BadMigration: it is not the name of a migration.
    """
    found = _FILE_NAME.fullmatch(text)
    if not found:
        raise BadMigration(f"{text!r} is not the name of a migration", mend=f"Name it {_FORM}.")
    if int(found[1]) == 0:
        raise BadMigration(f"{text!r} has the number 0000", mend="Migrations are numbered from 0001.")
    return FileName(int(found[1]), Phase(found[2]), found[3])


def head_of(name: str, text: str) -> Head:
    """Parse the comment at the top of a migration.

    Raises:
        BadMigration: one of its three parts is missing or empty; the message says how they are written.
    """
    parts = {part: " ".join(words).strip() for part, words in dict(_parts(text)).items()}
    missing = [part for part in _PARTS if not parts.get(part)]
    if missing:
        raise BadMigration(
            f"{name} does not say at its top: {', '.join(missing)}",
            mend="Open the file with three comments, each over as many lines as it needs: "
            "'-- Why: ...', '-- Effect: ...', '-- Undo: ...'.",
        )
    return Head(*(parts[part] for part in _PARTS))


def _parts(text: str) -> Iterator[tuple[str, list[str]]]:
    current: list[str] | None = None
    for line in text.lstrip().splitlines():
        comment = _COMMENT.fullmatch(line.strip())
        if not comment:
            return
        said = comment[1].strip()
        opened = next((part for part in _PARTS if said.lower().startswith(f"{part.lower()}:")), None)
        if opened:
            current = [said[len(opened) + 1 :].strip()]
            yield opened, current
        elif current is not None:
            current.append(said)


def in_order(migrations: Iterable[Migration]) -> tuple[Migration, ...]:
    """The migrations of one folder sorted by number, each with its chain value.

    Raises:
        BadMigration: a number is there twice, or missing.
    """
    found = sorted(migrations, key=lambda one: (one.number, str(one.file)))
    for place, migration in enumerate(found, start=1):
        if place > 1 and found[place - 2].number == migration.number:
            raise BadMigration(
                f"number {migration.number:04} is there twice: {found[place - 2].file} and {migration.file}",
                mend="Give the one that was applied nowhere yet the next free number.",
            )
        if migration.number != place:
            raise BadMigration(
                f"number {place:04} is missing: {migration.file} comes where it should stand",
                mend="Numbers follow on each other from 0001. Put the missing file back, or number the new one anew.",
            )
    return tuple(_chained(found))


def _chained(migrations: Sequence[Migration]) -> Iterator[Migration]:
    value = ""
    for migration in migrations:
        value = next_link(value, str(migration.file), migration.checksum)
        yield replace(migration, chain=value)


def next_link(previous: str, name: str, checksum: str) -> str:
    """The next chain value: it covers everything up to and including this file."""
    return sha256(f"{previous}\n{name}\n{checksum}\n".encode()).hexdigest()
