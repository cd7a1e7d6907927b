"""Which servers take mail for a domain, by DNS. The one door to dnspython.

The servers of MX records by preference, those of equal preference in random order; a domain without any is its own
server (RFC 5321 5.1). A domain may say that it takes no mail (RFC 7505). What was found is kept as long as DNS allows
it, within bounds; the order is drawn anew each time.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from dns import name as dns_names
from dns.asyncresolver import Resolver
from dns.exception import DNSException
from dns.name import Name
from dns.rdatatype import RdataType
from dns.resolver import NXDOMAIN, Answer

from delivery.addresses import BOTH_FAMILIES, IpFamily
from delivery.domains import address_of_literal, ascii_domain
from model.delivery.attempts import NextHop, NoNextHop, SmtpReply
from model.ports import Clock

_UDP_PAYLOAD_BYTES: Final = 1232
_MISSING_SECONDS_MAX: Final = 300.0
_ALIASES_MAX: Final = 8
_ROUNDS_MAX: Final = 5
"""How often `hosts_max` servers of a domain are looked up where none of those before has an address."""

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
        questions_max: the largest number of questions at once, as each opens a socket; further ones wait.
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
    questions_max: int = 50


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
    """DNS did not answer one question."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """What DNS says to one question: records, or that there are none.

    Attributes:
        seconds: how long it holds.
        exists: False: there is no such name. That holds for this question alone: some servers say it of a type that
            they do not know, of a name that has others.
    """

    records: Sequence[Any]
    seconds: float
    exists: bool = True


@dataclass(frozen=True, slots=True)
class _HostAddresses:
    """What DNS says of the addresses of one host.

    Attributes:
        seconds: how long it holds; 0 where a question has no answer.
        exists: whether an answer says that there is such a name.
        unanswered: the first question that has no answer.
    """

    addresses: Sequence[str]
    seconds: float
    exists: bool
    unanswered: _Unanswered | None = None


class _Lookups:
    """Questions to DNS, a bounded number at once."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._resolver: Resolver | None = None
        self._room = asyncio.Semaphore(settings.questions_max)

    async def servers_of(self, domain: str) -> DomainServers:
        """The servers of a domain; only where every question has a negative answer, there are none for good."""
        try:
            answer = await self._asked(domain, RdataType.MX)
        except _Unanswered as error:
            return self._unknown(domain, error)
        if not answer.records:
            return await self._of_hosts(domain, [(0, domain)], answer)
        wanted = _exchanges(answer)
        if not wanted:
            return self._refused(answer.seconds, _refusal(556, "5.1.10", f"{domain} takes no mail"))
        own = min((preference for preference, host in wanted if host in self._settings.own_names), default=None)
        others = [(preference, host) for preference, host in wanted if own is None or preference < own]
        if not others:
            text = f"mail for {domain} would come back to this host"
            return self._refused(answer.seconds, _refusal(554, "5.4.6", text))
        return await self._of_hosts(domain, others, answer)

    async def _of_hosts(self, domain: str, wanted: Sequence[tuple[int, str]], named: _Answered) -> DomainServers:
        """The first hosts by preference that have addresses; those behind them are asked for where none has."""
        count, seconds = self._settings.hosts_max, named.seconds
        unanswered: _Unanswered | None = None
        exists = named.exists
        for start in range(0, min(len(wanted), count * _ROUNDS_MAX), count):
            some = wanted[start : start + count]
            found = await asyncio.gather(*(self._addresses(host) for _, host in some))
            seconds = min([seconds, *(one.seconds for one in found)])
            exists = exists or any(one.exists for one in found)
            unanswered = unanswered or next((one.unanswered for one in found if one.unanswered), None)
            hosts = [
                MailHost(host, preference, addresses.addresses)
                for (preference, host), addresses in zip(some, found, strict=True)
                if addresses.addresses
            ]
            if hosts:
                return DomainServers(self._kept_seconds(seconds), hosts)
        if unanswered is None and len(wanted) > count * _ROUNDS_MAX:
            unanswered = _Unanswered(f"it names {len(wanted)} servers, and the first of them have no address")
        if unanswered:
            return self._unknown(domain, unanswered)
        if not exists:
            return self._refused(seconds, _refusal(550, "5.1.2", f"there is no domain {domain}"))
        text = f"no server of {domain} has an address that can be reached"
        return self._refused(seconds, _refusal(550, "5.4.4", text))

    async def _addresses(self, host: str) -> _HostAddresses:
        """The addresses of a host, those of IPv6 first; both are asked for, whatever comes of the other question."""
        kinds = [kind for family, kind in _TYPES.items() if family in self._settings.families]
        answers = await asyncio.gather(*(self._asked(host, kind) for kind in kinds), return_exceptions=True)
        addresses, seconds, exists = list[str](), self._settings.kept_max.total_seconds(), False
        unanswered: _Unanswered | None = None
        for answer in answers:
            if isinstance(answer, _Unanswered):
                unanswered = unanswered or answer
                seconds = 0.0
            elif isinstance(answer, BaseException):
                raise answer
            else:
                addresses += [record.address for record in answer.records]
                seconds = min(seconds, answer.seconds)
                exists = exists or answer.exists
        return _HostAddresses(list(dict.fromkeys(addresses)), seconds, exists, unanswered)

    async def _asked(self, name: str, kind: RdataType) -> _Answered:
        """What DNS says; aliases are followed that the server leaves to us.

        Raises:
            _Unanswered: no server says.
        """
        try:
            wanted, seconds = dns_names.from_text(name), math.inf
            for _ in range(_ALIASES_MAX):
                answer = await self._resolved(wanted, kind)
                seconds = min(seconds, _seconds_of(answer))
                if answer.rrset is not None or answer.canonical_name == wanted:
                    return _Answered(tuple(answer.rrset or ()), seconds)
                wanted = answer.canonical_name
        except NXDOMAIN as error:
            return _Answered((), _seconds_of_missing(error), exists=False)
        except (DNSException, OSError) as error:
            raise _Unanswered(f"{type(error).__name__}: {error}") from error
        raise _Unanswered(f"{name} is an alias of too many others")

    async def _resolved(self, name: Name, kind: RdataType) -> Answer:
        async with self._room:
            resolver = self._resolver = self._resolver or _resolver(self._settings)
            return await resolver.resolve(name, kind, raise_on_no_answer=False, search=False)

    def _refused(self, seconds: float, refusal: SmtpReply) -> DomainServers:
        return DomainServers(self._kept_seconds(seconds), refusal=refusal)

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


def _exchanges(answer: _Answered) -> list[tuple[int, str]]:
    """Preference and name of each server, in order of preference, each once; none where the domain takes no mail."""
    records = [(record.preference, record.exchange.to_text(omit_final_dot=True).lower()) for record in answer.records]
    preferences = dict[str, int]()
    for preference, host in sorted(records):
        if host != ".":
            preferences.setdefault(host, preference)
    return [(preference, host) for host, preference in preferences.items()]


def _seconds_of(answer: Answer) -> float:
    """How long an answer holds; that there are no records, not for long."""
    seconds = float(answer.chaining_result.minimum_ttl)
    return seconds if answer.rrset is not None else min(seconds, _MISSING_SECONDS_MAX)


def _seconds_of_missing(error: NXDOMAIN) -> float:
    ends = [response.resolve_chaining().minimum_ttl for response in error.responses().values()]  # type: ignore[no-untyped-call]
    return float(min([*ends, _MISSING_SECONDS_MAX]))


def _refusal(code: int, enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(code, enhanced, text, ours=True)
