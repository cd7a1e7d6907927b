"""Statements with the answers of real servers, and what our lint says of them.

`tests/data/lint-corpus.txt` has one statement on a line; an empty line begins a new keyspace. The mark before it says
which servers take it: `+` Cassandra 4.1 and 5.0, `5` only 5.0, `4` only 4.1, `-` neither.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mailmend.cql.language.parser import parse
from mailmend.cql.lint_sources import statements_of
from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.rules import lint, rules_named
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import subjects_of
from mailmend.model.errors import CqlSyntaxError

FILE = Path(__file__).parents[1] / "data" / "lint-corpus.txt"
_TAKEN_BY = {
    "+": {ServerRelease.CASSANDRA_4_1, ServerRelease.CASSANDRA_5_0},
    "5": {ServerRelease.CASSANDRA_5_0},
    "4": {ServerRelease.CASSANDRA_4_1},
    "-": set(),
}
_RULES = rules_named(["T11", "T24", "T25", "K2"])
"""The rules about what a server refuses."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A statement, and the releases whose servers took it when the file was written."""

    text: str
    taken_by: frozenset[ServerRelease]


def stories() -> Iterator[tuple[Tried, ...]]:
    """The statements of the file, those of one keyspace together."""
    for block in FILE.read_text(encoding="utf-8").split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            yield tuple(Tried(line[2:], frozenset(_TAKEN_BY[line[0]])) for line in lines)


def refusals(texts: Sequence[str], release: ServerRelease) -> list[str]:
    """For each statement why our lint says that the server refuses it; "" where it says nothing."""
    problems = [_syntax_problem(text) for text in texts]
    valid = {str(place): text for place, text in enumerate(texts) if not problems[place]}
    for subject in subjects_of(statements_of(valid), "ks", release):
        for finding in lint(subject, _RULES):
            if finding.severity is Severity.ERROR and finding.file is not None:
                problems[int(finding.file)] += finding.text
    return problems


def _syntax_problem(text: str) -> str:
    try:
        parse(text)
    except CqlSyntaxError as error:
        return error.problem
    return ""
