"""Values of the options of `mailmend delivery serve`, and its options for mails of clients."""

import re
from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final

import click

from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import parse_port
from mailmend.delivery.mail.attempts import SMTP_PORT, DeliveryProtocol, SourceAddress
from mailmend.delivery.mail.retries import DEFAULT_SCHEDULE, RetryInterval, RetrySchedule
from mailmend.delivery.settings import (
    COMMANDS_MAX,
    CONNECTIONS_BY_ADDRESS_MAX,
    CONNECTIONS_MAX,
    ERRORS_MAX,
    MAIL_BYTES_MAX,
    RECIPIENTS_MAX,
    ListenAddress,
)
from mailmend.delivery.smtp.outgoing.smart_host import SmartHost
from mailmend.mailqueue.codec.admission import is_address
from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import address_of_literal, can_be_looked_up, read_server

_INTERVAL_MAX: Final = timedelta(days=30)


_HOST_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d+))?")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NOTIFY: Final = ":notify"


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


def parse_schedule(value: Any) -> tuple[str, RetrySchedule]:
    transport, _, text = f"={value}".rpartition("=")
    intervals = tuple(map(_interval, text.split(",")))
    return transport.removeprefix("="), replace(DEFAULT_SCHEDULE, intervals=intervals)


def _interval(text: str) -> RetryInterval:
    wait = parse_duration(text.removesuffix(_NOTIFY), maximum=_INTERVAL_MAX, zero=False)
    return RetryInterval(wait, notify=text.endswith(_NOTIFY))


def by_transport(_context: click.Context, _option: click.Parameter, given: Any) -> dict[str, RetrySchedule]:
    return dict(given)


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
        raise WrongUse(f"{value!r} is everybody, and this would be an open relay", mend="Name your own networks.")
    return network


LISTENING_ABOUT: Final = f"""With --listen it takes mails too, by SMTP or LMTP, from clients of the networks that may
    relay. It refuses other clients at the greeting. A client is told 250 once its mail is in the queue for good, and
    451 where that cannot be now. RET, ENVID, NOTIFY and ORCPT are kept. A lone CR or LF in a mail becomes CR LF before
    `incoming` reads the header; a mail with NUL bytes is refused. --listen-tls-cert offers clients TLS. There are no
    passwords: who may hand over mails their networks decide, and with --listen-tls required and --listen-tls-client-ca
    their certificates besides. What becomes of such mails, and how much may be in the queue before clients have to come
    again with more, `incoming` and `quotas` of the policy file say. A connection ends at the first word that is no
    command of SMTP, after {COMMANDS_MAX} commands without a mail, after {ERRORS_MAX} errors, and where a client speaks
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
