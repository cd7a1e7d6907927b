"""A sweep may end anywhere: the next completes it, and no mail is lost."""

import asyncio
from dataclasses import dataclass

import pytest

from mailmend.mailqueue.codec import BrokenRow, row_of
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS, OwnTables
from mailmend.model.errors import MailmendError
from tests.support.queue_wires import Side, StepFault
from tests.support.queue_world import Fortune, QueueMishap, outlived
from tests.support.queues import (
    HOUR,
    NOON,
    OF_JAMES,
    QUEUE,
    Process,
    TwinQueue,
    fill,
    finish,
    micros_at,
    names_of,
    queued,
    turns,
    twin_queue,
)


class TestCrashes:
    """A sweep may end anywhere; the next completes it."""

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("own", [OwnTables(), OF_JAMES], ids=["ours", "of James"])
    async def test_killed_at_any_step_it_is_completed_by_the_next(self, after: bool, own: OwnTables) -> None:
        """Around every write, every publish, every deletion of a blob: every mail without a mark is listed once and
        published where it may be found, no row lies before the content start, no mark is lost.
        """  # noqa: D205 - one sentence
        killed, number = True, -1
        while killed:
            world, number = World(twin_queue(own=own)), number + 1
            await world.build()
            killed = await world.is_killed(number, after=after)
            await world.settles()
        assert number >= (24 if own.tallies else 18)

    async def test_killed_again_and_again_it_gets_there(self, twin: TwinQueue) -> None:
        """Each time one step further: nothing is listed twice, however often it is put back."""
        world, number = World(twin), 0
        await world.build()
        while await world.is_killed(number, after=True):
            number += 1
        assert number > 5
        await world.settles()

    async def test_cut_short_by_its_own_process_it_is_completed_too(self, twin: TwinQueue, process: Process) -> None:
        world = World(twin)
        await world.build()
        for passed in range(0, 200, 20):
            sweeping = asyncio.create_task(process.sweeper.sweep(QUEUE))
            await turns(passed)
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        await world.settles()

    @pytest.mark.parametrize("side", [Side.BROKER, Side.BLOBS, Side.WRITES])
    async def test_what_does_not_answer_leaves_the_rest_to_the_next(self, side: Side, twin: TwinQueue) -> None:
        world, fortune = World(twin), Fortune()
        await world.build()
        fortune.arm(QueueMishap(StepFault.LOST, 1, 1000, side))
        with pytest.raises(MailmendError):
            await twin.parts(wire=fortune).sweeper.sweep(QUEUE)
        assert twin.content_start == NOON
        await world.settles()


@dataclass
class World:
    """A queue in which every step of a sweep has something to do, and that can be stopped at each.

    Two mails without a mark and one row that cannot be read lie before the browse start, among mails that are done
    with and whose blobs were left; two buckets; more mails behind.
    """

    twin: TwinQueue

    async def build(self) -> None:
        twin, process = self.twin, self.twin.parts()
        await twin.cut(buckets=2)
        await fill(twin, process, range(8))
        await finish(process, range(1, 4))
        broken = row_of(QUEUE, NOON + HOUR, 0, NOON + HOUR, queued(20))
        twin.put_row({name: value for name, value in broken.items() if name != "name"})
        await process.tallies.flush()
        twin.put_start(BROWSE_START, NOON + 5 * HOUR)

    async def is_killed(self, number: int, *, after: bool) -> bool:
        """Whether a sweep is killed around that step, rather than done by then."""
        fortune = Fortune()
        fortune.arm(QueueMishap(StepFault.DIES_AFTER if after else StepFault.DIES_BEFORE, number))
        return await outlived(self.twin.parts(wire=fortune).sweeper.sweep(QUEUE)) is None

    async def settles(self) -> None:
        twin, process = self.twin, self.twin.parts()
        swept = await process.sweeper.sweep(QUEUE)
        assert twin.content_start == twin.browse_start == swept.content_start == NOON + 5 * HOUR
        assert min(row["timerangestart"] for row in twin.rows(ENQUEUED_MAILS)) >= NOON + 5 * HOUR
        broken = list[BrokenRow]()
        listed = await names_of(process.view.browse(QUEUE, on_broken=broken.append))
        assert sorted(listed) == ["mail-0", "mail-4", "mail-5", "mail-6", "mail-7"]
        assert [one.enqueue_id for one in broken] == [queued(20).enqueue_id]
        for number in (0, 4):
            assert (queued(number).enqueue_id, micros_at(NOON + 5 * HOUR) // 1000) in twin.published
        assert twin.marked == {queued(number).enqueue_id for number in (1, 2, 3)}
        blobs = [queued(number).blobs for number in (0, 4, 5, 6, 7)]
        assert twin.blobs.ids == {one for pair in blobs for one in (pair.header, pair.body)}
        size = await process.view.size(QUEUE)
        assert size.kind.value == "estimate" or size.mails == 6
