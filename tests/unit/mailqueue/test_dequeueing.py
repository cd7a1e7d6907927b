"""Dequeueing: what becomes of each delivery, and that no single mail stops the others."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from mailmend.mailqueue.broker import SLICE_HEADER, Message
from mailmend.mailqueue.codec import message_of, payload_of, queued_of
from mailmend.mailqueue.every_queue import HOLD, LOADS_MAX
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.rabbitmq.dequeue import DeliveryLookup
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rabbitmq.verdicts import DeliveryVerdict, verdict_of
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.model.catalog.mail_queue import BROWSE_START, DELETED_MAILS
from mailmend.model.errors import WrongUse
from mailmend.model.operations import Remove
from tests.support.logs import logged
from tests.support.memory_blobs import BlobVerb
from tests.support.queues import (
    CONTENT,
    QUEUE,
    TwinQueue,
    all_delivered,
    enqueued,
    listed,
    names,
    next_of,
    parts_of,
    twin_queue,
    until,
)
from tests.support.striking import Refusing, Strike, When, everything_of, verb

HOUR = timedelta(hours=1)


def republished(twin: TwinQueue, shown: Listed, **headers: int | str) -> Message:
    """The mail's message once more, with other headers of ours where they are told."""
    message = message_of(shown.queued, shown.slice_start)
    return Message(message.body, {**message.headers, **headers})


# What the consumer gets


async def test_a_mail_is_delivered_whole_and_once(twin: TwinQueue) -> None:
    """Envelope, bytes, id; after the ack it is neither listed nor delivered, and its bytes are gone."""
    async with await twin.process() as queue:
        (enqueue_id,) = await enqueued(queue, "whole")
        (shown,) = await listed(queue)
        async with queue.dequeue() as mails:
            one = await anext(mails)
            assert (one.enqueue_id, one.mail, one.content) == (enqueue_id, shown.queued.mail, CONTENT)
            assert (one.attempts, one.redelivered, one.slice_start) == (0, False, shown.slice_start)
            await one.ack()
        assert not await all_delivered(queue)
        assert not await names(queue)
    assert not twin.blobs.ids
    assert not twin.broker.unacked(QUEUE)
    assert twin.counted.of(QueueCount.DELIVERED) == twin.counted.of(QueueCount.ACKED) == 1


async def test_what_was_not_settled_comes_again(queue: RabbitMailQueue) -> None:
    """Leaving the context gives back what the consumer had, and what was in hand besides."""
    await enqueued(queue, "a", "b", "c")
    async with queue.dequeue() as mails:
        await anext(mails)
    async with queue.dequeue() as mails:
        one = await anext(mails)
        assert one.redelivered
        await one.ack()
    assert len(await all_delivered(queue)) == 2


async def test_a_bounded_number_of_bytes_is_held(queue: RabbitMailQueue) -> None:
    """At first as many contents as may be loaded at once; once sizes are known, as many as have room."""
    await enqueued(queue, *"abcdefghijklmnopqrstuvwxyz")
    counts = list[int]()
    async with queue.dequeue(prefetch=100, bytes_max=3 * len(CONTENT)) as mails:
        while held := [one async for one in _all_that_come(mails)]:
            counts.append(len(held))
            for one in held:
                await one.ack()
    assert sum(counts) == 26
    assert counts[0] <= LOADS_MAX
    assert set(counts[1:-1]) == {3}


async def _all_that_come(mails: AsyncIterator[Dequeued]) -> AsyncIterator[Dequeued]:
    while one := await next_of(mails):
        yield one


async def test_a_consumer_that_fails_hears_of_its_own_error(queue: RabbitMailQueue) -> None:
    await enqueued(queue, "a")

    async def consumer() -> None:
        async with queue.dequeue() as mails:
            raise LookupError((await anext(mails)).mail.name)

    with pytest.raises(LookupError, match="a"):
        await consumer()
    assert await all_delivered(queue) == ["a"]


async def test_no_more_is_unacked_than_the_prefetch(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *"abcdefgh")
    async with queue.dequeue(prefetch=3) as mails:
        assert [await next_of(mails) is not None for _ in range(4)] == [True, True, True, False]
        assert len(twin.broker.unacked(QUEUE)) == 3
        assert len(twin.broker.ready(QUEUE)) == 5
    with pytest.raises(WrongUse):
        queue.dequeue(prefetch=0)


async def test_a_wait_for_the_next_mail_can_be_cancelled_and_begun_again(twin: TwinQueue) -> None:
    async with await twin.process() as queue, queue.dequeue() as mails:
        assert await next_of(mails) is None
        await enqueued(queue, "a")
        one = await next_of(mails)
        assert one is not None
        await one.ack()


