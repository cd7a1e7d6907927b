"""The sweep: what it cleans, rescues and counts; when it runs by itself."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mailmend.mailqueue.codec import BrokenRow, row_of
from mailmend.mailqueue.comparison import Swept
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.clean_slices import SECOND_LOOK_SECONDS
from mailmend.mailqueue.rules.size import CountedBy, SizeKind
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS, SLICE_TALLIES
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put, Remove
from tests.support.queue_wires import StepFault
from tests.support.queue_world import DEATHS, Fortune, QueueMishap, outlived
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
from tests.support.striking import refusing


class TestClean:
    """What the browse start has passed goes; what is not marked is put back first."""

    async def test_rows_blobs_and_tallies_of_passed_slices_go(self, twin: TwinQueue) -> None:
        """Marks stay, so that nothing comes back; what is in sight stays as it is."""
        await twin.cut(buckets=3)
        process = twin.parts()
        await fill(twin, process, range(8), done=5)
        await process.tallies.flush()
        swept = await process.sweeper.sweep(QUEUE)
        at = NOON + 5 * HOUR
        assert replace(swept, browse_start_before=None, content_start_before=None) == Swept(
            slices=5, rows=5, blobs=10, browse_start=at, content_start=at
        )
        assert (twin.browse_start, twin.content_start) == (at, at)
        assert [row["name"] for row in ordered(twin)] == ["mail-5", "mail-6", "mail-7"]
        assert twin.marked == {queued(number).enqueue_id for number in range(5)}
        assert len(twin.blobs.ids) == 6
        assert {row["timerangestart"] for row in twin.rows(SLICE_TALLIES)} == {at, at + HOUR, at + 2 * HOUR}
        assert (await process.view.starts.state(QUEUE)).swept_at == twin.clock.now

    async def test_a_queue_that_ends_does_not_wait_until_all_is_swept(
        self, twin: TwinQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next sweep completes it."""
        stop, some = asyncio.Event(), 20
        await fill(twin, twin.parts(), range(some + 3), done=some)
        async with await twin.process() as queue:

            async def deleted(*_: object) -> None:
                stop.set()
                await asyncio.sleep(0)

            with monkeypatch.context() as patched:
                patched.setattr(twin.blobs, "delete_all", deleted)
                await queue.maintain(stop)
            assert len(twin.rows(ENQUEUED_MAILS)) > some / 2
            await queue.sweep()
        assert len(twin.rows(ENQUEUED_MAILS)) == 3

    async def test_a_second_sweep_has_nothing_to_do(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8), done=5)
        await process.sweeper.sweep(QUEUE)
        again = await process.sweeper.sweep(QUEUE)
        at = NOON + 5 * HOUR
        assert again == Swept(browse_start=at, content_start=at, browse_start_before=at, content_start_before=at)

    async def test_a_mail_that_lies_before_the_browse_start_is_put_back(
        self, twin: TwinQueue, process: Process
    ) -> None:
        """Into the first slice in sight, once; and published with it, since its own message may be found gone."""
        await fill(twin, process, range(8))
        await finish(process, range(1, 5))
        twin.put_start(BROWSE_START, NOON + 5 * HOUR)
        swept = await process.sweeper.sweep(QUEUE)
        assert (swept.rescued, swept.rows, swept.blobs, swept.slices) == (1, 5, 8, 5)
        assert await names_of(process.view.browse(QUEUE)) == ["mail-0", "mail-5", "mail-6", "mail-7"]
        start = NOON + 5 * HOUR
        assert twin.published == [(queued(0).enqueue_id, micros_at(start) // 1000)]
        assert await process.view.rows.row(QUEUE, start, queued(0)) is not None
        assert queued(0).blobs.header in twin.blobs.ids

    async def test_what_james_sweeps_at_the_same_time_is_not_put_back(self, twin: TwinQueue, process: Process) -> None:
        """It removes the marks of a slice before the rows: in between mails that are done with look like lost ones."""
        await fill(twin, process, range(8), done=5)
        twin.put_start(BROWSE_START, NOON + 5 * HOUR)
        for number in range(1, 5):
            twin.memory.write(Remove(DELETED_MAILS, (QUEUE, queued(number).enqueue_id)))

        async def sweep_as_james() -> None:
            await twin.clock.pause(SECOND_LOOK_SECONDS / 2)
            for number in range(5):
                twin.memory.write(Remove(ENQUEUED_MAILS, (QUEUE, NOON + number * HOUR, 0)))

        swept, _ = await asyncio.gather(process.sweeper.sweep(QUEUE), sweep_as_james())
        assert (swept.rescued, twin.published) == (0, [])
        assert await names_of(process.view.browse(QUEUE)) == ["mail-5", "mail-6", "mail-7"]

    async def test_a_rescued_mail_keeps_its_priority(self, twin: TwinQueue, process: Process) -> None:
        urgent = queued(0, attributes={"MAIL_PRIORITY": '{"serializer":"IntSerializer","value":8}'})
        await process.view.rows.place(QUEUE, urgent)
        twin.put_start(BROWSE_START, NOON + HOUR)
        twin.clock.advance(9 * 3600)
        await process.sweeper.sweep(QUEUE)
        assert [priority for _, _, priority in twin.broker.published] == [8]

    async def test_a_row_that_cannot_be_read_is_moved_as_it_is(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(3))
        row = {**row_of(QUEUE, NOON, 0, NOON, queued(9)), "headerblobid": None}
        twin.put_row(row)
        await finish(process, range(3))
        twin.put_start(BROWSE_START, NOON + HOUR)
        swept = await process.sweeper.sweep(QUEUE)
        assert swept.rescued == 1
        broken = list[BrokenRow]()
        assert await names_of(process.view.browse(QUEUE, on_broken=broken.append)) == []
        assert [(one.enqueue_id, one.slice_start) for one in broken] == [(queued(9).enqueue_id, NOON + 2 * HOUR)]
        twin.clock.advance(9 * 3600)
        assert (await process.sweeper.sweep(QUEUE)).browse_start == NOON + 2 * HOUR
        await process.view.mark(QUEUE, queued(9).enqueue_id, NOON + 2 * HOUR)
        assert (await process.sweeper.sweep(QUEUE)).rows == 2

    async def test_a_blob_that_cannot_be_does_not_stop_it(self, twin: TwinQueue, process: Process) -> None:
        twin.put_row({**row_of(QUEUE, NOON, 0, NOON, queued(1)), "bodyblobid": "../../etc/passwd"})
        await process.view.rows.place(QUEUE, queued(2))
        for number in (1, 2):
            await process.view.mark(QUEUE, queued(number).enqueue_id, None)
        twin.clock.advance(9 * 3600)
        assert (await process.sweeper.sweep(QUEUE)).rows == 2

    async def test_a_missing_content_start_begins_with_the_browse_start(
        self, twin: TwinQueue, process: Process
    ) -> None:
        await fill(twin, process, range(8), done=5)
        twin.memory.write(Remove(CONTENT_START, (QUEUE,)))
        swept = await process.sweeper.sweep(QUEUE)
        assert (swept.slices, swept.content_start) == (5, NOON + 5 * HOUR)

    async def test_in_a_keyspace_of_james_it_works_the_same(self) -> None:
        twin = twin_queue(own=OF_JAMES)
        process = twin.parts()
        await fill(twin, process, range(8), done=5)
        swept = await process.sweeper.sweep(QUEUE)
        assert (swept.slices, swept.rows, swept.content_start) == (5, 5, NOON + 5 * HOUR)
        assert (await process.view.starts.state(QUEUE)).swept_at is None

    async def test_queues_are_swept_by_themselves(self, twin: TwinQueue) -> None:
        process, other = twin.parts(), QueueName("outgoing")
        await process.view.rows.place(other, queued(1))
        await process.view.mark(other, queued(1).enqueue_id, NOON)
        await fill(twin, process, range(5))
        await process.sweeper.sweep(QUEUE)
        assert await process.view.rows.row(other, NOON, queued(1)) is not None
        await process.sweeper.sweep(other)
        assert await process.view.rows.row(other, NOON, queued(1)) is None


class TestOthers:
    """What another program does in a queue shows in what is swept, and its sizes are counted by rows from then on."""

    @pytest.mark.parametrize("deed", ["enqueues", "finishes", "nothing"])
    async def test_a_size_is_by_the_rows_once_a_sweep_has_seen_others(
        self, deed: str, twin: TwinQueue, process: Process
    ) -> None:
        """James counts nothing: its rows and its marks are more than all tallies tell of."""
        await fill(twin, process, range(4))
        if deed == "enqueues":
            twin.memory.write(Put(ENQUEUED_MAILS, row_of(QUEUE, NOON, 0, NOON, queued(77))))
            twin.memory.write(Put(DELETED_MAILS, {"queuename": QUEUE, "enqueueid": queued(77).enqueue_id}))
        if deed == "finishes":
            twin.memory.write(Put(DELETED_MAILS, {"queuename": QUEUE, "enqueueid": queued(0).enqueue_id}))
        await finish(process, range(1 if deed == "finishes" else 0, 3))
        await process.tallies.flush()
        assert (await process.view.size(QUEUE)).counted_by is CountedBy.TALLIES
        await process.sweeper.sweep(QUEUE)
        size = await twin.parts().view.size(QUEUE)
        assert (size.mails, size.kind) == (1, SizeKind.EXACT)
        assert size.counted_by is (CountedBy.TALLIES if deed == "nothing" else CountedBy.METADATA)

    @pytest.mark.parametrize("fault", DEATHS)
    async def test_a_sweep_that_was_killed_is_not_taken_for_others(self, fault: StepFault) -> None:
        """Fewer rows than were counted say nothing: somebody cleaned here before."""
        killed = 0
        for number in range(100):
            twin, fortune = twin_queue(), Fortune()
            process = twin.parts()
            await fill(twin, process, range(4), done=3)
            await process.tallies.flush()
            fortune.arm(QueueMishap(fault, number))
            ended = await outlived(twin.parts(wire=fortune).sweeper.sweep(QUEUE))
            other = twin.parts()
            await other.sweeper.sweep(QUEUE)
            assert (await other.view.size(QUEUE)).counted_by is CountedBy.TALLIES
            if ended:
                break
            killed += 1
        assert 5 < killed < 100


class TestMaybe:
    """Once in so many calls, for which nobody waits."""

    async def test_chance_decides(self, twin: TwinQueue) -> None:
        await twin.cut(pace=10)
        process = twin.parts()
        await fill(twin, process, range(5), done=5)
        twin.clock.chances += [0.1, 0.99, 0.5]
        for _ in range(3):
            await process.sweeper.maybe(QUEUE)
        await turns()
        assert twin.browse_start == NOON
        twin.clock.chances += [0.0999]
        await process.sweeper.maybe(QUEUE)
        await turns()
        assert twin.browse_start == NOON + 4 * HOUR

    async def test_one_at_a_time(self, twin: TwinQueue) -> None:
        await twin.cut(pace=1)
        process = twin.parts()
        await fill(twin, process, range(5), done=5)
        before = asyncio.all_tasks()
        for _ in range(9):
            await process.sweeper.maybe(QUEUE)
        assert len(asyncio.all_tasks() - before) <= 2
        await turns()
        assert twin.browse_start == NOON + 4 * HOUR

    async def test_its_failure_is_nobodys(self, caplog: pytest.LogCaptureFixture, twin: TwinQueue) -> None:
        await twin.cut(pace=1)
        process = twin.parts()
        await fill(twin, process, range(5), done=5)
        twin.memory.surround = refusing(ENQUEUED_MAILS)
        await process.sweeper.maybe(QUEUE)
        await turns(2000)
        assert twin.content_start == NOON
        assert "cut short, the next completes it" in caplog.text

    async def test_closing_ends_what_is_under_way(self, twin: TwinQueue) -> None:
        await twin.cut(pace=1)
        process = twin.parts()
        await fill(twin, process, range(5), done=5)
        before = asyncio.all_tasks()
        await process.sweeper.maybe(QUEUE)
        await turns(5)
        await process.sweeper.close()
        await turns(1)
        assert asyncio.all_tasks() == before
        await process.sweeper.close()


class TestCounts:
    """What a sweep has done is counted for whoever watches."""

    async def test_what_was_done_is_added(self, twin: TwinQueue) -> None:
        process, added = twin.parts(), dict[QueueCount, int]()

        class Adding:
            def add(self, name: QueueCount, queue: QueueName, n: int = 1) -> None:
                assert queue == QUEUE
                added[name] = added.get(name, 0) + n

        process.view.counts = Adding()
        await fill(twin, process, range(8))
        await finish(process, range(1, 5))
        twin.put_start(BROWSE_START, NOON + 5 * HOUR)
        await process.sweeper.sweep(QUEUE)
        assert added == {
            QueueCount.SWEPT_SLICES: 5,
            QueueCount.SWEPT_ROWS: 5,
            QueueCount.SWEPT_BLOBS: 8,
            QueueCount.RESCUED: 1,
        }
        await process.view.mark(QUEUE, queued(1).enqueue_id, NOON)
        assert added[QueueCount.ORPHAN_MARKS] == 1
        assert (await process.sweeper.sweep(QUEUE)).orphan_marks == 1
        twin.put_start(BROWSE_START, NOON)
        await process.sweeper.sweep(QUEUE)
        assert added[QueueCount.MOVED_BACK] == 1
        assert added[QueueCount.BROWSE_START_MOVED] == 1


def ordered(twin: TwinQueue) -> list[Any]:
    return sorted(twin.rows(ENQUEUED_MAILS), key=lambda row: row["timerangestart"])
