"""The input of the rules: a schema, the statements that made it, the server that it is for, and further facts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from mailmend.cql.schema.lint.knowledge import Knowledge, known_of
from mailmend.cql.schema.lint.refused_options import refused_options
from mailmend.cql.schema.lint.requirements import refused_by_version
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.statements import Parsed, WriteRows
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY, Schema
from mailmend.model.names import name_of, short_class, text_of
from mailmend.model.table import Table

TWCS: Final = "TimeWindowCompactionStrategy"
UCS: Final = "UnifiedCompactionStrategy"
STCS: Final = "SizeTieredCompactionStrategy"
GC_GRACE_DEFAULT: Final = 864_000
"""The default of gc_grace_seconds: ten days, in seconds."""

_WINDOW_UNITS: Final = {
    "MINUTES": timedelta(minutes=1),
    "HOURS": timedelta(hours=1),
    "DAYS": timedelta(days=1),
}


class Written(NamedTuple):
    """A data statement, the number of the statement that it is or is in, and the place of its name there."""

    number: int
    write: WriteRows
    points: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """One keyspace, as input of the rules.

    Attributes:
        schema: the schema after all statements, or the server's.
        statements: the statements about this keyspace, in order; empty for a live keyspace.
        refused: for each statement that the server would refuse, by its number, the server's error.
        replication: the keyspace's replication options with "class"; None where they are not known.
        replication_at: the number of the statement that sets the replication.
    """

    schema: Schema
    keyspace: str = ""
    statements: tuple[Parsed, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    replication: Mapping[str, str] | None = None
    replication_at: int | None = None
    release: ServerRelease = ServerRelease.CASSANDRA_5_0
    knowledge: Knowledge = field(default_factory=Knowledge)

    def writes(self) -> Iterator["Written"]:
        """Every data statement, including those in batches."""
        for number, parsed in enumerate(self.statements):
            for place, write in enumerate(parsed.statement.row_writes):
                if write is parsed.statement:
                    yield Written(number, write)
                else:
                    yield Written(number, write, (("name", str(place)),))

    def table(self, name: str) -> Table | None:
        """The table or view of a name, as the server knows it; None where there is no such table or view."""
        for table in self.schema.tables:
            if table.name == name:
                return table
        for view in self.schema.views:
            if view.table.name == name:
                return view.table
        return None

    def table_of(self, write: WriteRows) -> Table | None:
        """The table that a statement writes to; None if it is not in this keyspace."""
        if write.name.keyspace is not None and name_of(write.name.keyspace) != self.keyspace:
            return None
        return self.table(name_of(write.name.spelling))

    def is_repaired(self, table: Table) -> bool:
        """Whether the table is a truth or a projection."""
        return any(table.name in pair for pair in self.knowledge.projections)

    def time_windowed(self) -> Iterator[Table]:
        return (table for table in self.schema.tables if strategy_of(table) == TWCS)


def strategy_of(table: Table) -> str:
    """The table's compaction strategy by its short name; the server's default where none is set."""
    if table.compaction is None:
        return STCS
    return short_class(table.compaction.strategy)


def compaction_options(table: Table) -> Mapping[str, str]:
    """The options of the table's compaction, without the class."""
    if table.compaction is None:
        return {}
    return table.compaction.options


def seconds_of(table: Table, option: str, default: int = 0) -> int:
    """The value of an option in seconds; `default` where it is missing or no number."""
    text = text_of(table.options.get(option, "")).strip()
    if not text.removeprefix("-").isdigit() or not text.isascii():
        return default
    return int(text)


def ttl_of(table: Table) -> timedelta:
    """The table's default time to live; zero: rows never expire."""
    return _span(seconds_of(table, "default_time_to_live"))


def gc_grace_of(table: Table) -> timedelta:
    return _span(seconds_of(table, "gc_grace_seconds", GC_GRACE_DEFAULT))


def window_of(table: Table) -> timedelta | None:
    """The length of the table's time windows; None where it has none, or the options are invalid."""
    options = compaction_options(table)
    unit = _WINDOW_UNITS.get(text_of(options.get("compaction_window_unit", "DAYS")))
    size = text_of(options.get("compaction_window_size", "1"))
    if strategy_of(table) != TWCS or unit is None or not (size.isascii() and size.isdigit()):
        return None
    if not 0 < int(size) <= _LONGEST // unit:
        return None
    return unit * int(size)


