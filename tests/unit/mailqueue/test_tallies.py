"""Tallies: sums that may be written twice, that say when they are not sure, and that no crash makes lie."""

import asyncio
from datetime import datetime

import pytest

from mailmend.mailqueue.rabbitmq.view import tallies as module
from mailmend.mailqueue.rabbitmq.view.tallies import Changes, SliceTallies
from mailmend.mailqueue.rules.size import CountedBy, SizeKind, SliceCount, tallied
from mailmend.model.catalog.mail_queue import SLICE_TALLIES
from mailmend.model.errors import TimedOut
from mailmend.model.operations import Put
from tests.support.queue_wires import StepFault
from tests.support.queue_world import DEATHS, Died, Fortune, QueueMishap
from tests.support.queues import HOUR, NOON, OF_JAMES, QUEUE, TwinQueue, queued, twin_queue
from tests.support.striking import Strike, of, passing, refusing


def reported(twin: TwinQueue, slice_start: datetime = NOON) -> list[tuple[int, int, bool]]:
    rows = [row for row in twin.rows(SLICE_TALLIES) if row["timerangestart"] == slice_start]
    return sorted((row["enqueued"], row["marked"], row["settled"]) for row in rows)


async def count(tallies: SliceTallies, enqueued: int = 0, marked: int = 0, slice_start: datetime = NOON) -> None:
    async with tallies.counting(QUEUE, slice_start) as changes:
        changes.enqueued, changes.marked = enqueued, marked


async def test_a_row_says_that_it_is_not_settled_before_anything_is_changed(twin: TwinQueue) -> None:
    tallies = twin.parts().tallies
    async with tallies.counting(QUEUE, NOON) as changes:
        assert reported(twin) == [(0, 0, False)]
        changes.enqueued = 1
    assert reported(twin) == [(0, 0, False)]
    await tallies.flush()
    assert reported(twin) == [(1, 0, True)]


async def test_it_says_so_again_after_it_was_settled(twin: TwinQueue) -> None:
    tallies = twin.parts().tallies
    await count(tallies, enqueued=2)
    await tallies.flush()
    async with tallies.counting(QUEUE, NOON) as changes:
        assert reported(twin) == [(2, 0, False)]
        changes.marked = 1
    await tallies.flush()
    assert reported(twin) == [(2, 1, True)]


async def test_nothing_is_settled_while_anything_is_under_way(twin: TwinQueue) -> None:
    """A flush in between tells the sums, and that there is more to come."""
    tallies = twin.parts().tallies
    await count(tallies, enqueued=3)
    async with tallies.counting(QUEUE, NOON):
        await tallies.flush()
        assert reported(twin) == [(3, 0, False)]
    await tallies.flush()
    assert reported(twin) == [(3, 0, True)]


async def test_what_failed_half_way_is_never_settled(twin: TwinQueue) -> None:
    """It may have been done: its sums stay an estimate, and nobody writes that row again."""
    tallies = twin.parts().tallies
    await count(tallies, enqueued=1)
    with pytest.raises(TimedOut):
        async with tallies.counting(QUEUE, NOON):
            raise TimedOut("no answer")
    await tallies.flush()
    assert reported(twin) == [(1, 0, False)]
    await count(tallies, enqueued=5)
    await tallies.flush()
    assert reported(twin) == [(1, 0, False), (5, 0, True)]


async def test_cancelling_is_failing_half_way(twin: TwinQueue) -> None:
    tallies = twin.parts().tallies

    async def hang() -> None:
        async with tallies.counting(QUEUE, NOON):
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    for _ in range(20):
        await asyncio.sleep(0)
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    await tallies.flush()
    assert reported(twin) == [(0, 0, False)]


async def test_a_row_that_cannot_be_opened_stops_what_would_be_counted(twin: TwinQueue) -> None:
    tallies = twin.parts().tallies
    twin.memory.surround = refusing(SLICE_TALLIES)
    begun = False
    with pytest.raises(TimedOut):
        async with tallies.counting(QUEUE, NOON):
            begun = True
    assert not begun
    twin.memory.surround = passing
    await count(tallies, enqueued=1)
    await tallies.flush()
    assert reported(twin) == [(1, 0, True)]


async def test_a_flush_that_fails_is_made_up_for_by_the_next(twin: TwinQueue) -> None:
    """Sums may be written twice; and until it is known what the row says, it is opened again first."""
    tallies = twin.parts().tallies
    await count(tallies, enqueued=4)
    twin.memory.surround = refusing(SLICE_TALLIES, done=True)
    await tallies.flush()
    assert reported(twin) == [(4, 0, True)]
    twin.memory.surround = passing
    async with tallies.counting(QUEUE, NOON) as changes:
        assert reported(twin) == [(4, 0, False)]
        changes.marked = 1
    await tallies.flush()
    assert reported(twin) == [(4, 1, True)]


async def test_each_process_has_rows_of_its_own(twin: TwinQueue) -> None:
    one, other = twin.parts().tallies, twin.parts().tallies
    await count(one, enqueued=3)
    await count(other, marked=2)
    await one.flush()
    await other.flush()
    assert reported(twin) == [(0, 2, True), (3, 0, True)]
    assert tallied((await one.of(QUEUE, [NOON]))[0]) == SliceCount(1, exact=True, counted_by=CountedBy.TALLIES)


