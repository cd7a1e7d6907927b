"""Delayed mails: each comes in its time, once where nothing dies, else at least once; none that was deleted comes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rabbitmq.move_due import AT_ONCE, CLOSE_AFTER, LATE, UNREADABLE_PAUSE
from mailmend.mailqueue.rabbitmq.view.due_mails import DUE_WINDOW, in_millis_after
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.mailqueue.rules.slices import EPOCH, slice_of
from mailmend.model.catalog.mail_queue import DUE_MAILS
from mailmend.model.errors import BrokerUnreachable, MailmendError
from mailmend.model.operations import Change, Remove, Scan
from tests.support.clock import VirtualClock
from tests.support.memory_broker import Fate
from tests.support.queue_wires import Errors, Side, WiredTables
from tests.support.queue_world import taken, working
from tests.support.queues import (
    CONTENT,
    HOUR,
    MINUTE,
    QUEUE,
    TwinQueue,
    all_delivered,
    delayed,
    listed,
    mail,
    names,
    queued,
    twin_queue,
)
from tests.support.skewed import SkewedClock
from tests.support.striking import Strike, of

T = TypeVar("T")


async def partitions(twin: TwinQueue) -> list[datetime]:
    return [one.due_slice async for one in twin.due().partitions(QUEUE)]


def rows(twin: TwinQueue) -> int:
    return len(list(twin.memory.scan(Scan(DUE_MAILS, ("dueat",)))))


async def test_mails_come_in_their_time_and_not_before() -> None:
    """Each round moves what is due, whatever slice and bucket it lies in."""
    twin = twin_queue(buckets=3)
    async with await twin.process() as queue:
        waits = {"soon": 5 * MINUTE, "later": 25 * MINUTE, "last": 30 * HOUR}
        await delayed(queue, waits)
        assert await names(queue) == ["soon", "later", "last"]
        for name in waits:
            shown = (await listed(queue))[0]
            assert shown.due_at is not None
            twin.clock.turn_to(shown.due_at - timedelta(seconds=1))
            assert await queue.move_due() == 0
            twin.clock.advance(1)
            assert await queue.move_due() == 1
            assert await all_delivered(queue) == [name]
        assert twin.counted.of(QueueCount.DUE_MOVED) == 3


async def test_what_is_moved_keeps_its_id_time_and_bytes(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The queue shows it as it was enqueued; its slice is that of now."""
    enqueue_id = await queue.enqueue(mail("a"), CONTENT, delay=5 * HOUR)
    (before,) = await listed(queue)
    twin.clock.advance(5 * 3600 + 1)
    await queue.move_due()
    (after,) = await listed(queue)
    assert after.queued == before.queued
    assert after.queued.enqueue_id == enqueue_id
    assert after.enqueued_at == before.enqueued_at
    assert (after.whereabouts, after.slice_start) == (Whereabouts.WAITING, slice_of(twin.clock.now, HOUR))
    assert await queue.content(after) == CONTENT


@settings(max_examples=25)
@given(
    delays=st.lists(st.integers(1, 40 * 60), min_size=1, max_size=12),
    pauses=st.lists(st.integers(1, 1200), min_size=1, max_size=20),
    skew=st.integers(-5, 5),
)
async def test_every_delayed_mail_comes_exactly_once(delays: list[int], pauses: list[int], skew: int) -> None:
    """Two processes that move at odd times, one with a clock that differs, deliver each mail once, none too early."""
    twin = twin_queue(buckets=2)
    other_clock = SkewedClock(twin.clock, timedelta(seconds=skew))
    async with await twin.process() as queue, await twin.process(other_clock) as other:
        waits = {f"{number}": timedelta(seconds=delay) for number, delay in enumerate(delays)}
        begun = twin.clock.now
        await delayed(queue, waits)
        came: dict[str, datetime] = {}
        for pause in [*pauses, 3 * 3600]:
            twin.clock.advance(pause)
            await asyncio.gather(queue.move_due(), other.move_due())
            for name in await all_delivered(queue):
                assert name not in came
                came[name] = twin.clock.now
        assert came.keys() == waits.keys()
        for name, at in came.items():
            assert at - begun >= waits[name] - timedelta(seconds=max(skew, 0))


