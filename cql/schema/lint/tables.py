"""Rules about what a schema holds: tables, alone and in pairs; time windows (TWCS); replication, views and indexes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from mailmend.cql.schema.lint.rule import COMPACTION, Hit, Severity, rule, table_rule
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import (
    TWCS,
    UCS,
    Subject,
    compaction_options,
    gc_grace_of,
    option_text,
    strategy_of,
    ttl_of,
    window_of,
    words,
)
from mailmend.cql.statements import CreateIndex, CreateView
from mailmend.model.keyspace import Index
from mailmend.model.names import name_of, short_class, text_of
from mailmend.model.table import Column, Table, spellings

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
        rows = "what they hide never"
        if ttl_of(hidden):
            rows = f"rows of {hidden.spelling} after {words(ttl_of(hidden))}"
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
        first = ""
        if table.partition:
            first = table.partition[0].spelling
        yield Hit(text, first, points=_KEY)
    elif (times := _unbounded(table)) is not None:
        partition = spellings(table.partition)
        text = f"a partition of {table.spelling} ({partition}) takes rows by {times.spelling} without end"
        yield Hit(text, times.spelling, points=(*_KEY, ("column", times.name)))


def _unbounded(table: Table) -> Column | None:
    """The column by which partitions grow for ever: nothing in the key bounds them and nothing expires."""
    for column in table.partition:
        if column.type in _TIMES | _NUMBERS or any(word in column.name.lower() for word in _BUCKETS):
            return None
    if ttl_of(table) or not table.clustering:
        return None
    first = table.clustering[0]
    if first.type not in _TIMES:
        return None
    return first


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
    if interval is None or grace > interval:
        return
    severity = None
    if ttl_of(table):
        severity = Severity.NOTE
    text = f"tombstones go after {words(grace)}, repairs come every {words(interval)}"
    yield Hit(text, "gc_grace_seconds", severity)


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
    if not ttl_of(table):
        return "stay"
    return f"expire after {words(ttl_of(table))}"


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


WINDOWS_MIN = 10
WINDOWS_MAX = 50
"""The least and the largest number of windows that a time to live may span."""

WINDOWS_FEW = 20
WINDOWS_MANY = 30
"""The numbers of windows that Cassandra's documentation advises."""

BLOOM_MAX: Final = 0.001
"""The largest bloom_filter_fp_chance of a table with time windows in which single rows are looked up."""

_YEAR: Final = timedelta(days=365)
_DOCS: Final = "managing/operating/compaction/twcs.html"


@table_rule(
    "T1",
    "Time windows without a time to live",
    Severity.WARNING,
    "TimeWindowCompactionStrategy gives space back by dropping SSTables in which everything has expired. Windows "
    "never merge with one another, so rows that are deleted instead stay on disk, with their tombstones, until a "
    "major compaction.",
    "Set default_time_to_live to the longest stay and some slack; where rows may stay for ever, use "
    "UnifiedCompactionStrategy (5.0) or LeveledCompactionStrategy.",
    docs=_DOCS,
    windows=True,
)
def _without_ttl(table: Table, _: Subject) -> Iterator[Hit]:
    if not ttl_of(table):
        yield Hit(f"{table.spelling} has time windows, but its rows never expire", "default_time_to_live")


@table_rule(
    "T2",
    "Too few or too many windows in a time to live",
    Severity.WARNING,
    "20 to 30 windows are the documentation's advice. With fewer, expired rows wait long for the rest of their "
    "window; with more, reads that cannot name the time look into more SSTables. Outside of 10 to 50 it is an "
    "error.",
    "Make the window a 24th of the time to live, rounded.",
    docs=_DOCS,
    windows=True,
)
def _windows_per_ttl(table: Table, _: Subject) -> Iterator[Hit]:
    ttl = ttl_of(table)
    window = window_of(table)
    if not ttl or window is None or WINDOWS_FEW <= (windows := ttl / window) <= WINDOWS_MANY:
        return
    severity = Severity.ERROR
    if WINDOWS_MIN <= windows <= WINDOWS_MAX:
        severity = Severity.WARNING
    yield Hit(
        f"a time to live of {words(ttl)} spans {windows:,.1f} windows of {words(window)}",
        "compaction_window_size",
        severity,
        fix=f"Choose windows of about {words(_rounded(ttl / 24))}: a 24th of the time to live.",
    )


