"""Settings of a broker: hosts, credentials, timeouts, TLS and why it fails. Needs no library."""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mailqueue.rabbitmq.broker.topology import QueueForm
from model.errors import BadSettings, BrokerUnreachable, WrongUse
from model.tls_errors import FOR_SOMEBODY_ELSE, NO_TLS, OUT_OF_TIME, UNKNOWN_AUTHORITY, TlsReason, tls_failure_in

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
class BrokerTls:
    """PEM files of an encrypted connection.

    Attributes:
        ca: who signed the broker's certificate; None: one of those that the system trusts.
        certificate, key: ours, where the broker asks for one; None: we show none.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


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
        form: how work queues are declared where there are none.
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


def context_of(tls: BrokerTls) -> ssl.SSLContext:
    """An SSL context that checks the broker's name and signature.

    Raises:
        BadSettings: a file cannot be read, or is not what it should be.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl's own errors are among them
        files = ", ".join(str(path) for path in (tls.ca, tls.certificate, tls.key) if path is not None)
        raise BadSettings(
            f"the TLS files {files} cannot be used: {error}", mend="PEM files are needed, readable by this user."
        ) from error
    return context


_SHOW: Final = "Show one that its authority signed with --broker-tls-cert and --broker-tls-key."

_REASONS: Final = (
    TlsReason(
        OUT_OF_TIME,
        "the certificate of {place} is out of its time: {words}",
        "Renew the broker's certificate; or set this machine's clock, where that is wrong.",
    ),
    TlsReason(
        FOR_SOMEBODY_ELSE,
        "the certificate of {place} is for somebody else: {words}",
        "Name the broker as its certificate does; or give it a certificate that names this host.",
    ),
    TlsReason(
        UNKNOWN_AUTHORITY,
        "the certificate of {place} was not signed by an authority that we know: {words}",
        "Name the authority that signed it with --broker-tls-ca.",
    ),
    TlsReason(
        re.compile(r"(?i)alert certificate expired"),
        "{place} does not take our certificate, for it has expired: {words}",
        f"Renew it. {_SHOW}",
    ),
    TlsReason(
        re.compile(
            r"(?i)alert (?:certificate required|bad certificate|unknown ca|unsupported certificate|handshake failure)"
        ),
        "{place} does not take our certificate, or we showed none: {words}",
        _SHOW,
    ),
    TlsReason(
        NO_TLS,
        "what answers at {place} does not speak TLS: {words}",
        "Name the port where the broker speaks it (5671; its HTTP API: 15671); or leave TLS out of the address, "
        "where nobody can listen between here and there.",
    ),
)


def tls_error(said: str, place: str) -> BrokerUnreachable | None:
    """OpenSSL's reason with its remedy; None where it was no TLS failure.

    Args:
        said: a library's words.
        place: who was asked, as it begins or ends a sentence.
    """
    found = tls_failure_in(said, place, _REASONS)
    return BrokerUnreachable(found.what, mend=found.mend) if found else None
