"""Declarations of `mailmend delivery`."""

import re
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, Final

import click
from click.core import ParameterSource

from admin.cli.command import Command, CommandGroup, Shared, Values
from admin.cli.entries import ENTRY_COMMANDS
from admin.cli.kinds import Duration, ParsedValue
from admin.cli.listening import LISTENING, LISTENING_ABOUT
from admin.cli.options import FILE, flag, option
from admin.cli.queue_options import DRY_RUN, QUEUE_ARGUMENT, queue_settings, unless
from admin.services.delivery import CONCURRENCY_DEFAULT, PREFETCH_DEFAULT
from admin.settings import parse_port
from delivery.smart_host import SmartHost
from model.delivery.attempts import SMTP_PORT, DeliveryProtocol, SourceAddress, TlsLevel
from model.delivery.retries import DEFAULT_SCHEDULE, RetryInterval, RetrySchedule
from model.durations import parse_duration
from model.errors import WrongUse
from model.pickup.policy import PickupField

_INTERVAL_MAX: Final = timedelta(days=30)
_WAITING_MAX: Final = timedelta(minutes=20)
"""Below the half an hour for which RabbitMQ lets a mail be unacked."""

_HOOK_MAX: Final = timedelta(minutes=5)
_SUSPENSION_MAX: Final = timedelta(days=365)
_SUSPENSIONS_EVERY_MAX: Final = timedelta(minutes=10)

_HOST_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d+))?")
_NOTIFY: Final = ":notify"


def _next_hop(value: Any) -> SmartHost:
    found = _HOST_PORT.fullmatch(str(value))
    if found is None:
        raise WrongUse(f"{value!r} is not HOST:PORT", mend="Write it like relay.example.org:25, or [2001:db8::1]:25.")
    return SmartHost(found["ipv6"] or found["host"], parse_port(int(found["port"] or SMTP_PORT)))


def _source(value: Any) -> SourceAddress:
    address, _, helo = str(value).partition("=")
    try:
        return SourceAddress(str(ip_address(address)), helo)
    except ValueError as error:
        raise WrongUse(f"{address!r} is no address", mend="Write 192.0.2.1, or 192.0.2.1=out1.example.org.") from error


def _retries(value: Any) -> tuple[str, RetrySchedule]:
    transport, _, text = f"={value}".rpartition("=")
    intervals = tuple(map(_interval, text.split(",")))
    return transport.removeprefix("="), replace(DEFAULT_SCHEDULE, intervals=intervals)


def _interval(text: str) -> RetryInterval:
    wait = parse_duration(text.removesuffix(_NOTIFY), maximum=_INTERVAL_MAX, zero=False)
    return RetryInterval(wait, notify=text.endswith(_NOTIFY))


def _by_transport(_context: click.Context, _option: click.Parameter, given: Any) -> dict[str, RetrySchedule]:
    return dict(given)


def _refuse_unnamed(others: Values, context: click.Context) -> None:
    """A queue that nobody named is James's spool, whose mails are not ready to go out."""
    if not others["queue_named"] and context.get_parameter_source("queue") is ParameterSource.DEFAULT:
        raise WrongUse(
            "it is not said which queue is delivered", mend=f"Name it: mailmend delivery {context.info_name} outgoing"
        )


