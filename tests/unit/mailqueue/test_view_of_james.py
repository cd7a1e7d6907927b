"""The view over what James 3.8.1 itself has written: listed, counted, marked and swept, without a table of ours."""

from datetime import datetime, timedelta

import pytest

from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.rules.mails import MailFilter
from mailmend.mailqueue.rules.size import CountedBy, SizeKind
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS, JAMES_QUEUE_TABLES
from mailmend.model.ids import QueueName
from tests.support.james_queue import SPOOL, james_enqueued, james_queue_rows, put_james_queue
from tests.support.queues import HOUR, OF_JAMES, Process, TwinQueue, names_of, twin_queue

PENDING = 14
"""Of 24 mails six were acked and four deleted."""


@pytest.fixture
def last() -> datetime:
    found: datetime = max(row["enqueuedtime"] for row in james_queue_rows(ENQUEUED_MAILS))
    return found


@pytest.fixture
def twin(last: datetime) -> TwinQueue:
    twin = twin_queue(own=OF_JAMES)
    twin.clock.turn_to(last + timedelta(seconds=30))
    put_james_queue(twin.memory)
    return twin


async def test_what_is_pending_is_listed_and_counted(twin: TwinQueue) -> None:
    view, broken = twin.parts().view, list[BrokenRow]()
    marked = {row["enqueueid"] for row in twin.rows(DELETED_MAILS)}
    rows = [row for row in twin.rows(ENQUEUED_MAILS) if row["enqueueid"] not in marked]
    listed = [one async for one in view.browse(SPOOL, on_broken=broken.append)]
    assert len(listed) == PENDING
    assert [one.enqueued_at for one in listed] == sorted(row["enqueuedtime"] for row in rows)
    assert broken == []
    size = await view.size(SPOOL)
    assert (size.mails, size.kind, size.counted_by) == (PENDING, SizeKind.EXACT, CountedBy.METADATA)
    assert await view.starts.queues() == [SPOOL]


async def test_each_mail_is_found_by_its_row(twin: TwinQueue) -> None:
    view = twin.parts().view
    async for one in view.browse(SPOOL):
        assert one.slice_start is not None
        assert await view.rows.row(SPOOL, one.slice_start, one.queued) == one
        assert not await view.marks.there(SPOOL, one.queued.enqueue_id)


async def test_conditions_choose_among_them(twin: TwinQueue) -> None:
    """By what was handed to James; those that were deleted are not among them."""
    view = twin.parts().view
    everything = await names_of(view.browse(SPOOL))
    wanted = [mail["name"] for mail in james_enqueued() if mail["name"] in everything]
    assert sorted(wanted) == sorted(everything)
    assert await names_of(view.browse(SPOOL, MailFilter(name=wanted[0]))) == wanted[:1]


async def test_a_sweep_keeps_what_is_pending_and_cleans_up_behind_the_last(
    twin: TwinQueue, last: datetime, process: Process
) -> None:
    """James's rows go with their slices, its marks stay, its tables are all there are."""
    twin.clock.turn_to(last + 30 * HOUR)
    swept = await process.sweeper.sweep(SPOOL)
    assert swept.rescued == 0
    assert len(await names_of(process.view.browse(SPOOL))) == PENDING
    async for one in process.view.browse(SPOOL):
        await process.view.mark(SPOOL, one.queued.enqueue_id, one.slice_start)
    swept = await process.sweeper.sweep(SPOOL)
    assert (swept.rows, twin.rows(ENQUEUED_MAILS)) == (24, [])
    assert len(twin.rows(DELETED_MAILS)) == 24
    assert swept.content_start == swept.browse_start == twin.browse_start
    assert (await process.view.size(SPOOL)).mails == 0
    written = {name for name in twin.memory._tables if twin.memory._tables[name]}
    assert written <= {table.name for table in (*JAMES_QUEUE_TABLES, EVENT_STORE)}


async def test_mails_of_both_are_one_queue(process: Process) -> None:
    async for one in process.view.browse(SPOOL):
        await process.view.rows.place(QueueName("outgoing"), one.queued)
    outgoing = [one.queued async for one in process.view.browse(QueueName("outgoing"))]
    spool = [one.queued async for one in process.view.browse(SPOOL)]
    assert sorted(outgoing, key=lambda one: one.enqueue_id) == sorted(spool, key=lambda one: one.enqueue_id)
