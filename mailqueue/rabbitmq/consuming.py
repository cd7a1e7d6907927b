"""Consuming: a channel and a consumer for each level, made anew whenever one is lost, for as long as somebody takes.

What is lost is told of and counted by nobody twice: a delivery belongs to the channel that brought it, and when that is
gone the broker delivers again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aio_pika.abc import AbstractIncomingMessage

from mailqueue.draining import Drain
from mailqueue.ports import Clock, Delivery, Message
from mailqueue.rabbitmq.amqp import LOST, AbstractChannel, Link, told
from mailqueue.rabbitmq.declaring import Declared
from mailqueue.rabbitmq.publishing import gone
from mailqueue.topology import Topology, died_in, headers_beside
from model.backoff import LOOK_AGAIN
from model.errors import AccessDenied, MailmendError

_LOG = logging.getLogger("mailmend.queue")


class RabbitDelivery:
    """A message in hand. Implements `mailqueue.ports.Delivery`."""

    def __init__(self, found: AbstractIncomingMessage, priority: int, place: str) -> None:
        self._found, self._place = found, place
        self.settled = False
        self.message = Message(found.body, headers_beside(found.headers))
        self.redelivered = bool(found.redelivered)
        self.dead_lettered = died_in(found.headers) is not None
        self.priority = priority

    async def ack(self) -> None:
        """It is done with."""
        await self._settle(self._found.ack())

    async def requeue(self) -> None:
        """It goes back to where it came from."""
        await self._settle(self._found.nack(requeue=True))

    async def dead_letter(self) -> None:
        """It goes to the dead letter queue."""
        await self._settle(self._found.nack(requeue=False))

    async def _settle(self, settling: Any) -> None:
        assert not self.settled, "a delivery is settled once"
        self.settled = True
        try:
            await settling
        except LOST as error:
            raise gone(self._place) from error


@dataclass(frozen=True, slots=True)
class Means:
    """What consuming works with: a connection, what was seen to be there over it, and time."""

    link: Link
    declared: Declared
    clock: Clock


@asynccontextmanager
async def consuming(
    means: Means, levels: Collection[tuple[Topology, str]], prefetch: int
) -> AsyncGenerator[AsyncIterator[Delivery]]:
    """Take from the queues: of each level its topology, and the name of the one of its queues that is meant.

    Raises:
        BrokerUnreachable, AccessDenied: at the beginning; later it is tried again.
    """
    drain: Drain[RabbitDelivery] = Drain()
    lanes = [_Lane(means, topology, queue, prefetch, drain) for topology, queue in levels]
    try:
        for lane in lanes:
            await lane.open()
        tasks = [asyncio.create_task(lane.keep()) for lane in lanes]
        try:
            yield _taken(drain)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for lane in lanes:
            await lane.close()


async def _taken(drain: Drain[RabbitDelivery]) -> AsyncIterator[Delivery]:
    while True:
        yield await drain.take()


class _Lane:
    """The consumer of one level."""

    def __init__(
        self, means: Means, topology: Topology, queue: str, prefetch: int, drain: Drain[RabbitDelivery]
    ) -> None:
        self._means, self._link, self._declared = means, means.link, means.declared
        self._topology, self._queue, self._prefetch, self._drain = topology, queue, prefetch, drain
        self._channel: AbstractChannel | None = None
        self._lost = asyncio.Event()
        self._round = 0

    async def open(self) -> None:
        """Look at the queue, and consume from it."""
        await self._declared.ensure(self._topology)
        self._round += 1
        self._lost.clear()
        with told(self._link.settings):
            self._channel = await self._link.channel()
            self._channel.close_callbacks.add(self._told_lost)
            await self._channel.set_qos(prefetch_count=self._prefetch)
            queue = await self._channel.get_queue(self._queue, ensure=False)
            underlay = await self._channel.get_underlay_channel()
            underlay.on_consumer_cancel_callbacks.add(self._told_lost)
            await queue.consume(self._receive(self._round), no_ack=False)

    async def keep(self) -> None:
        """Consume anew whenever it was lost, more and more seldom while that fails."""
        while True:
            await self._lost.wait()
            _LOG.warning("the consumer of %s was lost; consuming anew", self._queue)
            self._declared.forget(self._topology)
            await self.close()
            await self._reopened()

    async def _reopened(self) -> None:
        failures = 0
        while True:
            try:
                await self.open()
            except AccessDenied as error:
                self._drain.fail(error)
                return
            except MailmendError as error:
                failures += 1
                _LOG.warning("consuming from %s anew failed: %s", self._queue, error.what)
                await self._means.clock.pause(LOOK_AGAIN.wait(failures).total_seconds())
            else:
                return

    async def close(self) -> None:
        """Close the channel: the broker has back at once what is in hand."""
        channel, self._channel = self._channel, None
        self._round += 1
        if channel is not None:
            channel.close_callbacks.discard(self._told_lost)
            with suppress(*LOST):
                await channel.close()

    def _told_lost(self, *_: Any) -> None:
        self._lost.set()

    def _receive(self, of_round: int) -> Any:
        async def receive(found: AbstractIncomingMessage) -> None:
            if of_round == self._round:
                self._drain.put(
                    self._topology.priority, RabbitDelivery(found, self._topology.priority, self._link.settings.place)
                )

        return receive
