"""A connection to RabbitMQ that does not come about leaves nothing behind."""

import asyncio
import gc

import pytest

from mailmend.mailqueue.rabbitmq.broker.amqp import Link
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Host
from mailmend.model.errors import BrokerUnreachable
from mailmend.repair.clock import SystemClock
from mailmend.repair.retries import AsyncRetries


def test_nothing_of_a_dial_that_failed_is_left_to_the_collector() -> None:
    """It may run in any thread, where nobody can close a connection: that would warn, and here warnings are errors."""

    async def story() -> None:
        settings = BrokerSettings((Host("127.0.0.1", 1),))
        with pytest.raises(BrokerUnreachable):
            await Link(settings, "publishing", AsyncRetries(SystemClock())).channel()
        await asyncio.to_thread(gc.collect)

    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()
