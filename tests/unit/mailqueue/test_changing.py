"""Delayed mails are changed in their place: a change that dies loses no mail, and delivers none twice."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from mailmend.mailqueue.queue import ChangedMail
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.catalog.mail_queue import DUE_MAILS
from mailmend.model.operations import Put, Remove
from tests.support.queues import CONTENT, HOUR, MINUTE, TwinQueue, all_delivered, delayed, listed, mail, names, until
from tests.support.striking import Refusing, of

SECOND = timedelta(seconds=1)


def later(one: Listed) -> ChangedMail | None:
    """Two hours more, once: the mail says that it was done."""
    assert one.due_at
    if one.queued.mail.state == "later":
        return None
    return ChangedMail(replace(one.queued.mail, state="later"), one.due_at + 2 * HOUR)


async def test_a_change_whose_new_row_is_refused_leaves_the_mail_as_it_was(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """And says so."""
    await queue.enqueue(mail("a"), CONTENT, delay=HOUR)
    before = await listed(queue)
    refusing = Refusing(twin, tables=lambda one: of(Put, DUE_MAILS)(one) and one.row.get("state") == "later")
    changed = await queue.change(later)
    refusing.mend()
    assert (changed.count, len(changed.failed)) == (0, 1)
    assert await listed(queue) == before


async def test_a_change_that_dies_between_its_rows_delivers_the_mail_once(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """When the first of both is due; the second goes with its mark."""
    await queue.enqueue(mail("a"), CONTENT, delay=HOUR)
    refusing = Refusing(twin, tables=of(Remove, DUE_MAILS))
    changed = await queue.change(later)
    refusing.mend()
    assert len(changed.failed) == 1
    assert len(await listed(queue)) == 2
    twin.clock.advance(HOUR.total_seconds() + 1)
    await queue.move_due()
    assert await all_delivered(queue) == ["a"]
    twin.clock.advance(2 * HOUR.total_seconds())
    await queue.move_due()
    assert await all_delivered(queue) == []
    assert await names(queue) == []


async def test_a_change_of_the_envelope_alone_keeps_the_mail_when_its_time_is_now(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """Given the same time again, the new row is not taken for the old one and removed."""
    await queue.enqueue(mail("a"), CONTENT, delay=HOUR)
    twin.clock.advance(2 * HOUR.total_seconds())

    def marked(one: Listed) -> ChangedMail | None:
        assert one.due_at
        done = one.queued.mail.state == "later"
        return None if done else ChangedMail(replace(one.queued.mail, state="later"), one.due_at)

    assert (await queue.change(marked)).count == 1
    (one,) = await listed(queue)
    assert one.queued.mail.state == "later"
    twin.clock.advance(1)
    await queue.move_due()
    assert await all_delivered(queue) == ["a"]


async def test_a_mail_that_was_moved_meanwhile_is_left_alone(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Given that it becomes due while the change waits for its turn, it is delivered once, unchanged."""
    await queue.enqueue(mail("a"), CONTENT, delay=MINUTE)
    twin.clock.advance(61)
    (partition,) = [one async for one in twin.due().partitions(queue.name)]
    asked = 0

    def slow(one: Listed) -> ChangedMail | None:
        nonlocal asked
        asked += 1
        return later(one)

    mover = queue._mover
    assert mover
    async with mover.turns.at_partition(partition) as turn:
        assert turn
        changing = asyncio.ensure_future(queue.change(slow))
        await until(lambda: asked == 1)
        await mover._moved(partition, turn, (), None)
    assert (await changing).count == 0
    assert asked == 1
    assert await all_delivered(queue) == ["a"]


async def test_many_in_several_partitions_are_changed_and_counted(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Each once, though changed ones lie where the change still comes to; sizes stay right."""
    await delayed(queue, {f"m{number}": timedelta(minutes=number + 1) for number in range(150)})
    seen = list[str]()
    dry = await queue.change(later, dry_run=True, on_changed=lambda one: seen.append(one.queued.mail.name))
    assert (dry.count, len(set(seen))) == (150, 150)
    assert (await queue.change(later)).count == 150
    assert (await queue.size()).delayed == 150
    assert {one.queued.mail.state for one in await listed(queue)} == {"later"}
    twin.clock.advance(2 * HOUR.total_seconds())
    assert await queue.move_due() == 0
