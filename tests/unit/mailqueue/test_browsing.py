"""Listings: in order, in pages that stay what they are, of metadata alone, bounded in memory, never broken by a row."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.codec import BrokenRow, row_of
from mailmend.mailqueue.concurrency import all_of, in_order
from mailmend.mailqueue.rabbitmq.view import queue_view
from mailmend.mailqueue.rabbitmq.view import slices as browsing
from mailmend.mailqueue.rabbitmq.view.slices import Marks, SliceContents, Slices
from mailmend.mailqueue.rules.mails import Listed, ListingPosition, MailFilter, Whereabouts
from mailmend.mailqueue.rules.slices import bucket_of
from mailmend.model.catalog.mail_queue import BROWSE_START, DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.errors import TimedOut
from mailmend.model.operations import Put, Read, Remove, Scan
from mailmend.repair.retries import AsyncRetries
from tests.support.logs import logged
from tests.support.queues import HOUR, MINUTE, NOON, QUEUE, Process, TwinQueue, names_of, queued, twin_queue
from tests.support.striking import Strike, of

GIVEN = 12


async def fill(twin: TwinQueue, numbers: Sequence[int], step: timedelta = MINUTE, **fields: Any) -> Process:
    process = twin.parts()
    for number in numbers:
        await process.view.rows.place(QUEUE, queued(number, **fields))
        twin.clock.advance(step.total_seconds())
    return process


async def page(process: Process, size: int, after: str | None = None, where: MailFilter = MailFilter()) -> list[Listed]:  # noqa: B008 - a value
    position = None if after is None else ListingPosition.parse(after)
    mails = list[Listed]()
    async with aclosing(process.view.browse(QUEUE, where, position)) as browsed:
        async for one in browsed:
            mails.append(one)
            if len(mails) == size:
                break
    return mails


class TestOrder:
    """Slice by slice, each by time, ties by id; then what is not due."""

    @pytest.mark.parametrize("buckets", [1, 5])
    async def test_mails_come_as_they_were_enqueued(self, buckets: int, twin: TwinQueue) -> None:
        await twin.cut(buckets=buckets)
        process = await fill(twin, range(100), 3 * MINUTE)
        assert await names_of(process.view.browse(QUEUE)) == [f"mail-{number}" for number in range(100)]

    async def test_mails_of_one_moment_come_by_id(self, twin: TwinQueue) -> None:
        await twin.cut(buckets=3)
        process = await fill(twin, range(30), timedelta(0))
        ids = [one.queued.enqueue_id async for one in process.view.browse(QUEUE)]
        assert ids == sorted(queued(number).enqueue_id for number in range(30))

    async def test_delayed_mails_come_last_as_they_are_due(self, twin: TwinQueue) -> None:
        """Those that are marked are left out; those that wait too are shown once."""
        process, due = await fill(twin, range(2)), twin.due(buckets=3)
        for number, hours in ((10, 5), (11, 1), (12, 3), (13, 2), (1, 4)):
            at = NOON + hours * HOUR
            await due.put(QUEUE, Listed(queued(number), NOON, Whereabouts.DELAYED, due_at=at))
        await process.view.mark(QUEUE, queued(13).enqueue_id, None)
        browsed = [one async for one in process.view.browse(QUEUE)]
        assert [one.queued.mail.name for one in browsed] == ["mail-0", "mail-1", "mail-11", "mail-12", "mail-10"]
        assert browsed[2].due_at == NOON + HOUR
        size = await process.view.size(QUEUE)
        assert (size.mails, size.delayed) == (2, 4)
        assert await names_of(process.view.browse(QUEUE, include_delayed=False)) == ["mail-0", "mail-1"]
        delayed = MailFilter(whereabouts=Whereabouts.DELAYED)
        assert await names_of(process.view.browse(QUEUE, delayed)) == ["mail-11", "mail-12", "mail-1", "mail-10"]
        assert await names_of(process.view.browse(QUEUE, delayed, include_delayed=False)) == [
            "mail-11", "mail-12", "mail-1", "mail-10"
        ]  # fmt: skip

    async def test_a_queue_that_never_was_lists_nothing(self, twin: TwinQueue) -> None:
        assert await names_of(twin.parts().view.browse(QUEUE)) == []

    async def test_what_is_before_the_browse_start_is_not_read(self, twin: TwinQueue) -> None:
        process = await fill(twin, range(10), HOUR)
        twin.put_start(BROWSE_START, NOON + 8 * HOUR)
        read = twin.memory.surround = Strike(lambda one: not of(Put)(one))
        assert await names_of(process.view.browse(QUEUE)) == ["mail-8", "mail-9"]
        slices = {one.under[1] for one in read.struck if is_of_mails(one)}
        assert min(slices) == NOON + 8 * HOUR

    async def test_no_blob_is_touched(self, twin: TwinQueue) -> None:
        process = await fill(twin, range(3))
        calls = twin.blobs.store.surround = Strike(lambda _: True)
        assert len(await names_of(process.view.browse(QUEUE))) == 3
        assert not calls.struck


class TestPages:
    """A page begins behind what was seen last, whatever has come and gone since."""

    @pytest.mark.parametrize("size", [1, 3, 7, 30])
    async def test_pages_together_are_the_listing(self, size: int, twin: TwinQueue) -> None:
        await twin.cut(buckets=2)
        process, due = await fill(twin, range(GIVEN), 20 * MINUTE), twin.due(buckets=2)
        for number in range(50, 55):
            at = NOON + number * HOUR
            await due.put(QUEUE, Listed(queued(number), NOON, Whereabouts.DELAYED, due_at=at))
        whole = await names_of(process.view.browse(QUEUE))
        paged, after = list[str](), None
        while mails := await page(process, size, after):
            paged += [one.queued.mail.name for one in mails]
            after = ListingPosition.of(mails[-1]).token
        assert paged == whole
        assert len(whole) == GIVEN + 5

    @given(seed=st.integers(0, 1000))
    @settings(max_examples=30)
    async def test_mails_may_come_and_go_between_pages(self, seed: int) -> None:
        """Each that was there all the time is shown once; the one that was seen last may go, and the sweep come."""
        twin = twin_queue()
        chance = random.Random(seed)
        process = await fill(twin, range(30), 20 * MINUTE)
        gone, shown, after, number = set[int](), list[str](), None, 30
        while mails := await page(process, 4, after):
            shown += [one.queued.mail.name for one in mails]
            after = ListingPosition.of(mails[-1]).token
            for leaving in [int(shown[-1].removeprefix("mail-")), chance.randrange(number)]:
                await process.view.mark(QUEUE, queued(leaving).enqueue_id, None)
                gone.add(leaving)
            if number < 40:
                await process.view.rows.place(QUEUE, queued(number))
                number += 1
            await process.sweeper.sweep(QUEUE)
        assert len(shown) == len(set(shown))
        assert {f"mail-{one}" for one in range(30) if one not in gone} <= set(shown)

    async def test_a_page_reads_no_more_slices_than_it_needs(self, twin: TwinQueue) -> None:
        process = await fill(twin, range(200), HOUR)
        read = twin.memory.surround = Strike(lambda one: not of(Put)(one))
        mails = await page(process, 5)
        assert len({one.under for one in read.struck if is_of_mails(one)}) < 30
        read.struck.clear()
        await page(process, 5, ListingPosition.of(mails[-1]).token)
        assert min(one.under[1] for one in read.struck if is_of_mails(one)) >= NOON + 4 * HOUR


class TestWhere:
    """Only what is meant is looked up further."""

    async def test_conditions_choose(self, twin: TwinQueue) -> None:
        process = await fill(twin, range(6), HOUR)
        await fill(twin, range(6, 8), HOUR, sender="ann@example.org")
        where = MailFilter(sender="ANN@*", older_than_at=NOON + 7 * HOUR)
        assert await names_of(process.view.browse(QUEUE, where)) == ["mail-6"]

    async def test_marks_are_asked_for_what_is_meant_alone(self, twin: TwinQueue) -> None:
        process = await fill(twin, range(50))
        read = twin.memory.surround = Strike(lambda one: not of(Put)(one))
        assert await names_of(process.view.browse(QUEUE, MailFilter(name="mail-7"))) == ["mail-7"]
        assert len([one for one in read.struck if isinstance(one, Read) and one.table is DELETED_MAILS]) == 1

    async def test_slices_that_are_too_old_are_not_read(self, twin: TwinQueue) -> None:
        """None of their mails was enqueued later than the slice ends, but for what clocks differ by."""
        process = await fill(twin, range(20), HOUR)
        read = twin.memory.surround = Strike(lambda one: not of(Put)(one))
        where = MailFilter(newer_than_at=NOON + 18 * HOUR)
        assert await names_of(process.view.browse(QUEUE, where)) == ["mail-18", "mail-19"]
        assert min(one.under[1] for one in read.struck if is_of_mails(one)) >= NOON + 17 * HOUR


class TestBroken:
    """A row that no mail can be made of never breaks a listing."""

    async def test_it_is_reported_and_left_out(self, caplog: pytest.LogCaptureFixture, twin: TwinQueue) -> None:
        """In the log with its id and column, without addresses; it still counts as a mail."""
        process = await fill(twin, range(3))
        twin.put_row({**row_of(QUEUE, NOON, 0, NOON, queued(7)), "bodyblobid": None})
        broken = list[BrokenRow]()
        where = MailFilter(sender="sender@*")
        assert await names_of(process.view.browse(QUEUE, where, on_broken=broken.append)) == [
            "mail-0",
            "mail-1",
            "mail-2",
        ]
        assert [(one.enqueue_id, one.slice_start) for one in broken] == [(queued(7).enqueue_id, NOON)]
        await process.view.foreign(QUEUE)
        assert (await process.view.size(QUEUE)).mails == 4
        caplog.clear()
        await process.view.mark(QUEUE, queued(7).enqueue_id, NOON)
        assert len(await names_of(process.view.browse(QUEUE))) == 3
        assert caplog.text == ""

    async def test_the_log_names_no_address(self, caplog: pytest.LogCaptureFixture, twin: TwinQueue) -> None:
        process = await fill(twin, range(1))
        twin.put_row({**row_of(QUEUE, NOON, 0, NOON, queued(7)), "bodyblobid": None})
        await names_of(process.view.browse(QUEUE))
        assert str(queued(7).enqueue_id) in logged(caplog)
        assert "example.org" not in logged(caplog)


class TestBounds:
    """What is held and what is read at once has limits."""

    @pytest.mark.parametrize("buckets", [1, 3])
    async def test_a_slice_too_large_to_be_held_is_listed_all_the_same(
        self, buckets: int, monkeypatch: pytest.MonkeyPatch, twin: TwinQueue
    ) -> None:
        """By its keys: in the same order, with the same conditions, without those that went meanwhile."""
        monkeypatch.setattr(browsing, "HELD_MAILS_MAX", 10)
        monkeypatch.setattr(browsing, "READ_AGAIN_ROWS", 7)
        monkeypatch.setattr(browsing, "PAGE_ROWS", 5)

        await twin.cut(buckets=buckets)
        process = await fill(twin, range(40))
        await process.view.mark(QUEUE, queued(3).enqueue_id, NOON)
        expected = [f"mail-{number}" for number in range(40) if number != 3]
        assert await names_of(process.view.browse(QUEUE)) == expected
        mails = await page(process, 30)
        rest = await page(process, 30, ListingPosition.of(mails[-1]).token)
        assert [one.queued.mail.name for one in mails + rest] == expected

        lost = Remove(ENQUEUED_MAILS, (QUEUE, NOON, bucket_of("mail-30", buckets), queued(30).enqueue_id))
        twin.memory.surround = Strike(of(Read, ENQUEUED_MAILS), do=lambda: twin.memory.write(lost), times=1)
        assert await names_of(process.view.browse(QUEUE)) == [name for name in expected if name != "mail-30"]

    def test_no_more_is_held_than_may_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(browsing, "HELD_MAILS_MAX", 10)
        held, kept = SliceContents(), list[int]()
        for number in range(100):
            held.add(Listed(queued(number), NOON, slice_start=NOON), number % 3)
            kept.append(len(held.mails))
        assert max(kept) == 10
        assert (held.count, len(held.keys), held.mails, held.room) == (100, 100, [], 0)

    def test_dense_slices_are_not_read_ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that holds much leaves no room for the next; empty ones are read many at once."""
        monkeypatch.setattr(browsing, "HELD_MAILS_MAX", 8)
        assert [SliceContents(mails=[(Listed(queued(0), NOON), 0)] * count).room for count in (0, 1, 4, 8, 9)] == [
            8,
            8,
            2,
            1,
            0,
        ]

    async def test_pages_of_a_partition_are_read_one_after_another(
        self, monkeypatch: pytest.MonkeyPatch, twin: TwinQueue
    ) -> None:
        """Each by a request of its own; one that fails is asked for again, and no row is shown twice."""
        monkeypatch.setattr(browsing, "PAGE_ROWS", 4)

        await fill(twin, range(10), timedelta(0))
        retries, failures = AsyncRetries(twin.clock), 2
        asked = list[Scan]()

        def surround(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            nonlocal failures
            if isinstance(operation, Scan):
                asked.append(operation)
                if len(asked) == 2 and failures:
                    failures -= 1
                    asked.pop()
                    raise TimedOut("no answer")
            return carry_out()

        twin.memory.surround = surround
        slices = Slices(twin.tables, Marks(twin.tables, retries), retries)
        pages = [list(one) async for one in slices.pages((QUEUE, NOON, 0))]
        assert [len(one) for one in pages] == [4, 4, 2]
        ids = [row["enqueueid"] for one in pages for row in one]
        assert ids == sorted(queued(number).enqueue_id for number in range(10))
        assert [one.limit for one in asked] == [4, 4, 4]

    async def test_what_does_not_answer_is_reported(self, twin: TwinQueue) -> None:
        process = await fill(twin, range(3), HOUR)
        second = (NOON + HOUR,)
        twin.memory.surround = Strike(lambda one: of(Scan)(one) and one.under[1:2] == second, TimedOut("no answer"))
        with pytest.raises(TimedOut):
            await names_of(process.view.browse(QUEUE))

    async def test_what_a_listing_remembers_is_bounded(self, monkeypatch: pytest.MonkeyPatch, twin: TwinQueue) -> None:
        """Past it a mail that is in both tables may be shown in both places."""
        monkeypatch.setattr(queue_view, "REMEMBERED_MAX", 1)
        process, due = await fill(twin, range(2)), twin.due(buckets=1)
        for number in range(2):
            await due.put(QUEUE, Listed(queued(number), NOON, Whereabouts.DELAYED, due_at=NOON + HOUR))
        assert await names_of(process.view.browse(QUEUE)) == ["mail-0", "mail-1", "mail-1"]


class TestAhead:
    """Many things awaited at once, and taken in order."""

    async def test_order_is_kept_and_the_bound_too(self) -> None:
        under_way, most = 0, 0

        async def read(number: int) -> int:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(20 - number):
                await asyncio.sleep(0)
            under_way -= 1
            return number * number

        assert await all_of(range(20), read, 3) == [number * number for number in range(20)]
        assert most == 3
        assert await all_of([], read, 3) == []

    async def test_room_decides_how_many_are_read_ahead(self) -> None:
        """The first alone; then as many as there is room for, at least one."""
        begun = list[int]()

        async def read(number: int) -> int:
            begun.append(number)
            await asyncio.sleep(0)
            return number

        seen = list[int]()
        async with aclosing(in_order(range(10), read, 4, lambda number: 9 if number < 2 else 0)) as found:
            async for number, _ in found:
                await asyncio.sleep(0)
                seen.append(len(begun) - number - 1)
        assert seen == [0, 3, 3, 2, 1, 0, 0, 0, 0, 0]

    async def test_leaving_early_ends_what_is_under_way(self) -> None:

        async def read(number: int) -> int:
            if number:
                await asyncio.Event().wait()
            return number

        before = asyncio.all_tasks()
        async with aclosing(in_order(range(10), read, 5)) as found:
            async for number, _ in found:
                assert number == 0
                break
        assert asyncio.all_tasks() == before

    async def test_a_failure_ends_the_others(self) -> None:

        async def read(number: int) -> int:
            if number == 2:
                raise TimedOut("no answer")
            if number > 2:
                await asyncio.Event().wait()
            return number

        before = asyncio.all_tasks()
        with pytest.raises(TimedOut):
            await all_of(range(10), read, 5)
        assert asyncio.all_tasks() == before

    async def test_cancelling_ends_all(self) -> None:

        async def read(_: int) -> None:
            await asyncio.Event().wait()

        before = asyncio.all_tasks()
        reading = asyncio.create_task(all_of(range(10), read, 5))
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert asyncio.all_tasks() == before


@given(
    at=st.datetimes(datetime(1969, 1, 1), datetime(2090, 1, 1)),  # noqa: DTZ001 - the zone is put on below
    number=st.integers(0, 10**6),
    bucket=st.integers(0, 2**31 - 1),
)
def test_a_packed_key_keeps_bucket_and_id_and_the_order(at: datetime, number: int, bucket: int) -> None:
    mail = Listed(queued(number), at.replace(microsecond=0, tzinfo=NOON.tzinfo))
    key = browsing._packed(mail, bucket)
    assert browsing._unpacked(key) == (bucket, mail.queued.enqueue_id)
    later = replace(mail, enqueued_at=mail.enqueued_at + timedelta(milliseconds=1))
    assert browsing._packed(later, 0) > key


def is_of_mails(operation: Operation) -> bool:
    return isinstance(operation, Scan) and operation.table is ENQUEUED_MAILS
