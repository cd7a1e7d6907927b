"""By what clients of a server are told apart when it counts them."""

from ipaddress import IPv6Address, ip_address, ip_network

from mailmend.model.grammar import unmapped


def counted_address(client: str) -> str:
    """The address by which a client is counted: a host of IPv6 has the whole of its /64 network.

    Args:
        client: an address of IPv4 or IPv6, which may have a zone; any other text stands for itself.
    """
    try:
        address = unmapped(ip_address(client.partition("%")[0]))
    except ValueError:
        return client
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return str(address)
    return str(ip_network(f"{address}/64", strict=False))
