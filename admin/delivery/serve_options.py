"""Declaration of `mailmend delivery serve`: its options, and how their values are read."""

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final

import click

from mailmend.admin.delivery.options import refuse_unnamed
from mailmend.admin.delivery.process_options import PROCESSES, PROCESSES_ABOUT
from mailmend.admin.delivery.retry_options import RETRY_OPTIONS
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.http.access import http_face
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import parse_port
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings, unless
from mailmend.delivery.mail.attempts import SMTP_PORT, UncertainPolicy
from mailmend.delivery.settings import (
    COMMANDS_MAX,
    CONNECTIONS_BY_ADDRESS_MAX,
    CONNECTIONS_MAX,
    ERRORS_MAX,
    MAIL_BYTES_MAX,
    RECIPIENTS_MAX,
    ListenAddress,
)
from mailmend.delivery.smtp.incoming.logins import FAILURES_MAX
from mailmend.delivery.smtp.outgoing.addresses import SmartHost
from mailmend.delivery.transports import DeliveryProtocol, SourceAddress, TlsLevel
from mailmend.mailqueue.admission import is_address
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import address_of_literal, can_be_looked_up, read_network, read_server

CONCURRENCY_DEFAULT: Final = 100

CONCURRENCY_MAX: Final = 50_000
"""Also of --prefetch, because attempts are made of mails in hand; RabbitMQ counts up to 65,535."""


DOMAIN_CONCURRENCY_DEFAULT: Final = 20
"""As Postfix has it (`default_destination_concurrency_limit`)."""


PREFETCH_DEFAULT: Final = 100


_HOST_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d+))?")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def parse_next_hop(value: Any) -> SmartHost:
    found = _HOST_PORT.fullmatch(str(value))
    if found is None or not can_be_looked_up(found["ipv6"] or found["host"]):
        raise WrongUse(f"{value!r} is not HOST:PORT", mend="Write it like relay.example.org:25, or [2001:db8::1]:25.")
    return SmartHost(found["ipv6"] or found["host"], parse_port(int(found["port"] or SMTP_PORT)))


def parse_server_name(value: Any) -> str:
    if not _SERVER_NAME.fullmatch(str(value)):
        raise WrongUse(f"{value!r} is no name of a server", mend="Letters, digits, '.', '-' and '_' make one.")
    return str(value)


def parse_source(value: Any) -> SourceAddress:
    address, _, helo = str(value).partition("=")
    try:
        return SourceAddress(str(ip_address(address)), helo)
    except ValueError as error:
        raise WrongUse(f"{address!r} is no address", mend="Write 192.0.2.1, or 192.0.2.1=out1.example.org.") from error


def parse_own_host(value: Any) -> str:
    return address_of_literal(str(value)) or read_server(str(value))


def parse_address(value: Any) -> str:
    if not is_address(str(value)):
        raise WrongUse(f"{value!r} is no address of a mail", mend="Write it like postmaster@example.org.")
    return str(value)


_PLACE: Final = re.compile(
    r"(?:(?P<protocol>smtp|lmtp)(?P<secured>s)?://)?(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d{1,9})"
)
_IDLE_LIMIT: Final = timedelta(hours=1)


def _place(value: Any) -> ListenAddress:
    found = _PLACE.fullmatch(str(value))
    if found is None:
        raise WrongUse(
            f"{value!r} is no place to listen at", mend="Write 127.0.0.1:2525, [::1]:2525, or lmtp://127.0.0.1:2424."
        )
    protocol = DeliveryProtocol(found["protocol"] or DeliveryProtocol.SMTP.value)
    host = found["ipv6"] or found["host"]
    port = parse_port(int(found["port"]))
    return ListenAddress(host, port, protocol, secured=bool(found["secured"]))


def _network(value: Any) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(str(value))
    except ValueError as error:
        raise WrongUse(f"{value!r} is no network", mend="Write it like 192.0.2.0/24, or 2001:db8::/32.") from error
    if not network.prefixlen:
        raise WrongUse(f"{value!r} is every address, and this would be an open relay", mend="Name your own networks.")
    return network


_SLOW: Final = f"Wrong passwords are answered more slowly each time, and {FAILURES_MAX} of them end the connection."
LISTENING_ABOUT: Final = f"""With --listen it takes mails too, by SMTP or LMTP, from clients of the
    networks that may relay. It refuses other clients at the greeting. A client is told 250 once its
    mail is in the queue for good, and 451 where that cannot be now. RET, ENVID, NOTIFY and ORCPT
    are kept. A lone CR or LF in a mail becomes CR LF before `incoming` reads the header; a mail
    with NUL bytes is refused. --listen-tls-cert offers clients TLS. A client may hand over mails if
    its network allows it and, with --listen-tls required and --listen-tls-client-ca, if its
    certificate allows it too. With --listen-users clients may log in over TLS (AUTH PLAIN and
    LOGIN), and a client of any other network may connect and hand over mails once it did;
    --listen-auth required asks all of them to. {_SLOW} `incoming` of the policy file says what
    becomes of such mails, and `quotas` how much may be in the queue before clients have to come
    again later. A connection ends at the first word that is no command of SMTP, after
    {COMMANDS_MAX} commands without a mail, after {ERRORS_MAX} errors, and where a client speaks
    before the greeting."""


