"""Rules about writes: deletes, updates, timestamps, whole collections and batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mailmend.cql.schema.lint.rule import COMPACTION, Hit, PlaceKey, Severity, rule
from mailmend.cql.schema.lint.subject import TWCS, Subject, strategy_of
from mailmend.cql.statements import Batch, WriteKind, WriteRows
from mailmend.model.names import name_of
from mailmend.model.table import Column, Table

_MARKERS: Final = ("?", ":")


@rule(
    "T4",
    "Deletes on time windows",
    Severity.WARNING,
    "The tombstone lies in the window of today, what it deletes in an older one; windows never merge, so neither "
    "frees any space, and the tombstone keeps its own SSTable from expiring whole.",
    "Let rows expire instead of deleting them; where they must go at once, use UnifiedCompactionStrategy or "
    "LeveledCompactionStrategy, or run nodetool garbagecollect afterwards.",
    docs="managing/operating/compaction/twcs.html",
)
def _deletes(subject: Subject) -> Iterator[Hit]:
    """Each DELETE; without any, what is known of the table."""
    stated, others = _stated(
        subject, lambda write: write.change is WriteKind.DELETE, "this deletes from {}, which has time windows"
    )
    yield from stated
    for table in others:
        if table.name in subject.knowledge.deleted:
            yield Hit(f"rows of {table.spelling} are deleted one by one", points=COMPACTION, table=table.spelling)


@rule(
    "T5",
    "Updates on time windows",
    Severity.WARNING,
    "Each update of a row lies in the window of its day. A read of the row looks into all of those windows, for "
    "ever, and the parts of one row expire at different times. Flags or counters of which nothing more is known "
    "are a note.",
    "Use UnifiedCompactionStrategy with scaling_parameters L10 (5.0), or LeveledCompactionStrategy; keep time "
    "windows for rows that are written once.",
    docs="managing/operating/compaction/twcs.html",
)
def _updates(subject: Subject) -> Iterator[Hit]:
    """Each UPDATE; without any, what is known of the table, or what its columns suggest."""
    stated, others = _stated(
        subject, lambda write: write.change is WriteKind.UPDATE, "this updates {}, which has time windows"
    )
    yield from stated
    for table in others:
        yield from _changed_later(table, known=table.name in subject.knowledge.updated)


def _changed_later(table: Table, *, known: bool) -> Iterator[Hit]:
    flags = [column for column in table.regular if column.type == "boolean" or column.is_counter]
    names = ", ".join(column.spelling for column in flags)
    points = COMPACTION
    if flags:
        points = (("column", flags[0].name), *COMPACTION)
    if known:
        which = ""
        if names:
            which = f" ({names} among them)"
        text = f"columns of {table.spelling}{which} change long after the row was written"
        yield Hit(text, points=points, table=table.spelling)
    elif flags:
        text = f"{names} of {table.spelling}: flags and counters change after the row was written, as a rule"
        yield Hit(text, flags[0].spelling, Severity.NOTE, points, table=table.spelling)


@rule(
    "T6",
    "Timestamps of the writer's own on time windows",
    Severity.WARNING,
    "The newest write time in an SSTable decides its window. A row with an old timestamp lands in the window of "
    "today and is kept as long as that; one from the future keeps a whole SSTable from expiring.",
    "Let the driver stamp writes; for late fixes count on some SSTables that stay longer.",
    docs="managing/operating/compaction/twcs.html",
)
def _timestamps(subject: Subject) -> Iterator[Hit]:
    """Each USING TIMESTAMP; without any, what is known of the table."""
    text = "this writes to {} with a timestamp of its own"
    stated, others = _stated(subject, lambda write: write.timestamp is not None, text, ("option", "timestamp"))
    yield from stated
    for table in others:
        if table.name in subject.knowledge.stamped:
            text = f"rows of {table.spelling} are written with timestamps of the writer's choice"
            yield Hit(text, points=COMPACTION, table=table.spelling)


def _stated(
    subject: Subject, concerns: Callable[[WriteRows], bool], text: str, *first: PlaceKey
) -> tuple[list[Hit], list[Table]]:
    """A hit for each write to time windows that the rule concerns; and the tables without such a statement.

    Only `Knowledge` can tell about those.
    """
    hits = []
    met = set()
    for written in subject.writes():
        table = subject.table_of(written.write)
        if table and strategy_of(table) == TWCS and concerns(written.write):
            met.add(table.name)
            points = (*first, *written.points)
            name = table.spelling
            hits.append(Hit(text.format(name), points=points, statement=written.number, table=name))
    return hits, [table for table in subject.time_windowed() if table.name not in met]


@rule(
    "T14",
    "Collections that are written whole",
    Severity.WARNING,
    "Writing a whole collection that is not frozen first deletes what it held, by a range tombstone, even where "
    "there was nothing. Reads of rows that are written again and again collect them.",
    "Freeze the collection, or add and remove elements (c = c + ...) instead of writing all of it.",
    docs="developing/cql/types.html",
)
def _rewritten_collections(subject: Subject) -> Iterator[Hit]:
    """Each INSERT of a collection that is not frozen; without any, what is known of the table."""
    seen = set()
    for number, write, points in subject.writes():
        table = subject.table_of(write)
        if table is None or write.change is not WriteKind.INSERT:
            continue
        for column in _collections(table):
            if column.name in write.columns:
                seen.add((table.name, column.name))
                yield Hit(_whole(column), column.spelling, points=points, statement=number, table=table.spelling)
    for table in subject.schema.tables:
        for column in _collections(table):
            if (table.name, column.name) in subject.knowledge.rewritten - seen:
                text = f"{_whole(column)} whenever its row is"
                yield Hit(text, column.spelling, table=table.spelling)


def _collections(table: Table) -> list[Column]:
    return [column for column in table.regular if column.is_collection]


def _whole(column: Column) -> str:
    return f"{column.spelling} {column.type} is written whole"


@rule(
    "T17",
    "A batch across partitions",
    Severity.WARNING,
    "A logged batch over several partitions is written to two other nodes first and replayed after failures: one "
    "coordinator pays for all of them. An unlogged one is neither atomic nor faster.",
    "Send the statements one by one, each with retries; keep batches to one partition.",
    docs="developing/cql/dml.html",
)
def _batches(subject: Subject) -> Iterator[Hit]:
    """Batches whose partitions are known to differ; silent where bind markers hide the keys."""
    for number, parsed in enumerate(subject.statements):
        statement = parsed.statement
        if isinstance(statement, Batch) and _partitions_differ(subject, statement.writes):
            kind = "an unlogged batch"
            if statement.logged:
                kind = "a logged batch"
            tables = ", ".join(dict.fromkeys(write.name.spelling for write in statement.writes))
            yield Hit(f"{kind} writes to more than one partition", statement=number, table=tables)


def _partitions_differ(subject: Subject, writes: Sequence[WriteRows]) -> bool:
    types = set()
    literals = set()
    for write in writes:
        table = subject.table_of(write)
        if table is None:
            continue
        types.add(tuple(column.type for column in table.partition))
        key = _key(table, write)
        if key is not None and not any(value.startswith(_MARKERS) for value in key):
            literals.add(key)
    return len(types) > 1 or len(literals) > 1


def _key(table: Table, write: WriteRows) -> tuple[str, ...] | None:
    values = []
    for column in table.partition:
        if column.name not in write.values:
            return None
        values.append(write.values[column.name])
    return tuple(values)


@rule(
    "K1",
    "Writes with and without IF on one table",
    Severity.WARNING,
    "A write with IF is stamped by its ballot, a plain one by the driver's clock. Where the two clocks differ, a "
    "plain delete or update that came later can lose to an earlier one with IF, without a word.",
    "Write all columns of such a table with IF, or none.",
    docs="developing/cql/dml.html",
)
def _mixed_writes(subject: Subject) -> Iterator[Hit]:
    """The first plain write to a table that is also written with IF."""
    conditional = {name_of(written.write.name.spelling) for written in subject.writes() if written.write.conditional}
    found = set()
    for number, write, points in subject.writes():
        name = name_of(write.name.spelling)
        if name in conditional and not write.conditional and name not in found:
            found.add(name)
            text = f"{write.name} is written with IF elsewhere, and without it here"
            yield Hit(text, points=points, statement=number, table=write.name.spelling)
