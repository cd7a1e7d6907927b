"""Delayed mails are counted as they come and go: a size reads sums, and what it calls exact is."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rabbitmq.move_due import CLOSE_AFTER, TTL_SECONDS
from mailmend.mailqueue.rabbitmq.view import due_mails as module
from mailmend.mailqueue.rabbitmq.view.due_mails import DUE_WINDOW
from mailmend.mailqueue.rabbitmq.view.tallies import SILENT_SECONDS
from mailmend.mailqueue.rules.mails import ListingPosition, MailFilter
from mailmend.mailqueue.rules.size import DUE_TALLIED, CountedBy, Size, SizeKind, is_of_due
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, SLICE_TALLIES, OwnTables
from mailmend.model.errors import LeaseHeld
from mailmend.model.instants import instant_of
from mailmend.model.operations import Remove
from mailmend.model.table import Table
from tests.support.queue_world import outlived, working
from tests.support.queues import CONTENT, QUEUE, TwinQueue, listed, mail, names, next_of, twin_queue
from tests.support.striking import Strike, of, passing

HOUR = timedelta(hours=1)
DAY = 24 * HOUR


def delayed_rows(twin: TwinQueue) -> int:
    marks = {row["enqueueid"] for row in twin.rows(DELETED_MAILS)}
    return sum(row["dueslice"] != EPOCH and row["enqueueid"] not in marks for row in twin.rows(DUE_MAILS))


async def delay(queue: RabbitMailQueue, *delays: timedelta) -> None:
    for place, one in enumerate(delays):
        await queue.enqueue(mail(f"mail-{place}"), CONTENT, delay=one)


def reported(size: Size) -> tuple[int, SizeKind, CountedBy]:
    return size.delayed, size.kind, size.counted_by


def reading(twin: TwinQueue, table: Table) -> list[Operation]:
    watch = twin.memory.surround = Strike(lambda operation: operation.table is table)
    return watch.struck


async def test_a_size_asks_for_no_delayed_mail() -> None:
    """One look at the list of slices, and the sums of twenty slices at once, however many mails they hold."""
    twin = twin_queue(buckets=3)
    async with await twin.process() as queue:
        await delay(queue, *[place * DUE_WINDOW / 7 for place in range(1, 200)])
        await queue.size()
        of_mails, of_sums = reading(twin, DUE_MAILS), []
        assert reported(await queue.size()) == (199, SizeKind.EXACT, CountedBy.TALLIES)
        assert len(of_mails) == 1
        of_sums = reading(twin, SLICE_TALLIES)
        await queue.size()
        assert 0 < len(of_sums) <= 4


async def test_slices_without_sums_are_counted_by_their_rows() -> None:
    """As those are that a mail was put into by somebody who counts nothing."""
    twin = twin_queue(buckets=2)
    async with await twin.process() as queue:
        await delay(queue, HOUR, HOUR, DAY)
        await queue.size()
        for row in twin.rows(SLICE_TALLIES):
            twin.memory.write(Remove(SLICE_TALLIES, SLICE_TALLIES.key_of(row)))
        assert reported(await queue.size()) == (3, SizeKind.EXACT, CountedBy.METADATA)


async def test_sums_live_as_long_as_a_mail_may_be_delayed() -> None:
    twin = twin_queue(own=OwnTables(row_ttl_seconds=1_000_000, mark_ttl_seconds=1_260_000))
    async with await twin.process() as queue:
        await delay(queue, 360 * DAY, 360 * DAY)
        await queue.size()
        twin.clock.advance((359 * DAY).total_seconds())
        assert reported(await queue.size()) == (2, SizeKind.EXACT, CountedBy.TALLIES)
        twin.clock.advance((DAY + DUE_TALLIED).total_seconds())
        assert reported(await queue.size()) == (2, SizeKind.EXACT, CountedBy.METADATA)


async def test_what_was_moved_leaves_no_sums() -> None:
    twin = twin_queue(buckets=3)
    async with await twin.process() as queue:
        await delay(queue, *[HOUR] * 9, DAY)
        twin.clock.advance(HOUR.total_seconds())
        assert await queue.move_due() == 9
        assert reported(await queue.size())[:2] == (1, SizeKind.EXACT)
        twin.clock.advance((DUE_WINDOW + CLOSE_AFTER).total_seconds())
        assert await queue.move_due() == 0
        await queue.size()
        assert reported(await queue.size())[:2] == (1, SizeKind.EXACT)
        kept = {row["timerangestart"] for row in twin.rows(SLICE_TALLIES) if is_of_due(row["timerangestart"])}
        assert len(kept) == 1


async def test_a_lease_that_ran_out_while_mails_were_moved_leaves_an_estimate(
    twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    await delay(queue, HOUR, DAY)
    await queue.size()
    twin.memory.surround = Strike(of(Remove, DUE_MAILS), do=lambda: twin.clock.advance(TTL_SECONDS))
    with pytest.raises(LeaseHeld):
        await queue.flush()
    twin.memory.surround = passing
    assert (await queue.size()).kind is SizeKind.ESTIMATE


async def test_what_an_operator_removed_is_an_estimate_until_it_is_counted_again() -> None:
    twin = twin_queue(buckets=2)
    async with await twin.process() as queue:
        await delay(queue, HOUR, HOUR, HOUR, DAY)
        await queue.delete(MailFilter(name="mail-1"))
        assert reported(await queue.size())[:2] == (3, SizeKind.ESTIMATE)
        twin.clock.advance(SILENT_SECONDS + 1)
        assert (await queue.view.recount(QUEUE)).left == 0
        assert reported(await queue.size()) == (3, SizeKind.EXACT, CountedBy.TALLIES)


async def test_counting_again_sets_wrong_sums_right(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Of a process that was killed, once it was silent for long enough."""
    await delay(queue, HOUR, DAY)
    dying = await working(twin)
    dying.fortune.dies_before(4)
    assert await outlived(dying.queue.enqueue(mail("late"), CONTENT, delay=HOUR)) is None
    await queue.size()
    assert (await queue.size()).kind is SizeKind.ESTIMATE
    twin.clock.advance(SILENT_SECONDS + 1)
    await queue.view.recount(QUEUE)
    assert reported(await queue.size())[:2] == (delayed_rows(twin), SizeKind.EXACT)


