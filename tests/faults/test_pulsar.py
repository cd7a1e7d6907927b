"""A real Pulsar that is killed: what was confirmed is there, what was deleted is gone, and the same processes go on."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from mailqueue.pulsar.adapter import PulsarTopics
from mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailqueue.queue import Dequeued
from model.errors import MailmendError
from model.ids import QueueName
from model.queue.filters import MailFilter
from repair.clock import SystemClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.pulsars import OwnPulsar, throwaway_pulsar
from tests.support.queues import CONTENT, enqueued, mail, names

pytestmark = pytest.mark.pulsar

PATIENCE_SECONDS = 60.0
IDLE_SECONDS = 1.5


@pytest.fixture(scope="module")
def pulsar() -> Iterator[OwnPulsar]:
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


async def answered(ask: Callable[[], Awaitable[object]]) -> None:
    """Wait until the client has found its broker again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            await ask()
        except MailmendError:
            assert time.monotonic() < deadline, "it never answered"
            await asyncio.sleep(0.2)
        else:
            return


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
        await answered(queue.size)
        came = await taken(mails)
    assert sorted(map(int, came)) == list(range(2, 12, 2))
    assert not set(kept) & set(await names(queue))
    assert (await queue.flush()).count == 0
