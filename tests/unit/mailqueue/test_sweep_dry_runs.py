"""What a dry run of a sweep foretells is what the sweep then does; and the dry run writes nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.codec import row_of
from mailmend.mailqueue.comparison import Swept
from mailmend.mailqueue.rabbitmq.clean_slices import NAMED_MAX, SECOND_LOOK_SECONDS
from mailmend.mailqueue.rabbitmq.sweep import Moved
from mailmend.mailqueue.rules.mails import MailFilter
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    ENQUEUED_MAILS,
    LIVES,
    QUEUE_TABLES,
    OwnTables,
)
from mailmend.model.ids import EnqueueId
from mailmend.model.operations import Conditional, Remove, Write
from tests.support.queues import (
    CONTENT,
    EXPIRING,
    HOUR,
    MINUTE,
    NOON,
    OF_JAMES,
    QUEUE,
    TwinQueue,
    mail,
    queued,
    twin_queue,
)
from tests.support.striking import passing
from tests.support.thorough import few_or

OFF_THE_HOUR = 20 * MINUTE
"""So that neither slices nor lives end in the seconds that looking takes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A queue with one mail an hour.

    Attributes:
        marked: which of them are done with.
        broken: which row cannot be read.
        browse_start, content_start: put by hand so many hours after noon; None: as it is; -1: no row.
        passed: since the last mail.
        was_swept: before the starts were put by hand.
    """

    own: OwnTables = field(default_factory=OwnTables)
    window: timedelta = HOUR
    buckets: int = 1
    mails: int = 8
    marked: frozenset[int] = frozenset()
    broken: int | None = None
    browse_start: int | None = None
    content_start: int | None = None
    passed: timedelta = 5 * HOUR
    was_swept: bool = False

    async def built(self) -> TwinQueue:
        twin = twin_queue(own=self.own)
        await twin.cut(self.window, self.buckets)
        process = twin.parts()
        for number in range(self.mails):
            slice_start = await process.view.rows.place(QUEUE, queued(number))
            if number in self.marked:
                await process.view.mark(QUEUE, queued(number).enqueue_id, slice_start)
            twin.clock.advance(HOUR.total_seconds())
        await process.tallies.flush()
        if self.broken is not None:
            at = NOON + self.broken * 4 * HOUR
            twin.put_row({**row_of(QUEUE, at, 0, at, queued(99)), "headerblobid": None})
        twin.clock.advance((self.passed + OFF_THE_HOUR).total_seconds())
        if self.was_swept:
            await process.sweeper.sweep(QUEUE)
        for table, hours in ((BROWSE_START, self.browse_start), (CONTENT_START, self.content_start)):
            if hours == -1 and table is CONTENT_START:
                twin.memory.write(Remove(table, (QUEUE,)))
            elif hours is not None and hours >= 0:
                twin.put_start(table, NOON + hours * HOUR)
        return twin


CASES = st.builds(
    Case,
    own=st.sampled_from([OwnTables(), OF_JAMES, EXPIRING]),
    window=st.sampled_from([10 * MINUTE, HOUR, 4 * HOUR]),
    buckets=st.integers(1, 3),
    mails=st.integers(0, 12),
    marked=st.frozensets(st.integers(0, 11)),
    broken=st.none() | st.integers(0, 3),
    browse_start=st.none() | st.sampled_from([0, 4, 8]),
    content_start=st.none() | st.sampled_from([-1, 0, 4, 8]),
    passed=st.sampled_from([0 * HOUR, 5 * HOUR, timedelta(seconds=LIVES.ttl_seconds) - 30 * HOUR]),
    was_swept=st.booleans(),
)


def forbidding(operation: Operation, carry_out: Callable[[], Any]) -> Any:
    assert not isinstance(operation, Write | Conditional), operation
    return carry_out()


async def foreseen(twin: TwinQueue) -> Swept:
    """What a process that has just started foretells; it may only read."""
    twin.memory.surround = forbidding
    before = everything(twin)
    found = await twin.parts().sweeper.sweep(QUEUE, dry_run=True)
    twin.memory.surround = passing
    assert everything(twin) == before
    return found


def everything(twin: TwinQueue) -> list[Any]:
    tables = [twin.rows(table) for table in QUEUE_TABLES]
    return [*tables, set(twin.blobs.ids), list(twin.published)]


@settings(max_examples=few_or(60, 20), deadline=None)
@given(CASES)
@example(Case(marked=frozenset({0, 1, 2, 4}), browse_start=4))
@example(Case(own=EXPIRING, passed=timedelta(seconds=LIVES.ttl_seconds) - 30 * HOUR))
async def test_what_is_predicted_is_what_happens(case: Case) -> None:
    """To the row, wherever the starts were put and whatever is marked; the law of every dry run."""
    twin = await case.built()
    starts = twin.browse_start, twin.content_start
    found = await foreseen(twin)
    published = len(twin.published)

    assert await twin.parts().sweeper.sweep(QUEUE) == found
    if twin.browse_start is None:
        assert found == Swept()
        return
    assert (found.browse_start_before, found.content_start_before) == starts
    assert (found.browse_start, found.content_start) == (twin.browse_start, twin.content_start)
    rescued = {one for one, _ in twin.published[published:]}
    assert len(found.rescued_ids) == found.rescued
    assert rescued <= set(found.rescued_ids) <= rescued | {queued(99).enqueue_id}


@settings(max_examples=20, deadline=None)
@given(CASES)
async def test_a_move_alone_is_predicted_too(case: Case) -> None:
    """Where the browse start was, where it goes, whether somebody had put it back."""
    twin = await case.built()
    twin.memory.surround = forbidding
    found = await twin.parts().sweeper.move(QUEUE, dry_run=True)
    twin.memory.surround = passing

    assert await twin.parts().sweeper.move(QUEUE) == found


async def test_each_kind_of_work_is_predicted() -> None:
    """One that the law above could not tell from a dry run that foretells nothing."""
    twin = await Case(marked=frozenset({1, 2, 3, 4}), browse_start=5).built()
    found = await foreseen(twin)
    start = NOON + 5 * HOUR
    assert found == Swept(
        slices=5,
        rows=5,
        blobs=8,
        rescued=1,
        rescued_ids=(queued(0).enqueue_id,),
        browse_start=start,
        browse_start_before=start,
        content_start=start,
        content_start_before=NOON,
    )

    old = timedelta(seconds=LIVES.ttl_seconds) - 30 * HOUR
    assert (await foreseen(await Case(own=EXPIRING, passed=old).built())).renewed == 8

    back = await foreseen(await Case(marked=frozenset(range(8)), was_swept=True, browse_start=4).built())
    assert back.moved_back


@pytest.mark.parametrize("own", [OwnTables(), OF_JAMES], ids=["ours", "of James"])
async def test_a_queue_that_never_was_stays_so(own: OwnTables) -> None:
    twin = twin_queue(own=own)
    twin.memory.surround = forbidding
    sweeper = twin.parts().sweeper
    assert await sweeper.sweep(QUEUE, dry_run=True) == Swept()
    assert await sweeper.move(QUEUE, dry_run=True) == Moved(None, None)


async def test_what_is_finished_between_the_looks_is_not_predicted_as_put_back() -> None:
    """James, sweeping at the same time, removes marks some seconds before rows."""
    twin = await Case(marked=frozenset(range(1, 8)), browse_start=5).built()

    async def remove_row() -> None:
        await twin.clock.pause(SECOND_LOOK_SECONDS / 2)
        twin.memory.write(Remove(ENQUEUED_MAILS, (QUEUE, NOON, 0, queued(0).enqueue_id)))

    found, _ = await asyncio.gather(twin.parts().sweeper.sweep(QUEUE, dry_run=True), remove_row())
    assert (found.rows, found.rescued, found.rescued_ids) == (8, 0, ())


async def test_of_many_that_would_be_put_back_the_first_are_named(twin: TwinQueue) -> None:
    await twin.cut(buckets=2)
    process, count = twin.parts(), 3 * NAMED_MAX
    for number in range(count):
        await process.view.rows.place(QUEUE, queued(number))
    twin.clock.advance(timedelta(hours=9).total_seconds())
    twin.put_start(BROWSE_START, NOON + 2 * HOUR)
    found = await foreseen(twin)
    assert (found.rescued, len(found.rescued_ids)) == (count, NAMED_MAX)
    assert set(found.rescued_ids) <= {EnqueueId(queued(number).enqueue_id) for number in range(count)}


@settings(max_examples=few_or(30, 15), deadline=None)
@given(st.lists(st.integers(1, 400), max_size=8), st.frozensets(st.integers(0, 7)), st.integers(0, 400))
async def test_delayed_mails_that_would_move_are_those_that_then_do(
    minutes: list[int], deleted: frozenset[int], passed: int
) -> None:
    """In one round those that are due, in a flush all; those that were deleted in neither."""
    twin = twin_queue(buckets=2)
    async with await twin.process() as queue:
        start = twin.clock.now
        for number, minute in enumerate(minutes):
            await queue.enqueue(mail(str(number)), CONTENT, delay=minute * MINUTE)
        for number in deleted:
            await queue.delete(MailFilter(name=str(number)))
        left = sorted(minute for number, minute in enumerate(minutes) if number not in deleted)
        twin.clock.advance((passed * MINUTE).total_seconds())

        every, due = await queue.flush(dry_run=True), await queue.move_due(dry_run=True)
        assert (every.count, due) == (len(left), sum(minute <= passed for minute in left))
        if left:
            assert (every.earliest_at, every.latest_at) == (start + left[0] * MINUTE, start + left[-1] * MINUTE)
        assert await queue.move_due() == due
        assert (await queue.flush()).count == every.count - due
