"""A queue that James filled is worked off by ours, and what ours puts there is what James would have put.

Everything that James 3.8.1 left is loaded as it was: 24 messages, the rows of its tables, the blobs under its own ids;
6 of the mails are dequeued, those of one sender deleted. Once on the twins, once on the real servers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import CassandraCluster, Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.broker import SLICE_HEADER, Broker, Message
from mailmend.mailqueue.codec import payload_of
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rules.mails import Mail, MailFilter, RecipientHeader
from mailmend.mailqueue.rules.size import CountedBy, SizeKind
from mailmend.model.blobs import Blobs, BlobStore
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, QUEUE_TABLES
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.model.ports import AsyncTables, Clock
from mailmend.repair.clock import SystemClock
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.james_queue import (
    SPOOL,
    james_blobs,
    james_enqueued,
    james_messages,
    james_queue_rows,
    put_james_queue,
)
from tests.support.keyspaces import created, dropped, emptied
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.queues import listed

AFTER_JAMES = datetime(2026, 11, 20, 19, 30, tzinfo=UTC)
"""An hour after the last of its mails, where time is ours to choose."""

TABLES = Schema((), (*QUEUE_TABLES, EVENT_STORE))
HEADERS = "perrecipientspecificheaders"

MARKED = {row["enqueueid"] for row in james_queue_rows(DELETED_MAILS)}
ALIVE = {str(row["enqueueid"]): row for row in james_queue_rows(ENQUEUED_MAILS) if row["enqueueid"] not in MARKED}


@dataclass(frozen=True, slots=True)
class Trio:
    """AsyncTables, a broker and blobs that hold what James left."""

    tables: AsyncTables
    broker: Broker
    blobs: Blobs
    clock: Clock

    async def queue(self) -> RabbitMailQueue:
        return await open_queue(SPOOL, self.tables, self.broker, self.blobs, self.clock)


async def _filled(trio: Trio, store: BlobStore) -> None:
    for blob_id, content in james_blobs().items():
        await store.keep(blob_id, content)
    for message in james_messages():
        await trio.broker.publish(SPOOL, Message(message.body))


@pytest.fixture(scope="module")
def real_keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    name = f"j_queue_{uuid4().hex[:8]}"
    yield created(cluster, name, TABLES)
    dropped(cluster, (name,))


@pytest.fixture(params=["twins", pytest.param("servers", marks=[pytest.mark.cassandra, pytest.mark.broker])])
def servers(request: pytest.FixtureRequest) -> Iterator[AbstractAsyncContextManager[Trio] | None]:
    if request.param == "twins":
        yield None
        return
    keyspace, rabbitmq, s3 = (request.getfixturevalue(name) for name in ("real_keyspace", "rabbitmq", "s3"))
    emptied(keyspace.cluster, keyspace, TABLES)
    put_james_queue(keyspace)
    with rabbitmq.vhost() as vhost:
        yield _on_servers(keyspace, BrokerSettings((Host(rabbitmq.host, rabbitmq.port),), vhost), s3.bucket())


@pytest.fixture
async def trio(servers: AbstractAsyncContextManager[Trio] | None) -> AsyncIterator[Trio]:
    async with servers or nullcontext(await _twins()) as trio:
        yield trio


async def _twins() -> Trio:
    clock = VirtualClock()
    clock.turn_to(AFTER_JAMES)
    memory, blobs = MemoryTables(clock.micros), MemoryBlobs(clock)
    put_james_queue(memory)
    trio = Trio(InTurn(memory), MemoryBroker(clock), blobs, clock)
    await _filled(trio, blobs.store)
    return trio


@asynccontextmanager
async def _on_servers(keyspace: Keyspace, settings: BrokerSettings, bucket: S3Settings) -> AsyncIterator[Trio]:
    broker, blobs = RabbitBroker(settings, SystemClock()), open_s3(bucket, SystemClock())
    trio = Trio(AsyncKeyspace(keyspace), broker, blobs, SystemClock())
    await _filled(trio, blobs.store)
    try:
        yield trio
    finally:
        await broker.close()


async def test_what_james_enqueued_is_listed_as_it_says(trio: Trio) -> None:
    """Those that are not marked, with every field of their rows, and the content that was handed to James."""
    async with await trio.queue() as queue:
        found = {str(one.queued.enqueue_id): one for one in await listed(queue)}
        size = await queue.size()
        contents = {one: sha256(await queue.content(found[one])).hexdigest() for one in found}

    assert found.keys() == ALIVE.keys()
    assert (size.mails, size.kind, size.counted_by) == (len(ALIVE), SizeKind.EXACT, CountedBy.METADATA)
    handed = {one["enqueueId"]: one for one in james_enqueued()}
    assert contents == {one: handed[one]["sha256"] for one in found}
    assert {one: found[one].queued.mail.name for one in found} == {one: handed[one]["name"] for one in found}


async def test_what_james_published_is_delivered_once_and_what_it_marked_is_not(trio: Trio) -> None:
    """Messages without our header, blobs under ids with `+`, `/` and `=`; afterwards everything is marked."""
    async with await trio.queue() as queue:
        taken = {}
        async with queue.dequeue(prefetch=10) as mails:
            for _ in ALIVE:
                one = await anext(mails)
                taken[str(one.enqueue_id)] = sha256(one.content).hexdigest()
                await one.ack()
        left, marked = await listed(queue), await _marks(trio)

    handed = {one["enqueueId"]: one["sha256"] for one in james_enqueued()}
    assert taken == {one: handed[one] for one in ALIVE}
    assert left == []
    assert len(marked) == len(james_messages())
    assert [await trio.blobs.exists(one) for one in james_blobs()] == [True] * len(james_blobs())


async def test_what_is_deleted_of_james_s_mails_never_comes(trio: Trio) -> None:
    """A purge, then a sweep, then whatever the broker still holds: nothing is delivered, nothing is dead-lettered."""
    async with await trio.queue() as queue:
        removed = await queue.purge()
        await queue.sweep()
        assert removed.count == len(ALIVE)
        assert await _nothing_comes(queue, trio)
        assert (await trio.broker.depth(SPOOL)).dead == 0


async def test_only_the_mails_that_are_meant_are_deleted(trio: Trio) -> None:
    of_bob = {one for one, row in ALIVE.items() if row["sender"] == "bob@two.test"}
    async with await trio.queue() as queue:
        removed = await queue.delete(MailFilter(sender="BOB@two.test"))
        left = {str(one.queued.enqueue_id) for one in await listed(queue)}

    assert removed.count == len(of_bob) > 0
    assert left == ALIVE.keys() - of_bob


async def test_what_we_enqueue_is_what_james_would_have_written(trio: Trio) -> None:
    """The same mails, handed to us: message and row are James's own but for ids, blobs and time."""
    async with await trio.queue() as queue:
        before = {one.queued.enqueue_id for one in await listed(queue)}
        for handed in james_enqueued():
            await queue.enqueue(_mail(handed), _content(handed["enqueueId"]))
        rows = [row async for row in _rows(trio) if row["enqueueid"] not in before | MARKED]
        bodies = await _bodies(trio)

    james = {str(row["enqueueid"]): row for row in james_queue_rows(ENQUEUED_MAILS)}
    by_name = {row["name"]: row for row in rows}
    assert len(by_name) == len(james)
    for row in james.values():
        ours = by_name[row["name"]]
        differ = {name for name in row if _plain(name, row[name]) != _plain(name, ours[name])}
        assert differ <= {"enqueueid", "timerangestart", "enqueuedtime", "headerblobid", "bodyblobid"}
        assert json.loads(bodies[str(ours["enqueueid"])]).keys() == json.loads(james_messages()[0].body).keys()


