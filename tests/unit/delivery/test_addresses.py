"""Which kinds of addresses connections can go to, and what domains look like in DNS and SMTP."""

import pytest

from delivery.addresses import BOTH_FAMILIES, IpFamily, reachable_families
from delivery.domains import address_of_literal, ascii_domain
from model.delivery.attempts import SourceAddress


@pytest.mark.parametrize(
    ("addresses", "families"),
    [
        (["192.0.2.1"], {IpFamily.IPV4}),
        (["2001:db8::1"], {IpFamily.IPV6}),
        (["192.0.2.1", "2001:db8::1"], set(BOTH_FAMILIES)),
        ([], set(BOTH_FAMILIES)),
    ],
)
def test_sources_reach_their_own_families(addresses: list[str], families: set[IpFamily]) -> None:
    """Without any, whatever there is is tried."""
    assert reachable_families(map(SourceAddress, addresses)) == families


def test_the_systems_choice_reaches_what_it_has_a_route_to() -> None:
    """At least one family, and that of the sources besides."""
    assert reachable_families([SourceAddress()])
    assert IpFamily.IPV6 in reachable_families([SourceAddress(), SourceAddress("2001:db8::1")])


@pytest.mark.parametrize(
    ("domain", "ascii_"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("_under.example", "_under.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("-a.example", None),
        ("a-.example", None),
        ("a b.example", None),
        ("a\n.example", None),
        ("..", None),
        ("", None),
        ("ü" * 70 + ".example", None),
        (".".join(["x" * 60] * 5), None),
    ],
)
def test_a_domain_in_ascii(domain: str, ascii_: str | None) -> None:
    """Or none where it is no domain."""
    assert ascii_domain(domain) == ascii_


@pytest.mark.parametrize(
    ("literal", "address"),
    [
        ("[192.0.2.1]", "192.0.2.1"),
        ("[IPv6:2001:DB8::1]", "2001:db8::1"),
        ("[ipv6:::1]", "::1"),
        ("[2001:db8::1]", None),
        ("[IPv6:192.0.2.1]", None),
        ("[x]", None),
        ("192.0.2.1", None),
        ("[1.2.3]", None),
    ],
)
def test_the_literal_of_an_address(literal: str, address: str | None) -> None:
    """As RFC 5321 4.1.3 writes it."""
    assert address_of_literal(literal) == address
