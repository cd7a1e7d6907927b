"""A delivery without a row: what left the queue never comes back, and what waits is never dropped, however old."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.codec import payload_of, row_of
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.dequeue import SECOND_LOOK_SECONDS
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.mailqueue.rules.slices import (
    EPOCH,
    GRACE_MIN,
    ageing_before,
    grace_of,
    mark_may_have_expired,
    rows_lapsed_before,
    slack_of,
    slice_of,
)
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS, LIVES, OwnTables
from mailmend.model.operations import Put, Read
from tests.support.logs import logged
from tests.support.queues import (
    CONTENT,
    EXPIRING,
    HOUR,
    QUEUE,
    TwinQueue,
    all_delivered,
    enqueued,
    listed,
    mail,
    names,
    twin_queue,
)
from tests.support.striking import Strike, of

DAY = timedelta(days=1)
ROW_TTL, MARK_TTL = timedelta(seconds=LIVES.ttl_seconds), timedelta(seconds=LIVES.mark_ttl_seconds)


def expiring_queue() -> TwinQueue:
    """A queue whose rows and marks expire, and whose bytes stay: whatever comes back can be delivered."""
    return twin_queue(own=EXPIRING, naming=BlobNaming(BlobsMode.DEDUPLICATED))


@pytest.fixture
def twin() -> TwinQueue:
    return expiring_queue()


async def swept_for(twin: TwinQueue, queue: RabbitMailQueue, time: timedelta) -> None:
    for _ in range(time // (DAY / 2)):
        twin.clock.advance(DAY.total_seconds() / 2)
        await queue.sweep()


def looks(twin: TwinQueue) -> list[Operation]:
    watch = twin.memory.surround = Strike(of(Read, ENQUEUED_MAILS))
    return watch.struck


# What left the queue


async def test_a_purged_mail_outlives_its_mark_in_the_broker_and_does_not_come_back(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Even where an older mail that nobody takes keeps its slice from being swept: its row is gone, and that tells."""
    # Given a mail that stays, and a later one that is purged while its message is in the broker
    await enqueued(queue, "stays")
    twin.clock.advance(HOUR.total_seconds())
    await enqueued(queue, "purged")
    await queue.delete(MailFilter(name="purged"))
    # When the queue is swept for longer than marks live
    await swept_for(twin, queue, MARK_TTL + DAY)
    assert [one.slice_start for one in await listed(queue)] == [await queue.view.browse_start(QUEUE)]
    assert len(twin.broker.ready(QUEUE)) == 2
    # Then only the mail that waits is delivered
    assert await all_delivered(queue) == ["stays"]
    assert twin.counted.of(QueueCount.GONE) == 1
    assert not twin.broker.dead(QUEUE)


