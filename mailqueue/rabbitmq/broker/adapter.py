"""RabbitMQ as the mail queue's broker: consuming, its HTTP API, and what the port asks for.

A delivery belongs to its channel: when that is lost the broker delivers again, so deliveries not
yet handed out are dropped, and the others cannot be settled any more.
"""

import asyncio
import logging
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

from mailmend.mailqueue.broker import (
    DIED_HEADER,
    HAD_HEADER,
    Delivery,
    Depth,
    Message,
    unheard,
)
from mailmend.mailqueue.broker_http import BrokerHttp, basic
from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.every_queue import Drain, checked_prefetch
from mailmend.mailqueue.rabbitmq.broker.amqp import Channel, Incoming, Link
from mailmend.mailqueue.rabbitmq.broker.publishing import Declared, Publishing
from mailmend.mailqueue.rabbitmq.broker.settings import (
    BrokerSettings,
    ManagementSettings,
    dead_letters_of,
    died_in,
    headers_beside,
    priority_of,
    topology_of,
)
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from mailmend.model.durations import LOOK_AGAIN
from mailmend.model.errors import BrokerDenied, BrokerUnreachable
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock
from mailmend.repair.retries import AsyncRetries

DELIVERY_LIMIT_DEFAULT: Final = 20
"""The delivery limit of a quorum queue that names none, since RabbitMQ 4; earlier releases have no limit then."""

_LIMITED_SINCE: Final = 4

_UNLIMITED: Final = "unlimited"
_OPTION: Final = "--broker-management"
_COLUMNS: Final = "name,type,arguments,effective_policy_definition,delivery_limit,messages,messages_unacknowledged"
_PAGE_MAX: Final = 100
_VERSION: Final = "api/overview?columns=rabbitmq_version"
_ALARMS: Final = "api/health/checks/alarms"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the HTTP API tells of some queues together, some seconds old.

    Attributes:
        unacked: messages that consumers have not settled; None: not counted yet.
        delivery_limit: the lowest limit of these queues; None: none has one.
        alarms: what the broker is short of, and on which node.
        counted: messages, ready and unacked, at one instant; None: not counted yet.
    """

    unacked: int | None
    delivery_limit: int | None
    alarms: tuple[str, ...] = ()
    counted: int | None = None


@dataclass(frozen=True, slots=True)
class Management:
    """The HTTP API for one virtual host.

    Args:
        tls: with `https`, whom to trust and what to show; None: whom the system trusts.
    """

    settings: ManagementSettings
    vhost: str
    tls: BrokerTls | None = None

    async def facts(self, queues: Collection[str]) -> QueueFacts:
        return await asyncio.to_thread(self._facts, queues)

    def _facts(self, queues: Collection[str]) -> QueueFacts:
        pattern = f"^({'|'.join(map(re.escape, queues))})$"
        wanted = {"name": pattern, "use_regex": "true", "page": 1, "page_size": _PAGE_MAX, "columns": _COLUMNS}
        items = self._http.read(f"api/queues/{quote(self.vhost, safe='')}?{urlencode(wanted)}", _items)
        default = None
        if any(map(_keeps_silent, items)):
            default = self._http.read(_VERSION, _default_limit)
        return facts_of(items, default, self._alarms())

    def _alarms(self) -> tuple[str, ...]:
        """The alarms; empty where the broker has no such endpoint, or refuses it. The API tells one as an error."""
        status, content = self._http.answer("GET", _ALARMS)
        if status != HTTPStatus.SERVICE_UNAVAILABLE:
            return ()
        return self._http.parsed(content, _alarms_of)

    @property
    def _http(self) -> BrokerHttp:
        settings = self.settings
        return BrokerHttp(
            settings.url,
            {"Authorization": basic(settings.username, settings.password)},
            settings.answer_seconds,
            (
                f"the user {settings.username!r}",
                "Look at the password, and whether the user has the tag 'monitoring' or 'management'.",
            ),
            f"Look whether the plugin rabbitmq_management is on, and at {_OPTION}; without it, less is known.",
            "RabbitMQ",
            self.tls,
        )


def facts_of(
    items: Collection[Mapping[str, Any]], default: int | None = None, alarms: tuple[str, ...] = ()
) -> QueueFacts:
    """What the API's answer for some queues means together.

    Args:
        items: the queues.
        default: the limit of a quorum queue that names none.
        alarms: what the broker is short of.
    """
    limits = []
    for item in items:
        limits += _limits_said(item)
        if default is not None and _keeps_silent(item):
            limits.append(default)
    limits = [limit for limit in limits if limit >= 0]
    unacked = _sum_of("messages_unacknowledged", items)
    counted = _sum_of("messages", items)
    return QueueFacts(unacked, min(limits, default=None), alarms, counted)


def _sum_of(column: str, items: Collection[Mapping[str, Any]]) -> int | None:
    """None: there are queues, and nothing was counted yet."""
    counts = [item[column] for item in items if item.get(column) is not None]
    if items and not counts:
        return None
    total: int = sum(counts)
    return total


def _keeps_silent(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "quorum" and not _limits_said(item)


def _limits_said(item: Mapping[str, Any]) -> list[int]:
    """The server's own value, the queue's argument, its policy's: the lowest holds; below 0 is no limit.

    RabbitMQ 3 does not say it itself; 4 does, like the policy, once the queue was first counted (some seconds).
    An operator's policy is in the one that is in effect.
    """
    if item.get("type") != "quorum":
        return []
    policy = item.get("effective_policy_definition") or {}
    said = (
        item.get("delivery_limit"),
        (item.get("arguments") or {}).get("x-delivery-limit"),
        policy.get("delivery-limit"),
    )
    limits = []
    for limit in said:
        if limit == _UNLIMITED:
            limits.append(-1)
        elif isinstance(limit, int):
            limits.append(limit)
    return limits


def _items(answer: Any) -> list[Mapping[str, Any]]:
    items: list[Mapping[str, Any]] = answer["items"]
    return items


def _default_limit(answer: Any) -> int | None:
    """By the server's version, such as 3.13.7."""
    major = int(answer["rabbitmq_version"].partition(".")[0])
    if major < _LIMITED_SINCE:
        return None
    return DELIVERY_LIMIT_DEFAULT


