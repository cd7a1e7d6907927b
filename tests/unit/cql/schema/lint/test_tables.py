"""Rules about tables and pairs of tables: each with what it finds, and with what is just not found."""

from datetime import timedelta
from typing import Any

import pytest

from mailmend.cql.schema.lint.rule import Severity
from tests.support.linting import DAY, findings, pointed_at, table

HOURS_3 = 3 * 3600


@pytest.mark.parametrize(("seconds", "hit"), [(0, True), (HOURS_3 - 1, True), (HOURS_3, False), (None, False)])
def test_tombstones_outlive_the_hint_window(seconds: int | None, *, hit: bool) -> None:
    text = table() if seconds is None else table(gc_grace_seconds=seconds)
    assert [one.severity for one in findings(text, "T8")] == [Severity.ERROR] * hit


def test_another_hint_window_counts() -> None:
    text = table(gc_grace_seconds=HOURS_3)
    found = findings(text, "T8", hint_window=timedelta(hours=4))
    assert [one.text for one in found] == ["gc_grace_seconds of 3 hours is less than the hint window of 4 hours"]
    assert pointed_at(text, found) == ["gc_grace_seconds"]


@pytest.mark.parametrize(
    ("marks", "rows", "hit"),
    [
        (30, 30, True),
        (30, 0, True),
        (31, 30, False),
        (0, 30, False),
        (0, 0, False),
    ],
)
def test_marks_outlive_what_they_hide(marks: int, rows: int, *, hit: bool) -> None:
    text = table("marks", default_time_to_live=marks * DAY) + table("rows", default_time_to_live=rows * DAY)
    assert bool(findings(text, "T12", marks=(("marks", "rows"),))) is hit
    assert findings(text, "T12") == ()


def test_the_slack_of_marks_is_a_setting() -> None:
    text = table("marks", default_time_to_live=31 * DAY) + table("rows", default_time_to_live=30 * DAY)
    assert findings(text, "T12", marks=(("marks", "rows"),), slack=timedelta(days=2))
    assert findings(text, "T12", marks=(("marks", "nowhere"),), slack=timedelta(days=2)) == ()


def test_the_marks_of_a_mail_queue_are_known() -> None:
    text = table("deletedMailsV2", default_time_to_live=DAY) + table("enqueuedMailsV4")
    assert [one.text for one in findings(text, "T12")] == [
        "marks in deletedMailsV2 expire after 1 day, what they hide never"
    ]


@pytest.mark.parametrize(
    "columns",
    [
        "sensor text, at timestamp, v int, PRIMARY KEY (sensor, at)",
        "a text, b text, day_of_it date, PRIMARY KEY ((a, b), day_of_it)",
        "done boolean, c int, PRIMARY KEY (done, c)",
        "a boolean, b boolean, PRIMARY KEY ((a, b))",
    ],
)
def test_partitions_without_end_and_too_few_of_them_are_found(columns: str) -> None:
    assert len(findings(table(columns=columns), "T15")) == 1


@pytest.mark.parametrize(
    "text",
    [
        table(columns="sensor text, day date, at timestamp, PRIMARY KEY ((sensor, day), at)"),
        table(columns="sensor text, bucket text, at timestamp, PRIMARY KEY ((sensor, bucket), at)"),
        table(columns="shop int, at timestamp, PRIMARY KEY (shop, at)"),
        table(columns="sensor text, at timestamp, PRIMARY KEY (sensor, at)", default_time_to_live=DAY),
        table(columns="sensor text, name text, at timestamp, PRIMARY KEY (sensor, name, at)"),
        table(columns="message timeuuid, mailbox timeuuid, PRIMARY KEY (message, mailbox)"),
        table(columns="done boolean, k int, PRIMARY KEY ((done, k))"),
        table(),
    ],
)
def test_partitions_that_are_bounded_or_may_be_are_fine(text: str) -> None:
    assert findings(text, "T15") == ()


