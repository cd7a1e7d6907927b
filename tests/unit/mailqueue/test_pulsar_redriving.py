"""Dead letters of a queue over topics go back into it, each once, whoever dies, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from mailmend.mailqueue.comparison import Redriven
from mailmend.mailqueue.pulsar.settings import DEAD_SUBSCRIPTION, dead_topic, out_subscription, out_topic, redrive_lease
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.mailqueue.rules.mails import Mail, MailFilter, QueuedMail
from mailmend.model.errors import LeaseHeld, PublishFailed, UnsafeRequest
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import Fate
from tests.support.memory_topics import MemoryTopics
from tests.support.queue_wires import StepFault
from tests.support.queue_world import Died, QueueMishap
from tests.support.queues import CONTENT, QUEUE, enqueued, listed, mail, names
from tests.support.skewed import SkewedClock
from tests.support.topic_wires import TopicWorker


class World:
    """The twins of a queue, a process that redrives, and one that takes mails."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.topics, self.blobs = MemoryTopics(self.clock), MemoryBlobs(self.clock)
        self.taker, self.mender = [
            TopicWorker(QUEUE, self.topics, self.blobs, SkewedClock(self.clock, timedelta(0))) for _ in range(2)
        ]

    async def rejected(self, *mail_names: str) -> None:
        """So many dead letters; nothing is left of the mails in the queue."""
        await enqueued(self.taker.queue, *mail_names)
        for one in await self.taker.taken(len(mail_names), 9):
            await one.reject()

    async def dead(self) -> int:
        backlog = await self.topics.backlog(dead_topic(QUEUE), DEAD_SUBSCRIPTION)
        return backlog.count if backlog else 0

    async def came(self, most: int = 9) -> list[str]:
        """What comes, each acked."""
        self.clock.advance(1)
        found = await self.taker.taken(most, 9)
        for one in found:
            await one.ack()
        return [one.mail.name for one in found]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    workers = (found.taker, found.mender)
    for one in workers:
        await one.start()
    yield found
    for one in workers:
        one.fortune.arm()
        await one.leave()
        await one.queue.close()


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("taken_before", [True, False])
async def test_a_redrive_that_was_killed_is_begun_again_and_nothing_comes_twice(
    world: World, step: int, *, taken_before: bool
) -> None:
    """Whether or not the mails are taken before it is."""
    await world.rejected(*"abc")
    world.mender.fortune.arm(QueueMishap(StepFault.DIES_BEFORE, step))
    try:
        await world.mender.queue.redrive()
    except Died:
        await world.mender.restart()
    came = await world.came() if taken_before else []
    await world.mender.queue.redrive()
    assert sorted(came + await world.came()) == list("abc")
    assert await world.dead() == 0


async def test_who_is_killed_meanwhile_is_missed(world: World) -> None:
    """The steps at which the test above kills are all there are."""
    await world.rejected(*"abc")
    world.mender.fortune.arm()
    await world.mender.queue.redrive()
    assert len(world.mender.fortune.steps) <= 8
    assert [step for step in world.mender.fortune.steps if step.startswith("publish")] == [
        f"publish {out_topic(QUEUE)}"
    ] * 3


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNCONFIRMED_KEPT, Fate.UNCONFIRMED_LOST])
async def test_a_publish_that_failed_keeps_the_letter(world: World, fate: Fate) -> None:
    await world.rejected("a")
    world.topics.fates.append(fate)
    with pytest.raises(PublishFailed):
        await world.mender.queue.redrive()
    assert await world.dead() == 1
    assert await world.mender.queue.redrive() == Redriven(1)
    assert await world.came() == ["a"]


async def test_a_copy_that_is_retried_deleted_or_rejected_takes_its_letter_along(world: World) -> None:
    """Where a redrive was killed before it acknowledged them."""
    await world.rejected(*"abc")
    world.mender.fortune.arm(QueueMishap(StepFault.DIES_BEFORE, len(["create", "publish", "publish", "publish"]) + 1))
    with pytest.raises(Died):
        await world.mender.queue.redrive()
    await world.mender.restart()
    assert await world.dead() == 3
    world.clock.advance(1)
    retried, rejected = await world.taker.taken(2, 2)
    await world.taker.queue.delete(MailFilter(name="c"))
    await retried.retry(timedelta(hours=1))
    await rejected.reject()
    assert await world.dead() == 1
    assert await world.mender.queue.redrive() == Redriven(1)
    assert sorted(await names(world.taker.queue)) == sorted((retried.mail.name, rejected.mail.name))