async def test_a_slow_blob_holds_up_no_other_mail(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Mails are handed over as they are ready: the first one's bytes do not answer for a while."""
    await enqueued(queue, "slow", "b", "c")
    slow = (await listed(queue))[0].queued.blobs
    refusing = Refusing(twin, blobs=lambda call: call.blob_id in (slow.header, slow.body))
    async with queue.dequeue(prefetch=3) as mails:
        taken = [await anext(mails), await anext(mails)]
        assert {one.mail.name for one in taken} == {"b", "c"}
        refusing.mend()
        taken.append(await anext(mails))
        assert taken[-1].mail.name == "slow"
        for one in taken:
            await one.ack()
    assert twin.counted.of(QueueCount.RETURNED) == 0


# What the consumer does not get


async def test_a_marked_mail_is_dropped_before_its_bytes_are_looked_for(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Deleted with its bytes, it is filtered without an alarm, and no read of a blob."""
    await enqueued(queue, "deleted", "kept")
    await queue.delete(MailFilter(name="deleted"))
    gets = twin.blobs.store.surround = Strike(verb(BlobVerb.GET))
    assert await all_delivered(queue) == ["kept"]
    assert len(gets.struck) == 2, "header and body of the one that is kept"
    assert not twin.broker.dead(QUEUE)
    assert twin.counted.of(QueueCount.FILTERED) == 1
    assert twin.counted.of(QueueCount.BLOB_MISSING) == 0


async def test_a_mail_deleted_while_it_waits_for_its_consumer_is_not_handed_over(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """A consumer that takes its time is not given what was deleted meanwhile."""
    await enqueued(queue, "first", "deleted", "last")
    async with queue.dequeue(prefetch=3) as mails:
        first = await anext(mails)
        await queue.delete(MailFilter(name="deleted"))
        twin.clock.advance(5)
        second = await anext(mails)
        assert (first.mail.name, second.mail.name) == ("first", "last")
        await first.ack()
        await second.ack()
    assert not twin.broker.ready(QUEUE)
    assert twin.counted.of(QueueCount.FILTERED) == 1


async def test_bytes_left_by_a_crash_after_the_mark_go_with_the_delivery(twin: TwinQueue) -> None:
    """The mark stood, the process died: the redelivery heals what it left."""
    async with await twin.process() as queue:
        (enqueue_id,) = await enqueued(queue, "a")
        (shown,) = await listed(queue)
        await queue.view.mark(QUEUE, enqueue_id, shown.slice_start)
        assert not await all_delivered(queue)
    assert not twin.blobs.ids


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{}", b"[1]"])
async def test_what_is_no_mail_is_a_dead_letter(
    body: bytes, twin: TwinQueue, queue: RabbitMailQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mailmend.queue")
    await twin.broker.publish(QUEUE, Message(body))
    await enqueued(queue, "a")
    assert await all_delivered(queue) == ["a"]
    assert [message.body for message in twin.broker.dead(QUEUE)] == [body]
    assert twin.counted.of(QueueCount.BAD) == 1
    assert "cannot be read; it is a dead letter now" in logged(caplog)


async def test_a_mail_without_its_bytes_is_a_dead_letter(
    twin: TwinQueue, queue: RabbitMailQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted and logged with its id, never with its addresses; no row of it keeps the browse start from moving."""
    caplog.set_level(logging.WARNING, "mailmend.queue")
    await enqueued(queue, "lost", "kept")
    (lost, _) = await listed(queue)
    await twin.blobs.lose(lost.queued.blobs.body)
    assert await all_delivered(queue) == ["kept"]
    assert len(twin.broker.dead(QUEUE)) == 1
    assert await names(queue) == []
    assert (await queue.size()).mails == 0
    assert twin.counted.of(QueueCount.BLOB_MISSING) == 1
    assert str(lost.queued.enqueue_id) in logged(caplog)
    assert "example.org" not in logged(caplog)


async def test_a_mail_deleted_while_its_bytes_were_loaded_is_no_dead_letter(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    (enqueue_id,) = await enqueued(queue, "deleted")

    def delete() -> None:
        twin.mark(enqueue_id)
        twin.blobs.store._kept.clear()

    twin.blobs.store.surround = Strike(verb(BlobVerb.GET), do=delete)
    assert not await all_delivered(queue)
    assert not twin.broker.dead(QUEUE)
    assert twin.counted.of(QueueCount.FILTERED) == 1


@pytest.mark.parametrize(
    "tables", [everything_of(DELETED_MAILS), everything_of(BROWSE_START, DELETED_MAILS)], ids=["marks", "both"]
)
async def test_while_tables_do_not_answer_a_delivery_is_held(
    tables: When, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """It is looked up again and again, and delivered when they answer: the broker never counts a return."""
    await enqueued(queue, "a")
    refusing = Refusing(twin, tables=tables)
    async with queue.dequeue() as mails:
        asking = asyncio.ensure_future(anext(mails))
        begun = twin.clock.now
        await until(lambda: twin.clock.now > begun + HOLD / 2)
        assert not asking.done()
        refusing.mend()
        one = await asking
        assert not one.redelivered
        await one.ack()
    assert twin.counted.of(QueueCount.RETURNED) == 0


async def test_what_is_held_too_long_goes_back(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Others may have their turn, here or elsewhere; nothing is lost or a dead letter."""
    await enqueued(queue, "a")
    refusing = Refusing(twin, tables=everything_of(DELETED_MAILS))
    async with queue.dequeue() as mails:
        asking = asyncio.ensure_future(anext(mails))
        await until(lambda: twin.counted.of(QueueCount.RETURNED) == 1)
        refusing.mend()
        one = await asking
        assert one.redelivered
        await one.ack()
    assert not twin.broker.dead(QUEUE)


# What was swept


async def swept(twin: TwinQueue, queue: RabbitMailQueue, name: str = "swept") -> Listed:
    """A mail that was deleted, whose slice was swept, and whose mark has expired since; its message is still there."""
    await enqueued(queue, name)
    (shown,) = await listed(queue)
    await queue.purge()
    twin.clock.advance(4 * 3600)
    await queue.sweep()
    twin.memory.write(Remove(DELETED_MAILS, (QUEUE, shown.queued.enqueue_id)))
    return shown


async def test_a_delivery_from_a_swept_slice_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Neither row nor mark, before the browse start: acked, counted, logged with its id; even where its bytes stay."""
    caplog.set_level(logging.WARNING, "mailmend.queue")
    twin = twin_queue(naming=BlobNaming(BlobsMode.DEDUPLICATED))
    async with await twin.process() as queue:
        shown = await swept(twin, queue)
        assert twin.blobs.ids, "deduplicated bytes stay"
        assert not await all_delivered(queue)
        assert not twin.broker.ready(QUEUE)
        assert not twin.broker.dead(QUEUE)
        assert twin.counted.of(QueueCount.GONE) == 1
    assert f"mail={shown.queued.enqueue_id}" in logged(caplog)


async def test_a_dead_letter_that_is_driven_back_is_not_gone(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Its row went with its rejection, its slice was swept: delivered all the same, with its bytes."""
    await enqueued(queue, "rejected")
    async with queue.dequeue() as mails:
        await (await anext(mails)).reject()
    assert not await names(queue)
    twin.clock.advance(4 * 3600)
    await queue.sweep()
    async with twin.broker.dead_letters(QUEUE, 1) as dead:
        driven_back, lookup = await anext(dead), DeliveryLookup(parts_of(queue))
        assert driven_back.dead_lettered
        found = await lookup.look(queued_of(driven_back.message.body), driven_back)
        assert verdict_of(found) is DeliveryVerdict.DELIVER


async def test_a_mail_of_a_slice_that_is_over_is_delivered_while_it_has_its_row(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    await enqueued(queue, "old")
    twin.clock.advance(10 * 3600)
    await enqueued(queue, "new")
    await queue.sweep()
    assert sorted(await all_delivered(queue)) == ["new", "old"]
    assert twin.counted.of(QueueCount.GONE) == 0


async def test_another_programs_mail_is_never_gone_and_makes_sizes_be_counted(twin: TwinQueue) -> None:
    """James sends no slice: its mail is delivered, and what is alive is counted by its rows from then on."""
    async with await twin.process() as queue:
        await enqueued(queue, "ours", "theirs")
        (_, theirs) = await listed(queue)
        twin.broker.wipe()
        await twin.broker.publish(QUEUE, Message(payload_of(theirs.queued)))
        async with queue.dequeue() as mails:
            one = await anext(mails)
            assert one.slice_start is None
            await one.ack()
    async with await twin.process() as queue:
        size = await queue.size()
        assert (size.mails, size.kind) == (1, SizeKind.EXACT)


@pytest.mark.parametrize("value", ["soon", 2**70, -(2**70)])
async def test_a_slice_that_cannot_be_read_is_no_slice(
    value: int | str, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Headers are anybody's: nonsense in ours is as if there was none."""
    await enqueued(queue, "a")
    (shown,) = await listed(queue)
    twin.broker.wipe()
    await twin.broker.publish(QUEUE, republished(twin, shown, **{SLICE_HEADER: value}))
    assert await all_delivered(queue) == ["a"]
