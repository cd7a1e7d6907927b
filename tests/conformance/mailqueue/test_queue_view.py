"""The queue's view and its sweep, on the twin and on a real Cassandra: the same stories come out the same.

The clock of each story stands some days before now and is turned by hand; only the stamps of the real server's cells
are of now.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

from mailmend.mailqueue.codec import BrokenRow, listed_of, row_of
from mailmend.mailqueue.rabbitmq.sweep import Sweeper
from mailmend.mailqueue.rabbitmq.view import slices as browsing
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMails
from mailmend.mailqueue.rabbitmq.view.queue_view import QueueView
from mailmend.mailqueue.rabbitmq.view.tallies import SliceTallies
from mailmend.mailqueue.rules.mails import Listed, ListingPosition, MailFilter, QueuedMail, RecipientHeader, Whereabouts
from mailmend.mailqueue.rules.size import CountedBy, SizeKind
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import BROWSE_START, ENQUEUED_MAILS, LIVES
from mailmend.model.ids import QueueName
from mailmend.model.instants import MICROS, instant_of
from mailmend.model.operations import Change, Put, Read, Scan
from mailmend.model.ports import AsyncTables
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_broker import MemoryBroker
from tests.support.queues import EXPIRING, HOUR, MINUTE, names_of, queued
from tests.support.tables import micros


@dataclass(slots=True)
class Queue:
    """One queue, nobody else's, and a process that works on it."""

    name: QueueName
    tables: AsyncTables
    clock: VirtualClock
    broker: MemoryBroker
    tallies: SliceTallies
    view: QueueView
    sweeper: Sweeper

    def process(self, seed: int) -> "Queue":
        return opened(self.tables, self.name, self.clock.micros(), seed)

    async def place(self, *mails: QueuedMail, step: timedelta = MINUTE) -> None:
        for mail in mails:
            await self.view.rows.place(self.name, mail)
            self.clock.advance(step.total_seconds())

    async def listed(self, where: MailFilter = MailFilter()) -> list[str]:  # noqa: B008 - a value
        return await names_of(self.view.browse(self.name, where))


def opened(tables: AsyncTables, name: QueueName, now: int, seed: int = 0) -> Queue:
    clock = VirtualClock(now, seed)
    view = QueueView(tables, clock, EXPIRING)
    broker = MemoryBroker(clock)
    return Queue(name, tables, clock, broker, view.tallies, view, Sweeper(view, MemoryBlobs(clock), broker))


@pytest.fixture
def queue(queue_tables: AsyncTables) -> Queue:
    now = micros() - 3 * 86_400 * MICROS
    clock = VirtualClock(now)
    clock.turn_to(slice_of(clock.now, HOUR))
    return opened(queue_tables, QueueName(f"f-{uuid4().hex[:12]}"), clock.micros(), uuid4().int & 0xFFFF)


async def test_a_mail_is_listed_as_it_was_enqueued(queue: Queue) -> None:
    headers = tuple(RecipientHeader("bob@example.org", name, value) for name, value in (("X-Spam", "1"), ("X", "")))
    mail = queued(
        1,
        "é \N{GRINNING FACE}",
        ("bob@example.org", "ann@example.org"),
        sender=None,
        state="transport",
        error_message="no\nroute",
        attributes={"a": '{"serializer":"StringSerializer","value":"ü"}'},
        recipient_headers=headers,
        last_updated=queue.clock.now,
    )
    now = queue.clock.now
    await queue.place(mail)
    assert [one async for one in queue.view.browse(queue.name)] == [Listed(mail, now, slice_start=now)]
    assert await queue.view.rows.row(queue.name, now, mail) == Listed(mail, now, slice_start=now)


async def test_a_queue_lives_from_its_first_mail_to_its_last(queue: Queue) -> None:
    first = queue.clock.now
    await queue.place(*(queued(number) for number in range(8)), step=HOUR)
    assert queue.name in await queue.view.starts.queues()
    assert await queue.view.browse_start(queue.name) == first
    for number in range(5):
        await queue.view.mark(queue.name, queued(number).enqueue_id, first + number * HOUR)
    size = await queue.view.size(queue.name)
    assert (size.mails, size.kind, size.counted_by) == (3, SizeKind.EXACT, CountedBy.TALLIES)
    swept = await queue.sweeper.sweep(queue.name)
    start = first + 5 * HOUR
    assert (swept.slices, swept.rows, swept.rescued, swept.renewed) == (5, 5, 0, 0)
    assert (swept.browse_start, swept.content_start) == (start, start)
    state = await queue.view.starts.state(queue.name)
    assert (state.furthest_start, state.swept_at) == (start, queue.clock.now)
    assert await queue.listed() == ["mail-5", "mail-6", "mail-7"]
    assert await queue.view.rows.row(queue.name, first, queued(0)) is None
    assert await queue.view.marks.there(queue.name, queued(0).enqueue_id)
    await queue.view.mark_all(queue.name, [(queued(n).enqueue_id, first + n * HOUR) for n in (5, 6, 7)])
    queue.clock.advance(3 * 3600)
    assert (await queue.sweeper.sweep(queue.name)).rows == 3
    size = await queue.process(1).view.size(queue.name)
    assert (size.mails, size.kind) == (0, SizeKind.EXACT)


