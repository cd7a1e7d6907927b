"""When a job runs, until when, and what was missed: tables of daylight saving both ways, and laws for any job."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mailmend.admin.jobs.cron import parse_cron
from mailmend.admin.jobs.declaration import DailyWindow, Job, Missed
from mailmend.admin.jobs.schedule import (
    LATE,
    counts_from,
    due_after,
    due_turn,
    ends_at,
    is_open,
    last_turn,
    longest_wait,
    missed_turn,
    next_turns,
    turn_meant,
    window_ends_at,
    window_opens_at,
)
from tests.support.thorough import few_or

BERLIN = ZoneInfo("Europe/Berlin")  # in 2026: 02:00 becomes 03:00 on 29 March, 03:00 becomes 02:00 on 25 October
MINUTE = timedelta(minutes=1)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def window_of(text: str) -> DailyWindow:
    start, end = text.split("-")
    return DailyWindow(time.fromisoformat(start), time.fromisoformat(end))


def job(schedule: str = "30 1 * * *", window: str = "", *, jitter: timedelta = timedelta(), hours: float = 12) -> Job:
    return Job(
        name="nightly",
        words=("check",),
        schedule=parse_cron(schedule),
        zone=BERLIN,
        jitter=jitter,
        window=window_of(window) if window else None,
        longest=timedelta(hours=hours),
    )


@pytest.mark.parametrize(
    ("window", "at", "open_now", "changes_at"),
    [
        ("22:00-06:00", "2026-08-29T19:59", False, "2026-08-29T20:00"),
        ("22:00-06:00", "2026-08-29T20:00", True, "2026-08-30T04:00"),
        ("22:00-06:00", "2026-08-30T03:59", True, "2026-08-30T04:00"),
        ("22:00-06:00", "2026-08-30T04:00", False, "2026-08-30T20:00"),
        ("01:00-05:30", "2026-08-30T00:30", True, "2026-08-30T03:30"),
        # an hour shorter in spring, longer in autumn
        ("22:00-06:00", "2026-03-28T21:00", True, "2026-03-29T04:00"),
        ("22:00-06:00", "2026-10-24T20:00", True, "2026-10-25T05:00"),
        # its end is left out, or all of it
        ("01:30-02:30", "2026-03-29T00:45", True, "2026-03-29T01:00"),
        ("02:15-02:45", "2026-03-28T12:00", False, "2026-03-30T00:15"),
        # its hours come twice: it opens twice
        ("01:30-02:30", "2026-10-24T23:45", True, "2026-10-25T00:30"),
        ("01:30-02:30", "2026-10-25T00:30", False, "2026-10-25T01:00"),
        ("01:30-02:30", "2026-10-25T01:00", True, "2026-10-25T01:30"),
    ],
)
def test_a_window_opens_and_closes_by_the_wall_clock(window: str, at: str, *, open_now: bool, changes_at: str) -> None:
    one, now = job(window=window), instant(at)

    assert is_open(one, now) == open_now
    assert (window_ends_at if open_now else window_opens_at)(one, now) == instant(changes_at)


@pytest.mark.parametrize(
    ("one", "started", "ends"),
    [
        (job(hours=4), "2026-08-30T00:30", "2026-08-30T04:30"),
        (job(window="01:00-05:30", hours=12), "2026-08-29T23:30", "2026-08-30T03:30"),
        (job(window="01:00-05:30", hours=2), "2026-08-29T23:30", "2026-08-30T01:30"),
        (job(window="01:00-05:30", hours=2), "2026-08-30T10:00", "2026-08-30T12:00"),  # by hand, outside of it
        (job(window="01:00-05:30", hours=12), "2026-03-29T00:30", "2026-03-29T03:30"),
        (job(window="01:00-05:30", hours=12), "2026-10-24T23:30", "2026-10-25T04:30"),
    ],
)
def test_a_run_ends_with_its_window_or_after_its_longest_duration(one: Job, started: str, ends: str) -> None:
    assert ends_at(one, instant(started)) == instant(ends)


@pytest.mark.parametrize(
    ("schedule", "window", "after", "due"),
    [
        ("30 1 * * *", "", "2026-08-29T23:30", ["2026-08-30T23:30", "2026-08-31T23:30"]),
        (
            "0 */2 * * *",
            "22:00-06:00",
            "2026-08-29T12:00",
            ["2026-08-29T20:00", "2026-08-29T22:00", "2026-08-30T00:00"],
        ),
        ("30 2 * * *", "02:00-03:00", "2026-03-28T12:00", ["2026-03-30T00:30"]),  # 02:30 came at 03:00: closed
        ("30 2 * * *", "02:00-05:00", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("30 2 * * *", "02:00-03:00", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
    ],
)
def test_runs_are_due_by_the_schedule_while_the_window_is_open(
    schedule: str, window: str, after: str, due: list[str]
) -> None:
    found = [turn.due_at for turn in next_turns(job(schedule, window), instant(after), len(due))]

    assert found == [instant(one) for one in due]


def test_the_last_run_was_due_while_the_window_was_open() -> None:
    """Given a schedule that comes every two hours, and a window that closed at 06:00, 04:00 UTC."""
    night = job("0 */2 * * *", "22:00-06:00")

    assert last_turn(night, instant("2026-08-30T10:00")).due_at == instant("2026-08-30T02:00")
    assert last_turn(night, instant("2026-08-30T02:00")).due_at == instant("2026-08-30T02:00")
    assert last_turn(night, instant("2026-08-30T01:59:59")).due_at == instant("2026-08-30T00:00")


def test_the_next_run_is_due_after_an_instant_and_not_at_it() -> None:
    assert due_after(job(), instant("2026-08-29T23:29")) == instant("2026-08-29T23:30")
    assert due_after(job(), instant("2026-08-29T23:30")) == instant("2026-08-30T23:30")


@pytest.mark.parametrize(
    ("schedule", "window", "after", "hours"),
    [
        ("30 1 * * *", "", "2026-08-29T12:00", 24),
        ("30 1 * * *", "", "2026-10-22T12:00", 25),  # a day of 25 hours is among them
        ("0 */2 * * *", "22:00-06:00", "2026-08-29T12:00", 18),  # from 04:00 to 22:00
        ("0 1 * * MON", "", "2026-08-29T12:00", 7 * 24),
        ("0 1 1 * *", "", "2026-08-29T12:00", 30 * 24),  # the next two, which are further apart than a week
        ("0 1 1-9,20 * *", "", "2026-08-31T12:00", 24),  # the wait of 11 days is later than a week
    ],
)
def test_the_longest_wait_between_runs_of_a_week(schedule: str, window: str, after: str, hours: int) -> None:
    assert longest_wait(job(schedule, window), instant(after)) == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("started", "at", "missed"),
    [
        (None, "2026-08-30T12:00", None),
        ("2026-08-29T23:30", "2026-08-30T12:00", None),
        ("2026-08-28T23:30", "2026-08-30T12:00", "2026-08-29T23:30"),
        ("2026-08-20T23:30", "2026-08-30T12:00", "2026-08-29T23:30"),
        ("2026-08-28T23:30", "2026-08-29T23:44:59", None),  # it may still begin
        ("2026-08-28T23:30", "2026-08-29T23:45", "2026-08-29T23:30"),
        ("2026-08-30T09:00", "2026-08-30T12:00", None),  # run by hand since
    ],
)
def test_a_run_was_missed_when_none_has_begun_since_it_was_due(
    started: str | None, at: str, missed: str | None
) -> None:
    found = missed_turn(job(), instant(started) if started else None, instant(at))

    assert (found and found.due_at) == (instant(missed) if missed else None)


@pytest.mark.parametrize(
    ("schedule", "at", "due"),
    [
        ("30 1 * * *", "2026-08-29T23:29:40", "2026-08-29T23:30"),  # the scheduler's clock is ahead
        ("30 1 * * *", "2026-08-29T23:30:00", "2026-08-29T23:30"),
        ("30 1 * * *", "2026-08-29T23:28:59", "2026-08-28T23:30"),
        ("* * * * *", "2026-08-29T23:30:01", "2026-08-29T23:30"),
        ("* * * * *", "2026-08-29T23:29:59", "2026-08-29T23:30"),
    ],
)
def test_a_scheduler_means_the_run_that_is_due_next_to_its_start(schedule: str, at: str, due: str) -> None:
    assert turn_meant(job(schedule), instant(at)).due_at == instant(due)


@pytest.mark.parametrize(
    ("missed", "last_begun", "since"),
    [
        (Missed.SKIP, None, "2026-08-30T11:35"),  # 15 minutes, and the jitter
        (Missed.SKIP, "2026-08-20T23:30", "2026-08-30T11:35"),
        (Missed.SKIP, "2026-08-30T11:50", "2026-08-30T11:50"),
        (Missed.RUN, None, "2026-08-30T11:35"),  # it may have been declared just now
        (Missed.RUN, "2026-08-20T23:30", "2026-08-20T23:30"),
    ],
)
def test_a_scheduler_that_begins_counts_what_may_still_begin(
    missed: Missed, last_begun: str | None, since: str
) -> None:
    one = replace(job(jitter=timedelta(minutes=10)), missed=missed)

    assert counts_from(one, instant(last_begun) if last_begun else None, instant("2026-08-30T12:00")) == instant(since)


@pytest.mark.parametrize(
    ("since", "at", "due"),
    [
        ("2026-08-29T23:29", "2026-08-29T23:29:59", None),
        ("2026-08-29T23:29", "2026-08-29T23:30", "2026-08-29T23:30"),
        ("2026-08-29T23:30", "2026-08-30T12:00", None),
        ("2026-08-20T12:00", "2026-08-30T12:00", "2026-08-29T23:30"),  # the last one of ten
    ],
)
def test_of_what_was_due_since_then_the_last_one_begins(since: str, at: str, due: str | None) -> None:
    turn = due_turn(job(), instant(since), instant(at))

    assert (turn and turn.due_at) == (instant(due) if due else None)


def test_jitter_is_spread_over_all_of_it_and_the_same_wherever_it_is_asked_for() -> None:
    one = job(jitter=timedelta(minutes=10))
    turns = next_turns(one, instant("2026-08-29T12:00"), 60)
    waits = [(turn.start_at - turn.due_at).total_seconds() for turn in turns]

    assert min(waits) < 60
    assert 540 < max(waits) < 600
    assert next_turns(one, turns[0].due_at, 59) == turns[1:]


def test_jitter_takes_the_first_half_of_a_window_at_most() -> None:
    """Given a window of 4 hours, and more jitter than that."""
    turns = next_turns(job("0 1 * * *", "01:00-05:00", jitter=timedelta(hours=10)), instant("2026-08-29T12:00"), 50)
    waits = [turn.start_at - turn.due_at for turn in turns]

    assert timedelta(minutes=110) < max(waits) < timedelta(hours=2)


CLOCK = st.times().map(lambda one: one.replace(second=0, microsecond=0))
NOW = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31)).map(  # noqa: DTZ001 - Hypothesis wants naive bounds
    lambda one: one.replace(tzinfo=UTC)
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    start, end = draw(CLOCK), draw(CLOCK)
    assume(start != end)
    window = draw(st.sampled_from([None, DailyWindow(start, end)]))
    at = draw(CLOCK) if window is None else start
    return Job(
        name=draw(st.sampled_from(["a", "b", "nightly-repair"])),
        words=("check",),
        schedule=parse_cron(f"{at.minute} {at.hour} * * *"),
        zone=ZoneInfo(draw(st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]))),
        jitter=timedelta(minutes=draw(st.integers(0, 24 * 60))),
        window=window,
        longest=timedelta(minutes=draw(st.integers(1, 24 * 60))),
    )


@settings(deadline=None, max_examples=few_or(50))
@given(jobs(), NOW)
def test_every_run_begins_in_its_window_and_is_ended_with_it(one: Job, now: datetime) -> None:
    for turn in next_turns(one, now, 2):
        ends = ends_at(one, turn.start_at)

        assert now < turn.due_at <= turn.start_at <= turn.due_at + one.jitter
        assert is_open(one, turn.start_at)
        assert turn.start_at < ends <= turn.start_at + one.longest
        assert is_open(one, ends - timedelta(microseconds=1))
        assert ends == turn.start_at + one.longest or not is_open(one, ends)


@settings(deadline=None, max_examples=few_or(50))
@given(jobs(), NOW)
def test_the_last_run_is_the_one_before_the_next(one: Job, now: datetime) -> None:
    upcoming = next_turns(one, now, 1)[0]

    assert last_turn(one, upcoming.due_at) == upcoming
    assert last_turn(one, upcoming.due_at - timedelta(microseconds=1)).due_at <= now


@settings(deadline=None, max_examples=few_or(50))
@given(jobs(), NOW)
def test_what_has_begun_was_not_missed_and_what_has_not_is_once_it_is_late(one: Job, now: datetime) -> None:
    turn = next_turns(one, now, 1)[0]
    late = turn.due_at + one.jitter + LATE

    assert missed_turn(one, turn.start_at, turn.start_at) is None
    assert missed_turn(one, now, late - MINUTE) is None
    assert missed_turn(one, now, late) == turn
