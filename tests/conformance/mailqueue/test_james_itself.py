"""James's own queue and ours are one queue: each reads, lists, counts, removes and finishes what the other put there.

James 3.8.1 itself, not what it once wrote: its classes work on the same keyspace, broker and blobs as ours, at the same
time. Its clock and ours can be turned; all else is as in production.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.mailqueue.blobs.cassandra import open_cassandra
from mailmend.mailqueue.broker import Broker
from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, HashSpelling
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.mails import Mail, MailFilter, RecipientHeader, Whereabouts
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS, OwnTables
from mailmend.model.errors import ConfigurationRefused
from mailmend.model.ids import QueueName
from mailmend.model.operations import Scan
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from tests.support.brokers import Broker as RabbitServer
from tests.support.james_itself import MAILS, TABLES, Given, JamesItself, JamesRefused, Place
from tests.support.keyspaces import created, dropped
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queues import HOURLY, listed
from tests.support.servers import CassandraServer
from tests.support.thorough import share

SHARED = OwnTables(tallies=False)
"""Our tables where James works too: it tells nobody what it enqueues and finishes, so that rows have to be counted."""

LATER = timedelta(hours=5)
LAST = Given(Mail("the last", ("to@example.test",), "from@example.test"), b"Subject: the last\r\n\r\n")


@dataclass(slots=True)
class TurnedClock(SystemClock):
    """This machine's clock, and so much later."""

    later: timedelta = timedelta()

    def micros(self) -> int:
        return SystemClock.micros(self) + self.later // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """One queue, open to James and, within `ours()`, to us."""

    name: QueueName
    james: JamesItself
    place: Place
    keyspace: Keyspace
    clock: TurnedClock
    naming: BlobNaming | None = None

    @asynccontextmanager
    async def broker(self) -> AsyncGenerator[Broker]:
        host = Host(self.place.broker.host, self.place.broker.port)
        broker = RabbitBroker(BrokerSettings((host,), self.place.vhost), self.clock)
        try:
            yield broker
        finally:
            await broker.close()

    @asynccontextmanager
    async def ours(self) -> AsyncGenerator[RabbitMailQueue]:
        tables = AsyncKeyspace(self.keyspace)
        blobs = open_cassandra(tables, self.clock, self.naming)
        async with (
            self.broker() as broker,
            await open_queue(self.name, tables, broker, blobs, self.clock, own=SHARED) as queue,
        ):
            yield queue

    def turn(self, later: timedelta) -> None:
        self.clock.later = later
        self.james.ask("turn", seconds=round(later.total_seconds()))


@pytest.fixture(scope="module")
def shared(
    james: JamesItself, cassandra: CassandraServer, rabbitmq: RabbitServer, cluster: CassandraCluster
) -> Iterator[tuple[Place, Keyspace]]:
    """A keyspace and a virtual host in which James is started; each story has a queue of its own there."""
    keyspace = created(cluster, f"j_itself_{uuid4().hex[:8]}", TABLES)
    with rabbitmq.vhost() as vhost:
        place = Place(cassandra, keyspace.name, rabbitmq, vhost)
        james.open(place, HOURLY)
        yield place, keyspace
        james.close()
    dropped(cluster, (keyspace.name,))


@pytest.fixture
def pair(james: JamesItself, shared: tuple[Place, Keyspace]) -> Pair:
    place, keyspace = shared
    name = QueueName(f"q{uuid4().hex[:8]}")
    if james.place != place:
        james.open(place, HOURLY)
    james.use(name)
    return Pair(name, james, place, keyspace, TurnedClock())


async def test_what_james_enqueues_we_deliver_as_it_was(pair: Pair) -> None:
    """Envelope, every kind of attribute, headers of one recipient, and each byte of the content; then it is gone."""
    pair.james.enqueue(*MAILS)

    async with pair.ours() as queue:
        size = await queue.size()
        names = [one.queued.mail.name for one in await listed(queue)]
        taken = await _taken(queue, len(MAILS))

    assert size.mails == len(MAILS)
    assert names == [one.mail.name for one in MAILS]
    assert _by_name(taken) == _by_name(MAILS)
    assert (pair.james.size(), pair.james.browse()) == (0, [])