SERVE: Final = Command(
    name="serve",
    summary="Deliver the mails of a queue by SMTP, until it is stopped.",
    about="""Each recipient of a mail is delivered by itself. Who was refused for now is tried again, after 1 and 15
    minutes, 1, 2 and then every 3 hours, for 5 days; the sender is told of a delay after a quarter of an hour, and of
    every failure, unless it asked otherwise (RFC 3461). Mails without a sender, reports among them, are never reported.

    A mail leaves the queue once all of its recipients have it, or were put off as a mail of their own: wherever this
    is killed, no mail is lost, and at worst somebody gets one twice. SIGTERM and Ctrl-C let running attempts end, for
    half a minute; what is left goes back to the queue. Any number of servers may work on a queue.

    Attributes of a mail (`queue enqueue --attribute NAME=VALUE`): transportid chooses the retries; jobid, tenantid and
    grouping are for policies; expires, like 2026-05-01T08:00:00Z, ends its retries then. James's dsn-notify, dsn-ret,
    dsn-envid and dsn-orcpt are heeded.

    Policies say what is counted together, by any of transportid, localip, remoteip, remotemx, recipientdomain, jobid,
    grouping and tenantid: {policies: [{fields: [localip, recipientdomain], conditions: [{if: {recipientdomain:
    example.org}, then: {concurrency: 2, rate: 100/60}}], default: {concurrency: 20, connectinterval: 0.5}}]}. The first
    condition that holds counts, all of it, in place of the default. A value is itself, a list of values, '*.domain', a
    network, '/regex/', '@name' of `lists` at the top; '#name' is a group of values that are counted as one, as in
    fields: [remotemx: {gsuite: ['*.google.com']}]. `rate: {algorithm: sliding}` at the top never lets more than X begin
    in any Y seconds; tokenbucket, the default, and fixedwindow are cheaper and less strict. A mail that waits for a
    policy is not counted as tried. `suspends` at the top holds mails back: [{recipientdomain: example.org, localip:
    192.0.2.0/28}, ...], each field of one must match; {} is every mail. SIGHUP reads the file again, all of it or,
    where something is wrong, nothing; limits go on counting.

    Hooks are functions of an installed package, or coroutine functions, that it declares as entry points. What they
    are given and may return is in model.delivery.hooks: before an attempt another server, envelope, addresses, TLS or
    fields for policies; before and after it, that the recipient comes again later, is given up with a report, or
    without. Where the hook before delivery fails, the recipient comes again in five minutes, and no retry is counted.

    What is done is on stderr, a line for each attempt's end: mail, domain, server and reply, no address. Due mails are
    moved and slices swept meanwhile, so `queue tend` need not run for this queue. This needs mailmend[delivery].

    """
    + LISTENING_ABOUT,
    service="admin.services.delivery:serve",
    present="admin.present.delivery:served_document",
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
            type=ParsedValue("server", _next_hop),
            metavar="HOST[:PORT]",
        ),
        option(
            "--source",
            "An address of this machine to send from, and its name in HELO; may be given again: they take turns.",
            "sources",
            type=ParsedValue("source", _source),
            multiple=True,
            metavar="ADDRESS[=HELO]",
        ),
        option("--helo", "Name of this host: in greetings and reports. [default: its own]", metavar="NAME"),
        option(
            "--smtp-tls",
            "How connections to the next server are secured: optional takes any certificate, and goes without where "
            "TLS is not offered or fails.",
            type=click.Choice([one.value for one in TlsLevel]),
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
            type=click.Choice([one.value for one in DeliveryProtocol]),
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
            type=ParsedValue("schedule", _retries),
            multiple=True,
            callback=_by_transport,
            metavar="[TRANSPORT=]INTERVALS",
        ),
        option(
            "--waiting-max",
            "How long a mail may wait here for its turn; then it goes back to the queue for some minutes.",
            type=Duration(_WAITING_MAX, zero=False),
            default="5m",
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
        *LISTENING,
    ),
    shared=(queue_settings(broker=unless(), blobs=unless(), check=_refuse_unnamed),),
    examples="""
        mailmend delivery serve outgoing                                                  to the servers of each domain
        mailmend delivery serve outgoing --next-hop relay.example.org                     to one server, which sorts
        mailmend delivery serve outgoing --next-hop 127.0.0.1:2525 --concurrency 10       to a server for tests
        mailmend delivery serve outgoing --source 192.0.2.1=out1.example.org \\
            --source 192.0.2.2=out2.example.org --smtp-tls required
        mailmend delivery serve outgoing --policies policies.yaml --metrics-file /var/lib/node_exporter/delivery.prom
        mailmend delivery serve outgoing --pre-delivery routing --hook-limit 2s
        mailmend delivery serve outgoing --listen 10.0.0.5:2525 --relay-from 10.0.0.0/24 --listen lmtp://127.0.0.1:2424
        mailmend delivery serve outgoing --next-hop relay.example.org --retry 1m,10m,1h:notify,6h \\
            --retry alerts=30s,1m,5m
        mailmend queue enqueue a.eml --queue outgoing --sender ann@example.org --recipient bob@example.com \\
            --attribute transportid=alerts""",
    exits="0 it was asked to stop, and what ran has ended; 2 wrong use, or the keyspace has no table for delayed "
    "mails; 4 cluster, broker or store cannot be reached at the start (later they are waited for); 130 it was asked "
    "twice.",
)

