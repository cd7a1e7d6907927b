"""The background: every chore at its pace, none ended by another's failure, and an end that is clean."""

import asyncio
import logging
from datetime import timedelta

import pytest

from mailqueue.background import BackgroundJob, BackgroundTasks, run_jobs
from mailqueue.concurrency import finished
from mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from model.errors import CannotReach
from model.queue.size import SizeKind
from tests.support.clock import VirtualClock
from tests.support.memory_broker import Fate
from tests.support.queues import CONTENT, QUEUE, TwinQueue, enqueued, mail, names, next_of, until

SECOND = timedelta(seconds=1)


async def test_a_tended_queue_moves_what_is_due_and_tells_its_size(twin: TwinQueue) -> None:
    """Without anybody asking; other processes see the exact size."""
    stop = asyncio.Event()
    async with await twin.process() as queue, await twin.process() as other:
        tending = asyncio.ensure_future(queue.maintain(stop))
        await enqueued(queue, "now")
        await queue.enqueue(mail("later"), CONTENT, delay=timedelta(minutes=1))
        begun = twin.clock.now
        await until(lambda: len(twin.broker.published) == 2)
        assert timedelta(minutes=1) <= twin.clock.now - begun <= timedelta(minutes=1, seconds=3)
        stop.set()
        await tending
        size = await other.size()
        assert (size.mails, size.kind) == (2, SizeKind.EXACT)
        assert await names(other) == ["now", "later"]


async def test_a_tended_queue_survives_a_broker_that_is_away(twin: TwinQueue, queue: RabbitMailQueue) -> None:
    """The delayed mail comes when the broker does."""
    stop = asyncio.Event()
    await queue.enqueue(mail("later"), CONTENT, delay=SECOND)
    twin.broker.will(*[Fate.UNREACHABLE] * 5)
    async with queue.dequeue() as mails, asyncio.TaskGroup() as tasks:
        tasks.create_task(queue.maintain(stop))
        one = await anext(mails)
        await one.ack()
        stop.set()
    assert not await names(queue)


async def test_a_failing_chore_ends_no_other_and_is_tried_seldom(caplog: pytest.LogCaptureFixture) -> None:
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
    assert "queue spool: away: nobody answers" in caplog.text
    assert "a flaw" in caplog.text


async def test_told_to_stop_it_stops_at_once() -> None:
    """What is under way is finished; a pause is cut short."""
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
    """And no more of it is under way at once than there is room for."""
    afterwards, done, most, now = BackgroundTasks(under_way=3), [], 0, 0

    async def work() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        done.append(1)

    for _ in range(10):
        await afterwards.add(work)
    await afterwards.close()
    assert (len(done), most) == (10, 3)


async def test_what_fails_afterwards_is_logged_and_fails_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """An error of ours in one line, a flaw with its trace."""
    with caplog.at_level(logging.WARNING, "mailmend.queue"):
        afterwards = BackgroundTasks()

        async def fail() -> None:
            raise CannotReach("the blobs do not answer")

        async def flawed() -> None:
            raise LookupError("a flaw")

        await afterwards.add(fail)
        await afterwards.add(flawed)
        await afterwards.close()
    assert "left undone: the blobs do not answer" in caplog.text
    assert "LookupError" in caplog.text


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
    """Nobody is there to be told."""
    with caplog.at_level(logging.WARNING, "mailmend.queue"):

        async def work() -> None:
            await asyncio.sleep(0)
            raise CannotReach("too late")

        working = asyncio.ensure_future(finished(work()))
        await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert "too late" in caplog.text


async def test_a_consumer_may_tend_and_dequeue_in_one_process(twin: TwinQueue) -> None:
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
