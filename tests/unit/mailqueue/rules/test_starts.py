"""Where a queue begins: laws that hold whatever the clocks say, however slices are cut."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.slices import (
    GRACE_MIN,
    ageing_before,
    furthest_browse_start,
    gone_before,
    grace_of,
    live_slices,
    mark_may_have_expired,
    moved_back,
    next_browse_start,
    right_slice,
    rows_lapsed_before,
    slack_of,
    slice_for,
    slice_of,
    slices_to_clean,
)

HOUR = timedelta(hours=1)
NOON = datetime(2026, 8, 29, 12, tzinfo=UTC)

WINDOWS = st.sampled_from([timedelta(minutes=minutes) for minutes in (1, 5, 15, 30, 60, 240, 1440)])
INSTANTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is given apart
SKEWS = st.timedeltas(-GRACE_MIN, GRACE_MIN)
SPANS = st.timedeltas(timedelta(0), timedelta(days=3))


def test_the_grace_is_a_window_and_at_least_a_quarter_of_an_hour() -> None:
    """What clocks may differ by, and what an enqueue may take."""
    minute = timedelta(minutes=1)
    assert [grace_of(window) for window in (minute, 15 * minute, HOUR)] == [15 * minute, 15 * minute, HOUR]


@given(current=INSTANTS, live=st.none() | INSTANTS, now=INSTANTS, window=WINDOWS)
def test_the_browse_start_never_goes_back(
    current: datetime, live: datetime | None, now: datetime, window: timedelta
) -> None:
    """Whatever was found, and however wrong our clock is."""
    assert next_browse_start(current, live, now, window) >= current


@given(current=INSTANTS, ahead=SPANS, now=INSTANTS, window=WINDOWS)
def test_the_browse_start_never_passes_a_mail(
    current: datetime, ahead: timedelta, now: datetime, window: timedelta
) -> None:
    """The first slice with a mail is as far as it goes."""
    assert next_browse_start(current, current + ahead, now, window) <= current + ahead


@given(behind=SPANS, now=INSTANTS, window=WINDOWS, live=st.none() | INSTANTS)
def test_the_browse_start_stays_behind_the_grace(
    behind: timedelta, now: datetime, window: timedelta, live: datetime | None
) -> None:
    """What slow clocks enqueue now is still seen; an empty queue is no exception."""
    current = furthest_browse_start(now, window) - behind
    assert next_browse_start(current, live, now, window) <= now - grace_of(window)


@given(now=INSTANTS, behind=SPANS, window=WINDOWS)
def test_on_an_empty_queue_it_goes_as_far_as_it_may(now: datetime, behind: timedelta, window: timedelta) -> None:
    """So that no listing ever reads the days when nothing was enqueued."""
    furthest = furthest_browse_start(now, window)
    assert next_browse_start(furthest - behind, None, now, window) == furthest
    assert now - furthest < grace_of(window) + window


@given(now=INSTANTS, skew=SKEWS, behind=SPANS, window=WINDOWS)
def test_a_skewed_clock_puts_mails_into_live_slices(
    now: datetime, skew: timedelta, behind: timedelta, window: timedelta
) -> None:
    """The browse start may be anywhere up to its furthest."""
    start = furthest_browse_start(now, window) - behind // window * window
    assert slice_for(now + skew, start, window) in set(live_slices(start, now, window))


@given(now=INSTANTS, lead=st.timedeltas(timedelta(0), timedelta(days=2)), window=WINDOWS)
def test_a_mover_far_ahead_of_its_time_hides_nothing(now: datetime, lead: timedelta, window: timedelta) -> None:
    """It pulls the others' mails along, and every reader follows."""
    start = furthest_browse_start(now + lead, window)
    live = set(live_slices(start, now, window))
    assert slice_for(now, start, window) in live
    assert slice_for(now + lead, start, window) in live


def test_mails_are_looked_for_up_to_a_quarter_of_an_hour_ahead() -> None:
    """Of our clock, or of the one that moved the browse start, whichever is further; to the end of that slice."""
    late = NOON + timedelta(minutes=46)
    assert list(live_slices(NOON - HOUR, NOON, HOUR)) == [NOON - HOUR, NOON]
    assert list(live_slices(NOON - HOUR / 2, late, HOUR)) == [NOON - HOUR, NOON, NOON + HOUR]
    assert list(live_slices(NOON + 5 * HOUR, NOON, HOUR)) == [NOON + 5 * HOUR, NOON + 6 * HOUR]


@given(now=INSTANTS, start=st.none() | INSTANTS, window=WINDOWS)
def test_a_mail_never_goes_before_the_browse_start(now: datetime, start: datetime | None, window: timedelta) -> None:
    """Nor before its own time."""
    found = slice_for(now, start, window)
    assert found >= slice_of(now, window)
    assert start is None or not gone_before(found, slice_of(start, window))


@given(now=INSTANTS, start=INSTANTS, jump=SPANS, window=WINDOWS)
def test_a_row_stays_unless_no_listing_shows_it_or_the_clock_jumped(
    now: datetime, start: datetime, jump: timedelta, window: timedelta
) -> None:
    """The right slice is never before the browse start, and without a jump never before the slice it has."""
    has = slice_for(now, start, window)
    right = right_slice(has, start, now, now + jump, window)
    assert right >= slice_of(start, window)
    assert right == (has if jump <= grace_of(window) else slice_for(now + jump, start, window))