async def test_listings_come_in_order_and_in_pages(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PAGE_ROWS", 40)
    monkeypatch.setattr(browsing, "HELD_MAILS_MAX", 100)
    first = queue.clock.now
    await asyncio.gather(*(queue.view.rows.place(queue.name, queued(n), first + n * MINUTE / 60) for n in range(150)))
    await queue.view.mark_all(queue.name, [(queued(n).enqueue_id, None) for n in range(0, 150, 10)])
    queue.clock.advance(3600)
    await queue.place(*(queued(n) for n in range(150, 160)))
    expected = [f"mail-{n}" for n in range(160) if n >= 150 or n % 10]
    assert await queue.listed() == expected
    token = ListingPosition.of([one async for one in queue.view.browse(queue.name)][99]).token
    rest = queue.view.browse(queue.name, after=ListingPosition.parse(token))
    assert await names_of(rest) == expected[100:]
    assert await queue.listed(MailFilter(name="mail-15*")) == [name for name in expected if name.startswith("mail-15")]


async def test_what_is_taken_back_and_comes_again_is_seen(queue: Queue) -> None:
    mail, start = queued(1), queue.clock.now
    await queue.place(mail)
    ahead = row_of(queue.name, start, 0, start, mail)
    await queue.tables.write(Put(ENQUEUED_MAILS, ahead, at=micros() + 60 * MICROS))
    await queue.view.rows.take_back(queue.name, start, mail)
    assert await queue.listed() == []
    live = opened(queue.tables, queue.name, micros())
    await queue.tables.write(Change(BROWSE_START, (queue.name,), {"browsestart": slice_of(live.clock.now, HOUR)}))
    start = await live.view.rows.place(queue.name, mail, start)
    await live.tables.write(Put(ENQUEUED_MAILS, row_of(queue.name, start, 0, start, mail), at=micros() + 60 * MICROS))
    await live.view.rows.take_back(queue.name, start, mail)
    await live.view.rows.place(queue.name, mail, start)
    assert await live.listed() == ["mail-1"]


async def test_a_row_that_cannot_be_read_is_left_out(queue: Queue) -> None:
    start = queue.clock.now
    await queue.place(queued(1))
    row = row_of(queue.name, start, 0, start, queued(2))
    await queue.tables.write(Put(ENQUEUED_MAILS, {**row, "name": None}))
    broken = list[BrokenRow]()
    assert await names_of(queue.view.browse(queue.name, on_broken=broken.append)) == ["mail-1"]
    assert [(one.enqueue_id, one.slice_start) for one in broken] == [(queued(2).enqueue_id, start)]


async def test_delayed_mails_are_listed_and_counted(queue: Queue) -> None:
    now, due = queue.clock.now, DueMails(queue.tables, queue.clock, 2, queue.tallies)
    await queue.place(queued(1))
    for number, hours in ((2, 3), (3, 1)):
        await due.put(queue.name, Listed(queued(number), now, Whereabouts.DELAYED, due_at=now + hours * HOUR))
    assert await queue.listed() == ["mail-1", "mail-3", "mail-2"]
    size = await queue.view.size(queue.name)
    assert (size.mails, size.delayed) == (1, 2)


async def test_many_processes_begin_move_and_sweep_at_once(queue: Queue) -> None:
    processes, first = [queue.process(seed) for seed in range(5)], queue.clock.now
    await asyncio.gather(*(one.place(queued(n), queued(n + 10)) for n, one in enumerate(processes)))
    await processes[0].view.mark_all(queue.name, [(queued(n).enqueue_id, first) for n in range(5)])
    await queue.tables.write(Change(BROWSE_START, (queue.name,), {"browsestart": first + HOUR}))
    for one in processes:
        one.clock.advance(4 * 3600)
    swept = await asyncio.gather(*(one.sweeper.sweep(queue.name) for one in processes))
    assert {one.browse_start for one in swept} == {one.content_start for one in swept}
    assert sum(one.rescued for one in swept) >= 5
    assert sorted(await processes[0].listed()) == [f"mail-{n}" for n in range(10, 15)]
    start = await queue.view.browse_start(queue.name)
    assert start is not None
    rows = [row async for row in queue.tables.scan(Scan(ENQUEUED_MAILS, ENQUEUED_MAILS.names))]
    assert min(row["timerangestart"] for row in rows if row["queuename"] == queue.name) == start
    published = [one for process in processes for one in process.broker.published]
    assert len({message.body for _, message, _ in published}) == 5


async def test_what_grows_old_is_renewed_in_place(queue: Queue) -> None:
    live = opened(queue.tables, queue.name, micros())
    written = micros() - (LIVES.ttl_seconds - 3600) * MICROS
    start = slice_of(instant_of(written), HOUR)
    row = row_of(queue.name, start, 0, start, queued(1))
    await queue.place(queued(2))
    await queue.tables.write(Change(BROWSE_START, (queue.name,), {"browsestart": start}))
    await queue.tables.write(Put(ENQUEUED_MAILS, row, at=written))
    assert (await live.sweeper.sweep(queue.name)).renewed == 1
    (seen,) = await queue.tables.read(Read(ENQUEUED_MAILS, ENQUEUED_MAILS.key_of(row), times=True))
    assert seen.newest is not None
    assert 0 <= micros() - seen.newest < 120 * MICROS
    assert listed_of(seen.row) == Listed(queued(1), start, slice_start=start)
    assert await live.listed() == ["mail-1", "mail-2"]
