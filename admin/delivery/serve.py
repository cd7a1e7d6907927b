"""`mailmend delivery serve`: what is asked of a server of deliveries, and its declaration."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mailmend.admin.delivery.connections import dns_hops, listener_tls, own_host, own_name
from mailmend.admin.delivery.desk import DeliveryDesk
from mailmend.admin.delivery.options import refuse_unnamed
from mailmend.admin.delivery.serve_options import (
    LISTENING,
    LISTENING_ABOUT,
    by_transport,
    parse_address,
    parse_next_hop,
    parse_own_host,
    parse_schedule,
    parse_server_name,
    parse_source,
)
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.http.options import http_face
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings, unless
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.mail.attempts import DeliveryProtocol, NextHops, SourceAddress, TlsLevel
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.journal import UncertainPolicy
from mailmend.delivery.mail.retries import RetrySchedule
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
from mailmend.delivery.smtp.outgoing.smart_host import SmartHost
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import read_network
from mailmend.model.ports import Clock

if TYPE_CHECKING:
    from mailmend.delivery.smtp.incoming.listener_tls import ListenerTls


DeliveryFace = Callable[[DeliveryDesk, asyncio.Event], Coroutine[Any, Any, None]]
"""Serves whoever asks at the desk, until the event."""
CONCURRENCY_DEFAULT: Final = 100


PREFETCH_DEFAULT: Final = 100


_OPEN_FILES_BESIDE: Final = 400
"""For DNS, the cluster, the broker, the blob store and the clients of --http."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRequest(QueueRequest):
    """Deliver until a signal says otherwise.

    Attributes:
        next_hop: takes all mail; None: the servers that DNS names for each domain.
        next_hops_in: networks that are not of the Internet, and whose servers may be next hops that DNS names.
        own_hosts: further names and addresses of this host.
        sources: addresses of this machine that mails are sent from; none: the system's choice.
        helo: the name of this host, in greetings and reports; None: as the system knows it.
        postmaster: who is told of reports that cannot be delivered; None: nobody.
        smtp_tls_ca: certificates of the authorities that are trusted; None: those of the system.
        protocol: SMTP, or LMTP, as its name in settings.
        mails_per_connection: 1 ends each connection after its mail.
        concurrency: attempts at once.
        prefetch: mails of each priority that are held at once.
        retries: when mails are tried again, by transport; "" is that of the others.
        waiting_max: how long a recipient waits for its policy before it goes back to the queue.
        policies: a file of them; None: nothing is limited.
        server_name: of this one among those of the queue; None: this host's, with a number where that is taken.
        metrics: a file for node_exporter; None: none is written.
        pre_delivery: the name of a hook; None: there is none.
        post_delivery: likewise.
        hook_limit: how long a hook may take.
        suspensions_every: how long after a reading of what people suspended the next one begins.
        uncertain: what becomes of a recipient whose server may have the mail, as its name in settings.
        listen: where mails are taken from clients; nowhere: all come by the queue.
        relay_from: networks whose clients may hand over mails; none: loopback.
        mail_bytes_max: of a mail from a client.
        mail_recipients_max: likewise.
        listen_connections: of clients, at once.
        listen_idle: how long a client may say nothing.
        listen_tls_cert: the listener's certificate; None: its clients cannot use TLS.
        listen_tls_key: of that certificate.
        listen_tls: optional or required.
        listen_tls_client_ca: whose certificates clients have to show; None: none.
        face: answers whoever asks over a network; None: nobody is answered.
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
    prefetch: int = PREFETCH_DEFAULT
    retries: Mapping[str, RetrySchedule] = field(default_factory=dict)
    waiting_max: timedelta = timedelta(minutes=5)
    policies: Path | None = None
    server_name: str | None = None
    metrics: Path | None = None
    pre_delivery: str | None = None
    post_delivery: str | None = None
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
            schedules=self.retries,
            uncertain=UncertainPolicy(self.uncertain),
            seat=self.server_name or own_name(),
            insists_on_seat=self.server_name is not None,
        )

    def by_dns(self, clock: Clock) -> NextHops:
        """The servers that DNS names for each domain, but for this host, and for those that are not of the Internet."""
        own = own_host((self.helo or "", *self.own_hosts), self.sources, [place.host for place in self.listen])
        return dns_hops(clock, own, self.sources or (SourceAddress(),), self.next_hops_in)

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
        secured = next((str(address) for address in self.listen if address.secured), "")
        needs = secured or ("--listen-tls required" if self.listen_tls == "required" else "")
        if certificate or key or needs or self.listen_tls_client_ca:
            raise WrongUse(
                f"{needs or 'TLS'} needs a certificate and its key",
                mend="Give --listen-tls-cert and --listen-tls-key.",
            )
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
    counted = ", ".join(f"{sums[end.name.lower()]:,} {end.value}" for end in EntryEnd)
    return Document(
        {"queue": result.request.queue, **result.request.home, "recipients": sums, "exit": 0},
        (f"Recipients of {result.request.queue}: {counted}.",),
        remarks=("Stopped on request; what was under way has ended.",),
    )


_WAITING_MAX: Final = timedelta(minutes=20)
"""Below the half an hour for which RabbitMQ lets a mail be unacked."""

_HOOK_MAX: Final = timedelta(minutes=5)
_SUSPENSIONS_EVERY_MAX: Final = timedelta(minutes=10)


SERVE: Final = Command(
    name="serve",
    summary="Deliver the mails of a queue by SMTP, until it is stopped.",
    about="""Each recipient of a mail is delivered by itself. Who was refused for now is tried again, after 1 and 15
    minutes, 1, 2 and then every 3 hours, for 5 days; the sender is told of a delay after a quarter of an hour, and of
    every failure, unless it asked otherwise (RFC 3461). Reports are 7 bit; where the form, the size or the content of a
    mail was refused they have its header only. Nobody is told of mails without a sender, reports among them, but
    --postmaster.

    A mail leaves the queue once all of its recipients have it, or were put off as a mail of their own: wherever this
    is killed, no mail is lost. Each attempt is in a journal before its content is sent, and its outcome before anything
    follows from it (`delivery show`): what was delivered is not sent again. Where an answer is lost, by a kill or on
    the way, --uncertain says what is done: by default the mail may go twice. SIGTERM and Ctrl-C let running attempts
    end, for half a minute; what is left goes back to the queue.

    Any number of servers may work on a queue: they share its limits, each an equal part, as the queue gives them equal
    parts of the mails. A limit below their number belongs to some of them, others for each domain or whatever it counts
    by; connections of each are as many times further apart as there are servers. `cluster: false` beside a limit gives
    all of it to each server. What a server gains of a rate, as it starts or another ends, counts as spent at first. One
    that cannot reach Cassandra begins nothing under shared limits after half a minute, and breaks off what it delivers
    there before a minute is over: its mails come again. Who is there: `delivery servers`.

    Attributes of a mail (`queue enqueue --attribute NAME=VALUE`): transportid chooses the retries; jobid, tenantid and
    grouping are for policies; expires, like 2026-05-01T08:00:00Z, ends its retries then. James's dsn-notify, dsn-ret,
    dsn-envid and dsn-orcpt are heeded, and so are REQUIRETLS and MAIL_PRIORITY: docs/mail-attributes.md has the list.
    What a server does not take as it is, 8 bits without 8BITMIME or lines of more than 998 bytes, is encoded for it.

    --policies names a file that says what is counted together, by which fields of a mail, and how many may be delivered
    at once and in which time; what is held back; whose turn it is; what mails that come in are made of; and how much
    may be in the queue: docs/policy-file.md, with examples. A mail that waits for a policy is not counted as tried.
    SIGHUP reads the file again, all of it or, where something is wrong, nothing. Where a limit is lower then, attempts
    that run go on to their end, and what begins from then on is never more than the new one.

    Hooks are functions of an installed package, or coroutine functions, that it declares as entry points. What they
    are given and may return is in mailmend.delivery.mail.hooks: before an attempt another server, envelope, addresses,
    TLS or fields for policies; before and after it, that the recipient comes again later, is held, is given up with a
    report, or without. Either may return a HookResult: with suspensions and limits that last for a while, as of
    `mailmend suspend` and `policy add`, on all servers of the queue; and with attributes that the mail keeps when it
    comes again. Where the hook before delivery fails, the recipient comes again in five minutes, and no retry is
    counted.

    With --http it answers programs and `delivery explain`: recipients are listed, shown, grouped and changed, mails
    suspended, limits set for a while, policies read again, and it is told why a mail waits: GET /openapi.json
    describes it, docs/delivery-http.md has calls to type. What is ordered is on record with the token's name. GET
    /health, /ready and /metrics are for probes and Prometheus. Other addresses than those of this machine are refused
    without tokens and TLS. This needs mailmend[serve].

    What is done is on stderr, a line for each attempt's end: mail, domain, server and reply, no address. Due mails are
    moved and slices swept meanwhile, so `queue tend` need not run for this queue. This needs mailmend[delivery].

    """
    + LISTENING_ABOUT,
    service="mailmend.admin.delivery.serving:serve",
    present="mailmend.admin.delivery.serve:served_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--policies",
            "Policies in YAML: what is counted together, and how many may be delivered at once and in which time. "
            "[default: nothing is limited]",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--next-hop",
            "The server that takes all mail: a name or an address, [ADDRESS] for IPv6; the port is 25 unless named. "
            "[default: the servers of each domain, by DNS]",
            type=ParsedValue("server", parse_next_hop),
            metavar="HOST[:PORT]",
        ),
        option(
            "--next-hops-in",
            "A network that is not of the Internet, such as 10.0.0.0/8, whose servers may be next hops that DNS names; "
            "may be given again. Loopback is one where a --source is an address of it. [default: none]",
            type=ParsedValue("network", read_network),
            multiple=True,
            metavar="CIDR",
        ),
        option(
            "--own-host",
            "Another name of this host, or an address in front of it: mail that DNS sends there would come back, and "
            "fails; may be given again. Its name and HELO, its interfaces and --listen are known.",
            "own_hosts",
            type=ParsedValue("host", parse_own_host),
            multiple=True,
            metavar="NAME|ADDRESS",
        ),
        option(
            "--source",
            "An address of this machine to send from, and its name in HELO; may be given again: they take turns.",
            "sources",
            type=ParsedValue("source", parse_source),
            multiple=True,
            metavar="ADDRESS[=HELO]",
        ),
        option("--helo", "Name of this host: in greetings and reports. [default: its own]", metavar="NAME"),
        option(
            "--postmaster",
            "Address that is told of reports that cannot be delivered: their readers know nothing otherwise. "
            "[default: nobody is told; a metric counts them]",
            type=ParsedValue("address", parse_address),
            metavar="ADDRESS",
        ),
        option(
            "--smtp-tls",
            "How connections to the next server are secured: optional takes any certificate, and goes without where "
            "TLS is not offered or fails.",
            type=click.Choice([level.value for level in TlsLevel]),
            default=TlsLevel.OPTIONAL.value,
        ),
        option(
            "--smtp-tls-ca",
            "Certificates of the authorities that are trusted to know other servers. [default: the system's]",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--protocol",
            "How the next server is spoken to; lmtp is for the recipients' own server, and reports say so.",
            type=click.Choice([protocol.value for protocol in DeliveryProtocol]),
            default=DeliveryProtocol.SMTP.value,
        ),
        option(
            "--mails-per-connection",
            "How many mails go over one connection at most, which is kept for five seconds.",
            type=click.IntRange(1, 10_000),
            default=1,
            metavar="N",
        ),
        option(
            "--concurrency",
            "Attempts to deliver at once.",
            type=click.IntRange(1, 10_000),
            default=CONCURRENCY_DEFAULT,
            metavar="N",
        ),
        option(
            "--prefetch",
            "How many mails of each priority are taken, and worked on, at once.",
            type=click.IntRange(1, 10_000),
            default=PREFETCH_DEFAULT,
        ),
        option(
            "--retry",
            "When mails are tried again: intervals, of which the last repeats; :notify tells the sender of the delay. "
            "For one transport alone behind its name; may be given again. [default: 1m,15m,1h:notify,2h,3h]",
            "retries",
            type=ParsedValue("schedule", parse_schedule),
            multiple=True,
            callback=by_transport,
            metavar="[TRANSPORT=]INTERVALS",
        ),
        option(
            "--waiting-max",
            "How long a mail may wait here for its turn; then it goes back to the queue for some minutes.",
            type=Duration(_WAITING_MAX, zero=False),
            default="5m",
        ),
        option(
            "--server",
            "Name of this server among those of the queue: the same after a restart, so that it goes on with its part "
            "of the limits. Where a live server has it, this one ends. [default: this host's, with a number where "
            "a live server has it]",
            "server_name",
            type=ParsedValue("name", parse_server_name),
            metavar="NAME",
        ),
        option(
            "--metrics-file",
            "Write metrics for Prometheus's node_exporter: every 15 seconds, to a file of its own.",
            "metrics",
            type=FILE,
            metavar="FILE",
        ),
        option(
            "--pre-delivery",
            "A hook that decides before each attempt: an entry point of the group mailmend.pre_delivery.",
            metavar="NAME",
        ),
        option(
            "--post-delivery",
            "A hook that decides after each attempt: an entry point of the group mailmend.post_delivery.",
            metavar="NAME",
        ),
        option(
            "--hook-limit",
            "How long a hook may take; one that takes longer, or fails, decides nothing.",
            type=Duration(_HOOK_MAX, zero=False),
            default="10s",
        ),
        option(
            "--suspensions-every",
            "How often it is read what people suspended.",
            type=Duration(_SUSPENSIONS_EVERY_MAX, zero=False),
            default="5s",
        ),
        option(
            "--uncertain",
            "What becomes of a recipient whose server may have the mail, as its answer was lost: retry may send it "
            "twice, hold leaves it to a person, assume counts it as delivered.",
            type=click.Choice([policy.value for policy in UncertainPolicy]),
            default=UncertainPolicy.RETRY.value,
        ),
        *LISTENING,
    ),
    shared=(
        http_face(
            "--http",
            "mailmend.admin.delivery.http.routes:DELIVERIES",
            "Answer over HTTP at this address: what waits and why, orders, health and metrics, as /openapi.json says.",
        ),
        queue_settings(broker=unless(), blobs=unless(), ledger=True, check=refuse_unnamed),
    ),
    examples="""
        mailmend delivery serve outgoing                                                  to the servers of each domain
        mailmend delivery serve outgoing --next-hop relay.example.org                     to one server, which sorts
        mailmend delivery serve outgoing --next-hop 127.0.0.1:2525 --concurrency 10       to a server for tests
        mailmend delivery serve outgoing --next-hops-in 10.0.0.0/8 --own-host 203.0.113.5        behind a firewall
        mailmend delivery serve outgoing --source 192.0.2.1=out1.example.org \\
            --source 192.0.2.2=out2.example.org --smtp-tls required
        mailmend delivery serve outgoing --policies policies.yaml --metrics-file /var/lib/node_exporter/delivery.prom
        mailmend delivery serve outgoing --pre-delivery routing --hook-limit 2s
        mailmend delivery serve outgoing --listen 10.0.0.5:2525 --relay-from 10.0.0.0/24 --listen lmtp://127.0.0.1:2424
        mailmend delivery serve outgoing --http 0.0.0.0:8443 --tokens-file tokens --http-tls-cert a.pem \\
            --http-tls-key b.pem
        mailmend delivery serve outgoing --next-hop relay.example.org --retry 1m,10m,1h:notify,6h \\
            --retry alerts=30s,1m,5m
        mailmend delivery serve outgoing --uncertain hold              none goes twice: a person decides
        mailmend queue enqueue a.eml --queue outgoing --sender ann@example.org --recipient bob@example.com \\
            --attribute transportid=alerts""",
    exits="0 it was asked to stop, and what ran has ended; 2 wrong use, its --server is another live server's, or the "
    "keyspace has no table for delayed mails; 4 cluster, broker or store cannot be reached at the start (later they "
    "are waited for); 130 it was asked "
    "twice.",
)