@pytest.mark.parametrize("last_updated", [None, "when it was enqueued"])
async def test_a_purged_mail_of_james_does_not_come_back_either(
    last_updated: str | None, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Its message names no slice: where its mark may have expired, every slice that browsing sees is asked for it."""
    # Given a mail that James has published, purged before it was delivered
    shown = await published_by_james(twin, queue, twin.clock.now if last_updated else None)
    await queue.purge()
    # When it is delivered after its mark has expired
    await swept_for(twin, queue, MARK_TTL + DAY)
    assert not await queue.view.marks.there(QUEUE, shown.queued.enqueue_id)
    # Then it is gone
    assert await all_delivered(queue) == []
    assert twin.counted.of(QueueCount.GONE) == 1


async def published_by_james(twin: TwinQueue, queue: RabbitMailQueue, last_updated: datetime | None) -> Listed:
    await queue.enqueue(mail("theirs", last_updated=last_updated), CONTENT)
    (shown,) = await listed(queue)
    twin.broker.wipe()
    await twin.broker.publish(QUEUE, Message(payload_of(shown.queued)))
    return shown


# What waits


async def test_an_old_mail_that_waits_is_delivered(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "old")
    await swept_for(twin, queue, 3 * MARK_TTL)
    found = looks(twin)
    assert await all_delivered(queue) == ["old"]
    assert len(found) == 1
    assert twin.counted.of(QueueCount.GONE) == 0


async def test_an_old_mail_of_james_that_waits_is_delivered(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await published_by_james(twin, queue, twin.clock.now)
    await swept_for(twin, queue, MARK_TTL + DAY)
    twin.clock.slept.clear()
    assert await all_delivered(queue) == ["theirs"]
    assert SECOND_LOOK_SECONDS not in twin.clock.slept


async def test_a_young_mail_needs_no_row(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """While no mark can have expired its absence tells enough, whoever has published the mail."""
    await published_by_james(twin, queue, twin.clock.now)
    await enqueued(queue, "ours")
    found = looks(twin)
    assert sorted(await all_delivered(queue)) == ["ours", "theirs"]
    assert not found


async def test_james_may_put_the_row_after_the_message(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """It does both at once; a mail that is old otherwise and has no row yet is looked at again before it is dropped."""
    # Given a message whose row is still on its way
    shown = await published_by_james(twin, queue, None)
    await queue.view.rows.take_back(QUEUE, shown.slice_start or twin.clock.now, shown.queued)
    late = row_of(QUEUE, slice_of(twin.clock.now, HOUR), 0, twin.clock.now, shown.queued)
    its_row = Put(ENQUEUED_MAILS, late, at=twin.clock.micros() + 60_000_000)
    # When the row comes after the first look
    twin.memory.surround = Strike(of(Read, ENQUEUED_MAILS), then=lambda: twin.memory.write(its_row), times=1)
    # Then the mail is delivered
    assert await all_delivered(queue) == ["theirs"]
    assert twin.counted.of(QueueCount.GONE) == 0


async def test_where_marks_live_for_ever_no_row_is_asked_for() -> None:
    twin = twin_queue(naming=BlobNaming(BlobsMode.DEDUPLICATED))
    async with await twin.process() as queue:
        await published_by_james(twin, queue, None)
        found = looks(twin)
        assert await all_delivered(queue) == ["theirs"]
        assert not found


# What nobody renewed


async def test_a_mail_whose_row_expired_while_nobody_swept_is_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    """It may wait, it may have been purged: it is neither dropped nor delivered, and a person can drive it back."""
    with caplog.at_level(logging.WARNING, "mailmend.queue"):
        twin = expiring_queue()
        async with await twin.process() as queue:
            # Given a mail whose row nobody renewed until it expired
            await enqueued(queue, "forgotten")
            twin.clock.advance((ROW_TTL + DAY).total_seconds())
            assert await names(queue) == []
            # When the sweeper comes back, and the mail is delivered
            await queue.sweep()
            assert await all_delivered(queue) == []
            # Then it is a dead letter
            assert (twin.counted.of(QueueCount.UNSURE), twin.counted.of(QueueCount.GONE)) == (1, 0)
            assert len(twin.broker.dead(QUEUE)) == 1
            # And driven back it is delivered
            assert (await queue.redrive()).redriven == 1
            assert await all_delivered(queue) == ["forgotten"]
    assert "nobody swept the queue: rows of mails that wait may have expired queue=spool" in logged(caplog)
    assert "nobody knows whether it waits" in logged(caplog)


async def test_after_a_lapse_what_is_younger_is_distinguished_again(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Only slices in which rows may have expired are in doubt, and no later sweep adds to them."""
    await enqueued(queue, "forgotten")
    twin.clock.advance((ROW_TTL + DAY).total_seconds())
    await queue.sweep()
    lapsed = (await queue.view.starts.state(QUEUE)).lapsed_before
    await enqueued(queue, "purged", "waits")
    await queue.delete(MailFilter(name="purged"))
    await swept_for(twin, queue, MARK_TTL + DAY)
    assert await all_delivered(queue) == ["waits"]
    assert (twin.counted.of(QueueCount.UNSURE), twin.counted.of(QueueCount.GONE)) == (1, 1)
    assert (await queue.view.starts.state(QUEUE)).lapsed_before == lapsed


def test_a_queue_that_is_swept_never_lapses() -> None:
    """Nor does one that was begun a moment ago, nor one of a keyspace where rows live for ever."""

    async def story(own: OwnTables, step: timedelta) -> None:
        twin = twin_queue(own=own)
        async with await twin.process() as queue:
            await enqueued(queue, "stays")
            await queue.sweep()
            for _ in range(20):
                twin.clock.advance(step.total_seconds())
                await queue.sweep()
            assert (await queue.view.starts.state(QUEUE)).lapsed_before is None
            if own.row_ttl_seconds:
                assert await names(queue) == ["stays"]

    asyncio.run(story(EXPIRING, DAY))
    asyncio.run(story(OwnTables(), 30 * DAY))


async def test_the_lapse_is_known_before_the_browse_start_passes_it(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """A sweep that is killed between the two leaves what it knows, not what it does not."""
    await enqueued(queue, "forgotten")
    twin.clock.advance((ROW_TTL + DAY).total_seconds())
    written: list[str] = []

    def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        match operation:
            case Read():
                pass
            case _ if getattr(operation, "table", None) is BROWSE_START:
                written.append("start")
            case _ if "lapsedbefore" in getattr(operation, "assign", {}):
                written.append("lapse")
        return carry_out()

    twin.memory.surround = surround
    await queue.sweep()
    assert written == ["lapse", "start"]


# The rules

INSTANTS = st.timedeltas(timedelta(0), timedelta(days=400)).map(lambda since: EPOCH + since)
TTLS = st.timedeltas(timedelta(hours=1), timedelta(days=30))


@given(since=INSTANTS, age=st.timedeltas(timedelta(0), timedelta(days=60)), mark_ttl=TTLS)
def test_a_mark_that_has_expired_is_never_relied_on(since: datetime, age: timedelta, mark_ttl: timedelta) -> None:
    """Put then or later, it is there for its time to live, whatever clocks differ by; never in doubt where for ever."""
    if age >= mark_ttl - GRACE_MIN:
        assert mark_may_have_expired(since, since + age, mark_ttl)
    assert not mark_may_have_expired(since, since + age, timedelta(0))


@given(
    written_at=INSTANTS,
    before=st.timedeltas(timedelta(0), timedelta(days=40)),
    gap=st.timedeltas(timedelta(0), timedelta(days=40)),
    row_ttl=TTLS,
    slack=st.timedeltas(timedelta(minutes=30), timedelta(days=10)),
)
def test_no_row_expires_unrenewed_without_a_lapse(
    written_at: datetime, before: timedelta, gap: timedelta, row_ttl: timedelta, slack: timedelta
) -> None:
    """A row that the last sweep did not renew, and that has expired when the next one begins, lies in the lapse."""
    mark_ttl, window = row_ttl + slack, HOUR
    swept_at = written_at + before
    now = swept_at + gap
    overdue = ageing_before(swept_at - slack_of(row_ttl, mark_ttl) / 16, row_ttl, mark_ttl)
    if written_at < overdue or written_at + row_ttl > now:
        return  # it was renewed, or it is still there
    lapsed = rows_lapsed_before(swept_at, now, row_ttl, mark_ttl, window)
    assert lapsed is not None
    assert slice_of(written_at, window) < lapsed
    assert lapsed <= now - row_ttl + grace_of(window) + window
