"""Deletions of a queue over topics hold, whoever has the mails by then, whatever dies, whatever the broker forgets."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from mailmend.mailqueue.pulsar.deletions import (
    DELETED,
    FOR_NO_MAIL,
    FRESH,
    Deletions,
    deleted_in,
    deleted_text,
    filter_of,
    filter_text,
    filter_topics,
    notice_of,
    progress_in,
    progress_text,
)
from mailmend.mailqueue.pulsar.settings import (
    OWN_SUBSCRIPTION,
    PulsarForm,
    dead_topic,
    filter_topic,
    out_subscription,
    out_topic,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import Following, StoredMessage
from mailmend.mailqueue.rules.deletions import SETTLED, WRITTEN, DeletedMail, Deletion, FilterKind, TopicProgress
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.mailqueue.rules.places import UNPARTITIONED, MessagePlace, TopicPlace
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.model.errors import BadPayload, BrokerUnreachable
from mailmend.model.ids import EnqueueId
from tests.support.clock import VirtualClock
from tests.support.queue_wires import StepFault
from tests.support.queue_world import Died, QueueMishap
from tests.support.queues import CONTENT, NOON, QUEUE, enqueued, mail, names
from tests.support.topic_wires import TopicWorker, TopicWorld

SECOND = timedelta(seconds=1)


@pytest.fixture
async def world() -> AsyncIterator[TopicWorld]:
    found = TopicWorld()
    yield found
    await found.close()


@pytest.fixture
async def taker(world: TopicWorld) -> TopicWorker:
    return await world.worker()


@pytest.fixture
async def other(world: TopicWorld) -> TopicWorker:
    return await world.worker()


async def came(worker: TopicWorker, most: int = 9) -> list[str]:
    return [one.mail.name for one in await worker.taken(most, 9)]


async def test_what_a_process_has_prefetched_is_not_handed_out_once_it_is_deleted(
    taker: TopicWorker, other: TopicWorker
) -> None:
    """Though the consumer looked at what is deleted just before."""
    await enqueued(other.queue, *"abc")
    assert await came(taker, 1) == ["a"]
    assert (await other.queue.delete(MailFilter(name="b"))).count == 1
    assert await came(taker) == ["c"]


async def test_a_delete_is_answered_once_every_process_knows(world: TopicWorld, other: TopicWorker) -> None:
    await enqueued(other.queue, "a")
    begun = world.clock.monotonic()
    await other.queue.delete(MailFilter(name="nobody"))
    assert world.clock.monotonic() == begun
    await other.queue.delete(MailFilter(name="a"))
    assert world.clock.monotonic() - begun > FRESH.total_seconds()


async def test_a_process_that_cannot_ask_hands_nothing_out(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker
) -> None:
    await enqueued(other.queue, *"abc")
    assert await came(taker, 1) == ["a"]
    world.clock.advance(1)
    world.topics.away = True
    assert await came(taker) == []
    world.topics.away = False
    await other.queue.delete(MailFilter(name="b"))
    assert await came(taker) == ["c"]


async def test_what_a_killed_broker_forgot_stays_deleted(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker
) -> None:
    """Listed and counted as before, too; and in the end it is acknowledged again, with its bytes gone."""
    await enqueued(other.queue, *"abc")
    await other.queue.enqueue(mail("later"), CONTENT, delay=3600 * SECOND)
    await other.queue.purge()
    world.topics.die()
    assert await names(other.queue) == []
    size = await other.queue.size()
    assert (size.mails, size.delayed, size.kind) == (0, 0, SizeKind.EXACT)
    figures = await other.queue.figures()
    assert (figures.mails, figures.delayed, figures.oldest_at) == (0, 0, None)
    assert (await other.queue.flush()).count == 0
    assert await came(taker) == []
    backlog = await world.topics.backlog(out_topic(QUEUE), out_subscription(QUEUE))
    assert backlog is not None
    assert backlog.count == 0


async def test_what_was_forgotten_is_acknowledged_again_where_nobody_takes_mails(
    world: TopicWorld, other: TopicWorker
) -> None:
    await enqueued(other.queue, *"ab")
    await other.queue.delete(MailFilter(name="a"))
    world.topics.die()
    assert (await other.queue.keep_up(dry_run=True)).again == 1
    assert (await other.queue.keep_up()).again == 1
    assert (await other.queue.keep_up()).again == 0
    assert await names(other.queue) == ["b"]


@pytest.mark.parametrize("step", range(3))
async def test_who_dies_while_deleting_has_deleted_all_it_kept_or_nothing(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker, step: int
) -> None:
    await enqueued(taker.queue, *"abc")
    kept = list[str]()

    async def keep(one: Listed) -> None:
        kept.append(one.queued.mail.name)

    other.fortune.arm(QueueMishap(StepFault.DIES_BEFORE, step + 1))
    with pytest.raises(Died):
        await other.queue.purge(on_removed=keep)
    assert kept == list("abc")
    world.clock.advance(1)
    assert await came(taker) == (list("abc") if step == 0 else [])


async def test_a_mail_in_hand_may_be_finished_and_does_not_come_again(taker: TopicWorker, other: TopicWorker) -> None:
    await enqueued(other.queue, *"abc")
    one, two, three = await taker.taken(3, 3)
    await other.queue.purge()
    assert await came(taker) == []
    await one.ack()
    await two.retry(timedelta(0))
    await three.reject()
    assert (await other.queue.flush()).count == 0
    assert await came(taker) == []
    depth = (await other.queue.figures()).depth
    assert depth is not None
    assert depth.dead == 0


async def test_a_mail_in_hand_is_remembered_for_longer_than_its_deletion_lives(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailmend.mailqueue.pulsar.deletions.HEARD_MAX", 0)
    await enqueued(other.queue, "a")
    (one,) = await taker.taken(1, 1)
    await other.queue.purge()
    await asyncio.sleep(0)
    assert await came(taker) == []
    for _ in range(3):
        world.topics.write_acks()
        world.clock.advance(3600)
        await other.queue.keep_up()
        assert await came(taker) == []
    assert await world.topics.backlog(filter_topic(QUEUE), OWN_SUBSCRIPTION)
    await one.retry(timedelta(0))
    assert await names(other.queue) == []


async def test_deletions_that_lay_there_are_read_once_however_many_they_are(
    world: TopicWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that read them anew each time would know nothing that is fresh, and hand nothing out."""
    monkeypatch.setattr("mailmend.mailqueue.pulsar.deletions.HEARD_MAX", 2)
    follow, followed = world.topics.follow, list[str]()

    async def counted(topic: str, subscription: str) -> Following:
        followed.append(topic)
        return await follow(topic, subscription)

    monkeypatch.setattr(world.topics, "follow", counted)
    for number in range(5):
        await world.james_deletes(FilterKind.NAME, f"gone-{number}")
    deletions = Deletions(world.topics, QUEUE, world.clock)
    for _ in range(3):
        await deletions.known_now()
    assert followed == list(filter_topics(QUEUE))
    for number in range(3):
        await world.james_deletes(FilterKind.NAME, f"later-{number}")
    for _ in range(3):
        await deletions.known_now()
    assert followed == 2 * list(filter_topics(QUEUE))
    await deletions.close()