async def test_one_at_a_time(world: World) -> None:
    await world.rejected("a")
    async with world.topics.lease(redrive_lease(QUEUE)):
        with pytest.raises(LeaseHeld):
            await world.mender.queue.redrive()
        assert await world.mender.queue.redrive(dry_run=True) == Redriven(1)


async def test_a_mail_that_is_dead_twice_comes_once(world: World) -> None:
    await world.rejected("a")
    async with asyncio.timeout(1):
        (letter,) = [one async for one in world.topics.unacked(dead_topic(QUEUE), DEAD_SUBSCRIPTION)]
    await world.topics.publish(dead_topic(QUEUE), TopicMessage(letter.payload.decode(), letter.properties))
    assert await world.mender.queue.redrive() == Redriven(2)
    assert await world.came() == ["a"]


async def test_one_that_was_deleted_meanwhile_is_dropped_with_its_bytes(world: World) -> None:
    """Its consumer had it, and rejected it at the same moment."""
    await enqueued(world.taker.queue, "a")
    (letter,) = [one async for one in world.topics.unacked(out_topic(QUEUE), out_subscription(QUEUE))]
    await world.topics.create(dead_topic(QUEUE), DEAD_SUBSCRIPTION)
    await world.topics.publish(dead_topic(QUEUE), TopicMessage(letter.payload.decode()))
    await world.taker.queue.delete(MailFilter(name="a"))
    assert await world.mender.queue.redrive(dry_run=True) == Redriven(dropped=1)
    assert await world.mender.queue.redrive() == Redriven(dropped=1)
    await world.mender.queue.close()
    assert (await world.dead(), await world.came(), world.blobs.ids) == (0, [], set())


async def test_what_is_no_mail_stays(world: World) -> None:
    await world.topics.create(dead_topic(QUEUE), DEAD_SUBSCRIPTION)
    await world.topics.publish(dead_topic(QUEUE), TopicMessage("no mail"))
    assert await world.mender.queue.redrive() == Redriven(unreadable=1)
    assert await world.dead() == 1


async def test_memory_has_a_bound(world: World) -> None:
    await world.rejected("a")
    await enqueued(world.mender.queue, *"bc")
    with pytest.raises(UnsafeRequest):
        await world.mender.queue.redrive(ids_max=1)
    assert await world.dead() == 1


async def test_looking_creates_no_topic(world: World) -> None:
    assert await world.mender.queue.redrive() == Redriven()
    assert await world.topics.names() == []


async def test_a_letter_that_another_james_wrote_goes_back_as_it_is(world: World) -> None:
    """Byte by byte, whichever James the others are for."""
    await world.rejected("a")
    (letter,) = [one async for one in world.topics.unacked(dead_topic(QUEUE), DEAD_SUBSCRIPTION)]
    older = letter.payload.decode().replace('"errorMessage":null,', "")
    assert older != letter.payload.decode()
    await world.topics.acknowledge(dead_topic(QUEUE), DEAD_SUBSCRIPTION, [letter.place])
    await world.topics.publish(dead_topic(QUEUE), TopicMessage(older))
    await world.mender.queue.redrive()
    (back,) = [one async for one in world.topics.unacked(out_topic(QUEUE), out_subscription(QUEUE))]
    assert back.payload.decode() == older
    assert [one.attempts for one in await listed(world.mender.queue)] == [0]


async def test_recipients_that_have_their_mail_are_left_out(world: World) -> None:
    """Of two dead letters one has recipients that lack it, and goes back for them; the other goes with its bytes."""
    await world.taker.queue.enqueue(mail("some", recipients=("ann@example.org", "bob@example.org")), CONTENT)
    await enqueued(world.taker.queue, "all")
    for one in await world.taker.taken(2, 9):
        await one.reject()

    async def lacking(queued: QueuedMail) -> Mail | None:
        return replace(queued.mail, recipients=("bob@example.org",)) if queued.mail.name == "some" else None

    found = await world.mender.queue.redrive(lacking=lacking)

    assert found == Redriven(redriven=1, delivered=1, recipients_skipped=2)
    assert [one.queued.mail.recipients for one in await listed(world.mender.queue)] == [("bob@example.org",)]
    assert (await world.came(), await world.dead()) == (["some"], 0)
