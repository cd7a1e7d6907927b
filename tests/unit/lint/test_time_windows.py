"""Rules about time windows: each with what it finds, and with what is just not found."""

import pytest

from model.lint.finding import Severity
from model.lint.servers import Release
from tests.support.linting import DAY, UNIFIED, findings, pointed_at, table, windows

HOUR = 3600
KEYED = "k int, c int, PRIMARY KEY (k, c)"


def test_windows_without_ttl_are_found() -> None:
    """T1: whether the time to live is missing or zero; the place is the compaction, or the zero."""
    missing = table(compaction=windows())
    zero = table(compaction=windows(), default_time_to_live=0)
    assert [one.subject for one in findings(missing, "T1")] == ["default_time_to_live"]
    assert pointed_at(missing, findings(missing, "T1")) == ["compaction"]
    assert pointed_at(zero, findings(zero, "T1")) == ["default_time_to_live"]


@pytest.mark.parametrize(
    "text",
    [
        table(compaction=windows(), default_time_to_live=1),
        table(compaction=UNIFIED),
        table(),
        table(compaction=windows()) + f"ALTER TABLE t WITH default_time_to_live = {DAY};",
        table(compaction=windows()) + f"ALTER TABLE t WITH compaction = {UNIFIED};",
    ],
)
def test_rows_that_expire_or_have_no_windows_are_fine(text: str) -> None:
    """T1: what the last statement says counts."""
    assert findings(text, "T1") == ()


@pytest.mark.parametrize(
    ("days", "severity"),
    [
        (9.9, Severity.ERROR),
        (10, Severity.WARNING),
        (19.9, Severity.WARNING),
        (20, None),
        (30, None),
        (30.1, Severity.WARNING),
        (50, Severity.WARNING),
        (50.1, Severity.ERROR),
    ],
)
def test_a_ttl_spans_20_to_30_windows(days: float, severity: Severity | None) -> None:
    """T2: outside of that a warning, outside of 10 to 50 an error."""
    text = table(compaction=windows(), default_time_to_live=int(days * DAY))
    assert [one.severity for one in findings(text, "T2")] == ([severity] if severity else [])


def test_windows_that_would_fit_are_named() -> None:
    """T2: a 24th of the time to live, in a unit that CQL has."""
    month = table(compaction=windows(1, "HOURS"), default_time_to_live=30 * DAY)
    hour = table(compaction=windows(), default_time_to_live=HOUR)
    assert "about 1 day" in findings(month, "T2")[0].fix
    assert "720.0 windows of 1 hour" in findings(month, "T2")[0].text
    assert "about 2 minutes" in findings(hour, "T2")[0].fix


@pytest.mark.parametrize(
    "compaction", [windows(unit="FORTNIGHTS"), windows(0), "{'class': 'LeveledCompactionStrategy'}"]
)
def test_windows_that_are_none_are_not_counted(compaction: str) -> None:
    """T2, T3: T11 and the server have their say about those."""
    text = table(compaction=compaction, default_time_to_live=DAY)
    assert findings(text, "T2") == findings(text, "T3") == ()


def test_sstables_that_never_go_are_counted_by_the_year() -> None:
    """T3: the queue of James as it is leaves 8,760 SSTables on every node each year."""
    text = table("enqueued", compaction=windows(1, "HOURS"))
    assert [one.text for one in findings(text, "T3")] == [
        "windows of 1 hour leave 8,760 SSTables on every node each year, and none of them goes"
    ]
    assert findings(table(compaction=windows(4)), "T3") == ()
    assert findings(table(compaction=windows(4)), "T3", sstables_max=91)[0].rule.id == "T3"


def test_sstables_stay_for_gc_grace_beyond_their_ttl() -> None:
    """T3: an hour to live in windows of three minutes keeps ten days of them; a short gc_grace_seconds does not."""
    kept = table(compaction=windows(3, "MINUTES"), default_time_to_live=HOUR)
    short = table(compaction=windows(3, "MINUTES"), default_time_to_live=HOUR, gc_grace_seconds=3 * HOUR)
    assert "keep 4,820 SSTables" in findings(kept, "T3")[0].text
    assert findings(short, "T3") == ()


@pytest.mark.parametrize(
    ("read_repair", "release", "hit"),
    [
        (None, Release.CASSANDRA_5_0, True),
        ("'BLOCKING'", Release.CASSANDRA_4_0, True),
        ("'blocking'", Release.CASSANDRA_4_1, True),
        ("'NONE'", Release.CASSANDRA_5_0, False),
        ("'none'", Release.CASSANDRA_5_0, False),
        (None, Release.CASSANDRA_3_11, False),
        (None, Release.SCYLLA, False),
    ],
)
def test_blocking_read_repair_is_found_where_there_is_such_an_option(
    read_repair: str | None, release: Release, *, hit: bool
) -> None:
    """T7: blocking is the default of Cassandra 4.0 and later."""
    options = {"read_repair": read_repair} if read_repair else {}
    assert bool(findings(table(compaction=windows(), **options), "T7", release)) is hit
    assert findings(table(compaction=UNIFIED, **options), "T7", release) == ()


@pytest.mark.parametrize(
    ("compaction", "hit"),
    [
        (windows(unsafe_aggressive_sstable_expiration="true"), True),
        (windows(unsafe_aggressive_sstable_expiration="TRUE"), True),
        ("{'class': 'UnifiedCompactionStrategy', 'unsafe_aggressive_sstable_expiration': 'true'}", True),
        ("{'class': 'UnifiedCompactionStrategy', 'unsafe_aggressive_sstable_expiration': true}", True),
        (windows(unsafe_aggressive_sstable_expiration="false"), False),
        (windows(), False),
    ],
)
def test_aggressive_expiration_is_an_error(compaction: str, *, hit: bool) -> None:
    """T9: deleted rows may come back."""
    assert [one.severity for one in findings(table(compaction=compaction), "T9")] == [Severity.ERROR] * hit


@pytest.mark.parametrize(
    ("compaction", "hit"),
    [
        (windows(timestamp_resolution="MILLISECONDS"), True),
        ("{'class': 'DateTieredCompactionStrategy', 'timestamp_resolution': 'SECONDS'}", True),
        (windows(timestamp_resolution="MICROSECONDS"), False),
        (windows(), False),
    ],
)
def test_write_times_are_microseconds(compaction: str, *, hit: bool) -> None:
    """T10."""
    assert bool(findings(table(compaction=compaction), "T10")) is hit


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        (table(compaction=windows()), True),
        (table(compaction=windows(), bloom_filter_fp_chance=0.01), True),
        (table(compaction=windows(), bloom_filter_fp_chance=0.0011), True),
        (table(compaction=windows(), bloom_filter_fp_chance=0.001), False),
        (table(compaction=UNIFIED), False),
        (table(columns=KEYED, compaction=windows()), False),
    ],
)
def test_lookups_by_a_unique_key_want_better_filters(text: str, *, hit: bool) -> None:
    """T13: a table without clustering columns is looked up by its whole key."""
    assert bool(findings(text, "T13")) is hit


def test_a_table_that_is_known_to_be_looked_up_counts_as_well() -> None:
    """T13: a partition key may be unique although there are clustering columns."""
    text = table(columns=KEYED, compaction=windows())
    assert (
        "by k asks the filter of every window, and 1 % of them"
        in findings(text, "T13", looked_up=frozenset({"t"}))[0].text
    )