async def test_a_copy_that_was_made_meanwhile_is_deleted_too(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker
) -> None:
    """The delayed message is acknowledged, the deletion published; then the copy of a mover that hung arrives."""
    await other.queue.enqueue(mail("a"), CONTENT, delay=60 * SECOND)
    taker.fortune.arm(QueueMishap(StepFault.DIES_AFTER, 2))
    with pytest.raises(Died):
        await taker.queue.flush()
    assert taker.fortune.steps[-1] == f"publish {out_topic(QUEUE)}"
    copy = (await world.topics.backlog(out_topic(QUEUE), out_subscription(QUEUE)) or pytest.fail("no copy")).count
    assert copy == 1
    assert (await other.queue.delete(MailFilter(name="a"))).count == 1
    await taker.restart()
    assert await came(taker) == []


async def test_a_deleted_mail_whose_bytes_are_gone_is_no_dead_letter(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker
) -> None:
    """The broker gives it to a consumer that has looked at what is deleted just before."""
    await enqueued(other.queue, *"ab")
    assert await came(taker, 1) == ["a"]
    await taker.leave()
    await other.queue.delete(MailFilter(name="b"))
    await other.queue.close()  # its bytes are gone
    world.topics.die()
    world.clock.advance(-1)
    assert await came(taker) == ["a"]
    assert await world.topics.backlog(dead_topic(QUEUE), "dead-letter-sub-name") is None


async def test_a_deletion_of_james_holds_for_what_was_there(
    world: TopicWorld, taker: TopicWorker, other: TopicWorker
) -> None:
    await enqueued(other.queue, *"ab")
    await other.queue.enqueue(mail("later", sender="eve@example.org"), CONTENT, delay=60 * SECOND)
    await world.james_deletes(FilterKind.SENDER, "eve@example.org")
    await world.james_deletes(FilterKind.NAME, "a")
    world.clock.advance(1)
    await enqueued(other.queue, "a")
    assert (await other.queue.size()).kind is SizeKind.ESTIMATE
    assert await names(other.queue) == ["b", "a"]
    assert (await other.queue.flush()).count == 0
    assert await came(taker) == ["b", "a"]


