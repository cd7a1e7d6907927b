"""By what clients of a server are told apart."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.settings import ListenerSettings
from mailmend.delivery.smtp.outgoing.addresses import ip_of
from mailmend.model.grammar import counted_address, read_address, read_network, read_server, unmapped


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("", ""),
    ],
)
def test_a_host_is_counted_by_the_address_that_it_has_alone(client: str, counted: str) -> None:
    assert counted_address(client) == counted


@given(st.ip_addresses(v=4))
def test_an_address_of_ipv4_written_as_one_of_ipv6_is_the_same_wherever_it_is_read(address: IPv4Address) -> None:
    """By a listener, a policy, a route, and the count of connections."""
    mapped = f"::ffff:{address}"
    settings = ListenerSettings(host_name="in.example", addresses=(), relay_from=(IPv4Network(address),))

    assert unmapped(IPv6Address(mapped)) == address
    assert ip_of(mapped) == address
    assert counted_address(mapped) == read_address(mapped) == read_server(mapped) == str(address)
    assert read_network(f"{mapped}/128") == IPv4Network(address)
    assert settings.may_relay(mapped)
    assert unmapped(address) == address
