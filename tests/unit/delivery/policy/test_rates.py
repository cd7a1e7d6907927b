"""How many deliveries begin in a stretch of time, under each algorithm and whatever the times of asking are."""

from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.delivery.policy.rates import SECOND, SLIDING_COUNT_MAX, DeliveryRate, RateAlgorithm, RateState
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
