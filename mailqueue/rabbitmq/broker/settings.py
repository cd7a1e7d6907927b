"""Which RabbitMQ: hosts, credentials, timeouts; and the broker's objects that make one mail queue. Needs no library.

The objects have names and arguments: James's own, and our side queues. Source:
`RabbitMQMailQueueFactory` and `MailQueueName` of James. Generations of James declare the work queue
with different arguments, and a broker refuses a second declaration with others: so what is there is
looked at first and used as it is, and only what is missing is declared, in the form that is asked
for.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName

ROUTING_KEY: Final = ""
"""The routing key of every publish and every binding: empty, as James has it."""

DEAD_LETTER_ROUTING_KEY: Final = "x-dead-letter-routing-key"
"""The header that James sets on each message, empty."""

QUEUE_TYPE: Final = "x-queue-type"
QUORUM: Final = "quorum"

DEATHS: Final = "x-death"
"""The header in which the broker tells how often and where a message was dead-lettered."""

_OF_THE_BROKER: Final = re.compile(r"x-(death|first-death-.*|last-death-.*|delivery-count|acquired-count)")
_SIDE_QUEUE: Final = re.compile(r"mailmend-priority-([0-9])-.+")

Argument = str | int


class Form(Enum):
    """How a missing work queue is declared."""

    CLASSIC = "classic"
    """Without type and version, as James 3.8 declares it."""
    CLASSIC_V2 = "classic-v2"
    """With the version that later releases of James ask for."""
    QUORUM = "quorum"


@dataclass(frozen=True, slots=True)
class QueueForm:
    """How a missing work queue is declared: its form, and what else a quorum queue needs.

    Attributes:
        replicas: how many nodes a new quorum queue is on.
        delivery_limit: the number of returns after which a quorum queue dead-letters a message;
            None: the broker's own limit.
    """

    form: Form = Form.CLASSIC
    replicas: int = 1
    delivery_limit: int | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise WrongUse(f"a queue cannot be on {self.replicas} nodes")
        if self.delivery_limit is not None and self.form is not Form.QUORUM:
            raise WrongUse(
                "only a quorum queue has a delivery limit", mend="Ask for a quorum queue, or leave the limit."
            )


@dataclass(frozen=True, slots=True)
class Topology:
    """The names of one level of a mail queue. Both exchanges are direct and durable, both queues durable."""

    queue: QueueName
    priority: int
    exchange: str
    work_queue: str
    dead_letter_exchange: str
    dead_letter_queue: str

    def work_arguments(self, form: QueueForm) -> Mapping[str, Argument]:
        return {"x-dead-letter-exchange": self.dead_letter_exchange, **_arguments_of(form)}


def topology_of(queue: QueueName, priority: int = PRIORITY_NORMAL) -> Topology:
    """The names for the queue: James's for the normal level, our own for the others.

    Dead letters of all levels come together in James's dead letter queue.

    Raises:
        WrongUse: there is no such priority.
    """
    if priority not in PRIORITIES:
        raise WrongUse(f"{priority} is no priority", mend="Priorities are 0 to 9; normal mail has 5.")
    side = f"mailmend-priority-{priority}-{queue}"
    exchange = side
    work_queue = side
    if priority == PRIORITY_NORMAL:
        exchange = f"JamesMailQueue-exchange-{queue}"
        work_queue = f"JamesMailQueue-workqueue-{queue}"
    return Topology(
        queue,
        priority,
        exchange=exchange,
        work_queue=work_queue,
        dead_letter_exchange=f"JamesMailQueue-dead-letter-exchange-{queue}",
        dead_letter_queue=f"JamesMailQueue-dead-letter-queue-{queue}",
    )


def dead_letters_of(queue: QueueName) -> Topology:
    """The names under which a message is published to the dead letters of the queue."""
    topology = topology_of(queue)
    exchange = topology.dead_letter_exchange
    return replace(topology, exchange=exchange, work_queue=topology.dead_letter_queue)


def priority_of(work_queue: str) -> int:
    found = _SIDE_QUEUE.fullmatch(work_queue)
    if found is None:
        return PRIORITY_NORMAL
    return int(found[1])


def headers_to_publish(own: Mapping[str, Argument]) -> dict[str, Argument]:
    return {DEAD_LETTER_ROUTING_KEY: ROUTING_KEY, **own}


def headers_beside(found: Mapping[str, object]) -> dict[str, Argument]:
    """The headers that neither James nor the broker set, if they are text or integers."""
    headers: dict[str, Argument] = {}
    for name, value in found.items():
        if name == DEAD_LETTER_ROUTING_KEY or _OF_THE_BROKER.fullmatch(name):
            continue
        if isinstance(value, str | int) and not isinstance(value, bool):
            headers[name] = value
    return headers


def died_in(found: Mapping[str, object]) -> str | None:
    """The queue in which a message was dead-lettered last; None where it never was."""
    deaths = found.get(DEATHS)
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], dict):
        return None
    return str(deaths[0].get("queue", ""))


def _arguments_of(form: QueueForm) -> Mapping[str, Argument]:
    match form.form:
        case Form.CLASSIC:
            return {}
        case Form.CLASSIC_V2:
            return {"x-queue-version": 2}
        case Form.QUORUM:
            arguments: dict[str, Argument] = {QUEUE_TYPE: QUORUM, "x-quorum-initial-group-size": form.replicas}
            if form.delivery_limit is not None:
                arguments["x-delivery-limit"] = form.delivery_limit
            return arguments


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