MAIL_FIELDS: Final = {
    "transport": (PickupField.TRANSPORT_ID, "Transport of the mail, its attribute transportid"),
    "local_ip": (PickupField.LOCAL_IP, "Address that it is sent from; or a network; other addresses go on"),
    "remote_ip": (PickupField.REMOTE_IP, "Address of the next server; or a network"),
    "remote_mx": (PickupField.REMOTE_MX, "Name of the next server; *.example.org is every name below that"),
    "domain": (PickupField.RECIPIENT_DOMAIN, "Domain of the recipient; *.example.org is every domain below that"),
    "job": (PickupField.JOB_ID, "Job of the mail, its attribute jobid"),
    "grouping": (PickupField.GROUPING, "Grouping of the mail, its attribute"),
    "tenant": (PickupField.TENANT_ID, "Tenant of the mail, its attribute tenantid"),
}
"""Options by which mails are named: their fields, and what they mean; behind a semicolon, where many are named."""

_WHICH: Final = Shared(
    "values",
    {
        "Which mails": tuple(
            option(f"--{name.replace('_', '-')}", f"{text}; may be given again.", multiple=True, metavar="VALUE")
            for name, (_, text) in MAIL_FIELDS.items()
        )
    },
    lambda own, _others, _context: {one.value: tuple(own[name]) for name, (one, _) in MAIL_FIELDS.items() if own[name]},
)
_OF_A_QUEUE: Final = queue_settings(check=_refuse_unnamed)

SUSPEND: Final = Command(
    name="suspend",
    summary="Hold back mails of a queue, on all of its servers.",
    about="""Each field that is named must match, and one of its values where it is given again. Values are as in a
    policy file: itself, '*.domain', a network, '/regex/'. What is under way goes on; the rest waits, or goes back to
    the queue for some minutes, and that counts as no retry; a mail that is too old is given up as ever. Who suspended
    it, and why, is kept over restarts. With --for it ends by itself. The same mails suspended again are one suspension,
    with the later command's end and reason.""",
    service="admin.services.suspensions:suspend",
    present="admin.present.delivery:suspend_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--all", "All of them: every mail of the queue.", "everything"),
        option(
            "--for",
            "How long. [default: until it is lifted]",
            "lasts",
            type=Duration(_SUSPENSION_MAX, zero=False),
        ),
        option("--why", "Why: shown to whoever finds mails waiting.", required=True, metavar="TEXT"),
        DRY_RUN,
    ),
    shared=(_WHICH, _OF_A_QUEUE),
    examples="""
        mailmend delivery suspend outgoing --domain example.org --for 2h --why 'they throttle us'
        mailmend delivery suspend outgoing --local-ip 192.0.2.7 --why 'listed; ticket 12'       other addresses go on
        mailmend delivery suspend outgoing --transport alerts --remote-mx '*.example.net' --why 'wrong texts'
        mailmend delivery suspend outgoing --all --for 10m --why 'the firewall is changed'""",
    exits="0 it is suspended, 2 wrong use, 4 the cluster cannot be reached (`suspensions` lists it, or it is not).",
)

LIFT: Final = Command(
    name="lift",
    summary="Let suspended mails go again.",
    service="admin.services.suspensions:lift",
    present="admin.present.delivery:lift_document",
    options=(QUEUE_ARGUMENT, click.Argument(["id"], type=click.UUID, metavar="ID"), DRY_RUN),
    shared=(_OF_A_QUEUE,),
    examples="""
        mailmend delivery lift outgoing 6e0ab5e0-8d1c-11f0-9a5e-0242ac120002""",
    exits="0 it is lifted, 2 wrong use or no such suspension, 4 the cluster cannot be reached.",
)

SUSPENSIONS: Final = Command(
    name="suspensions",
    summary="Say what is suspended: which mails, since when, until when, by whom, why.",
    about="What a policy file suspends is not among them: it is each server's own.",
    service="admin.services.suspensions:suspensions",
    present="admin.present.delivery:suspensions_document",
    options=(QUEUE_ARGUMENT,),
    shared=(_OF_A_QUEUE,),
    examples="""
        mailmend delivery suspensions outgoing
        mailmend delivery suspensions outgoing --json""",
    exits="0 done, also where nothing is suspended; 2 wrong use, 4 the cluster cannot be reached.",
)

DELIVERY: Final = CommandGroup(
    name="delivery",
    summary="Deliver the mails of a queue to their recipients' servers.",
    about="The queue is RabbitMQ's, with its view in Cassandra, as for `mailmend queue`; the ledger keeps suspensions.",
    commands=(SERVE, SUSPEND, LIFT, SUSPENSIONS, *ENTRY_COMMANDS),
    examples="""
        mailmend delivery serve outgoing
        mailmend delivery serve outgoing --next-hop relay.example.org
        mailmend delivery suspend outgoing --domain example.org --for 2h --why 'they throttle us'
        mailmend delivery group outgoing                                 which domains wait
        mailmend delivery hold outgoing --tenant acme --why 'looks like spam'""",
)
