"""A pace is kept over any stretch of time, whatever the portions in which rows are taken."""

from hypothesis import given
from hypothesis import strategies as st

from model.instants import MICROS
from repair.mending.limits import BURST_SECONDS, Pace, granted_until, share
from tests.support.clock import START, VirtualClock


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 2)), min_size=1, max_size=60), st.integers(10, 10_000))
def test_no_more_rows_are_granted_than_the_rate_and_one_burst(takes: list[tuple[int, float]], rate: int) -> None:
    clock = VirtualClock()
    pace = Pace(rate, clock)
    granted = 0
    for rows, idle in takes:
        clock.advance(idle)
        pace.take(rows)
        granted += rows
        elapsed = (clock.micros() - START) / MICROS
        assert granted <= rate * (elapsed + BURST_SECONDS) + 1


def test_a_steady_reader_is_slowed_to_the_rate() -> None:
    """1,000 rows at 100 a second take ten seconds, less the first burst."""
    clock = VirtualClock()
    pace = Pace(100, clock)
    for _ in range(100):
        pace.take(10)
    assert round((clock.micros() - START) / MICROS, 2) == 10 - BURST_SECONDS


def test_without_a_rate_nobody_waits() -> None:
    clock = VirtualClock()
    Pace(None, clock).take(10**9)
    assert clock.slept == []


def test_taking_nothing_takes_no_time() -> None:
    clock = VirtualClock()
    Pace(1, clock).take(0)
    assert clock.slept == []


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 1000), st.integers(1, 1000))
def test_grants_only_ever_move_forward(until: int, now: int, rows: int, rate: int) -> None:
    assert granted_until(until, now, rows, rate) >= until


def test_workers_share_a_pace() -> None:
    assert share(100, 4) == 25
    assert share(None, 4) is None
    assert share(100, 0) == 100
