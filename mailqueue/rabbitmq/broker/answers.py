"""RabbitMQ's answers and messages as our own values, independent of any library."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Answer(Enum):
    """The outcome of a publish."""

    CONFIRMED = "confirmed"
    REFUSED = "the broker refused it"
    RETURNED = "no queue is bound to the exchange"
    MISSING = "the exchange is not there"
    DENIED = "we may not publish there"
    BLOCKED = "the broker blocks whoever publishes, because of an alarm: it is short of memory or of disk"
    """Nothing was sent."""
    STUCK = "the broker has blocked whoever publishes, because of an alarm, before it confirmed this one"
    LATE = "the confirm did not come in time"
    LOST = "the connection was lost before the confirm came"
    UNSENT = "the connection was lost before the message was sent"


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue that is there, as a passive declaration tells."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as it came."""

    tag: int
    body: bytes
    headers: Mapping[str, object]
    redelivered: bool
