"""Settings of Pulsar: the settings of James's `pulsar.properties`, and TLS. Needs no library."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.model.errors import WrongUse

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
