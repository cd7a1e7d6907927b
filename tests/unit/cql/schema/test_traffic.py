"""Traffic reckoned from what lies in the tables: births of messages, rows of slices, numbers given out."""

from typing import ClassVar
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.advice import (
    RECENT_SECONDS,
    Rates,
    births_of,
    busiest_queue,
    changes_per_message,
    rates_of_births,
    rates_of_slices,
    slice_gap,
)
from mailmend.model.durations import DAY, HOUR
from tests.support.histories import time_uuid

NOW = 1_700_000_000_000_000
MICROS = 1_000_000
FIRST_DAY_OF_1995 = 788_918_400 * MICROS


class TestBirths:
    """Messages per second from a sample of message ids."""

    def test_the_mean_is_that_of_the_last_week(self) -> None:
        births = [NOW - hours * HOUR * 1_000_000 for hours in range(0, 30 * 24, 3)]

        rates = rates_of_births(births, total=30 * 24)

        assert rates is not None
        assert rates.mean == pytest.approx(1 / HOUR, rel=0.02)
        assert rates.peak == pytest.approx(3 / HOUR, rel=0.02)
        assert rates.history_seconds == pytest.approx(30 * DAY, rel=0.02)

    def test_mail_of_years_ago_does_not_count_as_traffic(self) -> None:
        births = [NOW - number * DAY * 1_000_000 // 2 for number in range(10)]
        births += [NOW - (400 + number) * DAY * 1_000_000 for number in range(90)]

        rates = rates_of_births(births, total=100)

        assert rates is not None
        assert rates.mean == pytest.approx(10 / (7 * DAY))

    def test_of_a_young_keyspace_the_hours_since_its_first_message_count(self) -> None:
        births = [NOW - minutes * 60 * MICROS for minutes in range(0, 6 * 60, 6)]

        rates = rates_of_births(births, total=60)

        assert rates is not None
        assert rates.mean == pytest.approx(10 / HOUR)
        assert rates.peak == pytest.approx(10 / HOUR)
        assert rates.history_seconds == 6 * HOUR - 360

    def test_one_message_came_within_an_hour(self) -> None:
        rates = rates_of_births([NOW], total=7)

        assert rates == Rates(7 / HOUR, 7 / HOUR, 0.0, 1)

    def test_a_week_ends_where_it_ends(self) -> None:
        births = [NOW, NOW - RECENT_SECONDS * MICROS + 1, NOW - RECENT_SECONDS * MICROS]

        rates = rates_of_births(births, total=3)

        assert rates is not None
        assert rates.mean == pytest.approx(2 / (7 * DAY))
        assert rates.looked_at == 3

    def test_the_peak_is_the_busiest_hour_not_the_first_nor_the_quietest(self) -> None:
        births = [NOW - hours * HOUR * MICROS for hours in (0, 7, 90)]
        births += [NOW - 48 * HOUR * MICROS - minutes * 60 * MICROS for minutes in range(0, 50, 10)]

        rates = rates_of_births(births, total=16)

        assert rates is not None
        assert rates.peak == pytest.approx(2 * 5 / HOUR)

    def test_no_sample_gives_no_rate(self) -> None:
        assert rates_of_births([], total=100) is None

    @given(st.lists(st.integers(min_value=NOW - 10**15, max_value=NOW), min_size=1), st.integers(1, 10**9))
    def test_the_peak_is_never_below_the_mean(self, births: list[int], total: int) -> None:
        rates = rates_of_births(births, total)

        assert rates is not None
        assert rates.peak >= rates.mean * 0.999999

    @given(st.integers(min_value=800_000_000_000_000, max_value=NOW), st.integers(0, 2**40))
    def test_a_birth_is_read_from_the_id(self, at: int, number: int) -> None:
        assert births_of([time_uuid(at, number)], NOW) == [at]

    def test_ids_without_a_believable_time_are_left_out(self) -> None:
        future, past = time_uuid(NOW + 2 * DAY * 1_000_000, 1), UUID("00000000-0000-1000-8000-000000000000")

        assert births_of([uuid4(), future, past], NOW) == []

    def test_a_random_id_is_none_even_where_its_bits_would_say_a_time(self) -> None:
        one = time_uuid(NOW, 1)
        random = UUID(int=one.int & ~(0xF << 76) | 4 << 76)

        assert (one.version, random.version) == (1, 4)
        assert births_of([one, random], NOW) == [NOW]

    @pytest.mark.parametrize(
        ("at", "believed"),
        [
            (FIRST_DAY_OF_1995 - 1, False),
            (FIRST_DAY_OF_1995, True),
            (NOW + DAY * MICROS, True),
            (NOW + DAY * MICROS + 1, False),
        ],
    )
    def test_believable_is_from_1995_to_tomorrow(self, at: int, *, believed: bool) -> None:
        assert births_of([time_uuid(at, 1)], NOW) == [at] * believed


class TestSlices:
    """Mails per second from rows per slice."""

    MAILS: ClassVar = {("spool", 0): 100, ("spool", 3600): 300, ("spool", 7200): 9, ("outgoing", 0): 50}

    def test_the_busiest_queue_counts(self) -> None:
        assert busiest_queue(self.MAILS) == "spool"
        assert busiest_queue({}) is None

    def test_a_slice_that_is_not_over_is_left_out(self) -> None:
        rates = rates_of_slices(self.MAILS, "spool", 3600, now_seconds=8_000)

        assert rates is not None
        assert rates.looked_at == 2
        assert rates.mean == pytest.approx(400 / 7200)
        assert rates.peak == pytest.approx(300 / 3600)

    def test_a_silent_slice_between_counts_as_time(self) -> None:
        rates = rates_of_slices({("q", 0): 10, ("q", 3 * HOUR): 10}, "q", HOUR, now_seconds=10 * HOUR)

        assert rates is not None
        assert rates.mean == pytest.approx(20 / (4 * HOUR))

    @pytest.mark.parametrize(("now", "over"), [(2 * HOUR - 1, False), (2 * HOUR, True)])
    def test_a_slice_is_over_with_its_last_second(self, now: int, *, over: bool) -> None:
        rates = rates_of_slices({("q", HOUR): 36}, "q", HOUR, now_seconds=now)

        assert rates == (Rates(0.01, 0.01, float(HOUR), 1) if over else None)

    def test_time_is_counted_from_the_first_slice_of_this_queue(self) -> None:
        mails = {("q", 5 * HOUR): 10, ("q", 6 * HOUR): 30, ("other", 0): 1_000}

        rates = rates_of_slices(mails, "q", HOUR, now_seconds=10 * HOUR)

        assert rates == Rates(40 / (2 * HOUR), 30 / HOUR, 2.0 * HOUR, 2)

    def test_where_no_slice_is_over_there_is_no_rate(self) -> None:
        assert rates_of_slices({("q", 0): 10}, "q", HOUR, now_seconds=1_000) is None

    @given(st.lists(st.integers(0, 500), min_size=2, max_size=40, unique=True), st.sampled_from([60, 900, 3600]))
    def test_the_smallest_gap_is_a_multiple_of_the_window(self, numbers: list[int], window: int) -> None:
        gap = slice_gap({("q", number * window): 1 for number in numbers})

        assert gap is not None
        assert gap % window == 0
        assert (gap == window) == any(number + 1 in numbers for number in numbers)

    def test_one_slice_has_no_gap(self) -> None:
        assert slice_gap({("a", 0): 1, ("b", 60): 1}) is None


def test_what_is_not_an_addition_is_a_change() -> None:
    assert changes_per_message(100, 250) == 1.5
    assert changes_per_message(1, 3) == 2
    assert changes_per_message(100, 100) == changes_per_message(100, 90) == 0
    assert changes_per_message(0, 0) is None
