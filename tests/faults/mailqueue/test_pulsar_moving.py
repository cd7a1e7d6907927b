"""Delayed mails on a real Pulsar: the index stands while their topic moves, and no delay is too long."""

import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.mail_queue import PulsarMailQueue, open_queue
from mailmend.mailqueue.pulsar.settings import scheduled_topic
from mailmend.model.errors import BrokerUnreachable
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.patience import PATIENCE_SECONDS
from tests.support.pulsars import RealPulsar
from tests.support.queues import CONTENT, drained, mail

pytestmark = pytest.mark.pulsar

SECOND = timedelta(seconds=1)


def admin(pulsar: RealPulsar, method: str, path: str, content: object = None) -> None:
    request = urllib.request.Request(
        f"http://{pulsar.host}:{pulsar.admin_port}/admin/v2/{path}",
        None if content is None else json.dumps(content).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request):
        pass


@pytest.fixture
async def topics(pulsar: RealPulsar) -> AsyncIterator[PulsarTopics]:
    found = PulsarTopics(pulsar.settings, SystemClock())
    yield found
    await found.close()


@pytest.fixture
async def queue(topics: PulsarTopics) -> AsyncIterator[PulsarMailQueue]:
    name = QueueName(f"q-{uuid4().hex[:12]}")
    async with await open_queue(name, topics, MemoryBlobs(topics.clock), topics.clock) as queue:
        yield queue


async def moved(queue: PulsarMailQueue, count: int) -> None:
    """Look again and again, also while no broker serves the topic, until so many have come to be due."""
    deadline, left = time.monotonic() + PATIENCE_SECONDS, count
    while left:
        assert time.monotonic() < deadline, "they never came"
        try:
            left -= await queue.move_due()
        except BrokerUnreachable:
            await asyncio.sleep(0.1)
    assert left == 0


async def test_an_index_stands_while_its_topic_is_unloaded(
    pulsar: RealPulsar, topics: PulsarTopics, queue: PulsarMailQueue
) -> None:
    """What was there before, and what came after; the ledger is another one by then."""
    for number in range(3):
        await queue.enqueue(mail(f"before-{number}"), CONTENT, delay=(number + 1) * SECOND)
    await queue.enqueue(mail("far"), CONTENT, delay=3600 * SECOND)
    already = await queue.move_due()
    topic = f"persistent/{topics.namespace}/{scheduled_topic(queue.name)}"
    await asyncio.to_thread(admin, pulsar, "PUT", f"{topic}/unload")
    for number in range(3):
        await queue.enqueue(mail(f"after-{number}"), CONTENT, delay=(number + 1) * SECOND)
    await moved(queue, 6 - already)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert sorted(await drained(queue, 6)) == [
            f"{when}-{number}" for when in ("after", "before") for number in range(3)
        ]
    assert (await queue.flush()).count == 1


async def test_a_mail_may_be_delayed_for_longer_than_the_broker_delays_messages(
    pulsar: RealPulsar, topics: PulsarTopics, queue: PulsarMailQueue
) -> None:
    await queue.enqueue(mail("short"), CONTENT, delay=10 * SECOND)
    topic = f"persistent/{topics.namespace}/{scheduled_topic(queue.name)}"
    policy = {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 60_000}
    await asyncio.to_thread(admin, pulsar, "POST", f"{topic}/delayedDelivery", policy)
    other = PulsarTopics(pulsar.settings, topics.clock)
    async with await open_queue(queue.name, other, MemoryBlobs(topics.clock), topics.clock) as again:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await again.enqueue(mail("long"), CONTENT, delay=3600 * SECOND)
            await again.enqueue(mail("next"), CONTENT, delay=10 * SECOND)
        assert (await queue.flush(dry_run=True)).count == 3
    await other.close()
