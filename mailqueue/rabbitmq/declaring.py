"""What is missing of a queue's topology is declared; what is there is looked at, and used as it is.

A passive declaration that finds nothing closes its channel, so each look has one of its own.
"""

import logging

from mailqueue.rabbitmq.amqp import ChannelNotFoundEntity, Link, told
from mailqueue.topology import ROUTING_KEY, Topology

_LOG = logging.getLogger("mailmend.queue")


class Declared:
    """What this process has seen to be there, over the connection of now."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: set[tuple[int, str]] = set()

    async def ensure(self, topology: Topology) -> None:
        """Both exchanges and both queues of a level, bound.

        Raises:
            BrokerUnreachable: nobody answers.
            TopologyMismatch: something is there in a form that cannot be declared upon.
        """
        if (self._link.generation, topology.work_queue) in self._known:
            return
        await self._ensure_exchange(topology.dead_letter_exchange)
        await self._ensure_queue(topology.dead_letter_queue, topology.dead_letter_exchange, {})
        await self._ensure_exchange(topology.exchange)
        arguments = topology.work_arguments(self._link.settings.form)
        await self._ensure_queue(topology.work_queue, topology.exchange, dict(arguments))
        self._known.add((self._link.generation, topology.work_queue))

    def forget(self, topology: Topology) -> None:
        """It may be gone: look again next time."""
        self._known = {known for known in self._known if known[1] != topology.work_queue}

    async def counts(self, queue: str) -> tuple[int, int] | None:
        """Messages that wait in the queue, and its consumers; None: there is no such queue."""
        with told(self._link.settings):
            channel = await self._link.channel()
            try:
                found = await channel.declare_queue(queue, passive=True)
            except ChannelNotFoundEntity:
                return None
            await channel.close()
        result = found.declaration_result
        return result.message_count or 0, result.consumer_count or 0

    async def _ensure_exchange(self, name: str) -> None:
        with told(self._link.settings):
            channel = await self._link.channel()
            try:
                await channel.declare_exchange(name, "direct", passive=True)
            except ChannelNotFoundEntity:
                channel = await self._link.channel()
                await channel.declare_exchange(name, "direct", durable=True)
            await channel.close()

    async def _ensure_queue(self, name: str, exchange: str, arguments: dict[str, str | int]) -> None:
        if await self.counts(name) is not None:
            return
        with told(self._link.settings):
            channel = await self._link.channel()
            _LOG.info("declaring the queue %s", name)
            queue = await channel.declare_queue(name, durable=True, arguments=dict(arguments))
            await queue.bind(exchange, ROUTING_KEY)
            await channel.close()
