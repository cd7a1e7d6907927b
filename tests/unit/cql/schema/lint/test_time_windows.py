"""Rules about time windows: each with what it finds, and with what is just not found."""

import pytest

from mailmend.cql.schema.lint.rule import Severity
from mailmend.cql.schema.lint.servers import ServerRelease
from tests.support.linting import DAY, UNIFIED, findings, pointed_at, table, windows

HOUR = 3600
KEYED = "k int, c int, PRIMARY KEY (k, c)"


def test_windows_without_ttl_are_found() -> None:
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
    text = table(compaction=windows(), default_time_to_live=int(days * DAY))
    assert [one.severity for one in findings(text, "T2")] == ([severity] if severity else [])


def test_windows_that_would_fit_are_named() -> None:
    month = table(compaction=windows(1, "HOURS"), default_time_to_live=30 * DAY)
    hour = table(compaction=windows(), default_time_to_live=HOUR)
    assert "about 1 day" in findings(month, "T2")[0].fix
    assert "720.0 windows of 1 hour" in findings(month, "T2")[0].text
    assert "about 2 minutes" in findings(hour, "T2")[0].fix


@pytest.mark.parametrize(
    "compaction", [windows(unit="FORTNIGHTS"), windows(0), "{'class': 'LeveledCompactionStrategy'}"]
)
def test_windows_that_are_none_are_not_counted(compaction: str) -> None:
    text = table(compaction=compaction, default_time_to_live=DAY)
    assert findings(text, "T2") == findings(text, "T3") == ()


def test_sstables_that_never_go_are_counted_by_the_year() -> None:
    text = table("enqueued", compaction=windows(1, "HOURS"))
    assert [one.text for one in findings(text, "T3")] == [
        "windows of 1 hour leave 8,760 SSTables on every node each year, and none of them goes"
    ]
    assert findings(table(compaction=windows(4)), "T3") == ()
    assert findings(table(compaction=windows(4)), "T3", sstables_max=91)[0].rule.id == "T3"


def test_sstables_stay_for_gc_grace_beyond_their_ttl() -> None:
    kept = table(compaction=windows(3, "MINUTES"), default_time_to_live=HOUR)
    short = table(compaction=windows(3, "MINUTES"), default_time_to_live=HOUR, gc_grace_seconds=3 * HOUR)
    assert "keep 4,820 SSTables" in findings(kept, "T3")[0].text
    assert findings(short, "T3") == ()


@pytest.mark.parametrize(
    ("read_repair", "release", "hit"),
    [
        (None, ServerRelease.CASSANDRA_5_0, True),
        ("'BLOCKING'", ServerRelease.CASSANDRA_4_0, True),
        ("'blocking'", ServerRelease.CASSANDRA_4_1, True),
        ("'NONE'", ServerRelease.CASSANDRA_5_0, False),
        ("'none'", ServerRelease.CASSANDRA_5_0, False),
        (None, ServerRelease.CASSANDRA_3_11, False),
        (None, ServerRelease.SCYLLA, False),
    ],
)
def test_blocking_read_repair_is_found_where_there_is_such_an_option(
    read_repair: str | None, release: ServerRelease, *, hit: bool
) -> None:
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
        ("{'class': 'LeveledCompactionStrategy', 'unsafe_aggressive_sstable_expiration': 'true'}", False),
        (windows(), False),
    ],
)
def test_aggressive_expiration_is_an_error(compaction: str, *, hit: bool) -> None:
    assert [one.severity for one in findings(table(compaction=compaction), "T9")] == [Severity.ERROR] * hit


@pytest.mark.parametrize(
    ("compaction", "hit"),
    [
        (windows(timestamp_resolution="MILLISECONDS"), True),
        ("{'class': 'DateTieredCompactionStrategy', 'timestamp_resolution': 'SECONDS'}", True),
        (windows(timestamp_resolution="MICROSECONDS"), False),
        ("{'class': 'LeveledCompactionStrategy', 'timestamp_resolution': 'SECONDS'}", False),
        (windows(), False),
    ],
)
def test_write_times_are_microseconds(compaction: str, *, hit: bool) -> None:
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
    assert bool(findings(text, "T13")) is hit


def test_a_table_that_is_known_to_be_looked_up_counts_as_well() -> None:
    text = table(columns=KEYED, compaction=windows())
    assert (
        "by k asks the filter of every window, and 1 % of them"
        in findings(text, "T13", looked_up=frozenset({"t"}))[0].text
    )


