"""The form of a rule: one decorated function, with its name, reason and fix, which yields hits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from mailmend.cql.schema.lint.subject import Subject
from mailmend.cql.statements import Span
from mailmend.model.names import name_of
from mailmend.model.table import Table

DOCS: Final = "https://cassandra.apache.org/doc/5.0/cassandra"


class Severity(IntEnum):
    """The severity of a finding."""

    NOTE = 1  # worth knowing; right in some cases
    WARNING = 2  # costs space, latency or consistency
    ERROR = 3  # the server refuses it, or rows are lost or come back

    @property
    def word(self) -> str:
        return self.name.lower()


PlaceKey = tuple[str, str]
"""Where a finding points, in the words of `Parsed.places`: ("option", "compaction"), ("column", "flags")."""

COMPACTION: Final[tuple[PlaceKey, ...]] = (("option", "compaction"),)


@dataclass(frozen=True, slots=True)
class Hit:
    """One violation of a rule.

    Attributes:
        subject: the column, option, index or view, or "" for the table as a whole.
        severity: the severity; None: the severity of the rule.
        points: the places to point at, of which the first that exists is used; (): the place of the subject.
        fix: what to do in this case; "": the fix of the rule.
        table: the table's spelling; "" for the keyspace as a whole.
    """

    text: str
    subject: str = ""
    severity: Severity | None = None
    points: tuple[PlaceKey, ...] = ()
    statement: int | None = None
    fix: str = ""
    table: str = ""

    @property
    def places(self) -> tuple[PlaceKey, ...]:
        """The places to point at; an option inside a map has the place of the map."""
        return self.points or (("column", name_of(self.subject)), ("option", self.subject.partition(".")[0]))


@dataclass(frozen=True, slots=True)
class LintRule:
    """One rule: name, severity, reason, fix, a page to read, and the function that finds hits.

    Ids are T and a number for the rules of the design's list, K and a number for all others.
    """

    id: str
    title: str
    severity: Severity
    reason: str
    fix: str
    reference: str
    check: Callable[[Subject], Iterator[Hit]]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A hit with its rule and its place in the text.

    Attributes:
        file, span: the place; None where no text has it, or the schema is a live one.
        statement: the number of the statement that contains the place.
        noted: whether the reason for ignoring it is a comment in the file.
    """

    rule: LintRule
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


def rule(
    rule_id: str, title: str, severity: Severity, reason: str, fix: str, *, docs: str
) -> Callable[[Callable[[Subject], Iterator[Hit]]], LintRule]:
    """Make a rule of a function that checks a keyspace; `docs` is a page of Cassandra's documentation."""
    return lambda check: LintRule(rule_id, title, severity, reason, fix, f"{DOCS}/{docs}", check)


def table_rule(
    rule_id: str, title: str, severity: Severity, reason: str, fix: str, *, docs: str, windows: bool = False
) -> Callable[[Callable[[Table, Subject], Iterator[Hit]]], LintRule]:
    """Make a rule of a function that checks one table; with `windows` only tables with time windows."""

    def made(look: Callable[[Table, Subject], Iterator[Hit]]) -> LintRule:
        def check(subject: Subject) -> Iterator[Hit]:
            tables: Iterable[Table] = subject.schema.tables
            if windows:
                tables = subject.time_windowed()
            for table in tables:
                for hit in look(table, subject):
                    points = hit.points
                    if windows:
                        points = (*hit.places, *COMPACTION)
                    yield replace(hit, table=table.spelling, points=points)

        return LintRule(rule_id, title, severity, reason, fix, f"{DOCS}/{docs}", check)

    return made
