"""How many deliveries begin in a stretch of time, under each algorithm and whatever the times of asking are."""

from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.delivery.policy.rates import (
    LONG_AGO,
    SECOND,
    SLIDING_COUNT_MAX,
    DeliveryRate,
    RateAlgorithm,
    RateState,
)
from mailmend.model.errors import WrongUse

RATES = st.builds(DeliveryRate, st.integers(1, 30), st.integers(1, 100))
PAUSES = st.lists(st.integers(0, 40), max_size=120)
ALGORITHMS = st.sampled_from(RateAlgorithm)


def begun(state: RateState, asked_at: Iterable[int]) -> list[int]:
    """The instants at which a delivery began, of those at which one was to begin."""
    instants = []
    for now in asked_at:
        if state.next_at() <= now:
            state.begin(now)
            instants.append(now)
    return instants


def most_within(instants: list[int], interval: int) -> int:
    """The largest number of them in any stretch that is shorter than the interval by one nanosecond."""
    return max((sum(start <= at < start + interval for at in instants) for start in instants), default=0)


def as_many_as_possible(state: RateState, until: int) -> list[int]:
    return begun(state, (now for now in range(until) for _ in range(state.rate.count)))


@given(RATES, PAUSES)
def test_a_sliding_rate_never_lets_more_than_its_count_begin_in_any_interval(
    rate: DeliveryRate, pauses: list[int]
) -> None:
    instants = begun(RateAlgorithm.SLIDING.state(rate), accumulate(pauses))

    assert most_within(instants, rate.interval) <= rate.count


@given(RATES, PAUSES)
def test_a_sliding_rate_refuses_only_what_would_be_too_many(rate: DeliveryRate, pauses: list[int]) -> None:
    state, instants = RateAlgorithm.SLIDING.state(rate), list[int]()
    for now in accumulate(pauses):
        too_many = sum(at > now - rate.interval for at in instants) >= rate.count
        assert (state.next_at() > now) is too_many
        instants += begun(state, [now])


@pytest.mark.parametrize(
    ("algorithm", "most"),
    [(RateAlgorithm.TOKEN_BUCKET, 109), (RateAlgorithm.FIXED_WINDOW, 199), (RateAlgorithm.SLIDING, 100)],
)
def test_the_most_that_can_begin_in_one_interval_is_known(algorithm: RateAlgorithm, most: int) -> None:
    """For 100 in an interval; a window's seam is reached by one early delivery and a burst right before its end."""
    rate = DeliveryRate(100, 100)
    late = [0, *(99 for _ in range(99)), *(100 for _ in range(100))]

    seen = max(
        most_within(as_many_as_possible(algorithm.state(rate), 300), rate.interval),
        most_within(begun(algorithm.state(rate), late), rate.interval),
    )

    assert seen == most


