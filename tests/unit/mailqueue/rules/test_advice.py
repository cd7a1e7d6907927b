"""Advice for the queue: the laws that hold for any traffic, and the figures of a few that can be reckoned by hand."""

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.advice import (
    PARTITION_BYTES_MAX,
    PARTITION_ROWS_MAX,
    SLICE_WINDOWS,
    Figure,
    FigureSource,
    Traffic,
    advise_queue,
    bloom_bytes,
    history_window_days,
    span,
)
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.slices import SECOND
from mailmend.model.catalog.mail_queue import (
    BLOOM_CHANCES,
    FALSE_READS_MAX,
    WINDOWS,
    gc_grace_for,
    lifetimes,
    window_compaction,
    windows_over,
)
from mailmend.model.durations import DAY, HOUR, MINUTE
from mailmend.model.sizes import MIB
from tests.support.queues import configured


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
    return Traffic(*(Figure(figure, FigureSource.GIVEN, "said") for figure in figures))


RATES = st.floats(min_value=0.0001, max_value=5_000)
STAYS = st.floats(min_value=1, max_value=90 * DAY)


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
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
    configured,
    seconds=st.sampled_from([*SLICE_WINDOWS, 420, 90, 45, 600]),
    buckets=st.integers(min_value=1, max_value=64),
)


class TestLaws:
    """What holds for any traffic."""

    @given(traffics())
    def test_rows_and_marks_live_as_long_as_the_longest_stay_asks_for(self, traffic: Traffic) -> None:
        advice = advise_queue(traffic)
        lives = lifetimes(math.ceil(traffic.longest_stay_seconds.value), advice.slice_seconds)

        assert {name: getattr(advice, name) for name in lives.__slots__} == asdict(lives)

    @given(traffics())
    def test_no_bucket_outgrows_its_bounds_at_the_peak(self, traffic: Traffic) -> None:
        advice = advise_queue(traffic)
        rows = traffic.peak_per_second.value * advice.slice_seconds / advice.buckets

        assert rows <= PARTITION_ROWS_MAX * 1.000001
        assert rows * traffic.row_bytes.value <= PARTITION_BYTES_MAX * 1.000001

    @given(traffics(), SETTINGS)
    def test_what_is_set_now_bounds_what_may_follow(self, traffic: Traffic, now: QueueConfiguration) -> None:
        advice = advise_queue(traffic, now)

        assert now.slicing.window // SECOND % advice.slice_seconds == 0
        assert advice.buckets >= now.slicing.buckets

    @given(traffics())
    def test_hints_are_never_dropped_for_a_short_grace(self, traffic: Traffic) -> None:
        grace = advise_queue(traffic).gc_grace_seconds

        assert grace >= DAY
        assert grace >= traffic.hint_window_seconds.value

    @given(traffics())
    def test_a_look_up_in_vain_stays_rare(self, traffic: Traffic) -> None:
        advice = advise_queue(traffic)
        sstables = advice.mark_ttl_seconds // advice.mark_window_seconds + 4

        assert advice.mark_bloom_chance in BLOOM_CHANCES
        assert sstables * advice.mark_bloom_chance <= FALSE_READS_MAX
        assert sstables * advice.mark_bloom_chance * 10 > FALSE_READS_MAX

    @given(traffics(), st.floats(min_value=1.0, max_value=50.0))
    def test_more_mail_never_takes_longer_slices(self, traffic: Traffic, times: float) -> None:
        rate, peak = traffic.mails_per_second, traffic.peak_per_second
        busier = replace(
            traffic,
            mails_per_second=replace(rate, value=rate.value * times),
            peak_per_second=replace(peak, value=peak.value * times),
        )

        assert advise_queue(busier).slice_seconds <= advise_queue(traffic).slice_seconds

    @given(traffics(), SETTINGS)
    def test_every_setting_has_a_reason_with_figures(self, traffic: Traffic, now: QueueConfiguration) -> None:
        for reason in advise_queue(traffic, now).reasons:
            assert any(character.isdigit() for character in reason.why)
            assert reason.why.endswith(".")

    @given(st.integers(min_value=20 * MINUTE, max_value=400 * DAY), st.sampled_from([*SLICE_WINDOWS, 45, 90, 420]))
    def test_a_slice_too_long_makes_the_time_to_live_grow(self, seconds: int, slice_seconds: int) -> None:
        ttl, window = windows_over(seconds, slice_seconds)

        assert ttl >= seconds
        assert 20 <= ttl // window <= 30