def test_times_are_kept_to_the_millisecond_and_never_shortened() -> None:
    assert in_millis_after(EPOCH + timedelta(microseconds=1)) == EPOCH + timedelta(milliseconds=1)
    assert in_millis_after(EPOCH + timedelta(microseconds=1000)) == EPOCH + timedelta(milliseconds=1)


async def test_buckets_that_grew_are_all_moved() -> None:
    """Processes of before and after the change of the configuration see each other's mails."""
    twin = twin_queue(buckets=1)
    async with await twin.process() as old:
        wide = twin_queue(buckets=4).configuration
        twin.configuration = wide
        async with await twin.process() as new:
            await delayed(old, dict.fromkeys("abcd", HOUR))
            await delayed(new, dict.fromkeys("efgh", HOUR))
            twin.clock.advance(3601)
            assert await old.move_due() == 8
            assert sorted(await all_delivered(new)) == list("abcdefgh")


async def test_a_round_reads_behind_what_was_moved(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The tombstones of moved mails are not met again and again, but for those of the last seconds."""
    await delayed(queue, {"first": timedelta(seconds=1), "later": timedelta(seconds=400)})
    for _ in range(5):
        twin.clock.advance(60)
        await queue.move_due()
    scans = twin.memory.surround = Strike(lambda one: of(Scan)(one) and one.under[1] != EPOCH)
    await queue.move_due()
    assert [(scan.after, scan.limit) for scan in scans.struck] == [((twin.clock.now - LATE,), 1)]
    twin.clock.advance(200)
    assert await queue.move_due() == 1


async def test_nothing_delayed_costs_one_read(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await delayed(queue, {"far": 300 * 24 * HOUR})
    seen = twin.memory.surround = Strike(of(object))
    assert await queue.move_due() == 0
    assert len(seen.struck) == 1


async def test_listing_costs_the_slices_that_hold_mails(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await delayed(queue, {"near": MINUTE, "far": 300 * 24 * HOUR})
    assert len(await partitions(twin)) == 2
    assert (await queue.size()).delayed == 2


async def test_a_slice_that_is_over_is_struck_off(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Of what was moved no row is left, nor of its place in the list."""
    await delayed(queue, {"a": MINUTE, "b": 2 * MINUTE})
    twin.clock.advance(121)
    assert await queue.move_due() == 2
    assert await partitions(twin)
    twin.clock.advance((DUE_WINDOW + CLOSE_AFTER).total_seconds())
    await queue.move_due()
    assert not await partitions(twin)
    assert not rows(twin)
    assert await twin.due().due_start(QUEUE) == slice_of(twin.clock.now - CLOSE_AFTER, DUE_WINDOW)


async def test_the_due_start_only_grows(twin: TwinQueue) -> None:
    """A mover whose clock is behind closes nothing again, and opens nothing."""
    due = twin.due()
    later = await due.close_before(QUEUE, twin.clock.now)
    assert await due.close_before(QUEUE, twin.clock.now - HOUR) == later
    assert await due.due_start(QUEUE) == later


def a_listed(twin: TwinQueue, due_at: datetime, name: str = "late") -> Listed:
    return Listed(queued(7, name), twin.clock.now, Whereabouts.DELAYED, due_at=due_at)


async def test_a_mail_for_a_closed_slice_is_due_at_once(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """Its author's clock is behind: the mail lies in an open slice, and comes with the next round."""
    start = await twin.due().close_before(QUEUE, twin.clock.now)
    slow = SkewedClock(twin.clock, -2 * HOUR)
    await twin.due(slow).put(QUEUE, a_listed(twin, twin.clock.now - 2 * HOUR + MINUTE))
    (put,) = [one async for one in twin.due().mails(QUEUE)]
    assert put.due_at == put.partition.due_slice == start
    assert rows(twin) == 2 + 1, "its row, and two places in the list"
    assert await queue.move_due() == 1


@dataclass(slots=True)
class Gate:
    """A wire that lets so many operations through, and no more until it is opened."""

    left: int
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self, _: Side, _what: str, carry_out: Callable[[], Awaitable[T]], _errors: Errors) -> T:
        self.left -= 1
        if self.left < 0:
            self.reached.set()
            await self.opened.wait()
        return await carry_out()

    def came(self, _: str) -> None:
        """At once."""


@pytest.mark.parametrize("operations", range(4))
async def test_a_slice_that_is_closed_while_a_mail_is_put_loses_nothing(
    operations: int, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """The mover closes, empties and strikes off the slice between two steps of a put: the mail is moved all the same.

    The put names the slice, writes the row, reads the due start; it stalls before each of them, or not at all.
    """
    await delayed(queue, {"other": MINUTE})
    gate = Gate(operations)
    due = twin.due(VirtualClock(), 1, WiredTables(twin.tables, gate))
    putting = asyncio.ensure_future(due.put(QUEUE, a_listed(twin, twin.clock.now + 2 * MINUTE)))
    reached = asyncio.ensure_future(gate.reached.wait())
    await asyncio.wait((putting, reached), return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    twin.clock.advance(2 * 3600)
    for _ in range(2):
        await queue.move_due()
    assert not await partitions(twin)
    gate.opened.set()
    await putting
    for _ in range(2):
        await queue.move_due()
    assert sorted(await names(queue)) == ["late", "other"]
    twin.clock.advance(3600)
    await queue.move_due()
    assert not rows(twin)


@pytest.mark.parametrize("seconds", [1, 20, 120, 500])
async def test_a_row_that_was_written_late_is_found(seconds: int, twin: TwinQueue) -> None:
    """With the next round where it is late by what writes may take; at the latest when its slice is closed."""
    twin.clock.turn_to(slice_of(twin.clock.now, DUE_WINDOW) + MINUTE)
    async with await twin.process() as queue:
        begun = twin.clock.now
        await delayed(queue, {"in time": timedelta(seconds=seconds + 5)})
        twin.clock.advance(seconds + 6)
        assert await queue.move_due() == 1
        stalled = VirtualClock(round(begun.timestamp() * 1_000_000))
        await twin.due(stalled).put(QUEUE, a_listed(twin, begun + timedelta(seconds=5)))
        if seconds <= LATE.total_seconds():
            assert await queue.move_due() == 1
        twin.clock.advance((DUE_WINDOW + CLOSE_AFTER).total_seconds())
        await queue.move_due()
        assert await names(queue) == ["in time", "late"]


async def test_several_movers_publish_each_mail_once() -> None:
    twin = twin_queue(buckets=4)
    async with await twin.process() as one, await twin.process() as two, await twin.process() as three:
        await delayed(one, {f"{number}": MINUTE for number in range(150)})
        twin.clock.advance(61)
        moved = sum(await asyncio.gather(one.move_due(), two.move_due(), three.move_due()))
        moved += await one.move_due()
        assert moved == len(twin.broker.published) == 150


async def test_what_was_deleted_while_it_was_moved_does_not_come_back(twin: TwinQueue) -> None:
    """The mover had looked its mark up just before: the mail's delivery is filtered."""
    async with await twin.process() as queue, await twin.process() as operator:
        await delayed(queue, {"a": MINUTE})
        twin.clock.advance(61)
        moving = asyncio.ensure_future(queue.move_due())
        removed = 0
        while not moving.done():
            removed += (await operator.purge()).count
        removed += (await operator.purge()).count
        assert removed >= 1
        assert not await all_delivered(queue)
        assert not await names(queue)
        assert not twin.blobs.ids


async def test_a_marked_mail_goes_with_its_bytes_when_its_time_comes(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    await delayed(queue, {"a": MINUTE})
    (shown,) = await listed(queue)
    await queue.view.mark(QUEUE, shown.queued.enqueue_id, None)
    assert not await names(queue)
    twin.clock.advance(61)
    assert await queue.move_due() == 0
    assert not twin.broker.published
    assert not twin.blobs.ids


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.UNREACHABLE, Fate.UNCONFIRMED_KEPT], ids=lambda fate: fate.name)
async def test_a_mail_that_cannot_be_published_stays_delayed(
    fate: Fate, twin: TwinQueue, queue: RabbitMailQueue
) -> None:
    """The others are moved, the caller is told, the next round takes it along; it is listed once."""
    await delayed(queue, {"a": MINUTE, "b": MINUTE, "c": MINUTE})
    twin.clock.advance(61)
    twin.broker.will(fate)
    with pytest.raises(MailmendError):
        await queue.move_due()
    assert twin.counted.of(QueueCount.DUE_MOVED) == 2
    assert sorted(await names(queue)) == ["a", "b", "c"]
    assert (await queue.size()).delayed == 1
    assert await queue.move_due() == 1
    assert sorted(await all_delivered(queue)) == ["a", "b", "c"]


async def test_a_broker_that_is_away_fails_the_round_and_no_mail(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """However many are due: the round gives up soon, and the next one moves all."""
    await delayed(queue, {f"{number}": MINUTE for number in range(200)})
    twin.clock.advance(61)
    twin.broker.go_away()
    with pytest.raises(BrokerUnreachable):
        await queue.move_due()
    twin.broker.come_back()
    assert await queue.move_due() == 200


@pytest.mark.parametrize("later", [timedelta(seconds=61), DUE_WINDOW + CLOSE_AFTER])
async def test_a_queue_that_ends_does_not_wait_until_all_is_moved(
    monkeypatch: pytest.MonkeyPatch, later: timedelta
) -> None:
    """The batch under way ends; the next process moves the others, each once, in an open slice and in a closed one."""
    twin, stop = twin_queue(buckets=1), asyncio.Event()
    async with await twin.process() as queue:
        await delayed(queue, {f"{number}": MINUTE for number in range(3 * AT_ONCE)})
        twin.clock.advance(later.total_seconds())
        publish = twin.broker.publish

        async def published(*message: Any) -> None:
            stop.set()
            await publish(*message)

        with monkeypatch.context() as patched:
            patched.setattr(twin.broker, "publish", published)
            await queue.maintain(stop)
        assert twin.counted.of(QueueCount.DUE_MOVED) == AT_ONCE
        assert await queue.move_due() == 2 * AT_ONCE
        assert sorted(await all_delivered(queue)) == sorted(f"{number}" for number in range(3 * AT_ONCE))


async def test_a_row_that_holds_no_mail_stays_until_somebody_looks(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The others of its slice are moved; the slice is asked for seldom, and never struck off."""
    await delayed(queue, {"a": MINUTE, "b": MINUTE})
    (broken, _) = await listed(queue)
    ((due_slice,),) = [[one] for one in await partitions(twin)]
    key = (QUEUE, due_slice, 0, broken.due_at, broken.queued.enqueue_id)
    twin.memory.write(Change(DUE_MAILS, key, assign={"headerblobid": None}))
    twin.clock.advance(1200)
    assert await queue.move_due() == 1
    await queue.move_due()
    assert await partitions(twin)
    seen = twin.memory.surround = Strike(of(object))
    await queue.move_due()
    assert len(seen.struck) == 2, "the list and the due start"
    twin.memory.write(Remove(DUE_MAILS, key))
    twin.clock.advance(UNREADABLE_PAUSE.total_seconds() + 1)
    await queue.move_due()
    assert not await partitions(twin)


async def test_a_slow_clock_deletes_what_a_fast_one_has_delayed(twin: TwinQueue) -> None:
    """The row goes, whoever stamped it: else the mail would come back once its mark expired, before a far due time."""
    slow = await working(twin, -7 * MINUTE)
    async with await twin.process() as queue:
        await queue.enqueue(mail("far"), CONTENT, delay=timedelta(days=30))
        await slow.queue.purge()
        assert rows(twin) == 1  # its slice is still listed
    await slow.close()


async def test_a_mail_that_is_due_at_the_same_moment_again_is_not_covered(twin: TwinQueue) -> None:
    """Retried at once by a slow clock, twice within one slice that a fast one has closed: both times it comes."""
    slow, fast = await working(twin, -10 * MINUTE), await working(twin, 10 * MINUTE)
    await slow.queue.enqueue(mail("again"), CONTENT)
    for _ in range(3):
        (one,) = await taken(slow, 1)
        await one.retry(timedelta(0))
        twin.clock.advance(1)
        await fast.queue.move_due()
    twin.clock.advance(1200)  # what a clock behind has put late is found when its slice is closed
    await fast.queue.move_due()
    assert len(await taken(slow, 1)) == 1
    for worker in (slow, fast):
        await worker.close()
