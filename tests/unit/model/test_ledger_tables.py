"""Where things lie in our own keyspace: by day, by bucket, and for how long."""

from datetime import UTC, datetime, timedelta
from uuid import uuid1

from hypothesis import given
from hypothesis import strategies as st

from model.catalog.ledger import (
    FINDING_BUCKETS,
    HISTORY_TABLES,
    KEEP,
    LAG_BUCKETS,
    LEDGER_TABLES,
    REPAIR_LEASE,
    bucket_of,
    day_of,
    days_back,
)
from model.ids import micros_of
from model.schema.table import identifier


def test_everything_but_a_lease_expires_by_itself_in_windows_of_a_day() -> None:
    staying = (REPAIR_LEASE, *HISTORY_TABLES)
    for table in LEDGER_TABLES:
        expires = table.options.get("default_time_to_live") == str(30 * 24 * 3600)
        windows = table.compaction is not None and "TimeWindow" in table.compaction.strategy
        assert (expires, windows) == ((False, False) if table in staying else (True, True))


def test_every_name_needs_no_quotes() -> None:
    for table in LEDGER_TABLES:
        for name in (table.spelling, *(column.spelling for column in table.columns)):
            assert identifier(name) == name.lower()


def test_a_runs_day_is_told_by_its_own_id() -> None:
    run = uuid1()
    assert day_of(run) == datetime.fromtimestamp(micros_of(run) / 1e6, UTC).date().isoformat()


@given(st.integers(0, 30 * 24 * 3600), st.integers(-3600, 3600))
def test_what_is_kept_lies_in_one_of_the_days_that_are_read(age_seconds: int, skew_seconds: int) -> None:
    now = datetime(2026, 9, 1, 0, 30, tzinfo=UTC)
    written = now - timedelta(seconds=age_seconds + skew_seconds)
    assert written.date().isoformat() in days_back(int(now.timestamp() * 1e6), KEEP)


def test_days_are_read_newest_first() -> None:
    days = days_back(int(datetime(2026, 9, 1, tzinfo=UTC).timestamp() * 1e6))
    assert list(days) == sorted(days, reverse=True)
    assert len(days) == len(set(days))


@given(st.text())
def test_a_bucket_is_one_of_those_that_are_read(text: str) -> None:
    assert 0 <= bucket_of(text, FINDING_BUCKETS) < FINDING_BUCKETS
    assert 0 <= bucket_of(text, LAG_BUCKETS) < LAG_BUCKETS


def test_buckets_are_the_same_in_every_process() -> None:
    assert bucket_of("mailmend", 256) == 32


def test_keys_spread_over_buckets() -> None:
    counts = [0] * FINDING_BUCKETS
    for number in range(25_600):
        counts[bucket_of(str(number), FINDING_BUCKETS)] += 1
    assert max(counts) < 2 * 100
