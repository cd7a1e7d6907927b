"""RabbitMQ as the mail queue's broker: what the port asks for, put together."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mailqueue.broker_settings import BrokerSettings
from mailqueue.ports import Clock, Delivery, Depth, Message
from mailqueue.rabbitmq.amqp import Link
from mailqueue.rabbitmq.consuming import Means, consuming
from mailqueue.rabbitmq.declaring import Declared
from mailqueue.rabbitmq.publishing import Publishing
from mailqueue.topology import topology_of
from model.ids import QueueName
from model.mails import PRIORITIES, PRIORITY_NORMAL


class RabbitBroker:
    """Implements `mailqueue.ports.Broker`."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._out, self._in = Link(settings), Link(settings)
        self._declared_out, self._declared_in = Declared(self._out), Declared(self._in)
        self._publishing = Publishing(self._out, self._declared_out)
        self._means = Means(self._in, self._declared_in, clock)

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        """Publish, and return when the broker has confirmed that it keeps the message."""
        await self._publishing.publish(topology_of(queue, priority), message)

    def deliveries(
        self, queue: QueueName, prefetch: int, priorities: Collection[int] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Take messages."""
        return self._deliveries(queue, prefetch, priorities)

    @asynccontextmanager
    async def _deliveries(
        self, queue: QueueName, prefetch: int, priorities: Collection[int] | None
    ) -> AsyncGenerator[AsyncIterator[Delivery]]:
        chosen = await self._levels(queue) if priorities is None else priorities
        levels = [(one, one.work_queue) for one in (topology_of(queue, level) for level in chosen)]
        async with consuming(self._means, levels, prefetch) as found:
            yield found

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Take dead letters."""
        topology = topology_of(queue)
        levels = [(topology, topology.dead_letter_queue)]
        return consuming(self._means, levels, prefetch)

    async def depth(self, queue: QueueName) -> Depth:
        """How many messages there are."""
        ready = consumers = 0
        for level in PRIORITIES:
            counted = await self._declared_in.counts(topology_of(queue, level).work_queue)
            ready += counted[0] if counted else 0
            consumers += counted[1] if counted else 0
        dead = await self._declared_in.counts(topology_of(queue).dead_letter_queue)
        return Depth(ready, None, consumers, dead[0] if dead else 0)

    async def close(self) -> None:
        """Close every connection."""
        await self._publishing.close()
        await self._in.close()
        await self._out.close()

    async def _levels(self, queue: QueueName) -> list[int]:
        """The normal level, and the side queues that there are."""
        found = []
        for level in PRIORITIES:
            there = level == PRIORITY_NORMAL or await self._declared_in.counts(topology_of(queue, level).work_queue)
            if there:
                found.append(level)
        return found
