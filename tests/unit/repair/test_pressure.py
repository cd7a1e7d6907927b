"""The rate of a run follows the cluster: within its bounds, to a rest, down within a few looks, and up again."""

from collections.abc import Callable
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.repair.decisions.pressure import BACK_OFF, CUT_ABOVE, FLOOR, LOOK_SECONDS, Observation, Pressure, Strain

BASE = 0.004
ABLE = 20_000.0
"""The run comes to no more rows a second, however fast it may go."""

Latency = Callable[[float], float]

SEEN = st.builds(
    Observation,
    rows_per_second=st.floats(0, 1e7),
    seconds=st.none() | st.floats(0, 30),
    timeouts=st.integers(0, 3),
    overloads=st.integers(0, 3),
    compactions=st.none() | st.integers(0, 1000),
)


def calm(pressure: Pressure) -> Pressure:
    """What is known before anything is read."""
    for _ in range(8):
        pressure, _strain = pressure.after(Observation(0.0, BASE))
    return pressure


def looks(pressure: Pressure, number: int, latency: Latency) -> list[Pressure]:
    found = []
    for _ in range(number):
        own = min(pressure.rate, ABLE)
        pressure, _ = pressure.after(Observation(own, latency(own)))
        found.append(pressure)
    return found


def steady(_: float) -> float:
    return BASE


def tripled(_: float) -> float:
    return 3 * BASE


@given(st.lists(SEEN, max_size=60), st.one_of(st.just(inf), st.floats(1, 1e6)))
def test_the_rate_is_never_above_the_limit_and_never_below_the_floor(seen: list[Observation], limit: float) -> None:
    pressure = Pressure().limited(limit)
    for one in seen:
        before = pressure.rate
        pressure, strain = pressure.after(one)
        assert min(FLOOR, limit) <= pressure.rate <= limit
        assert (strain is not None) >= (pressure.rate < before), "nothing is slowed down without a reason"
        assert pressure.rate >= BACK_OFF * min(before, one.rows_per_second) or pressure.rate == pressure.floor


@given(st.floats(200, 1e6), st.floats(0, 0.2), st.integers(0, 1000))
def test_a_cluster_that_is_well_is_read_at_the_limit(limit: float, noise: float, seed: int) -> None:
    chance = Random(seed)
    last = looks(calm(Pressure().limited(limit)), 200, lambda _: BASE * chance.uniform(1 - noise, 1 + noise))[-1]
    assert last.rate == limit


@pytest.mark.parametrize("limit", [inf, 8_000.0])
def test_the_rate_halves_within_two_seconds_when_answers_take_three_times_as_long_and_comes_back(limit: float) -> None:
    before = looks(calm(Pressure().limited(limit)), 40, steady)[-1]
    own = min(before.rate, ABLE)

    slower = looks(before, 8, tripled)

    assert slower[-1].rate <= own / 2
    assert 8 * LOOK_SECONDS <= 2
    assert looks(slower[-1], 100, steady)[-1].rate >= own, "25 seconds"


@given(st.floats(0.5, 4), st.floats(0.6, 20), st.floats(0.001, 0.05))
def test_where_its_own_rows_are_what_slows_the_cluster_the_rate_comes_to_rest(
    power: float, weight: float, base: float
) -> None:
    """Whatever the curve: queues that grow with the load, slowly at first or at once."""

    def latency(own: float) -> float:
        return base * (1 + weight * float((own / ABLE) ** power))

    pressure = Pressure()
    for _ in range(8):
        pressure, _strain = pressure.after(Observation(0.0, latency(0)))
    rates = [min(one.rate, ABLE) for one in looks(pressure, 1_000, latency)[-200:]]

    assert max(rates) <= 1.1 * min(rates), "it does not swing"
    assert latency(max(rates)) <= 1.05 * CUT_ABOVE * (base + 0.0005) or max(rates) <= 1.2 * FLOOR


