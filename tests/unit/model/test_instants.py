"""Microseconds, instants and nanoseconds: each goes over into the other, and what is lost is said."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mailmend.model.instants import MICROS, instant_before, instant_of, micros_at, nanos_in, nanos_of, span_of

NOW = datetime(2026, 9, 1, 12, 30, 15, 123_000, tzinfo=UTC)
NOW_MICROS = 1_788_265_815_123_000


def test_microseconds_are_counted_from_1970_and_an_instant_has_whole_milliseconds() -> None:
    assert instant_of(NOW_MICROS) == instant_of(NOW_MICROS + 999) == NOW
    assert instant_of(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert instant_of(0).tzinfo is UTC


def test_an_instant_of_any_zone_is_counted_in_whole_microseconds() -> None:
    assert micros_at(NOW) == NOW_MICROS
    assert micros_at(NOW + timedelta(microseconds=7)) == NOW_MICROS + 7
    assert micros_at(NOW.astimezone(timezone(timedelta(hours=2)))) == NOW_MICROS


@pytest.mark.parametrize(
    ("monotonic", "nanos"), [(0.0, 0), (1.5, 1_500_000_000), (0.000_000_6, 1_000), (0.000_000_4, 0)]
)
def test_the_seconds_of_a_clock_become_nanoseconds_in_whole_microseconds(monotonic: float, nanos: int) -> None:
    found = nanos_of(monotonic)

    assert found == nanos
    assert isinstance(found, int)


@pytest.mark.parametrize(
    ("nanos", "span"),
    [
        (0, timedelta(0)),
        (1, timedelta(microseconds=1)),
        (1_000, timedelta(microseconds=1)),
        (1_001, timedelta(microseconds=2)),
    ],
)
def test_a_span_is_no_less_than_its_nanoseconds(nanos: int, span: timedelta) -> None:
    assert span_of(nanos) == span
    assert nanos_in(span) == span // timedelta(microseconds=1) * 1_000


def test_a_second_has_a_million_microseconds() -> None:
    assert timedelta(microseconds=MICROS) == timedelta(seconds=1)


def test_an_instant_lies_an_age_before_now_where_there_is_one() -> None:
    assert instant_before(NOW, timedelta(minutes=1)) == NOW - timedelta(minutes=1)
    assert instant_before(NOW, timedelta(0)) is None
    assert instant_before(NOW, None) is None
