"""What the desks of servers have in common: at a desk somebody asks over a network."""

from dataclasses import dataclass
from enum import IntEnum

from model.errors import MailmendError


class TooManyCalls(MailmendError):
    """As much is being answered as may be at once."""


class HealthStatus(IntEnum):
    """How something stands, from well to ill."""

    HEALTHY = 0
    DEGRADED = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class PartHealth:
    """How a part of a server stands.

    Attributes:
        cause: nothing of addresses: whoever reads it has shown no token; "" where there is nothing to say.
    """

    name: str
    status: HealthStatus
    cause: str = ""
