"""What a file of projections declares: truths by name, and for each the tables that follow from it.

Values only: nothing in a declaration is evaluated. `repair.declared` binds them to a live schema.
Names are kept as CQL spells them: plain in lower case, or in double quotes.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mailmend.model.errors import BadIdentifier, WrongUse
from mailmend.model.names import checked_spelling, name_of, spelled

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = "A name has letters, digits and _ without regard to case, or is in double quotes."
TRUTH: Final = "truth"
MIRROR: Final = "mirror"
RENAMED: Final = "renamed"
LEFT_OUT: Final = "left_out"
EXAMPLE: Final = f"Write a table like [{TRUTH}.users.{MIRROR}.users_by_email]."


def cql_name(text: str, what: str) -> str:
    """The name in the one spelling that a declaration keeps.

    Raises:
        BadIdentifier: it is not a name that CQL takes, in quotes or without.
    """
    if not text.isprintable():
        raise BadIdentifier(text, what, mend=_NAME)
    try:
        return spelled(name_of(checked_spelling(text, what)))
    except BadIdentifier as error:
        raise BadIdentifier(text, what, mend=_NAME) from error


def toml_text(text: str) -> str:
    """A text as TOML writes it: in single quotes where only double quotes are in it."""
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    return toml_text(text)


@dataclass(frozen=True, slots=True)
class DeclaredMirror:
    """One row for each truth row: the same columns, under another key.

    Attributes:
        table: the projection's table.
        renamed: (projection column, truth column) where the two names differ; key columns too.
        left_out: columns of the projection that are neither compared nor written.
    """

    table: str
    renamed: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        renamed = []
        for own, source in self.renamed:
            renamed.append((cql_name(own, "column name"), cql_name(source, "column name")))
        left_out = [cql_name(name, "column name") for name in self.left_out]
        own_names = [own for own, _ in renamed]
        _no_name_twice((*own_names, *left_out), f"the columns of {self.table}")
        object.__setattr__(self, "table", cql_name(self.table, "table name"))
        object.__setattr__(self, "renamed", tuple(renamed))
        object.__setattr__(self, "left_out", tuple(left_out))

    def text_of(self, truth: str) -> str:
        """Its part of the file."""
        lines = [f"[{TRUTH}.{toml_key(truth)}.{MIRROR}.{toml_key(self.table)}]"]
        if self.renamed:
            pairs = [f"{toml_key(own)} = {toml_text(source)}" for own, source in self.renamed]
            lines.append(f"{RENAMED} = {{ {', '.join(pairs)} }}")
        if self.left_out:
            lines.append(f"{LEFT_OUT} = [{', '.join(map(toml_text, self.left_out))}]")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class DeclaredTruth:
    """A table that is right by definition, and what follows from it."""

    table: str
    mirrors: tuple[DeclaredMirror, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", cql_name(self.table, "table name"))
        if not self.projections:
            header = f"[{TRUTH}.{toml_key(self.table)}.{MIRROR}.TABLE]"
            raise WrongUse(
                f"nothing follows from the truth {self.table}",
                mend=f"Name a table that follows from it: {header}",
            )
        _no_name_twice((self.table, *self.projections), f"the tables of the truth {self.table}")

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the tables that follow from it."""
        return tuple(mirror.table for mirror in self.mirrors)

    @property
    def text(self) -> str:
        """Its part of the file."""
        return "\n".join(mirror.text_of(self.table) for mirror in self.mirrors)


@dataclass(frozen=True, slots=True)
class Declaration:
    """Everything that a file of projections declares."""

    truths: tuple[DeclaredTruth, ...]

    def __post_init__(self) -> None:
        if not self.truths:
            raise WrongUse("no truth is declared", mend=EXAMPLE)
        truths = [truth.table for truth in self.truths]
        _no_name_twice(truths, "the truths")
        _no_name_twice(self.projections, "the projections")

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of all tables that follow from a truth."""
        names: list[str] = []
        for truth in self.truths:
            names.extend(truth.projections)
        return tuple(names)

    @property
    def text(self) -> str:
        """The declaration as a file; equal declarations have equal texts."""
        return "\n".join(truth.text for truth in self.truths)


def _no_name_twice(names: Iterable[str], among: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WrongUse(f"{name} occurs twice among {among}", mend="Name it once.")
        seen.add(name)