LISTENING: Final = (
    option(
        "--listen",
        "Listen at this address: mails are taken there by SMTP, with lmtp:// by LMTP, with smtps:// or lmtps:// by TLS "
        "from the first byte; may be given again.",
        type=ParsedValue("place", _place),
        multiple=True,
        metavar="[smtps://|lmtp://|lmtps://]HOST:PORT",
    ),
    option(
        "--relay-from",
        "A network whose clients may hand over mails; may be given again. [default: 127.0.0.0/8 and ::1]",
        type=ParsedValue("network", _network),
        multiple=True,
        metavar="CIDR",
    ),
    option(
        "--listen-tls-cert",
        "Certificate of this server, with its chain: clients may secure their connections (STARTTLS). SIGHUP reads it "
        "and its key again.",
        type=FILE,
        metavar="FILE",
    ),
    option("--listen-tls-key", "Private key of that certificate.", type=FILE, metavar="FILE"),
    option(
        "--listen-tls",
        "Whether clients may do without TLS; with required no mail is taken before it.",
        type=click.Choice(["optional", "required"]),
        default="optional",
    ),
    option(
        "--listen-tls-client-ca",
        "Certificates of the authorities whose certificate a client has to show that uses TLS. [default: it shows "
        "none]",
        type=FILE,
        metavar="FILE",
    ),
    option(
        "--listen-users",
        "Users who may log in, a line each with a hashed password (`mailmend delivery user` makes "
        "one); no other user of this machine may read the file. Needs --listen-tls-cert. SIGHUP "
        "reads it again.",
        type=FILE,
        metavar="FILE",
    ),
    option(
        "--listen-auth",
        "Whether clients of --relay-from may do without a login; with required no mail is taken before it.",
        type=click.Choice(["optional", "required"]),
        default="optional",
    ),
    option(
        "--mail-bytes-max",
        "The largest mail that is taken from a client, in bytes.",
        type=click.IntRange(65_536, 1_073_741_824),
        default=MAIL_BYTES_MAX,
        metavar="BYTES",
    ),
    option(
        "--mail-recipients-max",
        "How many recipients a mail from a client may have.",
        type=click.IntRange(100, 100_000),
        default=RECIPIENTS_MAX,
        metavar="N",
    ),
    option(
        "--listen-connections",
        "Maximum simultaneous clients, including those in a TLS handshake. The mails that they are sending share"
        " 256 MiB; a mail beyond that is answered with 452. At the maximum, a connection without a mail gives way to a"
        " new client after 5 s: one of the address with the most connections.",
        type=click.IntRange(1, 10_000),
        default=CONNECTIONS_MAX,
        metavar="N",
    ),
    option(
        "--listen-connections-by-address",
        "Maximum simultaneous clients from one IPv4 address, or from one IPv6 /64 network.",
        type=click.IntRange(1, 10_000),
        default=CONNECTIONS_BY_ADDRESS_MAX,
        metavar="N",
    ),
    option(
        "--listen-idle",
        "Maximum time for a command, or for a line of a mail. Single bytes do not extend it.",
        type=Duration(_IDLE_LIMIT, zero=False),
        default="5m",
    ),
    option(
        "--listen-mail-wait",
        "Maximum time until a client sends DATA, since its connection or since the end of its last mail.",
        type=Duration(_IDLE_LIMIT, zero=False),
        default="5m",
    ),
)


_WAITING_MAX: Final = timedelta(minutes=20)
"""Below the half an hour for which RabbitMQ lets a mail be unacked."""

_HOOK_MAX: Final = timedelta(minutes=5)
_SUSPENSIONS_EVERY_MAX: Final = timedelta(minutes=10)


