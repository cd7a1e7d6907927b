"""Advice on a queue's configuration: it may always be set, is stable, and says what stands against the best."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.advice import (
    MOVES_PER_SLICE,
    PACE_MAX,
    PACE_MIN,
    SHAPES,
    SLICE_WINDOWS,
    ConfigurationAdvice,
    Figure,
    FigureSource,
    Traffic,
    advise_configuration,
    pace_for,
)
from mailmend.mailqueue.rules.configuration import DEFAULT, QueueConfiguration, change
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.durations import DAY, HOUR
from tests.support.queues import configured

AIMED = 10_000 / HOUR
"""Mails per second whose slice is an hour."""


def traffic_of(rate: float, peak: float | None = None) -> Traffic:
    """Traffic of three nodes, mails of a kilobyte staying a week."""
    figures = (rate, rate if peak is None else peak, 7 * DAY, 1_000, 3, 3, 3 * HOUR)
    return Traffic(*(Figure(figure, FigureSource.GIVEN, "said") for figure in figures))


RATES = st.floats(min_value=0.0001, max_value=5_000)
SETTINGS = st.builds(
    configured,
    st.one_of(st.sampled_from(SLICE_WINDOWS), st.integers(1, 30 * DAY)),
    st.integers(1, 500),
    st.integers(1, 10**6),
)


@given(RATES, st.floats(min_value=1, max_value=50), st.one_of(st.none(), SETTINGS))
def test_what_is_advised_may_be_set(rate: float, times: float, now: QueueConfiguration | None) -> None:
    traffic = traffic_of(rate, rate * times)
    found = advise_configuration(traffic, now)

    assert change(found.present, found.advised) == found.advised
    again = advise_configuration(traffic, found.advised)
    assert (again.advised, again.changes) == (found.advised, False)


@given(RATES, st.one_of(st.none(), SETTINGS))
def test_each_setting_has_one_reason(rate: float, now: QueueConfiguration | None) -> None:
    found = advise_configuration(traffic_of(rate), now)

    assert [one.setting for one in found.reasons] == ["slice window", "bucket count", "pace"]
    assert {"slice window", "bucket count"} == SHAPES
    assert found.reasons[2].value == f"{found.advised.pace:,}"
    assert all(one.why.endswith(".") for one in found.reasons)


@given(st.floats(min_value=0, max_value=10**7))
def test_the_browse_start_moves_about_ten_times_a_slice(mails: float) -> None:
    pace = pace_for(mails)

    assert PACE_MIN <= pace <= PACE_MAX
    assert int(str(pace).rstrip("0")) in {1, 2, 5}
    if PACE_MIN <= mails / MOVES_PER_SLICE <= PACE_MAX:
        assert 0.5 < mails / pace / MOVES_PER_SLICE < 2


@given(st.lists(st.floats(min_value=0, max_value=10**7), min_size=2, max_size=2).map(sorted))
def test_more_mails_never_move_it_more_often(mails: list[float]) -> None:
    assert pace_for(mails[0]) <= pace_for(mails[1])


def test_james_s_own_traffic_is_advised_james_s_own_defaults() -> None:
    assert advise_configuration(traffic_of(AIMED), None).advised == DEFAULT


def test_a_pace_that_no_event_tells_is_james_s_own() -> None:
    found = advise_configuration(traffic_of(AIMED), configured(HOUR, 1))
    assert (found.present, found.changes) == (DEFAULT, False)


def reported(rate: float, now: QueueConfiguration | None) -> tuple[ConfigurationAdvice, str]:
    found = advise_configuration(traffic_of(rate), now)
    return found, " ".join((*found.allowed, *found.hindered))


def test_without_a_configuration_anything_may_be_set() -> None:
    found, text = reported(AIMED * 12, None)
    assert text == "Nothing is stored yet: any slice window, number of buckets and pace may be set."
    assert found.advised == found.best
    assert found.advised.slicing.window == timedelta(minutes=5)
    assert found.changes


def test_a_window_that_may_not_grow_is_reported_with_what_would_be_best() -> None:
    found, text = reported(AIMED / 4, configured(HOUR, 1, 1_000))
    assert found.advised.slicing.window == timedelta(hours=1)
    assert found.best.slicing.window == timedelta(hours=4)
    assert "any that divides the present 1h" in text
    assert "would take a slice of 4h, which does not divide the present 1h: 1h is the nearest that may be" in text
    assert found.advised.pace == 200


def test_an_odd_window_may_only_become_its_divisors() -> None:
    found, text = reported(AIMED * 12, configured(420, 1, 1_000))
    assert found.advised.slicing.window == timedelta(minutes=1)
    assert "slice of 5m, which does not divide the present 7m" in text


def test_buckets_that_are_too_many_are_reported_and_stay() -> None:
    found, text = reported(AIMED, configured(HOUR, 8, 1_000))
    assert found.advised.slicing == Slicing(timedelta(hours=1), 8)
    assert "Buckets may stay 8, or grow." in text
    assert "1 would do, but the 8 buckets that there are never shrink." in text
    assert not found.changes


@pytest.mark.parametrize("pace", [1, 999, 10_000])
def test_the_pace_alone_may_be_what_changes(pace: int) -> None:
    found, _ = reported(AIMED, configured(HOUR, 1, pace))
    assert found.advised == DEFAULT
    assert found.changes
