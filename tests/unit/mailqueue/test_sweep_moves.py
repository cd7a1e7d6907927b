"""How far a sweep moves the browse start, whoever else moves it, whatever clocks say."""

import asyncio
from datetime import timedelta

import pytest

from mailmend.mailqueue.comparison import Swept
from mailmend.mailqueue.rabbitmq.sweep import Moved
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS
from mailmend.model.errors import DoubtfulWrite
from mailmend.model.operations import ChangeIf, Read, Scan
from tests.support.clock import VirtualClock
from tests.support.queues import (
    HOUR,
    MINUTE,
    NOON,
    QUEUE,
    Process,
    TwinQueue,
    fill,
    finish,
    micros_at,
    names_of,
    queued,
)
from tests.support.striking import Strike, of, passing


class TestMove:
    """The browse start goes as far as it may, and no further."""

    async def test_it_stops_at_the_first_mail(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8), done=3)
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
        await fill(twin, process, range(5), done=5)
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
        await fill(twin, process, range(8), done=3)
        twin.memory.surround = Strike(of(ChangeIf), do=lambda: twin.put_start(BROWSE_START, NOON + 5 * HOUR), times=1)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 5 * HOUR
        assert twin.browse_start == NOON + 5 * HOUR

    async def test_one_that_is_overtaken_half_way_goes_the_rest(self, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(8), done=5)
        twin.memory.surround = Strike(of(ChangeIf), do=lambda: twin.put_start(BROWSE_START, NOON + 2 * HOUR), times=1)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 5 * HOUR

    @pytest.mark.parametrize("done", [False, True])
    async def test_a_doubtful_move_is_settled(self, done: bool, twin: TwinQueue, process: Process) -> None:
        await fill(twin, process, range(5), done=3)
        twin.memory.surround = Strike(of(ChangeIf), DoubtfulWrite("no answer"), done, times=1)
        assert (await process.sweeper.move(QUEUE)).after == NOON + 3 * HOUR
        assert twin.browse_start == NOON + 3 * HOUR

    async def test_a_backward_move_is_reported(self, twin: TwinQueue, process: Process) -> None:
        """James writes it without looking; how far it ever was stays known, and it moves forward again."""
        await fill(twin, process, range(6), done=5)
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
        await fill(twin, process, range(4), done=4)
        cutting: list[asyncio.Future[None]] = []
        twin.memory.surround = Strike(
            of(Scan, ENQUEUED_MAILS), do=lambda: cutting.append(asyncio.ensure_future(twin.cut(30 * MINUTE))), times=1
        )
        assert await process.sweeper.move(QUEUE) == Moved(NOON, NOON)
        await cutting[0]
        assert (await process.sweeper.move(QUEUE)).after == NOON + 3 * HOUR + 30 * MINUTE
