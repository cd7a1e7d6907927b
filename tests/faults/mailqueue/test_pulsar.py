"""A real Pulsar that is killed: what was confirmed is there, what was deleted is gone, and the same processes go on."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from uuid import uuid4

import pytest

from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.client import READ_AHEAD
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.model.errors import BrokerUnreachable, MailmendError
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import OwnPulsar, RealPulsar, answered, throwaway_pulsar
from tests.support.queues import CONTENT, enqueued, mail, names, names_of

pytestmark = pytest.mark.pulsar

IDLE_SECONDS = 1.5


@pytest.fixture(scope="module", name="pulsar")
def own_pulsar(pulsar: RealPulsar) -> Iterator[OwnPulsar]:
    """The server that tests share, where they started it: each of these tests leaves it running."""
    if isinstance(pulsar, OwnPulsar):
        yield pulsar
        return
    with throwaway_pulsar() as found:
        yield found


@pytest.fixture
async def queue(pulsar: OwnPulsar) -> AsyncIterator[PulsarMailQueue]:
    clock = SystemClock()
    topics = PulsarTopics(pulsar.settings, clock)
    name = QueueName(f"q-{uuid4().hex[:12]}")
    async with await open_queue(name, topics, MemoryBlobs(clock), clock) as queue:
        yield queue
    await topics.close()


async def taken(mails: AsyncIterator[Dequeued]) -> list[str]:
    """All that comes until nothing has come for a while; each is acked."""
    found = list[str]()
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                one = await anext(mails)
        except TimeoutError:
            return found
        found.append(one.mail.name)
        await one.ack()


async def killed_and_back(pulsar: OwnPulsar) -> None:
    await asyncio.to_thread(pulsar.run.kill)
    await asyncio.to_thread(pulsar.run.up)


class Traffic:
    """Mails that go in and out of one queue side by side, and what of it was acknowledged.

    Attributes:
        went_in: mails that must come.
        ended: those that were acked or rejected, or deleted while their delete failed: they may come.
        deleted: those that must not come any more.
        wrong: those that did.
    """

    def __init__(self, queue: PulsarMailQueue) -> None:
        self._queue, self._stop = queue, asyncio.Event()
        self.went_in, self.ended, self.deleted, self.wrong = set[str](), set[str](), set[str](), set[str]()

    async def run(self, mishap: Awaitable[None]) -> None:
        async with self._queue.dequeue(prefetch=8) as mails:
            working = [asyncio.ensure_future(one) for one in (self._put_in(), self._delete())]
            taking = asyncio.ensure_future(self._take_out(mails))
            await mishap
            self._stop.set()
            await asyncio.gather(*working)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _put_in(self) -> None:
        """Every fourth is of whoever is deleted."""
        for number in count():
            if self._stop.is_set():
                return
            sender, delay = ("eve@example.org", "ada@example.org")[number % 4 > 0], None if number % 5 else timedelta(0)
            with suppress(MailmendError):
                await self._queue.enqueue(mail(f"{number}", sender=sender), CONTENT, delay=delay)
                self.went_in.add(f"{number}")
            await asyncio.sleep(0.02)

    async def _take_out(self, mails: AsyncIterator[Dequeued]) -> None:
        async for one in mails:
            name = one.mail.name
            if name in self.deleted:
                self.wrong.add(name)
            with suppress(MailmendError):
                match int(name) % 3:
                    case 0:
                        await one.retry(timedelta(0))
                        continue
                    case 1:
                        await one.ack()
                    case _:
                        await one.reject()
            self.ended.add(name)

    async def _delete(self) -> None:
        kept = set[str]()

        async def keep(one: Listed) -> None:
            kept.add(one.queued.mail.name)

        while not self._stop.is_set():
            kept.clear()
            try:
                await self._queue.delete(MailFilter(sender="eve@example.org"), on_removed=keep)
            except MailmendError:
                self.ended |= kept
            else:
                self.deleted |= kept


@pytest.mark.thorough
async def test_a_broker_that_is_killed_under_traffic_loses_nothing_and_brings_nothing_back(
    pulsar: OwnPulsar, queue: PulsarMailQueue
) -> None:
    """Mails are put in, delayed, acked, retried, rejected and deleted while it dies."""
    traffic = Traffic(queue)

    async def mishap() -> None:
        await asyncio.sleep(IDLE_SECONDS)
        await killed_and_back(pulsar)
        await answered(lambda: queue.enqueue(mail("1000000"), CONTENT), PATIENCE_SECONDS)
        await asyncio.sleep(IDLE_SECONDS)

    await traffic.run(mishap())
    came = set[str]()
    async with queue.dequeue() as mails:
        await answered(queue.flush, PATIENCE_SECONDS)
        came.update(await taken(mails))
    assert traffic.ended
    assert traffic.deleted
    assert not traffic.wrong | (traffic.deleted & came)
    assert traffic.went_in <= came | traffic.ended | traffic.deleted


@pytest.mark.thorough
async def test_a_broker_that_hangs_holds_up_no_listing(pulsar: OwnPulsar) -> None:
    """It is stopped while a listing reads: that ends with an error, and goes on where the broker does."""
    clock = SystemClock()
    topics = PulsarTopics(replace(pulsar.settings, answer_seconds=2.0), clock)
    async with await open_queue(QueueName("hangs"), topics, MemoryBlobs(clock), clock) as queue:
        await enqueued(queue, *map(str, range(READ_AHEAD + 50)))
        async with aclosing(queue.browse()) as found:
            await anext(found)
            with paused(pulsar), pytest.raises(BrokerUnreachable):
                await asyncio.wait_for(names_of(found), PATIENCE_SECONDS)
        await answered(queue.size, PATIENCE_SECONDS)
        assert len(await names(queue)) == READ_AHEAD + 50
    await topics.close()


@contextmanager
def paused(pulsar: OwnPulsar) -> Iterator[None]:
    pids = pulsar.run.status().pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def test_what_was_deleted_stays_deleted_when_the_broker_forgets_it(
    pulsar: OwnPulsar, queue: PulsarMailQueue
) -> None:
    """One that is delayed, one that nobody had, and one that a consumer has prefetched."""
    await enqueued(queue, *map(str, range(12)))
    await queue.enqueue(mail("delayed"), CONTENT, delay=timedelta(hours=1))
    async with queue.dequeue(prefetch=4) as mails:
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = await anext(mails)
        kept = (*map(str, range(1, 12, 2)), "delayed")
        for name in kept:
            assert (await queue.delete(MailFilter(name=name))).count == 1
        await first.ack()
        await killed_and_back(pulsar)
        await answered(queue.size, PATIENCE_SECONDS)
        came = await taken(mails)
    assert sorted(map(int, came)) == list(range(2, 12, 2))
    assert not set(kept) & set(await names(queue))
    assert (await queue.flush()).count == 0
