"""Which servers take mail for a domain, by DNS. The one door to dnspython.

The servers of MX records by preference, those of equal preference in random order; a domain without any is its own
server (RFC 5321 5.1). A domain may say that it takes no mail (RFC 7505). What was found is kept as long as DNS allows
it, within bounds; the order is drawn anew each time.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from dns import name as dns_names
from dns.asyncresolver import Resolver
from dns.exception import DNSException
from dns.rdatatype import RdataType
from dns.resolver import NXDOMAIN, Answer, NoAnswer

from delivery.addresses import BOTH_FAMILIES, IpFamily
from delivery.domains import address_of_literal, ascii_domain
from model.delivery.attempts import NextHop, NoNextHop, SmtpReply
from model.ports import Clock

_UDP_PAYLOAD_BYTES: Final = 1232
_MISSING_SECONDS_MAX: Final = 300.0
_TYPES: Final = {IpFamily.IPV6: RdataType.AAAA, IpFamily.IPV4: RdataType.A}


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """How DNS is asked.

    Attributes:
        servers: addresses; none: those that the system asks.
        port: of these servers.
        answers_within: how long a question may take, over all servers.
        families: of addresses that connections can go to.
        own_names: of this host: servers that a domain prefers no more than these are not asked, or mail would go round.
        kept_min, kept_max: how long an answer is kept at least and at most, whatever DNS says.
        domains_max: of how many domains answers are kept; the ones that were not used for longest give way.
        hosts_max: how many servers of a domain are tried at most.
    """

    servers: tuple[str, ...] = ()
    port: int = 53
    answers_within: timedelta = timedelta(seconds=10)
    families: frozenset[IpFamily] = BOTH_FAMILIES
    own_names: frozenset[str] = frozenset()
    kept_min: timedelta = timedelta(seconds=5)
    kept_max: timedelta = timedelta(hours=1)
    domains_max: int = 10_000
    hosts_max: int = 20


@dataclass(frozen=True, slots=True)
class MailHost:
    """A server of a domain, with its addresses."""

    name: str
    preference: int
    addresses: Sequence[str]


@dataclass(frozen=True, slots=True)
class DomainServers:
    """What DNS says of a domain: its servers, or the reply that stands for there being none."""

    seconds: float
    hosts: Sequence[MailHost] = ()
    refusal: SmtpReply = field(default_factory=lambda: _refusal(550, "5.4.4", ""))


class DnsNextHops:
    """`NextHops` by DNS."""

    def __init__(self, clock: Clock, settings: DnsSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or DnsSettings()
        self._lookups = _Lookups(self._settings)
        self._kept: OrderedDict[str, tuple[float, DomainServers]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[DomainServers]] = {}

    async def of(self, domain: str) -> Sequence[NextHop]:
        address = address_of_literal(domain)
        if address:
            return [NextHop(address, address)]
        name = ascii_domain(domain)
        if name is None:
            raise NoNextHop(domain, _refusal(550, "5.1.2", f"{domain} is no domain"))
        servers = self._known(name) or await self._found(name)
        if not servers.hosts:
            raise NoNextHop(domain, servers.refusal)
        hosts = sorted(servers.hosts, key=lambda host: (host.preference, self._clock.chance()))
        return [NextHop(host.name, address, preference=host.preference) for host in hosts for address in host.addresses]

    def _known(self, name: str) -> DomainServers | None:
        until, servers = self._kept.get(name, (0.0, None))
        if servers is None or self._clock.monotonic() >= until:
            return None
        self._kept.move_to_end(name)
        return servers

    async def _found(self, name: str) -> DomainServers:
        """Asked once, however many want to know; one that gives up waiting does not take the answer from others."""
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._lookups.servers_of(name))
            asking.add_done_callback(lambda task: self._keep(name, task))
        return await asyncio.shield(asking)

    def _keep(self, name: str, asked: asyncio.Task[DomainServers]) -> None:
        del self._asking[name]
        if asked.cancelled() or asked.exception():
            return
        servers = asked.result()
        self._kept[name] = (self._clock.monotonic() + servers.seconds, servers)
        self._kept.move_to_end(name)
        while len(self._kept) > self._settings.domains_max:
            self._kept.popitem(last=False)


class _Unanswered(Exception):
    """DNS did not answer."""


class _Missing(Exception):
    """There is no such name."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class _Lookups:
    """Questions to DNS."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._resolver: Resolver | None = None

    async def servers_of(self, domain: str) -> DomainServers:
        try:
            answer = await self._asked(domain, RdataType.MX)
        except _Missing as missing:
            refusal = _refusal(550, "5.1.2", f"there is no domain {domain}")
            return DomainServers(self._kept_seconds(missing.seconds), refusal=refusal)
        except _Unanswered as error:
            return self._unknown(domain, error)
        wanted = _exchanges(answer)
        if wanted is None:
            return await self._of_hosts(domain, [(0, domain)], _seconds_of(answer))
        if not wanted:
            refusal = _refusal(556, "5.1.10", f"{domain} takes no mail")
            return DomainServers(self._kept_seconds(_seconds_of(answer)), refusal=refusal)
        own = min((one for one, host in wanted if host in self._settings.own_names), default=None)
        others = [(one, host) for one, host in wanted if own is None or one < own]
        if not others:
            refusal = _refusal(554, "5.4.6", f"mail for {domain} would come back to this host")
            return DomainServers(self._kept_seconds(_seconds_of(answer)), refusal=refusal)
        return await self._of_hosts(domain, others, _seconds_of(answer))

    async def _of_hosts(self, domain: str, wanted: Iterable[tuple[int, str]], seconds: float) -> DomainServers:
        first = sorted(wanted)[: self._settings.hosts_max]
        answered = await asyncio.gather(*(self._addresses(host) for _, host in first))
        known = [one for one in answered if not isinstance(one, _Unanswered)]
        unknown = [one for one in answered if isinstance(one, _Unanswered)]
        hosts = [
            MailHost(host, preference, one[0])
            for (preference, host), one in zip(first, answered, strict=True)
            if not isinstance(one, _Unanswered) and one[0]
        ]
        if unknown and not hosts:
            return self._unknown(domain, unknown[0])
        shortest = min([0.0] if unknown else [seconds, *(one[1] for one in known)])
        refusal = _refusal(550, "5.4.4", f"no server of {domain} has an address that can be reached")
        return DomainServers(self._kept_seconds(shortest), hosts, refusal)

    async def _addresses(self, host: str) -> tuple[Sequence[str], float] | _Unanswered:
        """The addresses of a host, those of IPv6 first, and for how many seconds that holds."""
        addresses, seconds, failed = list[str](), list[float](), list[_Unanswered]()
        for family, kind in _TYPES.items():
            if family not in self._settings.families:
                continue
            try:
                answer = await self._asked(host, kind)
            except _Missing as missing:
                seconds.append(missing.seconds)
                break
            except _Unanswered as error:
                failed.append(error)
            else:
                seconds.append(_seconds_of(answer))
                addresses += [record.address for record in answer.rrset or ()]
        if failed and not addresses:
            return failed[0]
        return addresses, min([0.0] if failed else [*seconds, self._settings.kept_max.total_seconds()])

    async def _asked(self, name: str, kind: RdataType) -> Answer:
        """The answer, with records or without.

        Raises:
            _Missing: there is no such name.
            _Unanswered: no server says.
        """
        try:
            resolver = self._resolver = self._resolver or _resolver(self._settings)
            absolute = dns_names.from_text(name)
            return await resolver.resolve(absolute, kind, raise_on_no_answer=False, search=False)
        except NXDOMAIN as error:
            raise _Missing(_seconds_of_missing(error)) from error
        except NoAnswer as error:
            raise _Unanswered(str(error)) from error
        except (DNSException, OSError) as error:
            raise _Unanswered(f"{type(error).__name__}: {error}") from error

    def _unknown(self, domain: str, error: _Unanswered) -> DomainServers:
        refusal = _refusal(451, "4.4.3", f"DNS does not say now which servers {domain} has: {error}")
        return DomainServers(self._kept_seconds(0), refusal=refusal)

    def _kept_seconds(self, seconds: float) -> float:
        least, most = self._settings.kept_min.total_seconds(), self._settings.kept_max.total_seconds()
        return min(max(seconds, least), most)


def _resolver(settings: DnsSettings) -> Resolver:
    resolver = Resolver(configure=not settings.servers)
    if settings.servers:
        resolver.nameservers = list(settings.servers)
        resolver.port = settings.port
    resolver.lifetime = settings.answers_within.total_seconds()
    resolver.use_edns(0, 0, _UDP_PAYLOAD_BYTES)
    return resolver


def _exchanges(answer: Answer) -> list[tuple[int, str]] | None:
    """Preference and name of each server; none where the domain takes no mail; None where it names none itself."""
    if answer.rrset is None:
        return None
    records = [(record.preference, record.exchange.to_text(omit_final_dot=True).lower()) for record in answer.rrset]
    return [(preference, host) for preference, host in records if host != "."]


def _seconds_of(answer: Answer) -> float:
    """How long an answer holds; that there are no records, not for long."""
    seconds = float(answer.chaining_result.minimum_ttl)
    return seconds if answer.rrset is not None else min(seconds, _MISSING_SECONDS_MAX)


def _seconds_of_missing(error: NXDOMAIN) -> float:
    ends = [response.resolve_chaining().minimum_ttl for response in error.responses().values()]  # type: ignore[no-untyped-call]
    return float(min([*ends, _MISSING_SECONDS_MAX]))


def _refusal(code: int, enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(code, enhanced, text, ours=True)
