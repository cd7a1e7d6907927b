"""Rules about tables, alone and in pairs: gc_grace, growth of partitions, read repair."""

from collections.abc import Iterator
from typing import Final

from mailmend.cql.schema.lint.rule import Hit, Severity, rule, table_rule
from mailmend.cql.schema.lint.subject import Subject, gc_grace_of, ttl_of, words
from mailmend.model.table import Column, Table

_KEY: Final = (("key", ""),)
_TIMES: Final = frozenset({"timestamp", "date", "time"})
_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "varint"})
_BUCKETS: Final = ("bucket", "shard", "slice", "window", "year", "month", "week", "day", "date", "hour", "period")


@table_rule(
    "T8",
    "Tombstones are kept for less than the hint window",
    Severity.ERROR,
    "A node that was away gets what it missed as hints, and hints of a table live no longer than its "
    "gc_grace_seconds: writes are lost to that node. A delete that it missed is forgotten elsewhere before it is "
    "back, and the row returns.",
    "Set gc_grace_seconds to the hint window at least (three hours unless cassandra.yaml says otherwise).",
    docs="managing/operating/hints.html",
)
def _short_gc_grace(table: Table, subject: Subject) -> Iterator[Hit]:
    grace = gc_grace_of(table)
    window = subject.knowledge.hint_window
    if grace < window:
        text = f"gc_grace_seconds of {words(grace)} is less than the hint window of {words(window)}"
        yield Hit(text, "gc_grace_seconds")


@rule(
    "T12",
    "Marks expire before what they hide",
    Severity.ERROR,
    "A mark says that a row of another table is gone. Once the mark has expired and the row has not, what was "
    "deleted is there again.",
    "Let the marks live longer than the rows, by the slack at least; or let neither expire.",
    docs="managing/operating/compaction/tombstones.html",
)
def _short_marks(subject: Subject) -> Iterator[Hit]:
    for marks, hidden in _pairs(subject, subject.knowledge.marks):
        kept = ttl_of(marks)
        needed = ttl_of(hidden) + subject.knowledge.slack
        if not kept or (ttl_of(hidden) and kept >= needed):
            continue
        rows = f"rows of {hidden.spelling} after {words(ttl_of(hidden))}" if ttl_of(hidden) else "what they hide never"
        text = f"marks in {marks.spelling} expire after {words(kept)}, {rows}"
        yield Hit(text, "default_time_to_live", table=marks.spelling)


@table_rule(
    "T15",
    "Too few partitions, or partitions that grow without end",
    Severity.WARNING,
    "A partition lies on one set of replicas and is compacted and repaired as one. Beyond about 100,000 rows or "
    "100 MB reads, repairs and compactions of it become slow; a handful of partitions use a handful of nodes.",
    "Put a bucket of time, or a hash of the row's key, into the partition key; or let rows expire. Where "
    "partitions stay small, say so with --partition-rows.",
    docs="developing/data-modeling/data-modeling_refining.html",
)
def _growing_partitions(table: Table, subject: Subject) -> Iterator[Hit]:
    expected = subject.knowledge.rows_per_partition.get(table.name)
    most = subject.knowledge.rows_max
    if expected is not None:
        if expected > most:
            text = f"{expected:,} rows are expected in a partition of {table.spelling}; {most:,} are the limit"
            yield Hit(text, points=_KEY)
    elif all(column.type == "boolean" for column in table.partition):
        text = f"{table.spelling} can have {2 ** len(table.partition)} partitions, whatever the number of its rows"
        yield Hit(text, table.partition[0].spelling if table.partition else "", points=_KEY)
    elif (times := _unbounded(table)) is not None:
        partition = ", ".join(column.spelling for column in table.partition)
        text = f"a partition of {table.spelling} ({partition}) takes rows by {times.spelling} without end"
        yield Hit(text, times.spelling, points=(*_KEY, ("column", times.name)))


def _unbounded(table: Table) -> Column | None:
    """The column by which partitions grow for ever: nothing in the key bounds them and nothing expires."""
    bounded = any(
        column.type in _TIMES | _NUMBERS or any(word in column.name.lower() for word in _BUCKETS)
        for column in table.partition
    )
    if bounded or ttl_of(table) or not table.clustering:
        return None
    first = table.clustering[0]
    return first if first.type in _TIMES else None


@table_rule(
    "T18",
    "Repairs come later than tombstones go",
    Severity.ERROR,
    "A replica that missed a delete learns of it in a repair. When the tombstone is gone from the others before, "
    "the deleted row returns from that replica.",
    "Repair more often, or raise gc_grace_seconds above the interval of repairs.",
    docs="managing/operating/repair.html",
)
def _gc_grace_and_repairs(table: Table, subject: Subject) -> Iterator[Hit]:
    """Silent where the interval of repairs is unknown."""
    grace = gc_grace_of(table)
    interval = subject.knowledge.repair_interval
    if interval is not None and grace <= interval:
        text = f"tombstones go after {words(grace)}, repairs come every {words(interval)}"
        yield Hit(text, "gc_grace_seconds", Severity.NOTE if ttl_of(table) else None)


@rule(
    "T19",
    "Truth and projection expire at different times",
    Severity.ERROR,
    "A projection can only follow its truth when their rows end together; else every row is drift from the day on "
    "which the first of the two expires.",
    "Give both tables the same default_time_to_live, or none.",
    docs="developing/cql/dml.html",
)
def _unequal_ttl(subject: Subject) -> Iterator[Hit]:
    for truth, projection in _pairs(subject, subject.knowledge.projections):
        theirs = ttl_of(truth)
        ours = ttl_of(projection)
        if theirs != ours:
            text = f"rows of {truth.spelling} {_stay(truth)}, rows of {projection.spelling} {_stay(projection)}"
            yield Hit(text, "default_time_to_live", table=projection.spelling)


def _stay(table: Table) -> str:
    return f"expire after {words(ttl_of(table))}" if ttl_of(table) else "stay"


@table_rule(
    "T20",
    "A list in a table that is repaired",
    Severity.WARNING,
    "Elements of a list have no identity but the time of their writing: an append or prepend that is sent again, "
    "or copied by a repair, is there twice.",
    "Use a set, a map or a frozen list.",
    docs="developing/cql/types.html",
)
def _lists(table: Table, subject: Subject) -> Iterator[Hit]:
    for column in table.regular:
        if subject.is_repaired(table) and column.type.startswith("list<"):
            yield Hit(f"{column.spelling} of {table.spelling} is a list, and the table is repaired", column.spelling)


@table_rule(
    "T21",
    "A counter in a table that is repaired",
    Severity.WARNING,
    "A counter takes increments only, without a timestamp; an increment that is sent twice counts twice, and no "
    "repair can write the right value over a wrong one.",
    "Count rows of the truth where that is cheap; else mend counters by differences, sent once, while nothing writes.",
    docs="developing/cql/counter-column.html",
)
def _counters(table: Table, subject: Subject) -> Iterator[Hit]:
    for column in table.regular:
        if subject.is_repaired(table) and column.is_counter:
            yield Hit(f"{column.spelling} of {table.spelling} is a counter, and the table is repaired", column.spelling)


def _pairs(subject: Subject, names: tuple[tuple[str, str], ...]) -> Iterator[tuple[Table, Table]]:
    for name, other in names:
        first = subject.table(name)
        second = subject.table(other)
        if first is not None and second is not None:
            yield first, second
