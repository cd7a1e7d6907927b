"""A sweep renews what waits for long, so that no mail expires out of sight."""

from datetime import timedelta

import pytest

from mailmend.mailqueue.codec import row_of
from mailmend.mailqueue.rules.slices import ROUNDS_PER_SLACK
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS, LIVES, SLICE_TALLIES
from mailmend.model.operations import Put, Remove
from tests.support.queues import (
    EXPIRING,
    NOON,
    QUEUE,
    Process,
    TwinQueue,
    fill,
    finish,
    micros_at,
    names_of,
    queued,
    twin_queue,
)
from tests.support.striking import Strike, of

SLACK_SECONDS = LIVES.mark_ttl_seconds - LIVES.ttl_seconds


@pytest.fixture
def twin() -> TwinQueue:
    return twin_queue(own=EXPIRING)


class TestRenew:
    """No mail expires out of sight."""

    async def test_a_mail_outlives_its_row(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(2))
        await finish(process, range(1, 2))
        rows, day = twin.rows(ENQUEUED_MAILS), timedelta(days=1)
        renewed = 0
        while twin.clock.now < NOON + 3 * timedelta(seconds=LIVES.ttl_seconds):
            twin.clock.advance(day.total_seconds())
            renewed += (await process.sweeper.sweep(QUEUE)).renewed
        assert await names_of(process.view.browse(QUEUE)) == ["mail-0"]
        assert [row for row in twin.rows(ENQUEUED_MAILS) if row["name"] == "mail-0"] == [
            row for row in rows if row["name"] == "mail-0"
        ]
        assert 3 <= renewed <= 5

    async def test_without_a_sweep_it_is_gone(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(1))
        twin.clock.advance(LIVES.ttl_seconds)
        assert twin.rows(ENQUEUED_MAILS) == []

    async def test_what_is_young_is_left_alone(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(3))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - SLACK_SECONDS / 2 - 60))
        assert (await process.sweeper.sweep(QUEUE)).renewed == 0

    async def test_it_is_looked_for_some_times_while_the_slack_goes_by(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(1))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - SLACK_SECONDS / 2 + 60))
        assert (await process.sweeper.sweep(QUEUE)).renewed == 1
        late = {**row_of(QUEUE, NOON, 0, NOON, queued(5))}
        twin.memory.write(Put(ENQUEUED_MAILS, late, at=micros_at(NOON)))
        assert (await process.sweeper.sweep(QUEUE)).renewed == 0
        twin.clock.advance(SLACK_SECONDS / ROUNDS_PER_SLACK)
        assert (await process.sweeper.sweep(QUEUE)).renewed == 1

    async def test_one_that_is_marked_meanwhile_is_not_kept_alive(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(1))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - 3600))
        twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), do=lambda: twin.mark(queued(0).enqueue_id), times=1)
        await process.sweeper.sweep(QUEUE)
        assert twin.rows(ENQUEUED_MAILS) == []

    async def test_one_that_is_taken_back_meanwhile_stays_away(self, twin: TwinQueue, process: Process) -> None:
        """It was read before, and is put after: the removal is the later one all the same."""
        await fill(twin, process, range(1))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - 3600))
        (row,) = twin.rows(ENQUEUED_MAILS)
        removal = Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row))
        twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), do=lambda: twin.memory.write(removal), times=1)
        assert (await process.sweeper.sweep(QUEUE)).renewed == 1
        assert await names_of(process.view.browse(QUEUE)) == []

    async def test_tallies_live_as_long_as_their_mails(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(1))
        await process.tallies.flush()
        for _ in range(2 * LIVES.mark_ttl_seconds // 86_400):
            twin.clock.advance(86_400)
            await process.sweeper.sweep(QUEUE)
        assert (await twin.parts().view.size(QUEUE)).mails == 1
        assert len(twin.rows(SLICE_TALLIES)) == 1
