"""Publishing: one channel with confirms for everybody; a publish returns when the broker keeps the message."""

import asyncio
from datetime import timedelta
from typing import Final

from aio_pika import DeliveryMode
from aio_pika import Message as AmqpMessage

from mailqueue.ports import Message
from mailqueue.rabbitmq.amqp import (
    LOST,
    AbstractChannel,
    ChannelNotFoundEntity,
    DeliveryError,
    Link,
    PublishError,
    told,
)
from mailqueue.rabbitmq.declaring import Declared
from mailqueue.topology import ROUTING_KEY, Topology, headers_to_publish
from model.errors import BrokerUnreachable, PublishFailed

CONTENT_TYPE: Final = "text/plain"
"""As James sets it."""


class Publishing:
    """Publishes to every queue of one broker; any number at once."""

    def __init__(self, link: Link, declared: Declared) -> None:
        self._link, self._declared = link, declared
        self._channel: AbstractChannel | None = None
        self._turn = asyncio.Lock()

    async def publish(self, topology: Topology, message: Message) -> None:
        """Publish; once more over a new channel where the first was refused or lost before anything was sent.

        Raises:
            PublishFailed: refused, returned, or not confirmed in time.
            BrokerUnreachable: nobody answers.
        """
        try:
            await self._once(topology, message)
        except (DeliveryError, ChannelNotFoundEntity):
            self._channel = None
            self._declared.forget(topology)
            await self._again(topology, message)

    async def _again(self, topology: Topology, message: Message) -> None:
        try:
            await self._once(topology, message)
        except (DeliveryError, ChannelNotFoundEntity) as error:
            raise PublishFailed(
                f"the broker did not take a message for {topology.exchange}: {error}",
                mend="See whether its queue is full or gone: rabbitmqctl list_queues name messages arguments",
            ) from error

    async def _once(self, topology: Topology, message: Message) -> None:
        await self._declared.ensure(topology)
        channel = await self._open()
        with told(self._link.settings):
            exchange = await channel.get_exchange(topology.exchange, ensure=False)
        sent = AmqpMessage(
            message.body,
            headers=dict(headers_to_publish(message.headers)),
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT,
            priority=0,
        )
        seconds = self._link.settings.publish_confirm_seconds
        try:
            async with asyncio.timeout(seconds):
                await exchange.publish(sent, ROUTING_KEY, mandatory=True)
        except (PublishError, DeliveryError, ChannelNotFoundEntity):
            raise
        except LOST as error:
            self._channel = None
            raise PublishFailed(
                f"the broker at {self._link.settings.place} did not confirm a message within "
                f"{timedelta(seconds=seconds).total_seconds():g} s: {str(error) or type(error).__name__}",
                mend="It may hold it all the same. See whether it runs: rabbitmqctl status; rabbitmqctl list_alarms",
                doubtful=True,
            ) from error

    async def _open(self) -> AbstractChannel:
        async with self._turn:
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._link.channel(confirms=True)
            return self._channel

    async def close(self) -> None:
        """Nothing is published any more."""
        self._channel = None


def gone(place: str) -> BrokerUnreachable:
    """What settling a delivery meets whose channel is gone."""
    return BrokerUnreachable(
        f"the connection to {place} that brought a message is gone",
        mend="The broker delivers it again; nothing is to be done.",
    )
