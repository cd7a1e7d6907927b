"""What the mails of topics refer to: all of them, wherever they go meanwhile, or none: then it is said why."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.mailqueue.collection.broker_references import topic_references
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.pulsar.settings import (
    mail_topics,
    out_subscription,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import StoredMessage, TopicMessage
from mailmend.mailqueue.rules.mails import EVERYTHING, MailFilter, Whereabouts
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.model.errors import BrokerUnreachable, SourceUnread
from mailmend.model.ids import QueueName
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_topics import MemoryTopics
from tests.support.queues import CONTENT, QUEUE, enqueued, mail

Story = Callable[[], Awaitable[object]]
HOUR = timedelta(hours=1)
FIRST_READ, ONCE = 4, 2
"""From that request on messages are read; topics are listed so often where nothing is read anew."""


class Disturbed(MemoryTopics):
    """Topics of which something happens before one of the reader's requests.

    Attributes:
        left: how many requests come before that; None: nothing happens.
        lacks: a partition that is not there.
        listed: how often the topics were listed.
    """

    def __init__(self, clock: VirtualClock, partitions: int = 0) -> None:
        super().__init__(clock, partitions)
        self.left: int | None = None
        self.story: Story | None = None
        self.lacks: int | None = None
        self.listed = 0

    async def names(self) -> list[str]:
        self.listed += 1
        return await super().names()

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        await self._disturbed()
        found = await super().backlog(topic, subscription)
        if found is None or self.lacks is None:
            return found
        return Backlog({one: at for one, at in found.partitions.items() if one != self.lacks}, (self.lacks,))

    async def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        await self._disturbed()
        async for one in super().unacked(topic, subscription, after):
            yield one

    async def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        await self._disturbed()
        async for one in super().held(topic, backlog):
            yield one

    async def _disturbed(self) -> None:
        if self.left is None or self.story is None:
            return
        self.left -= 1
        if self.left < 0:
            story, self.story = self.story, None
            await story()


class World:
    """A namespace in memory, and a queue that is open."""

    def __init__(self, folder: Path, partitions: int = 0) -> None:
        self.clock, self.folder = VirtualClock(), folder
        self.topics, self.blobs = Disturbed(self.clock, partitions), MemoryBlobs(self.clock)

    async def queue(self, name: QueueName = QUEUE) -> PulsarMailQueue:
        return await open_queue(name, self.topics, self.blobs, self.clock)

    async def references(self, *named: QueueName) -> dict[str, bool]:
        """Which blobs are referred to, and whether they are needed."""
        found = await topic_references(self.topics, self.clock, self.folder, named)
        needed = dict[str, bool]()
        for one in found.references():
            needed[one.blob_id] = needed.get(one.blob_id, False) or one.needed
        return needed


@pytest.fixture(params=[0, 3])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


async def test_every_mail_counts_wherever_it_is(world: World) -> None:
    """Waiting, delayed, in a consumer's hands, to be tried again, rejected; of every queue of the namespace."""
    queue, other = await world.queue(), await world.queue(QueueName("other"))
    await enqueued(queue, "held", "retried", "rejected", "waits")
    await queue.enqueue(mail("delayed"), CONTENT, delay=HOUR)
    await other.enqueue(mail("alone"), CONTENT, delay=HOUR)
    async with queue.dequeue(3) as mails:
        held, retried, rejected = [await anext(mails) for _ in range(3)]
        await retried.retry(HOUR)
        await rejected.reject()
        references = await world.references(QUEUE, QueueName("other"))

    dead = {rejected.queued.blobs.header, rejected.queued.blobs.body}
    assert references == {one: one not in dead for one in world.blobs.ids}
    assert held.queued.blobs.header in references


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("step", range(14))
@pytest.mark.parametrize("move", ["flush", "retry", "reject"])
async def test_a_mail_that_goes_elsewhere_meanwhile_is_not_missed(
    tmp_path: Path, move: str, step: int, *, trimmed: bool
) -> None:
    """Before whichever of the reader's requests it goes. All is read anew only where the broker deleted something."""
    world = World(tmp_path)
    queue = await world.queue()
    await queue.enqueue(mail("delayed"), CONTENT, delay=HOUR)
    await enqueued(queue, "waits")

    async def story() -> None:
        if move == "flush":
            await queue.flush()
        else:
            async with queue.dequeue(1) as mails:
                taken = await anext(mails)
                await (taken.retry(HOUR) if move == "retry" else taken.reject())
        if trimmed:
            world.topics.trim()

    world.topics.left, world.topics.story = step, story

    assert set(await world.references()) == world.blobs.ids
    assert step > 8 or world.topics.story is None, "it happened"
    if not trimmed and step >= FIRST_READ:
        assert world.topics.listed == ONCE


