"""What a mail queue must do: one suite, run on the queue in memory, on RabbitMQ's over twins, and over real servers.

What only the queue over RabbitMQ has (dead letters in the broker, publishing again) is at the end.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import CassandraCluster
from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.codec import payload_of, priority_of
from mailmend.mailqueue.comparison import Redriven
from mailmend.mailqueue.memory import MemoryMailQueue
from mailmend.mailqueue.metrics import FigureScope, judged
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue
from mailmend.mailqueue.queue import ChangedMail, Dequeued, MaintainedQueue, RemovedMail, RestoreResult
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.health import HealthProblem
from mailmend.mailqueue.rules.mails import Listed, MailFilter, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import BlobMissing, WrongUse
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import instant_of
from mailmend.model.keyspace import Schema
from tests.support.brokers import Broker
from tests.support.clock import VirtualClock
from tests.support.keyspaces import created, dropped
from tests.support.mail_queues import (
    InMemory,
    PulsarServers,
    Servers,
    Sides,
    World,
    names_taken,
    one_of,
    pulsar_sides_of,
    sides_of,
    story_of,
    taken,
    until,
)
from tests.support.object_stores import S3
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import RealPulsar
from tests.support.queues import CONTENT, enqueued, listed, mail, names

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.fixture(scope="session")
def real(cluster: CassandraCluster, rabbitmq: Broker, s3: S3) -> Iterator[Servers]:
    name = f"g_conformance_{uuid4().hex[:8]}"
    keyspace = created(cluster, name, Schema((), (EVENT_STORE, *QUEUE_TABLES)))
    with rabbitmq.vhost() as vhost:
        hosts = (Host(rabbitmq.host, rabbitmq.port),)
        yield Servers(keyspace, BrokerSettings(hosts, vhost), s3.bucket())
    dropped(cluster, (name,))


_REAL = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]


@pytest.fixture(scope="session")
def real_pulsar(pulsar: RealPulsar, s3: S3) -> PulsarServers:
    return PulsarServers(pulsar.settings, s3.bucket())


_REAL_PULSAR = [pytest.mark.pulsar, pytest.mark.object_store]


@pytest.fixture(params=["twins", pytest.param("real", marks=_REAL)])
def servers(request: pytest.FixtureRequest) -> Servers | None:
    found: Servers | None = request.getfixturevalue("real") if request.param == "real" else None
    return found


_KINDS = ["memory", "twins", pytest.param("real", marks=_REAL), "pulsar_twins", "partitioned_twins"]

real_pulsar_is_thorough = pytest.mark.parametrize(
    "kind", [*_KINDS, pytest.param("real_pulsar", marks=[*_REAL_PULSAR, pytest.mark.thorough])], indirect=True
)
"""For what the queue does in the same way whatever a topic does: `make test` shows it over the twin of Pulsar."""


@pytest.fixture(params=[*_KINDS, pytest.param("real_pulsar", marks=_REAL_PULSAR)])
def kind(request: pytest.FixtureRequest) -> Servers | PulsarServers | str:
    name: str = request.param
    found: Servers | PulsarServers | str = request.getfixturevalue(name) if name.startswith("real") else name
    return found


@pytest.fixture
async def three(servers: Servers | None) -> AsyncIterator[Sides]:
    async with sides_of(servers) as sides:
        yield sides


@pytest.fixture
async def world(kind: Servers | PulsarServers | str) -> AsyncIterator[World]:
    if kind == "memory":
        clock = VirtualClock()
        yield InMemory(clock, MemoryMailQueue(QueueName("q-memory"), clock))
        return
    if kind in {"pulsar_twins", "partitioned_twins"} or isinstance(kind, PulsarServers):
        partitions = 3 if kind == "partitioned_twins" else 0
        async with pulsar_sides_of(kind if isinstance(kind, PulsarServers) else None, partitions) as pulsar_sides:
            yield pulsar_sides
        return
    async with sides_of(kind if isinstance(kind, Servers) else None) as sides:
        yield sides


@pytest.fixture
async def queue(world: World) -> AsyncIterator[MaintainedQueue]:
    async with await world.process() as queue:
        yield queue


@pytest.fixture
async def other(world: World) -> AsyncIterator[MaintainedQueue]:
    async with await world.process() as queue:
        yield queue


@pytest.fixture
async def rabbit(three: Sides) -> AsyncIterator[RabbitMailQueue]:
    async with await three.process() as queue:
        yield queue


async def test_a_mail_goes_through_the_queue(queue: MaintainedQueue) -> None:
    """Listed, counted, delivered whole, done: and then neither listed nor counted, and its bytes are gone."""
    attributes = {"note": '{"serializer":"StringSerializer","value":"ünï"}'}
    enqueue_id = await queue.enqueue(mail("through", attributes, error_message="none"), CONTENT)
    (shown,) = await listed(queue)
    assert (shown.queued.enqueue_id, shown.whereabouts) == (enqueue_id, Whereabouts.WAITING)
    assert await queue.content(shown) == CONTENT
    size = await queue.size()
    assert (size.mails, size.delayed, size.kind) == (1, 0, SizeKind.EXACT)
    one = await one_of(queue, lambda one: one.ack())
    assert (one.queued, one.content) == (shown.queued, CONTENT)
    assert not await names(queue)
    assert (await queue.size()).mails == 0
    await queue.close()
    with pytest.raises(BlobMissing):
        await queue.content(shown)


async def test_a_delayed_mail_is_changed_in_its_place(
    world: World, queue: MaintainedQueue, other: MaintainedQueue
) -> None:
    """Its envelope and its time, seen by every process; its id and its bytes stay. One that waits is left alone."""
    waits = await queue.enqueue(mail("waits"), CONTENT)
    was = await queue.enqueue(mail("was"), CONTENT, delay=3600 * SECOND)

    def now(one: Listed) -> ChangedMail | None:
        if one.queued.mail.name == "is":
            return None
        return ChangedMail(replace(one.queued.mail, name="is", recipients=("cy@example.org",)), one.enqueued_at)

    assert (await queue.change(now, dry_run=True)).count == 1
    assert await names(queue) == ["waits", "was"]
    assert (await queue.change(now)).count == 1
    assert (await other.change(now)).count == 0

    async def moved() -> bool:
        await other.move_due()
        return not await listed(queue, MailFilter(whereabouts=Whereabouts.DELAYED))

    await until(moved, world.clock)
    found = {one.mail.name: one for one in await taken(other)}
    assert {name: one.enqueue_id for name, one in found.items()} == {"waits": waits, "is": was}
    assert (found["is"].mail.recipients, found["is"].content) == (("cy@example.org",), CONTENT)


async def test_many_at_once_from_several_processes(
    world: World, queue: MaintainedQueue, other: MaintainedQueue
) -> None:
    async with await world.process() as third:
        wanted = {f"{number}" for number in range(99)}
        async with asyncio.TaskGroup() as tasks:
            for number, one in enumerate((queue, other, third) * 33):
                tasks.create_task(one.enqueue(mail(f"{number}"), CONTENT))
        assert set(await names(queue)) == wanted
        worked = Counter[str]()

        async def work(taker: MaintainedQueue) -> None:
            async with taker.dequeue(prefetch=10) as mails:
                while worked.total() < 99:
                    try:
                        async with asyncio.timeout(0.5):
                            mail_ = await anext(mails)
                    except TimeoutError:
                        continue
                    worked[mail_.mail.name] += 1
                    await mail_.ack()

        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(work(other))
            tasks.create_task(work(third))
        assert worked == Counter(wanted)
        assert not await names(queue)


@real_pulsar_is_thorough
async def test_what_was_not_settled_comes_again(queue: MaintainedQueue) -> None:
    await enqueued(queue, "a")
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue() as mails:
        await anext(mails)
    again = await one_of(queue, lambda one: one.ack())
    assert again.redelivered
    assert not await names_taken(queue)


@real_pulsar_is_thorough
async def test_a_bound_on_bytes_holds_up_no_mail_for_ever(queue: MaintainedQueue) -> None:
    """Fewer are held at once than there are; each that leaves makes room for another."""
    for number in range(30):
        await queue.enqueue(mail(f"{number}"), CONTENT)
    came, unacked = list[str](), list[Dequeued]()
    async with queue.dequeue(30, bytes_max=3 * len(CONTENT)) as mails:
        async for one in mails:
            came.append(one.mail.name)
            unacked.append(one)
            if len(unacked) == 2 or len(came) == 30:
                await unacked.pop(0).ack()
            if len(came) == 30:
                break
        for one in unacked:
            await one.ack()
    assert sorted(map(int, came)) == list(range(30))


async def test_a_delayed_mail_comes_in_its_time(world: World, queue: MaintainedQueue, other: MaintainedQueue) -> None:
    """Listed with its time, moved when it is over, by one of the processes that maintain the queue."""
    for number in range(20):
        await queue.enqueue(mail(f"{number}"), CONTENT, delay=SECOND)
    assert {shown.whereabouts for shown in await listed(queue)} == {Whereabouts.DELAYED}
    assert (await queue.size()).delayed == 20

    async def all_moved() -> bool:
        return (await queue.size()).delayed == 0

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for one in (queue, other):
            tasks.create_task(one.maintain(stop))
        await until(all_moved, world.clock)
        stop.set()
    assert sorted(map(int, await names_taken(queue))) == list(range(20))


@real_pulsar_is_thorough
async def test_a_mail_that_is_enqueued_again_under_its_id_is_one_mail(
    world: World, queue: MaintainedQueue, other: MaintainedQueue
) -> None:
    """As after a crash between the enqueue and what follows; over topics a copy may come, under the same id."""
    known_as, found = EnqueueId(uuid4()), list[EnqueueId]()

    async def moved() -> bool:
        await other.move_due()
        return not await listed(queue, MailFilter(whereabouts=Whereabouts.DELAYED))

    for some in ((queue, other), (queue,)):
        for one in some:
            assert await one.enqueue(mail("again"), CONTENT, delay=SECOND, known_as=known_as) == known_as
        await until(moved, world.clock)
        found += [one.enqueue_id for one in await taken(queue)]
    assert set(found) == {known_as}
    assert len(found) == 1 or isinstance(queue, PulsarMailQueue)


@real_pulsar_is_thorough
async def test_a_mail_that_came_out_of_the_queue_goes_back_as_it_was(queue: MaintainedQueue) -> None:
    """Given an address that a new mail may not have: James, or an older version, put it there. Nothing loses it."""
    foreign = replace(mail("foreign"), recipients=("bøb@one.test",))
    with pytest.raises(WrongUse, match=r"recipients\[0\] is no address"):
        await queue.enqueue(foreign, CONTENT, delay=HOUR)
    await queue.enqueue(foreign, CONTENT, delay=HOUR, was_queued=True)

    def sooner(one: Listed) -> ChangedMail:
        return ChangedMail(replace(one.queued.mail, error_message="later"), one.enqueued_at)

    assert (await queue.change(sooner)).count == 1
    await queue.flush()
    (found,) = await taken(queue)
    assert (found.mail.recipients, found.mail.error_message) == (("bøb@one.test",), "later")


@real_pulsar_is_thorough
async def test_a_flush_ends_every_wait(queue: MaintainedQueue, other: MaintainedQueue) -> None:
    for hours in range(1, 31):
        await queue.enqueue(mail(f"{hours}"), CONTENT, delay=timedelta(hours=hours))
    due = [shown.due_at for shown in await listed(queue)]
    foretold = await queue.flush(dry_run=True)
    assert (foretold.count, foretold.earliest_at, foretold.latest_at) == (30, due[0], due[-1])
    assert await queue.move_due(dry_run=True) == await queue.move_due() == 0
    assert (await queue.size()).delayed == 30
    assert sum(one.count for one in await asyncio.gather(queue.flush(), other.flush())) == 30
    assert sorted(map(int, await names_taken(queue))) == list(range(1, 31))


@real_pulsar_is_thorough
async def test_a_retried_mail_comes_again_with_itsstory_of(queue: MaintainedQueue) -> None:
    (enqueue_id,) = await enqueued(queue, "a")
    await one_of(queue, lambda one: one.retry(error_message="no\udce4 route" + "x" * 4_000))
    (shown,) = await listed(queue)
    assert (shown.whereabouts, shown.attempts) == (Whereabouts.DELAYED, 1)
    assert not await names_taken(queue)
    assert (await queue.flush()).count == 1
    again = await one_of(queue, lambda one: one.ack())
    assert (again.enqueue_id, again.attempts, again.content) == (enqueue_id, 1, CONTENT)
    assert again.mail.error_message == "no\ufffd route" + "x" * 2_034 + "..."
    assert not await names(queue)


async def test_what_was_deleted_is_never_delivered(queue: MaintainedQueue) -> None:
    """Waiting or delayed, by condition or all together; counted exactly, and no dead letter."""
    await enqueued(queue, "a", "b", "c")
    for name in "de":
        await queue.enqueue(mail(name), CONTENT, delay=SECOND)
    assert (await queue.delete(MailFilter(name="b"))).count == 1
    assert (await queue.purge(dry_run=True)).count == 4
    assert (await queue.delete(MailFilter(whereabouts=Whereabouts.DELAYED))).count == 2
    assert (await queue.purge()).count == 2
    assert not await names(queue)
    assert (await queue.flush()).count == 0
    assert not await names_taken(queue)
    assert (depth := (await queue.figures()).depth)
    assert depth.dead == 0


@real_pulsar_is_thorough
async def test_urgent_mail_comes_first(queue: MaintainedQueue) -> None:
    for priority in (0, 9):
        await queue.enqueue(mail(f"{priority}"), CONTENT, priority=priority)
    seen = list[int]()
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue(priorities=[0, 9]) as mails:
        async for one in mails:
            seen.append(priority_of(one.mail))
            await one.ack()
            if len(seen) == 2:
                break
    assert sorted(seen) == [0, 9]
    assert not await names(queue)


async def test_a_connection_that_is_lost_costs_no_work(queue: MaintainedQueue, other: MaintainedQueue) -> None:
    """What was in hand is acked all the same: its mark stands, and whoever gets it again drops it."""
    await enqueued(queue, "a")
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue() as mails:
        one = await anext(mails)
    await one.ack()
    assert not await names_taken(other)
    assert not await names(other)


async def test_what_leaves_another_queue_comes_once(world: World, queue: MaintainedQueue) -> None:
    """With its id and its story, however often its putting is begun, and also where it has left since."""
    waits, later = EnqueueId(uuid4()), EnqueueId(uuid4())
    since = instant_of(world.clock.micros()).replace(microsecond=0) - 7200 * SECOND
    arrivals = await queue.arrivals("a-move", ())

    async def coming(enqueue_id: EnqueueId, name: str, due_at: datetime | None = None) -> Listed:
        queued = QueuedMail(enqueue_id, mail(name, error_message="451 later"), await arrivals.keep(CONTENT))
        where = Whereabouts.DELAYED if due_at else Whereabouts.WAITING
        return Listed(queued, since, where, due_at=due_at, attempts=2)

    come = [await coming(waits, "waits"), await coming(later, "later", since + 99 * 3600 * SECOND)]
    assert not await arrivals.had([waits, later])
    for one in come:
        await arrivals.put(one)
    assert sorted(map(story_of, await listed(queue))) == sorted(map(story_of, come))

    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue() as mails:
        in_hand = await anext(mails)
        assert (in_hand.enqueue_id, in_hand.content, in_hand.attempts) == (waits, CONTENT, 2)
        await in_hand.leave()
    again = await queue.arrivals("a-move", [waits, later])
    for one in come:
        await again.put(one, again=True)
    await again.end()
    assert not await names_taken(queue)
    assert [shown.queued.enqueue_id for shown in await listed(queue)] == [later]


async def test_what_was_removed_is_restored_once(queue: MaintainedQueue) -> None:
    """However often that is begun; what never left stays, and what has left again does not come back."""
    stays, was = await enqueued(queue, "stays", "removed")
    await queue.delete(MailFilter(name="removed"))

    async def restored(enqueue_id: EnqueueId) -> RestoreResult:
        restoring = await queue.restoring([enqueue_id])
        return await restoring.restore(RemovedMail(enqueue_id, mail("again"), CONTENT))

    assert await restored(was) is RestoreResult.PUT
    assert await restored(stays) is RestoreResult.STAYS
    assert sorted(await names_taken(queue)) == ["again", "stays"]
    assert await restored(was) is RestoreResult.NOTHING
    assert not await names_taken(queue)


@real_pulsar_is_thorough
async def test_a_queue_shows_its_figures(queue: MaintainedQueue) -> None:
    """What waits, what is delayed, since when; a queue in which nothing is wrong is well."""
    await enqueued(queue, "a", "b")
    await queue.enqueue(mail("later"), CONTENT, delay=timedelta(hours=1))
    (first, *_) = await listed(queue)
    figures = await queue.figures()
    assert (figures.mails, figures.delayed, figures.oldest_at) == (2, 1, first.enqueued_at)
    assert {reason.trouble for reason in judged(figures)} <= {HealthProblem.NO_CONSUMER}
    mails, starts = await queue.figures(FigureScope.MAILS), await queue.figures(FigureScope.STARTS)
    assert (mails.mails, mails.delayed, mails.depth) == (2, 1, None)
    assert (starts.mails or 0, starts.oldest_at, starts.browse_start) == (0, None, mails.browse_start)


@real_pulsar_is_thorough
async def test_traffic_is_the_difference_of_two_looks(queue: MaintainedQueue, other: MaintainedQueue) -> None:
    """Whoever enqueued or acked; a size that is counted anew is the same."""
    await enqueued(queue, "before")
    assert (await queue.size()).mails == 1
    first = await other.traffic_sums()
    await enqueued(queue, "a", "b")
    await one_of(queue, lambda one: one.ack())
    await queue.size()
    assert (second := await other.traffic_sums(first))
    assert first
    assert (second.enqueued - first.enqueued, second.marked - first.marked) == (2, 1)
    await queue.recount()
    assert (await other.size()).mails == 2


async def test_dead_letters_go_back_under_their_ids(queue: MaintainedQueue, other: MaintainedQueue) -> None:
    """Those that are meant, once, with their bytes; they were never tried, and the others stay."""
    ids = dict(zip("abc", await enqueued(queue, *"abc"), strict=True))
    async with asyncio.timeout(PATIENCE_SECONDS), queue.dequeue(prefetch=3) as mails:
        for _ in range(3):
            await (await anext(mails)).reject()
    assert not await names(other)
    only_b = MailFilter(name="b")
    assert await other.redrive(where=only_b, dry_run=True) == Redriven(1)
    assert not await names(other)
    assert await other.redrive(where=only_b) == Redriven(1)
    (back,) = await taken(queue)
    assert (back.enqueue_id, back.content, back.attempts) == (ids["b"], CONTENT, 0)
    assert await queue.redrive(limit=1) == Redriven(1)
    assert [await other.redrive(), await other.redrive()] == [Redriven(1), Redriven()]
    assert sorted(await names_taken(queue)) == ["a", "c"]
    assert not await names(other)


async def test_a_rejected_mail_is_a_dead_letter(three: Sides, rabbit: RabbitMailQueue) -> None:
    await enqueued(rabbit, "a")
    rejected = await one_of(rabbit, lambda one: one.reject())
    assert not await names(rabbit)
    async with asyncio.timeout(PATIENCE_SECONDS), three.broker.dead_letters(three.name, 1) as dead:
        letter = await anext(dead)
        assert letter.message.body == payload_of(rejected.queued)
        assert letter.dead_lettered
        await letter.ack()
    assert await three.blobs.exists(rejected.queued.blobs.body)


async def test_what_is_no_mail_is_a_dead_letter_and_stops_nobody(three: Sides, rabbit: RabbitMailQueue) -> None:
    await three.broker.publish(three.name, Message(b"no mail"))
    assert not await names_taken(rabbit)
    async with asyncio.timeout(PATIENCE_SECONDS), three.broker.dead_letters(three.name, 1) as dead:
        letter = await anext(dead)
        assert letter.message.body == b"no mail"
        await letter.ack()


async def test_a_mail_published_twice_is_worked_on_once(three: Sides, rabbit: RabbitMailQueue) -> None:
    await enqueued(rabbit, *"abc")
    assert await rabbit.republish(timedelta(hours=1)) == 0

    async def old_enough() -> bool:
        return await rabbit.republish(timedelta(milliseconds=1), dry_run=True) == 3

    await until(old_enough, three.clock)
    assert await rabbit.republish(timedelta(milliseconds=1)) == 3
    assert sorted(await names_taken(rabbit)) == list("abc")
    assert not await names_taken(rabbit)