@pytest.mark.parametrize("deduplicated", [False, True])
async def test_what_we_enqueue_james_lists_and_delivers_as_it_was(pair: Pair, *, deduplicated: bool) -> None:
    """Whichever ids its blobs have; our header on the message is nothing to James; then it is gone for us too."""
    naming = BlobNaming(BlobsMode.DEDUPLICATED, HashSpelling.BASE64) if deduplicated else None

    async with replace(pair, naming=naming).ours() as queue:
        for one in MAILS:
            await queue.enqueue(one.mail, one.content)
        seen, size = pair.james.browse(), pair.james.size()
        taken = pair.james.take(lambda taken: len(taken) == len(MAILS))
        left, counted = await listed(queue), await queue.size()

    assert [one.mail.name for one in seen] == [one.mail.name for one in MAILS]
    assert _by_name(seen) == _by_name(taken) == _by_name(MAILS)
    assert (size, left, counted.mails) == (len(MAILS), [], 0)


async def test_what_james_removes_of_ours_is_never_delivered_by_us(pair: Pair) -> None:
    """By sender, by recipient, by name, and then all: we list what is left, and drop what the broker still holds."""
    async with pair.ours() as queue:
        for one in (_mail("a", sender="ann@x.test"), _mail("b", "bob@x.test"), _mail("c"), _mail("d"), _mail("e")):
            await queue.enqueue(one.mail, one.content)
        left = [await _left_after(pair, queue, *removal) for removal in REMOVALS]
        await queue.enqueue(LAST.mail, LAST.content)
        taken = await _taken(queue, 3)
        await queue.enqueue(LAST.mail, LAST.content)
        pair.james.ask("clear")
        depth, after_all = await _settled(queue, pair), await listed(queue)

    assert left == [["b", "c", "d", "e"], ["c", "d", "e"], ["d", "e"]]
    assert (sorted(_names(taken)), after_all, depth) == (["d", "e", "the last"], [], (0, 0))


async def test_what_we_remove_of_james_s_is_never_delivered_by_james(pair: Pair) -> None:
    """By a filter, then by a purge. James looks for content before it looks for marks: it dead-letters all of them."""
    pair.james.enqueue(*(_mail(name, sender="ann@x.test") for name in "abc"), *(_mail(name) for name in "defg"))
    async with pair.ours() as queue:
        first = await queue.delete(MailFilter(sender="ANN@x.test"))
        names, size = pair.james.names(), pair.james.size()
        second = await queue.purge()
        assert (first.count, second.count, pair.james.size()) == (3, 4, 0)
        assert (names, size) == (list("defg"), 4)
        pair.james.enqueue(LAST)
        assert _names(pair.james.take(bool)) == ["the last"]
        assert await _settled(queue, pair) == (0, 7)


async def test_what_james_publishes_again_is_delivered_once(pair: Pair) -> None:
    """Its republishing has no slice in the headers and the same ids: second copies are known by their marks."""
    async with pair.ours() as queue:
        for name in "abc":
            await queue.enqueue(_mail(name).mail, _mail(name).content)
        again = pair.james.ask("republish", older_than=-60)
        pair.james.enqueue(LAST)
        taken = await _taken(queue, 4)
        depth = await _settled(queue, pair)

    assert sorted(again) == list("abc")
    assert Counter(_names(taken)) == Counter([*"abc", "the last"])
    assert depth == (0, 0)


async def test_after_our_sweep_james_goes_on(pair: Pair) -> None:
    """The browse start that we moved and the slices that we cleaned are as its own; what is new is seen by both."""
    async with pair.ours() as queue:
        pair.james.enqueue(_mail("old"))
        await _taken(queue, 1)
        pair.turn(LATER)
        swept = await queue.sweep()
        pair.james.enqueue(_mail("james's"))
        await queue.enqueue(_mail("ours").mail, _mail("ours").content)
        seen, names = pair.james.names(), [one.queued.mail.name for one in await listed(queue)]
        taken = pair.james.take(lambda taken: len(taken) == 2)

    assert (swept.rows, swept.rescued, swept.moved_back) == (1, 0, False)
    assert seen == names == ["james's", "ours"]
    assert sorted(_names(taken)) == sorted(seen)