async def test_a_mail_that_is_done_or_deleted_needs_no_blobs(world: World) -> None:
    """Its blobs go on purpose, and are not missed; while its message is there they are left all the same."""
    queue = await world.queue()
    await enqueued(queue, "deleted", "waits")
    (deleted,) = [one async for one in queue.browse(MailFilter(name="deleted"))]
    topic, subscription = out_topic(QUEUE), out_subscription(QUEUE)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(world.topics, "acknowledge", _forgotten)
        await queue.delete(MailFilter(name="deleted"))

    references = await world.references()
    assert {one for one, needed in references.items() if not needed} == {
        deleted.queued.blobs.header,
        deleted.queued.blobs.body,
    }

    found = await topic_references(world.topics, world.clock, world.folder)
    (waits,) = [one async for one in queue.browse()]
    assert waits.place
    done = Backlog({one: at for one, at in found.after[0].partitions.items() if one != waits.place.partition})
    assert not any(one.needed for one in type(found)(found.lines, [done]).references())
    assert await world.topics.backlog(topic, subscription)


async def _forgotten(*_: object) -> None:
    """Acknowledge nothing."""


async def test_what_is_acknowledged_refers_to_nothing(world: World) -> None:
    queue = await world.queue()
    await enqueued(queue, "done", "waits")
    async with queue.dequeue() as mails:
        done = await anext(mails)
        await done.ack()

    assert not {done.queued.blobs.header, done.queued.blobs.body} & set(await world.references())


async def test_a_message_that_is_no_mail_ends_it(world: World) -> None:
    queue = await world.queue()
    await enqueued(queue, "waits")
    await world.topics.publish(out_topic(QUEUE), TopicMessage("no mail"))

    with pytest.raises(SourceUnread, match="is no mail") as refused:
        await world.references()
    assert "get-message-by-id" in refused.value.mend


async def test_a_partition_that_is_not_there_ends_it(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=3)
    await enqueued(await world.queue(), "waits")
    world.topics.lacks = 2

    with pytest.raises(SourceUnread, match="lacks its partition 2") as refused:
        await world.references()
    assert "create-missed-partitions" in refused.value.mend


async def test_messages_that_the_broker_counts_and_does_not_give_end_it(world: World) -> None:
    await enqueued(await world.queue(), *"abc")
    (topic,) = (one for name, one in world.topics._topics.items() if name == out_topic(QUEUE))
    topic.trimmed.add(topic.messages[1].place)

    with pytest.raises(SourceUnread, match=r"of 3 messages of the topic James-\w+, 2 could be read"):
        await world.references()


async def test_a_broker_that_does_not_answer_ends_it(world: World) -> None:
    await enqueued(await world.queue(), "waits")
    world.topics.away = True

    with pytest.raises(BrokerUnreachable):
        await world.references()


async def test_a_namespace_without_the_queues_is_not_taken_for_an_empty_one(world: World) -> None:
    with pytest.raises(SourceUnread, match="no mail queue is in the namespace public/default"):
        await world.references()
    await enqueued(await world.queue(), "waits")
    with pytest.raises(SourceUnread, match="no topic of the queue outgoing"):
        await world.references(QUEUE, QueueName("outgoing"))


async def test_an_emptied_queue_is_one(world: World) -> None:
    queue = await world.queue()
    await enqueued(queue, "a")
    await queue.delete(EVERYTHING)

    assert await world.references() == {}


def test_topics_of_mails_are_known_by_their_names() -> None:
    """Whichever are there: one without the others, dead letters of delayed mails; not deletions, not of others."""
    found = mail_topics(
        [
            "James-a",
            "b-scheduled",
            "James-a-subscription-a-DLQ",
            "b-scheduled-scheduled-subscription-b-DLQ",
            "pmq-filter-a",
            "pmq-filter-a-scheduled",
            "pmq-filter-scheduled-a",
            "a-mailmend-mover",
            "news",
            "James-",
            "-scheduled",
        ]
    )

    dead = "dead-letter-sub-name"
    assert found == [
        ("James-a", "subscription-a", "a", Whereabouts.WAITING),
        ("James-a-subscription-a-DLQ", dead, "a", None),
        ("b-scheduled", "scheduled-subscription-b", "b", Whereabouts.DELAYED),
        ("b-scheduled-scheduled-subscription-b-DLQ", dead, "b", None),
    ]


def test_a_name_that_may_mean_two_topics_counts_as_both() -> None:
    found = mail_topics(["James-x-scheduled", "James-pmq-filter-x", "pmq-filter-x-scheduled"])

    assert {(one.queue, one.whereabouts) for one in found} == {
        ("x-scheduled", Whereabouts.WAITING),
        ("James-x", Whereabouts.DELAYED),
        ("pmq-filter-x", Whereabouts.WAITING),
        ("pmq-filter-x", Whereabouts.DELAYED),
    }
    assert scheduled_topic(QueueName("x")) == "x-scheduled"
    assert scheduled_subscription(QueueName("x")) == "scheduled-subscription-x"
