"""Which Pulsar: James's settings of `pulsar.properties`, and TLS; and the names of its topics. Needs no library.

Topics and subscriptions of a queue are named as in James (source: its `PulsarMailQueue`). James
takes every topic whose name begins with `James-` for a queue, its dead letters too; here a dead
letter topic is not a queue.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName


class PulsarForm(Enum):
    """Which James wrote a message, or is to read it."""

    JAMES_3_9 = "3.9"
    JAMES_3_8 = "3.8"


LOOK_AT_LOGIN: Final = (
    "Look at the token, or the user and password (MAILMEND_BROKER_PASSWORD), or the client's certificate; what it may "
    "do: pulsar-admin namespaces permissions NAMESPACE (it takes produce and consume)."
)


class PulsarAuth(Enum):
    """How we say who we are: James's `authentication.type`."""

    NONE = "no-auth"
    TOKEN = "token"  # noqa: S105 - the word for it
    BASIC = "basic"


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """One Pulsar, and the namespace in it.

    Attributes:
        service: James's `broker.uri`, `pulsar://host:6650` or `pulsar+ssl://host:6651`; no secret is in it.
        admin: James's `admin.uri`, `http://host:8080`.
        namespace: tenant/namespace.
        password: of `basic`; or the token.
        tls: with `pulsar+ssl`, or where `admin` begins with https.
        publish_seconds: how long a publish waits for its confirmation.
        answer_seconds: how long everything else waits for an answer.
    """

    service: str
    admin: str
    namespace: str = "public/default"
    auth: PulsarAuth = PulsarAuth.NONE
    username: str = ""
    password: str = field(default="", repr=False)
    tls: BrokerTls | None = None
    publish_seconds: float = 10.0
    answer_seconds: float = 10.0

    def __post_init__(self) -> None:
        tenant, slash, namespace = self.namespace.partition("/")
        if not (tenant and slash and namespace) or "/" in namespace:
            raise WrongUse(
                f"{self.namespace!r} is no namespace of Pulsar's", mend="Write tenant/namespace, like public/default."
            )

    @property
    def place(self) -> str:
        return f"{self.service}, namespace {self.namespace}"


_PREFIX: Final = "James-"
_SCHEDULED: Final = "-scheduled"
_FILTERS: Final = "pmq-filter-"
_DEAD: Final = re.compile(r"(?P<queue>.+)-subscription-(?P=queue)-DLQ")
_DEAD_SCHEDULED: Final = re.compile(r"(?P<queue>.+)-scheduled-scheduled-subscription-(?P=queue)-DLQ")
DEAD_SUBSCRIPTION: Final = "dead-letter-sub-name"
OWN_SUBSCRIPTION: Final = "mailmend"
"""Of topics that James does not have, or keeps no subscription of."""


def out_topic(queue: QueueName) -> str:
    return f"{_PREFIX}{queue}"


def out_subscription(queue: QueueName) -> str:
    return f"subscription-{queue}"


def scheduled_topic(queue: QueueName) -> str:
    return f"{queue}{_SCHEDULED}"


def scheduled_subscription(queue: QueueName) -> str:
    return f"scheduled-subscription-{queue}"


def dead_topic(queue: QueueName) -> str:
    return f"{out_topic(queue)}-{out_subscription(queue)}-DLQ"


def filter_topic(queue: QueueName) -> str:
    return f"{_FILTERS}{queue}"


def filter_scheduled_topic(queue: QueueName) -> str:
    return f"{_FILTERS}scheduled-{queue}"


def mover_lease(queue: QueueName) -> str:
    """The topic whose one producer may move delayed mails of the queue; movers note there what they move."""
    return f"{queue}-mailmend-mover"


def redrive_lease(queue: QueueName) -> str:
    """The topic whose one producer may put dead letters back; it holds no message."""
    return f"{queue}-mailmend-redrive"


def keeper_lease(queue: QueueName) -> str:
    """The topic whose one producer keeps the index of what is delayed; it holds no message."""
    return f"{queue}-mailmend-keeper"


def restored_topic(queue: QueueName) -> str:
    """Ids of mails that were put back, so that none is twice."""
    return f"{queue}-mailmend-restored"


def arrivals_subscription(move: str) -> str:
    """Keeps what was published since a move into the queue began: so it is known which of its mails came."""
    return f"mailmend-move-{move}"


def queues_among(topics: Iterable[str]) -> list[QueueName]:
    """The queues whose topics are among these, by name."""
    queues = []
    for topic in topics:
        name = topic.removeprefix(_PREFIX)
        if name != topic and name and not _DEAD.fullmatch(name):
            queues.append(QueueName(name))
    return sorted(queues)


class MailTopic(NamedTuple):
    """A topic whose messages are mails, and the subscription that says which of them are done.

    Attributes:
        whereabouts: of its mails; None: they are dead letters.
    """

    topic: str
    subscription: str
    queue: QueueName
    whereabouts: Whereabouts | None


def mail_topics(topics: Iterable[str]) -> list[MailTopic]:
    """Every topic among these that may hold mails, whether or not the queue's other topics are there.

    One whose name may mean two things is there twice.
    """
    there = frozenset(topics)
    found: list[MailTopic] = []
    for name in sorted(there):
        found.extend(_mail_topics(name, there))
    return found


def _mail_topics(name: str, there: Collection[str]) -> Iterator[MailTopic]:
    plain = name.removeprefix(_PREFIX)
    dead = _DEAD.fullmatch(plain)
    if plain == name:
        dead = _DEAD_SCHEDULED.fullmatch(name)
    if dead:
        yield MailTopic(name, DEAD_SUBSCRIPTION, QueueName(dead["queue"]), None)
        return
    if plain not in {name, ""}:
        yield MailTopic(name, out_subscription(QueueName(plain)), QueueName(plain), Whereabouts.WAITING)
    queue = QueueName(name.removesuffix(_SCHEDULED))
    if queue not in {name, ""} and (not name.startswith(_FILTERS) or out_topic(queue) in there):
        yield MailTopic(name, scheduled_subscription(queue), queue, Whereabouts.DELAYED)
