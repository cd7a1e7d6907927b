"""Deleting and purging: what is meant and nothing else, told before it goes, counted once, and never delivered."""

import asyncio
from datetime import timedelta

import pytest

from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq import changes as removing
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import Listed, MailFilter, Whereabouts
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import CannotReach, StateUnwritable
from mailmend.model.operations import Put, Scan
from tests.support.memory_blobs import BlobVerb
from tests.support.queues import (
    CONTENT,
    QUEUE,
    TwinQueue,
    all_delivered,
    enqueued,
    listed,
    mail,
    names,
    twin_queue,
    until,
)
from tests.support.striking import Refusing, of, reads_of, verb, writes_of

HOUR = timedelta(hours=1)


async def test_what_is_meant_goes_and_nothing_else() -> None:
    """Neither listed nor delivered, its bytes gone; the others stay whole."""
    twin = twin_queue(buckets=3)
    async with await twin.process() as queue:
        await enqueued(queue, "a", "b", "c")
        await queue.enqueue(mail("d"), CONTENT, delay=HOUR)
        await queue.enqueue(mail("e"), CONTENT, delay=HOUR)
        removed = await queue.delete(MailFilter(name="b"))
        assert (removed.count, removed.failed) == (1, ())
        removed = await queue.delete(MailFilter(name="d"))
        assert (removed.count, removed.failed) == (1, ())
        assert await names(queue) == ["a", "c", "e"]
        assert len(twin.blobs.ids) == 6
        await queue.flush()
        assert sorted(await all_delivered(queue)) == ["a", "c", "e"]
        assert not twin.broker.dead(QUEUE)
        assert twin.counted.of(QueueCount.REMOVED) == 2


@pytest.mark.parametrize(
    ("whereabouts", "left"), [(Whereabouts.WAITING, ["later"]), (Whereabouts.DELAYED, ["now"]), (None, [])]
)
async def test_waiting_and_delayed_mails_can_be_distinguished(
    whereabouts: Whereabouts | None, left: list[str], queue: RabbitMailQueue
) -> None:
    await enqueued(queue, "now")
    await queue.enqueue(mail("later"), CONTENT, delay=HOUR)
    assert (await queue.delete(MailFilter(whereabouts=whereabouts))).count == 2 - len(left)
    assert await names(queue) == left


async def test_a_purge_of_many_is_counted_exactly_and_holds_few() -> None:
    """More than one batch, delayed ones among them; each marked once."""
    twin = twin_queue(buckets=2)
    async with await twin.process() as queue:
        async with asyncio.TaskGroup() as tasks:
            for number in range(1200):
                delay = HOUR if number % 4 == 0 else None
                tasks.create_task(queue.enqueue(mail(f"{number}"), CONTENT, delay=delay))
        assert (await queue.purge(dry_run=True)).count == 1200
        assert (await queue.size()).mails == 900
        assert (await queue.purge()).count == 1200
        assert not await names(queue)
        assert not twin.blobs.ids
        assert not list(twin.memory.scan(Scan(DUE_MAILS, ("name",))))[2:], "only their places in the list are left"
        assert (await queue.purge()).count == 0
        async with queue.dequeue() as mails:
            asking = asyncio.ensure_future(anext(mails))
            await until(lambda: twin.counted.of(QueueCount.FILTERED) == 900)
            assert not asking.done()
            asking.cancel()


async def test_a_dry_run_shows_each_mail_and_removes_none(twin: TwinQueue) -> None:
    shown: list[str] = []

    async def on_removed(one: Listed) -> None:
        shown.append(one.queued.mail.name)

    async with await twin.process() as queue:
        await enqueued(queue, "a", "b")
        removed = await queue.delete(MailFilter(name="a"), dry_run=True, on_removed=on_removed)
        assert (removed.count, shown) == (1, ["a"])
        assert await all_delivered(queue) == ["a", "b"]


