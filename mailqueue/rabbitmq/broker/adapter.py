"""RabbitMQ as the mail queue's broker: what the port asks for, put together."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from mailmend.mailqueue.broker import Delivery, Depth, Message, unheard
from mailmend.mailqueue.draining import checked_prefetch
from mailmend.mailqueue.rabbitmq.broker.amqp import Link
from mailmend.mailqueue.rabbitmq.broker.consuming import ConsumedQueue, consuming
from mailmend.mailqueue.rabbitmq.broker.declaring import Declared
from mailmend.mailqueue.rabbitmq.broker.management import Management
from mailmend.mailqueue.rabbitmq.broker.publishing import Publishing
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.mailqueue.rabbitmq.broker.topology import Topology, topology_of
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock
from mailmend.repair.retries import AsyncRetries

_UNNAMED_ALARM: Final = "memory or disk"
"""What the connection for publishing knows without the HTTP API."""


class RabbitBroker:
    """Implements `mailqueue.broker.Broker`. Nothing is asked of the broker before the first call.

    Publishers and consumers have a connection each: a broker that is short of memory or disk stops reading from those
    that publish, and acks must not wait behind them.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        retries = AsyncRetries(clock)
        self._clock = clock
        self._out = Link(settings, "publishing", retries)
        self._in = Link(settings, "consuming", retries)
        self._publishing = Publishing(
            self._out,
            Declared(self._out, settings.form, partial(clock.pause, settings.settle_seconds)),
            settings.place,
            settings.publish_confirm_seconds,
        )
        self._declared = Declared(self._in, settings.form)
        self._management = (
            Management(settings.management, settings.vhost, settings.tls) if settings.management else None
        )

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        await self._publishing.publish(topology_of(queue, priority), message)

    def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Declares levels that are not used yet, so that their first message is delivered."""
        levels = [topology_of(queue, level) for level in (PRIORITIES if priorities is None else priorities)]
        sources = [ConsumedQueue(level.work_queue, level.priority, *self._known_by(level)) for level in levels]
        return consuming(self._in, self._clock, sources, checked_prefetch(prefetch), on_lost)

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        topology = topology_of(queue)
        ensure = partial(self._declared.ensure_dead_letters, topology)
        source = ConsumedQueue(
            topology.dead_letter_queue, PRIORITY_NORMAL, ensure, partial(self._declared.forget, topology)
        )
        return consuming(self._in, self._clock, [source], checked_prefetch(prefetch))

    async def depth(self, queue: QueueName) -> Depth:
        """The dead letter queue is asked for its own delivery limit.

        A dead letter queue of ours or of James's is a classic queue without a limit; where the virtual host makes
        quorum queues by default, it has one, and nowhere to put what comes back too often.
        """
        work = [topology_of(queue, level).work_queue for level in PRIORITIES]
        *levels, dead = await self._declared.counts([*work, topology_of(queue).dead_letter_queue])
        there = [found for found in levels if found is not None]
        facts = await self._management.facts(work) if self._management else None
        buried = (
            await self._management.facts([topology_of(queue).dead_letter_queue])
            if self._management and dead and dead.ready
            else None
        )
        blocked = () if await self._out.takes() else (_UNNAMED_ALARM,)
        return Depth(
            ready=sum(found.ready for found in there),
            unacked=facts.unacked if facts else None,
            consumers=max((found.consumers for found in there), default=0),
            dead=dead.ready if dead else 0,
            delivery_limit=facts.delivery_limit if facts else None,
            alarms=(facts.alarms if facts else ()) or blocked,
            dead_limit=buried.delivery_limit if buried else None,
            counted=facts.counted if facts else None,
        )

    async def product(self) -> str:
        return await self._in.product()

    async def close(self) -> None:
        await self._publishing.close()
        await self._in.close()
        await self._out.close()

    def _known_by(self, one: Topology) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
        return partial(self._declared.ensure, one), partial(self._declared.forget, one)