async def test_after_james_s_cleanup_we_go_on(pair: Pair) -> None:
    """It moves the browse start to the first mail and removes rows and marks before it; the rest is ours as before."""
    async with pair.ours() as queue:
        await queue.enqueue(_mail("old").mail, _mail("old").content)
        await _taken(queue, 1)
        pair.turn(LATER)
        await queue.enqueue(_mail("ours").mail, _mail("ours").content)
        pair.james.enqueue(_mail("james's"))
        before = await queue.view.browse_start(pair.name)
        pair.james.ask("move")
        after = await queue.view.browse_start(pair.name)
        swept = await queue.sweep()
        size, names = await queue.size(), [one.queued.mail.name for one in await listed(queue)]
        taken = await _taken(queue, 2)

    assert before is not None
    assert after is not None
    assert after - before >= LATER - timedelta(hours=1)
    assert (swept.rows, swept.moved_back) == (0, False)
    assert (size.mails, names) == (2, ["ours", "james's"])
    assert sorted(_names(taken)) == sorted(names)
    assert not [row for row in pair.keyspace.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names)) if _old(row, pair)]


async def test_both_consume_at_once_and_every_mail_comes_once(pair: Pair) -> None:
    """Half of the mails from each side, worked off by both: each is finished by one of them, and nothing is left."""
    half = share(300)

    async with pair.ours() as queue:
        pair.james.fill("james ", half)
        await _all(queue.enqueue(_mail(f"ours {n}").mail, b"Subject: y\r\n\r\ny") for n in range(half))
        pair.james.consume(at_once=4)
        by_us = await _taken_until(queue, lambda taken: len(taken) + pair.james.ask("count") >= 2 * half)
        by_james = pair.james.stop()
        depth = await _settled(queue, pair)
        left = await listed(queue)

    finished = Counter(_names([*by_us, *by_james]))
    assert finished == Counter([f"{side} {n}" for side in ("james", "ours") for n in range(half)])
    assert by_us
    assert by_james
    assert (left, depth, pair.james.size()) == ([], (0, 0), 0)


async def test_james_does_not_see_our_delays(pair: Pair) -> None:
    """It neither lists, counts, delivers nor clears them; once due they are mails like any other."""
    async with pair.ours() as queue:
        await queue.enqueue(_mail("delayed").mail, _mail("delayed").content, delay=timedelta(hours=1))
        seen = (pair.james.size(), pair.james.names())
        pair.james.ask("clear")
        delayed = [one.whereabouts for one in await listed(queue)]
        moved = (await queue.flush()).count
        taken = pair.james.take(bool)

    assert seen == (0, [])
    assert (delayed, moved, _names(taken)) == ([Whereabouts.DELAYED], 1, ["delayed"])


async def test_our_priorities_are_listed_by_james_and_left_to_us(pair: Pair) -> None:
    """It counts them, delivers the normal ones only, and what it removes of the others we do not deliver either."""
    async with pair.ours() as queue:
        for name, priority in (("urgent", 9), ("normal", 5), ("lazy", 1)):
            await queue.enqueue(_mail(name).mail, _mail(name).content, priority=priority)
        seen, size = pair.james.names(), pair.james.size()
        by_james = pair.james.take(bool)
        pair.james.ask("remove", by="Name", value="lazy")
        await queue.enqueue(LAST.mail, LAST.content, priority=1)
        by_us = await _taken(queue, 2)

    assert (seen, size) == (["urgent", "normal", "lazy"], 3)
    assert (_names(by_james), sorted(_names(by_us))) == (["normal"], ["the last", "urgent"])


async def test_what_james_gives_back_or_rejects_is_ours_to_finish(pair: Pair) -> None:
    """A retry of James comes to us at once; its rejected mail stays listed, in the dead letter queue."""
    async with pair.ours() as queue:
        await queue.enqueue(_mail("a").mail, _mail("a").content)
        pair.james.take(bool, "RETRY")
        (again,) = await _taken(queue, 1)
        await queue.enqueue(_mail("b").mail, _mail("b").content)
        pair.james.take(bool, "REJECT")
        names = [one.queued.mail.name for one in await listed(queue)]
        assert again.mail.name == "a"
        assert names == pair.james.names() == ["b"]
        assert (await _settled(queue, pair)) == (0, 1)