async def test_sums_are_written_in_time_without_any_flush(twin: TwinQueue) -> None:
    tallies = twin.parts().tallies
    await count(tallies, enqueued=module.FLUSH_CHANGES)
    assert reported(twin) == [(500, 0, True)]
    await count(tallies, enqueued=1)
    assert reported(twin) == [(500, 0, False)]
    twin.clock.advance(module.FLUSH_SECONDS)
    await count(tallies, enqueued=1)
    assert reported(twin) == [(502, 0, True)]


async def test_many_changes_at_once_cost_few_writes(twin: TwinQueue) -> None:
    tallies, writes = twin.parts().tallies, Strike(of(Put))
    twin.memory.surround = writes
    await asyncio.gather(*(count(tallies, enqueued=1) for _ in range(100)))
    await tallies.flush()
    assert reported(twin) == [(100, 0, True)]
    assert len(writes.struck) == 2


async def one_row(_: object) -> int:
    return 1


async def test_without_a_table_nothing_is_counted() -> None:
    twin = twin_queue(own=OF_JAMES)
    tallies = twin.parts().tallies
    await count(tallies, enqueued=1)
    await tallies.foreign(QUEUE, NOON)
    await tallies.forget(QUEUE, NOON)
    await tallies.recount(QUEUE, [NOON], one_row)
    await tallies.flush()
    assert (reported(twin), await tallies.of(QUEUE, [NOON]), await tallies.rows_of(QUEUE, NOON)) == ([], [[]], [])


async def test_what_has_no_slice_is_not_counted(twin: TwinQueue) -> None:
    """A mark of a mail that somebody else enqueued, who counts nothing either."""
    tallies = twin.parts().tallies
    async with tallies.counting(QUEUE, None) as changes:
        assert changes == Changes()
        changes.marked = 1
    await tallies.flush()
    assert twin.rows(SLICE_TALLIES) == []


async def test_a_slice_is_forgotten_as_a_whole(monkeypatch: pytest.MonkeyPatch, twin: TwinQueue) -> None:
    one, other = twin.parts().tallies, twin.parts().tallies
    await count(one, enqueued=3)
    await count(other, enqueued=2)
    await other.flush()
    await one.forget(QUEUE, NOON)
    await one.flush()
    assert reported(twin) == []


async def test_sums_that_were_forgotten_go_on_in_another_row(monkeypatch: pytest.MonkeyPatch, twin: TwinQueue) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 3)
    tallies = twin.parts().tallies
    for hour in range(5):
        await count(tallies, enqueued=1, slice_start=NOON + hour * HOUR)
        await tallies.flush()
    await count(tallies, enqueued=7)
    await tallies.flush()
    assert reported(twin) == [(1, 0, True), (7, 0, True)]


async def test_rows_live_as_long_as_the_mails_that_they_count(twin: TwinQueue) -> None:
    """Put again with what they say, but never over what their writer has said since."""
    tallies = twin.parts().tallies
    await count(tallies, enqueued=1)
    await tallies.flush()
    life = int(SLICE_TALLIES.options["default_time_to_live"])
    twin.clock.advance(life - 100)
    await tallies.renew(QUEUE, NOON)
    twin.clock.advance(200)
    assert reported(twin) == [(1, 0, True)]
    await count(tallies, marked=1)
    await tallies.flush()
    assert reported(twin) == [(1, 1, True)]


async def test_the_rows_of_many_slices_come_in_few_answers(twin: TwinQueue) -> None:
    """Twenty slices in each, in the order in which they were asked for, those that nobody counted in too."""
    one, other = twin.parts().tallies, twin.parts().tallies
    starts = [NOON + number * HOUR for number in range(90)]
    for number in range(0, 90, 2):
        await count(one, enqueued=number + 1, slice_start=starts[number])
        await count(other, enqueued=1, slice_start=starts[number])
    await asyncio.gather(one.flush(), other.flush())
    asked = twin.memory.surround = Strike(of(object))
    found = await one.of(QUEUE, starts)
    assert [sum(tally.enqueued for tally in reported) for reported in found] == [
        0 if number % 2 else number + 2 for number in range(90)
    ]
    assert len(asked.struck) == 5


@pytest.mark.parametrize("fault", DEATHS)
@pytest.mark.parametrize("number", range(8))
async def test_a_crash_at_any_write_leaves_an_estimate_or_the_truth(
    number: int, fault: StepFault, twin: TwinQueue
) -> None:
    """Two processes enqueue, mark and flush; one is killed: what is called exact is."""
    fortune = Fortune()
    one, other = twin.parts(wire=fortune), twin.parts()
    placed = [await one.view.rows.place(QUEUE, queued(mail)) for mail in range(2)]
    await one.tallies.flush()
    await other.view.mark(QUEUE, queued(0).enqueue_id, placed[0])
    await other.tallies.flush()

    async def work() -> None:
        for mail in range(2, 6):
            start = await one.view.rows.place(QUEUE, queued(mail))
            await one.view.mark(QUEUE, queued(mail - 1).enqueue_id, start)
            await one.tallies.flush()

    fortune.arm(QueueMishap(fault, number))
    with pytest.raises(Died):
        await work()
    size = await twin.parts().view.size(QUEUE)
    truth = [mail async for mail in other.view.browse(QUEUE)]
    assert size.kind is SizeKind.ESTIMATE or size.mails == len(truth)
    assert size.mails >= 0
