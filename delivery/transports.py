"""How the mails of a transport are sent: from where and to which server, secured, signed.

A policy file has a part for each transport. What a transport does not say, the transport `*` of the
file says; what neither says, the options of `delivery serve` say.

Source: RFC 5321 4.5.3.2 (time limits), RFC 4954 (AUTH), docs/policy-file.md, docs/adr/0083.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any, Final, Protocol

OTHER_TRANSPORTS: Final = "*"
"""The name of the transport that says what the others do not say."""


class TlsLevel(Enum):
    """What a connection has to be; the value is its name in settings."""

    NONE = "none"  # never
    OPTIONAL = "optional"  # where the server offers it; any certificate
    REQUIRED = "required"  # any certificate
    VERIFIED = "required-and-verified"  # a certificate of the server's name by an authority that is trusted


class DeliveryProtocol(Enum):
    """How the server is spoken to; the value is its name in settings."""

    SMTP = "smtp"
    LMTP = "lmtp"


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """Where a connection comes from.

    Attributes:
        address: "" is the system's choice.
        helo: what we call ourselves there; "" is the name of this host.
    """

    address: str = ""
    helo: str = ""

    def reaches(self, address: str) -> bool:
        """Whether a server's address and this one are both of IPv4, or both of IPv6."""
        return not self.address or _is_ipv6(self.address) == _is_ipv6(address)


@dataclass(frozen=True, slots=True)
class StageTimeouts:
    """How long a server may take; the defaults are those that RFC 5321 4.5.3.2 has.

    Attributes:
        connect: until the connection is there.
        tls: from STARTTLS until the connection is secured.
        greeting: for its first line, for EHLO, HELO or LHLO, and for each step of AUTH.
        command: for MAIL, RCPT and RSET, each.
        data: for DATA, and then for each piece of the content that it takes.
        end: for its reply to the end of the content.
    """

    connect: timedelta = timedelta(seconds=30)
    tls: timedelta = timedelta(minutes=2)
    greeting: timedelta = timedelta(minutes=5)
    command: timedelta = timedelta(minutes=5)
    data: timedelta = timedelta(minutes=3)
    end: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ConnectionReuse:
    """Which connections are kept open for the next mail.

    Attributes:
        mails_max: after that many a connection is ended; 1 keeps none open.
        idle: for how long an unused connection is kept.
        connections_max: the maximum number of unused connections; the oldest gives way.
    """

    mails_max: int = 100
    idle: timedelta = timedelta(seconds=5)
    connections_max: int = 100


@dataclass(frozen=True, slots=True)
class SmtpLogin:
    """As whom mails are handed to a server (AUTH).

    Attributes:
        password_file: whose first line is the password; "" where a variable has it.
        password_variable: of the environment.
        password: "" until it is read; no text of this value shows it.
    """

    user: str
    password_file: str = ""
    password_variable: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class TransportHop:
    """The one server that takes all mails of a transport.

    Attributes:
        host: a name, which is looked up for each mail, or an address.
        login: None: it asks for none.
    """

    host: str
    port: int
    login: SmtpLogin | None = None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key of DKIM.

    Attributes:
        domain: of the authors whose mails it signs, with its subdomains that have no key.
        selector: the name of its public key in DNS, below `_domainkey` of the domain.
        file: of the private key, in PEM; relative names start at the folder of the policy file.
    """

    domain: str
    selector: str
    file: str


SigningKeys = Mapping[str, tuple[SigningKey, ...]]
"""Keys by the domain of a mail's author."""


class ContentSigner(Protocol):
    """Signs mails. Adapter: `delivery.smtp.outgoing.signing.DkimSigner`."""

    def signed(self, lines: bytes) -> bytes:
        """The mail with its signatures; the same bytes where no key is the author's.

        Args:
            lines: as the server gets them; each ends with CR and LF.

        Raises:
            CannotSign: a key is the author's, and does not sign.
        """
        ...