def _rounded(length: timedelta) -> timedelta:
    """To whole days, hours or minutes: the largest unit that fits, at least a minute."""
    for unit in (timedelta(days=1), timedelta(hours=1)):
        if length >= unit:
            return unit * round(length / unit)
    return max(timedelta(minutes=1), timedelta(minutes=1) * round(length / timedelta(minutes=1)))


@table_rule(
    "T3",
    "Time windows leave too many SSTables",
    Severity.WARNING,
    "Each window leaves one SSTable at least, on every node. A read that cannot tell the time asks the Bloom "
    "filter of each; open files, memory for filters and start-up time grow with them.",
    "Widen the windows, or let rows expire (T1); a shorter gc_grace_seconds helps where nothing is deleted.",
    docs=_DOCS,
    windows=True,
)
def _too_many_sstables(table: Table, subject: Subject) -> Iterator[Hit]:
    """Each window leaves at least one SSTable, until `gc_grace_seconds` after all in it has expired."""
    window = window_of(table)
    ttl = ttl_of(table)
    grace = gc_grace_of(table)
    kept = _YEAR
    if ttl:
        kept = ttl + grace
    if window is None or (count := -(-kept // window)) <= subject.knowledge.sstables_max:
        return
    if ttl:
        over = f"{words(ttl)} and gc_grace_seconds of {words(grace)}"
        text = f"windows of {words(window)} over {over} keep {count:,} SSTables on every node"
    else:
        text = f"windows of {words(window)} leave {count:,} SSTables on every node each year, and none of them goes"
    yield Hit(text, "compaction")


@table_rule(
    "T7",
    "Blocking read repair on time windows",
    Severity.WARNING,
    "A blocking read repair writes the old cells that one replica lacked into the window of today. The SSTable of "
    "today then holds old rows, and old SSTables that overlap it cannot be dropped.",
    "Set read_repair = 'NONE', unless reads of one row must never go back in time after a failed write.",
    docs="managing/operating/read_repair.html",
    windows=True,
)
def _blocking_read_repair(table: Table, subject: Subject) -> Iterator[Hit]:
    """The option exists since Cassandra 4.0."""
    blocking = option_text(table, "read_repair").upper() in {"", "BLOCKING"}
    if blocking and subject.release.at_least(ServerRelease.CASSANDRA_4_0):
        yield Hit(f"reads of {table.spelling} write old cells into the newest window", "read_repair")


@table_rule(
    "T9",
    "Expired SSTables dropped without a look at what they hide",
    Severity.ERROR,
    "unsafe_aggressive_sstable_expiration skips the check for overlaps. A dropped tombstone may have hidden an "
    "older row in another SSTable: the row comes back.",
    "Remove the option; find out what blocks expiry with sstableexpiredblockers.",
    docs=_DOCS,
)
def _aggressive_expiration(table: Table, _: Subject) -> Iterator[Hit]:
    asked = text_of(compaction_options(table).get("unsafe_aggressive_sstable_expiration", ""))
    if strategy_of(table) in {TWCS, UCS} and asked.lower() == "true":
        text = f"{table.spelling} drops expired SSTables without looking at what they hide"
        yield Hit(text, "unsafe_aggressive_sstable_expiration", points=COMPACTION)


@table_rule(
    "T10",
    "Write times in another unit than microseconds",
    Severity.WARNING,
    "Drivers and servers stamp writes in microseconds since 1970. Read in another unit, every row falls into a "
    "window far from its own.",
    "Remove timestamp_resolution, unless every single write comes with a timestamp of that unit.",
    docs=_DOCS,
)
def _timestamp_resolution(table: Table, _: Subject) -> Iterator[Hit]:
    stated = text_of(compaction_options(table).get("timestamp_resolution", "MICROSECONDS"))
    if stated != "MICROSECONDS" and strategy_of(table) in {TWCS, "DateTieredCompactionStrategy"}:
        text = f"{table.spelling} takes write times for {stated}; drivers and servers write microseconds"
        yield Hit(text, "timestamp_resolution", points=COMPACTION)


@table_rule(
    "T13",
    "Lookups by a unique key on time windows",
    Severity.WARNING,
    "A lookup by key does not say when the row was written, so it asks every window. At the default of 1 % false "
    "positives, a hundred windows cost a read of the disk for each key that is not there.",
    "Set bloom_filter_fp_chance to 0.001 or less, or use UnifiedCompactionStrategy or LeveledCompactionStrategy.",
    docs="managing/operating/bloom_filters.html",
    windows=True,
)
def _lookups(table: Table, subject: Subject) -> Iterator[Hit]:
    """Lookups by a primary key without clustering columns, or those that `Knowledge` lists."""
    chance = _chance(option_text(table, "bloom_filter_fp_chance"))
    if (table.clustering and table.name not in subject.knowledge.looked_up) or chance <= BLOOM_MAX:
        return
    key = spellings(table.partition)
    text = f"a lookup by {key} asks the filter of every window, and {100 * chance:g} % of them answer yes by mistake"
    yield Hit(text, "bloom_filter_fp_chance")


def _chance(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.01


_OF_MANY_VALUES: Final = "uuid timeuuid timestamp date time inet blob decimal double float duration bigint varint"
_MANY_VALUES: Final = frozenset(_OF_MANY_VALUES.split())
_PERHAPS_MANY: Final = frozenset({"text", "ascii", "varchar", "int"})
_INNER: Final = frozenset({"values", "keys", "entries", "full"})


@rule(
    "T16",
    "SimpleStrategy",
    Severity.WARNING,
    "SimpleStrategy places copies without regard to data centres and racks: losing one rack may lose all copies of "
    "a row, and a second data centre cannot be added without a rebuild.",
    "Use NetworkTopologyStrategy with the copies of each data centre, even where there is only one.",
    docs="developing/cql/ddl.html",
)
def _simple_strategy(subject: Subject) -> Iterator[Hit]:
    strategy = short_class((subject.replication or {}).get("class", ""))
    if strategy == "SimpleStrategy":
        text = f"{subject.keyspace} is replicated by SimpleStrategy"
        yield Hit(text, "replication", statement=subject.replication_at)


@rule(
    "T22",
    "A materialised view",
    Severity.WARNING,
    "Views are experimental and off by default. No server finds out when a view and its table have gone apart. "
    "`mailmend check TABLE VIEW` does. Rows of the view without a row of the table go when it is "
    "built anew.",
    "Write a table of your own next to the truth, declared as its projection, so that it can be checked and mended.",
    docs="developing/cql/mvs.html",
)
def _views(subject: Subject) -> Iterator[Hit]:
    created = {}
    for number, parsed in enumerate(subject.statements):
        if isinstance(parsed.statement, CreateView):
            created[name_of(parsed.statement.name.spelling)] = number
    for view in subject.schema.views:
        name = view.table.spelling
        text = f"{name} is a materialised view of {view.base}"
        yield Hit(text, statement=created.get(view.table.name), table=name)


@rule(
    "T23",
    "A secondary index on many values",
    Severity.WARNING,
    "Each node indexes only its own rows. A lookup of a value that few rows have asks node after node, most of "
    "them in vain.",
    "Keep a table keyed by that column; or use a storage-attached index (5.0) together with the partition key.",
    docs="developing/cql/indexing/2i/2i-when-to-use.html",
)
def _many_values(subject: Subject) -> Iterator[Hit]:
    """Cassandra's own index is local to each node; ScyllaDB's is global."""
    if not subject.release.is_cassandra:
        return
    created = {}
    for number, parsed in enumerate(subject.statements):
        if isinstance(parsed.statement, CreateIndex):
            created[_of(parsed.statement.index)] = number
    for index in subject.schema.indexes:
        kind = _type_of(subject, index)
        if text_of(index.using) or kind not in _MANY_VALUES | _PERHAPS_MANY:
            continue
        severity: Severity | None = Severity.NOTE
        judged = "good only where many rows share few values"
        if kind in _MANY_VALUES:
            severity = None
            judged = "nearly every row has its own value"
        text = f"{index.spelling or 'an index'} is on {index.target} of {index.table}, {kind}: {judged}"
        statement = created.get(_of(index))
        yield Hit(text, index.spelling or index.target, severity, statement=statement, table=index.table)


def _of(index: Index) -> tuple[str, str]:
    """What it is on, without its name: CREATE INDEX may leave the name to the server."""
    return name_of(index.table), name_of(index.target.strip())


def _type_of(subject: Subject, index: Index) -> str:
    """Type of the indexed column; "" inside a collection, or where it is not known."""
    target = index.target.strip()
    if target.partition("(")[0].lower() in _INNER and target.endswith(")"):
        return ""
    table = subject.table(name_of(index.table))
    name = name_of(target)
    if table is None or name not in table:
        return ""
    return table.column(name).type.lower()
