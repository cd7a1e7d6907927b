"""Ack, retry, reject: the order of their writes, and what a death or a silent server between two of them leaves."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from mailmend.mailqueue.broker import ATTEMPTS_HEADER, Message
from mailmend.mailqueue.codec import payload_of
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rabbitmq.unacked import REQUEUE_PAUSE, UnackedMail
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS, OwnTables
from mailmend.model.durations import RETRY
from mailmend.model.errors import CannotReach, Delayed, MailmendError, WrongUse
from tests.support.queue_world import working
from tests.support.queues import (
    CONTENT,
    QUEUE,
    TwinQueue,
    all_delivered,
    enqueued,
    listed,
    mail,
    names,
    next_of,
    twin_queue,
    until,
)
from tests.support.striking import Refusing, Strike, passing, writes_of

Settle = Callable[[UnackedMail], Awaitable[None]]

SETTLE: dict[str, Settle] = {
    "ack": lambda one: one.ack(),
    "retry": lambda one: one.retry(),
    "reject": lambda one: one.reject(),
}


async def settled(queue: RabbitMailQueue, settle: Settle) -> UnackedMail:
    async with queue.dequeue() as mails:
        one = await anext(mails)
        await settle(one)
    return one


async def steps_of(settle: Settle) -> list[str]:
    process = await working(twin_queue(own=OwnTables(tallies=False)))
    await enqueued(process.queue, "a")
    process.fortune.arm()
    await settled(process.queue, settle)
    await process.queue.close()
    return process.fortune.steps


async def test_the_mark_is_written_before_the_brokers_ack() -> None:
    """And the bytes go last: a death in between leaves a delivery that is filtered, or blobs for the sweep."""
    assert await steps_of(SETTLE["ack"]) == ["Put deletedMailsV2", "ack", "delete blobs"]


async def test_a_retried_mail_is_delayed_before_it_leaves_the_queue() -> None:
    steps = await steps_of(SETTLE["retry"])
    assert steps == ["Put dueMails", "Put dueMails", "Remove enqueuedMailsV4", "ack"]


async def test_a_rejected_mail_is_a_dead_letter_before_its_row_goes() -> None:
    assert await steps_of(SETTLE["reject"]) == ["dead letter", "Remove enqueuedMailsV4"]


@pytest.mark.parametrize("second", SETTLE.values(), ids=SETTLE.keys())
@pytest.mark.parametrize("first", SETTLE.values(), ids=SETTLE.keys())
async def test_a_mail_is_settled_once(first: Settle, second: Settle, queue: RabbitMailQueue) -> None:
    """A second word about it is a flaw of the consumer, told as such, and does nothing."""
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        await first(one)
        with pytest.raises(WrongUse, match="was settled before"):
            await second(one)


# Ack


async def test_without_a_mark_there_is_no_ack(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The consumer is told that the work does not count, and has the mail again."""
    await enqueued(queue, "a")
    refusing = Refusing(twin, tables=writes_of(DELETED_MAILS))
    async with queue.dequeue() as mails:
        one = await anext(mails)
        with pytest.raises(CannotReach):
            await one.ack()
        refusing.mend()
        again = await anext(mails)
        assert again.enqueue_id == one.enqueue_id
        assert again.redelivered
        await again.ack()
    assert not await names(queue)
    assert twin.counted.of(QueueCount.ACKED) == 1


