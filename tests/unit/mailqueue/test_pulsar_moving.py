"""Delayed mails over topics come once, whoever dies at whatever step of moving them; they cost little until then."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from mailmend.mailqueue.pulsar.moving import DelayedIndex
from mailmend.mailqueue.pulsar.settings import (
    OWN_SUBSCRIPTION,
    mover_lease,
    out_subscription,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.queue import ChangedMail
from mailmend.mailqueue.rules.deletions import WRITTEN
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.mailqueue.rules.places import Backlog
from tests.support.queue_wires import Side, StepFault
from tests.support.queue_world import Died, QueueMishap
from tests.support.queues import CONTENT, QUEUE, delayed, mail, names
from tests.support.topic_wires import TopicWorker, TopicWorld

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
DEATHS = (StepFault.DIES_BEFORE, StepFault.DIES_AFTER)

Act = Callable[[TopicWorker], Awaitable[object]]


async def flush(worker: TopicWorker) -> object:
    return await worker.queue.flush()


async def move_due(worker: TopicWorker) -> object:
    return await worker.queue.move_due()


async def change(worker: TopicWorker) -> object:
    """Each mail is put off a little, in its place."""

    def put_off(one: Listed) -> ChangedMail:
        assert one.due_at is not None
        return ChangedMail(replace(one.queued.mail, state="put off"), one.due_at + MINUTE)

    return await worker.queue.change(put_off)


ACTS: Final = (flush, move_due, change)


@pytest.fixture(params=[0, 2])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[TopicWorld]:
    found = TopicWorld(request.param)
    yield found
    await found.close()


@pytest.fixture
async def one(world: TopicWorld) -> TopicWorker:
    return await world.worker()


@pytest.fixture
async def other(world: TopicWorld) -> TopicWorker:
    return await world.worker()


async def acked(worker: TopicWorker) -> list[str]:
    """All that comes, acked; its consumer ends."""
    found = list[str]()
    while mails := await worker.taken(1, 4):
        found.append(mails[0].mail.name)
        await mails[0].ack()
    await worker.leave()
    return found


async def reads_of(worker: TopicWorker, act: Act) -> tuple[int, list[str]]:
    """How often it asked for something, and what else it did."""
    worker.fortune.arm(QueueMishap(StepFault.REFUSED, 10**9, side=Side.READS))
    await act(worker)
    return worker.fortune.counts[0], list(worker.fortune.steps)


async def backlog(world: TopicWorld, topic: str, subscription: str) -> Backlog:
    found = await world.topics.backlog(topic, subscription)
    assert found is not None
    return found


@pytest.mark.parametrize("lying", [0, 300])
async def test_a_look_with_nothing_due_asks_once_what_is_new_whatever_lies_there(
    world: TopicWorld, one: TopicWorker, lying: int
) -> None:
    for number in range(lying):
        await one.queue.enqueue(mail(f"{number}"), CONTENT, delay=DAY)
    await move_due(one)
    assert await reads_of(one, move_due) == (1, [])
    await one.queue.enqueue(mail("soon"), CONTENT, delay=MINUTE)
    world.clock.advance(30)
    assert await reads_of(one, move_due) == (1, [])
    world.clock.advance(30)
    assert await one.queue.move_due() == 1
    assert await acked(one) == ["soon"]


async def test_one_process_keeps_the_index_until_it_ends(
    world: TopicWorld, one: TopicWorker, other: TopicWorker
) -> None:
    await delayed(one.queue, {"a": MINUTE, "b": 2 * MINUTE})
    assert await one.queue.move_due() == 0
    world.clock.advance(60)
    assert await other.queue.move_due() == 0
    assert await one.queue.move_due() == 1
    world.clock.advance(60)
    await one.restart()
    assert await other.queue.move_due() == 1
    assert await acked(one) == ["a", "b"]


async def test_an_index_stands_while_others_flush_delete_and_change(
    world: TopicWorld, one: TopicWorker, other: TopicWorker
) -> None:
    await delayed(one.queue, {"flushed": MINUTE, "deleted": MINUTE, "changed": MINUTE})
    assert await one.queue.move_due() == 0
    await other.queue.delete(MailFilter(name="deleted"))
    await other.queue.change(
        lambda found: (
            ChangedMail(found.queued.mail, world.clock.now + DAY) if found.queued.mail.name == "changed" else None
        )
    )
    await delayed(other.queue, {"later": 2 * MINUTE})
    world.clock.advance(60)
    assert await one.queue.move_due() == 1
    world.clock.advance(60)
    assert await one.queue.move_due() == 1
    assert await acked(one) == ["flushed", "later"]
    assert await names(one.queue) == ["changed"]


async def test_more_than_an_index_has_room_for_comes_in_its_time(
    world: TopicWorld, one: TopicWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailmend.mailqueue.pulsar.moving.DelayedIndex", partial(DelayedIndex, 4))
    for number in range(30):
        await one.queue.enqueue(mail(f"{number}"), CONTENT, delay=(number % 3 + 1) * MINUTE)
    for moved in (0, 10, 10, 10):
        assert await one.queue.move_due() == moved
        world.clock.advance(60)
    assert sorted(await acked(one), key=int) == [f"{number}" for number in range(30)]


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("act", ACTS)
async def test_each_mail_comes_once_whatever_step_its_mover_dies_at(act: Act, death: StepFault) -> None:
    """In between others take what is there; the next mover has its index since before."""
    for step in range(100):
        world = TopicWorld()
        one, other = await world.worker(), await world.worker()
        await delayed(one.queue, dict.fromkeys("abc", MINUTE))
        if act is not move_due:
            await other.queue.move_due()
        world.clock.advance(60)
        died = await dies_at(one, act, death, step)
        came = await acked(other) if step % 2 else []
        world.clock.advance(60)
        await other.queue.move_due()
        came += await acked(other)
        assert sorted(came) == ["a", "b", "c"], (step, one.fortune.steps)
        assert await names(other.queue) == []
        assert (await other.queue.flush()).count == 0
        await world.close()
        if not died:
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("act", ACTS)
async def test_what_is_deleted_in_between_does_not_come_and_leaves_no_copy(act: Act, death: StepFault) -> None:
    for step in range(100):
        world = TopicWorld()
        one, other = await world.worker(), await world.worker()
        await delayed(one.queue, dict.fromkeys("abc", MINUTE))
        world.clock.advance(60)
        died = await dies_at(one, act, death, step)
        kept = list[str]()
        assert (await other.queue.delete(MailFilter(name="b"), on_removed=partial(keep, kept))).count == 1
        await other.queue.flush()
        assert kept == ["b"]
        assert sorted(await acked(other)) == ["a", "c"], step
        assert await names(other.queue) == []
        assert (await backlog(world, out_topic(QUEUE), out_subscription(QUEUE))).count == 0
        assert (await backlog(world, scheduled_topic(QUEUE), scheduled_subscription(QUEUE))).count == 0
        await world.close()
        if not died:
            return
    raise AssertionError("it never ended")


async def keep(kept: list[str], one: Listed) -> None:
    kept.append(one.queued.mail.name)


async def dies_at(worker: TopicWorker, act: Act, death: StepFault, step: int) -> bool:
    worker.fortune.arm(QueueMishap(death, step))
    try:
        await act(worker)
    except Died:
        await worker.restart()
        return True
    return False


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("next_act", [flush, move_due])
async def test_what_was_taken_and_acked_does_not_come_again_when_the_broker_forgets_that_it_was_moved(
    act: Act, next_act: Act
) -> None:
    """Its copy is acked for good; the acknowledgement of the delayed message is forgotten; a new mover comes."""
    world = TopicWorld()
    one, other = await world.worker(), await world.worker()
    await delayed(one.queue, dict.fromkeys("abc", MINUTE))
    world.clock.advance(60)
    await act(one)
    world.clock.advance(60)
    await move_due(one)
    assert sorted(await acked(one)) == ["a", "b", "c"]
    world.topics.write_acks(out_topic(QUEUE))
    world.topics.die()
    assert (await backlog(world, scheduled_topic(QUEUE), scheduled_subscription(QUEUE))).count >= 3
    await one.restart()
    await next_act(other)
    assert await acked(other) == []
    assert (await backlog(world, scheduled_topic(QUEUE), scheduled_subscription(QUEUE))).count == 0
    await world.close()


async def test_the_keeper_itself_puts_that_in_order_within_a_minute(world: TopicWorld, one: TopicWorker) -> None:
    await delayed(one.queue, {"a": MINUTE, "b": DAY})
    world.clock.advance(60)
    assert await one.queue.move_due() == 1
    assert await acked(one) == ["a"]
    world.topics.write_acks(out_topic(QUEUE))
    world.topics.die()
    world.clock.advance(60)
    assert await one.queue.move_due() == 0
    assert await names(one.queue) == ["b"]


async def test_what_james_moved_and_a_broker_forgot_comes_in_the_end(world: TopicWorld, one: TopicWorker) -> None:
    """Nobody noted it, so it is a delayed mail like others: the index is read again as the broker began anew."""
    await delayed(one.queue, {"a": MINUTE})
    assert await one.queue.move_due() == 0
    (place,) = [found.place async for found in world.topics.unacked(scheduled_topic(QUEUE), "anybody")]
    await world.topics.acknowledge(scheduled_topic(QUEUE), scheduled_subscription(QUEUE), [place])
    world.clock.advance(60)
    assert await one.queue.move_due() == 0
    world.topics.die()
    world.clock.advance(60)
    assert await one.queue.move_due() == 1


async def test_notes_expire_once_the_broker_has_written_what_they_are_about(
    world: TopicWorld, one: TopicWorker
) -> None:
    for _ in range(3):
        await delayed(one.queue, {"a": MINUTE, "b": DAY})
        world.clock.advance(60)
        assert await one.queue.move_due() == 1
    notes = await backlog(world, mover_lease(QUEUE), OWN_SUBSCRIPTION)
    assert notes.count == 2 * 3
    world.clock.advance(WRITTEN.total_seconds())
    await one.queue.move_due()
    assert (await backlog(world, mover_lease(QUEUE), OWN_SUBSCRIPTION)).count == 0


async def test_what_is_no_mail_becomes_a_dead_letter_when_it_is_due(world: TopicWorld, one: TopicWorker) -> None:
    await delayed(one.queue, {"a": MINUTE})
    await world.topics.publish(scheduled_topic(QUEUE), TopicMessage("no mail \udcff", event_at=0))
    await move_due(one)
    assert await acked(one) == []
    figures = await one.queue.figures()
    assert figures.depth is not None
    assert (figures.depth.dead, figures.delayed) == (1, 1)


async def test_a_mover_that_lost_its_lease_begins_nothing(world: TopicWorld, one: TopicWorker) -> None:
    await delayed(one.queue, {"a": MINUTE})
    one.fortune.arm(QueueMishap(StepFault.REFUSED, 1))
    with pytest.raises(Exception, match="refused"):
        await one.queue.flush()
    assert one.fortune.steps[-1] == "note"
    assert await names(one.queue) == ["a"]
    assert await acked(one) == []