async def test_our_messages_carry_their_slice_beside_what_james_sets() -> None:
    """So that a delivery from a slice that was swept is known; James passes over headers that it does not know."""
    trio = await _twins()
    async with await trio.queue() as queue:
        enqueued = await queue.enqueue(_mail(james_enqueued()[0]), b"Subject: x\r\n\r\n")
        (found,) = [one for one in await listed(queue) if one.queued.enqueue_id == enqueued]
        async with trio.broker.deliveries(SPOOL, 100) as deliveries:
            messages = [(await anext(deliveries)).message for _ in range(len(james_messages()) + 1)]
        (ours,) = [one for one in messages if str(enqueued).encode() in one.body]

    assert found.slice_start is not None
    assert ours.headers == {SLICE_HEADER: round(found.slice_start.timestamp() * 1000)}
    assert ours.body == payload_of(found.queued)


def _mail(handed: Any) -> Mail:
    """As it was handed to James; the headers of one recipient were listed there as `name: value`."""
    headers = tuple(
        RecipientHeader(recipient, *line.split(": ", 1))
        for recipient, lines in handed["perRecipientHeaders"].items()
        for line in lines
    )
    return Mail(
        name=handed["name"],
        recipients=tuple(handed["recipients"]),
        sender=handed["sender"],
        state=handed["state"],
        error_message=handed["errorMessage"],
        remote_addr=handed["remoteAddr"],
        remote_host=handed["remoteHost"],
        last_updated=datetime.fromisoformat(handed["lastUpdated"]),
        attributes=handed["attributes"],
        recipient_headers=headers,
    )


def _plain(column: str, cell: Any) -> Any:
    """In which order James holds one recipient's headers is its own affair; nothing and an empty list are one."""
    return frozenset(cell or ()) if column == HEADERS else cell or None


def _content(enqueue_id: str) -> bytes:
    (row,) = [row for row in james_queue_rows(ENQUEUED_MAILS) if str(row["enqueueid"]) == enqueue_id]
    return james_blobs()[row["headerblobid"]] + james_blobs()[row["bodyblobid"]]


async def _marks(trio: Trio) -> list[Any]:
    return [row async for row in trio.tables.scan(Scan(DELETED_MAILS, DELETED_MAILS.names))]


def _rows(trio: Trio) -> Any:
    return trio.tables.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names))


async def _bodies(trio: Trio) -> dict[str, bytes]:
    count = (await trio.broker.depth(SPOOL)).ready
    async with trio.broker.deliveries(SPOOL, count) as deliveries:
        bodies = [(await anext(deliveries)).message.body for _ in range(count)]
    return {json.loads(body)["enqueueId"]: body for body in bodies}


async def _nothing_comes(queue: RabbitMailQueue, trio: Trio) -> bool:
    async with queue.dequeue(prefetch=50) as mails:
        asking = asyncio.ensure_future(anext(mails))
        async with asyncio.timeout(30):
            while not asking.done() and (await trio.broker.depth(SPOOL)).ready:  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.01)
        came = asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    return not came
