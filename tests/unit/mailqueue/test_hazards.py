"""The seven hazards of James's queue, each brought about as far as it goes, and each without its harm here.

Source: docs/design.md, "Hazards of James's queue". What James does in them is done by `tests.support.james_beside`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.mailqueue.rules.slices import EPOCH, slice_of
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, LIVES
from mailmend.model.operations import Read, Remove, Scan
from tests.support.james_beside import James
from tests.support.queue_world import Worker, dead
from tests.support.queues import (
    EXPIRING,
    HOUR,
    QUEUE,
    TwinQueue,
    all_delivered,
    enqueued,
    listed,
    mail,
    names,
    next_of,
    twin_queue,
)
from tests.support.skewed import SkewedClock
from tests.support.striking import Strike


async def sweep(queue: RabbitMailQueue) -> Any:
    return await queue.sweep()


def operations(twin: TwinQueue, meant: Callable[[Operation], bool]) -> list[Operation]:
    watch = twin.memory.surround = Strike(meant)
    return watch.struck


BOTH_MODES = pytest.mark.parametrize("mode", BlobsMode)


@BOTH_MODES
async def test_a_purged_mail_does_not_come_back_when_james_removes_its_mark(mode: BlobsMode) -> None:
    """(a) Purged, then cleaned up by James while the broker has its message: neither delivered nor a dead letter."""
    twin = twin_queue(naming=BlobNaming(mode))
    async with await twin.process() as queue:
        purged = await enqueued(queue, "a", "b")
        await queue.purge()
        twin.clock.advance(3 * 3600)
        await enqueued(queue, "later")
        james = James(twin)
        james.look()
        james.move()

        assert not twin.marked & set(purged)
        assert len(twin.broker.ready(QUEUE)) == 3

        assert await all_delivered(queue) == ["later"]
        assert not dead(twin)


@BOTH_MODES
async def test_a_purged_mail_does_not_come_back_after_our_own_sweep(mode: BlobsMode) -> None:
    """(a) Purged and swept while the broker still has the message, even of a James: the marks stay."""
    twin = twin_queue(naming=BlobNaming(mode))
    async with await twin.process() as queue:
        from_james = await James(twin).enqueue(mail("j"), b"Subject: j\r\n\r\nj\r\n")
        purged = {from_james.enqueue_id, *await enqueued(queue, "a")}
        await queue.purge()
        twin.clock.advance(3 * 3600)
        await sweep(queue)

        assert not twin.rows(ENQUEUED_MAILS)
        assert len(twin.broker.ready(QUEUE)) == 2

        assert twin.marked == purged
        assert await all_delivered(queue) == []
        assert not dead(twin)


async def test_a_deleted_mail_without_its_bytes_is_no_dead_letter(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """(b) Deleted by an operator, its bytes with it, while the broker still has its message: it is dropped."""
    await enqueued(queue, "a")
    await queue.purge()

    assert not twin.blobs.ids
    assert len(twin.broker.ready(QUEUE)) == 1

    assert await all_delivered(queue) == []
    assert not dead(twin)


async def test_a_mark_that_comes_after_the_sweep_is_counted_and_expires(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """(c) A slow consumer marks a mail whose slice is gone: told of by the next sweep, and not there for ever."""
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        slow = await anext(mails)
        await queue.purge()
        twin.clock.advance(3 * 3600)
        await sweep(queue)

        assert not twin.rows(ENQUEUED_MAILS)
        assert slow.slice_start is not None
        assert slow.slice_start < (twin.browse_start or EPOCH)
        await slow.ack()

    assert (await sweep(queue)).orphan_marks == 1
    assert twin.marked == {slow.enqueue_id}
    twin.clock.advance(LIVES.mark_ttl_seconds + 1)
    assert not twin.marked


async def test_a_mail_of_a_slow_clock_is_seen_by_everybody(twin: TwinQueue) -> None:
    """(d) Enqueued by a clock whose slice is before the browse start: listed, counted, deleted like any other."""
    slow = Worker(twin, SkewedClock(twin.clock, timedelta(hours=-5)))
    async with await twin.process() as queue:
        await enqueued(queue, "early")
        await all_delivered(queue)
        twin.clock.advance(3 * 3600)
        await sweep(queue)

        await slow.start()
        assert slice_of(twin.clock.now + slow.clock.ahead, HOUR) < (twin.browse_start or EPOCH)
        await enqueued(slow.queue, "a", "b")
        await slow.close()

        assert await names(queue) == ["a", "b"]
        assert (await queue.size()).mails == 2
        assert (await queue.purge()).count == 2


async def test_what_the_broker_lost_is_published_again(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """(e) The broker lost every message: the rows are there, and become messages again."""
    await enqueued(queue, "a", "b")
    twin.broker.wipe()
    twin.clock.advance(3600)

    assert await names(queue) == ["a", "b"]
    assert not twin.broker.ready(QUEUE)

    assert await queue.republish(timedelta(minutes=5)) == 2
    assert await all_delivered(queue) == ["a", "b"]


async def test_what_the_tables_lost_is_delivered_all_the_same(twin: TwinQueue) -> None:
    """(e) The tables lost every row, long after: no message is taken for one whose slice was swept."""
    async with await twin.process() as queue:
        await enqueued(queue, "a", "b")
    twin.clock.advance(5 * 3600)
    twin.memory = MemoryTables(twin.clock.micros)
    async with await twin.process() as queue:
        assert await names(queue) == []
        assert len(twin.broker.ready(QUEUE)) == 2

        assert await all_delivered(queue) == ["a", "b"]


async def test_a_mail_that_is_tried_for_a_week_does_not_pin_the_browse_start(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """(f) Each retry takes its row out of its slice: the browse start goes on, and listings read few slices."""
    await enqueued(queue, "stuck")
    for _ in range(7):
        async with queue.dequeue() as mails:
            one = await next_of(mails)
            assert one is not None
            await one.retry(timedelta(hours=23))
        twin.clock.advance(12 * 3600)
        await sweep(queue)
        twin.clock.advance(12 * 3600)
        await queue.move_due()
    await sweep(queue)

    (stuck,) = await listed(queue)
    assert twin.clock.now - stuck.enqueued_at == timedelta(days=7)

    assert twin.clock.now - (twin.browse_start or EPOCH) <= 2 * HOUR
    read = operations(twin, lambda one: isinstance(one, Read | Scan) and one.table is ENQUEUED_MAILS)
    assert await names(queue) == ["stuck"]
    assert len(read) <= 4


async def test_a_mail_that_nobody_takes_is_one_look_for_each_sweep() -> None:
    """(f) It does pin the browse start, for it must be seen; but no sweep reads the slices behind it again."""
    twin = twin_queue(own=EXPIRING)
    async with await twin.process() as queue:
        await enqueued(queue, "stuck")
        for _ in range(14):
            twin.clock.advance(12 * 3600)
            await sweep(queue)

        (stuck,) = await listed(queue)
        assert (twin.browse_start or EPOCH) == stuck.slice_start

        read = operations(twin, lambda one: isinstance(one, Read | Scan) and one.table is ENQUEUED_MAILS)
        await sweep(queue)
        assert len(read) == 1
        assert (stuck.whereabouts, await names(queue)) == (Whereabouts.WAITING, ["stuck"])


async def test_slices_that_held_nothing_leave_no_tombstones() -> None:
    """(g) A sweep deletes the partitions that hold rows, each at once, and nothing else; and no mark at all."""
    twin = twin_queue(buckets=2)
    async with await twin.process() as queue:
        await enqueued(queue, "a", "a", "a")
        await all_delivered(queue)
        twin.clock.advance(48 * 3600)
        cleaned = {ENQUEUED_MAILS.name, DELETED_MAILS.name}
        deleted = operations(twin, lambda one: isinstance(one, Remove) and one.table.name in cleaned)
        swept = await sweep(queue)

        assert swept.slices > 40
        assert swept.rows == 3

        assert [one.table.name for one in deleted] == [ENQUEUED_MAILS.name]
        assert len(twin.marked) == 3
