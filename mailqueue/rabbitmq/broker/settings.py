"""Settings of RabbitMQ: hosts, credentials, timeouts. Needs no library."""

from dataclasses import dataclass, field
from typing import Final

from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.rabbitmq.broker.topology import QueueForm
from mailmend.model.errors import WrongUse

AMQP_PORT: Final = 5672
CONFIRM_SECONDS: Final = 10.0
"""How long James waits for a confirm."""

SETTLE_SECONDS: Final = 2.0
"""RabbitMQ 4.0 notes on disk within one second which quorum queues it has; measured, see ADR 19."""


@dataclass(frozen=True, slots=True)
class Host:
    """One node of the broker."""

    name: str
    port: int = AMQP_PORT

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    """The broker's HTTP API, with credentials of its own.

    Attributes:
        url: such as `http://broker.example:15672`; with `https`, the broker's TLS files are used.
    """

    url: str
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    answer_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker, of one node or several.

    Attributes:
        hosts: asked one after the other until one answers.
        tls: None: the connection is not encrypted.
        heartbeat_seconds: after about three of them without a sign a connection counts as lost.
        publish_confirm_seconds: how long a publish waits for its confirm.
        answer_seconds: how long everything else waits for an answer.
        settle_seconds: how long nothing is published to a quorum queue that we have just declared: a broker that is
            killed before it has noted the queue on disk loses what it confirmed.
        form: how missing work queues are declared.
        management: None: counts of unacked messages and the arguments of queues are not known.
    """

    hosts: tuple[Host, ...] = (Host("localhost"),)
    vhost: str = "/"
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: BrokerTls | None = None
    heartbeat_seconds: int = 60
    publish_confirm_seconds: float = CONFIRM_SECONDS
    answer_seconds: float = 10.0
    settle_seconds: float = SETTLE_SECONDS
    form: QueueForm = field(default_factory=QueueForm)
    management: ManagementSettings | None = None

    def __post_init__(self) -> None:
        if not self.hosts:
            raise WrongUse("a broker needs a host", mend="Name one, or several of one cluster.")
        if min(self.publish_confirm_seconds, self.answer_seconds) <= 0:
            raise WrongUse("a broker needs time to answer: more than 0 seconds")

    @property
    def place(self) -> str:
        return f"{', '.join(map(str, self.hosts))}, virtual host {self.vhost}"