SERVE: Final = Command(
    name="serve",
    summary="Deliver the mails of a queue by SMTP, until it is stopped.",
    about="""Each recipient of a mail is delivered separately. A recipient that was refused for now is tried again,
    after 1 and 15 minutes, 1, 2 and then every 3 hours, for 5 days; the sender is told of a delay after a quarter of an
    hour, and of every failure, unless it asked otherwise (RFC 3461). Reports are 7 bit; where the form, the size or the
    content of a mail was refused they have its header only. A mail without a sender, such as a report, has no sender to
    tell: --postmaster is told instead.

    A mail leaves the queue once all of its recipients have it, or were put off as a mail of their own: wherever this
    is killed, no mail is lost. Each attempt is in a journal before its content is sent, and its outcome before anything
    follows from it (`delivery show`): what was delivered is not sent again. Where an answer is lost, by a kill or on
    the way, --uncertain says what is done: by default the mail may go twice. SIGTERM and Ctrl-C let running attempts
    end, for half a minute; what is left goes back to the queue.

    Any number of servers may work on a queue: they share its limits, each an equal part, as the queue gives them equal
    parts of the mails. A limit below their number belongs to some of the servers, to other ones for each domain or
    whatever it counts by; a connect interval is multiplied by the number of servers. `cluster: false` at a limit gives
    the whole limit to each server. What a server gains of a rate, as it starts or another ends, counts as spent at
    first. A server that cannot reach Cassandra begins nothing under shared limits after half a minute, and breaks off
    what it delivers there before a minute is over: its mails come again. `delivery servers` lists the servers.

    Attributes of a mail (`queue enqueue --attribute NAME=VALUE`): transportid chooses the retries, and
    how the mail is sent; jobid, tenantid and grouping are for policies; expires, like
    2026-05-01T08:00:00Z, ends its retries then. James's dsn-notify, dsn-ret, dsn-envid and dsn-orcpt are
    heeded, and so are REQUIRETLS and MAIL_PRIORITY: docs/mail-attributes.md has the list. What a server
    does not take as it is, 8 bits without 8BITMIME or lines of more than 998 bytes, is encoded for it.

    --policies names a file that says what is counted together, by which fields of a mail, and how many
    may be delivered at once and in which time; what is held back; whose turn it is; what mails that come
    in are made of; how much may be in the queue; and how the mails of each transport are sent, in place of
    --source, --smtp-tls, --protocol, --mails-per-connection and --next-hop, with logins and keys of DKIM:
    docs/policy-file.md, with examples. A mail that waits for a policy is not counted as tried.
    SIGHUP reads the file again, all of it or, where something is wrong, nothing. Where a limit is lower then, attempts
    that run go on to their end, and what begins from then on is never more than the new one.

    Hooks are functions of an installed package, or coroutine functions, that it declares as entry
    points. What they are given and may return is in mailmend.delivery.mail.hooks: before an attempt
    another server, envelope, addresses, TLS or fields for policies; before and after it, that the
    recipient comes again later, is held, is given up with a report, or without. Either may return a
    HookResult: with suspensions and limits that last for a while, as of `mailmend suspend` and
    `policy add`, on all servers of the queue; and with attributes that the mail keeps when it comes
    again. Where the hook before delivery fails, the recipient comes again in five minutes, and no
    retry is counted. The hook at the end of DATA sees a mail that comes in, with its content, once
    for all of its recipients: it takes, holds, delays or rejects it, and sets attributes before
    what `incoming` sets. Where it fails, the client is told 451.

    With --http it answers programs and `delivery explain`: recipients are listed, shown, grouped
    and changed, mails suspended, limits set for a while, policies read again, and it is told why a
    mail waits: GET /openapi.json describes it, docs/delivery-http.md has calls to type. What is
    ordered is on record with the token's name. GET /health, /ready and /metrics are for probes and
    Prometheus. Addresses outside this machine are refused without tokens and TLS. This needs
    mailmend[serve].

    What is done is on stderr, a line for each attempt's end: mail, domain, server and reply, no address. Due mails are
    moved and slices swept meanwhile, so `queue tend` need not run for this queue. This needs mailmend[delivery].

    """
    + LISTENING_ABOUT
    + PROCESSES_ABOUT,
    service="mailmend.admin.delivery.serve:serve",
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
            "may be given again. Loopback is one where all sources are on it. [default: none]",
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
            "Address that is told of reports that cannot be delivered. [default: no address; a metric counts such "
            "reports]",
            type=ParsedValue("address", parse_address),
            metavar="ADDRESS",
        ),
        option(
            "--smtp-tls",
            "How connections to the next server are secured. optional takes any certificate, and "
            "goes without where TLS is not offered or fails. required takes any certificate too: only "
            "required-and-verified verifies it, and the server's name in it.",
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
            "Attempts to deliver at once. Each one may need two open files and a mail in hand: raise"
            " the limit of open files and --prefetch with it. Mails in hand share 256 MiB.",
            type=click.IntRange(1, CONCURRENCY_MAX),
            default=CONCURRENCY_DEFAULT,
            metavar="N",
        ),
        option(
            "--domain-concurrency",
            "Attempts at once for one domain where --policies names no policy; 0 is no limit. "
            "[default: 20, and at most half of --concurrency]",
            type=click.IntRange(0, CONCURRENCY_MAX),
            metavar="N",
        ),
        option(
            "--prefetch",
            "How many mails of each priority are taken, and worked on, at once.",
            type=click.IntRange(1, CONCURRENCY_MAX),
            default=PREFETCH_DEFAULT,
        ),
        PROCESSES,
        *RETRY_OPTIONS,
        option(
            "--waiting-max",
            "How long a mail may wait here for its turn; then it goes back to the queue for some minutes. "
            "Where the queue keeps backlogs (RabbitMQ), it stays.",
            type=Duration(_WAITING_MAX, zero=False),
            default="5m",
        ),
        option(
            "--server",
            "Name of this server among the queue's servers: the same after a restart, so that it goes on with its part "
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
            "--end-of-data",
            "A hook that decides about each mail of --listen behind its content, before it is "
            "taken: an entry point of the group mailmend.end_of_data.",
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
            "How often suspensions are re-read from the ledger.",
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
        mailmend delivery serve outgoing --listen 0.0.0.0:587 --listen-users users \\
            --listen-tls-cert a.pem --listen-tls-key b.pem
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