async def test_deletions_expire_and_leave_nothing(world: TopicWorld, other: TopicWorker) -> None:
    """Three looks: a checkpoint, what is acknowledged by then, and when that is surely written."""
    await enqueued(other.queue, *"abc")
    await other.queue.delete(MailFilter(name="b"))
    await world.james_deletes(FilterKind.NAME, "c")
    found = [(await other.queue.keep_up()).left]
    for name in "ac":
        await other.queue.delete(MailFilter(name=name))
    for _ in range(3):
        world.clock.advance((max(SETTLED, WRITTEN) + SECOND).total_seconds())
        found.append((await other.queue.keep_up()).left)
    assert found == [2, 3, 0, 0]
    backlog = await world.topics.backlog(filter_topic(QUEUE), OWN_SUBSCRIPTION)
    assert backlog is not None
    assert backlog.count == 0


async def test_a_mail_before_a_deletion_keeps_it(world: TopicWorld, other: TopicWorker) -> None:
    await enqueued(other.queue, *"ab")
    await other.queue.delete(MailFilter(name="b"))
    for _ in range(5):
        world.clock.advance(3600)
        left = (await other.queue.keep_up()).left
    assert left == 1


async def test_many_deletions_are_merged(world: TopicWorld, taker: TopicWorker, other: TopicWorker) -> None:
    await enqueued(other.queue, *map(str, range(25)))
    for number in range(1, 25):
        await other.queue.delete(MailFilter(name=f"{number}"))
    assert (await other.queue.keep_up()).expired == 24
    world.topics.die()
    assert await came(taker) == ["0"]


async def test_looking_creates_no_topic(world: TopicWorld, other: TopicWorker) -> None:
    await other.queue.size()
    await other.queue.figures()
    assert await names(other.queue) == []
    assert (await other.queue.purge(dry_run=True)).count == 0
    assert await world.topics.names() == []


async def test_what_was_read_before_the_broker_went_away_is_not_forgotten(world: TopicWorld) -> None:
    deletions = Deletions(world.topics, QUEUE, world.clock)
    one = DeletedMail(EnqueueId(world.clock.random_uuid()), TopicPlace("out", MessagePlace(UNPARTITIONED, 1, 1)))
    assert not (await deletions.known()).mails
    await deletions.publish(PulsarForm.JAMES_3_9, [one])
    world.topics.away = True
    with pytest.raises(BrokerUnreachable):
        await deletions.known_now()
    world.topics.away = False
    assert list((await deletions.known_now()).mails) == [one.enqueue_id]
    await deletions.close()


# As texts


def test_deletions_and_checkpoints_are_read_back() -> None:
    place = MessagePlace(3, 14, 26)
    mails = [
        DeletedMail(EnqueueId(VirtualClock(seed=seed).random_uuid()), TopicPlace(topic, place))
        for seed, topic in enumerate((out_topic(QUEUE), scheduled_topic(QUEUE)))
    ]
    assert deleted_in(deleted_text(mails)) == tuple(mails)
    progress = TopicProgress({"filters": {-1: (1, -1)}}, {"out": {0: (1, 2), 1: (3, 4)}}, {})
    assert progress_in(progress_text(progress)) == progress


@pytest.mark.parametrize("form", PulsarForm)
def test_james_can_read_it_and_deletes_nothing_by_it(form: PulsarForm) -> None:
    found = filter_of(filter_text(FOR_NO_MAIL, form).encode())
    assert (found.value, found.last_sequence_id) == ("", -1)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"out":1}', '{"out":[1]}', '{"out":[["x","1:2:3"]]}', '{"out":[["1"]]}', '{"out":[[1,2]]}']
)
def test_what_is_no_deletion_is_refused_and_deletes_nothing(text: str) -> None:
    with pytest.raises(BadPayload):
        deleted_in(text)
    stored = StoredMessage(MessagePlace(UNPARTITIONED, 1, 1), b"no filter", {DELETED: text}, NOON)
    assert notice_of("filters", stored) == Deletion(TopicPlace("filters", stored.place), NOON)


@pytest.mark.parametrize("text", ["", '{"heard":1}', '{"heard":{"a":{"x":"1:2"}}}', '{"last":{"a":{"1":"1"}}}'])
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(BadPayload):
        progress_in(text)
