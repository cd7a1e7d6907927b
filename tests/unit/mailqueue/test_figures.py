"""One look at a queue, and the pace between two of them."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from mailmend.mailqueue.broker import SETTLING, Depth
from mailmend.mailqueue.metrics import TrafficSums, judged, pace_between
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, figures_of, slack_of, sums_of
from mailmend.mailqueue.rules.health import HealthProblem
from mailmend.model.catalog.mail_queue import OwnTables
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
    assert (found.depth, found.lacking, found.broker_away) == (Depth(2, 0, 0, 0), 0, None)


class TestLacking:
    """Mails whose messages the broker lost."""

    async def test_those_that_wait_for_a_minute_are_counted(self, twin: TwinQueue, queue: RabbitMailQueue) -> None:
        """A delayed mail has none on purpose; one that was put just now may be on its way."""
        await enqueued(queue, "one", "two")
        await queue.enqueue(mail("later"), CONTENT, delay=timedelta(days=1))
        twin.clock.advance(3600)
        twin.broker.wipe()
        await enqueued(queue, "three", "four")
        twin.broker.wipe()
        assert await lacking(twin, queue) == 2
        twin.clock.advance(SETTLING.total_seconds())
        assert await lacking(twin, queue) == 4

    async def test_one_beside_the_dead_letter_of_another_mail_is_counted(
        self, twin: TwinQueue, queue: RabbitMailQueue
    ) -> None:
        await enqueued(queue, "lost")
        twin.clock.advance(3600)
        twin.broker.wipe()
        await enqueued(queue, "dead")
        async with queue.dequeue(1) as mails:
            await (await anext(mails)).reject()
        found = await figures_of(queue.view, QUEUE, twin.broker)
        assert found.depth is not None
        assert (found.depth.dead, found.lacking, found.lacking_at_most) == (1, 0, 1)
        assert {reason.trouble for reason in judged(found)} >= {HealthProblem.LACKS_MESSAGE}

    @pytest.mark.parametrize("own", [OwnTables(), OwnTables(tallies=True, shared=True)])
    async def test_where_the_size_is_no_count_rows_are_counted(self, own: OwnTables) -> None:
        twin = twin_queue(own=own)
        async with await twin.process() as queue:
            await enqueued(queue, "one", "two")
            twin.clock.advance(3600)
            assert await lacking(twin, queue) == 0
            twin.broker.wipe()
            assert await lacking(twin, queue) == 2

    async def test_only_what_a_second_look_finds_too_lacks(
        self, twin: TwinQueue, queue: RabbitMailQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A mail that became due has its row a moment before its message."""
        await enqueued(queue, "one", "two")
        twin.clock.advance(3600)
        message, _ = twin.broker.ready(QUEUE)
        twin.broker.wipe()
        pause = twin.clock.pause

        async def published(seconds: float) -> None:
            await twin.broker.publish(QUEUE, message)
            await pause(seconds)

        monkeypatch.setattr(twin.clock, "pause", published)
        assert await lacking(twin, queue) == 1

    async def test_a_broker_that_goes_away_between_two_looks_leaves_it_unknown(
        self, twin: TwinQueue, queue: RabbitMailQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await enqueued(queue, "one")
        twin.clock.advance(3600)
        twin.broker.wipe()

        async def gone(_: float) -> None:
            await asyncio.sleep(0)
            twin.broker.go_away()

        monkeypatch.setattr(twin.clock, "pause", gone)
        assert await lacking(twin, queue) is None


async def lacking(twin: TwinQueue, queue: RabbitMailQueue) -> int | None:
    return (await figures_of(queue.view, QUEUE, twin.broker)).lacking


async def test_a_broker_that_is_away_is_a_figure(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "one")
    twin.broker.go_away()
    found = await figures_of(queue.view, QUEUE, twin.broker)
    assert (found.mails, found.depth, found.broker_away is not None) == (1, None, True)
