"""Consuming: a channel and a consumer for each level, renewed when lost, until the stream is left.

A delivery belongs to its channel: when that is lost the broker delivers again, so deliveries not yet handed out are
dropped, and the others cannot be settled any more.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mailmend.mailqueue.broker import Delivery, Message, unheard
from mailmend.mailqueue.draining import Drain
from mailmend.mailqueue.rabbitmq.broker.amqp import Channel, Incoming, Link
from mailmend.mailqueue.rabbitmq.broker.topology import died_in, headers_beside, priority_of
from mailmend.model.backoff import LOOK_AGAIN
from mailmend.model.errors import BrokerDenied, BrokerUnreachable
from mailmend.model.ports import Clock

_LOG: Final = logging.getLogger("mailmend.queue")


class RabbitDelivery:
    """An unacked message. Implements `mailqueue.broker.Delivery`."""

    def __init__(self, channel: Channel, found: Incoming, queue: str) -> None:
        died = died_in(found.headers)
        self._channel = channel
        self._tag = found.tag
        self._queue = queue
        self._settled = False
        self.message = Message(found.body, headers_beside(found.headers))
        self.redelivered = found.redelivered
        self.dead_lettered = died is not None
        self.priority = priority_of(died or queue)

    async def ack(self) -> None:
        await self._settle(self._channel.ack)

    async def requeue(self) -> None:
        await self._settle(partial(self._channel.nack, requeue=True))

    async def dead_letter(self) -> None:
        await self._settle(partial(self._channel.nack, requeue=False))

    async def _settle(self, settling: Callable[[int], Awaitable[None]]) -> None:
        assert not self._settled, "a delivery is settled once"
        self._settled = True
        try:
            await settling(self._tag)
        except BrokerUnreachable as error:
            raise BrokerUnreachable(
                f"the connection that brought a message of {self._queue} is gone",
                mend="The broker delivers it again; nothing is to be done.",
            ) from error


@dataclass(frozen=True, slots=True)
class ConsumedQueue:
    """A queue to take from.

    Attributes:
        ensure: looks whether it is there, and declares what is missing.
    """

    name: str
    priority: int
    ensure: Callable[[], Awaitable[None]]
    forget: Callable[[], None]


@asynccontextmanager
async def consuming(
    link: Link, clock: Clock, sources: Collection[ConsumedQueue], prefetch: int, on_lost: Callable[[], None] = unheard
) -> AsyncGenerator[AsyncIterator[Delivery]]:
    """Take from the queues, at most `prefetch` of each unacked at once."""
    shared = _Shared(link, clock, prefetch, on_lost)
    lanes = [_Lane(shared, source) for source in sources]
    try:
        for source in sources:
            await source.ensure()
        await _all(lane.open() for lane in lanes)
        keeping = [asyncio.create_task(lane.keep(), name=f"consume {lane.name}") for lane in lanes]
        try:
            yield shared.drain
        finally:
            shared.left.set()
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
    finally:
        await _all(lane.close() for lane in lanes)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the consumers of one stream have in common.

    Attributes:
        logged: the losses already logged, by connection and reason: all consumers share a connection.
        left: whether the stream is left, and nothing is consumed anew.
    """

    link: Link
    clock: Clock
    prefetch: int
    on_lost: Callable[[], None]
    drain: Drain[RabbitDelivery] = field(default_factory=Drain)
    logged: set[tuple[int, str]] = field(default_factory=set)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def tell_lost(self, name: str, why: str) -> None:
        """A consumer is gone, unless we closed it ourselves."""
        if not self.link.is_closed:
            self.on_lost()
        self.tell_once("a consumer was lost, and consumes anew", name, why)

    def tell_once(self, what: str, name: str, why: str) -> None:
        if (self.link.generation, why) not in self.logged:
            self.logged.add((self.link.generation, why))
            _LOG.warning(what, extra={"of_broker": name, "error": why})


class _Lane:
    """The consumer of one queue."""

    def __init__(self, shared: _Shared, source: ConsumedQueue) -> None:
        self._shared = shared
        self._source = source
        self._channel: Channel | None = None
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        return self._source.name

    async def open(self) -> None:
        self._lost = lost = asyncio.get_running_loop().create_future()
        channel = await self._shared.link.channel()
        channel.on_lost(lambda why: None if lost.done() else lost.set_result(why))
        try:
            await channel.limit(self._shared.prefetch)
            await channel.consume(self.name, lambda found: self._receive(channel, found))
        except BaseException:
            await channel.close()
            raise
        self._channel = channel

    async def keep(self) -> None:
        """Consume again after each loss, with growing pauses while that fails; the iterator raises permanent errors."""
        try:
            while not self._shared.left.is_set():  # waits of Python 3.11 may swallow a cancellation
                why = await self._lost
                self._shared.tell_lost(self.name, why)
                await self.close()
                await self._reopened()
        except Exception as error:  # noqa: BLE001 - whoever asks for the next delivery gets it
            self._shared.drain.fail(error)

    async def close(self) -> None:
        """Close the channel: the broker requeues the unacked messages at once."""
        channel = self._channel
        self._channel = None
        if channel is not None:
            await channel.close()
        self._shared.drain.drop(self._source.priority)

    async def _reopened(self) -> None:
        failures = 0
        while not self._shared.left.is_set():
            self._source.forget()
            try:
                await self._source.ensure()
                await self.open()
            except BrokerUnreachable as error:
                if isinstance(error, BrokerDenied) or self._shared.link.is_closed:
                    raise
                failures += 1
                self._shared.tell_once("consuming anew failed, and is tried again", self.name, error.what)
                await self._shared.clock.pause(LOOK_AGAIN.wait(failures).total_seconds())
            else:
                _LOG.info("consuming again", extra={"of_broker": self.name})
                return

    def _receive(self, channel: Channel, found: Incoming) -> None:
        if not channel.is_closed:
            self._shared.drain.put(self._source.priority, RabbitDelivery(channel, found, self.name))


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Run all steps at once, each to its end; then raise the first of their errors."""
    for ended in await asyncio.gather(*steps, return_exceptions=True):
        if ended is not None:
            raise ended
