"""A row on its way to its slice, and the publish beside it: what is seen meanwhile decides, nothing is left over."""

import asyncio
from datetime import datetime

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.broker import SLICE_HEADER
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS
from mailmend.model.errors import BrokerUnreachable, CannotReach, TimedOut
from mailmend.model.operations import Put, Read
from tests.support.queues import (
    CONTENT,
    HOUR,
    NOON,
    QUEUE,
    Process,
    TwinQueue,
    all_delivered,
    enqueued,
    listed,
    mail,
    names,
    queued,
)
from tests.support.striking import Strike, of, passing


def moving_the_start(tables: MemoryTables, to: datetime) -> None:
    """Somebody moves the browse start as soon as the next row is put."""
    start = Put(BROWSE_START, {"queuename": QUEUE, "browsestart": to})
    tables.surround = Strike(of(Put, ENQUEUED_MAILS), then=lambda: tables.write(start), times=1)


async def test_what_follows_the_row_goes_on_beside_the_second_look(twin: TwinQueue) -> None:
    """Neither waits for the other: it ends only when the look was asked for."""
    process, looked = twin.parts(), asyncio.Event()
    await process.view.rows.place(QUEUE, queued(0))

    async def publish(_: datetime) -> None:
        await asyncio.wait_for(looked.wait(), 10)

    twin.memory.surround = Strike(of(Read, BROWSE_START), do=looked.set)
    assert await process.view.rows.placement(QUEUE, queued(1)).settle(publish) == NOON


async def test_it_is_done_again_for_a_later_slice(twin: TwinQueue) -> None:
    """The browse start moved past the first one: the row lies in the second alone, and is counted there."""
    process, published = twin.parts(), list[datetime]()
    await process.view.rows.place(QUEUE, queued(0))

    async def publish(slice_start: datetime) -> None:
        published.append(slice_start)

    moving_the_start(twin.memory, NOON + HOUR)
    placement = process.view.rows.placement(QUEUE, queued(1))
    assert await placement.settle(publish) == NOON + HOUR
    assert published == [NOON, NOON + HOUR]
    assert placement.slice_start == NOON + HOUR
    assert sorted(row["timerangestart"] for row in twin.rows(ENQUEUED_MAILS)) == [NOON, NOON + HOUR]
    size = await process.view.size(QUEUE)
    assert (size.mails, size.kind) == (1, SizeKind.EXACT)


async def test_what_fails_beside_the_look_leaves_the_row_where_it_says(process: Process) -> None:

    async def publish(_: datetime) -> None:
        raise BrokerUnreachable("the broker is away")

    placement = process.view.rows.placement(QUEUE, queued(1))
    assert placement.slice_start is None
    with pytest.raises(BrokerUnreachable):
        await placement.settle(publish)
    assert placement.slice_start == NOON
    await process.view.mark(QUEUE, queued(1).enqueue_id, placement.slice_start)
    size = await process.view.size(QUEUE)
    assert (size.mails, size.kind) == (0, SizeKind.EXACT)


async def test_a_mail_that_was_published_twice_is_delivered_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Its first message names a slice that was passed meanwhile: gone; the second names where its row lies."""
    await enqueued(queue, "before")
    assert await all_delivered(queue) == ["before"]
    twin.clock.advance(3 * 3600)
    moving_the_start(twin.memory, twin.clock.now + HOUR)
    await enqueued(queue, "mail")
    (shown,) = await listed(queue)
    headers = [message.headers[SLICE_HEADER] for message in twin.broker.ready(QUEUE)]
    assert shown.slice_start is not None
    assert len(headers) == 2
    assert headers[1] == (shown.slice_start - EPOCH).total_seconds() * 1000
    twin.clock.advance(3 * 3600)
    assert await all_delivered(queue) == ["mail"]
    assert twin.counted.of(QueueCount.GONE) == 1
    assert not await names(queue)


async def test_a_look_without_an_answer_hides_what_was_published(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The caller is told of an error, and the message beside it is dropped by its mark."""
    await enqueued(queue, "before")
    away = Strike(of(Read, BROWSE_START), TimedOut("no answer"))

    def goes_away() -> None:
        twin.memory.surround = away

    twin.memory.surround = Strike(of(Put, ENQUEUED_MAILS), then=goes_away)
    with pytest.raises(CannotReach):
        await queue.enqueue(mail("refused"), CONTENT)
    twin.memory.surround = passing
    assert len(twin.broker.ready(QUEUE)) == 2
    assert await all_delivered(queue) == ["before"]
    assert twin.counted.of(QueueCount.FILTERED) == 1
