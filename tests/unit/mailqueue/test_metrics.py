"""What the queue counts reaches Prometheus under names that do not meet."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.metrics import QueueCount, QueueFigures, QueueRates
from mailmend.mailqueue.prometheus import PrometheusCounts, gauges_text, metrics_text, samples_in
from mailmend.model.ids import QueueName
from mailmend.model.metrics import Metric, MetricSample

SPOOL, OUTGOING = QueueName("spool"), QueueName("outgoing")


_METRIC = Metric("mailmend_shape", 'A "word", and \\ a stroke', ("one", "two"))


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.floats(allow_nan=False)))
def test_what_was_written_is_read_again(values: dict[tuple[str, str], float]) -> None:
    """Quotes, strokes and ends of lines in labels too: names of queues are other people's."""
    samples = [MetricSample(_METRIC, labels, value) for labels, value in values.items()]

    assert list(samples_in(metrics_text(samples), [_METRIC])) == samples


@given(
    st.text() | st.sampled_from(["mailmend_shape{", 'mailmend_shape{one="x"', 'mailmend_shape{one="x",} 1', "# HELP"])
)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        list(samples_in(text, [_METRIC]))


def test_counts_add_up_for_each_queue_alone() -> None:
    counts = PrometheusCounts()
    counts.add(QueueCount.ACKED, SPOOL)
    counts.add(QueueCount.ACKED, SPOOL, 2)
    counts.add(QueueCount.ACKED, OUTGOING)
    lines = counts.text().splitlines()
    assert 'mailmend_queue_acked_total{queue="spool"} 3.0' in lines
    assert 'mailmend_queue_acked_total{queue="outgoing"} 1.0' in lines


def test_two_counts_of_one_process_do_not_meet() -> None:
    """Each keeps a registry of its own, so making a second one neither fails nor adds to the first."""
    first, second = PrometheusCounts(), PrometheusCounts()
    first.add(QueueCount.GONE, SPOOL)
    assert 'queue="spool"' not in second.text()


def test_every_kind_has_its_own_word_and_says_what_it_means() -> None:
    """A word used twice would be refused by the library only when a service starts."""
    assert len({count.word for count in QueueCount}) == len(QueueCount)
    assert all(
        f"# HELP mailmend_queue_{count.word}_total {count.meaning}" in PrometheusCounts().text() for count in QueueCount
    )


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LOOK = QueueFigures(
    SPOOL,
    NOW,
    mails=3,
    delayed=1,
    exact=False,
    oldest_at=NOW - timedelta(minutes=5),
    browse_start=NOW - timedelta(hours=2),
    content_start=NOW - timedelta(hours=5),
    swept_at=NOW - timedelta(minutes=1),
    depth=Depth(ready=2, unacked=1, consumers=0, dead=4, alarms=("memory on rabbit@one",)),
    lacking=7,
)


def test_a_look_becomes_gauges() -> None:
    """Depth, age of the oldest, browse start, lag of the content start, last sweep, broker, rates."""
    lines = gauges_text([(LOOK, QueueRates(enqueued=1.5, marked=0.5))]).splitlines()

    for expected in (
        'mailmend_queue_mails{queue="spool"} 3.0',
        'mailmend_queue_delayed_mails{queue="spool"} 1.0',
        'mailmend_queue_size_exact{queue="spool"} 0.0',
        'mailmend_queue_oldest_age_seconds{queue="spool"} 300.0',
        'mailmend_queue_browse_start_age_seconds{queue="spool"} 7200.0',
        'mailmend_queue_content_start_lag_seconds{queue="spool"} 10800.0',
        'mailmend_queue_last_sweep_age_seconds{queue="spool"} 60.0',
        'mailmend_queue_broker_up{queue="spool"} 1.0',
        'mailmend_queue_broker_unacked{queue="spool"} 1.0',
        'mailmend_queue_broker_lacking{queue="spool"} 7.0',
        'mailmend_queue_broker_alarms{queue="spool"} 1.0',
        'mailmend_queue_broker_dead_letters{queue="spool"} 4.0',
        'mailmend_queue_enqueued_per_second{queue="spool"} 1.5',
        'mailmend_queue_marked_per_second{queue="spool"} 0.5',
        'mailmend_queue_trouble{queue="spool",trouble="no_consumer"} 1.0',
        'mailmend_queue_trouble{queue="spool",trouble="moved_back"} 0.0',
    ):
        assert expected in lines


def test_what_is_not_known_is_left_out() -> None:
    """No zero that nobody measured: an empty queue has no oldest mail, a broker that was not asked no consumers."""
    text = gauges_text([(QueueFigures(OUTGOING, NOW), None)])

    for absent in ("oldest_age", "browse_start_age", "content_start_lag", "last_sweep", "queue_broker_", "per_second"):
        assert absent not in text
    assert 'mailmend_queue_mails{queue="outgoing"} 0.0' in text


def test_a_broker_that_is_away_is_down_and_not_merely_absent() -> None:
    away = QueueFigures(SPOOL, NOW, broker_away="connection refused")

    text = gauges_text([(away, None)])

    assert 'mailmend_queue_broker_up{queue="spool"} 0.0' in text
    assert "broker_ready" not in text


def test_queues_stand_side_by_side() -> None:
    text = gauges_text([(LOOK, None), (QueueFigures(OUTGOING, NOW, mails=9), None)])

    assert text.count("# TYPE mailmend_queue_mails gauge") == 1
    assert 'mailmend_queue_mails{queue="outgoing"} 9.0' in text
