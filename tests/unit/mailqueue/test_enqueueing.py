"""Enqueueing: what the caller is told is true, wherever it fails or is cancelled."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from mailmend.mailqueue.blobs.stores import split
from mailmend.mailqueue.broker import ATTEMPTS_HEADER, SLICE_HEADER
from mailmend.mailqueue.codec import message_of, payload_of, priority_of, queued_of
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.queue import due_time
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import DELAY_MAX, PRIORITY_NORMAL, Whereabouts
from mailmend.mailqueue.rules.slices import EPOCH, slice_of
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    QUEUE_STATE,
    OwnTables,
)
from mailmend.model.errors import (
    BlobsUnreachable,
    BrokerUnreachable,
    CannotReach,
    Delayed,
    MailmendError,
    PublishFailed,
    WrongUse,
)
from mailmend.model.ids import EnqueueId
from mailmend.model.operations import Put, Read
from tests.support.memory_blobs import BlobVerb
from tests.support.memory_broker import Fate
from tests.support.queue_world import working
from tests.support.queues import CONTENT, TwinQueue, all_delivered, drained, listed, mail, names, twin_queue
from tests.support.striking import Refusing, Strike, When, of, reads_of, verb, writes_of

HOUR = timedelta(hours=1)


async def is_free_of_mails(twin: TwinQueue) -> bool:
    """Whether nobody will ever hear of a mail: not listed, not delivered, no bytes."""
    async with await twin.process() as other:
        shown = await listed(other)
        moved = (await other.flush()).count
        taken = await all_delivered(other)
        return not shown and not moved and not taken and not twin.blobs.ids


async def test_blobs_come_first_then_the_row_then_the_publish() -> None:
    """In this order every crash leaves something that is found, and nothing that cannot be read."""
    process = await working(twin_queue(own=OwnTables(tallies=False)))
    await process.queue.enqueue(mail("first"), CONTENT)
    process.fortune.arm()
    await process.queue.enqueue(mail("second"), CONTENT)
    assert process.fortune.steps == ["put blob", "put blob", "Put enqueuedMailsV4", "publish"]
    await process.close()


async def test_the_message_carries_the_mail_and_its_slice(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    enqueue_id = await queue.enqueue(mail("told"), CONTENT)
    (shown,) = await listed(queue)
    ((_, message, priority),) = twin.broker.published
    assert queued_of(message.body) == shown.queued
    assert shown.queued.enqueue_id == enqueue_id
    assert message.headers == {SLICE_HEADER: (slice_of(twin.clock.now, HOUR) - EPOCH) // timedelta(milliseconds=1)}
    assert priority == PRIORITY_NORMAL
    header, body = split(CONTENT)
    assert await twin.blobs.get(shown.queued.blobs.header) == header
    assert await twin.blobs.get(shown.queued.blobs.body) == body
    assert await queue.content(shown) == CONTENT


async def test_a_message_says_how_often_its_mail_was_tried(queue: RabbitMailQueue) -> None:
    await queue.enqueue(mail(), CONTENT)
    (shown,) = await listed(queue)
    assert ATTEMPTS_HEADER not in message_of(shown.queued, shown.slice_start).headers
    assert message_of(shown.queued, None, 3).headers == {ATTEMPTS_HEADER: 3}
    assert message_of(shown.queued, None, 3).body == payload_of(shown.queued)


async def test_two_hundred_at_once_are_all_there() -> None:
    twin = twin_queue(buckets=3)
    wanted = {f"mail-{number}" for number in range(200)}
    async with await twin.process() as queue:
        async with asyncio.TaskGroup() as tasks:
            for name in wanted:
                tasks.create_task(queue.enqueue(mail(name), CONTENT))
        assert set(await names(queue)) == wanted
        assert (await queue.size()).mails == 200
        assert set(await drained(queue, 200)) == wanted
        assert twin.counted.of(QueueCount.ENQUEUED) == 200


FAILURES: dict[str, When] = {
    "the row is not written": writes_of(ENQUEUED_MAILS),
    "the browse start does not answer": reads_of(BROWSE_START),
}


@pytest.mark.parametrize("done_all_the_same", [False, True], ids=["undone", "done without an answer"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_tables_that_fail_leave_no_mail(failure: When, done_all_the_same: bool, twin: TwinQueue) -> None:
    """The caller is told of the failure, and nobody ever sees the mail, whether or not the write was done."""
    async with await twin.process() as queue:
        await queue.enqueue(mail("before"), CONTENT)
        await drained(queue, 1)
        refusing = Refusing(twin, tables=failure, done_all_the_same=done_all_the_same)
        with pytest.raises(CannotReach, match="no answer from the tables"):
            await queue.enqueue(mail("lost"), CONTENT)
        refusing.mend()
        assert twin.counted.of(QueueCount.ENQUEUE_FAILED) == 1
    assert await is_free_of_mails(twin)


@pytest.mark.parametrize("done_all_the_same", [False, True], ids=["undone", "done without an answer"])
@pytest.mark.parametrize("which", [1, 2])
async def test_a_store_that_fails_for_one_blob_keeps_neither(
    which: int, done_all_the_same: bool, twin: TwinQueue
) -> None:
    """Of a mail whose header could be put and whose body could not, nothing stays (or the other way round)."""
    lost = BlobsUnreachable("no answer")
    async with await twin.process() as queue:
        twin.blobs.store.surround = Strike(verb(BlobVerb.PUT), lost, done_all_the_same, skip=which - 1, times=1)
        with pytest.raises(BlobsUnreachable):
            await queue.enqueue(mail("lost"), CONTENT)
        assert not await names(queue)
        assert len(twin.blobs.ids) == (1 if done_all_the_same else 0), "what the store denies having, it may have"
        assert not twin.broker.published


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        (Fate.REFUSED, PublishFailed),
        (Fate.UNCONFIRMED_KEPT, PublishFailed),
        (Fate.UNCONFIRMED_LOST, PublishFailed),
        (Fate.UNCONFIRMED_LATE, PublishFailed),
        (Fate.UNREACHABLE, BrokerUnreachable),
    ],
    ids=lambda one: getattr(one, "value", ""),
)
async def test_a_publish_that_is_not_confirmed_leaves_no_mail(
    fate: Fate, error: type[MailmendError], twin: TwinQueue
) -> None:
    """Refused or doubtful, at once or late: whatever the broker still delivers is hidden by the mark."""
    async with await twin.process() as queue:
        twin.broker.will(fate)
        with pytest.raises(error):
            await queue.enqueue(mail("lost"), CONTENT)
        assert (await queue.size()).mails == 0
    twin.broker.let_arrive()
    assert await is_free_of_mails(twin)


async def test_a_publish_that_is_kept_twice_is_worked_on_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    twin.broker.will(Fate.TWICE)
    await queue.enqueue(mail("once"), CONTENT)
    assert await all_delivered(queue) == ["once"]
    assert twin.counted.of(QueueCount.FILTERED) == 1


async def test_what_cannot_be_undone_is_named(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Tables that are gone altogether cannot hide the mail: the error says which, what is left, and where to look."""
    await queue.enqueue(mail("before"), CONTENT)
    await drained(queue, 1)
    twin.broker.will(Fate.UNCONFIRMED_KEPT)
    published = len(twin.broker.published)
    refusing = Refusing(twin, tables=lambda _: len(twin.broker.published) > published)
    with pytest.raises(PublishFailed) as caught:
        await queue.enqueue(mail("doubtful"), CONTENT)
    refusing.mend()
    (doubtful,) = await listed(queue)
    assert str(doubtful.queued.enqueue_id) in caught.value.mend
    assert "its row may still be listed" in caught.value.mend
    assert "mailmend queue reconcile --queue spool" in caught.value.mend
    assert await queue.content(doubtful) == CONTENT, "it may be delivered yet, so its bytes stay"
    assert await all_delivered(queue) == ["doubtful"]


