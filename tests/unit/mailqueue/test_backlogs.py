"""Backlogs: a sub-queue whose mails do not leave holds up no others, and none of its mails is lost or comes twice."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from mailmend.mailqueue.broker import SETTLING
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.rabbitmq.backlogs import KEPT_EMPTY_FOR
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rabbitmq.reconcile import tables_side
from mailmend.mailqueue.rabbitmq.return_backlogs import ABANDONED_AFTER
from mailmend.mailqueue.rabbitmq.view.backlog_tables import SEEN_FOR, BacklogTables
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.mails import MailFilter, QueuedMail
from mailmend.model.catalog.mail_queue import BACKLOG_MAILS, BACKLOGS, OwnTables
from tests.support.memory_blobs import BlobVerb
from tests.support.queue_world import taken, working
from tests.support.queues import CONTENT, QUEUE, TwinQueue, all_delivered, enqueued, mail, names, twin_queue
from tests.support.striking import Strike

PREFETCH = 16
JAMMED_IN_HAND = 9
"""Nine sixteenths of the prefetch: what a sub-queue has in hand that is alone."""

SOON = 5.0
"""Seconds in which all that can come has come."""


def sub_queue_of(queued: QueuedMail) -> SubQueueName:
    """By the first word of the mail's name."""
    return SubQueueName("", queued.mail.name.partition("-")[0])


def jammed(count: int) -> list[str]:
    return [f"jammed-{number:03}" for number in range(count)]


@dataclass
class Holder:
    """A consumer that settles only what it is told to.

    Attributes:
        held: what it has, in the order in which it came.
        came: the names of all that came to it.
    """

    twin: TwinQueue
    held: list[Dequeued] = field(default_factory=list)
    came: list[str] = field(default_factory=list)

    async def take(self, mails: AsyncIterator[Dequeued]) -> None:
        async for one in mails:
            self.held.append(one)
            self.came.append(one.mail.name)

    async def has(self, seconds: float = SOON) -> list[str]:
        """The names of all that it has, once all that can come has come."""
        await self.twin.clock.pause(seconds)
        return [one.mail.name for one in self.held]

    async def settled(self, which: Iterable[str]) -> None:
        wanted = set(which)
        for one in list(self.held):
            if one.mail.name in wanted:
                self.held.remove(one)
                await one.ack()

    def one(self, name: str) -> Dequeued:
        """The mail of that name; it is in other hands from now on."""
        found = next(one for one in self.held if one.mail.name == name)
        self.held.remove(found)
        return found

    async def drained(self) -> list[str]:
        """Settle all that comes, as it comes; the names in their order."""
        while some := await self.has():
            await self.settled(some)
        return self.came


@asynccontextmanager
async def holding(twin: TwinQueue, queue: RabbitMailQueue) -> AsyncIterator[Holder]:
    holder = Holder(twin)
    async with queue.dequeue(PREFETCH, sub_queue_of=sub_queue_of) as mails:
        taking = asyncio.ensure_future(holder.take(mails))
        try:
            yield holder
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


