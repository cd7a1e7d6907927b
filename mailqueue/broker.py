"""Values that a queue exchanges with its broker and its blob store."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from mailmend.mailqueue.rules.mails import PRIORITY_NORMAL
from mailmend.model.ids import QueueName

SLICE_HEADER: Final = "x-mailmend-slice"
"""A header of our own messages: the start of their row's slice, in milliseconds since 1970 (an integer)."""

ATTEMPTS_HEADER: Final = "x-mailmend-attempts"
"""A header of our own messages: how often the mail was tried before (an integer)."""

HAD_HEADER: Final = "x-mailmend-had"
"""A header of our own messages: a consumer may have had the mail before (1)."""

DIED_HEADER: Final = "x-mailmend-died"
"""A header of our own messages: the mail was a dead letter before (1)."""

SETTLING: Final = timedelta(minutes=1)
"""How long a mail may have a row but no message yet; only after this time does it count as lost."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be published: its body, and the headers in addition to James's headers."""

    body: bytes
    headers: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Depth:
    """The broker's counts of a queue.

    Attributes:
        ready: messages that wait, of all priorities together.
        unacked: messages delivered and not acked yet; None where the broker's HTTP API is not set up.
        delivery_limit: the number of returns after which the broker dead-letters a message; None: none, or not known.
        alarms: the resources that are short, with the node, so that the broker accepts no messages; empty if not known.
        dead_limit: the number of returns after which the broker drops a dead letter; None: none, or not known.
        counted: ready plus unacked messages at one instant some seconds ago, by the HTTP API; None where not known.
    """

    ready: int
    unacked: int | None
    consumers: int
    dead: int
    delivery_limit: int | None = None
    alarms: tuple[str, ...] = ()
    dead_limit: int | None = None
    counted: int | None = None

    @property
    def in_hands(self) -> int | None:
        """The number of unacked messages; 0 where there are no consumers; None where it is not known.

        RabbitMQ's HTTP API does not tell it for a queue in which little has happened yet.
        """
        if self.unacked is None and not self.consumers:
            return 0
        return self.unacked

    def lacking(self, settled: int) -> int | None:
        """A lower bound of the mails that have no message; None where the unacked messages are not known.

        A dead letter may belong to a mail that waits, or to one that waits no longer.
        """
        without = self.without_message(settled)
        if without is None:
            return None
        return max(0, without - self.dead)

    def without_message(self, settled: int) -> int | None:
        """The mails without a message in the queue, at least; their messages may be dead letters.

        Each message belongs to at most one mail. A message that was delivered after the HTTP API counted is no longer
        ready and not yet unacked, so the larger of the present sum and `counted` is used.

        Args:
            settled: the number of waiting mails that were enqueued at least `SETTLING` ago.
        """
        if self.in_hands is None:
            return None
        return max(0, settled - max(self.ready + self.in_hands, self.counted or 0))


class Delivery(Protocol):
    """A delivered message, to be acked, requeued or dead-lettered: exactly one of them, once.

    Each of the three raises `BrokerUnreachable` when the connection that brought the message is gone: the broker then
    delivers it again, to some consumer.
    """

    @property
    def message(self) -> Message:
        """Body and headers; header values of other types than int and text are left out."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        ...

    @property
    def dead_lettered(self) -> bool:
        """Whether it was ever in a dead letter queue (it carries `x-death`)."""
        ...

    @property
    def priority(self) -> int:
        """The priority, 0 to 9, of the queue that it came from."""
        ...

    async def ack(self) -> None:
        """Acknowledge the message: it was processed."""
        ...

    async def requeue(self) -> None:
        """Return it to its queue, at once."""
        ...

    async def dead_letter(self) -> None:
        """Move it to the dead letter queue."""
        ...


def unheard() -> None:
    """Do nothing: there is no listener."""


class Broker(Protocol):
    """The message broker. Adapters: `RabbitBroker`, and a twin in tests.

    A queue has James's own topology. Each priority except the normal one has a side queue of ours, whose
    name James does not list. Missing exchanges and queues are declared at first use; existing ones are
    checked and never changed.
    """

    async def publish(self, queue: QueueName, message: Message, priority: int = PRIORITY_NORMAL) -> None:
        """Publish, and return when the broker has confirmed that it keeps the message.

        Raises:
            PublishFailed: it was refused, returned, or not confirmed in time (`doubtful`).
            BrokerUnreachable: no broker answers.
            TopologyMismatch: the queue is there in a form that cannot be used.
        """
        ...

    async def bury(self, queue: QueueName, message: Message) -> None:
        """Publish to the dead letters of the queue; errors as of `publish`."""
        ...

    def deliveries(
        self,
        queue: QueueName,
        prefetch: int,
        priorities: Collection[int] | None = None,
        on_lost: Callable[[], None] = unheard,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Take messages, at most `prefetch` unacked of each priority.

        With `priorities` None messages of all ten priorities are taken, and missing side queues are declared.

        The iterator goes on over reconnections, with new deliveries. Leaving the context returns unacked messages.
        `on_lost` is called for every consumer (a level has one) that the broker took away or whose connection broke,
        and
        that is set up anew.
        """
        ...

    def dead_letters(self, queue: QueueName, prefetch: int) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Take messages of the dead letter queue, at most `prefetch` unacked."""
        ...

    async def depth(self, queue: QueueName) -> Depth:
        """The number of messages in the queue; `unacked` may be some seconds old."""
        ...

    async def product(self) -> str:
        """Its name and version, as it tells each client, such as `RabbitMQ 4.0.5`."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