class TestFigures:
    """Traffic whose advice can be reckoned by hand."""

    def test_jamess_own_hour_suits_three_mails_a_second(self) -> None:
        advice = advise_queue(traffic_of(2.8))

        assert advice.slice_seconds == HOUR
        assert advice.slack_seconds == 3 * DAY
        assert advice.ttl_seconds == 8 * DAY
        assert advice.window_seconds == 8 * HOUR
        assert advice.gc_grace_seconds == DAY
        assert advice.mark_bloom_chance == 0.001

    def test_a_long_stay_takes_more_slack(self) -> None:
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
        assert advise_queue(traffic_of(2.8, peak, row=row)).buckets == buckets, why

    def test_a_hot_slice_is_spread_over_the_nodes(self) -> None:
        advice = advise_queue(traffic_of(101, nodes=12, row=10))

        assert advice.buckets == 24

    def test_a_slice_of_seven_minutes_may_become_a_minute(self) -> None:
        advice = advise_queue(traffic_of(1000), configured(420, 1))

        assert advice.slice_seconds == 60

    def test_a_slice_that_nothing_divides_stays(self) -> None:
        assert advise_queue(traffic_of(), configured(45, 1)).slice_seconds == 45


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_660, "1 h 1 min"), (8 * DAY, "8 d"), (90_061, "1 d 1 h")],
)
def test_a_span_is_reported_in_two_units_at_most(seconds: int, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "unit", "size"),
    [(2 * DAY, "DAYS", "2"), (8 * HOUR, "HOURS", "8"), (90 * MINUTE, "MINUTES", "90"), (DAY + HOUR, "HOURS", "25")],
)
def test_a_window_is_written_in_the_largest_unit_that_fits(seconds: int, unit: str, size: str) -> None:
    compaction = window_compaction(seconds)

    assert compaction.options == {"compaction_window_unit": unit, "compaction_window_size": size}


@given(st.integers(min_value=1, max_value=100_000))
def test_a_history_has_about_two_dozen_windows(days: int) -> None:
    window = history_window_days(days * DAY)

    assert window >= 1
    assume(days > 240)
    assert 22 <= days / window <= 26


def test_a_bloom_filter_of_a_million_keys_at_one_in_a_thousand_takes_under_two_mebibytes() -> None:
    assert bloom_bytes(1_000_000, 0.001) / MIB == pytest.approx(1.714, abs=0.01)


BUSY = [
    (
        "slice window",
        "1 h",
        (
            "At 2.8 mails/s such a slice holds 10,080 mails; about 10,000 are aimed at, and it must be short "
            "compared with the time to live of 8 d. It may only become a divisor of the present 2 h."
        ),
    ),
    (
        "bucket count",
        "62",
        (
            "At the peak of 120 mails/s a slice holds 432,000 mails of 1,500 bytes, 618.0 MiB; a partition should "
            "stay below 20,000 rows and 10 MiB; above 100 mails/s the writes are spread over 2 buckets for each "
            "of 3 nodes. Every bucket more is one partition more to browse. It never shrinks; at present it is 3."
        ),
    ),
    (
        "enqueuedMailsV4: time to live",
        "8 d",
        (
            "The longest stay of 5 d and 3 d of slack, in whole windows. Without it no SSTable is ever dropped; "
            "with it each node holds about 2,769 MiB."
        ),
    ),
    (
        "enqueuedMailsV4: time window",
        "8 h",
        "8 d in 24 windows (20 to 30 are advised), each 8 slices of 1 h.",
    ),
    (
        "deletedMailsV2: time to live",
        "11 d",
        "A mark must outlive the row that it hides: 8 d and 3 d of slack.",
    ),
    ("deletedMailsV2: time window", "11 h", "11 d in 24 windows."),
    (
        "both: gc_grace",
        "1 d",
        ("All rows expire, so a day is enough, but never less than the hint window of 3 h: hints would be dropped."),
    ),
    (
        "deletedMailsV2: bloom_filter_fp_chance",
        "0.001",
        (
            "Each mail is looked up in up to 28 SSTables where it mostly is not: 28 x 0.001 = 0.028 are read in "
            "vain, against 0.28 at 0.01; it takes 4.6 MiB of memory on each node."
        ),
    ),
]
"""What is told of a busy queue: setting, value, reason."""


