"""The interface of a broker of topics, and its values. Adapters: `adapter`, and a twin in tests."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from mailmend.mailqueue.rules.health import TopicPolicies
from mailmend.mailqueue.rules.places import Backlog, MessagePlace


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message to be published.

    Attributes:
        event_at: when what it tells of happens; for a delayed mail, its due time. In milliseconds since 1970.
        deliver_at: before which the broker gives it to no consumer, though to readers; in
            milliseconds, too. Where it takes no such delay, it is the latest that it takes.
    """

    payload: str
    properties: Mapping[str, str] = field(default_factory=dict)
    event_at: int | None = None
    deliver_at: int | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in its topic.

    Attributes:
        published_at: by the clock of its publisher.
        event_at: in milliseconds since 1970; 0 where none is set.
    """

    place: MessagePlace
    payload: bytes
    properties: Mapping[str, str]
    published_at: datetime
    event_at: int = 0


class TopicDelivery(Protocol):
    """A delivered message, to be acknowledged or given back, once."""

    @property
    def message(self) -> StoredMessage: ...

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it before: the broker remembers only while there are consumers."""
        ...

    async def ack(self) -> None:
        """Acknowledge it, also after its consumer has ended; a broker that dies soon after may forget that.

        Raises:
            BrokerUnreachable: it will be delivered again.
        """
        ...

    async def give_back(self) -> None:
        """Have it delivered again soon, to some consumer."""
        ...


class Following(Protocol):
    """Reads a topic as it grows; closed at the end."""

    async def news(self) -> list[StoredMessage]:
        """What had been published when this was called, and was not told before, in the order of its partitions.

        Raises:
            BrokerUnreachable: what was read until then is told next time.
        """
        ...

    def each(self) -> AsyncGenerator[StoredMessage]:
        """As `news`, one by one: however many there are, few are in memory. Each is told once, taken or not.

        Raises:
            BrokerUnreachable: go on with a new one.
        """
        ...

    async def close(self) -> None: ...


class TopicLease(Protocol):
    """What one process at a time may hold: it alone can publish to the topic of that name."""

    async def publish(self, message: TopicMessage) -> MessagePlace:
        """Publish, and return once the broker keeps it: so the lease was still held. All are in one partition.

        Raises:
            LeaseHeld: it is not, as the connection was lost; others may have it.
            PublishFailed: it was refused, or not confirmed in time (`doubtful`).
        """
        ...


class Topics(Protocol):
    """The topics of one namespace, by their short names. Every method may raise `BrokerUnreachable`."""

    namespace: str

    async def create(self, topic: str, subscription: str) -> None:
        """Make sure that they are there; a new subscription begins with the first message."""
        ...

    async def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription without consumers: it keeps nothing of the topic any longer; a missing one is fine."""
        ...

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        """Publish, and return once the broker keeps it.

        Raises:
            PublishFailed: it was refused, or not confirmed in time (`doubtful`).
        """
        ...

    def consume(
        self, topic: str, subscription: str, prefetch: int
    ) -> AbstractAsyncContextManager[AsyncIterator[TopicDelivery]]:
        """Take messages, at most `prefetch` unacked in the caller's hands; shared with all other consumers.

        What is unacked at the end is delivered again.
        """
        ...

    async def acknowledge(self, topic: str, subscription: str, places: Collection[MessagePlace]) -> None:
        """Acknowledge messages, delivered or not; returns once the broker has it."""
        ...

    def unacked(
        self, topic: str, subscription: str, after: MessagePlace | None = None
    ) -> AsyncGenerator[StoredMessage]:
        """Every message that the subscription has not acknowledged, in order, without taking any.

        What is published, or acknowledged, while it is read may be among them or not.

        Args:
            topic: which; one that is not there holds nothing.
            subscription: which; one that is not there has acknowledged nothing.
            after: what was seen last.
        """
        ...

    async def follow(self, topic: str, subscription: str) -> Following:
        """Read a topic from what the subscription has not acknowledged on; both are created if missing."""
        ...

    async def backlog(self, topic: str, subscription: str) -> Backlog | None:
        """What the subscription has not acknowledged, if it is there; None where there is no such topic."""
        ...

    def held(self, topic: str, backlog: Backlog) -> AsyncGenerator[StoredMessage]:
        """The messages that a backlog holds, in their order, acknowledged since or not; what is gone is left out."""
        ...

    async def policies(self, topic: str) -> TopicPolicies | None:
        """What the broker does there automatically; None where there is no such topic.

        Raises:
            BrokerDenied: we may not read that.
        """
        ...

    def lease(self, name: str) -> AbstractAsyncContextManager[TopicLease | None]:
        """Hold a lease; None: another has it. It goes with its holder's connection."""
        ...

    async def names(self) -> list[str]:
        """Every persistent topic of the namespace, a partitioned one once.

        Raises:
            WrongUse: there is no such namespace.
        """
        ...

    async def product(self) -> str:
        """The server's name and version, such as `Pulsar 4.2.4`, once it has answered in every way that is used.

        Creates nothing.
        """
        ...

    async def close(self) -> None: ...