@settings(max_examples=20, deadline=None)
@given(
    acts=st.lists(
        st.one_of(
            st.tuples(st.just("delay"), st.integers(1, 90)),
            st.tuples(st.sampled_from(("retry", "move", "flush", "wait", "size")), st.integers(1, 40)),
        ),
        max_size=14,
    ),
    buckets=st.integers(1, 3),
)
async def test_settled_sums_are_the_rows(acts: Sequence[tuple[str, int]], buckets: int) -> None:
    """Whatever two processes do, one after the other: where nobody died, the size is right.

    It is exact, unless a copy of a mail was retried that somebody else may have had in hand before.
    """
    twin = twin_queue(buckets=buckets)
    async with await twin.process() as one, await twin.process() as other:
        sure = True
        for place, (act, number) in enumerate(acts):
            sure &= await ACTS[act](twin, (one, other)[place % 2], number)
            await asyncio.gather(one.size(), other.size())
            size = await one.size()
            assert size.delayed == delayed_rows(twin)
            assert size.kind is SizeKind.EXACT or not sure


async def _delay(_: TwinQueue, queue: RabbitMailQueue, minutes: int) -> bool:
    await queue.enqueue(mail(f"mail-{minutes}"), CONTENT, delay=timedelta(minutes=minutes))
    return True


async def _retry(_: TwinQueue, queue: RabbitMailQueue, minutes: int) -> bool:
    await queue.enqueue(mail(f"tried-{minutes}"), CONTENT)
    async with queue.dequeue() as mails:
        one = await next_of(mails)
        if one is not None:
            await one.retry(timedelta(minutes=minutes))
    return one is None or not one.redelivered


async def _move(_: TwinQueue, queue: RabbitMailQueue, __: int) -> bool:
    await queue.move_due()
    return True


async def _flush(_: TwinQueue, queue: RabbitMailQueue, __: int) -> bool:
    await queue.flush()
    return True


async def _wait(twin: TwinQueue, _: RabbitMailQueue, minutes: int) -> bool:
    twin.clock.advance(60 * minutes)
    return True


async def _size(_: TwinQueue, queue: RabbitMailQueue, __: int) -> bool:
    await queue.size()
    return True


ACTS = {"delay": _delay, "retry": _retry, "move": _move, "flush": _flush, "wait": _wait, "size": _size}


# A slice of many


@pytest.mark.parametrize("buckets", [1, 3])
async def test_a_slice_that_is_too_large_is_listed_in_order_and_not_held(
    buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buckets are merged as they are read: a first page asks for a first page's marks, and no more."""
    monkeypatch.setattr(module, "PAGE_MAILS", 5)
    twin = twin_queue(buckets=buckets)
    at = instant_of(twin.clock.micros()) + HOUR
    async with await twin.process() as queue:
        for number in range(40):
            await queue.enqueue(mail(f"mail-{number}"), CONTENT, at=at + timedelta(seconds=number * 7 % 40 // 2))
        whole = await listed(queue)
        assert len(whole) == 40
        assert whole == sorted(whole, key=lambda one: (one.due_at, one.queued.enqueue_id))
        asked = reading(twin, DELETED_MAILS)
        shown = queue.browse()
        first = [(await anext(shown)).queued for _ in range(5)]
        await shown.aclose()
        assert first == [one.queued for one in whole[:5]]
        assert len(asked) <= 1


async def test_a_page_of_a_large_slice_begins_behind_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_MAILS", 3)
    twin = twin_queue(buckets=2)
    at = instant_of(twin.clock.micros()) + HOUR
    async with await twin.process() as queue:
        for number in range(12):
            await queue.enqueue(mail(f"mail-{number}"), CONTENT, at=at)
            twin.clock.advance(1)
        whole, pages = await names(queue), list[str]()
        position: ListingPosition | None = None
        for _ in range(4):
            page = [one async for one in queue.browse(after=position)][:5]
            pages += [one.queued.mail.name for one in page]
            position = ListingPosition.of(page[-1]) if page else position
        assert pages == whole
