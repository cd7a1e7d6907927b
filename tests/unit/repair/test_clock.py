"""The law of T: when a margin is enough, what T is, and when clocks differ too much."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import ClocksDiffer, UnsafeRequest
from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.repair.clock import ClockReading, SystemClock, Timing, as_of, take_as_of
from tests.support.clock import START, VirtualClock

seconds = st.floats(0, 1000, allow_nan=False)
instants = st.integers(START, START + 3600 * MICROS)


class Nodes:
    """Servers whose clocks are this far from the virtual one."""

    def __init__(self, clock: VirtualClock, offsets: Sequence[float], latency: float = 0.0) -> None:
        self._clock, self._offsets, self._latency = clock, offsets, latency

    def node_micros(self) -> Sequence[int]:
        """Their clocks; asking takes a while."""
        self._clock.advance(self._latency)
        return [self._clock.micros() + round(offset * MICROS) for offset in self._offsets]


def test_the_defaults_keep_the_law() -> None:
    """What applies when nobody says anything is safe, and is what docs/concepts/guarantees.md says."""
    timing = Timing()
    assert (timing.margin_seconds, timing.skew_seconds, timing.stamp_age_seconds) == (30, 5, 20)
    assert timing.margin_seconds > timing.skew_seconds + timing.stamp_age_seconds
    assert timing.no_writers is False


def test_two_looks_at_a_counter_lie_further_apart_than_a_stamp_lives() -> None:
    """What was stamped before the first look is committed before the second."""
    assert Timing(stamp_age_seconds=12).look_gap_seconds == 13


@given(seconds, seconds, seconds)
def test_a_margin_is_refused_unless_it_exceeds_skew_and_stamp_age(margin: float, skew: float, age: float) -> None:
    """Margin > S + A, or an error that names the way out."""
    if margin > skew + age:
        assert Timing(margin, skew, age).margin_micros == round(margin * MICROS)
    else:
        with pytest.raises(UnsafeRequest, match="--no-writers"):
            Timing(margin, skew, age)


def test_a_quiet_keyspace_needs_no_margin() -> None:
    """Nobody writes: T is the start of the scan itself, and nothing has to be waited for."""
    timing = Timing(margin_seconds=0, no_writers=True)
    assert timing.margin_micros == 0
    assert timing.look_gap_seconds == 0


@pytest.mark.parametrize("name", ["margin_seconds", "skew_seconds", "stamp_age_seconds"])
def test_negative_times_are_refused_even_on_a_quiet_keyspace(name: str) -> None:
    """A negative margin would put T into the future."""
    assert getattr(Timing(**{name: 0}, no_writers=True), name) == 0
    with pytest.raises(UnsafeRequest, match="negative"):
        Timing(**{name: -1}, no_writers=True)


@given(instants, st.lists(instants, max_size=5), st.integers(0, MICROS))
def test_t_lies_a_margin_before_every_readable_clock(before: int, nodes: list[int], took: int) -> None:
    """Whatever the clocks say: either T is before all of them by the margin, or the run is refused."""
    timing = Timing()
    reading = ClockReading(before, tuple(nodes), before + took)
    try:
        moment = as_of(reading, timing)
    except ClocksDiffer:
        assert max((before + took, *nodes)) - min((before, *nodes)) >= timing.skew_allowed_micros
    else:
        assert all(moment <= clock - timing.margin_micros for clock in (before, *nodes))


def test_clocks_that_differ_by_more_than_the_margin_covers_are_refused() -> None:
    """30 s of margin less 20 s of stamp age leave 10 s."""
    clock = VirtualClock()
    with pytest.raises(ClocksDiffer, match=r"differ by 11\.000 s"):
        take_as_of(clock, Nodes(clock, [0, 11]), Timing())


def test_clocks_that_differ_by_all_that_the_margin_covers_are_refused() -> None:
    """The margin must be more than what it has to cover, not just as much."""
    reading = ClockReading(START, (START + 10 * MICROS,), START)
    with pytest.raises(ClocksDiffer):
        as_of(reading, Timing())
    assert as_of(reading, Timing(margin_seconds=30.001)) == START - 30_001_000


def test_clocks_that_differ_by_less_are_taken_at_the_earliest() -> None:
    """A node that is behind pulls T back with it."""
    clock = VirtualClock()
    assert take_as_of(clock, Nodes(clock, [3, -4]), Timing()) == START - 4 * MICROS - 30 * MICROS


def test_a_slow_answer_is_no_difference_of_clocks() -> None:
    """Asking took a minute, yet every clock is right: what lies between the two looks is nobody's fault."""
    clock = VirtualClock()
    assert take_as_of(clock, Nodes(clock, [0, 0], latency=60), Timing()) == START - 30 * MICROS


@pytest.mark.parametrize(
    ("nodes", "took", "spread"),
    [((), 0, 0), ((-7,), 0, 7), ((7,), 0, 7), ((7,), 4, 3), ((-7,), 4, 7), ((2, 3), 4, 0), ((-1, 6), 4, 3)],
    ids=["no node", "behind", "ahead", "ahead of the second look", "behind the first look", "between", "each other"],
)
def test_only_what_lies_outside_our_two_looks_is_a_difference(nodes: tuple[int, ...], took: int, spread: int) -> None:
    """A node answers at some moment between them."""
    assert ClockReading(START, tuple(START + node for node in nodes), START + took).spread == spread


def test_without_writers_clocks_need_not_agree() -> None:
    """Nothing can be overwritten, so nothing is refused."""
    clock = VirtualClock()
    assert take_as_of(clock, Nodes(clock, [100]), Timing(no_writers=True)) == START


def test_the_system_clock_tells_one_time_in_both_of_its_forms() -> None:
    """Microseconds and UUIDs come from the same clock."""
    clock = SystemClock()
    before, named, after = clock.micros(), clock.new_uuid(), clock.micros()
    assert isinstance(before, int)
    assert named.version == 1
    assert before - MICROS <= micros_of(named) <= after + MICROS


async def test_the_system_clock_sleeps_as_long_as_it_is_reported_and_no_negative_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pace that is behind asks for nothing."""
    slept: list[float] = []

    async def paused(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("asyncio.sleep", paused)

    for seconds in (0.5, -1):
        SystemClock().sleep(seconds)
        await SystemClock().pause(seconds)

    assert slept == [0.5, 0.5, 0, 0]
