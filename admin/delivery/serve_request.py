"""What is asked of `mailmend delivery serve`, and what each of its processes does of that."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.delivery.connections import dns_hops, listener_tls, own_host, own_name
from mailmend.admin.delivery.retry_options import RetryRequest
from mailmend.admin.delivery.serve_options import (
    CONCURRENCY_DEFAULT,
    DOMAIN_CONCURRENCY_DEFAULT,
    PREFETCH_DEFAULT,
)
from mailmend.admin.frame.http.access import HttpFace
from mailmend.admin.frame.supervision import parts_of
from mailmend.delivery.mail.attempts import NextHops, UncertainPolicy
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.settings import (
    BYTES_AT_ONCE_MAX,
    CONNECTIONS_BY_ADDRESS_MAX,
    CONNECTIONS_MAX,
    IDLE_MAX,
    LOOPBACK_NETWORKS,
    MAIL_BYTES_MAX,
    MAIL_WAIT_MAX,
    RECIPIENTS_MAX,
    DeliverySettings,
    ListenAddress,
    ListenerSettings,
)
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.delivery.smtp.outgoing.addresses import SmartHost
from mailmend.delivery.transports import (
    OTHER_TRANSPORTS,
    DeliveryProtocol,
    SourceAddress,
    TlsLevel,
    Transport,
)
from mailmend.model.errors import WrongUse
from mailmend.model.ports import Clock

if TYPE_CHECKING:
    from mailmend.admin.delivery.desk import DeliveryDesk
    from mailmend.delivery.smtp.incoming.listener import ListenerTls


DeliveryFace = Callable[["DeliveryDesk", asyncio.Event], Coroutine[Any, Any, None]]
"""Serves callers at the desk, until the event."""


_OPEN_FILES_BESIDE: Final = 400
"""For DNS, the cluster, the broker, the blob store and the clients of --http."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRequest(RetryRequest):
    """Deliver until a signal says otherwise.

    Attributes:
        next_hop: takes all mail; None: the servers that DNS names for each domain.
        next_hops_in: networks that are not of the Internet, whose servers may be next hops by DNS.
        own_hosts: further names and addresses of this host.
        sources: addresses of this machine that mails are sent from; none: the system's choice.
        helo: the name of this host, in greetings and reports; None: as the system knows it.
        postmaster: who is told of reports that cannot be delivered; None: no report is passed on.
        smtp_tls_ca: certificates of the authorities that are trusted; None: the system's.
        protocol: SMTP, or LMTP, as its name in settings.
        mails_per_connection: 1 ends each connection after its mail.
        concurrency: attempts at once.
        domain_concurrency: attempts at once for one domain where no policy limits anything; None:
            20, and at most half of all.
        prefetch: mails of each priority that are held at once.
        waiting_max: how long a recipient waits for its policy before it goes back to the queue.
        policies: a file of them; None: each domain has `domain_concurrency`.
        server_name: of this server among the queue's; None: this host's, with a number where that
            is taken.
        metrics: a file for node_exporter; None: none is written.
        pre_delivery: the name of a hook before each attempt; None: no hook.
        post_delivery: the name of a hook after each attempt; None: no hook.
        end_of_data: the name of a hook behind each mail from a client; None: no hook.
        hook_limit: how long a hook may take.
        suspensions_every: how long after a reading of what people suspended the next one begins.
        uncertain: what becomes of a recipient whose server may have the mail, as its name in
            settings.
        listen: where mails are taken from clients; nowhere: all come by the queue.
        relay_from: networks whose clients may hand over mails; none: loopback.
        mail_bytes_max: of a mail from a client.
        mail_recipients_max: of a mail from a client.
        listen_connections: of clients, at once.
        listen_idle: how long a client may be silent.
        listen_tls_cert: the listener's certificate; None: its clients cannot use TLS.
        listen_tls_key: of that certificate.
        listen_tls: optional or required.
        listen_tls_client_ca: whose certificates clients have to show; None: none.
        listen_users: a file of users who may log in; None: no client does.
        listen_auth: optional or required.
        face: answers callers over a network; None: no caller is answered.
        processes: how many processes share the work.
        worker: the number of one of them, from 1; None: this is asked of all of them.
    """

    next_hop: SmartHost | None = None
    next_hops_in: tuple[IPv4Network | IPv6Network, ...] = ()
    own_hosts: tuple[str, ...] = ()
    sources: tuple[SourceAddress, ...] = ()
    helo: str | None = None
    postmaster: str | None = None
    smtp_tls: str = TlsLevel.OPTIONAL.value
    smtp_tls_ca: Path | None = None
    protocol: str = DeliveryProtocol.SMTP.value
    mails_per_connection: int = 1
    concurrency: int = CONCURRENCY_DEFAULT
    domain_concurrency: int | None = None
    prefetch: int = PREFETCH_DEFAULT
    waiting_max: timedelta = timedelta(minutes=5)
    policies: Path | None = None
    server_name: str | None = None
    metrics: Path | None = None
    pre_delivery: str | None = None
    post_delivery: str | None = None
    end_of_data: str | None = None
    hook_limit: timedelta = timedelta(seconds=10)
    suspensions_every: timedelta = timedelta(seconds=5)
    uncertain: str = UncertainPolicy.RETRY.value
    listen: tuple[ListenAddress, ...] = ()
    relay_from: tuple[IPv4Network | IPv6Network, ...] = ()
    mail_bytes_max: int = MAIL_BYTES_MAX
    mail_recipients_max: int = RECIPIENTS_MAX
    listen_connections: int = CONNECTIONS_MAX
    listen_connections_by_address: int = CONNECTIONS_BY_ADDRESS_MAX
    listen_idle: timedelta = IDLE_MAX
    listen_mail_wait: timedelta = MAIL_WAIT_MAX
    listen_tls_cert: Path | None = None
    listen_tls_key: Path | None = None
    listen_tls: str = "optional"
    listen_tls_client_ca: Path | None = None
    listen_users: Path | None = None
    listen_auth: str = "optional"
    face: DeliveryFace | None = None
    processes: int = 1
    worker: int | None = None

    def of_worker(self, number: int) -> "DeliveryRequest":
        """What one of the processes is asked: its part of each number that limits the whole server.

        Raises:
            WrongUse: there is less than 1 for each process, or no port for its callers.
        """

        def part(of: str) -> int:
            whole = int(getattr(self, of))
            if whole < self.processes:
                what = f"--{of.replace('_', '-')} {whole} is less than --processes {self.processes}"
                raise WrongUse(what, mend="Each process needs 1 at least.")
            return parts_of(whole, self.processes)[number - 1]

        face = self.face
        if isinstance(face, HttpFace):
            face = face.of_process(number)
        metrics = self.metrics
        if metrics:
            metrics = metrics.with_name(f"{metrics.stem}-{number}{metrics.suffix}")
        domain_concurrency = 0
        if self.of_one_domain:
            domain_concurrency = max(1, parts_of(self.of_one_domain, self.processes)[number - 1])
        return replace(
            self,
            concurrency=part("concurrency"),
            domain_concurrency=domain_concurrency,
            prefetch=part("prefetch"),
            listen_connections=part("listen_connections"),
            metrics=metrics,
            face=face,
            worker=number,
        )

    @property
    def _name(self) -> str:
        """Of the server among its queue's; the first process has the name of a server alone."""
        name = self.server_name or own_name()
        if self.worker and self.worker > 1:
            name = f"{name}-{self.worker}"
        return name

    def delivery(self) -> DeliverySettings:
        return DeliverySettings(
            reporter=self.helo or own_name(),
            postmaster=self.postmaster or "",
            sources=self.sources or (SourceAddress(),),
            tls=TlsLevel(self.smtp_tls),
            protocol=DeliveryProtocol(self.protocol),
            prefetch=self.prefetch,
            bytes_at_once_max=BYTES_AT_ONCE_MAX // self.processes,
            concurrency=self.concurrency,
            waiting_max=self.waiting_max,
            suspensions_every=self.suspensions_every,
            schedules=self.schedules,
            uncertain=UncertainPolicy(self.uncertain),
            server_name=self._name,
            insists_on_name=self.server_name is not None,
        )

    def all_sources(self, limits: PickupPolicies) -> tuple[SourceAddress, ...]:
        """The addresses that mails are sent from, by the options and a policy file's transports.

        The system's choice is one of them where neither `--source` nor the transport `*` says any.
        """
        found = list(self.sources)
        others = limits.transports.get(OTHER_TRANSPORTS, Transport())
        if not found and not others.sources:
            found.append(SourceAddress())
        for transport in limits.transports.values():
            found += transport.sources or ()
        return tuple(dict.fromkeys(found))

    def by_dns(self, clock: Clock, sources: Sequence[SourceAddress]) -> NextHops:
        """The servers that DNS names for each domain, but for this host and for private networks."""
        listens_at = [place.host for place in self.listen]
        own = own_host((self.helo or "", *self.own_hosts), sources, listens_at)
        return dns_hops(clock, own, sources, self.next_hops_in)

    @property
    def of_one_domain(self) -> int:
        """Attempts at once for one domain where no policy limits anything; 0: no limit."""
        if self.domain_concurrency is None:
            return max(1, min(DOMAIN_CONCURRENCY_DEFAULT, self.concurrency // 2))
        return self.domain_concurrency

    @property
    def open_files(self) -> int:
        """How many files and sockets it may need: for attempts, kept connections, and clients."""
        return 2 * self.concurrency + self.listen_connections + _OPEN_FILES_BESIDE

    def listening(self) -> ListenerSettings:
        return ListenerSettings(
            host_name=self.helo or own_name(),
            addresses=self.listen,
            relay_from=self.relay_from or LOOPBACK_NETWORKS,
            mail_bytes_max=self.mail_bytes_max,
            recipients_max=self.mail_recipients_max,
            connections_max=self.listen_connections,
            bytes_at_once_max=BYTES_AT_ONCE_MAX // self.processes,
            connections_by_address_max=self.listen_connections_by_address,
            idle_max=self.listen_idle,
            mail_wait_max=self.listen_mail_wait,
            tls_required=self.listen_tls == "required",
            auth_required=self.listen_auth == "required",
        )

    def listening_tls(self) -> "ListenerTls | None":
        """The certificate of the listener; None where it needs none.

        Raises:
            WrongUse: it cannot be read, or something that needs it is asked for without it.
        """
        certificate = self.listen_tls_cert
        key = self.listen_tls_key
        if certificate and key:
            return listener_tls(certificate, key, self.listen_tls_client_ca)
        what = ""
        if certificate or key or self.listen_tls_client_ca:
            what = "TLS"
        if self.listen_tls == "required":
            what = "--listen-tls required"
        if self.listen_users:
            what = "--listen-users"
        secured = [address for address in self.listen if address.secured]
        if secured:
            what = str(secured[0])
        if what:
            mend = "Give --listen-tls-cert and --listen-tls-key."
            raise WrongUse(f"{what} needs a certificate and its key", mend=mend)
        return None

    def listening_users(self) -> ListenerUsers | None:
        """Who may log in at the listener; None: no client does.

        Raises:
            WrongUse: the file cannot be used, or a login is demanded and there is no file.
        """
        if self.listen_users:
            return ListenerUsers(self.listen_users)
        if self.listen_auth == "required":
            mend = "Name their file with --listen-users."
            raise WrongUse("--listen-auth required has no users", mend=mend)
        return None
