"""What the queue counts reaches Prometheus under names that do not meet."""

import pytest

from mailqueue.metrics import Count, NoCounts, PrometheusCounts
from model.ids import QueueName

SPOOL, OUTGOING = QueueName("spool"), QueueName("outgoing")


def test_counts_add_up_for_each_queue_alone() -> None:
    """Two queues of one process keep their own sums."""
    counts = PrometheusCounts()
    counts.add(Count.ACKED, SPOOL)
    counts.add(Count.ACKED, SPOOL, 2)
    counts.add(Count.ACKED, OUTGOING)
    lines = counts.text().splitlines()
    assert 'mailmend_queue_acked_total{queue="spool"} 3.0' in lines
    assert 'mailmend_queue_acked_total{queue="outgoing"} 1.0' in lines


def test_two_counts_of_one_process_do_not_meet() -> None:
    """Each keeps a registry of its own, so making a second one neither fails nor adds to the first."""
    first, second = PrometheusCounts(), PrometheusCounts()
    first.add(Count.GONE, SPOOL)
    assert 'queue="spool"' not in second.text()


def test_every_kind_has_its_own_word_and_says_what_it_means() -> None:
    """A word used twice would be refused by the library only when a service starts."""
    assert len({count.word for count in Count}) == len(Count)
    assert all(
        f"# HELP mailmend_queue_{count.word}_total {count.meaning}" in PrometheusCounts().text() for count in Count
    )


@pytest.mark.parametrize("count", list(Count))
def test_nobody_watching_costs_nothing(count: Count) -> None:
    """Counting into nothing takes every kind."""
    NoCounts().add(count, SPOOL, 5)
