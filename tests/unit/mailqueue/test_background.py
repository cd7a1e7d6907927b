"""The background work of a queue: jobs at their pace, blobs deleted together, a clean end."""

import asyncio
import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from mailmend.mailqueue import concurrency
from mailmend.mailqueue.concurrency import BackgroundJob, BackgroundTasks, BlobCleanup, finished, run_jobs
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from mailmend.mailqueue.rules.mails import MailBlobs
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.model.errors import BlobsUnreachable, CannotReach
from mailmend.model.ids import BlobId
from tests.support.clock import VirtualClock
from tests.support.logs import logged
from tests.support.memory_broker import Fate
from tests.support.queues import CONTENT, QUEUE, TwinQueue, enqueued, mail, names, next_of, until

SECOND = timedelta(seconds=1)


async def test_a_maintained_queue_moves_what_is_due_and_tells_its_size(twin: TwinQueue) -> None:
    stop = asyncio.Event()
    async with await twin.process() as queue, await twin.process() as other:
        maintaining = asyncio.ensure_future(queue.maintain(stop))
        await enqueued(queue, "now")
        await queue.enqueue(mail("later"), CONTENT, delay=timedelta(minutes=1))
        begun = twin.clock.now
        await until(lambda: len(twin.broker.published) == 2)
        assert timedelta(minutes=1) <= twin.clock.now - begun <= timedelta(minutes=1, seconds=3)
        stop.set()
        await maintaining
        size = await other.size()
        assert (size.mails, size.kind) == (2, SizeKind.EXACT)
        assert await names(other) == ["now", "later"]