class TestReasons:
    """Every figure that a reason tells, reckoned by hand."""

    def test_the_reasons_of_a_busy_queue(self) -> None:
        advice = advise_queue(traffic_of(2.8, 120), configured(2 * HOUR, 3))

        assert [(one.setting, one.value, one.why) for one in advice.reasons] == BUSY

    def test_a_quiet_queue_is_reported_of_no_heat_and_of_no_present_setting(self) -> None:
        whys = " ".join(one.why for one in advise_queue(traffic_of(1, 100)).reasons)

        assert "are spread over" not in whys
        assert "present" not in whys
        assert "are spread over" in " ".join(one.why for one in advise_queue(traffic_of(1, 100.5)).reasons)

    def test_what_lies_on_a_node_is_reported_even_where_nobody_counted_the_nodes(self) -> None:
        nowhere, one = (advise_queue(traffic_of(5, nodes=nodes)).reasons for nodes in (0, 1))

        assert nowhere == one

    def test_more_nodes_hold_less_each(self) -> None:
        few, many = (
            {one.setting: one.why for one in advise_queue(traffic_of(50, nodes=nodes)).reasons} for nodes in (3, 30)
        )

        assert "about 49,438 MiB" in few["enqueuedMailsV4: time to live"]
        assert "about 4,944 MiB" in many["enqueuedMailsV4: time to live"]
        assert "it takes 81.4 MiB" in few["deletedMailsV2: bloom_filter_fp_chance"]
        assert "it takes 8.1 MiB" in many["deletedMailsV2: bloom_filter_fp_chance"]


class TestLimits:
    """Where a rule changes its mind."""

    @pytest.mark.parametrize(
        ("seconds", "slice_seconds", "found"),
        [
            (60, HOUR, (20 * HOUR, HOUR)),
            (3 * DAY, HOUR, (3 * DAY, 3 * HOUR)),
            (8 * DAY, HOUR, (8 * DAY, 8 * HOUR)),
            (30 * MINUTE, MINUTE, (30 * MINUTE, MINUTE)),
            (30 * MINUTE + 1, MINUTE, (40 * MINUTE, 2 * MINUTE)),
            (90 * MINUTE, 45, (90 * MINUTE, 3 * MINUTE)),
        ],
    )
    def test_windows_by_hand(self, seconds: int, slice_seconds: int, found: tuple[int, int]) -> None:
        assert windows_over(seconds, slice_seconds) == found

    def test_a_slice_may_be_a_sixtieth_of_the_time_and_no_longer(self) -> None:
        assert advise_queue(traffic_of(0.001, stay=2 * DAY)).slice_seconds == 2 * HOUR
        assert advise_queue(traffic_of(0.001, stay=2 * DAY - 60)).slice_seconds == HOUR

    @pytest.mark.parametrize(
        ("rate", "slice_seconds"),
        [
            (170, 60),
            (34, 300),
            (11.2, 900),
            (5.6, 1_800),
            (2.8, HOUR),
            (1.4, 2 * HOUR),
            (0.7, 4 * HOUR),
            (0.23, 12 * HOUR),
            (0.116, DAY),
        ],
    )
    def test_each_slice_window_has_its_traffic(self, rate: float, slice_seconds: int) -> None:
        assert advise_queue(traffic_of(rate, stay=50 * DAY)).slice_seconds == slice_seconds

    def test_no_window_beside_a_short_stay_but_the_shortest(self) -> None:
        advice = advise_queue(traffic_of(1000, stay=1), configured(DAY, 1))

        assert (advice.slice_seconds, advice.slack_seconds) == (60, 3 * DAY)

    @pytest.mark.parametrize(
        ("days", "window"), [(0, 1), (1, 1), (24, 1), (35, 1), (37, 2), (48, 2), (240, 10), (365, 15)]
    )
    def test_a_history_in_two_dozen_windows_by_hand(self, days: int, window: int) -> None:
        assert history_window_days(days * DAY) == window

    def test_a_window_below_a_minute_is_a_minute(self) -> None:
        assert window_compaction(45).options == {"compaction_window_unit": "MINUTES", "compaction_window_size": "1"}


@given(st.integers(min_value=1, max_value=90 * DAY), st.sampled_from(SLICE_WINDOWS))
def test_lives_hold_for_any_stay_and_slice(stay: int, slice_seconds: int) -> None:
    lives = lifetimes(stay, slice_seconds)
    assert lives.ttl_seconds >= stay + lives.slack_seconds
    assert lives.mark_ttl_seconds >= lives.ttl_seconds + lives.slack_seconds
    for ttl, window in (
        (lives.ttl_seconds, lives.window_seconds),
        (lives.mark_ttl_seconds, lives.mark_window_seconds),
    ):
        assert ttl % window == window % slice_seconds == window % MINUTE == 0
        assert WINDOWS[0] <= ttl / window <= WINDOWS[-1]
    assert lives.mark_bloom_chance in BLOOM_CHANCES


@pytest.mark.parametrize(("hints", "grace"), [(0, DAY), (3 * HOUR, DAY), (DAY + 0.5, DAY + 1), (2 * DAY, 2 * DAY)])
def test_tombstones_are_kept_for_a_day_or_as_long_as_hints(hints: float, grace: int) -> None:
    assert gc_grace_for(hints) == grace
