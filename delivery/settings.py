"""How a server of deliveries works, and how mails are taken: its settings, without policies and hooks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from mailmend.delivery.mail.attempts import UncertainPolicy
from mailmend.delivery.mail.settling import DEFAULT_SCHEDULE, RetrySchedule
from mailmend.delivery.transports import (
    NO_TRANSPORTS,
    DeliveryProtocol,
    SendingSettings,
    SourceAddress,
    TlsLevel,
    Transports,
    sending_of,
)
from mailmend.model.grammar import host_and_port, unmapped


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """How a server of deliveries works.

    Attributes:
        reporter: the name of this host, in reports to senders.
        postmaster: the address that is told of reports that cannot be delivered; "" for no notice.
        sources: the addresses that mails are sent from.
        prefetch: how many mails of each priority are held at once.
        bytes_at_once_max: of all mails that are held; further ones are loaded as these leave. A
            larger one comes alone.
        concurrency: attempts at once.
        waiting_max: a recipient that was not picked this long after its mail was taken goes back to
            the queue.
        crowded_max: the same while the maximum number of mails, or half of the bytes, is held: half
            of the mails that only wait go back.
        grace: how long attempts may go on once the server is to stop.
        suspensions_every: how long after a reading of what people suspended the next one begins.
        schedules: of retries, by transport; "" is the schedule of other transports.
        uncertain: what becomes of a recipient whose server may have the mail.
        server_name: of the server among the servers of its queue.
        insists_on_name: it takes no other name where a live server has this one.
    """

    reporter: str
    postmaster: str = ""
    sources: tuple[SourceAddress, ...] = (SourceAddress(),)
    tls: TlsLevel = TlsLevel.OPTIONAL
    protocol: DeliveryProtocol = DeliveryProtocol.SMTP
    prefetch: int = 100
    bytes_at_once_max: int = 268_435_456
    concurrency: int = 100
    waiting_max: timedelta = timedelta(minutes=5)
    crowded_max: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=30)
    suspensions_every: timedelta = timedelta(seconds=5)
    schedules: Mapping[str, RetrySchedule] = field(default_factory=dict)
    uncertain: UncertainPolicy = UncertainPolicy.RETRY
    server_name: str = "server"
    insists_on_name: bool = False

    @property
    def sending(self) -> SendingSettings:
        """How mails are sent by the options of the server."""
        return SendingSettings(self.sources, self.tls, self.protocol)

    def schedule(self, transport: str) -> RetrySchedule:
        return self.schedules.get(transport) or self.schedules.get("") or DEFAULT_SCHEDULE


@dataclass(slots=True, eq=False)
class TransportsInForce:
    """How mails are sent, by their transport; a policy file that is read again says it anew.

    Attributes:
        options: of the server, for what the file leaves open.
        said: of the file.
    """

    options: SendingSettings
    said: Transports = field(default_factory=lambda: NO_TRANSPORTS)

    def sending(self, transport: str) -> SendingSettings:
        return sending_of(transport, self.said, self.options)


LOOPBACK_NETWORKS: Final = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
MAIL_BYTES_MAX: Final = 26_214_400
RECIPIENTS_MAX: Final = 1000
CONNECTIONS_MAX: Final = 100
CONNECTIONS_BY_ADDRESS_MAX: Final = 20
BYTES_AT_ONCE_MAX: Final = 268_435_456
IDLE_MAX: Final = timedelta(minutes=5)
MAIL_WAIT_MAX: Final = timedelta(minutes=5)
COMMANDS_MAX: Final = 100
ERRORS_MAX: Final = 20

LEAVING: Final = timedelta(seconds=2)
"""How long a client may take to take what was said to it last."""

HANDSHAKE_SECONDS: Final = 10
"""How long a client may take to secure its connection, from its first byte or by STARTTLS."""

GIVES_WAY_AFTER: Final = timedelta(seconds=5)
"""How long a connection has no mail under way before another client gets its place, where all are taken."""

RECIPIENTS_BEYOND: Final = 1000
"""RCPT commands of one mail beyond its maximum of recipients that are answered before they count as commands."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where mails are taken.

    Attributes:
        host: a name, or an address of this machine.
        port: 0 is one that the system chooses.
        secured: by TLS from the first byte; else a client may ask for it, where there is a
            certificate.
    """

    host: str
    port: int
    protocol: DeliveryProtocol = DeliveryProtocol.SMTP
    secured: bool = False

    def __str__(self) -> str:
        scheme = self.protocol.value
        if self.secured:
            scheme += "s"
        return f"{scheme}://{host_and_port(self.host, self.port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """How mails are taken from clients.

    Attributes:
        host_name: of this host, in its greeting and in the header of mails.
        relay_from: the networks whose clients may hand over mails; where clients may log in, others
            may once they did.
        tls_required: mails are taken over secured connections alone.
        auth_required: mails are taken from clients alone that logged in; else clients of
            `relay_from` need not.
        mail_bytes_max: a larger mail is refused.
        recipients_max: of one mail; the others have to come with another.
        connections_max: at once, over all addresses.
        connections_by_address_max: connections at once from one address of IPv4, or one /64 network
            of IPv6.
        idle_max: a connection ends where a command, or a line of a mail, takes longer. Single bytes
            do not extend it.
        mail_wait_max: a connection ends where no DATA came for that long, since its begin or the
            end of its last mail.
        commands_max: a connection ends after more commands without a mail. MAIL and RCPT do not
            count.
        errors_max: a connection ends after more replies 5xx since its last mail that was taken.
            RCPT does not count.
        mail_time_max: a connection whose mail takes longer to come is ended, too.
        bytes_at_once_max: of mails that are coming, over all connections; what is beyond that has
            to come again. A mail that comes alone may be as large as `mail_bytes_max`.
        grace: how long mails that are being sent may take once the listener is to stop.
    """

    host_name: str
    addresses: tuple[ListenAddress, ...]
    relay_from: tuple[IPv4Network | IPv6Network, ...] = LOOPBACK_NETWORKS
    tls_required: bool = False
    auth_required: bool = False
    mail_bytes_max: int = MAIL_BYTES_MAX
    recipients_max: int = RECIPIENTS_MAX
    connections_max: int = CONNECTIONS_MAX
    connections_by_address_max: int = CONNECTIONS_BY_ADDRESS_MAX
    idle_max: timedelta = IDLE_MAX
    mail_wait_max: timedelta = MAIL_WAIT_MAX
    commands_max: int = COMMANDS_MAX
    errors_max: int = ERRORS_MAX
    mail_time_max: timedelta = timedelta(minutes=30)
    bytes_at_once_max: int = BYTES_AT_ONCE_MAX
    grace: timedelta = timedelta(seconds=10)

    def may_relay(self, client: str) -> bool:
        """Whether a client of this address may hand over mails; what is no address may not."""
        try:
            address = unmapped(ip_address(client))
        except ValueError:
            return False
        return any(address in network for network in self.relay_from)