@given(RATES, PAUSES)
def test_a_token_bucket_adds_no_more_than_its_burst(rate: DeliveryRate, pauses: list[int]) -> None:
    instants = begun(RateAlgorithm.TOKEN_BUCKET.state(rate), accumulate(pauses))

    assert most_within(instants, rate.interval) <= rate.count + max(1, rate.count // 10) - 1


@given(ALGORITHMS, RATES, PAUSES)
def test_what_is_asked_for_at_the_instant_that_was_named_begins(
    algorithm: RateAlgorithm, rate: DeliveryRate, pauses: list[int]
) -> None:
    state = algorithm.state(rate)
    begun(state, accumulate(pauses))
    at = max(state.next_at(), sum(pauses))

    assert begun(state, [at]) == [at]


@given(ALGORITHMS, RATES)
def test_a_rate_is_reached_by_who_asks_all_the_time(algorithm: RateAlgorithm, rate: DeliveryRate) -> None:
    state = algorithm.state(rate)

    assert len(as_many_as_possible(state, 10 * rate.interval)) >= 10 * rate.interval // state.rate.apart


@given(ALGORITHMS, RATES, PAUSES)
def test_a_forgotten_state_is_as_good_as_a_new_one(
    algorithm: RateAlgorithm, rate: DeliveryRate, pauses: list[int]
) -> None:
    used, new = algorithm.state(rate), algorithm.state(rate)
    begun(used, accumulate(pauses))
    later = max(used.forgotten_at(), sum(pauses))
    asked_at = [later + at for at in range(3 * rate.interval) for _ in range(3)]

    assert begun(used, asked_at) == begun(new, asked_at)


@given(ALGORITHMS, RATES, PAUSES, PAUSES)
def test_what_is_kept_of_a_state_lets_as_many_begin_and_none_sooner(
    algorithm: RateAlgorithm, rate: DeliveryRate, pauses: list[int], later: list[int]
) -> None:
    """A sliding one of an interval of less than a hundred instants knows each of them."""
    used, kept = algorithm.state(rate), algorithm.state(rate)
    begun(used, accumulate(pauses))
    kept.take_up(used.spent())
    asked_at = [sum(pauses) + at for at in accumulate(later)]

    assert RateAlgorithm.of(kept) is algorithm
    assert begun(kept, asked_at) == begun(used, asked_at)


@given(st.builds(DeliveryRate, st.integers(1, 300), st.integers(1, 3000)), PAUSES, PAUSES)
def test_what_is_kept_of_a_sliding_rate_is_small_and_never_less_strict(
    rate: DeliveryRate, pauses: list[int], later: list[int]
) -> None:
    state = RateAlgorithm.SLIDING.state(rate)
    instants = begun(state, accumulate(pauses))
    spent, kept, now = state.spent(), RateAlgorithm.SLIDING.state(rate), sum(pauses)
    kept.take_up(spent)
    instants += begun(kept, [now + at for at in accumulate(later)])

    assert most_within(instants, rate.interval) <= rate.count
    assert len([at for at, _ in spent if at > now - rate.interval]) <= 102


@given(st.lists(st.tuples(RATES, PAUSES), min_size=2, max_size=4))
@example([(DeliveryRate(1, 1), [0, 1, 1, 1]), (DeliveryRate(3, 50), [0, 0, 0])])
@example([(DeliveryRate(4, 90), [0] * 4), (DeliveryRate(2, 90), [1]), (DeliveryRate(4, 90), [1] * 4)])
def test_a_sliding_rate_that_is_changed_counts_all_that_began_before(
    stretches: list[tuple[DeliveryRate, list[int]]],
) -> None:
    state, now, instants = RateAlgorithm.SLIDING.state(stretches[0][0]), 0, list[int]()
    for rate, pauses in stretches:
        state.change(rate, now)
        for pause in pauses:
            now += pause
            if begun(state, [now]):
                assert sum(now - rate.interval < at for at in instants) < rate.count
                instants.append(now)


def test_a_sliding_rate_that_is_raised_lets_more_begin_at_once() -> None:
    state = RateAlgorithm.SLIDING.state(DeliveryRate(2, 10))
    assert begun(state, [0, 0, 10, 10, 10]) == [0, 0, 10, 10]

    state.change(DeliveryRate(3, 10), 10)

    assert begun(state, [10, 10]) == [10]


@given(st.integers(1, 9), st.integers(0, 20))
def test_a_token_bucket_that_was_changed_owes_as_many_deliveries_as_before(times_slower: int, taken: int) -> None:
    state = RateAlgorithm.TOKEN_BUCKET.state(DeliveryRate(200, 200))
    begun(state, [0] * taken)

    state.change(DeliveryRate(200, 200 * times_slower), 0)

    assert state.forgotten_at() in {taken * times_slower, 0}
    assert state.next_at() == state.forgotten_at() - 19 * times_slower


def test_a_fixed_window_that_was_changed_stays_open_and_counts_on() -> None:
    state = RateAlgorithm.FIXED_WINDOW.state(DeliveryRate(2, 10))
    assert begun(state, [5, 6, 7]) == [5, 6]

    state.change(DeliveryRate(3, 20), 8)

    assert begun(state, [8, 9, 24, 25]) == [8, 25]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50", DeliveryRate(50, SECOND)),
        ("100/60", DeliveryRate(100, 60 * SECOND)),
        (" 1 / 0.25 ", DeliveryRate(1, SECOND // 4)),
        ("2/.5", DeliveryRate(2, SECOND // 2)),
    ],
)
def test_a_rate_is_written_as_deliveries_by_seconds(text: str, rate: DeliveryRate) -> None:
    assert DeliveryRate.parse(text) == rate


@pytest.mark.parametrize("text", ["", "0", "0/5", "5/0", "-1", "1.5", "1/2/3", "1/-2", "5 per second", "1/1e9", "٣"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(WrongUse):
        DeliveryRate.parse(text)


def test_a_sliding_rate_of_too_many_is_refused() -> None:
    RateAlgorithm.SLIDING.state(DeliveryRate(SLIDING_COUNT_MAX))
    with pytest.raises(WrongUse, match="10,001"):
        RateAlgorithm.SLIDING.state(DeliveryRate(SLIDING_COUNT_MAX + 1))


def test_a_rate_without_an_interval_is_of_one_second_in_nanoseconds() -> None:
    assert DeliveryRate.parse("50").interval == 1_000_000_000


def test_deliveries_that_are_evenly_spread_are_apart_by_whole_nanoseconds_rounded_up() -> None:
    """Otherwise one more than the count would begin in the interval."""
    assert [DeliveryRate(3, interval).apart for interval in (9, 10, 11, 12)] == [3, 4, 4, 4]


@pytest.mark.parametrize("text", ["5 per second", "5/0"])
def test_the_refusal_of_a_rate_says_how_a_rate_is_written(text: str) -> None:
    with pytest.raises(WrongUse) as refused:
        DeliveryRate.parse(text)

    assert refused.value.mend == "Write X deliveries in Y seconds as X/Y, like 100/60, or X alone for each second."


@pytest.mark.parametrize("now", [-(10**18), 0, 10**18])
@pytest.mark.parametrize("algorithm", RateAlgorithm)
def test_a_new_state_lets_a_delivery_begin_whatever_the_clock_reads(algorithm: RateAlgorithm, now: int) -> None:
    assert begun(algorithm.state(DeliveryRate(1, 100)), [now, now]) == [now]


class TestSpend:
    """Deliveries that count as begun, whether or not they might have begun."""

    def test_a_token_bucket_is_empty_at_most_and_fills_from_then_on(self) -> None:
        """Given a burst of 2, and a delivery each 10 nanoseconds."""
        state = RateAlgorithm.TOKEN_BUCKET.state(DeliveryRate(20, 200))

        state.spend(1, 100)
        assert (state.next_at(), state.forgotten_at()) == (100, 110)

        state.spend(1, 100)
        assert (state.next_at(), state.forgotten_at()) == (110, 120)

        state.spend(50, 130)
        assert (state.next_at(), state.forgotten_at()) == (140, 150)

    def test_a_window_that_is_open_counts_them_and_opens_anew(self) -> None:
        state = RateAlgorithm.FIXED_WINDOW.state(DeliveryRate(3, 10))
        state.begin(5)

        state.spend(1, 7)

        assert begun(state, [8, 9]) == [8]
        assert state.next_at() == state.forgotten_at() == 17

    def test_a_window_never_opens_earlier_than_it_did(self) -> None:
        state = RateAlgorithm.FIXED_WINDOW.state(DeliveryRate(3, 10))
        state.begin(5)

        state.spend(1, 4)

        assert state.forgotten_at() == 15

    def test_a_window_that_has_closed_counts_only_them(self) -> None:
        state = RateAlgorithm.FIXED_WINDOW.state(DeliveryRate(3, 10))
        assert begun(state, [5, 6, 7, 8]) == [5, 6, 7]

        state.spend(1, 15)

        assert begun(state, [15, 15, 15]) == [15, 15]
        assert state.next_at() == 25

    def test_a_sliding_rate_counts_them_no_earlier_than_what_began_before(self) -> None:
        state = RateAlgorithm.SLIDING.state(DeliveryRate(3, 10))
        state.begin(5)

        state.spend(2, 3)
        assert (state.next_at(), state.forgotten_at()) == (15, 15)

        state.spend(2, 9)
        assert (state.next_at(), state.forgotten_at()) == (15, 19)

    def test_a_sliding_rate_that_is_raised_still_counts_more_than_its_count_allowed(self) -> None:
        """Given 5 that began under a count of 3, a count of 5 is free again once the first of them is old enough."""
        state = RateAlgorithm.SLIDING.state(DeliveryRate(3, 10))
        for now in range(5):
            state.spend(1, now)
        assert state.next_at() == 12

        state.change(DeliveryRate(5, 10), 5)

        assert state.next_at() == 10


class TestSpent:
    """What is kept of a state."""

    def test_of_a_token_bucket_when_it_is_full_and_of_a_window_when_it_opened_and_how_many_began(self) -> None:
        bucket, window = (
            algorithm.state(DeliveryRate(3, 30))
            for algorithm in (RateAlgorithm.TOKEN_BUCKET, RateAlgorithm.FIXED_WINDOW)
        )
        begun(bucket, [100])
        begun(window, [100, 101])

        assert bucket.spent() == ((110, 0),)
        assert window.spent() == ((100, 2),)

    def test_of_a_sliding_rate_the_last_of_those_that_began_within_a_hundredth_of_the_interval(self) -> None:
        state = RateAlgorithm.SLIDING.state(DeliveryRate(9, 1_000))
        begun(state, [0, 10, 11, 21, 22])

        assert state.spent() == ((LONG_AGO, 0), (10, 2), (21, 2), (22, 1))

    def test_a_sliding_rate_forgets_what_no_longer_counts_but_for_the_newest_of_it(self) -> None:
        state = RateAlgorithm.SLIDING.state(DeliveryRate(2, 100))
        begun(state, [0, 50, 100, 150])

        assert state.spent() == ((50, 0), (100, 1), (150, 1))


def test_a_token_bucket_that_is_changed_owes_its_time_from_now_on_rounded_up() -> None:
    """Given 2 nanoseconds of 3 that are owed still, at a delivery each 10 nanoseconds they are 7."""
    state = RateAlgorithm.TOKEN_BUCKET.state(DeliveryRate(1, 3))
    state.begin(100)

    state.change(DeliveryRate(1, 10), 101)

    assert state.forgotten_at() == 108


def test_a_token_bucket_that_is_full_owes_nothing_when_it_is_changed() -> None:
    state = RateAlgorithm.TOKEN_BUCKET.state(DeliveryRate(1, 3))
    state.begin(100)

    state.change(DeliveryRate(1, 10), 200)

    assert state.forgotten_at() == state.next_at() == 200
