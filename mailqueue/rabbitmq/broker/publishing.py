"""Publishing with confirms, and declaring what is missing of a queue's topology.

A passive declaration of a missing object closes its channel, so checks have a channel of their own.

After a refusal or a missing confirm the channel is not used again: on RabbitMQ 3.10, one whose
first publish met a quorum queue without a leader is refused for ever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.rabbitmq.broker.amqp import Answer, Channel, DeclaredQueue, Link
from mailmend.mailqueue.rabbitmq.broker.settings import (
    QUEUE_TYPE,
    QUORUM,
    Argument,
    QueueForm,
    Topology,
    headers_to_publish,
)
from mailmend.model.errors import BrokerDenied, MailmendError, PublishFailed, TopologyMismatch

_LOG: Final = logging.getLogger("mailmend.queue")


async def at_once() -> None:
    """Wait for nothing."""


class Declared:
    """The broker's objects that this process has found or declared over the current connection.

    Args:
        form: how missing work queues are declared.
        settle: awaited after a quorum queue was declared, before anybody in this process uses it.
    """

    def __init__(self, link: Link, form: QueueForm, settle: Callable[[], Awaitable[None]] = at_once) -> None:
        self._link = link
        self._form = form
        self._settle = settle
        self._known: set[str] = set()
        self._generation = 0
        self._turn = asyncio.Lock()
        self._looking: Channel | None = None

    async def ensure(self, topology: Topology) -> None:
        """Both exchanges and both queues of a level, bound."""
        if not self._knows(topology.work_queue):
            await self.ensure_dead_letters(topology)
            arguments = topology.work_arguments(self._form)
            await self._link.steadily(lambda: self._ensure(topology.exchange, topology.work_queue, arguments))

    async def ensure_dead_letters(self, topology: Topology) -> None:
        """The exchange and the queue of dead letters, bound."""
        exchange = topology.dead_letter_exchange
        queue = topology.dead_letter_queue
        await self._link.steadily(lambda: self._ensure(exchange, queue, {}))

    def forget(self, topology: Topology) -> None:
        """Check it again next time: it may be gone, or unbound."""
        self._known -= {topology.work_queue, topology.dead_letter_queue}

    async def counts(self, queues: Sequence[str]) -> list[DeclaredQueue | None]:
        """The counts of each queue; None: there is no such queue. All are asked at once.

        Where several are missing, aiormq may give a channel's number to another while the broker still closes the one:
        that ends the connection, and they are asked one after the other.
        """
        found = await asyncio.gather(*map(self._count, queues), return_exceptions=True)
        errors = [queue for queue in found if isinstance(queue, BaseException)]
        if any("CHANNEL_ERROR" in str(error) for error in errors):
            return [await self._count(queue) for queue in queues]
        if errors:  # where a limit closes the connection, one call gets the error, the others wait in vain
            for error in errors:
                if not isinstance(error.__cause__, TimeoutError):
                    raise error
            raise errors[0]
        return [queue for queue in found if not isinstance(queue, BaseException)]

    def _knows(self, queue: str) -> bool:
        if self._generation != self._link.generation:
            self._generation = self._link.generation
            self._known.clear()
        return queue in self._known

    async def _count(self, queue: str) -> DeclaredQueue | None:
        return await self._link.steadily(lambda: self._look(queue))

    async def _look(self, queue: str) -> DeclaredQueue | None:
        channel = await self._link.channel()
        try:
            return await channel.find_queue(queue)
        finally:
            await channel.close()

    async def _ensure(self, exchange: str, queue: str, arguments: Mapping[str, Argument]) -> None:
        """Serialised, so that concurrent callers check an object once."""
        async with self._turn:
            if self._knows(queue):
                return
            await self._channel()
            generation = self._link.generation
            await self._ensure_exchange(exchange)
            await self._ensure_queue(queue, arguments)
            await (await self._channel()).bind(queue, exchange)  # whoever declared it may have died before it did
            if not self._knows(queue) and self._generation == generation:  # else what was seen may be gone
                self._known.add(queue)

    async def _ensure_exchange(self, name: str) -> None:
        if await (await self._channel()).find_exchange(name):
            return
        refused = await (await self._channel()).declare_exchange(name)
        if refused and not await (await self._channel()).find_exchange(name):
            raise _mismatch(f"the exchange {name}", refused)

    async def _ensure_queue(self, name: str, arguments: Mapping[str, Argument]) -> None:
        if await (await self._channel()).find_queue(name) is not None:
            return
        _LOG.info("a queue is declared", extra={"of_broker": name})
        refused = await (await self._channel()).declare_queue(name, arguments)
        if refused and await (await self._channel()).find_queue(name) is None:  # else somebody was quicker
            raise _mismatch(f"the queue {name} with {dict(arguments)}", refused)
        if arguments.get(QUEUE_TYPE) == QUORUM:
            await self._settle()

    async def _channel(self) -> Channel:
        if self._looking is None or self._looking.is_closed:
            self._looking = await self._link.channel()
        return self._looking


def _mismatch(what: str, refused: str) -> TopologyMismatch:
    return TopologyMismatch(
        f"the broker refuses to declare {what}: {refused}",
        mend="Look at the limits of its virtual host, and at --broker-form and --broker-replicas.",
    )


_AGAIN: Final = frozenset({Answer.REFUSED, Answer.RETURNED, Answer.MISSING, Answer.UNSENT})
"""After these it is tried once more, on another channel, when all was looked at anew."""

_DOUBTFUL: Final = frozenset({Answer.MISSING, Answer.LATE, Answer.STUCK, Answer.LOST})
"""After these the broker may hold it. (An exchange that is missing was perhaps removed after it had passed ours on.)"""

_SPOILT: Final = frozenset(Answer) - {Answer.CONFIRMED, Answer.RETURNED, Answer.BLOCKED, Answer.STUCK}
"""After these nothing more is published over the channel. (An alarm blocks its connection; lifted, both go on.)"""

_ALARM: Final = "See which alarm is on, and give it memory or disk: rabbitmq-diagnostics alarms"

_MENDS: Final[Mapping[Answer, str]] = {
    Answer.REFUSED: "See whether its queue is full: rabbitmqctl list_queues name messages arguments policy",
    Answer.RETURNED: "See what removes its bindings: rabbitmqctl list_bindings",
    Answer.MISSING: "See what removes its exchange: rabbitmqctl list_exchanges",
    Answer.BLOCKED: _ALARM,
    Answer.STUCK: f"It may hold it all the same. {_ALARM}",
    Answer.LATE: "It may hold it all the same. See how it is: rabbitmq-diagnostics alarms; rabbitmq-diagnostics status",
}
_MEND: Final = "It may hold it all the same. See how it is: rabbitmq-diagnostics status"


@dataclass(slots=True, eq=False)
class _Outlet:
    """A channel with confirms, and how many wait for them; the last one closes a channel that failed."""

    channel: Channel
    waiting: int = 0
    spoilt: bool = False

    async def publish(self, topology: Topology, message: Message) -> Answer:
        self.waiting += 1
        try:
            answer = await self.channel.publish(topology.exchange, message.body, headers_to_publish(message.headers))
            self.spoilt |= answer in _SPOILT
        finally:
            self.waiting -= 1
            if self.spoilt and not self.waiting:
                await self.channel.close()
        return answer


class Publishing:
    """Publishes to every queue of one broker; any number at once.

    Args:
        place: the broker in a few words.
        seconds: how long a broker that blocks publishers is waited for before nothing is sent.
    """

    def __init__(self, link: Link, declared: Declared, place: str, seconds: float) -> None:
        self._link = link
        self._declared = declared
        self._place = place
        self._seconds = seconds
        self._outlet: _Outlet | None = None
        self._turn = asyncio.Lock()

    async def publish(self, topology: Topology, message: Message) -> None:
        """Publish; once more over a new channel if the broker refused, or had lost the queue."""
        answer = await self._once(topology, message)
        doubtful = answer in _DOUBTFUL
        if answer in _AGAIN:
            self._declared.forget(topology)
            try:
                answer = await self._once(topology, message)
            except MailmendError as error:
                if doubtful:
                    raise self._failed(topology, Answer.LOST, doubtful=True) from error
                raise
        if answer is not Answer.CONFIRMED:
            raise self._failed(topology, answer, doubtful=doubtful or answer in _DOUBTFUL)

    async def close(self) -> None:
        """Publish nothing more; callers that wait for a confirm get a doubtful error."""
        outlet = self._outlet
        self._outlet = None
        if outlet is not None:
            await outlet.channel.close()

    async def _once(self, topology: Topology, message: Message) -> Answer:
        if not await self._link.takes(self._seconds):
            return Answer.BLOCKED
        await self._declared.ensure(topology)
        outlet = await self._open()
        return await outlet.publish(topology, message)

    async def _open(self) -> _Outlet:
        async with self._turn:
            outlet = self._outlet
            if outlet is None or outlet.spoilt or outlet.channel.is_closed:
                outlet = self._outlet = _Outlet(await self._link.channel(confirms=True))
            return outlet

    def _failed(self, topology: Topology, answer: Answer, *, doubtful: bool) -> MailmendError:
        what = f"RabbitMQ at {self._place} did not take a message for {topology.exchange}: {answer.value}"
        if answer is Answer.DENIED:
            return BrokerDenied(what, mend="Give the user the permission to write to it: rabbitmqctl set_permissions")
        return PublishFailed(what, mend=_MENDS.get(answer, _MEND), doubtful=doubtful)
