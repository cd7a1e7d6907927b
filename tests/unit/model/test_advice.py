"""Advice for the queue: the laws that hold for any traffic, and the figures of a few that can be reckoned by hand."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from model.advice import (
    BLOOM_CHANCES,
    DAY,
    FALSE_READS_MAX,
    HOUR,
    MIB,
    MINUTE,
    PARTITION_BYTES_MAX,
    PARTITION_ROWS_MAX,
    SLICE_WINDOWS,
    WINDOWS,
    Figure,
    QueueSettings,
    Source,
    Traffic,
    advise_queue,
    bloom_bytes,
    history_window_days,
    span,
    window_compaction,
    windows_over,
)


def traffic_of(
    rate: float = 1.0,
    peak: float | None = None,
    *,
    stay: float = 5 * DAY,
    row: float = 1_500,
    nodes: int = 3,
    hints: float = 3 * HOUR,
) -> Traffic:
    """Traffic with every figure given."""
    figures = (rate, rate if peak is None else peak, stay, row, nodes, 3, hints)
    return Traffic(*(Figure(figure, Source.GIVEN, "said") for figure in figures))


RATES = st.floats(min_value=0.0001, max_value=5_000)
STAYS = st.floats(min_value=1, max_value=90 * DAY)


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """Any traffic that a mail system may have."""
    rate = draw(RATES)
    return traffic_of(
        rate,
        rate * draw(st.floats(min_value=1, max_value=100)),
        stay=draw(STAYS),
        row=draw(st.floats(min_value=50, max_value=100_000)),
        nodes=draw(st.integers(min_value=1, max_value=200)),
        hints=draw(st.floats(min_value=0, max_value=30 * DAY)),
    )


SETTINGS = st.builds(
    QueueSettings,
    slice_seconds=st.sampled_from([*SLICE_WINDOWS, 420, 90, 45, 600]),
    buckets=st.integers(min_value=1, max_value=64),
)


class TestLaws:
    """What holds for any traffic."""

    @given(traffics())
    def test_a_row_outlives_every_mail_and_a_mark_every_row(self, traffic: Traffic) -> None:
        """A mail must not expire while it waits, nor a mark before the row that it hides."""
        advice = advise_queue(traffic)

        assert advice.ttl_seconds >= traffic.longest_stay_seconds.value + advice.slack_seconds
        assert advice.mark_ttl_seconds >= advice.ttl_seconds + advice.slack_seconds

    @given(traffics())
    def test_windows_are_whole_slices_and_20_to_30_of_them_span_the_time_to_live(self, traffic: Traffic) -> None:
        """An SSTable then holds whole slices, and is dropped in good time without there being too many."""
        advice = advise_queue(traffic)
        least, _, most = WINDOWS

        for ttl, window in (
            (advice.ttl_seconds, advice.window_seconds),
            (advice.mark_ttl_seconds, advice.mark_window_seconds),
        ):
            assert window % advice.slice_seconds == 0
            assert window % MINUTE == 0
            assert ttl % window == 0
            assert least <= ttl // window <= most

    @given(traffics())
    def test_no_bucket_outgrows_its_bounds_at_the_peak(self, traffic: Traffic) -> None:
        """A slice of the busiest hour, spread over the buckets, stays within rows and bytes."""
        advice = advise_queue(traffic)
        rows = traffic.peak_per_second.value * advice.slice_seconds / advice.buckets

        assert rows <= PARTITION_ROWS_MAX * 1.000001
        assert rows * traffic.row_bytes.value <= PARTITION_BYTES_MAX * 1.000001

    @given(traffics(), SETTINGS)
    def test_what_is_set_now_bounds_what_may_follow(self, traffic: Traffic, now: QueueSettings) -> None:
        """A slice window becomes only a divisor of the present one, and buckets are never taken away."""
        advice = advise_queue(traffic, now)

        assert now.slice_seconds % advice.slice_seconds == 0
        assert advice.buckets >= now.buckets

    @given(traffics())
    def test_hints_are_never_dropped_for_a_short_grace(self, traffic: Traffic) -> None:
        """gc_grace is a day at least, and never below the hint window."""
        grace = advise_queue(traffic).gc_grace_seconds

        assert grace >= DAY
        assert grace >= traffic.hint_window_seconds.value

    @given(traffics())
    def test_a_look_up_in_vain_stays_rare(self, traffic: Traffic) -> None:
        """The bloom filter is as coarse as it may be, and no coarser."""
        advice = advise_queue(traffic)
        sstables = advice.mark_ttl_seconds // advice.mark_window_seconds + 4

        assert advice.mark_bloom_chance in BLOOM_CHANCES
        assert sstables * advice.mark_bloom_chance <= FALSE_READS_MAX
        assert sstables * advice.mark_bloom_chance * 10 > FALSE_READS_MAX

    @given(traffics(), st.floats(min_value=1.0, max_value=50.0))
    def test_more_mail_never_takes_longer_slices(self, traffic: Traffic, times: float) -> None:
        """Slices hold about as many mails whatever comes."""
        rate, peak = traffic.mails_per_second, traffic.peak_per_second
        busier = replace(
            traffic,
            mails_per_second=replace(rate, value=rate.value * times),
            peak_per_second=replace(peak, value=peak.value * times),
        )

        assert advise_queue(busier).slice_seconds <= advise_queue(traffic).slice_seconds

    @given(traffics(), SETTINGS)
    def test_every_setting_comes_with_a_reason_that_holds_figures(self, traffic: Traffic, now: QueueSettings) -> None:
        """Nobody has to take a number on trust."""
        for reason in advise_queue(traffic, now).reasons:
            assert any(character.isdigit() for character in reason.why)
            assert reason.why.endswith(".")

    @given(st.integers(min_value=20 * MINUTE, max_value=400 * DAY), st.sampled_from([*SLICE_WINDOWS, 45, 90, 420]))
    def test_a_slice_too_long_makes_the_time_to_live_grow(self, seconds: int, slice_seconds: int) -> None:
        """Windows stay 20 to 30 even where a slice is long beside the time."""
        ttl, window = windows_over(seconds, slice_seconds)

        assert ttl >= seconds
        assert 20 <= ttl // window <= 30


class TestFigures:
    """Traffic whose advice can be reckoned by hand."""

    def test_jamess_own_hour_suits_three_mails_a_second(self) -> None:
        """10,000 mails in an hour are 2.8 a second."""
        advice = advise_queue(traffic_of(2.8))

        assert advice.slice_seconds == HOUR
        assert advice.slack_seconds == 3 * DAY
        assert advice.ttl_seconds == 8 * DAY
        assert advice.window_seconds == 8 * HOUR
        assert advice.gc_grace_seconds == DAY
        assert advice.mark_bloom_chance == 0.001

    def test_a_long_stay_takes_more_slack(self) -> None:
        """Half of the longest stay, once that is more than a weekend."""
        advice = advise_queue(traffic_of(stay=30 * DAY))

        assert advice.slack_seconds == 15 * DAY
        assert advice.ttl_seconds >= 45 * DAY

    @pytest.mark.parametrize(
        ("peak", "row", "buckets", "why"),
        [
            (2.8, 1_000, 1, "10,080 rows of 1,000 bytes are 9.6 MiB"),
            (11.2, 100, 3, "40,320 rows"),
            (2.8, 10_000, 10, "96 MiB"),
        ],
    )
    def test_buckets_follow_rows_and_bytes(self, peak: float, row: int, buckets: int, why: str) -> None:
        """Whichever bound is met first."""
        assert advise_queue(traffic_of(2.8, peak, row=row)).buckets == buckets, why

    def test_a_hot_slice_is_spread_over_the_nodes(self) -> None:
        """Two buckets for each node, as one partition lands on its replicas only."""
        advice = advise_queue(traffic_of(101, nodes=12, row=10))

        assert advice.buckets == 24

    def test_a_slice_of_seven_minutes_may_become_a_minute(self) -> None:
        """The only window to choose from that divides it."""
        advice = advise_queue(traffic_of(1000), QueueSettings(420, 1))

        assert advice.slice_seconds == 60

    def test_a_slice_that_nothing_divides_stays(self) -> None:
        """45 seconds have no divisor among the windows."""
        assert advise_queue(traffic_of(), QueueSettings(45, 1)).slice_seconds == 45

    def test_the_present_setting_is_named_where_there_is_one(self) -> None:
        """So that a reader sees why nothing longer is advised."""
        whys = " ".join(reason.why for reason in advise_queue(traffic_of(), QueueSettings(HOUR, 7)).reasons)

        assert "divisor of the present 1 h" in whys
        assert "at present it is 7" in whys


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_660, "1 h 1 min"), (8 * DAY, "8 d"), (90_061, "1 d 1 h")],
)
def test_a_span_is_told_in_two_units_at_most(seconds: int, text: str) -> None:
    """Short enough for a table."""
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "unit", "size"),
    [(2 * DAY, "DAYS", "2"), (8 * HOUR, "HOURS", "8"), (90 * MINUTE, "MINUTES", "90"), (DAY + HOUR, "HOURS", "25")],
)
def test_a_window_is_written_in_the_largest_unit_that_fits(seconds: int, unit: str, size: str) -> None:
    """As Cassandra takes it: whole days, hours or minutes."""
    compaction = window_compaction(seconds)

    assert compaction.options == {"compaction_window_unit": unit, "compaction_window_size": size}


@given(st.integers(min_value=1, max_value=100_000))
def test_a_history_has_about_two_dozen_windows(days: int) -> None:
    """Of whole days, never none."""
    window = history_window_days(days * DAY)

    assert window >= 1
    assume(days > 240)
    assert 22 <= days / window <= 26


def test_a_bloom_filter_of_a_million_keys_at_one_in_a_thousand_takes_under_two_mebibytes() -> None:
    """14.4 bits for each key."""
    assert bloom_bytes(1_000_000, 0.001) / MIB == pytest.approx(1.714, abs=0.01)