async def test_blobs_that_cannot_be_undone_are_named(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    refusing = Refusing(twin, blobs=verb(BlobVerb.DELETE))
    twin.broker.will(Fate.REFUSED)
    with pytest.raises(PublishFailed) as caught:
        await queue.enqueue(mail("lost"), CONTENT)
    refusing.mend()
    assert "its blobs are left" in caught.value.mend
    assert not await names(queue)


@pytest.mark.parametrize("delay", [None, HOUR], ids=["now", "delayed"])
async def test_cancelled_at_any_moment_nothing_stays_or_everything(delay: timedelta | None) -> None:
    """Whenever the caller is cancelled, either the mail was enqueued or there is no trace that anybody sees."""

    async def cancelled_after(turns: int) -> bool:
        twin = twin_queue()
        async with await twin.process() as queue:
            enqueueing = asyncio.create_task(queue.enqueue(mail("cancelled"), CONTENT, delay=delay))
            for _ in range(turns):
                await asyncio.sleep(0)
            enqueueing.cancel()
            (outcome,) = await asyncio.gather(enqueueing, return_exceptions=True)
            if not isinstance(outcome, asyncio.CancelledError):
                assert await names(queue) == ["cancelled"]
                return True
            assert not await names(queue)
        assert await is_free_of_mails(twin), f"cancelled after {turns} turns"
        return False

    finished = [await cancelled_after(turns) for turns in range(60)]
    assert finished[-1], "in the end it is enqueued"
    assert not finished[0]
    assert finished == sorted(finished)


# When


async def test_a_delay_is_kept_until_it_is_over(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Listed as delayed with its time, not published; then delivered under the same id."""
    enqueue_id = await queue.enqueue(mail("later"), CONTENT, delay=HOUR)
    (shown,) = await listed(queue)
    assert shown.whereabouts is Whereabouts.DELAYED
    assert shown.due_at == twin.clock.now + HOUR
    assert not twin.broker.published
    assert (await queue.size()).delayed == 1
    twin.clock.advance(3601)
    assert await queue.move_due() == 1
    async with queue.dequeue() as mails:
        one = await anext(mails)
        assert (one.enqueue_id, one.content, one.attempts) == (enqueue_id, CONTENT, 0)
        await one.ack()


@pytest.mark.parametrize("refused", [writes_of(DUE_MAILS), reads_of(QUEUE_STATE)], ids=["row", "due start"])
@pytest.mark.parametrize("done_all_the_same", [False, True])
async def test_a_delayed_mail_that_fails_leaves_nothing(
    refused: When, done_all_the_same: bool, twin: TwinQueue
) -> None:
    async with await twin.process() as queue:
        refusing = Refusing(twin, tables=refused, done_all_the_same=done_all_the_same)
        with pytest.raises(CannotReach):
            await queue.enqueue(mail("lost"), CONTENT, delay=HOUR)
        refusing.mend()
    assert await is_free_of_mails(twin)


@pytest.mark.parametrize("refused", [writes_of(DUE_MAILS), reads_of(QUEUE_STATE)], ids=["row", "due start"])
@pytest.mark.parametrize("done_all_the_same", [False, True])
async def test_a_failure_to_delay_a_mail_again_does_not_hide_it(
    refused: When, done_all_the_same: bool, twin: TwinQueue
) -> None:
    """Of a mail whose id was chosen: what failed is done again, and there is one mail with its bytes."""
    known_as = EnqueueId(uuid4())
    async with await twin.process() as queue:
        await queue.enqueue(mail("again"), CONTENT, delay=HOUR, known_as=known_as)
        refusing = Refusing(twin, tables=refused, done_all_the_same=done_all_the_same)
        with pytest.raises(CannotReach):
            await queue.enqueue(mail("again"), CONTENT, delay=HOUR, known_as=known_as)
        refusing.mend()
        await queue.enqueue(mail("again"), CONTENT, delay=HOUR, known_as=known_as)
        await queue.flush()
        assert await all_delivered(queue) == ["again"]


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNCONFIRMED_KEPT, Fate.UNREACHABLE], ids=lambda one: one.value)
async def test_a_failure_to_put_a_mail_again_does_not_hide_it(fate: Fate, twin: TwinQueue) -> None:
    """As of a delayed one; once it is acked, it is not delivered again."""
    known_as = EnqueueId(uuid4())
    async with await twin.process() as queue:
        twin.broker.will(fate)
        with pytest.raises(MailmendError):
            await queue.enqueue(mail("again"), CONTENT, known_as=known_as)
        for delivered in (["again"], []):
            await queue.enqueue(mail("again"), CONTENT, known_as=known_as)
            assert await all_delivered(queue) == delivered


@pytest.mark.parametrize("delay", [timedelta(0), -HOUR])
async def test_no_delay_is_now(delay: timedelta) -> None:
    twin = twin_queue(own=OwnTables(due=False))
    async with await twin.process() as queue:
        await queue.enqueue(mail("now"), CONTENT, delay=delay)
        await queue.enqueue(mail("past"), CONTENT, at=twin.clock.now - HOUR)
        assert await names(queue) == ["now", "past"]


async def test_a_keyspace_without_the_table_refuses_delays() -> None:
    """Before anything is put; the error names the command that makes the table."""
    twin = twin_queue(own=OwnTables(due=False))
    async with await twin.process() as queue:
        with pytest.raises(Delayed, match="mailmend schema apply"):
            await queue.enqueue(mail("later"), CONTENT, delay=HOUR)
        assert not twin.blobs.ids
        assert (await queue.flush()).count == await queue.move_due() == 0


NOW = datetime.fromisoformat("2026-08-30T12:00:00+00:00")


def test_the_due_time_is_reckoned_from_a_delay_or_an_instant() -> None:
    assert due_time(NOW, HOUR, None) == NOW + HOUR
    assert due_time(NOW, None, datetime.fromisoformat("2026-08-30T15:00:00+02:00")) == NOW + HOUR
    assert due_time(NOW, None, None) is None
    assert due_time(NOW, DELAY_MAX, None) == NOW + DELAY_MAX


@pytest.mark.parametrize(
    ("delay", "at"),
    [(HOUR, NOW), (None, NOW.replace(tzinfo=None)), (DELAY_MAX + HOUR, None), (None, NOW + DELAY_MAX * 2)],
    ids=["both", "no zone", "too long", "too far"],
)
def test_times_that_cannot_be_are_refused(delay: timedelta | None, at: datetime | None) -> None:
    with pytest.raises(WrongUse):
        due_time(NOW, delay, at)


async def test_a_priority_travels_in_the_mail(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """As James's attribute, so that whoever publishes it again knows it; one that is not 0 to 9 is refused."""
    await queue.enqueue(mail("urgent"), CONTENT, priority=9)
    (shown,) = await listed(queue)
    assert priority_of(shown.queued.mail) == 9
    assert twin.broker.published[-1][2] == 9
    with pytest.raises(WrongUse):
        await queue.enqueue(mail(), CONTENT, priority=10)
    assert len(await listed(queue)) == 1
    reported = replace(shown.queued.mail, name="told by its attribute")
    await queue.enqueue(reported, CONTENT)
    assert twin.broker.published[-1][2] == 9


async def test_nothing_is_read_twice_on_the_way_in(twin: TwinQueue) -> None:
    """Beyond blobs, row and publish an enqueue costs one look at the browse start, and no write of a tally."""
    async with await twin.process() as queue:
        await queue.enqueue(mail(), CONTENT)
        seen = twin.memory.surround = Strike(of(object))
        await queue.enqueue(mail(), CONTENT)
        assert [(type(one), one.table) for one in seen.struck] == [(Put, ENQUEUED_MAILS), (Read, BROWSE_START)]
        assert not writes_of(DELETED_MAILS)(Read(DELETED_MAILS, ()))