def test_a_clock_that_was_ahead_for_a_moment_takes_its_row_back() -> None:
    """A row in a slice far in the future would not be listed for as long."""
    ahead = NOON + timedelta(days=30)
    has = slice_for(ahead, NOON, HOUR)
    assert right_slice(has, NOON, ahead, NOON, HOUR) == NOON


def test_a_clock_that_jumps_by_less_than_the_grace_moves_no_row() -> None:
    """Putting a row may take as long."""
    moment = timedelta(microseconds=1)
    assert right_slice(NOON, NOON - HOUR, NOON, NOON + HOUR, HOUR) == NOON
    assert right_slice(NOON, NOON - HOUR, NOON, NOON + HOUR + moment, HOUR) == NOON + HOUR


@given(content=INSTANTS, before=INSTANTS, ahead=SPANS, window=WINDOWS)
def test_all_between_the_starts_is_cleaned_and_nothing_after(
    content: datetime, before: datetime, ahead: timedelta, window: timedelta
) -> None:
    """The browse start's own slice stays."""
    content = max(content, before - timedelta(days=2))
    start = slice_of(before + ahead, window)
    slices = list(slices_to_clean(content, before, start, window))
    assert all(one < start for one in slices)
    assert slices == sorted(set(slices))
    if content < start:
        assert slices[0] <= min(content, before)
        assert slices[-1] == start - window


def test_a_browse_start_that_was_put_back_is_cleaned_up_from_there() -> None:
    """Mails may have been enqueued before the content start meanwhile."""
    back = NOON - 5 * HOUR
    assert list(slices_to_clean(NOON, back, NOON - 3 * HOUR, HOUR)) == [back, back + HOUR]


def test_a_browse_start_within_a_slice_keeps_all_of_it() -> None:
    """Listings begin with that slice, and what is rescued is put there: it is not cleaned."""
    start = NOON + HOUR / 2
    assert list(slices_to_clean(NOON - HOUR, start, start, HOUR)) == [NOON - HOUR]
    assert list(slices_to_clean(start, start, start, HOUR)) == []


def test_gone_is_what_lies_before_the_browse_start() -> None:
    """And nothing where either is unknown."""
    assert gone_before(NOON - HOUR, NOON)
    assert not gone_before(NOON, NOON)
    assert not gone_before(None, NOON)
    assert not gone_before(NOON, None)


def test_a_backward_move_is_distinguished_from_one_that_nobody_remembers() -> None:
    """Only what was seen further on can have been put back."""
    assert moved_back(NOON - HOUR, NOON)
    assert not moved_back(NOON, NOON)
    assert not moved_back(NOON + HOUR, NOON)
    assert not moved_back(NOON, None)
    assert not moved_back(None, NOON)


@given(row=st.integers(60, 10**7), mark=st.integers(0, 2 * 10**7))
def test_renewal_comes_in_time_and_not_at_once(row: int, mark: int) -> None:
    """A row is renewed when at least half of its life is over, and well before all of it is."""
    row_ttl, mark_ttl = timedelta(seconds=row), timedelta(seconds=mark)
    slack = slack_of(row_ttl, mark_ttl)
    assert timedelta(0) < slack <= row_ttl
    left = row_ttl - (NOON - ageing_before(NOON, row_ttl, mark_ttl))
    assert left == slack / 2
    assert left <= row_ttl / 2


def test_the_slack_is_what_marks_outlive_rows_by() -> None:
    """As the tables are made."""
    assert slack_of(timedelta(days=10), timedelta(days=13)) == timedelta(days=3)
    assert slack_of(timedelta(days=9), timedelta(0)) == timedelta(days=3)
    assert slack_of(timedelta(days=9), timedelta(days=9)) == timedelta(days=3)
    assert slack_of(timedelta(days=9), timedelta(days=27)) == timedelta(days=9), "no longer than a row lives"


def test_a_mark_may_have_expired_a_grace_before_its_time() -> None:
    """The clock that put it may have been behind; a mark that lives for ever never expires."""
    day, grace = timedelta(days=1), timedelta(minutes=15)
    assert mark_may_have_expired(NOON - day + grace, NOON, day)
    assert not mark_may_have_expired(NOON - day + grace + timedelta(microseconds=1), NOON, day)
    assert not mark_may_have_expired(NOON - 1000 * day, NOON, timedelta(0))


def test_rows_may_lapse_only_where_no_sweep_renewed_them_for_most_of_half_of_the_slack() -> None:
    """Of 3 days of slack a sweep leaves half; 16 looks in the slack make it 31 hours and a half."""
    row, mark, patience = timedelta(days=9), timedelta(days=12), timedelta(hours=31.5)
    assert rows_lapsed_before(NOON - patience, NOON, row, mark, HOUR) is None
    late = NOON - patience - timedelta(seconds=1)
    assert rows_lapsed_before(late, NOON, row, mark, HOUR) == NOON - row + HOUR
    assert rows_lapsed_before(None, NOON, row, mark, HOUR) == NOON - row + HOUR
    assert rows_lapsed_before(None, NOON - timedelta(minutes=15), row, mark, HOUR) == NOON - row + HOUR
    assert rows_lapsed_before(None, NOON, timedelta(0), mark, HOUR) is None, "rows that live for ever"