async def test_whoever_keeps_what_is_deleted_is_called_before(twin: TwinQueue) -> None:
    kept: dict[str, bytes] = {}

    async with await twin.process() as queue:

        async def on_removed(one: Listed) -> None:
            assert not await queue.view.marks.there(QUEUE, one.queued.enqueue_id)
            kept[one.queued.mail.name] = await queue.content(one)

        await enqueued(queue, "a")
        await queue.enqueue(mail("b"), CONTENT, delay=HOUR)
        assert (await queue.purge(on_removed=on_removed)).count == 2
        assert kept == {"a": CONTENT, "b": CONTENT}


async def test_what_cannot_be_kept_is_not_deleted(twin: TwinQueue) -> None:
    """The disk is full: the error is told, and every mail that was not kept is still there."""

    async def on_removed(_: Listed) -> None:
        raise StateUnwritable("no room")

    async with await twin.process() as queue:
        await enqueued(queue, "a", "b")
        with pytest.raises(StateUnwritable):
            await queue.purge(on_removed=on_removed)
        assert await all_delivered(queue) == ["a", "b"]


@pytest.mark.parametrize("name", ["waiting", "delayed"])
async def test_a_mail_whose_mark_fails_is_named(name: str, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "waiting")
    await queue.enqueue(mail("delayed"), CONTENT, delay=HOUR)
    (bad,) = await listed(queue, MailFilter(name=name))
    marks, its_id = of(Put, DELETED_MAILS), bad.queued.enqueue_id
    refusing = Refusing(twin, tables=lambda one: marks(one) and one.row["enqueueid"] == its_id)
    removed = await queue.purge()
    assert removed.count == 1
    assert [(one.enqueue_id, one.why) for one in removed.failed] == [
        (bad.queued.enqueue_id, "no answer from the tables")
    ]
    refusing.mend()
    assert await names(queue) == (["waiting"] if name == "waiting" else [])


async def test_a_delayed_mail_whose_row_cannot_be_removed_is_whole(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """It is neither marked nor without its bytes: a later purge takes it."""
    await queue.enqueue(mail("a"), CONTENT, delay=HOUR)
    refusing = Refusing(twin, tables=writes_of(DUE_MAILS))
    removed = await queue.purge()
    assert (removed.count, len(removed.failed)) == (0, 1)
    refusing.mend()
    (shown,) = await listed(queue)
    assert await queue.content(shown) == CONTENT
    assert (await queue.purge()).count == 1


async def test_bytes_that_cannot_be_deleted_do_not_keep_a_mail(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "a", "b")
    refusing = Refusing(twin, blobs=verb(BlobVerb.DELETE))
    assert (await queue.purge()).count == 2
    refusing.mend()
    assert not await all_delivered(queue)
    assert not twin.blobs.ids, "the deliveries took them along"


async def test_a_listing_that_breaks_off_is_reported(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "a")
    Refusing(twin, tables=reads_of(ENQUEUED_MAILS))
    with pytest.raises(CannotReach):
        await queue.purge()


async def test_too_many_failures_end_a_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "MARKED_AT_ONCE", 2)
    monkeypatch.setattr(removing, "REMOVE_FAILURES_MAX", 4)
    twin = twin_queue()
    async with await twin.process() as queue:
        await enqueued(queue, *"abcdefgh")
        Refusing(twin, tables=writes_of(DELETED_MAILS))
        removed = await queue.purge()
        assert (removed.count, len(removed.failed)) == (0, 4)


async def test_a_purge_and_a_consumer_at_once_agree(twin: TwinQueue) -> None:
    """Each mail is either worked on or removed by the purge; none is a dead letter."""
    async with await twin.process() as queue, await twin.process() as operator:
        await enqueued(queue, *(f"{number}" for number in range(60)))
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(all_delivered(queue))
            purging = tasks.create_task(operator.purge())
        assert len(set(working.result())) == len(working.result())
        assert len(working.result()) + purging.result().count >= 60
        assert not await names(queue)
        assert not twin.broker.dead(QUEUE)
        assert not twin.broker.ready(QUEUE)