_SECONDS_MAX: Final = 2_147_483_647
_LONGEST: Final = timedelta(days=365_000)


def _span(seconds: int) -> timedelta:
    return timedelta(seconds=max(0, min(seconds, _SECONDS_MAX)))


def option_text(table: Table, option: str) -> str:
    """An option without its quotes; "" where it is missing."""
    return text_of(table.options.get(option, ""))


def words(duration: timedelta) -> str:
    """A duration in its largest whole unit, for people: 30 days, 1 hour."""
    seconds = int(duration.total_seconds())
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds and seconds % length == 0:
            return _counted(seconds // length, name)
    return _counted(seconds, "second")


def _counted(count: int, name: str) -> str:
    if count == 1:
        return f"1 {name}"
    return f"{count:,} {name}s"


@dataclass(slots=True)
class _Keyspace:
    """One keyspace while statements are read: its statements, and the schema so far.

    Attributes:
        schema: what the statements mean to make, so that rules judge a table that only this release refuses too.
        on_server: what a server of the release makes of them.
        denied: the names that statements would make which the release does not have.
    """

    release: ServerRelease
    statements: list[Parsed] = field(default_factory=list)
    schema: Schema = EMPTY
    on_server: Schema = EMPTY
    denied: set[str] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    replication: Mapping[str, str] | None = None
    replication_at: int | None = None
    made: set[str] = field(default_factory=set)

    def take(self, parsed: Parsed) -> None:
        """Apply the next statement; one that a server would refuse changes nothing."""
        number = len(self.statements)
        statement = parsed.statement
        self.statements.append(parsed)
        replication = statement.replication(self.replication)
        if replication is not self.replication:
            self.replication = replication
            self.replication_at = None
            if replication is not None:
                self.replication_at = number
        denied = self._denies(parsed)
        try:
            after = statement.apply(self.on_server)
        except SchemaRefused as error:
            if self.made >= statement.needs():  # else statements that are not here may allow it
                why = error.what
                if self.denied & statement.needs():
                    why += _MAKER_DENIED
                self.refused[number] = why
        else:
            if not denied:
                self.on_server = after
        with suppress(SchemaRefused):
            self.schema = statement.apply(self.schema)
        self.made |= statement.makes()
        if denied:
            self.denied |= statement.makes()
        else:
            self.denied -= statement.makes()

    def _denies(self, parsed: Parsed) -> bool:
        """Whether the release refuses the statement, unless the file says that it may stand."""
        if any(_IGNORES_RELEASE.search(line) for line in parsed.notes):
            return False
        statement = parsed.statement
        return bool(refused_by_version(statement, self.release) or refused_options(statement, self.release))


_MAKER_DENIED: Final = ": the server refuses the statement that makes it"
_IGNORES_RELEASE: Final = re.compile(r"lint:\s*ignore\b[^:]*\b(T11|T25)\b", re.IGNORECASE)
"""A comment that ignores the rules about what a release lacks."""


def subjects_of(
    statements: Sequence[Parsed],
    keyspace: str,
    release: ServerRelease = ServerRelease.CASSANDRA_5_0,
    knowledge: Knowledge | None = None,
) -> tuple[Subject, ...]:
    """One subject for each keyspace that the statements name, in the order of their first mention.

    Statements without a keyspace are run against the one that is given; USE holds to the end of its file. What is known
    of the mail tables is added to `knowledge`.
    """
    keyspaces: dict[str, _Keyspace] = {}
    current = keyspace
    file = None
    for parsed in statements:
        if parsed.file != file:
            current = keyspace
            file = parsed.file
        if parsed.statement.keyspace_chosen is not None:
            current = parsed.statement.keyspace_chosen
            continue
        of = name_of(parsed.statement.keyspace_named or current)
        keyspaces.setdefault(of, _Keyspace(release)).take(parsed)
    return tuple(_subject(name, found, release, knowledge or Knowledge()) for name, found in keyspaces.items())


def _subject(name: str, found: _Keyspace, release: ServerRelease, knowledge: Knowledge) -> Subject:
    return Subject(
        found.schema,
        name,
        tuple(found.statements),
        found.refused,
        found.replication,
        found.replication_at,
        release,
        knowledge.with_facts_of(known_of(found.schema)),
    )
