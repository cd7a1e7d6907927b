"""Durations are read and written as people have them; waits double and stop growing, whatever the count of tries."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.durations import DURATION_MAX, LOOK_AGAIN, RETRY, BackOff, format_duration, parse_duration
from mailmend.model.errors import WrongUse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("5m", 300),
        ("1h", 3600),
        ("1d", 86400),
        ("90", 90),
        ("0", 0),
        ("250ms", 0.25),
        (" 1.5 M ", 90),
        ("2 H", 7200),
        ("250MS", 0.25),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 weeks", "1h30m", "s", "1e3", "nan", "inf", "٣s "])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a duration"):
        parse_duration(text.replace("٣", "x"))


def test_an_absurd_duration_is_refused() -> None:
    with pytest.raises(WrongUse, match="longer than 1d"):
        parse_duration("365d")


def test_no_time_at_all_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(WrongUse, match="no time at all"):
        parse_duration("0s", zero=False)


@given(st.integers(min_value=0, max_value=int(DURATION_MAX.total_seconds())))
def test_a_duration_comes_back_as_it_was_written(seconds: int) -> None:
    duration = timedelta(seconds=seconds)

    assert parse_duration(format_duration(duration)) == duration


def test_the_longest_duration_itself_is_allowed() -> None:
    """A day, or what a caller allows; one second more is refused."""
    assert parse_duration("24h") == DURATION_MAX == timedelta(days=1)
    assert parse_duration("48h", maximum=timedelta(days=2)) == timedelta(days=2)
    with pytest.raises(WrongUse, match="longer than 1d"):
        parse_duration("86401s")
    with pytest.raises(WrongUse, match="longer than 2d"):
        parse_duration("172801s", maximum=timedelta(days=2))


def test_any_time_at_all_is_allowed_where_none_means_nothing() -> None:
    assert parse_duration("1ms", zero=False) == timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(milliseconds=250), "0.25s"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=1), "1m"),
        (timedelta(minutes=90), "90m"),
        (timedelta(hours=1), "1h"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=1), "1d"),
        (timedelta(days=30), "30d"),
    ],
)
def test_a_duration_is_written_in_its_largest_whole_unit(duration: timedelta, text: str) -> None:
    """Nothing is rounded away: an hour and a half is 90 minutes."""
    assert format_duration(duration) == text


def test_a_mail_waits_a_minute_then_twice_as_long_each_time_up_to_four_hours() -> None:
    """1, 2, 4, ... 128 minutes, then 4 hours for ever."""
    minutes = [RETRY.wait(attempts) // timedelta(minutes=1) for attempts in range(1, 12)]
    assert minutes == [1, 2, 4, 8, 16, 32, 64, 128, 240, 240, 240]


def test_nothing_tried_yet_waits_as_after_the_first_try() -> None:
    """A count that says 0, or nonsense, is no reason not to wait."""
    assert RETRY.wait(0) == RETRY.wait(-3) == timedelta(minutes=1)


@given(
    st.integers(1, 10**9), st.timedeltas(timedelta(seconds=1), timedelta(hours=1)), st.timedeltas(timedelta(hours=1))
)
def test_waits_never_shrink_and_never_pass_the_longest(attempts: int, first: timedelta, longest: timedelta) -> None:
    """For any count, however large, and at once: nothing is raised to a power that does not fit."""
    waits = BackOff(first, longest)
    assert first <= waits.wait(attempts) <= waits.wait(attempts + 1) <= longest


def test_a_server_is_asked_again_within_half_a_minute() -> None:
    """However long it was away."""
    assert LOOK_AGAIN.wait(1) == timedelta(seconds=1)
    assert LOOK_AGAIN.wait(1_000) == timedelta(seconds=30)
