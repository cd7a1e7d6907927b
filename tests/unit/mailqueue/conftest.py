"""What most tests of the queue begin with."""

from collections.abc import AsyncIterator

import pytest

from mailqueue.rabbitmq.mail_queue import RabbitMailQueue
from tests.support.queue_scene import Process, Scene
from tests.support.queues import TwinQueue, twin_queue


@pytest.fixture
def twin() -> TwinQueue:
    """A queue's three sides in memory, empty."""
    return twin_queue()


@pytest.fixture
async def queue(twin: TwinQueue) -> AsyncIterator[RabbitMailQueue]:
    """The queue as one process has it."""
    async with await twin.process() as queue:
        yield queue


@pytest.fixture
def scene() -> Scene:
    """A queue's tables in memory, empty, at noon."""
    return Scene()


@pytest.fixture
def process(scene: Scene) -> Process:
    """One process that works on them."""
    return scene.process()
