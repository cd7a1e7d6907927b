"""Where a figure comes from: what a person says goes before what is measured, and that before what is assumed."""

import pytest

from mailmend.admin.schema.measuring import (
    ENQUEUED,
    LONGEST_STAY_SECONDS,
    MAILS_PER_SECOND,
    PEAK_TIMES,
    ROW_BYTES,
    GivenTraffic,
    MessageTraffic,
    QueueTraffic,
    copies_of,
    traffic_figures,
)
from mailmend.cql.schema.advice import Rates
from mailmend.cql.statistics import Statistics, TableFigures
from mailmend.mailqueue.rules.advice import FigureSource, Traffic
from mailmend.model.durations import DAY

QUIET = MessageTraffic(None, None)
BORN = MessageTraffic(Rates(mean=2, peak=9, history_seconds=400 * DAY, looked_at=20_000), 1.2)
QUEUE = QueueTraffic("spool", Rates(5, 30, 10 * DAY, 240), None, oldest_seconds=60, mails_per_partition=100)
UNHEARD = Statistics({}, nodes_up=3)
ONE_COPY = {"class": "SimpleStrategy", "replication_factor": "1"}


def figures_of(
    given: GivenTraffic | None = None,
    queue: QueueTraffic | None = None,
    messages: MessageTraffic = QUIET,
    statistics: Statistics = UNHEARD,
) -> Traffic:
    return traffic_figures(given or GivenTraffic(), queue, messages, statistics, ONE_COPY)


def test_what_is_said_goes_before_what_is_measured() -> None:
    given = GivenTraffic(mails_per_second=40, peak_mails_per_second=90, longest_stay_seconds=7 * DAY)

    traffic = figures_of(given, QUEUE, BORN)

    assert (traffic.mails_per_second.value, traffic.mails_per_second.source) == (40, FigureSource.GIVEN)
    assert (traffic.peak_per_second.value, traffic.peak_per_second.source) == (90, FigureSource.GIVEN)
    assert (traffic.longest_stay_seconds.value, traffic.longest_stay_seconds.source) == (7 * DAY, FigureSource.GIVEN)


def test_the_queue_is_measured_before_the_mailboxes() -> None:
    traffic = figures_of(queue=QUEUE, messages=BORN)

    assert (traffic.mails_per_second.value, traffic.peak_per_second.value) == (5, 30)
    assert "240 slices of queue 'spool'" in traffic.mails_per_second.how


def test_without_a_queue_the_births_of_messages_count() -> None:
    traffic = figures_of(messages=BORN)

    assert (traffic.mails_per_second.value, traffic.peak_per_second.value) == (2, 9)
    assert traffic.mails_per_second.source is FigureSource.MEASURED
    assert "20,000 messages" in traffic.mails_per_second.how


@pytest.mark.parametrize(
    ("history", "expected"), [(400 * DAY, "the newest 7 d"), (2 * DAY, "all 2 d that they span"), (5, "all 1 h")]
)
def test_a_young_keyspace_has_no_week_behind_it(history: float, expected: str) -> None:
    young = MessageTraffic(Rates(mean=2, peak=9, history_seconds=history, looked_at=100), None)
    assert expected in figures_of(messages=young).mails_per_second.how


def test_where_nothing_can_be_measured_it_is_assumed_and_said_so() -> None:
    traffic = figures_of()

    assert traffic.mails_per_second.value == MAILS_PER_SECOND
    assert traffic.peak_per_second.value == MAILS_PER_SECOND * PEAK_TIMES
    for figure in (traffic.mails_per_second, traffic.longest_stay_seconds, traffic.row_bytes):
        assert figure.source is FigureSource.ASSUMED
    assert "--mails-per-second" in traffic.mails_per_second.how
    assert "--longest-stay" in traffic.longest_stay_seconds.how


def test_a_mean_that_is_said_takes_its_peak_from_no_measurement() -> None:
    traffic = figures_of(GivenTraffic(mails_per_second=100), QUEUE)

    assert traffic.peak_per_second.value == 100 * PEAK_TIMES
    assert traffic.peak_per_second.source is FigureSource.ASSUMED


def test_a_peak_is_never_below_the_mean() -> None:
    traffic = figures_of(GivenTraffic(mails_per_second=100, peak_mails_per_second=1))

    assert traffic.peak_per_second.value == 100


@pytest.mark.parametrize(
    ("oldest", "stay", "source"),
    [
        (None, LONGEST_STAY_SECONDS, FigureSource.ASSUMED),
        (60.0, LONGEST_STAY_SECONDS, FigureSource.ASSUMED),
        (30.0 * DAY, 30 * DAY, FigureSource.MEASURED),
    ],
)
def test_the_queue_may_show_a_longer_stay_but_no_shorter_one(
    oldest: float | None, stay: float, source: FigureSource
) -> None:
    queue = QueueTraffic("spool", None, None, oldest, 1)

    figure = figures_of(queue=queue).longest_stay_seconds

    assert (figure.value, figure.source) == (stay, source)


def test_the_size_of_a_row_follows_from_the_size_of_a_partition() -> None:
    statistics = Statistics({ENQUEUED: TableFigures(mean_partition_bytes=200_000)})

    assert figures_of(queue=QUEUE, statistics=statistics).row_bytes.value == 2_000
    assert figures_of(statistics=statistics).row_bytes.value == ROW_BYTES


def test_the_nodes_hint_window_is_measured_where_it_is_reported() -> None:
    figure = figures_of(statistics=Statistics({}, hint_window_seconds=86_400)).hint_window_seconds

    assert (figure.value, figure.source) == (86_400, FigureSource.MEASURED)
    assert figures_of().hint_window_seconds.source is FigureSource.ASSUMED


@pytest.mark.parametrize(
    ("replication", "copies"),
    [
        (ONE_COPY, 1),
        ({"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "2"}, 5),
        ({"class": "NetworkTopologyStrategy", "dc1": "3/1"}, 3),
        ({"class": "EverywhereStrategy"}, 1),
    ],
)
def test_copies_of_all_data_centres_count(replication: dict[str, str], copies: int) -> None:
    assert copies_of(replication) == copies