async def test_a_mail_behind_many_jammed_ones_comes_at_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Of the jammed ones a bounded number is in hand, and the broker has none of them any more."""
    await enqueued(queue, *jammed(300), "free-1")
    async with holding(twin, queue) as holder:
        assert sorted(await holder.has(60)) == ["free-1", *jammed(JAMMED_IN_HAND)]
        assert not twin.broker.ready(QUEUE)
        await enqueued(queue, "free-2")
        assert "free-2" in await holder.has()


async def test_jammed_mails_come_once_and_the_oldest_first_when_they_move_again(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    await enqueued(queue, *jammed(120))
    async with holding(twin, queue) as holder:
        await holder.has()
        assert await holder.drained() == jammed(120)
    assert not await names(queue)
    assert not twin.rows(BACKLOG_MAILS)
    assert not twin.blobs.ids


async def test_neither_content_nor_row_of_a_mail_in_a_backlog_is_read(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *jammed(100))
    reads = Strike(lambda call: call.verb is BlobVerb.GET)
    twin.blobs.store.surround = reads
    async with holding(twin, queue) as holder:
        await holder.has()
    assert len(reads.struck) == 2 * JAMMED_IN_HAND


async def test_mails_in_a_backlog_are_listed_and_counted_as_before(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *jammed(60))
    async with holding(twin, queue) as holder:
        await holder.has()
        assert sorted(await names(queue)) == jammed(60)
        assert (await queue.size()).mails == 60


async def test_the_sizes_of_backlogs_are_known_without_reading_them(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """What is in hand is not counted; nothing is left behind the last mail, nor behind the consumer."""
    await enqueued(queue, *jammed(60), "free-1")
    name = SubQueueName("", "jammed")
    async with holding(twin, queue) as holder:
        left = 60
        while left:
            held = [held for held in await holder.has() if held.startswith("jammed")]
            assert queue.backlog_sizes.get(name, 0) == left - len(held)
            await holder.settled(held[:5])
            left -= len(held[:5])
        await holder.has()
        assert queue.backlog_sizes == {}
        await enqueued(queue, *jammed(60))
        await holder.has()
        assert set(queue.backlog_sizes) == {name}
    assert queue.backlog_sizes == {}


async def test_a_backlog_that_was_taken_over_is_counted_by_its_new_owner(twin: TwinQueue) -> None:
    """Until its last mail is in hand."""
    async with await twin.process() as first, holding(twin, first) as holder:
        await enqueued(first, *jammed(60))
        await holder.has()
    async with await twin.process() as second, holding(twin, second) as holder:
        await holder.has(2 * SEEN_FOR.total_seconds())
        assert second.backlog_sizes == {SubQueueName("", "jammed"): 60 - len(holder.held)}
        await holder.drained()
        assert second.backlog_sizes == {}


async def test_a_mail_that_is_deleted_in_a_backlog_never_comes(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *jammed(60))
    async with holding(twin, queue) as holder:
        await holder.has()
        await queue.delete(MailFilter(name="jammed-040"))
        assert await holder.drained() == [name for name in jammed(60) if name != "jammed-040"]
    assert not twin.rows(BACKLOG_MAILS)


async def test_another_process_goes_on_where_one_has_left(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """At once, with what that one had in hand too, which says that it may have been had."""
    await enqueued(queue, *jammed(60))
    async with holding(twin, queue) as holder:
        await holder.has()
    async with holding(twin, queue) as other:
        await other.has()
        assert all(one.redelivered for one in other.held)
        assert sorted(await other.drained()) == jammed(60)


async def test_another_process_goes_on_a_while_after_one_was_killed(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """What the broker had unacked comes at once, and what is in backlogs once the killed one shows no sign."""
    await enqueued(queue, *jammed(60))
    killed = await working(twin)
    killed.sub_queue_of = sub_queue_of
    await taken(killed, 60, PREFETCH)
    await twin.clock.pause(SOON)
    await killed.restart()
    async with holding(twin, queue) as other:
        assert not await other.has()
        await twin.clock.pause(2 * SEEN_FOR.total_seconds())
        assert await other.has()
        assert sorted(await other.drained()) == jammed(60)


async def test_the_stretch_of_a_process_that_is_there_is_not_taken_over(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Also where a list that was read before did not name it."""
    await enqueued(queue, *jammed(60))
    async with holding(twin, queue) as holder:
        await holder.has()
        tables = BacklogTables(twin.tables, twin.clock, QUEUE)
        (stretch, *_), _ = await tables.stretches()
        assert not await tables.take_over(stretch, twin.clock.random_uuid())
        assert await queue.return_backlogs() == 0


