"""`mailmend delivery serve`: what is asked of a server of deliveries, and its run."""

import asyncio
import logging
import resource
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.delivery.connections import (
    END_OF_DATA,
    POST_DELIVERY,
    PRE_DELIVERY,
    HopsBySources,
    dns_hops,
    hook_named,
    listener_of,
    listener_tls,
    made_attempts,
    made_orders,
    own_host,
    own_name,
    relay_of,
)
from mailmend.admin.delivery.desk import DeliveryDesk, work_by
from mailmend.admin.delivery.policies_in_force import PoliciesInForce
from mailmend.admin.delivery.retry_options import RetryRequest
from mailmend.admin.delivery.serve_options import (
    CONCURRENCY_DEFAULT,
    DOMAIN_CONCURRENCY_DEFAULT,
    PREFETCH_DEFAULT,
)
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import hangup_calls, stop_signal
from mailmend.admin.frame.whole_files import refuse_unwritable, write_text
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.delivery.mail.attempts import NextHops, UncertainPolicy
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.quotas import QuotaUsage
from mailmend.delivery.policy.shares import ServerShare
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.settings import (
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
from mailmend.mailqueue.concurrency import cancelled, paused
from mailmend.mailqueue.prometheus import metrics_text
from mailmend.mailqueue.queue import no_due_mails
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.ports import Clock
from mailmend.repair.log_fields import heard

if TYPE_CHECKING:
    from mailmend.delivery.smtp.incoming.listener import ListenerTls, MailListener


def allow_open_files(wanted: int) -> int:
    """Raise the soft limit to at least this number, as far as the hard limit allows; the limit that holds then.

    A soft limit that is higher stays. An unlimited number counts as the wanted one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft >= wanted:
        return soft
    target = wanted
    if hard != resource.RLIM_INFINITY:
        target = min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # the system has a lower limit for all processes
        return soft
    return target


DeliveryFace = Callable[[DeliveryDesk, asyncio.Event], Coroutine[Any, Any, None]]
"""Serves callers at the desk, until the event."""


_OPEN_FILES_BESIDE: Final = 400
"""For DNS, the cluster, the broker, the blob store and the clients of --http."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRequest(RetryRequest):
    """Deliver until a signal says otherwise.

    Attributes:
        next_hop: takes all mail; None: the servers that DNS names for each domain.
        next_hops_in: networks that are not of the Internet, and whose servers may be next hops that DNS names.
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
        server_name: of this server among the queue's; None: this host's, with a number where that is taken.
        metrics: a file for node_exporter; None: none is written.
        pre_delivery: the name of a hook before each attempt; None: no hook.
        post_delivery: the name of a hook after each attempt; None: no hook.
        end_of_data: the name of a hook behind each mail from a client; None: no hook.
        hook_limit: how long a hook may take.
        suspensions_every: how long after a reading of what people suspended the next one begins.
        uncertain: what becomes of a recipient whose server may have the mail, as its name in settings.
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

    def delivery(self) -> DeliverySettings:
        return DeliverySettings(
            reporter=self.helo or own_name(),
            postmaster=self.postmaster or "",
            sources=self.sources or (SourceAddress(),),
            tls=TlsLevel(self.smtp_tls),
            protocol=DeliveryProtocol(self.protocol),
            prefetch=self.prefetch,
            concurrency=self.concurrency,
            waiting_max=self.waiting_max,
            suspensions_every=self.suspensions_every,
            schedules=self.schedules,
            uncertain=UncertainPolicy(self.uncertain),
            server_name=self.server_name or own_name(),
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
        """The servers that DNS names for each domain, but for this host, and for those that are not of the Internet."""
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
        """How many files and sockets it may need: for attempts, kept connections and their successors, and clients."""
        return 2 * self.concurrency + self.listen_connections + _OPEN_FILES_BESIDE

    def listening(self) -> ListenerSettings:
        return ListenerSettings(
            host_name=self.helo or own_name(),
            addresses=self.listen,
            relay_from=self.relay_from or LOOPBACK_NETWORKS,
            mail_bytes_max=self.mail_bytes_max,
            recipients_max=self.mail_recipients_max,
            connections_max=self.listen_connections,
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


@dataclass(frozen=True, slots=True)
class DeliveryEnded:
    """The server was asked to stop, and has.

    Attributes:
        ended: how often a recipient's active time ended in each way.
    """

    request: DeliveryRequest
    ended: Mapping[EntryEnd, int]


def served_document(result: DeliveryEnded) -> Document:
    sums = {end.name.lower(): result.ended.get(end, 0) for end in EntryEnd}
    counted = ", ".join(f"{result.ended.get(end, 0):,} {end.value}" for end in EntryEnd)
    return Document(
        {"queue": result.request.queue, **result.request.home, "recipients": sums, "exit": 0},
        (f"Recipients of {result.request.queue}: {counted}.",),
        remarks=("Stopped on request; what was under way has ended.",),
    )


_LOG: Final = logging.getLogger("mailmend.delivery")


METRICS_EVERY: Final = timedelta(seconds=15)


def serve(request: DeliveryRequest, caller: Caller) -> DeliveryEnded:
    """Deliver until SIGTERM or Ctrl-C; SIGHUP reads policies, certificate and users again.

    Raises:
        BadPolicyFile: the policies cannot be used; the message says where.
        ServerNameTaken: another live server of the queue has the name; that takes a minute to be sure of.
        WrongUse: there is no such hook, the file of metrics cannot be written, mails cannot be taken at an
            address, or a certificate is missing or cannot be used.
        Delayed: the keyspace has no table for delayed mails, so nothing could be tried again.
        CannotReach: the cluster, the broker or the blob store, at the start; later they are waited for.
    """
    policies_in_force = PoliciesInForce(request.policies, domain_concurrency=request.of_one_domain)
    _warn_of_few_files(allow_open_files(request.open_files), request.open_files, caller)
    if request.metrics:
        refuse_unwritable(request.metrics)
    tls = request.listening_tls()
    users = request.listening_users()
    pre = hook_named(PRE_DELIVERY, request.pre_delivery)
    post = hook_named(POST_DELIVERY, request.post_delivery)
    at_arrival = hook_named(END_OF_DATA, request.end_of_data)
    if at_arrival and not request.listen:
        mend = "Say where with --listen, or leave it out."
        raise WrongUse("no mail comes in that --end-of-data could see", mend=mend)

    async def served(connections: QueueConnections) -> DeliveryEnded:
        if not connections.can_delay:
            raise no_due_mails()
        settings = request.delivery()
        limits = policies_in_force.said
        policies_in_force.read_at = connections.now
        relay = relay_of(settings.reporter, request.smtp_tls_ca, request.mails_per_connection)
        connections = connections.with_ledger()
        by_dns = partial(request.by_dns, connections.clock)
        hops = HopsBySources(by_dns, request.all_sources(limits))
        async with connections.open() as queue:
            orders = made_orders(connections)
            hooks = DeliveryHooks(
                clock=connections.clock,
                pre=pre,
                post=post,
                arrival=at_arrival,
                pre_name=request.pre_delivery or "",
                post_name=request.post_delivery or "",
                arrival_name=request.end_of_data or "",
                limit=request.hook_limit,
            )
            server = DeliveryServer(
                name=owner_name(),
                queue=queue,
                next_hops=request.next_hop or hops,
                relay=relay,
                engine=PickupEngine(limits.policies, limits.algorithm, share=ServerShare()),
                clock=connections.clock,
                settings=settings,
                hooks=hooks,
                ledger=orders,
                servers=orders.servers,
                journal=made_attempts(connections),
            )
            where = request.next_hop or "the servers of each domain"
            caller.remark(f"Delivering {request.queue} by {where} until SIGTERM or Ctrl-C.")
            work_by(server, limits)
            listener = None
            if request.listen:
                listener = listener_of(queue, connections.clock, request.listening(), tls, users)
                listener.intake.rules = limits.incoming
                listener.intake.quotas.usage = QuotaUsage(limits.quotas)
                if at_arrival and server.orders:
                    heeding = replace(hooks, heed=server.orders.apply_hook_orders)
                    listener.intake.hook = heeding.arrived
            desk = DeliveryDesk(
                server=server,
                connections=connections,
                policies=policies_in_force,
                listener=listener,
                know_sources=lambda limits: hops.know(request.all_sources(limits)),
            )

            def reload() -> None:
                _reload(desk)
                _renew(tls, "the listener's certificate")
                _renew(users, "the listener's users")

            with stop_signal() as stop, heard("mailmend.delivery"), hangup_calls(reload):
                try:
                    await _listening(listener, caller)
                    await _until_stopped(desk, stop, _Metrics(desk, caller, request.metrics), request.face)
                finally:
                    await relay.close()
        return DeliveryEnded(request, server.ended)

    return with_queues(request.settings, served)


def _warn_of_few_files(allowed: int, wanted: int, caller: Caller) -> None:
    if allowed < wanted:
        caller.remark(
            f"The system allows {allowed} open files, and this server may need {wanted}: raise the limit "
            "(LimitNOFILE= of its unit, ulimit -n), or lower --concurrency. Attempts beyond the limit are made later."
        )


async def _listening(listener: "MailListener | None", caller: Caller) -> None:
    if listener:
        await listener.open()
        networks = ", ".join(map(str, listener.settings.relay_from))
        caller.remark(f"Taking mails at {', '.join(map(str, listener.places))} from {networks}.")


def _reload(desk: DeliveryDesk) -> None:
    try:
        desk.reload()
    except MailmendError as error:
        _LOG.error("the policies stay as they were", extra={"error": str(error)})


def _renew(kept: "ListenerTls | ListenerUsers | None", what: str) -> None:
    if kept:
        try:
            kept.read_again()
        except MailmendError as error:
            _LOG.error(f"{what} stays as it was", extra={"error": str(error)})
        else:
            _LOG.info(f"{what} was read again")


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Writes what the server tells to a file, where one is named."""

    desk: DeliveryDesk
    caller: Caller
    file: Path | None

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Write until a stop signal; after an error, try again at the next turn."""
        while self.file and not stop.is_set():
            await paused(self.desk.server.clock, METRICS_EVERY, stop)
            self.write()

    def write(self) -> None:
        try:
            if self.file:
                write_text(self.file, metrics_text(self.desk.samples()), masked=False)
        except MailmendError as error:
            self.caller.remark(f"{self.file} is not up to date: {error.what}")


async def _until_stopped(desk: DeliveryDesk, stop: asyncio.Event, metrics: _Metrics, face: DeliveryFace | None) -> None:
    """Run the server with the background tasks of its queue: due mails move, and slices are swept; mails come in.

    Callers over a network are answered until the server has ended: that it ends is an answer too.
    """
    over = asyncio.Event()

    async def serving() -> None:
        try:
            await desk.server.serve(stop)
        finally:
            stop.set()
            over.set()

    async def answering(face: DeliveryFace) -> None:
        watching = asyncio.ensure_future(desk.parts.watch())
        try:
            await face(desk, over)
        finally:
            await cancelled([watching])

    async with asyncio.TaskGroup() as together:
        together.create_task(serving())
        together.create_task(desk.server.queue.maintain(stop))
        together.create_task(metrics.keep_current(stop))
        if desk.listener:
            together.create_task(desk.listener.serve(stop))
        if face:
            together.create_task(answering(face))
    metrics.write()
