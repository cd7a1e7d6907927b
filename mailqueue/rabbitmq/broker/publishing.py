"""Publishing: all callers share one channel with confirms; a publish returns when the broker has confirmed it.

After a refusal or a missing confirm the channel is not used again: on RabbitMQ 3.10, one whose first publish met a
quorum queue without a leader is refused for ever.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mailmend.mailqueue.broker import Message
from mailmend.mailqueue.rabbitmq.broker.amqp import Answer, Channel, Link
from mailmend.mailqueue.rabbitmq.broker.declaring import Declared
from mailmend.mailqueue.rabbitmq.broker.topology import Topology, headers_to_publish
from mailmend.model.errors import BrokerDenied, MailmendError, PublishFailed

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