async def test_two_processes_take_each_mail_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *jammed(100))
    async with await twin.process() as second, holding(twin, queue) as one, holding(twin, second) as other:
        await one.has()
        await other.has()
        await asyncio.gather(one.drained(), other.drained())
        assert sorted(one.came + other.came) == jammed(100)
        assert one.came
        assert other.came


async def test_a_mail_that_waits_for_long_takes_no_part_of_the_prefetch(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """It stays in hand; however it is settled, nothing of it is left."""
    await enqueued(queue, *jammed(JAMMED_IN_HAND))
    async with holding(twin, queue) as holder:
        assert await holder.has() == jammed(JAMMED_IN_HAND)
        assert not twin.broker.unacked(QUEUE)
        await holder.one("jammed-000").ack()
        await holder.one("jammed-001").retry(timedelta(minutes=1))
        await holder.one("jammed-002").reject()
        assert len(twin.rows(BACKLOG_MAILS)) == JAMMED_IN_HAND - 3
        assert len(twin.broker.dead(QUEUE)) == 1
        assert [listed.due_at is None for listed in [one async for one in queue.browse()]].count(False) == 1


async def test_many_sub_queues_have_a_mail_in_hand_each(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Also where there are more of them than the prefetch."""
    some = [f"of{number}-{place}" for place in range(3) for number in range(40)]
    await enqueued(queue, *some)
    async with holding(twin, queue) as holder:
        first = {f"of{number}-0" for number in range(40)}
        assert first <= set(await holder.has())


async def test_backlogs_that_nobody_takes_mails_from_go_back_to_the_broker(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Once a while has passed, in which a server may begin again; then any consumer has them, James too."""
    await enqueued(queue, *jammed(60))
    async with holding(twin, queue) as holder:
        await holder.has()
    stop = asyncio.Event()
    maintaining = asyncio.ensure_future(queue.maintain(stop))
    await twin.clock.pause(ABANDONED_AFTER.total_seconds() / 2)
    assert twin.rows(BACKLOG_MAILS)
    await twin.clock.pause(ABANDONED_AFTER.total_seconds())
    stop.set()
    await maintaining
    assert not twin.rows(BACKLOG_MAILS)
    assert sorted(await all_delivered(queue)) == jammed(60)


async def test_the_broker_lacks_no_message_of_a_mail_in_a_backlog(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *jammed(60))
    async with holding(twin, queue) as holder:
        await holder.has()
        twin.clock.advance(2 * SETTLING.total_seconds())
        assert (await queue.figures()).lacking == 0
        side = await tables_side(queue.view, QUEUE)
        assert len(side.in_backlogs) == 60
        assert await queue.republish(timedelta(0)) == 0


async def test_an_empty_backlog_is_struck_off_the_list_after_a_while(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, *jammed(40))
    async with holding(twin, queue) as holder:
        await holder.has()
        await holder.drained()
        await twin.clock.pause(KEPT_EMPTY_FOR.total_seconds() + SEEN_FOR.total_seconds())
        assert [row["subqueue"] for row in twin.rows(BACKLOGS)] == [""]
        await enqueued(queue, *jammed(40))
        assert len(await holder.has()) == JAMMED_IN_HAND


async def test_a_keyspace_without_the_tables_has_the_mails_as_the_broker_has_them() -> None:
    twin = twin_queue(own=OwnTables(backlogs=False))
    async with await twin.process() as queue, holding(twin, queue) as holder:
        await enqueued(queue, *jammed(60))
        assert not queue.keeps_backlogs
        assert await holder.has() == jammed(PREFETCH)


async def test_each_level_comes_by_its_priority(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """A mail in a backlog keeps it."""
    for name in jammed(40):
        await queue.enqueue(mail(name), CONTENT, priority=9)
    async with holding(twin, queue) as holder:
        await holder.has()
        assert {row["priority"] for row in twin.rows(BACKLOG_MAILS)} == {9}
        assert await holder.drained() == jammed(40)