async def test_a_maintained_queue_survives_a_broker_that_is_away(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    stop = asyncio.Event()
    await queue.enqueue(mail("later"), CONTENT, delay=SECOND)
    twin.broker.will(*[Fate.UNREACHABLE] * 5)
    async with queue.dequeue() as mails, asyncio.TaskGroup() as tasks:
        tasks.create_task(queue.maintain(stop))
        one = await anext(mails)
        await one.ack()
        stop.set()
    assert not await names(queue)


async def test_a_failing_job_ends_no_other_and_is_tried_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """A server that is away, and a flaw of ours: both are logged, and both tried again, further and further apart."""
    caplog.set_level(logging.WARNING, "mailmend.queue")
    clock, stop, at = VirtualClock(), asyncio.Event(), dict[str, list[float]]()
    begun = clock.now

    def job(name: str, error: Exception | None = None) -> BackgroundJob:
        async def work() -> None:
            at.setdefault(name, []).append((clock.now - begun).total_seconds())
            if error is not None:
                raise error
            if len(at[name]) == 40:
                stop.set()

        return BackgroundJob(name, work, SECOND)

    away, flawed = job("away", CannotReach("nobody answers")), job("flawed", LookupError("a flaw"))
    await run_jobs(QUEUE, clock, stop, (away, flawed, job("fine")))
    assert at["fine"] == list(map(float, range(40)))
    assert at["away"] == at["flawed"] == [0, 1, 3, 7, 15, 31]
    assert 'background work failed queue=spool work=away error="nobody answers"' in logged(caplog)
    assert "a flaw" in logged(caplog)


async def test_asked_to_stop_it_stops_at_once() -> None:
    clock, stop, ended = VirtualClock(), asyncio.Event(), []

    async def slow() -> None:
        stop.set()
        await asyncio.sleep(0)
        ended.append(clock.now)

    begun = clock.now
    await run_jobs(QUEUE, clock, stop, (BackgroundJob("slow", slow, timedelta(hours=1)),))
    assert ended == [begun]
    assert clock.now - begun < timedelta(hours=1)


async def test_closing_waits_for_what_nobody_waited_for() -> None:
    background_tasks, done, most, now = BackgroundTasks(under_way=3), [], 0, 0

    async def work() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        done.append(1)

    for _ in range(10):
        await background_tasks.add(work)
    await background_tasks.close()
    assert (len(done), most) == (10, 3)


async def test_what_fails_in_the_background_is_logged_and_fails_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mailmend.queue"):
        background_tasks = BackgroundTasks()

        async def fail() -> None:
            raise CannotReach("the blobs do not answer")

        async def flawed() -> None:
            raise LookupError("a flaw")

        await background_tasks.add(fail)
        await background_tasks.add(flawed)
        await background_tasks.close()
    assert 'left undone error="the blobs do not answer"' in logged(caplog)
    assert "LookupError" in logged(caplog)


async def test_what_must_be_finished_is_finished_however_often_it_is_cancelled() -> None:
    """The caller goes when the work has come to its end, with its cancellation."""
    done = False

    async def work() -> None:
        nonlocal done
        for _ in range(5):
            await asyncio.sleep(0)
        done = True

    working = asyncio.ensure_future(finished(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert done


async def test_an_error_after_the_callers_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mailmend.queue"):

        async def work() -> None:
            await asyncio.sleep(0)
            raise CannotReach("too late")

        working = asyncio.ensure_future(finished(work()))
        await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert "too late" in logged(caplog)


async def test_a_consumer_may_maintain_and_dequeue_in_one_process(twin: TwinQueue) -> None:
    """A service is one task for each: retried mails come back to it by themselves."""
    stop = asyncio.Event()
    async with await twin.process() as queue, queue.dequeue() as mails:
        await enqueued(queue, "a")
        await (await anext(mails)).retry()
        assert await next_of(mails) is None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.maintain(stop))
            one = await anext(mails)
            assert one.attempts == 1
            await one.ack()
            stop.set()


class Deleting:
    """Blobs that only delete, when the gate is open.

    Attributes:
        requests: how many each was asked to delete.
    """

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.deleted: list[BlobId] = []
        self.gate = asyncio.Event()
        self.silent = False

    async def delete_all(self, blob_ids: Collection[BlobId]) -> None:
        self.requests.append(len(blob_ids))
        await self.gate.wait()
        if self.silent:
            raise BlobsUnreachable("no answer")
        self.deleted += blob_ids


def kept(number: int) -> MailBlobs:
    return MailBlobs(BlobId(f"h{number}"), BlobId(f"b{number}"))


def cleanup_over(blobs: Any, sweeps: list[int], background_tasks: BackgroundTasks) -> BlobCleanup:

    async def maybe_sweep() -> None:
        sweeps.append(1)

    return BlobCleanup(blobs, maybe_sweep, background_tasks, VirtualClock())


async def test_what_comes_meanwhile_goes_together() -> None:
    """One request for the first, one for all that came while it was under way; a chance of a sweep for each mail."""
    blobs, sweeps, background_tasks = Deleting(), list[int](), BackgroundTasks()
    cleanup = cleanup_over(blobs, sweeps, background_tasks)
    await cleanup.add(kept(0), dequeued=True)
    await until(lambda: len(blobs.requests) == 1)
    for number in range(1, 10):
        await cleanup.add(kept(number), dequeued=number % 2 == 0)
    blobs.gate.set()
    await background_tasks.close()
    assert blobs.requests == [2, 18]
    assert len(set(blobs.deleted)) == 20
    assert len(sweeps) == 5


async def test_the_first_waits_a_moment_for_others() -> None:
    """A consumer that acks one mail after the other has many of them forgotten by one request."""
    blobs, background_tasks = Deleting(), BackgroundTasks()
    cleanup = cleanup_over(blobs, [], background_tasks)
    blobs.gate.set()
    for number in range(5):
        await cleanup.add(kept(number), dequeued=False)
        await asyncio.sleep(0)
    await background_tasks.close()
    assert blobs.requests == [10]


async def test_consumers_wait_for_a_store_that_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "WAITING_MAX", 3)
    monkeypatch.setattr(concurrency, "TOGETHER_MAX", 2)
    blobs, background_tasks = Deleting(), BackgroundTasks()
    cleanup = cleanup_over(blobs, [], background_tasks)
    await cleanup.add(kept(0), dequeued=False)
    await until(lambda: len(blobs.requests) == 1)
    adding = [asyncio.ensure_future(cleanup.add(kept(number), dequeued=False)) for number in range(1, 9)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(one.done() for one in adding) == 3
    blobs.gate.set()
    await asyncio.gather(*adding)
    await background_tasks.close()
    assert len(set(blobs.deleted)) == 18
    assert max(blobs.requests) <= 4


async def test_a_store_that_does_not_answer_fails_nobody() -> None:
    """What it keeps is left to the sweep; the next mails are tried again."""
    blobs, sweeps, background_tasks = Deleting(), list[int](), BackgroundTasks()
    cleanup = cleanup_over(blobs, sweeps, background_tasks)
    blobs.gate.set()
    blobs.silent = True
    await cleanup.add(kept(0), dequeued=True)
    await background_tasks.close()
    assert len(sweeps) == 1
    blobs.silent = False
    await cleanup.add(kept(1), dequeued=True)
    await background_tasks.close()
    assert blobs.deleted == ["h1", "b1"]


async def test_a_busy_queue_leaves_no_bytes(twin: TwinQueue) -> None:
    async with await twin.process() as queue:
        await enqueued(queue, *(f"{number}" for number in range(50)))
        await queue.enqueue(mail("kept"), CONTENT, priority=0)
        async with queue.dequeue(prefetch=20, priorities=[5]) as mails, asyncio.TaskGroup() as tasks:
            for _ in range(50):
                tasks.create_task((await anext(mails)).ack())
    assert len(twin.blobs.ids) == 2
