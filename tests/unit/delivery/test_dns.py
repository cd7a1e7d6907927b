"""Which servers take mail for a domain, asked of a server of DNS on loopback."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from dns import rcode

from mailmend.delivery.mail.attempts import NextHop, NoNextHop
from mailmend.delivery.smtp.outgoing.addresses import LOOPBACK, IpFamily, OwnHost, ip_of
from mailmend.delivery.smtp.outgoing.dns import DnsNextHops, DnsSettings
from tests.support.clock import VirtualClock
from tests.support.dns_twin import HOST, DnsTwin

ZONE: Mapping[tuple[str, str], Sequence[str]] = {
    ("example.org", "MX"): ["20 late.example.org.", "10 first.example.org.", "10 second.example.org."],
    ("late.example.org", "A"): ["192.0.2.3"],
    ("first.example.org", "A"): ["192.0.2.1"],
    ("first.example.org", "AAAA"): ["2001:db8::1"],
    ("second.example.org", "A"): ["192.0.2.2"],
    ("implicit.example", "A"): ["192.0.2.9"],
    ("null.example", "MX"): ["0 ."],
    ("text.example", "TXT"): ["nothing"],
    ("alias.example", "CNAME"): ["example.org."],
    ("other-alias.example", "CNAME"): ["implicit.example."],
    ("xn--bcher-kva.example", "MX"): ["5 implicit.example."],
    ("unusable.example", "MX"): ["10 nowhere.example.", "20 text.example."],
    ("aliased-server.example", "MX"): ["10 other-alias.example."],
    ("half.example", "MX"): ["10 broken.example.", "20 implicit.example."],
    ("broken.example", "A"): ["192.0.2.66"],
    ("six.example", "AAAA"): ["2001:db8::6"],
    ("ours.example", "MX"): [
        "10 first.example.org.",
        "20 me.example.",
        "20 second.example.org.",
        "30 late.example.org.",
    ],
    ("loop.example", "MX"): ["10 ME.example.", "10 first.example.org."],
    # As in a report: the server of the first has an address, and its name does not exist for questions of another type.
    ("nx6.test", "MX"): ["10 mx.nx6.test."],
    ("mx.nx6.test", "A"): ["192.0.2.5"],
    ("mxless.test", "A"): ["192.0.2.6"],
    ("double.test", "MX"): ["30 first.example.org.", "10 first.example.org.", "20 nowhere.example."],
    ("round.test", "CNAME"): ["trip.test."],
    ("trip.test", "CNAME"): ["round.test."],
}


ELSEWHERE = OwnHost(has=lambda _: False)
"""A host that has none of the addresses in these tests, whichever machine runs them."""


def asking(twin: DnsTwin, clock: VirtualClock | None = None, **settings: object) -> DnsNextHops:
    asked = DnsSettings((HOST,), twin.port, answers_within=timedelta(seconds=10), own=ELSEWHERE)
    return DnsNextHops(clock or VirtualClock(), replace(asked, **settings))  # type: ignore[arg-type]


async def found(domain: str, twin: DnsTwin | None = None, **settings: object) -> Sequence[NextHop]:
    async with (twin or DnsTwin(ZONE)).running() as running:
        return await asking(running, None, **settings).of(domain)


async def refused(domain: str, twin: DnsTwin | None = None, **settings: object) -> str:
    with pytest.raises(NoNextHop) as caught:
        await found(domain, twin, **settings)
    assert caught.value.reply.ours
    return str(caught.value.reply)


async def test_servers_are_tried_by_preference_with_all_their_addresses() -> None:
    """IPv6 first; among equals the order is drawn."""
    clock = VirtualClock()
    clock.chances = [0.9, 0.5, 0.1]

    async with DnsTwin(ZONE).running() as twin:
        hops = await asking(twin, clock).of("Example.ORG.")

    assert hops == [
        NextHop("second.example.org", "192.0.2.2", preference=10),
        NextHop("first.example.org", "2001:db8::1", preference=10),
        NextHop("first.example.org", "192.0.2.1", preference=10),
        NextHop("late.example.org", "192.0.2.3", preference=20),
    ]


async def test_among_equals_each_is_first_at_times() -> None:
    """The order is drawn anew for each mail, and DNS is asked once."""
    async with DnsTwin(ZONE).running() as twin:
        servers = asking(twin)
        first = {(await servers.of("example.org"))[0].host for _ in range(40)}

        assert first == {"first.example.org", "second.example.org"}
        assert set(twin.asked.values()) == {1}


async def test_a_domain_without_servers_of_mail_is_its_own() -> None:
    """At its addresses (RFC 5321 5.1)."""
    assert await found("implicit.example") == [NextHop("implicit.example", "192.0.2.9")]


@pytest.mark.parametrize(
    ("domain", "reply"),
    [
        ("null.example", "556 5.1.10 null.example takes no mail"),
        ("nowhere.example", "550 5.1.2 there is no domain nowhere.example"),
        ("text.example", "550 5.4.4 no server of text.example has an address that can be reached"),
        ("unusable.example", "550 5.4.4 no server of unusable.example has an address that can be reached"),
        ("two words", "550 5.1.2 two words is no domain"),
        ("a..example", "550 5.1.2 a..example is no domain"),
        ("", "550 5.1.2  is no domain"),
        ("x" * 64 + ".example", f"550 5.1.2 {'x' * 64}.example is no domain"),
        ("[300.1.1.1]", "550 5.1.2 [300.1.1.1] is no domain"),
        ("[2001:db8::1]", "550 5.1.2 [2001:db8::1] is no domain"),
    ],
)
async def test_a_domain_that_takes_no_mail_has_its_reason(domain: str, reply: str) -> None:
    """With the code of the reason; none of these passes with time."""
    assert await refused(domain) == reply


@pytest.mark.parametrize("answer", [rcode.SERVFAIL, rcode.REFUSED, None])
async def test_dns_that_does_not_answer_refuses_for_now(answer: rcode.Rcode | None) -> None:
    """Whether it fails, refuses or is silent."""
    twin = DnsTwin(ZONE, failing={"example.org": answer})

    reply = await refused("example.org", twin, answers_within=timedelta(seconds=0.2))

    assert reply.startswith("451 4.4.3 DNS does not say now which servers example.org has: ")


async def test_an_address_that_is_not_known_now_is_left_out() -> None:
    """As long as another server is known; else the mail is refused for now."""
    one, all_ = {"broken.example": rcode.SERVFAIL}, {"first.example.org", "second.example.org", "late.example.org"}

    assert await found("half.example", DnsTwin(ZONE, failing=dict(one))) == [
        NextHop("implicit.example", "192.0.2.9", preference=20)
    ]
    assert (await refused("example.org", DnsTwin(ZONE, failing=dict.fromkeys(all_, rcode.SERVFAIL)))).startswith("451")


@pytest.mark.parametrize(
    ("domain", "hosts"),
    [
        ("alias.example", {"first.example.org", "second.example.org", "late.example.org"}),
        ("other-alias.example", {"other-alias.example"}),
        ("aliased-server.example", {"other-alias.example"}),
        ("bücher.example", {"implicit.example"}),
        ("xn--bcher-kva.example", {"implicit.example"}),
    ],
)
@pytest.mark.parametrize("follows", [True, False])
async def test_names_that_stand_for_others_are_followed(domain: str, hosts: set[str], *, follows: bool) -> None:
    """Aliases, and domains beyond ASCII; aliases also where the server of DNS leaves that to us."""
    assert {hop.host for hop in await found(domain, DnsTwin(ZONE, follows=follows))} == hosts


async def test_an_alias_of_itself_is_no_answer() -> None:
    """Neither where the server follows it, nor where we do."""
    for follows in (True, False):
        assert (await refused("round.test", DnsTwin(ZONE, follows=follows))).startswith("451 4.4.3 ")


NEGATIVE = [rcode.NXDOMAIN, rcode.SERVFAIL, rcode.REFUSED, rcode.NOTIMP]


@pytest.mark.parametrize("answer", NEGATIVE)
async def test_a_negative_answer_about_one_family_says_nothing_of_the_other(answer: rcode.Rcode) -> None:
    """Whichever of the two has it."""
    no_six, no_four = {("mx.nx6.test", "AAAA"): answer}, {("six.example", "A"): answer}

    assert await found("nx6.test", DnsTwin(ZONE, no_six)) == [NextHop("mx.nx6.test", "192.0.2.5", preference=10)]
    assert await found("six.example", DnsTwin(ZONE, no_four)) == [NextHop("six.example", "2001:db8::6")]


async def test_a_name_that_has_no_servers_of_mail_may_have_addresses() -> None:
    """Some servers of DNS say of types that they do not know that there is no such name."""
    no_mx = {("mxless.test", "MX"): rcode.NXDOMAIN}

    assert await found("mxless.test", DnsTwin(ZONE, no_mx)) == [NextHop("mxless.test", "192.0.2.6")]


@pytest.mark.parametrize(
    ("domain", "failing", "code"),
    [
        ("nx6.test", {("mx.nx6.test", "AAAA"): rcode.NXDOMAIN, ("mx.nx6.test", "A"): rcode.SERVFAIL}, "451 4.4.3"),
        ("nx6.test", {("mx.nx6.test", "AAAA"): rcode.SERVFAIL, ("mx.nx6.test", "A"): rcode.NXDOMAIN}, "451 4.4.3"),
        ("nx6.test", {"mx.nx6.test": rcode.NXDOMAIN}, "550 5.4.4"),
        ("mxless.test", {"mxless.test": rcode.NXDOMAIN}, "550 5.1.2"),
        ("mxless.test", {("mxless.test", "MX"): rcode.NXDOMAIN, ("mxless.test", "A"): rcode.SERVFAIL}, "451 4.4.3"),
        ("mxless.test", {("mxless.test", "MX"): rcode.SERVFAIL}, "451 4.4.3"),
        ("unusable.example", {("nowhere.example", "A"): rcode.SERVFAIL}, "451 4.4.3"),
    ],
)
async def test_only_negative_answers_to_all_questions_are_permanent(
    domain: str, failing: Mapping[Any, rcode.Rcode | None], code: str
) -> None:
    """Where one question has no answer, the mail is refused for now."""
    assert (await refused(domain, DnsTwin(ZONE, failing))).startswith(f"{code} ")


async def test_an_answer_that_is_in_doubt_is_kept_for_the_shortest_time() -> None:
    """An address that is known does not hide for long that another one was not told."""
    clock = VirtualClock()

    async with DnsTwin(ZONE, {("mx.nx6.test", "AAAA"): rcode.SERVFAIL}).running() as twin:
        servers = asking(twin, clock)
        for passed in (0, 4, 1):
            clock.advance(passed)
            await servers.of("nx6.test")

        assert twin.asked["nx6.test", "MX"] == 2


async def test_a_server_that_is_named_twice_counts_once() -> None:
    """By the preference that is best."""
    clock, only = VirtualClock(), frozenset({IpFamily.IPV4})

    async with DnsTwin(ZONE).running() as twin:
        hops = await asking(twin, clock, families=only).of("double.test")

    assert hops == [NextHop("first.example.org", "192.0.2.1", preference=10)]


async def test_an_answer_that_is_too_long_for_udp_comes_by_tcp() -> None:
    """Of servers, and of their addresses."""
    async with DnsTwin(ZONE, truncating=frozenset({"MX", "A"})).running() as twin:
        hops = await asking(twin).of("nx6.test")

        assert hops == [NextHop("mx.nx6.test", "192.0.2.5", preference=10)]
        assert twin.by_tcp == {("nx6.test", "MX"): 1, ("mx.nx6.test", "A"): 1}


async def test_servers_behind_those_without_an_address_are_looked_up() -> None:
    """However many there are before; of more than are ever looked up, nothing is said for good."""
    late = {("late.test", "MX"): [f"{number} s{number}.test." for number in range(9)], ("s8.test", "A"): ["192.0.2.8"]}
    many = {("many.test", "MX"): [f"{number} s{number}.test." for number in range(11)]}

    assert await found("late.test", DnsTwin(late), hosts_max=2) == [NextHop("s8.test", "192.0.2.8", preference=8)]
    assert (await refused("many.test", DnsTwin(many), hosts_max=2)).startswith("451 4.4.3 ")
    assert (await refused("many.test", DnsTwin(many), hosts_max=3)).startswith("550 5.4.4 ")


async def test_a_bounded_number_of_questions_is_asked_at_once() -> None:
    """However many domains a mail has: each question opens a socket."""
    domains = [f"d{number}.test" for number in range(40)]
    twin = DnsTwin({(domain, "A"): ["192.0.2.1"] for domain in domains}, holding=True)

    async with twin.running():
        servers = asking(twin, questions_max=7)
        asked = asyncio.gather(*map(servers.of, domains))
        for _ in range(300):
            await asyncio.sleep(0)
        at_once = len(twin.held)
        twin.release()
        hops = await asked

    assert at_once == 7
    assert [hop.host for [hop] in hops] == domains


@pytest.mark.parametrize(("domain", "address"), [("[192.0.2.7]", "192.0.2.7"), ("[IPv6:2001:db8::7]", "2001:db8::7")])
async def test_an_address_in_place_of_a_domain_is_the_server(domain: str, address: str) -> None:
    """DNS is not asked."""
    twin = DnsTwin(ZONE)

    assert await found(domain, twin) == [NextHop(address, address)]
    assert not twin.asked


async def test_only_addresses_that_can_be_reached_are_given() -> None:
    """Where connections go by IPv4 alone, nobody asks for others."""
    twin = DnsTwin(ZONE)
    only = frozenset({IpFamily.IPV4})

    hops = await found("example.org", twin, families=only)

    assert {hop.address for hop in hops} == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    assert not any(kind == "AAAA" for _, kind in twin.asked)
    assert await refused("six.example", families=only) == (
        "550 5.4.4 no server of six.example has an address that can be reached"
    )


async def test_mail_does_not_go_round() -> None:
    """Where this host is a server of a domain, only those that the domain prefers are tried."""
    own = replace(ELSEWHERE, names=frozenset({"me.example"}))

    assert {hop.host for hop in await found("ours.example", own=own)} == {"first.example.org"}
    assert await refused("loop.example", own=own) == "554 5.4.6 mail for loop.example would come back to this host"


def at(*addresses: str) -> DnsTwin:
    """Of a domain whose servers have these addresses, each preferred to the next."""
    zone = dict[tuple[str, str], list[str]]()
    zone["some.test", "MX"] = [f"{number}0 s{number}.test." for number in range(len(addresses))]
    for number, address in enumerate(addresses):
        zone[f"s{number}.test", "AAAA" if ":" in address else "A"] = [address]
    return DnsTwin(zone)


OURS = frozenset(map(ip_of, ("192.0.2.90", "127.0.0.1", "::1")))
OWN = OwnHost(addresses=frozenset({ip_of("192.0.2.80")}), has=OURS.__contains__)
PUBLIC = "192.0.2.1"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "192.0.2.80", "192.0.2.90"],
)
async def test_our_addresses_end_the_list_of_servers(address: str) -> None:
    """At the first pass, whatever the servers there are called; those behind them would send it to us again."""
    loops = "554 5.4.6 mail for some.test would come back to this host"

    assert await refused("some.test", at(address, PUBLIC), own=OWN, internal=LOOPBACK) == loops
    hops = await found("some.test", at(PUBLIC, address, "192.0.2.2"), own=OWN, internal=LOOPBACK)
    assert [hop.address for hop in hops] == [PUBLIC]


async def test_a_domain_at_our_address_without_servers_of_mail_is_ours() -> None:
    """As is one whose server is called localhost, wherever that is, and the literal of such an address."""
    own = replace(OWN, addresses=frozenset({ip_of("192.0.2.9")}))
    named = DnsTwin({("loop1.test", "MX"): ["10 localhost."], ("localhost", "A"): ["192.0.2.7"]})

    for domain, twin in (("implicit.example", None), ("loop1.test", named), ("[192.0.2.9]", None)):
        assert (await refused(domain, twin, own=own)).startswith("554 5.4.6 ")


async def test_a_better_server_that_is_not_known_now_is_waited_for() -> None:
    """Only then is it known that the mail would come back."""
    twin = at(PUBLIC, "127.0.0.1")
    twin.failing = {("s0.test", "A"): rcode.SERVFAIL}

    assert (await refused("some.test", twin, own=OWN)).startswith("451 4.4.3 ")


INTERNAL = [
    "10.1.2.3",
    "172.31.0.1",
    "192.168.0.1",
    "127.0.0.5",
    "169.254.169.254",
    "100.64.0.1",
    "255.255.255.255",
    "fd00::1",
    "fe80::1",
    "::ffff:10.1.2.3",
    "64:ff9b::a01:203",
    "2002:a01:203::1",
]


@pytest.mark.parametrize("address", INTERNAL)
async def test_servers_that_are_not_of_the_internet_are_not_asked(address: str) -> None:
    """Whoever owns a domain may name any address: unless the operator allows its network, nothing is sent there."""
    allowed = (ip_network(ip_of(address)),)

    assert (await refused("some.test", at(address), own=OWN)).startswith("451 4.4.4 no server of some.test ")
    assert [hop.address for hop in await found("some.test", at(address, PUBLIC), own=OWN)] == [PUBLIC]
    assert [ip_of(hop.address) for hop in await found("some.test", at(address), own=OWN, internal=allowed)] == [
        ip_of(address)
    ]


async def test_a_sender_cannot_name_an_internal_address_for_good() -> None:
    """A literal stands for no name that may come to mean something else."""
    assert await refused("[10.1.2.3]", own=OWN) == "550 5.4.4 [10.1.2.3] is no address of the Internet"
    assert await found("[10.1.2.3]", own=OWN, internal=(ip_network("10.0.0.0/8"),)) == [NextHop("10.1.2.3", "10.1.2.3")]


async def test_servers_of_a_test_on_loopback_are_reached() -> None:
    """The zones of a report: one has an address there, the other is the server itself."""
    zone = {
        ("loop1.test", "MX"): ["10 localhost."],
        ("localhost", "A"): ["127.0.0.1"],
        ("nx6.test", "MX"): ["10 mx.nx6.test."],
        ("mx.nx6.test", "A"): ["127.0.0.5"],
    }
    twin = DnsTwin(zone, {("mx.nx6.test", "AAAA"): rcode.NXDOMAIN})
    own = OwnHost.known_as(["mail.sender.example"], ["127.0.0.1"])

    assert await found("nx6.test", twin, own=own, internal=LOOPBACK) == [
        NextHop("mx.nx6.test", "127.0.0.5", preference=10)
    ]
    assert (await refused("loop1.test", twin, own=own, internal=LOOPBACK)).startswith("554 5.4.6 ")


async def test_so_many_servers_are_tried_and_no_more() -> None:
    """Those that the domain prefers."""
    many = {("many.example", "MX"): [f"{number} s{number}.example." for number in range(50)]}
    many |= {(f"s{number}.example", "A"): ["192.0.2.5"] for number in range(50)}

    hops = await found("many.example", DnsTwin(many), hosts_max=7)

    assert [hop.preference for hop in hops] == list(range(7))


@pytest.mark.parametrize(("ttl", "kept"), [(300, 300), (0, 5), (86_400, 3600)])
async def test_an_answer_is_kept_as_long_as_dns_allows(ttl: int, kept: int) -> None:
    """Within bounds."""
    clock = VirtualClock()

    async with DnsTwin(ZONE, ttl_seconds=ttl).running() as twin:
        servers = asking(twin, clock, families=frozenset({IpFamily.IPV4}))
        await servers.of("example.org")
        clock.advance(kept - 1)
        await servers.of("example.org")
        before = twin.asked["example.org", "MX"]
        clock.advance(1)
        await servers.of("example.org")

        assert (before, twin.asked["example.org", "MX"]) == (1, 2)


@pytest.mark.parametrize(("failing", "kept"), [({}, 60), ({"nowhere.example": rcode.SERVFAIL}, 5)])
async def test_that_there_is_none_is_kept_too(failing: dict[str, rcode.Rcode | None], kept: int) -> None:
    """As long as DNS allows that; a failure for the shortest time."""
    clock = VirtualClock()

    async with DnsTwin(ZONE, failing).running() as twin:
        servers = asking(twin, clock)
        for passed in (0, kept - 1, 1):
            clock.advance(passed)
            with pytest.raises(NoNextHop):
                await servers.of("nowhere.example")

        assert twin.asked["nowhere.example", "MX"] == 2


async def test_many_mails_for_a_domain_ask_once() -> None:
    """One that gives up waiting takes nothing from the others."""
    async with DnsTwin(ZONE).running() as twin:
        servers = asking(twin)
        waiting = [asyncio.ensure_future(servers.of("implicit.example")) for _ in range(20)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)

        assert all(answer == [NextHop("implicit.example", "192.0.2.9")] for answer in answers[1:])
        assert isinstance(answers[0], asyncio.CancelledError)
        assert twin.asked["implicit.example", "MX"] == 1


async def test_answers_of_so_many_domains_are_kept() -> None:
    """The one that was not used for longest gives way."""
    async with DnsTwin(ZONE).running() as twin:
        servers = asking(twin, domains_max=2)
        for domain in ("implicit.example", "six.example", "implicit.example", "alias.example", "implicit.example"):
            await servers.of(domain)
        await servers.of("six.example")

        assert (twin.asked["implicit.example", "MX"], twin.asked["six.example", "MX"]) == (1, 2)
