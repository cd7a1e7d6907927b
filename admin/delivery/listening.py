"""Options of `mailmend delivery serve` for mails that clients hand over."""

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

import click

from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import parse_port
from mailmend.delivery.mail.attempts import DeliveryProtocol
from mailmend.delivery.settings import (
    COMMANDS_MAX,
    CONNECTIONS_BY_ADDRESS_MAX,
    CONNECTIONS_MAX,
    ERRORS_MAX,
    MAIL_BYTES_MAX,
    RECIPIENTS_MAX,
    ListenAddress,
)
from mailmend.model.errors import WrongUse

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
