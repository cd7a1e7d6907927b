"""Which addresses connections can go to, which of them are our own, and which are not of the Internet; and smart hosts.

Addresses are compared as numbers, not as texts: `::ffff:127.0.0.1` is `127.0.0.1`.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from mailmend.delivery.mail.attempts import SMTP_PORT, NextHop, NoNextHop, SmtpReply
from mailmend.delivery.transports import SourceAddress
from mailmend.model.grammar import host_and_port, unmapped


class IpFamily(Enum):
    """A version of the Internet Protocol."""

    IPV4 = 4
    IPV6 = 6


BOTH_FAMILIES: Final = frozenset(IpFamily)
# Addresses that every route to the Internet leads to; nothing is sent to them.
_ANYWHERE: Final = {IpFamily.IPV4: "192.0.2.1", IpFamily.IPV6: "2001:db8::1"}


def family_of(address: str) -> IpFamily:
    return IpFamily(ip_address(address.partition("%")[0]).version)


def reachable_families(sources: Iterable[SourceAddress]) -> frozenset[IpFamily]:
    """Of the addresses that these sources can reach; one that is the system's choice, those that it has a route to."""
    listed = list(sources)
    families = {family_of(source.address) for source in listed if source.address}
    if not all(source.address for source in listed):
        families |= {family for family in IpFamily if _has_route(family)}
    return frozenset(families) or BOTH_FAMILIES


def _has_route(family: IpFamily) -> bool:
    """Whether the system knows where such packets go; a UDP socket is connected without sending any."""
    kind = socket.AF_INET
    if family is IpFamily.IPV6:
        kind = socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as asking:
            asking.connect((_ANYWHERE[family], SMTP_PORT))
    except OSError:
        return False
    return True


IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

LOOPBACK: Final[tuple[IpNetwork, ...]] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_INTERNAL: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a carrier's address translation
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "224.0.0.0/3",  # multicast and reserved
            "::/127",
            "fc00::/7",
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")
_OWN_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})


def ip_of(address: str) -> IpAddress:
    """The address without its zone; one of IPv4 that is written as one of IPv6 is one of IPv4.

    Raises:
        ValueError: it is no address.
    """
    return unmapped(ip_address(address.partition("%")[0]))


def is_internal(address: IpAddress) -> bool:
    """Whether it is not an Internet address: of this host, of a private network, of one link, or unassigned.

    The same holds for an IPv6 address that represents such an IPv4 address.
    """
    if any(address in network for network in _INTERNAL):
        return True
    if not isinstance(address, IPv6Address):
        return False
    inner = _inner(address)
    return inner is not None and is_internal(inner)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def loopback_of(sources: Iterable[SourceAddress]) -> tuple[IpNetwork, ...]:
    """The networks of loopback that these sources are in, where they reach nothing else.

    There is no such network where one of the sources is not on loopback, or is the system's choice:
    DNS may not lead its mails to this machine.
    """
    found = list[IpNetwork]()
    addresses = list[IpAddress]()
    for source in sources:
        if not source.address or not ip_of(source.address).is_loopback:
            return ()
        addresses.append(ip_of(source.address))
    for network in LOOPBACK:
        if any(address in network for address in addresses):
            found.append(network)
    return tuple(found)


def is_of_interface(address: IpAddress) -> bool:
    """Whether an interface of this host has the address. Of loopback, its first one alone counts.

    The system is asked for a socket there. Where it gives sockets at any address, the one is asked for that packets
    to this address would come from, which is the same where it is ours.
    """
    if address.is_loopback:
        return address in {IPv4Address("127.0.0.1"), IPv6Address("::1")}
    kind = socket.AF_INET
    if isinstance(address, IPv6Address):
        kind = socket.AF_INET6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as asking:
            if _binds_anywhere(kind):
                asking.connect((str(address), SMTP_PORT))
                return ip_of(asking.getsockname()[0]) == address
            asking.bind((str(address), 0))
    except OSError:
        return False
    return True


def _binds_anywhere(kind: socket.AddressFamily) -> bool:
    """Whether the system gives sockets at addresses that it does not have (`ip_nonlocal_bind`)."""
    family = IpFamily.IPV4
    if kind is socket.AF_INET6:
        family = IpFamily.IPV6
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as asking:
            asking.bind((_ANYWHERE[family], 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class OwnHost:
    """What this host is called, and at which addresses it is: mail that goes there comes back.

    Attributes:
        names: in small letters, without a dot at the end.
        addresses: in addition to its interfaces: where it takes mails, and public addresses in
            front of it.
        takes_anywhere: whether it takes mails at each of its addresses, so also at each of loopback.
        has: whether an interface has an address.
    """

    names: frozenset[str] = frozenset()
    addresses: frozenset[IpAddress] = frozenset()
    takes_anywhere: bool = False
    has: Callable[[IpAddress], bool] = field(default=is_of_interface)

    @classmethod
    def known_as(cls, names: Iterable[str], listens_at: Collection[str] = ()) -> "OwnHost":
        """Of names and addresses, mixed; a connection to an unspecified address comes to every one of ours."""
        found = set[str]()
        addresses = set[IpAddress]()
        for name in (*names, *listens_at):
            try:
                addresses.add(ip_of(name.strip("[]")))
            except ValueError:
                found.add(name.lower().removesuffix("."))
        anywhere = any(_is_unspecified(name) for name in listens_at)
        return cls(frozenset(found), frozenset(addresses), anywhere)

    def is_named(self, host: str) -> bool:
        name = host.lower().removesuffix(".")
        return name in self.names or name in _OWN_NAMES or name.endswith(".localhost")

    def is_at(self, address: IpAddress) -> bool:
        if address.is_unspecified or address in self.addresses:
            return True
        return self.has(address) or (self.takes_anywhere and address.is_loopback)


def _is_unspecified(name: str) -> bool:
    try:
        return ip_of(name).is_unspecified
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class SmartHost:
    """Implements `delivery.mail.attempts.NextHops`.

    Attributes:
        host: a name, which is looked up for each mail, or an address.
    """

    host: str
    port: int = SMTP_PORT

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)

    async def of(self, domain: str) -> Sequence[NextHop]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except OSError as error:
            why = f"the address of {self.host} is not known: {error.strerror or error}"
            raise NoNextHop(domain, SmtpReply(451, "4.4.3", why, ours=True)) from error
        addresses = dict.fromkeys(str(address[0]) for *_, address in found)
        return [NextHop(self.host, address, self.port) for address in addresses]
