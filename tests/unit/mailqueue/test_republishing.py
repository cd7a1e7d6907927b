"""Republishing: what the broker lost comes again under its id, and nobody works on a mail twice for it."""

import asyncio
from datetime import timedelta

import pytest

from mailmend.mailqueue.broker import SLICE_HEADER
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import MailFilter
from mailmend.model.errors import BrokerUnreachable, PublishFailed
from tests.support.memory_broker import Fate
from tests.support.queues import CONTENT, QUEUE, TwinQueue, all_delivered, drained, enqueued, mail, names, twin_queue

MINUTE = timedelta(minutes=1)


async def test_a_broker_that_lost_everything_is_filled_again() -> None:
    """Every mail that waits, with the slice of its row, and none that is done or delayed."""
    twin = twin_queue(buckets=2)
    async with await twin.process() as queue:
        await enqueued(queue, *(f"{number}" for number in range(150)))
        done = await drained(queue, 20)
        await queue.enqueue(mail("later"), CONTENT, delay=60 * MINUTE)
        headers = {message.body: message.headers for _, message, _ in twin.broker.published}
        twin.broker.wipe()
        twin.clock.advance(120)
        assert await queue.republish(MINUTE, dry_run=True) == 130
        assert not twin.broker.ready(QUEUE)
        assert await queue.republish(MINUTE) == 130
        assert all(message.headers == headers[message.body] for message in twin.broker.ready(QUEUE))
        assert all(SLICE_HEADER in message.headers for message in twin.broker.ready(QUEUE))
        taken = await all_delivered(queue)
        assert len(taken) == 130
        assert not {*taken} & {*done, "later"}
        assert twin.counted.of(QueueCount.REPUBLISHED) == 130


async def test_only_what_waits_for_long_and_is_meant(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "old", "other")
    twin.clock.advance(120)
    await enqueued(queue, "young")
    assert await queue.republish(MINUTE, MailFilter(name="o*d")) == 1
    assert await queue.republish(MINUTE) == 2
    assert await queue.republish(5 * MINUTE) == 0


async def test_what_the_broker_still_had_is_worked_on_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The second message of each mail finds the first one's mark, in whatever order they come."""
    await enqueued(queue, *"abcdef")
    twin.clock.advance(120)
    assert await queue.republish(MINUTE) == 6
    twin.broker.out_of_order = True
    assert sorted(await all_delivered(queue)) == list("abcdef")
    assert twin.counted.of(QueueCount.FILTERED) == 6


async def test_a_mail_in_a_consumers_hand_is_not_worked_on_beside_it(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await enqueued(queue, "slow")
    async with queue.dequeue() as mails:
        one = await anext(mails)
        twin.clock.advance(120)
        await queue.republish(MINUTE)
        asking = asyncio.ensure_future(anext(mails))
        await asyncio.sleep(0.01)
        assert not asking.done()
        await one.ack()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert not await all_delivered(queue)


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNREACHABLE], ids=lambda fate: fate.name)
async def test_a_broker_that_takes_no_more_is_reported(fate: Fate, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Nobody takes a part for the whole; what is published again afterwards is no harm."""
    await enqueued(queue, *"abc")
    twin.broker.wipe()
    twin.clock.advance(120)
    twin.broker.will(Fate.KEPT, fate)
    with pytest.raises((PublishFailed, BrokerUnreachable)):
        await queue.republish(MINUTE)
    assert await queue.republish(MINUTE) == 3
    assert sorted(await all_delivered(queue)) == list("abc")
    assert not await names(queue)