class CannotSign(Exception):
    """A mail that is to be signed cannot be signed now; the text says why."""


class TransportSecrets(Protocol):
    """Reads keys and passwords that a policy file names. Adapter: `FileSecrets`.

    Each method raises WrongUse: the secret cannot be read, or is of no use.
    """

    def password_in_file(self, file: str) -> str: ...

    def password_in_variable(self, name: str) -> str: ...

    def read_key(self, selector: str, file: str) -> None:
        """Read a key of DKIM, for `signer`."""
        ...

    def signer(self, keys: SigningKeys) -> ContentSigner:
        """What signs by these keys, all of which were read."""
        ...


@dataclass(frozen=True, slots=True)
class SendingSettings:
    """How a mail is sent.

    Attributes:
        sources: the addresses that it may be sent from, at least one.
        login_tls: what a connection has to be over which a password goes to another machine: only
            a transport that says `required` lets any certificate do.
        reuse: None: as the server has it for all mails.
        next_hop: None: the servers of `--next-hop`, or of each domain.
        signer: None: nothing is signed.
    """

    sources: tuple[SourceAddress, ...] = (SourceAddress(),)
    tls: TlsLevel = TlsLevel.OPTIONAL
    protocol: DeliveryProtocol = DeliveryProtocol.SMTP
    timeouts: StageTimeouts = field(default_factory=StageTimeouts)
    reuse: ConnectionReuse | None = None
    next_hop: TransportHop | None = None
    signer: ContentSigner | None = None
    login_tls: TlsLevel = TlsLevel.VERIFIED


@dataclass(frozen=True, slots=True)
class Transport:
    """What a policy file says of a transport; None is what it does not say.

    Attributes:
        keys: of DKIM; a domain without any, or that is not there, has unsigned mails.
        signer: of these keys, once their files are read.
    """

    sources: tuple[SourceAddress, ...] | None = None
    tls: TlsLevel | None = None
    protocol: DeliveryProtocol | None = None
    timeouts: StageTimeouts | None = None
    reuse: ConnectionReuse | None = None
    next_hop: TransportHop | None = None
    keys: SigningKeys | None = None
    signer: ContentSigner | None = None

    def over(self, otherwise: SendingSettings) -> SendingSettings:
        """These settings, with each part replaced that the transport says.

        A part is taken whole: where `timeouts` of the transport does not name a time limit, the
        default of that limit holds, whatever the other settings have.
        """
        known = dict[str, Any]()
        for part in _PARTS:
            value = getattr(self, part)
            if value is not None:
                known[part] = value
        if self.tls is TlsLevel.REQUIRED:
            known["login_tls"] = TlsLevel.REQUIRED
        elif self.tls is not None:
            known["login_tls"] = TlsLevel.VERIFIED
        return replace(otherwise, **known)


_PARTS: Final = ("sources", "tls", "protocol", "timeouts", "reuse", "next_hop", "signer")
"""What both a transport and the settings of a mail have."""

Transports = Mapping[str, Transport]
"""By the transportid of mails; "" is mails without one."""

NO_TRANSPORTS: Final[Transports] = MappingProxyType({})


def sending_of(transport: str, said: Transports, options: SendingSettings) -> SendingSettings:
    """How the mails of a transport are sent, by a policy file and the options of the server."""
    found = options
    for name in (OTHER_TRANSPORTS, transport):
        if name in said:
            found = said[name].over(found)
    return found


def transport_with(part: str, transport: str, said: Transports) -> str | None:
    """The name of the transport that decides a part of how mails are sent.

    Args:
        part: an attribute of `Transport`.
        transport: the transportid of the mails; "" is mails without one.
        said: all transports of the file.

    Returns:
        The transport itself, else `*`; None where neither says that part.
    """
    for name in (transport, OTHER_TRANSPORTS):
        if name in said and getattr(said[name], part) is not None:
            return name
    return None


def _is_ipv6(address: str) -> bool:
    return isinstance(ip_address(address), IPv6Address)
