"""Waits double and stop growing, whatever the count of tries."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.durations import LOOK_AGAIN, RETRY, BackOff


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
