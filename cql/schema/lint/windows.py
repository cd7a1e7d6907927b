"""Rules about time windows (TWCS): what keeps an SSTable from being dropped whole, and what makes too many of them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from mailmend.cql.schema.lint.rule import COMPACTION, Hit, Severity, table_rule
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
from mailmend.model.names import text_of
from mailmend.model.table import Table

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
    yield Hit(
        f"a time to live of {words(ttl)} spans {windows:,.1f} windows of {words(window)}",
        "compaction_window_size",
        Severity.WARNING if WINDOWS_MIN <= windows <= WINDOWS_MAX else Severity.ERROR,
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
    kept = ttl + grace if ttl else _YEAR
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
    text = (
        f"a lookup by {', '.join(column.spelling for column in table.partition)} asks the filter of every window, "
        f"and {100 * chance:g} % of them answer yes by mistake"
    )
    yield Hit(text, "bloom_filter_fp_chance")


def _chance(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.01