def test_rows_that_are_expected_decide() -> None:
    text = table(columns="sensor text, at timestamp, PRIMARY KEY (sensor, at)")
    assert findings(text, "T15", rows_per_partition={"t": 100_000}) == ()
    many = findings(table(), "T15", rows_per_partition={"t": 100_001})
    assert [one.text for one in many] == ["100,001 rows are expected in a partition of t; 100,000 are the limit"]
    assert findings(table(), "T15", rows_per_partition={"t": 11}, rows_max=10)


def test_repairs_come_before_tombstones_go() -> None:
    text = table("a", gc_grace_seconds=7 * DAY) + table("b", gc_grace_seconds=7 * DAY, default_time_to_live=DAY)
    weekly = findings(text, "T18", repair_interval=timedelta(days=7))
    assert [(one.table, one.severity) for one in weekly] == [("a", Severity.ERROR), ("b", Severity.NOTE)]
    assert findings(text, "T18", repair_interval=timedelta(days=6)) == ()
    assert findings(text, "T18") == ()


@pytest.mark.parametrize(
    ("truth", "projection", "hit"), [(5, 0, True), (0, 5, True), (5, 6, True), (5, 5, False), (0, 0, False)]
)
def test_truth_and_projection_expire_together(truth: int, projection: int, *, hit: bool) -> None:
    text = table("truth", default_time_to_live=truth) + table("copy", default_time_to_live=projection)
    found = findings(text, "T19", projections=(("truth", "copy"),))
    assert [one.severity for one in found] == [Severity.ERROR] * hit
    assert findings(text, "T19") == ()


def test_lists_and_counters_in_repaired_tables_are_found() -> None:
    text = (
        table("truth", "k int, steps list<text>, kept frozen<list<text>>, tags set<text>, PRIMARY KEY (k)")
        + table("copy", "k int, hits counter, PRIMARY KEY (k)")
        + table("other", "k int, steps list<text>, PRIMARY KEY (k)")
        + table("sums", "k int, hits counter, PRIMARY KEY (k)")
    )
    pairs = (("truth", "copy"),)
    lists, counters = findings(text, "T20", projections=pairs), findings(text, "T21", projections=pairs)
    assert [(one.table, one.subject) for one in lists] == [("truth", "steps")]
    assert [(one.table, one.subject) for one in counters] == [("copy", "hits")]
    assert pointed_at(text, (*lists, *counters)) == ["steps", "hits"]
    assert findings(text, "T20") == findings(text, "T21") == ()


def test_what_is_wrong_with_a_table_is_pointed_at() -> None:
    key = table(columns="sensor text, at timestamp, PRIMARY KEY (sensor, at)", comment="'x'")
    few = table(columns="done boolean, c int, PRIMARY KEY (done, c)")
    assert pointed_at(key, findings(key, "T15")) == ["(sensor, at)"]
    assert pointed_at(few, findings(few, "T15")) == ["(done, c)"]
    assert pointed_at(table(), findings(table(), "T15", rows_per_partition={"t": 10**6})) == ["(k)"]
    grace = table(comment="'x'", gc_grace_seconds=DAY)
    assert pointed_at(grace, findings(grace, "T18", repair_interval=timedelta(days=2))) == ["gc_grace_seconds"]
    pair = table("truth") + table("copy", comment="'x'", default_time_to_live=5)
    assert pointed_at(pair, findings(pair, "T19", projections=(("truth", "copy"),))) == ["default_time_to_live"]


@pytest.mark.parametrize(
    ("truth", "copy", "expected"),
    [
        (0, DAY, "rows of truth stay, rows of copy expire after 1 day"),
        (2 * DAY, 0, "rows of truth expire after 2 days, rows of copy stay"),
        (90, 60, "rows of truth expire after 90 seconds, rows of copy expire after 1 minute"),
    ],
)
def test_how_long_each_stays_is_reported(truth: int, copy: int, expected: str) -> None:
    text = table("truth", default_time_to_live=truth) + table("copy", default_time_to_live=copy)
    assert [one.text for one in findings(text, "T19", projections=(("truth", "copy"),))] == [expected]


