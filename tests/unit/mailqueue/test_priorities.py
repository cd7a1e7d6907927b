"""Priorities: urgent mail first, none starved, and never forgotten on the way."""

from collections import Counter
from datetime import timedelta

import pytest

from mailmend.mailqueue.codec import priority_of
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from tests.support.queues import CONTENT, QUEUE, TwinQueue, all_delivered, listed, mail, next_of

HOUR = timedelta(hours=1)


async def at_levels(queue: RabbitMailQueue, each: int, levels: range = PRIORITIES) -> None:
    for number in range(each):
        for level in levels:
            await queue.enqueue(mail(f"{level}-{number}"), CONTENT, priority=level)


async def test_urgent_mail_is_handed_over_more_often_and_none_starves(queue: RabbitMailQueue) -> None:
    """While mail waits at all levels, each has turns by its weight: the highest ten for each one of the lowest."""
    await at_levels(queue, 12)
    async with queue.dequeue(prefetch=12) as mails:
        turns = Counter[int]()
        for _ in range(55):
            one = await anext(mails)
            turns[priority_of(one.mail)] += 1
            await one.ack()
    assert turns == {level: level + 1 for level in PRIORITIES}


async def test_within_a_level_first_come_is_first_served(queue: RabbitMailQueue) -> None:
    await at_levels(queue, 6, range(8, 9))
    assert await all_delivered(queue) == [f"8-{number}" for number in range(6)]


async def test_a_consumer_may_ask_for_some_levels(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await at_levels(queue, 1)
    async with queue.dequeue(priorities=[0, 9]) as mails:
        taken = []
        while one := await next_of(mails):
            taken.append(one.mail.name)
            await one.ack()
    assert sorted(taken) == ["0-0", "9-0"]
    assert len(twin.broker.ready(QUEUE)) == 8


async def test_a_mail_without_a_priority_is_normal(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await queue.enqueue(mail(), CONTENT)
    ((_, _, level),) = twin.broker.published
    assert level == PRIORITY_NORMAL


@pytest.mark.parametrize("priority", [0, 5, 9])
async def test_a_delayed_mail_keeps_its_priority(priority: int, twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await queue.enqueue(mail(), CONTENT, delay=HOUR, priority=priority)
    twin.clock.advance(3601)
    await queue.move_due()
    assert twin.broker.published[-1][2] == priority
    async with queue.dequeue() as mails:
        await (await anext(mails)).retry()
    await queue.flush()
    assert twin.broker.published[-1][2] == priority
    assert len(twin.broker.published) == 2


async def test_republishing_keeps_the_priority(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await queue.enqueue(mail(), CONTENT, priority=7)
    twin.broker.wipe()
    twin.clock.advance(60)
    assert await queue.republish(timedelta(seconds=30)) == 1
    assert twin.broker.published[-1][2] == 7
    assert priority_of((await listed(queue))[0].queued.mail) == 7