def test_each_starts_on_the_other_s_configuration_and_refuses_what_would_lose_mails(
    james: JamesItself, cassandra: CassandraServer, rabbitmq: RabbitServer, cluster: CassandraCluster
) -> None:
    """The events of both stand in one history, and both judge a change by the same rules."""
    keyspace = created(cluster, f"j_cut_{uuid4().hex[:8]}", TABLES)
    configurations = Configurations(AsyncKeyspace(keyspace))
    with rabbitmq.vhost() as vhost:
        place = Place(cassandra, keyspace.name, rabbitmq, vhost)
        asyncio.run(configurations.require(HOURLY))
        james.open(place, HOURLY)
        james.check(_cut(minutes=30, buckets=2))
        by_james = asyncio.run(configurations.current())
        asyncio.run(configurations.require(_cut(minutes=10, buckets=3)))
        with pytest.raises(JamesRefused, match="IllegalArgument"):
            james.check(_cut(minutes=30, buckets=3))
        james.check(_cut(minutes=10, buckets=4))
        with pytest.raises(ConfigurationRefused):
            asyncio.run(configurations.require(_cut(minutes=10, buckets=3)))
        history = asyncio.run(configurations.history())
        james.close()
    dropped(cluster, (keyspace.name,))

    assert by_james == _cut(minutes=30, buckets=2)
    cuts = [HOURLY, _cut(minutes=30, buckets=2), _cut(minutes=10, buckets=3), _cut(minutes=10, buckets=4)]
    assert [(one.event_id, one.configuration) for one in history] == list(enumerate(cuts))


REMOVALS = (("Sender", "ann@x.test"), ("Recipient", "bob@x.test"), ("Name", "c"))
"""Of James, in its words."""


def _mail(name: str, recipient: str = "to@x.test", sender: str = "from@x.test") -> Given:
    return Given(Mail(name, (recipient,), sender), f"Subject: {name}\r\n\r\nOf {name}.\r\n".encode())


def _cut(*, minutes: int, buckets: int) -> QueueConfiguration:
    return QueueConfiguration(Slicing(timedelta(minutes=minutes), buckets), pace=HOURLY.pace)


def _names(given: Iterable[Given]) -> list[str]:
    return [one.mail.name for one in given]


def _by_name(given: Iterable[Given]) -> dict[str, tuple[Mail, frozenset[RecipientHeader], bytes]]:
    return {
        one.mail.name: (
            replace(one.mail, recipient_headers=(), attributes=dict(one.mail.attributes)),
            frozenset(one.mail.recipient_headers),
            one.content,
        )
        for one in given
    }


async def _taken(queue: RabbitMailQueue, count: int) -> list[Given]:
    return await _taken_until(queue, lambda taken: len(taken) >= count)


async def _taken_until(queue: RabbitMailQueue, enough: Callable[[Sequence[Given]], bool]) -> list[Given]:
    taken: list[Given] = []

    async def take() -> None:
        async with queue.dequeue(prefetch=5) as mails:
            async for one in mails:
                taken.append(Given(one.mail, one.content))
                await one.ack()

    taking = asyncio.create_task(take())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not taking.done() and not enough(taken):  # noqa: ASYNC110 - James tells nobody
            await asyncio.sleep(0.02)
    taking.cancel()
    await asyncio.wait((taking,))
    return taken


async def _all(steps: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*steps)


async def _left_after(pair: Pair, queue: RabbitMailQueue, by: str, value: str) -> list[str]:
    pair.james.ask("remove", by=by, value=value)
    return [one.queued.mail.name for one in await listed(queue)]


async def _settled(queue: RabbitMailQueue, pair: Pair) -> tuple[int, int]:
    async with pair.broker() as broker, queue.dequeue(prefetch=50) as mails:
        asking = asyncio.ensure_future(anext(mails))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (depth := await broker.depth(pair.name)).ready:  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.02)
        asking.cancel()
        await asyncio.wait((asking,))
    return depth.ready, depth.dead


def _old(row: Row, pair: Pair) -> bool:
    return (row["queuename"], row["name"]) == (pair.name, "old")
