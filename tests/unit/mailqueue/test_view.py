"""The view: rows where browsing sees them, whatever clocks say and whoever moves the starts; marks; queues."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.codec import row_of
from mailmend.mailqueue.rabbitmq.view.queue_view import PLACES_MAX
from mailmend.mailqueue.rabbitmq.view.slices import LOOKED_UP_TOGETHER
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.mailqueue.rules.slices import bucket_of
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    ENQUEUED_MAILS,
    QUEUE_TABLES,
    SLICE_TALLIES,
    OwnTables,
)
from mailmend.model.errors import Contended, DoubtfulWrite, NotEnoughReplicas, TimedOut
from mailmend.model.ids import QueueName
from mailmend.model.operations import Conditional, Put, Read, Remove
from tests.support.clock import VirtualClock
from tests.support.queue_wires import Errors, Side
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
from tests.support.striking import Strike, everything_of, of, passing, refusing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shuffling:
    """A wire on which each step takes a while before and after it is done: any order that two processes may take."""

    chance: random.Random

    async def step(self, _: Side, _what: str, carry_out: Callable[[], Awaitable[T]], _errors: Errors) -> T:
        await self._wait()
        answer = await carry_out()
        await self._wait()
        return answer

    def came(self, _: str) -> None:
        """At once."""

    async def _wait(self) -> None:
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)


def slices(twin: TwinQueue) -> list[datetime]:
    return sorted(row["timerangestart"] for row in twin.rows(ENQUEUED_MAILS))


async def listed(process: Process) -> list[str]:
    return await names_of(process.view.browse(QUEUE))


class TestPlace:
    """A row is put where browsing sees it."""

    async def test_the_first_mail_begins_the_queue(self, twin: TwinQueue, process: Process) -> None:
        assert await process.view.browse_start(QUEUE) is None
        twin.clock.turn_to(NOON + 20 * MINUTE)
        assert await process.view.rows.place(QUEUE, queued(1)) == NOON
        assert (twin.browse_start, twin.content_start) == (NOON, NOON)
        assert await listed(process) == ["mail-1"]

    async def test_many_processes_may_begin_it_at_once(self, twin: TwinQueue) -> None:
        processes = [twin.parts(VirtualClock(micros_at(NOON + n * HOUR))) for n in (2, 0, 1)]
        await asyncio.gather(*(one.view.rows.place(QUEUE, queued(n)) for n, one in enumerate(processes)))
        assert twin.browse_start == min(slices(twin))
        assert len(await listed(processes[1])) == 3

    @pytest.mark.parametrize("number", range(4))
    async def test_a_doubtful_beginning_is_settled(self, number: int, twin: TwinQueue) -> None:
        """A conditional write without an answer was done, or was not: it is read."""
        process, doubt = twin.parts(), DoubtfulWrite("no answer")
        twin.memory.surround = Strike(of(Conditional), doubt, done=bool(number % 2), skip=number // 2, times=1)
        assert await process.view.rows.place(QUEUE, queued(1)) == NOON
        assert (twin.browse_start, twin.content_start) == (NOON, NOON)

    async def test_a_slow_clock_enqueues_at_the_browse_start(self, twin: TwinQueue) -> None:
        await twin.parts().view.rows.place(QUEUE, queued(1))
        slow = twin.parts(VirtualClock(micros_at(NOON - 5 * HOUR)))
        assert await slow.view.rows.place(QUEUE, queued(2)) == NOON
        assert await listed(twin.parts()) == ["mail-2", "mail-1"]

    async def test_a_fast_clock_is_listed_by_everybody(self, twin: TwinQueue) -> None:
        await twin.parts().view.rows.place(QUEUE, queued(1))
        fast = twin.parts(VirtualClock(micros_at(NOON + 74 * MINUTE)))
        twin.clock.turn_to(NOON + 59 * MINUTE)
        assert await fast.view.rows.place(QUEUE, queued(2)) == NOON + HOUR
        assert await listed(twin.parts()) == ["mail-1", "mail-2"]

    async def test_a_browse_start_that_moves_meanwhile_pulls_the_row_along(
        self, twin: TwinQueue, process: Process
    ) -> None:
        """It is read again after the row was put; the row that is out of sight goes."""
        await process.view.rows.place(QUEUE, queued(1))
        twin.memory.surround = Strike(
            of(Put, ENQUEUED_MAILS), then=lambda: twin.put_start(BROWSE_START, NOON + HOUR), times=1
        )
        assert await process.view.rows.place(QUEUE, queued(2)) == NOON + HOUR
        assert slices(twin) == [NOON, NOON + HOUR]
        await process.tallies.flush()
        size = await process.view.size(QUEUE)
        assert (size.mails, size.kind) == (1, SizeKind.EXACT)

    async def test_a_clock_that_jumps_is_asked_again(self, twin: TwinQueue, process: Process) -> None:
        """A machine that slept, or was set right, between the reckoning and the row."""
        await process.view.rows.place(QUEUE, queued(1))
        twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), then=lambda: twin.clock.advance(3 * 3600), times=1)
        assert await process.view.rows.place(QUEUE, queued(2)) == NOON + 3 * HOUR
        twin.clock.turn_to(NOON + 300 * HOUR)
        twin.memory.surround = Strike(
            of(Put, ENQUEUED_MAILS), then=lambda: twin.clock.turn_to(NOON + 4 * HOUR), times=1
        )
        assert await process.view.rows.place(QUEUE, queued(3)) == NOON + 4 * HOUR
        twin.memory.surround = passing
        assert slices(twin) == [NOON, NOON + 3 * HOUR, NOON + 4 * HOUR]

    async def test_a_clock_that_never_stands_still_is_reported(self, twin: TwinQueue, process: Process) -> None:
        puts = twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), do=lambda: twin.clock.advance(2 * 86_400))
        with pytest.raises(Contended, match="no slice could be found"):
            await process.view.rows.place(QUEUE, queued(1))
        assert len(puts.struck) == PLACES_MAX

    async def test_the_time_of_a_mail_that_comes_back_is_kept(self, twin: TwinQueue) -> None:
        """A mail whose wait is over lies in the slice of now, with the time when it was first enqueued."""
        process, long_ago = twin.parts(), NOON - 30 * HOUR
        await process.view.rows.place(QUEUE, queued(1))
        assert await process.view.rows.place(QUEUE, queued(2), long_ago) == NOON
        mails = [one async for one in process.view.browse(QUEUE)]
        assert [(one.queued, one.enqueued_at) for one in mails] == [(queued(2), long_ago), (queued(1), NOON)]

    async def test_a_row_is_put_into_the_bucket_of_its_name(self, twin: TwinQueue) -> None:
        await twin.cut(buckets=7)
        process = twin.parts()
        for number in range(20):
            await process.view.rows.place(QUEUE, queued(number))
        rows = twin.rows(ENQUEUED_MAILS)
        assert all(row["bucketid"] == bucket_of(row["name"], 7) for row in rows)
        assert len({row["bucketid"] for row in rows}) > 3
        assert sorted(await listed(process)) == sorted(f"mail-{number}" for number in range(20))

    async def test_a_queue_whose_start_was_lost_begins_again(self, twin: TwinQueue, process: Process) -> None:
        await process.view.rows.place(QUEUE, queued(1))
        twin.memory.write(Remove(BROWSE_START, (QUEUE,)))
        await process.view.rows.place(QUEUE, queued(2))
        assert sorted(await listed(process)) == ["mail-1", "mail-2"]

    async def test_what_may_pass_is_tried_again(self, twin: TwinQueue, process: Process) -> None:
        twin.memory.surround = Strike(everything_of(*QUEUE_TABLES), NotEnoughReplicas("too few"), times=3)
        assert await process.view.rows.place(QUEUE, queued(1)) == NOON
        assert await listed(process) == ["mail-1"]

    async def test_what_does_not_pass_is_reported(self, twin: TwinQueue, process: Process) -> None:
        twin.memory.surround = refusing(ENQUEUED_MAILS)
        with pytest.raises(TimedOut):
            await process.view.rows.place(QUEUE, queued(1))

    @pytest.mark.parametrize("seed", range(60))
    async def test_no_order_of_requests_loses_a_mail(self, seed: int, twin: TwinQueue) -> None:
        """Two clocks that are hours behind enqueue while others sweep: afterwards every mail is listed, and those that
        were put back are published with a slice in sight.
        """  # noqa: D205 - one sentence
        chance = random.Random(seed)
        await twin.parts().view.rows.place(QUEUE, queued(0))
        await twin.parts().view.mark(QUEUE, queued(0).enqueue_id, NOON)
        twin.clock.advance(9 * 3600)

        def process(behind: int) -> Process:
            clock = VirtualClock(twin.clock.micros() - behind * 3_600_000_000)
            return twin.parts(clock, Shuffling(chance))

        async def place(one: Process, number: int) -> datetime:
            for _ in range(chance.randrange(500)):
                await asyncio.sleep(0)
            return await one.view.rows.place(QUEUE, queued(number))

        slow, slower, sweeping = process(4), process(9), [process(0), process(1)]
        placing = [place(one, number) for number, one in enumerate([slow, slower, slow], 1)]
        placed, _ = await asyncio.gather(
            asyncio.gather(*placing), asyncio.gather(*(one.sweeper.sweep(QUEUE) for one in sweeping))
        )
        swept = await twin.parts().sweeper.sweep(QUEUE)
        mails = {one.queued.enqueue_id: one async for one in twin.parts().view.browse(QUEUE)}
        assert set(mails) == {queued(n).enqueue_id for n in (1, 2, 3)}
        assert twin.content_start == swept.content_start == twin.browse_start
        assert twin.browse_start is not None
        assert min(slices(twin)) >= twin.browse_start
        placed_at = {queued(n).enqueue_id: start for n, start in enumerate(placed, 1)}
        again = {one: micros_at(NOON) // 1000 for one, _ in twin.published}
        assert all(start >= twin.browse_start or one in again for one, start in placed_at.items())


class TestTakeBack:
    """A row goes without a mark: the mail is somewhere else now."""

    async def test_the_row_goes_and_no_mark_comes(self, twin: TwinQueue, process: Process) -> None:
        start = await process.view.rows.place(QUEUE, queued(1))
        await process.view.rows.take_back(QUEUE, start, queued(1))
        assert (await listed(process), twin.marked) == ([], set())
        await process.tallies.flush()
        assert (await process.view.size(QUEUE)).mails == 0
        twin.clock.advance(1)
        await process.view.rows.place(QUEUE, queued(1))
        assert await listed(process) == ["mail-1"]

    async def test_a_row_of_a_clock_ahead_goes_too(self, twin: TwinQueue, process: Process) -> None:
        start = await process.view.rows.place(QUEUE, queued(1))
        ahead = twin.clock.micros() + 600_000_000
        twin.memory.write(Put(ENQUEUED_MAILS, row_of(QUEUE, start, 0, NOON, queued(1)), at=ahead))
        await process.view.rows.take_back(QUEUE, start, queued(1))
        assert await listed(process) == []

    async def test_what_comes_back_is_seen_whatever_clock_took_it_back(self, twin: TwinQueue, process: Process) -> None:
        """The removal was stamped by a clock ten minutes ahead: the row is put above it, and can be taken back too."""
        start = await process.view.rows.place(QUEUE, queued(1))
        ahead = twin.parts(VirtualClock(twin.clock.micros() + 600_000_000))
        await ahead.view.rows.take_back(QUEUE, start, queued(1))
        assert await process.view.rows.place(QUEUE, queued(1), NOON) == start
        assert await listed(process) == ["mail-1"]
        await process.view.rows.take_back(QUEUE, start, queued(1))
        assert await listed(process) == []

    async def test_none_there_is_fine(self, process: Process) -> None:
        start = await process.view.rows.place(QUEUE, queued(1))
        await process.view.rows.take_back(QUEUE, start, queued(2))
        await process.tallies.flush()
        assert (await process.view.size(QUEUE)).mails == 1


class TestRow:
    """One row, by the slice that its message tells."""

    async def test_a_row_is_found_whether_or_not_it_is_marked(self, process: Process) -> None:
        start = await process.view.rows.place(QUEUE, queued(1))
        await process.view.mark(QUEUE, queued(1).enqueue_id, start)
        found = await process.view.rows.row(QUEUE, start, queued(1))
        assert found is not None
        assert (found.queued, found.slice_start) == (queued(1), start)
        assert await process.view.rows.row(QUEUE, start + HOUR, queued(1)) is None
        assert await process.view.rows.row(QUEUE, start, queued(2)) is None

    async def test_a_row_of_before_there_were_so_many_buckets_is_found(self, twin: TwinQueue) -> None:
        start = await twin.parts().view.rows.place(QUEUE, queued(1))
        await twin.cut(buckets=1)
        await twin.cut(buckets=8)
        process = twin.parts()
        assert bucket_of("mail-1", 8) != 0
        assert await process.view.rows.row(QUEUE, start, queued(1)) is not None
        await process.view.rows.take_back(QUEUE, start, queued(1))
        assert await process.view.rows.row(QUEUE, start, queued(1)) is None


class TestMarks:
    """Marks are put at will, and looked up in bulk."""

    async def test_a_marked_mail_is_listed_no_more(self, twin: TwinQueue, process: Process) -> None:
        start = await process.view.rows.place(QUEUE, queued(1))
        assert not await process.view.marks.there(QUEUE, queued(1).enqueue_id)
        await process.view.mark(QUEUE, queued(1).enqueue_id, start)
        assert await process.view.marks.there(QUEUE, queued(1).enqueue_id)
        assert await listed(process) == []
        assert slices(twin) == [NOON]

    async def test_a_mark_of_one_queue_is_none_of_another(self, process: Process) -> None:
        await process.view.mark(QueueName("outgoing"), queued(1).enqueue_id, None)
        assert not await process.view.marks.there(QUEUE, queued(1).enqueue_id)

    async def test_many_marks_are_looked_up_at_once(self, process: Process) -> None:
        ids = [queued(number).enqueue_id for number in range(2500)]
        assert await process.view.mark_all(QUEUE, [(one, None) for one in ids[::2]]) == [None] * 1250
        assert await process.view.marks.among(QUEUE, ids) == set(ids[::2])
        assert await process.view.marks.among(QUEUE, []) == set()

    async def test_a_look_up_that_fails_is_made_again(self, twin: TwinQueue) -> None:
        process, asked = twin.parts(), list[object]()
        ids = [queued(number).enqueue_id for number in range(3 * LOOKED_UP_TOGETHER)]
        first, second, third = ids[::LOOKED_UP_TOGETHER]
        await process.view.mark(QUEUE, ids[-2], None)

        def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, Read):
                asked.append(operation.among[0])
                if operation.among[0] in {second, third} and asked.count(operation.among[0]) < 3:
                    raise TimedOut("no answer")
            return carry_out()

        twin.memory.surround = surround
        assert await process.view.marks.among(QUEUE, ids) == {ids[-2]}
        assert [asked.count(one) for one in (first, second, third)] == [1, 3, 3]
        asked.clear()
        twin.memory.surround = Strike(everything_of(), TimedOut("no answer"))
        with pytest.raises(TimedOut):
            await process.view.marks.among(QUEUE, ids)

    async def test_each_mark_that_fails_is_reported(self, twin: TwinQueue, process: Process) -> None:
        ids = [queued(number).enqueue_id for number in range(3)]
        of_the_second = of(Put, DELETED_MAILS)
        twin.memory.surround = Strike(
            lambda one: of_the_second(one) and one.row["enqueueid"] == ids[1], TimedOut("no answer")
        )
        errors = await process.view.mark_all(QUEUE, [(one, NOON) for one in ids])
        assert [type(error) for error in errors] == [type(None), TimedOut, type(None)]
        assert twin.marked == {ids[0], ids[2]}

    async def test_orphan_marks_are_counted(self, twin: TwinQueue, process: Process) -> None:
        await process.view.rows.place(QUEUE, queued(1))
        await process.view.mark(QUEUE, queued(2).enqueue_id, NOON - HOUR)
        await process.view.mark(QUEUE, queued(1).enqueue_id, NOON)
        assert (process.view.orphan_marks(QUEUE), process.view.orphan_marks(QUEUE)) == (1, 0)
        await process.tallies.flush()
        assert {row["timerangestart"] for row in twin.rows(SLICE_TALLIES)} == {NOON}


class TestQueues:
    """Which queues there are."""

    @pytest.mark.parametrize("own", [OwnTables(), OF_JAMES], ids=["ours", "of James"])
    async def test_queues_are_known_by_their_rows(self, own: OwnTables) -> None:
        twin = twin_queue(own=own)
        process = twin.parts()
        for name in ("spool", "outgoing"):
            await process.view.rows.place(QueueName(name), queued(1))
        twin.memory.write(Put(CONTENT_START, {"queuename": "bounces", "contentstart": NOON}))
        assert await process.view.starts.queues() == ["bounces", "outgoing", "spool"]
