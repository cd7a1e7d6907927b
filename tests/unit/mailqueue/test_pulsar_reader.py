"""A reader of one of Pulsar's partitions, above a client whose broker says that a message is there."""

import asyncio
from typing import Any

import pytest

from mailqueue.pulsar.client import PulsarClient, TopicReader
from mailqueue.pulsar.settings import PulsarSettings
from model.errors import BrokerUnreachable
from tests.support.clock import VirtualClock


class Silent:
    """It gives no message."""

    closed = False

    async def has_message_available(self) -> bool:
        return True

    async def read_next(self) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True


async def test_a_message_that_never_comes_ends_the_reading() -> None:
    settings, silent = PulsarSettings("pulsar://p:6650", "http://p:8080", answer_seconds=0.01), Silent()
    reader = TopicReader(PulsarClient(settings, VirtualClock()), silent)

    with pytest.raises(BrokerUnreachable, match="a message did not come") as away:
        async with asyncio.timeout(10):
            await reader.next(0)
    await reader.close()

    assert "pulsar-admin brokers healthcheck" in away.value.mend
    assert silent.closed
