"""Options of `mailmend delivery serve` for mails that clients hand over."""

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

import click

from admin.cli.kinds import Duration, ParsedValue
from admin.cli.options import FILE, option
from admin.settings import parse_port
from delivery.settings import CONNECTIONS_MAX, MAIL_BYTES_MAX, RECIPIENTS_MAX, ListenAddress
from model.delivery.attempts import DeliveryProtocol
from model.errors import WrongUse

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
    host, port = found["ipv6"] or found["host"], parse_port(int(found["port"]))
    return ListenAddress(host, port, protocol, secured=bool(found["secured"]))


def _network(value: Any) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(str(value))
    except ValueError as error:
        raise WrongUse(f"{value!r} is no network", mend="Write it like 192.0.2.0/24, or 2001:db8::/32.") from error
    if not network.prefixlen:
        raise WrongUse(f"{value!r} is everybody, and this would be an open relay", mend="Name your own networks.")
    return network


LISTENING_ABOUT: Final = """With --listen it takes mails too, by SMTP or LMTP, from clients of the networks that may
    relay. A client is told 250 once its mail is in the queue for good, and 451 where that cannot be now. RET, ENVID,
    NOTIFY and ORCPT are kept. --listen-tls-cert offers them TLS. There are no passwords: who may hand over mails their
    networks decide, and with --listen-tls required and --listen-tls-client-ca their certificates besides.

    `incoming` at the top of the policy file says what becomes of such mails: [{if: {client: 10.0.0.0/8, header: {X-Job:
    '/^([a-z0-9-]+)$/'}}, set: {jobid: '${1}', priority: 7}, remove: X-Job}, {if: {senderdomain: '*.example.org'}, set:
    {tenantid: '${senderdomain}', expires: 4h}}, {set: {transportid: bulk, attributes: {via: smtp}}}]. Every rule that
    holds is heeded, from top to bottom, and EACH ATTRIBUTE IS SET BY THE FIRST THAT NAMES IT: write what is special
    above what is general. stop: true ends it there. A rule may ask for client, helo, sender, senderdomain, recipient,
    recipientdomain and header fields, with values as in policies; what is not there is empty. It may set transportid,
    jobid, tenantid, grouping, expires, as a span from now, priority, from 0 to 9, and other attributes; ${1} and
    ${name} are groups of its expressions, ${sender} and the like its fields. Header fields count only where a rule asks
    for them, so name the clients that you trust beside them; remove takes them out. Recipients for whom this comes to
    something different go their ways as mails of their own.

    `quotas` there say how much may be in the queue, waiting, delayed, held or with a server, before clients have to
    come again with more: [{name: per-customer, fields: [tenantid], conditions: [{if: {tenantid: big}, then: {messages:
    100000}}], default: {messages: 10000, bytes: 5G}}]. Fields are transportid, jobid, tenantid, grouping and
    recipientdomain; conditions are as in policies. A mail counts once for each key that it has, whole. What would
    exceed a quota is refused for now, with 452 4.3.1 and the quota's name: with RCPT where all is known then, else
    behind the mail, by SMTP all of it. What is in the queue this server counts by listing it, ten seconds after the
    last count, or one where a quota gets full, and a tenth of the time at most; in between it adds what it takes, and
    subtracts nothing. Other servers see that by their next count: with several a quota may be exceeded by what each of
    them takes meanwhile. Before the first count has ended no mail is taken; a quota that is new after SIGHUP refuses
    nothing until it is counted. Bytes are those of mails that came by clients or `queue enqueue`, or were put off by a
    server; of others the size is not known, and they count as mails alone. Reports count, and are never refused."""


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
        "Clients at once, those too that are securing their connection. Their mails that are coming may have 256 MiB"
        " together; what is more has to come again.",
        type=click.IntRange(1, 10_000),
        default=CONNECTIONS_MAX,
        metavar="N",
    ),
    option(
        "--listen-idle",
        "How long a client may say nothing.",
        type=Duration(_IDLE_LIMIT, zero=False),
        default="5m",
    ),
)
