"""Which kinds of addresses connections can go to."""

import socket
from collections.abc import Iterable
from enum import Enum
from ipaddress import ip_address
from typing import Final

from model.delivery.attempts import SMTP_PORT, SourceAddress


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
    stated = {family_of(source.address) for source in listed if source.address}
    routed = {family for family in IpFamily if _has_route(family)} if not all(one.address for one in listed) else set()
    return frozenset(stated | routed) or BOTH_FAMILIES


def _has_route(family: IpFamily) -> bool:
    """Whether the system knows where such packets go; a UDP socket is connected without sending any."""
    kind = socket.AF_INET6 if family is IpFamily.IPV6 else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as asking:
            asking.connect((_ANYWHERE[family], SMTP_PORT))
    except OSError:
        return False
    return True