def _alarms_of(answer: Any) -> tuple[str, ...]:
    return tuple(f"{alarm['resource']} on {alarm['node']}" for alarm in answer.get("alarms") or ())


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
        self.redelivered = found.redelivered or HAD_HEADER in self.message.headers
        self.dead_lettered = died is not None or DIED_HEADER in self.message.headers
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
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._lost = lost

        def note_loss(why: str) -> None:
            if not lost.done():
                lost.set_result(why)

        channel = await self._shared.link.channel()
        channel.on_lost(note_loss)
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
        self._management: Management | None = None
        if settings.management:
            self._management = Management(settings.management, settings.vhost, settings.tls)

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        await self._publishing.publish(topology_of(queue, priority), message)

    async def bury(self, queue: QueueName, message: Message) -> None:
        await self._publishing.publish(dead_letters_of(queue), message)

    def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Declares levels that are not used yet, so that their first message is delivered."""
        if priorities is None:
            priorities = PRIORITIES
        sources = []
        for priority in priorities:
            level = topology_of(queue, priority)
            ensure = partial(self._declared.ensure, level)
            forget = partial(self._declared.forget, level)
            sources.append(ConsumedQueue(level.work_queue, level.priority, ensure, forget))
        return consuming(self._in, self._clock, sources, checked_prefetch(prefetch), on_lost)

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        topology = topology_of(queue)
        ensure = partial(self._declared.ensure_dead_letters, topology)
        forget = partial(self._declared.forget, topology)
        source = ConsumedQueue(topology.dead_letter_queue, PRIORITY_NORMAL, ensure, forget)
        return consuming(self._in, self._clock, [source], checked_prefetch(prefetch))

    async def depth(self, queue: QueueName) -> Depth:
        """The dead letter queue is asked for its own delivery limit.

        A dead letter queue of ours or of James's is a classic queue without a limit; where the virtual host makes
        quorum queues by default, it has one, and nowhere to put what comes back too often.
        """
        work = [topology_of(queue, level).work_queue for level in PRIORITIES]
        *levels, dead = await self._declared.counts([*work, topology_of(queue).dead_letter_queue])
        there = [found for found in levels if found is not None]
        dead_ready = 0
        if dead:
            dead_ready = dead.ready
        facts = QueueFacts(None, None)
        buried = QueueFacts(None, None)
        if self._management:
            facts = await self._management.facts(work)
        if self._management and dead_ready:
            buried = await self._management.facts([topology_of(queue).dead_letter_queue])
        alarms = facts.alarms
        if not await self._out.takes() and not alarms:
            alarms = (_UNNAMED_ALARM,)
        return Depth(
            ready=sum(found.ready for found in there),
            unacked=facts.unacked,
            consumers=max((found.consumers for found in there), default=0),
            dead=dead_ready,
            delivery_limit=facts.delivery_limit,
            alarms=alarms,
            dead_limit=buried.delivery_limit,
            counted=facts.counted,
        )

    async def product(self) -> str:
        return await self._in.product()

    async def close(self) -> None:
        await self._publishing.close()
        await self._in.close()
        await self._out.close()