@pytest.mark.parametrize("fault", ["timeouts", "overloads"])
def test_an_error_halves_the_rate_at_once_and_it_stays_down_for_a_while(fault: str) -> None:
    before = calm(Pressure().limited(1_000))
    after, strain = before.after(Observation(1_000, BASE, **{fault: 1}))
    assert (after.rate, strain) == (500, Strain.TIMEOUT if fault == "timeouts" else Strain.OVERLOAD)
    quiet = looks(after, 21, steady)
    assert [one.rate for one in quiet[:-1]] == [500] * 20, "for five seconds"
    assert quiet[-1].rate > 500


def test_more_compactions_than_there_were_slow_a_run_down_until_they_are_gone() -> None:
    pressure, _ = calm(Pressure().limited(1_000)).after(Observation(1_000, BASE, compactions=60))
    after, strain = pressure.after(Observation(1_000, BASE, compactions=121))
    assert (round(after.rate), strain) == (700, Strain.COMPACTIONS)
    assert looks(after, 10, steady)[-1].rate == after.rate, "until they are counted again"
    fewer, _ = after.after(Observation(700, BASE, compactions=100))
    assert looks(fewer, 40, steady)[-1].rate == 1_000


@pytest.mark.parametrize(("pending", "strain"), [(20, None), (21, Strain.COMPACTIONS)])
def test_a_few_compactions_are_no_fault(pending: int, strain: Strain | None) -> None:
    pressure, _ = calm(Pressure()).after(Observation(ABLE, BASE, compactions=0))
    assert pressure.after(Observation(ABLE, BASE, compactions=pending))[1] is strain


def test_a_rate_that_does_not_bind_the_run_goes_to_the_limit() -> None:
    """A run that comes to 100 rows a second is bound by something else; so slow a one may be at the floor, below it."""
    cut = looks(calm(Pressure().limited(50_000)), 1, steady)[-1].after(Observation(3_000, BASE, timeouts=1))[0]
    rested = looks(cut, 20, steady)[-1]
    rates = [rested.after(Observation(own, BASE))[0].rate for own in (99.9, 100, 157.4, 157.6)]
    assert rates == [pytest.approx(1_575), 50_000, 50_000, pytest.approx(1_575)]


def test_the_best_is_what_the_first_looks_come_to_and_not_the_luckiest_of_them() -> None:
    pressure = Pressure()
    for seconds in (0.001, *[0.010] * 7):
        pressure, _ = pressure.after(Observation(0.0, seconds))
    assert pressure.best == pytest.approx((0.001 + 7 * 0.010) / 8)


def test_answers_within_a_millisecond_may_take_twice_as_long() -> None:
    """So small a difference may come from this process itself."""
    pressure = Pressure().limited(1_000)
    for seconds in (*[0.0005] * 8, *[0.0009] * 8):
        pressure, strain = pressure.after(Observation(1_000, seconds))
        assert strain is None
    assert pressure.ratio == pytest.approx(0.9, abs=0.05)


def test_a_run_at_the_floor_learns_what_the_cluster_is_like_now_and_goes_on() -> None:
    """It is not in the way there; else a cluster that became slower for good would be read at the floor for ever."""
    slowed = looks(looks(calm(Pressure().limited(5_000)), 20, steady)[-1], 40, tripled)
    assert slowed[-1].rate == FLOOR
    assert looks(slowed[-1], 400, tripled)[-1].rate == 5_000


def test_one_answer_that_takes_a_second_is_no_fault() -> None:
    before = looks(calm(Pressure().limited(1_000)), 40, steady)[-1]
    after, _ = before.after(Observation(1_000, 1.0))
    assert looks(after, 10, steady)[-1].rate >= 0.5 * before.rate


def test_a_run_that_reads_nothing_is_not_slowed_down() -> None:
    pressure = calm(Pressure().limited(1_000))
    for _ in range(20):
        pressure, strain = pressure.after(Observation(0.0, 10 * BASE))
        assert (pressure.rate, strain) == (1_000, None)


def test_a_new_limit_counts_at_once() -> None:
    free = calm(Pressure())
    assert free.limited(500).rate == 500
    assert free.limited(500).limited(2_000).rate == 2_000
    pressed = looks(free, 1, steady)[-1].after(Observation(ABLE, BASE, timeouts=1))[0]
    assert pressed.limited(50_000).rate == ABLE / 2
