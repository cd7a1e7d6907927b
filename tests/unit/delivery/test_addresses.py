"""Which kinds of addresses connections can go to, and what domains look like in DNS and SMTP."""

import pytest

from mailmend.delivery.smtp.outgoing.addresses import (
    BOTH_FAMILIES,
    IpFamily,
    OwnHost,
    ip_of,
    is_of_interface,
    loopback_of,
    reachable_families,
)
from mailmend.delivery.transports import SourceAddress
from mailmend.model.grammar import address_of_literal, ascii_domain


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


@pytest.mark.parametrize(
    ("sources", "networks"),
    [
        ([""], []),
        (["10.0.0.5", "fd00::5"], []),
        (["127.0.0.9"], ["127.0.0.0/8"]),
        (["::1", "127.0.0.1"], ["127.0.0.0/8", "::1/128"]),
        (["10.0.0.5", "127.0.0.1"], []),
        (["", "127.0.0.1"], []),
    ],
)
def test_sources_on_loopback_alone_allow_next_hops_there(sources: list[str], networks: list[str]) -> None:
    """As of a test; one that is elsewhere forbids it, as DNS is asked for the mails of all.

    A private source allows no private ones, as it reaches the Internet behind a firewall.
    """
    assert list(map(str, loopback_of(map(SourceAddress, sources)))) == networks


@pytest.mark.parametrize(
    ("address", "ours"),
    [("127.0.0.1", True), ("::1", True), ("127.0.0.5", False), ("192.0.2.1", False), ("2001:db8::1", False)],
)
def test_addresses_of_interfaces_are_ours(address: str, *, ours: bool) -> None:
    """Of loopback the first one, as only that is an interface's."""
    assert is_of_interface(ip_of(address)) is ours


@pytest.mark.parametrize(
    ("listens_at", "address", "ours"),
    [
        ((), "127.0.0.5", False),
        (("127.0.0.5",), "127.0.0.5", True),
        (("::ffff:127.0.0.5",), "127.0.0.5", True),
        (("0.0.0.0",), "127.0.0.5", True),
        (("::",), "127.0.0.5", True),
        (("192.0.2.5", "out.example"), "192.0.2.5", True),
        (("192.0.2.5",), "192.0.2.6", False),
    ],
)
def test_where_mails_are_taken_is_ours(listens_at: tuple[str, ...], address: str, *, ours: bool) -> None:
    """All of loopback, where they are taken at every address."""
    assert OwnHost.known_as((), listens_at).is_at(ip_of(address)) is ours


@pytest.mark.parametrize("name", ["OUT.example.", "localhost", "a.LOCALHOST", "mail.example"])
def test_our_names_are_compared_as_dns_does(name: str) -> None:
    """In any case, with a dot at the end or without; what is listed as an address is no name."""
    own = OwnHost.known_as(["out.example", "203.0.113.5"], ["Mail.Example"])

    assert own.is_named(name)
    assert not own.is_named("203.0.113.5")
    assert own.is_at(ip_of("203.0.113.5"))
