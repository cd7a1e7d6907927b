"""When a mail that was refused for now is tried again, and from when on it has failed."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.settling import DEFAULT_SCHEDULE, RetryInterval, RetrySchedule, spread_of
from mailmend.model.errors import WrongUse

NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCHEDULE = RetrySchedule(
    (RetryInterval(MINUTE), RetryInterval(15 * MINUTE), RetryInterval(60 * MINUTE, notify=True)), count=30
)


def waits(schedule: RetrySchedule, times: int, spread: float = 0.0) -> list[timedelta]:
    far = NOON + timedelta(days=365)
    instants = [schedule.after(refusals, NOON, far, spread) for refusals in range(1, times + 1)]
    return [at - NOON for at in instants if at]


def test_the_intervals_follow_each_other_and_the_last_one_repeats() -> None:
    """1, 15, 60, 60, 60 minutes."""
    assert [wait // MINUTE for wait in waits(SCHEDULE, 5)] == [1, 15, 60, 60, 60]


def test_a_count_of_retries_is_that_many_and_no_more() -> None:
    """The thirty-first refusal is of the thirtieth retry: the mail has failed."""
    assert len(waits(SCHEDULE, 40)) == 30
    assert RetrySchedule((RetryInterval(MINUTE),), count=0).after(1, NOON, NOON + MINUTE, 0.0) is None


def test_a_delay_is_notified_where_the_interval_says_so() -> None:
    """With the third refusal here, and with those that repeat it."""
    assert [SCHEDULE.interval(refusals).notify for refusals in (1, 2, 3, 4)] == [False, False, True, True]


def test_no_wait_goes_beyond_the_expiry_and_nothing_is_tried_again_from_then_on() -> None:
    """Given ten minutes to live, a mail that would wait fifteen comes back at its end, and fails there."""
    expires_at = NOON + 10 * MINUTE
    assert SCHEDULE.after(2, NOON, expires_at, 0.0) == expires_at
    assert SCHEDULE.after(3, expires_at, expires_at, 0.0) is None


def test_the_expiry_of_the_mail_itself_wins_whether_sooner_or_later() -> None:
    """Else it is the longest age after the mail was first seen."""
    assert SCHEDULE.expires_at(NOON, None) == NOON + timedelta(days=5)
    assert SCHEDULE.expires_at(NOON, NOON + MINUTE) == NOON + MINUTE
    assert SCHEDULE.expires_at(NOON, NOON + timedelta(days=30)) == NOON + timedelta(days=30)


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_only_lengthens_a_wait_and_by_no_more_than_its_part(refusals: int, spread: float, jitter: float) -> None:
    """Whatever the digest says."""
    schedule = RetrySchedule(SCHEDULE.intervals, jitter=jitter)
    again_at = schedule.after(refusals, NOON, NOON + timedelta(days=5), spread)
    assert again_at
    wait = again_at - NOON
    interval = schedule.interval(refusals).wait
    assert interval <= wait <= interval * (1 + jitter)


@given(st.uuids(), st.integers(0, 100))
def test_the_spread_of_a_mail_is_the_same_wherever_it_is_asked_for(mail: object, refusals: int) -> None:
    """It is a part from 0 up to 1, of its arguments alone."""
    assert spread_of(mail, refusals) == spread_of(str(mail), str(refusals))
    assert 0 <= spread_of(mail, refusals) < 1


def test_the_spread_is_even() -> None:
    """Given a thousand mails that are refused at one instant, they come again evenly."""
    tenths = [int(spread_of(number) * 10) for number in range(1000)]
    assert all(60 <= tenths.count(tenth) <= 140 for tenth in range(10))


def test_by_default_a_mail_is_tried_for_five_days() -> None:
    """Soon at first, then every three hours and a little more; its sender hears of it after a quarter of an hour."""
    assert DEFAULT_SCHEDULE.longest_age == timedelta(days=5)
    assert [wait // MINUTE for wait in waits(DEFAULT_SCHEDULE, 6)] == [1, 15, 60, 120, 180, 180]
    assert DEFAULT_SCHEDULE.interval(3).notify
    assert DEFAULT_SCHEDULE.jitter == 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"intervals": ()},
        {"intervals": (RetryInterval(timedelta()),)},
        {"intervals": SCHEDULE.intervals, "jitter": 1.5},
        {"intervals": SCHEDULE.intervals, "jitter": -0.1},
        {"intervals": SCHEDULE.intervals, "count": -1},
        {"intervals": SCHEDULE.intervals, "longest_age": timedelta()},
    ],
)
def test_a_schedule_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    """No intervals, one of nothing, a jitter that is no part, a negative count, no age."""
    with pytest.raises(WrongUse):
        RetrySchedule(**wrong)  # type: ignore[arg-type]


def test_a_jitter_may_double_a_wait_and_no_more() -> None:
    """1 is a part, too."""
    assert waits(RetrySchedule((RetryInterval(MINUTE),), jitter=1), 1, spread=1.0) == [2 * MINUTE]


def test_the_spread_of_a_mail_stays_the_same_from_version_to_version() -> None:
    """So servers of two versions, while one is replaced, put the same mail off to the same time."""
    assert spread_of(UUID(int=7), 1) == 0.49499450580108745
    assert spread_of(UUID(int=7), 2) == 0.9798545522148838
