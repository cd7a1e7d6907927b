"""What most tests of the queue begin with."""

from collections.abc import AsyncIterator

import pytest

from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from tests.support.queues import Process, TwinQueue, twin_queue


@pytest.fixture
def twin() -> TwinQueue:
    return twin_queue()


@pytest.fixture
async def queue(twin: TwinQueue) -> AsyncIterator[RabbitMailQueue]:
    async with await twin.process() as queue:
        yield queue


@pytest.fixture
def process(twin: TwinQueue) -> Process:
    """One process that works on its tables, without the queue around them."""
    return twin.parts()
