"""Rules asked about a text of CQL, as short as a test wants it."""

from collections.abc import Iterable
from typing import Any

from mailmend.cql.lint_sources import statements_of
from mailmend.cql.schema.lint.rule import LintFinding
from mailmend.cql.schema.lint.rules import lint, rules_named
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import Knowledge, Subject, subjects_of

KEYSPACE = "ks"
FILE = "schema.cql"


def subject_of(text: str, release: ServerRelease = ServerRelease.CASSANDRA_5_0, **known: Any) -> Subject:
    """What the text makes of one keyspace; an empty text makes an empty one."""
    subjects = subjects_of(statements_of({FILE: text}), KEYSPACE, release, Knowledge(**known))
    return subjects[0] if subjects else subjects_of(statements_of({FILE: "SELECT a FROM b"}), KEYSPACE)[0]


def findings(
    text: str, rule: str, release: ServerRelease = ServerRelease.CASSANDRA_5_0, **known: Any
) -> tuple[LintFinding, ...]:
    return lint(subject_of(text, release, **known), rules_named([rule]))


def pointed_at(text: str, found: Iterable[LintFinding]) -> list[str]:
    return [text[one.span.start : one.span.end] for one in found if one.span]


def table(name: str = "t", columns: str = "k int, PRIMARY KEY (k)", **options: object) -> str:
    tail = " AND ".join(f"{option} = {literal}" for option, literal in options.items())
    return f"CREATE TABLE {name} ({columns}){f' WITH {tail}' if tail else ''};\n"


def windows(size: int = 1, unit: str = "DAYS", **more: str) -> str:
    options = {"compaction_window_size": str(size), "compaction_window_unit": unit, **more}
    pairs = ", ".join(f"'{name}': '{value}'" for name, value in options.items())
    return f"{{'class': 'TimeWindowCompactionStrategy', {pairs}}}"


DAY = 86_400
"""Seconds."""

WINDOWED = table(
    "w", "k int, at timestamp, v int, PRIMARY KEY (k, at)", compaction=windows(), default_time_to_live=25 * DAY
)
"""A table with time windows that nothing is to be said of but its read repair."""

UNIFIED = "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L10'}"
