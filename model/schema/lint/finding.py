"""A rule, what it saw, and the finding that is kept of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from model.schema.lint.subject import Subject
from model.schema.statements import Span


class Severity(IntEnum):
    """How bad it is."""

    NOTE = 1  # worth knowing; right in some cases
    WARNING = 2  # costs space, latency or consistency
    ERROR = 3  # the server refuses it, or rows are lost or come back

    @property
    def word(self) -> str:
        """Its name in reports and options."""
        return self.name.lower()


Wanted = tuple[str, str]
"""Where a finding points, in the words of `Parsed.places`: ("option", "compaction"), ("column", "flags")."""


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule saw.

    Attributes:
        table: its spelling; "" for the keyspace as a whole.
        text: what is so, in one sentence.
        subject: the column, option, index or view, or "" for the table as a whole.
        severity: None where the rule's own holds.
        points: where to point at, the first that can be found.
        statement: the number of the statement that it is about; None where it is about what all of them lead to.
        fix: what to do in this case; "" where the rule's own words serve.
    """

    table: str
    text: str
    subject: str = ""
    severity: Severity | None = None
    points: tuple[Wanted, ...] = ()
    statement: int | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it is called, how bad a hit is, why, what to do, where to read more, and how it looks.

    Attributes:
        id: T and K with a number; T as the list of rules in the design has them, K those beside it.
    """

    id: str
    title: str
    severity: Severity
    reason: str
    fix: str
    reference: str
    check: Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit with its rule and its place.

    Attributes:
        file, span: where it stands; None where no text says it, or the schema is a live one.
        statement: the number of the statement that holds the place.
        ignored: the reason that somebody gave for it, or None.
        noted: whether that reason stands in the file itself.
    """

    rule: Rule
    keyspace: str
    table: str
    subject: str
    severity: Severity
    text: str
    fix: str
    file: str | None = None
    span: Span | None = None
    statement: int | None = None
    ignored: str | None = None
    noted: bool = False
