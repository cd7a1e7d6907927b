"""The input of the rules: a schema, the statements that made it, the server that it is for, and further facts.

The further facts are what a schema does not tell: which tables are updated, deleted from, or follow from others. The
facts about mail tables come from the catalog's declarations, those about the queue's tables from what `mailqueue`
and James write, and those about our ledger from what `repair` writes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NamedTuple

from mailmend.cql.schema.lint.refused_options import refused_options
from mailmend.cql.schema.lint.servers import ServerRelease, refused_by_version
from mailmend.cql.statements import Parsed, WriteRows
from mailmend.model.catalog.ledger import REPAIR_FINDING, REPAIR_LAG, REPAIR_RUN
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.catalog.mail_queue import (
    BACKLOG_MAILS,
    BACKLOGS,
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    QUEUE_STATE,
    SLICE_TALLIES,
)
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import EMPTY, Schema
from mailmend.model.names import name_of, short_class, text_of
from mailmend.model.projections.family import Family
from mailmend.model.projections.projection import Projection
from mailmend.model.table import Table, names_of

HINT_WINDOW_DEFAULT: Final = timedelta(hours=3)
"""The default of `max_hint_window` in cassandra.yaml."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Facts that a schema does not tell. Tables are named as the server knows them.

    Attributes:
        repair_interval: how often every range is repaired (nodetool, Reaper); None where it is not known.
        slack: how much longer marks must live than the rows that they hide.
        marks: (table of marks, table whose rows they hide).
        projections: (truth, projection).
        updated, deleted, stamped, conditional: tables whose rows are changed later, are deleted, are written USING
            TIMESTAMP, or with IF.
        looked_up: tables that are read by a unique partition key although they have clustering columns.
        rewritten: (table, column) of collections that are written whole.
        paxos_variant: the server's setting, "" where it is not known.
    """

    repair_interval: timedelta | None = None
    hint_window: timedelta = HINT_WINDOW_DEFAULT
    slack: timedelta = timedelta(days=1)
    sstables_max: int = 100
    rows_max: int = 100_000
    rows_per_partition: Mapping[str, int] = field(default_factory=dict)
    marks: tuple[tuple[str, str], ...] = ()
    projections: tuple[tuple[str, str], ...] = ()
    updated: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    stamped: frozenset[str] = frozenset()
    conditional: frozenset[str] = frozenset()
    looked_up: frozenset[str] = frozenset()
    rewritten: frozenset[tuple[str, str]] = frozenset()
    paxos_variant: str = ""

    def with_facts_of(self, other: "Knowledge") -> "Knowledge":
        """The same, with the other's facts about tables added."""
        return replace(
            self,
            marks=tuple(dict.fromkeys(self.marks + other.marks)),
            projections=tuple(dict.fromkeys(self.projections + other.projections)),
            updated=self.updated | other.updated,
            deleted=self.deleted | other.deleted,
            stamped=self.stamped | other.stamped,
            conditional=self.conditional | other.conditional,
            looked_up=self.looked_up | other.looked_up,
            rewritten=self.rewritten | other.rewritten,
        )


def _names(*tables: Table) -> frozenset[str]:
    return frozenset(names_of(tables))


_MARKS: Final = (DELETED_MAILS.name, ENQUEUED_MAILS.name)
"""The marks of the queue, and the table whose rows they hide."""

_QUEUE: Final = Knowledge(
    marks=(_MARKS,),
    updated=_names(BROWSE_START, CONTENT_START),
    deleted=frozenset(_MARKS),
    conditional=_names(BROWSE_START, CONTENT_START),
)
"""James's four: slices are deleted by partition, marks by James alone, starts move."""

_BESIDE_QUEUE: Final = Knowledge(
    updated=_names(SLICE_TALLIES, QUEUE_STATE, DUE_MAILS, BACKLOGS),
    deleted=_names(DUE_MAILS, SLICE_TALLIES, BACKLOGS, BACKLOG_MAILS),
    stamped=_names(SLICE_TALLIES),
    conditional=_names(QUEUE_STATE, DUE_MAILS, BACKLOGS),
)
"""Ours: a mail that is due, or whose sub-queue moves again, goes from there under a lease; tallies
grow with their slice, are renewed, and go with it."""

_LEDGER: Final = Knowledge(
    updated=_names(REPAIR_RUN, REPAIR_FINDING), deleted=_names(REPAIR_LAG), stamped=_names(REPAIR_FINDING)
)
"""A run and its findings are written again as they go on; a lag that was mended is removed."""


def known_of(schema: Schema) -> Knowledge:
    """The facts about those mail, queue and ledger tables that are in the schema."""
    known = Knowledge()
    for family in FAMILIES:
        if schema.table(family.truth.name) is not None and schema.table(family.mirror.table.name) is not None:
            known = known.with_facts_of(_of_family(family))
    if schema.table(DELETED_MAILS.name) is not None and schema.table(ENQUEUED_MAILS.name) is not None:
        known = known.with_facts_of(_QUEUE)
    if schema.table(SLICE_TALLIES.name) is not None:
        known = known.with_facts_of(_BESIDE_QUEUE)
    if schema.table(REPAIR_RUN.name) is not None:
        known = known.with_facts_of(_LEDGER)
    return known


def _of_family(family: Family) -> Knowledge:
    mirror = family.mirror.table
    filters = _tables_of(family.filters)
    unions = _tables_of(family.unions)
    counts = _tables_of(family.counts)
    generators: list[Table] = []
    for count in family.counts:
        generators.extend(count.generators)
    contents = []
    if family.content:
        contents.append(family.content.table)
    known = Knowledge(
        projections=tuple((family.truth.name, table.name) for table in _tables_of(family.projections)),
        updated=_names(family.truth, mirror, *unions, *counts, *generators),
        deleted=_names(family.truth, mirror, *filters, *contents),
        conditional=_names(family.truth, *generators),
    )
    if family is not MESSAGES:
        return known
    return replace(
        known,
        stamped=_names(mirror, *filters, *unions),
        looked_up=_names(family.truth),
        rewritten=frozenset((mirror.name, name) for name in mirror.collections),
    )


def _tables_of(projections: Iterable[Projection]) -> list[Table]:
    return [projection.table for projection in projections]


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
        for table in self.schema.tables:
            if strategy_of(table) == TWCS:
                yield table


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
        if any(map(_IGNORES_RELEASE.search, parsed.notes)):
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
    given = knowledge or Knowledge()
    subjects = []
    for name, found in keyspaces.items():
        subject = Subject(
            found.schema,
            name,
            tuple(found.statements),
            found.refused,
            found.replication,
            found.replication_at,
            release,
            given.with_facts_of(known_of(found.schema)),
        )
        subjects.append(subject)
    return tuple(subjects)