async def test_a_mail_that_an_error_of_the_system_kept_from_being_settled_comes_again(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Given no descriptor for a file that is needed, an error that is none of ours."""
    await enqueued(queue, "a")
    no_file = OSError(errno.EMFILE, "Too many open files")
    twin.memory.surround = Strike(writes_of(DELETED_MAILS), no_file)
    async with queue.dequeue() as mails:
        with pytest.raises(OSError, match="Too many open files"):
            await (await anext(mails)).ack()
        twin.memory.surround = passing
        await (await anext(mails)).ack()
    assert not await names(queue)


async def test_an_ack_stands_though_the_broker_is_gone(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The mark says that the work was done; what the broker delivers again is filtered, the loss is counted."""
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        twin.broker.drop_connections()
        await one.ack()
        assert await next_of(mails) is None
    assert not twin.broker.ready(QUEUE)
    assert twin.counted.of(QueueCount.FILTERED) == 1
    assert twin.counted.of(QueueCount.CONSUMER_LOST) == 1


async def test_an_ack_after_the_context_was_left_still_counts(queue: RabbitMailQueue) -> None:
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
    await one.ack()
    assert not await all_delivered(queue)


@pytest.mark.parametrize("settle", SETTLE.values(), ids=SETTLE.keys())
async def test_settling_is_finished_though_its_caller_is_cancelled(settle: Settle) -> None:
    """At any moment: either nothing was done and the mail comes again, or all of it was."""

    async def cancelled_after(turns: int) -> bool:
        twin = twin_queue()
        async with await twin.process() as queue:
            await enqueued(queue, "a")
            async with queue.dequeue() as mails:
                one = await anext(mails)
                settling = asyncio.ensure_future(settle(one))
                for _ in range(turns):
                    await asyncio.sleep(0)
                settling.cancel()
                await asyncio.gather(settling, return_exceptions=True)
            waits = "a" in [shown.queued.mail.name for shown in await listed(queue) if shown.slice_start]
            assert (await all_delivered(queue) == ["a"]) is waits
            return not waits

    done = [await cancelled_after(turns) for turns in range(20)]
    assert not done[0]
    assert done[-1]


async def test_a_second_copy_waits_for_the_first(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """A lost connection brings the mail again while its consumer works: acked, the copy is filtered."""
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        twin.broker.drop_connections()
        assert await next_of(mails) is None
        await one.ack()
        assert await next_of(mails) is None
    assert not twin.broker.ready(QUEUE)


async def test_a_second_copy_is_delivered_when_the_first_came_to_nothing(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Not marked by the first, the mail goes to the other consumer of the same process."""
    await enqueued(queue, "a")
    twin.broker.duplicate(QUEUE)
    async with queue.dequeue(prefetch=1) as mails:
        first = await anext(mails)
        async with queue.dequeue(prefetch=1) as others:
            assert await next_of(others) is None
            await first.reject()
            one = await anext(others)
            assert one.enqueue_id == first.enqueue_id
            await one.ack()
    assert not await all_delivered(queue)


# Retry


async def test_a_retried_mail_comes_again_after_its_wait(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Delayed for a minute, then two: same id, its tries counted, its error kept, its time of enqueueing too."""
    (enqueue_id,) = await enqueued(queue, "a")
    (first,) = await listed(queue)
    for tries in (1, 2, 3):
        one = await settled(queue, lambda one: one.retry(error_message="no route"))
        assert (one.enqueue_id, one.attempts, one.content) == (enqueue_id, tries - 1, CONTENT)
        (shown,) = await listed(queue)
        assert (shown.whereabouts, shown.attempts) == (Whereabouts.DELAYED, tries)
        assert shown.due_at == twin.clock.now + RETRY.wait(tries)
        assert shown.enqueued_at == first.enqueued_at
        assert shown.queued.mail.error_message == "no route"
        assert shown.queued.mail.last_updated is not None
        twin.clock.advance(RETRY.wait(tries).total_seconds() - 1)
        assert await queue.move_due() == 0
        twin.clock.advance(2)
        assert await queue.move_due() == 1
    assert twin.broker.published[-1][1].headers[ATTEMPTS_HEADER] == 3
    assert await all_delivered(queue) == ["a"]
    assert twin.counted.of(QueueCount.RETRIED) == 3


async def test_a_retry_keeps_the_error_of_before_unless_given_another(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await queue.enqueue(mail("a", error_message="old"), CONTENT)
    await settled(queue, lambda one: one.retry(timedelta(hours=2)))
    (shown,) = await listed(queue)
    assert shown.queued.mail.error_message == "old"
    assert shown.due_at == twin.clock.now + timedelta(hours=2)


async def test_a_mail_that_cannot_be_delayed_goes_back(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The consumer is told; nothing of it is delayed, and it is delivered again."""
    await enqueued(queue, "a")
    refusing = Refusing(twin, tables=writes_of(DUE_MAILS))
    async with queue.dequeue() as mails:
        with pytest.raises(CannotReach):
            await (await anext(mails)).retry()
        refusing.mend()
        await (await anext(mails)).ack()
    assert (await queue.flush()).count == 0


async def test_a_row_that_stays_lists_the_mail_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Its removal got no answer: it is delayed all the same, and shown in one place."""
    await enqueued(queue, "a")
    refusing = Refusing(twin, tables=writes_of(ENQUEUED_MAILS))
    await settled(queue, SETTLE["retry"])
    refusing.mend()
    assert await names(queue) == ["a"]
    assert not twin.broker.ready(QUEUE)
    twin.clock.advance(61)
    assert await queue.move_due() == 1
    assert await all_delivered(queue) == ["a"]
    assert not await names(queue)


async def test_the_copy_of_a_retried_mail_is_not_worked_on_early(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The connection was lost before the retry: the copy that comes for it is dropped, the mail comes in its time."""
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        twin.broker.drop_connections()
        await one.retry()
        assert await next_of(mails) is None
        twin.clock.advance(61)
        assert await queue.move_due() == 1
        later = await anext(mails)
        assert later.attempts == 1
        await later.ack()


async def test_a_retry_at_once_is_not_taken_for_a_copy(twin: TwinQueue) -> None:
    """Due at once and moved before the first try was settled in full, it is delivered all the same."""
    async with await twin.process() as queue, await twin.process() as other:
        await enqueued(queue, "a")
        async with queue.dequeue() as mails:
            one = await anext(mails)
            retrying = asyncio.ensure_future(one.retry(timedelta(0)))
            while not retrying.done():
                with suppress(MailmendError):
                    await other.move_due()
            await other.move_due()
            later = await anext(mails)
            assert later.attempts == 1
            await later.ack()


async def test_without_a_table_for_delays_a_retry_goes_back_after_a_pause() -> None:
    """No hot loop; a delay that was asked for is refused, and the mail is still in hand."""
    twin = twin_queue(own=OwnTables(due=False))
    async with await twin.process() as queue:
        await enqueued(queue, "a")
        async with queue.dequeue() as mails:
            one = await anext(mails)
            with pytest.raises(Delayed, match="mailmend schema apply"):
                await one.retry(timedelta(hours=1))
            begun = twin.clock.now
            await one.retry()
            again = await anext(mails)
            assert twin.clock.now - begun >= REQUEUE_PAUSE
            assert again.redelivered
            await again.ack()


async def test_a_delay_that_is_too_long_leaves_the_mail_unacked(queue: RabbitMailQueue) -> None:
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        with pytest.raises(WrongUse, match="more than"):
            await one.retry(timedelta(days=1000))
        await one.ack()


# Reject


async def test_a_rejected_mail_is_a_dead_letter_and_not_listed(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """It pins no browse start; its bytes stay for whoever drives it back."""
    await enqueued(queue, "a")
    await settled(queue, SETTLE["reject"])
    assert len(twin.broker.dead(QUEUE)) == 1
    assert not await names(queue)
    assert len(twin.blobs.ids) == 2
    assert (await queue.size()).mails == 0
    assert twin.counted.of(QueueCount.REJECTED) == 1


@pytest.mark.parametrize("settle", [SETTLE["retry"], SETTLE["reject"]], ids=["retry", "reject"])
@pytest.mark.parametrize("hours", [0, 30])
async def test_a_mail_of_james_leaves_the_listing_too(settle: Settle, hours: int) -> None:
    """Its message names no slice, so its row is looked for: it neither pins the browse start nor is listed twice."""
    twin = twin_queue(buckets=3)
    async with await twin.process() as queue:
        # Given a mail that James has published, and one of ours
        await queue.enqueue(mail("theirs", last_updated=twin.clock.now - timedelta(hours=5)), CONTENT)
        (shown,) = await listed(queue)
        twin.broker.wipe()
        await twin.broker.publish(QUEUE, Message(payload_of(shown.queued)))
        twin.clock.advance(hours * 3600)
        # When it is retried or rejected
        one = await settled(queue, settle)
        assert one.slice_start is None
        # Then it waits no longer, and once it comes back it is listed once
        assert [one.whereabouts for one in await listed(queue)] in ([], [Whereabouts.DELAYED])
        await queue.flush()
        assert await names(queue) in ([], ["theirs"])


async def test_a_rejection_that_the_broker_did_not_hear_is_reported(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "a")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        twin.broker.drop_connections()
        with pytest.raises(CannotReach):
            await one.reject()
        await until(lambda: twin.counted.of(QueueCount.REJECTED) == 0)
        await (await anext(mails)).reject()
    assert len(twin.broker.dead(QUEUE)) == 1
    assert not await names(queue)