@pytest.mark.parametrize(
    ("seconds", "advised"),
    [
        (24 * 30, "about 1 minute"),
        (24 * 90, "about 2 minutes"),
        (24 * 3599, "about 1 hour"),
        (24 * HOUR, "about 1 hour"),
        (36 * HOUR, "about 2 hours"),
        (23 * DAY, "about 23 hours"),
        (24 * DAY, "about 1 day"),
        (60 * DAY, "about 2 days"),
        (1, "about 1 minute"),
    ],
)
def test_the_window_that_is_advised_is_rounded_to_a_unit_of_cql(seconds: int, advised: str) -> None:
    text = table(compaction=windows(400), default_time_to_live=seconds)
    assert [one.fix for one in findings(text, "T2")] == [f"Choose windows of {advised}: a 24th of the time to live."]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [("T2", "compaction"), ("T3", "compaction"), ("T7", "compaction"), ("T9", "compaction"), ("T10", "compaction")],
)
def test_what_is_wrong_with_windows_is_pointed_at(rule: str, wanted: str) -> None:
    unsafe = windows(1, "MINUTES", unsafe_aggressive_sstable_expiration="true", timestamp_resolution="SECONDS")
    text = table(comment="'first'", compaction=unsafe, default_time_to_live=DAY, gc_grace_seconds=DAY)
    assert pointed_at(text, findings(text, rule)) == [wanted]


def test_an_option_of_its_own_is_pointed_at_before_the_compaction() -> None:
    text = table(compaction=windows(), read_repair="'BLOCKING'", bloom_filter_fp_chance=0.01)
    assert pointed_at(text, findings(text, "T7")) == ["read_repair"]
    assert pointed_at(text, findings(text, "T13")) == ["bloom_filter_fp_chance"]


@pytest.mark.parametrize(
    ("chance", "expected"), [("0.05", "5 %"), ("1", "100 %"), ("'0.25'", "25 %"), ("'nothing'", "1 %")]
)
def test_the_chance_of_a_filter_is_reported_in_per_cent(chance: str, expected: str) -> None:
    (found,) = findings(table(compaction=windows(), bloom_filter_fp_chance=chance), "T13")
    assert f"and {expected} of them answer yes by mistake" in found.text


def test_a_key_of_several_columns_is_named_whole() -> None:
    (found,) = findings(table(columns="q text, id uuid, PRIMARY KEY ((q, id))", compaction=windows()), "T13")
    assert found.text.startswith("a lookup by q, id asks")


@pytest.mark.parametrize(
    ("size", "unit", "years"),
    [("0", "DAYS", False), ("1", "'DAYS'", True), ("-1", "DAYS", False), ("x", "DAYS", False), ("1", "days", False)],
)
def test_only_windows_that_make_sense_are_reckoned_with(size: str, unit: str, *, years: bool) -> None:
    literal = windows(1).replace("'1'", f"'{size}'").replace("'DAYS'", unit if unit[0] == "'" else f"'{unit}'")
    assert bool(findings(table(compaction=literal), "T3")) is years


def test_sstables_are_counted_up_to_the_limit() -> None:
    hundred = table(compaction=windows(), default_time_to_live=90 * DAY)
    assert findings(hundred, "T3") == ()
    assert "keep 101 SSTables" in findings(hundred.replace(str(90 * DAY), str(90 * DAY + 1)), "T3")[0].text
    assert "windows of 1 day over 91 days and gc_grace_seconds of 10 days keep 101 SSTables on every node" in {
        one.text for one in findings(table(compaction=windows(), default_time_to_live=91 * DAY), "T3")
    }


@pytest.mark.parametrize(
    ("rule", "option", "said"),
    [
        ("T1", "default_time_to_live", "t has time windows, but its rows never expire"),
        ("T7", "read_repair", "reads of t write old cells into the newest window"),
        (
            "T9",
            "unsafe_aggressive_sstable_expiration",
            "t drops expired SSTables without looking at what they hide",
        ),
        (
            "T10",
            "timestamp_resolution",
            "t takes write times for SECONDS; drivers and servers write microseconds",
        ),
    ],
)
def test_each_rule_reports_the_option_and_what_follows(rule: str, option: str, said: str) -> None:
    unsafe = windows(unsafe_aggressive_sstable_expiration="true", timestamp_resolution="SECONDS")
    assert [(hit.subject, hit.text) for hit in findings(table(compaction=unsafe), rule)] == [(option, said)]
