"""The sweep: what it moves, cleans, rescues and renews; that it may end anywhere; that it never loses a mail."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from mailqueue.maintenance.clean_slices import SECOND_LOOK_SECONDS
from mailqueue.maintenance.sweep import Moved, Swept
from mailqueue.metrics import QueueCount
from mailqueue.rabbitmq.codec import BrokenRow, row_of
from model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS, LIVES, SLICE_TALLIES
from model.catalog.queue_tables import OwnTables
from model.errors import DoubtfulWrite, MailmendError
from model.ids import QueueName
from model.operations import ChangeIf, Put, Read, Remove, Scan
from model.queue.size import CountedBy, SizeKind
from model.queue.starts import ROUNDS_PER_SLACK
from tests.support.clock import VirtualClock
from tests.support.queue_wires import Side, Trouble
from tests.support.queue_world import DEATHS, Fortune, QueueMishap, outlived
from tests.support.queues import (
    HOUR,
    MINUTE,
    NOON,
    OF_JAMES,
    QUEUE,
    Process,
    TwinQueue,
    micros_at,
    names_of,
    queued,
    twin_queue,
)
from tests.support.striking import Strike, of, passing, refusing

EXPIRING = OwnTables(row_ttl_seconds=LIVES.ttl_seconds, mark_ttl_seconds=LIVES.mark_ttl_seconds)

SLACK_SECONDS = LIVES.mark_ttl_seconds - LIVES.ttl_seconds


async def fill(twin: TwinQueue, process: Process, numbers: range, step: timedelta = HOUR) -> list[Any]:
    placed = []
    for number in numbers:
        placed.append(await process.view.rows.place(QUEUE, queued(number)))
        for blob in (queued(number).blobs.header, queued(number).blobs.body):
            await twin.blobs.keep(blob, b"content")
        twin.clock.advance(step.total_seconds())
    return placed


async def finish(process: Process, numbers: range, step: timedelta = HOUR) -> None:
    for number in numbers:
        await process.view.mark(QUEUE, queued(number).enqueue_id, NOON + number * step)


class TestMove:
    """The browse start goes as far as it may, and no further."""

    async def test_it_stops_at_the_first_mail(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8))
        await finish(process, range(3))
        await finish(process, range(5, 8))
        assert await process.sweeper.move(QUEUE) == Moved(NOON, NOON + 3 * HOUR)
        assert (twin.browse_start, twin.content_start) == (NOON + 3 * HOUR, NOON)
        assert await names_of(process.view.browse(QUEUE)) == ["mail-3", "mail-4"]

    @pytest.mark.parametrize("window", [MINUTE, 10 * MINUTE, HOUR, 4 * HOUR])
    async def test_on_an_empty_queue_it_stops_at_the_grace(self, window: timedelta, twin: TwinQueue) -> None:
        """So that an idle queue costs nothing, and slow clocks nothing either."""
        await twin.cut(window)
        process = twin.parts()
        await process.view.rows.place(QUEUE, queued(0))
        await process.view.mark(QUEUE, queued(0).enqueue_id, NOON)
        twin.clock.turn_to(NOON + 20 * HOUR + 10 * MINUTE)
        moved = await process.sweeper.move(QUEUE)
        assert moved.after is not None
        behind = twin.clock.now - moved.after
        assert max(window, 15 * MINUTE) <= behind < max(window, 15 * MINUTE) + window

    async def test_a_queue_that_never_was_is_left_alone(self, twin: TwinQueue, process: Process) -> None:
        assert await process.sweeper.move(QUEUE) == Moved(None, None)
        assert await process.sweeper.sweep(QUEUE) == Swept()
        assert twin.browse_start is None
        assert await process.view.starts.queues() == []

    async def test_a_clock_that_goes_back_moves_nothing_back(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(5))
        await finish(process, range(5))
        await process.sweeper.sweep(QUEUE)
        start = twin.browse_start
        behind = twin.parts(VirtualClock(micros_at(NOON - 50 * HOUR)))
        swept = await behind.sweeper.sweep(QUEUE)
        assert (twin.browse_start, swept.browse_start, swept.slices) == (start, start, 0)

    async def test_many_movers_at_once_do_no_harm(self, twin: TwinQueue) -> None:
        """Each of another process: the start is where the last mail begins."""
        processes = [twin.parts() for _ in range(6)]
        await fill(twin, processes[0], range(8))
        await finish(processes[0], range(6))
        moved = await asyncio.gather(*(one.sweeper.move(QUEUE) for one in processes))
        assert {one.after for one in moved} == {NOON + 6 * HOUR}
        assert twin.browse_start == NOON + 6 * HOUR

    async def test_one_that_is_overtaken_leaves_the_start_further_on(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8))
        await finish(process, range(3))
        twin.memory.surround = Strike(of(ChangeIf), do=lambda: twin.put_start(BROWSE_START, NOON + 5 * HOUR), times=1)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 5 * HOUR
        assert twin.browse_start == NOON + 5 * HOUR

    async def test_one_that_is_overtaken_half_way_goes_the_rest(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8))
        await finish(process, range(5))
        twin.memory.surround = Strike(of(ChangeIf), do=lambda: twin.put_start(BROWSE_START, NOON + 2 * HOUR), times=1)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 5 * HOUR

    @pytest.mark.parametrize("done", [False, True])
    async def test_a_doubtful_move_is_settled(self, done: bool, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(5))
        await finish(process, range(3))
        twin.memory.surround = Strike(of(ChangeIf), DoubtfulWrite("no answer"), done, times=1)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 3 * HOUR
        assert twin.browse_start == NOON + 3 * HOUR

    async def test_a_backward_move_is_reported(self, twin: TwinQueue, process: Process) -> None:
        """James writes it without looking; how far it ever was stays known, and it moves forward again."""
        await fill(twin, process, range(6))
        await finish(process, range(5))
        await process.sweeper.sweep(QUEUE)
        twin.put_start(BROWSE_START, NOON + HOUR)
        assert (await twin.parts().sweeper.sweep(QUEUE)).moved_back
        assert (await process.view.starts.state(QUEUE)).furthest_start == NOON + 5 * HOUR
        assert twin.browse_start == NOON + 5 * HOUR
        assert not (await process.sweeper.sweep(QUEUE)).moved_back

    async def test_a_mail_that_stays_costs_one_look(self, twin: TwinQueue, process: Process) -> None:
        """Each sweep asks for it first, not for the thousands before it in its slice."""
        await fill(twin, process, range(60), timedelta(0))
        by_id = sorted(range(60), key=lambda number: queued(number).enqueue_id)
        for number in by_id[:-1]:
            await process.view.mark(QUEUE, queued(number).enqueue_id, NOON)
        twin.clock.advance(5 * 3600)
        await process.sweeper.move(QUEUE)
        reads = twin.memory.surround = Strike(of(Read | Scan))
        assert (await process.sweeper.move(QUEUE)).after == NOON
        assert len(reads.struck) < 10
        twin.memory.surround = passing
        await process.view.mark(QUEUE, queued(by_id[-1]).enqueue_id, NOON)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 4 * HOUR

    async def test_a_row_that_was_taken_back_does_not_hold_it(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(3))
        twin.clock.advance(5 * 3600)
        await process.sweeper.move(QUEUE)
        await process.view.rows.take_back(QUEUE, NOON, queued(0))
        assert (await process.sweeper.move(QUEUE)).after == NOON + HOUR

    async def test_slices_of_a_shorter_window_are_not_passed_unseen(self, twin: TwinQueue) -> None:
        """Another process has cut the queue anew: whoever sweeps asks how it is cut now."""
        await twin.cut(HOUR)
        old = twin.parts()
        await fill(twin, old, range(2))
        await twin.cut(30 * MINUTE)
        twin.clock.turn_to(NOON + 2 * HOUR + 40 * MINUTE)
        new = twin.parts()
        assert await new.view.rows.place(QUEUE, queued(7)) == NOON + 2 * HOUR + 30 * MINUTE
        await finish(old, range(2))
        twin.clock.turn_to(NOON + 20 * HOUR)
        assert (await old.sweeper.sweep(QUEUE)).browse_start == NOON + 2 * HOUR + 30 * MINUTE
        assert await names_of(old.view.browse(QUEUE)) == ["mail-7"]

    async def test_a_queue_that_is_cut_anew_meanwhile_is_left_to_the_next(self, twin: TwinQueue) -> None:
        await twin.cut(HOUR)
        process = twin.parts()
        await fill(twin, process, range(4))
        await finish(process, range(4))
        cutting: list[asyncio.Future[None]] = []
        twin.memory.surround = Strike(
            of(Scan, ENQUEUED_MAILS), do=lambda: cutting.append(asyncio.ensure_future(twin.cut(30 * MINUTE))), times=1
        )
        assert await process.sweeper.move(QUEUE) == Moved(NOON, NOON)
        await cutting[0]
        assert (await process.sweeper.move(QUEUE)).after == NOON + 3 * HOUR + 30 * MINUTE


class TestClean:
    """What the browse start has passed goes; what is not marked is put back first."""

    async def test_rows_blobs_and_tallies_of_passed_slices_go(self, twin: TwinQueue) -> None:
        """Marks stay, so that nothing comes back; what is in sight stays as it is."""
        await twin.cut(buckets=3)
        process = twin.parts()
        await fill(twin, process, range(8))
        await finish(process, range(5))
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

    async def test_a_second_sweep_has_nothing_to_do(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8))
        await finish(process, range(5))
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
        await fill(twin, process, range(8))
        await finish(process, range(5))
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
        await fill(twin, process, range(8))
        await finish(process, range(5))
        twin.memory.write(Remove(CONTENT_START, (QUEUE,)))
        swept = await process.sweeper.sweep(QUEUE)
        assert (swept.slices, swept.content_start) == (5, NOON + 5 * HOUR)

    async def test_in_a_keyspace_of_james_it_works_the_same(self) -> None:
        twin = twin_queue(own=OF_JAMES)
        process = twin.parts()
        await fill(twin, process, range(8))
        await finish(process, range(5))
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

    @pytest.mark.parametrize("side", [Side.BROKER, Side.BLOBS, Side.WRITES])
    async def test_what_does_not_answer_leaves_the_rest_to_the_next(self, side: Side, twin: TwinQueue) -> None:
        world, fortune = World(twin), Fortune()
        await world.build()
        fortune.arm(QueueMishap(Trouble.LOST, 1, 1000, side))
        with pytest.raises(MailmendError):
            await twin.parts(wire=fortune).sweeper.sweep(QUEUE)
        assert twin.content_start == NOON
        await world.settles()


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

    @pytest.mark.parametrize("trouble", DEATHS)
    async def test_a_sweep_that_was_killed_is_not_taken_for_others(self, trouble: Trouble) -> None:
        """Fewer rows than were counted say nothing: somebody cleaned here before."""
        killed = 0
        for number in range(100):
            twin, fortune = twin_queue(), Fortune()
            process = twin.parts()
            await fill(twin, process, range(4))
            await finish(process, range(3))
            await process.tallies.flush()
            fortune.arm(QueueMishap(trouble, number))
            ended = await outlived(twin.parts(wire=fortune).sweeper.sweep(QUEUE))
            other = twin.parts()
            await other.sweeper.sweep(QUEUE)
            assert (await other.view.size(QUEUE)).counted_by is CountedBy.TALLIES
            if ended:
                break
            killed += 1
        assert 5 < killed < 100


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


class TestMaybe:
    """Once in so many calls, for which nobody waits."""

    async def test_chance_decides(self, twin: TwinQueue) -> None:
        await twin.cut(pace=10)
        process = twin.parts()
        await fill(twin, process, range(5))
        await finish(process, range(5))
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
        await fill(twin, process, range(5))
        await finish(process, range(5))
        before = asyncio.all_tasks()
        for _ in range(9):
            await process.sweeper.maybe(QUEUE)
        assert len(asyncio.all_tasks() - before) <= 2
        await turns()
        assert twin.browse_start == NOON + 4 * HOUR

    async def test_its_failure_is_nobodys(self, caplog: pytest.LogCaptureFixture, twin: TwinQueue) -> None:
        await twin.cut(pace=1)
        process = twin.parts()
        await fill(twin, process, range(5))
        await finish(process, range(5))
        twin.memory.surround = refusing(ENQUEUED_MAILS)
        await process.sweeper.maybe(QUEUE)
        await turns(2000)
        assert twin.content_start == NOON
        assert "cut short, the next completes it" in caplog.text

    async def test_closing_ends_what_is_under_way(self, twin: TwinQueue) -> None:
        await twin.cut(pace=1)
        process = twin.parts()
        await fill(twin, process, range(5))
        await finish(process, range(5))
        before = asyncio.all_tasks()
        await process.sweeper.maybe(QUEUE)
        await turns(5)
        await process.sweeper.close()
        await turns(1)
        assert asyncio.all_tasks() == before
        await process.sweeper.close()


class TestRenew:
    """No mail expires out of sight."""

    async def test_a_mail_outlives_its_row(self) -> None:
        twin = twin_queue(own=EXPIRING)
        process = twin.parts()
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

    async def test_without_a_sweep_it_is_gone(self) -> None:
        twin = twin_queue(own=EXPIRING)
        await fill(twin, twin.parts(), range(1))
        twin.clock.advance(LIVES.ttl_seconds)
        assert twin.rows(ENQUEUED_MAILS) == []

    async def test_what_is_young_is_left_alone(self) -> None:
        twin = twin_queue(own=EXPIRING)
        process = twin.parts()
        await fill(twin, process, range(3))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - SLACK_SECONDS / 2 - 60))
        assert (await process.sweeper.sweep(QUEUE)).renewed == 0

    async def test_it_is_looked_for_some_times_while_the_slack_goes_by(self) -> None:
        twin = twin_queue(own=EXPIRING)
        process = twin.parts()
        await fill(twin, process, range(1))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - SLACK_SECONDS / 2 + 60))
        assert (await process.sweeper.sweep(QUEUE)).renewed == 1
        late = {**row_of(QUEUE, NOON, 0, NOON, queued(5))}
        twin.memory.write(Put(ENQUEUED_MAILS, late, at=micros_at(NOON)))
        assert (await process.sweeper.sweep(QUEUE)).renewed == 0
        twin.clock.advance(SLACK_SECONDS / ROUNDS_PER_SLACK)
        assert (await process.sweeper.sweep(QUEUE)).renewed == 1

    async def test_one_that_is_marked_meanwhile_is_not_kept_alive(self) -> None:
        twin = twin_queue(own=EXPIRING)
        process = twin.parts()
        await fill(twin, process, range(1))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - 3600))
        twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), do=lambda: twin.mark(queued(0).enqueue_id), times=1)
        await process.sweeper.sweep(QUEUE)
        assert twin.rows(ENQUEUED_MAILS) == []

    async def test_one_that_is_taken_back_meanwhile_stays_away(self) -> None:
        """It was read before, and is put after: the removal is the later one all the same."""
        twin = twin_queue(own=EXPIRING)
        process = twin.parts()
        await fill(twin, process, range(1))
        twin.clock.turn_to(NOON + timedelta(seconds=LIVES.ttl_seconds - 3600))
        (row,) = twin.rows(ENQUEUED_MAILS)
        removal = Remove(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row))
        twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), do=lambda: twin.memory.write(removal), times=1)
        assert (await process.sweeper.sweep(QUEUE)).renewed == 1
        assert await names_of(process.view.browse(QUEUE)) == []

    async def test_tallies_live_as_long_as_their_mails(self) -> None:
        twin = twin_queue(own=EXPIRING)
        process = twin.parts()
        await fill(twin, process, range(1))
        await process.tallies.flush()
        for _ in range(2 * LIVES.mark_ttl_seconds // 86_400):
            twin.clock.advance(86_400)
            await process.sweeper.sweep(QUEUE)
        assert (await twin.parts().view.size(QUEUE)).mails == 1
        assert len(twin.rows(SLICE_TALLIES)) == 1


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
        fortune.arm(QueueMishap(Trouble.DIES_AFTER if after else Trouble.DIES_BEFORE, number))
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


async def turns(number: int = 400) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def ordered(twin: TwinQueue) -> list[Any]:
    return sorted(twin.rows(ENQUEUED_MAILS), key=lambda row: row["timerangestart"])
