"""One look at a queue, and the pace between two of them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from mailqueue.rabbitmq.figures import TrafficSums, figures_of, pace_between, slack_of, sums_of
from mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from model.catalog.queue_tables import OwnTables
from model.queue.messages import Depth
from tests.support.queues import CONTENT, QUEUE, TwinQueue, drained, enqueued, mail, twin_queue

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def sums(at: datetime = NOW, enqueued: int = 0, marked: int = 0, slices: Sequence[datetime] = (NOW,)) -> TrafficSums:
    return TrafficSums(at, slices, enqueued, marked)


class TestPace:
    """Mails per second."""

    def test_it_is_the_difference_over_the_time(self) -> None:
        pace = pace_between(sums(enqueued=10, marked=4), sums(NOW + 10 * SECOND, enqueued=30, marked=9))

        assert pace is not None
        assert (pace.enqueued, pace.marked) == (2.0, 0.5)

    def test_it_is_never_negative(self) -> None:
        pace = pace_between(sums(enqueued=10), sums(NOW + SECOND, enqueued=9))

        assert pace is not None
        assert pace.enqueued == 0

    @pytest.mark.parametrize(("first", "second"), [(None, sums()), (sums(), None), (sums(), sums())])
    def test_without_two_looks_and_time_between_there_is_none(
        self, first: TrafficSums | None, second: TrafficSums | None
    ) -> None:
        assert pace_between(first, second) is None

    async def test_a_sweep_between_two_looks_takes_nothing_away(self, twin: TwinQueue, queue: RabbitMailQueue) -> None:
        """The second look is at the slices of the first, though the browse start has moved on."""
        await enqueued(queue, "one", "two")
        await drained(queue, 2)
        await queue.size()
        first = await sums_of(queue.view, QUEUE)
        twin.clock.advance(4 * 3600)
        await queue.move_browse_start()
        second = await sums_of(queue.view, QUEUE, first)
        pace = pace_between(first, second)
        assert pace is not None
        assert (pace.enqueued, pace.marked) == (0, 0)
        assert second is not None
        assert (second.enqueued, second.marked) == (2, 2)

    @pytest.mark.parametrize(("tallies", "mails"), [(False, ["one"]), (True, [])])
    async def test_where_nobody_keeps_tallies_there_is_none(self, tallies: bool, mails: list[str]) -> None:
        async with await twin_queue(own=OwnTables(tallies=tallies)).process() as queue:
            await enqueued(queue, *mails)
            assert await sums_of(queue.view, QUEUE) is None


@pytest.mark.parametrize(
    ("own", "slack"),
    [
        (OwnTables(), None),
        (OwnTables(row_ttl_seconds=900, mark_ttl_seconds=1000), timedelta(seconds=100)),
        (OwnTables(row_ttl_seconds=900, mark_ttl_seconds=900), timedelta(seconds=300)),
        (OwnTables(row_ttl_seconds=900), timedelta(seconds=300)),
    ],
)
def test_the_slack_is_what_marks_outlive_rows_by(own: OwnTables, slack: timedelta | None) -> None:
    """A third of a row's life where they do not; none where rows live for ever."""
    assert slack_of(own) == slack


async def test_a_look_shows_all_sides(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """What waits, since when, what is delayed, what the broker holds."""
    begun = twin.clock.now
    await enqueued(queue, "old")
    twin.clock.advance(60)
    await enqueued(queue, "young")
    await queue.enqueue(mail("later"), CONTENT, delay=timedelta(days=1))
    found = await figures_of(queue.view, QUEUE, twin.broker)
    assert (found.mails, found.delayed, found.exact, found.oldest_at) == (2, 1, True, begun)
    assert (found.depth, found.broker_away) == (Depth(2, 0, 0, 0), None)


async def test_a_broker_that_is_away_is_a_figure(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "one")
    twin.broker.go_away()
    found = await figures_of(queue.view, QUEUE, twin.broker)
    assert (found.mails, found.depth, found.broker_away is not None) == (1, None, True)
