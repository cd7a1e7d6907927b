"""Numbers and durations as the rules read them from a table: what is no number is the default, never an error."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.lint.subject import (
    GC_GRACE_DEFAULT,
    Subject,
    gc_grace_of,
    option_text,
    strategy_of,
    ttl_of,
    window_of,
    words,
)
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Compaction, Kind, Table
from tests.support.linting import subject_of, table

KEY = (Column("k", "int", Kind.PARTITION),)
TWCS = "TimeWindowCompactionStrategy"


def made(compaction: Compaction | None = None, **options: str) -> Table:
    return Table("t", KEY, compaction=compaction, options=options)


@pytest.mark.parametrize(
    ("literal", "seconds"),
    [
        ("0", 0),
        ("60", 60),
        ("-1", 0),
        ("'60'", 60),
        ("99999999999999", 2**31 - 1),
        ("soon", 0),
        ("", 0),
        ("1.5", 0),
        ("\u0661", 0),
    ],
)
def test_a_time_to_live_is_a_number_of_seconds(literal: str, seconds: int) -> None:
    assert ttl_of(made(default_time_to_live=literal)).total_seconds() == seconds


def test_defaults_are_the_servers() -> None:
    assert ttl_of(made()) == timedelta(0)
    assert gc_grace_of(made()).total_seconds() == GC_GRACE_DEFAULT
    assert strategy_of(made()) == "SizeTieredCompactionStrategy"
    assert window_of(made(Compaction(TWCS))) == timedelta(days=1)
    assert option_text(made(), "comment") == ""


@pytest.mark.parametrize(
    ("strategy", "options", "window"),
    [
        (TWCS, {"compaction_window_size": "7"}, timedelta(days=7)),
        (TWCS, {"compaction_window_unit": "HOURS"}, timedelta(hours=1)),
        (TWCS, {"compaction_window_unit": "MINUTES", "compaction_window_size": "90"}, timedelta(minutes=90)),
        (f"org.apache.cassandra.db.compaction.{TWCS}", {}, timedelta(days=1)),
        (TWCS, {"compaction_window_unit": "minutes"}, None),
        (TWCS, {"compaction_window_size": "365000"}, timedelta(days=365_000)),
        (TWCS, {"compaction_window_size": "365001"}, None),
        (TWCS, {"compaction_window_size": "0"}, None),
        (TWCS, {"compaction_window_size": "-3"}, None),
        (TWCS, {"compaction_window_size": "99999999999999"}, None),
        ("LeveledCompactionStrategy", {"compaction_window_size": "7"}, None),
        (f"com.example.{TWCS}", {}, None),
    ],
)
def test_windows_are_read_with_their_unit(strategy: str, options: dict[str, str], window: timedelta | None) -> None:
    assert window_of(made(Compaction(strategy, options))) == window


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=30), "30 days"),
        (timedelta(days=1), "1 day"),
        (timedelta(hours=36), "36 hours"),
        (timedelta(minutes=90), "90 minutes"),
        (timedelta(seconds=61), "61 seconds"),
        (timedelta(0), "0 seconds"),
        (timedelta(days=3650), "3,650 days"),
    ],
)
def test_durations_are_reported_in_their_largest_whole_unit(duration: timedelta, text: str) -> None:
    assert words(duration) == text


@given(st.integers(0, 10**9))
def test_no_duration_is_reported_shorter_or_longer_than_it_is(seconds: int) -> None:
    number, unit = words(timedelta(seconds=seconds)).replace(",", "").split()
    units = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
    assert int(number) * units[unit.removesuffix("s")] == seconds


def test_writes_are_those_of_batches_too() -> None:
    text = table() + (
        "INSERT INTO t (k) VALUES (1); SELECT k FROM t;"
        "BEGIN BATCH DELETE FROM t WHERE k = 1; DELETE FROM t WHERE k = 2; APPLY BATCH;"
    )
    assert [(one.number, one.points) for one in subject_of(text).writes()] == [
        (1, ()),
        (3, (("name", "0"),)),
        (3, (("name", "1"),)),
    ]


def test_a_table_is_found_under_the_servers_name() -> None:
    text = table(columns="k int, v int, PRIMARY KEY (k)") + (
        "CREATE MATERIALIZED VIEW by_v AS SELECT * FROM t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k);"
        "INSERT INTO ks.T (k) VALUES (1);"
    )
    subject = subject_of(text)
    found = subject.table("by_v")
    assert found is not None
    assert [column.name for column in found.partition] == ["v"]
    assert subject.table("T") is None
    assert [subject.table_of(one.write) is not None for one in subject.writes()] == [True]
    elsewhere = Subject(subject.schema, "other", subject.statements)
    assert [elsewhere.table_of(one.write) for one in elsewhere.writes()] == [None]
    assert Subject(Schema((), ())).table("t") is None