def test_a_pair_that_is_not_whole_is_no_pair() -> None:
    text = table("truth", default_time_to_live=5)
    for pair in (("truth", "copy"), ("copy", "truth")):
        assert findings(text, "T19", projections=(pair,)) == findings(text, "T12", marks=(pair,)) == ()


def test_partitions_of_booleans_are_counted_and_named() -> None:
    three = table(columns="a boolean, b boolean, c boolean, PRIMARY KEY ((a, b, c))")
    assert [(one.subject, one.text) for one in findings(three, "T15")] == [
        ("a", "t can have 8 partitions, whatever the number of its rows")
    ]


@pytest.mark.parametrize(
    ("partition", "bounded"),
    [
        ("shard text", True),
        ('"Bucket" text', True),
        ('"MONTH" text', True),
        ("weekly text", True),
        ("slice text", True),
        ("window text", True),
        ("year text", True),
        ("day text", True),
        ("date text", True),
        ("hour text", True),
        ("period text", True),
        ("owner text", False),
        ("id uuid", False),
        ("id timeuuid", False),
        ("n tinyint", True),
        ("n smallint", True),
        ("n bigint", True),
        ("n varint", True),
        ("d time", True),
        ("d timestamp", True),
    ],
)
def test_what_bounds_a_partition_is_reported_by_type_or_name(partition: str, *, bounded: bool) -> None:
    name = partition.split(maxsplit=1)[0]
    text = table(columns=f"{partition}, at timestamp, PRIMARY KEY ({name}, at)")
    assert bool(findings(text, "T15")) is not bounded


def test_options_in_quotes_and_blanks_are_numbers_too() -> None:
    assert [one.text for one in findings(table(gc_grace_seconds="' 60 '"), "T8")] == [
        "gc_grace_seconds of 1 minute is less than the hint window of 3 hours"
    ]
    for literal in ("'--5'", "'x'", "''", "1e3", "'\u0665'"):
        assert findings(table(gc_grace_seconds=literal), "T8") == ()
    assert len(findings(table(gc_grace_seconds="'-5'"), "T8")) == 1


SENSOR = "sensor text, at timestamp, PRIMARY KEY (sensor, at)"
REPAIRED: dict[str, Any] = {"projections": (("t", "copy"),)}


@pytest.mark.parametrize(
    ("rule", "text", "known", "subject", "said"),
    [
        (
            "T12",
            table(default_time_to_live=DAY) + table("rows", default_time_to_live=2 * DAY),
            {"marks": (("t", "rows"),)},
            "default_time_to_live",
            "marks in t expire after 1 day, rows of rows after 2 days",
        ),
        ("T15", table(columns=SENSOR), {}, "at", "a partition of t (sensor) takes rows by at without end"),
        (
            "T18",
            table(gc_grace_seconds=DAY),
            {"repair_interval": timedelta(days=7)},
            "gc_grace_seconds",
            "tombstones go after 1 day, repairs come every 7 days",
        ),
        (
            "T20",
            table(columns="k int PRIMARY KEY, steps list<text>") + table("copy"),
            REPAIRED,
            "steps",
            "steps of t is a list, and the table is repaired",
        ),
        (
            "T21",
            table(columns="k int PRIMARY KEY, hits counter") + table("copy"),
            REPAIRED,
            "hits",
            "hits of t is a counter, and the table is repaired",
        ),
    ],
)
def test_each_rule_reports_what_it_found(rule: str, text: str, known: dict[str, Any], subject: str, said: str) -> None:
    assert [(hit.subject, hit.text) for hit in findings(text, rule, **known)] == [(subject, said)]
