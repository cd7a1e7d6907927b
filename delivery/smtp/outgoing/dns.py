"""Which servers take mail for a domain, by DNS. The one door to dnspython.

The servers of MX records by preference, equal ones in random order; a domain without any is its own
server (RFC 5321 5.1). A domain may say that it takes no mail (RFC 7505). What was found is kept as long as DNS allows
it, within bounds; the order is drawn anew each time.
"""

import asyncio
import logging
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

from mailmend.delivery.mail.attempts import NextHop, NoNextHop, SmtpReply
from mailmend.delivery.smtp.outgoing.addresses import (
    BOTH_FAMILIES,
    IpAddress,
    IpFamily,
    IpNetwork,
    OwnHost,
    ip_of,
    is_internal,
)
from mailmend.model.grammar import address_of_literal, ascii_domain
from mailmend.model.ports import Clock

_LOG: Final = logging.getLogger("mailmend.delivery")

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
        own: this host: servers that a domain prefers no more than this one are not asked, or mail would go round.
        internal: networks that are not of the Internet, and whose servers may be next hops all the same.
        kept_min, kept_max: how long an answer is kept at least and at most, whatever DNS says.
        domains_max: of how many domains answers are kept; the ones that were not used for longest give way.
        hosts_max: how many servers of a domain are tried at most.
        questions_max: the largest number of questions at once, as each opens a socket; further ones wait.
    """

    servers: tuple[str, ...] = ()
    port: int = 53
    answers_within: timedelta = timedelta(seconds=10)
    families: frozenset[IpFamily] = BOTH_FAMILIES
    own: OwnHost = field(default_factory=OwnHost)
    internal: tuple[IpNetwork, ...] = ()
    kept_min: timedelta = timedelta(seconds=5)
    kept_max: timedelta = timedelta(hours=1)
    domains_max: int = 10_000
    hosts_max: int = 20
    questions_max: int = 50

    def may_reach(self, address: IpAddress) -> bool:
        return not is_internal(address) or any(address in network for network in self.internal)


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
            return [self._literal(domain, address)]
        name = ascii_domain(domain)
        if name is None:
            raise NoNextHop(domain, _refusal(550, "5.1.2", f"{domain} is no domain"))
        servers = self._known(name) or await self._found(name)
        if not servers.hosts:
            raise NoNextHop(domain, servers.refusal)
        hosts = sorted(servers.hosts, key=lambda host: (host.preference, self._clock.chance()))
        hops = list[NextHop]()
        for host in hosts:
            for host_address in host.addresses:
                hops.append(NextHop(host.name, host_address, preference=host.preference))
        return hops

    def _literal(self, domain: str, address: str) -> NextHop:
        """The server at an address that is given instead of a domain.

        Raises:
            NoNextHop: it is this host, or not an Internet address; a sender has no right to name it.
        """
        wanted = ip_of(address)
        if self._settings.own.is_at(wanted):
            raise NoNextHop(domain, _loops(domain))
        if not self._settings.may_reach(wanted):
            raise NoNextHop(domain, _refusal(550, "5.4.4", f"{domain} is no address of the Internet"))
        return NextHop(address, address)

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
    """What DNS says to one question: records, or their absence.

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


@dataclass(slots=True)
class _HostSearch:
    """What is known of a domain's hosts so far.

    Attributes:
        limit: the preference of this host, of which others have to be better; infinite where it is
            not among them.
        seconds: how long it holds.
        exists: whether any answer says that there is such a name.
        unanswered: the first question that has no answer.
        internal: the preference and name of the best host whose addresses are not of the Internet, and may not be next
            hops.
    """

    settings: DnsSettings
    limit: float
    seconds: float
    exists: bool
    unanswered: _Unanswered | None = None
    internal: tuple[float, str] = (math.inf, "")

    @property
    def has_internal(self) -> bool:
        """Whether a host that is better than this one has such addresses."""
        return self.internal[0] < self.limit

    def take(self, hosts: Sequence[tuple[int, str]], found: Sequence[_HostAddresses]) -> Sequence[MailHost]:
        """Learn of these hosts; the result is the hosts that can be reached."""
        reachable = list[MailHost]()
        for (preference, host), known in zip(hosts, found, strict=True):
            self.seconds = min(self.seconds, known.seconds)
            self.exists = self.exists or known.exists
            self.unanswered = self.unanswered or known.unanswered
            addresses = [(address, ip_of(address)) for address in known.addresses]
            if any(self.settings.own.is_at(address) for _, address in addresses):
                self.limit = min(self.limit, preference)
            usable = [text for text, address in addresses if self.settings.may_reach(address)]
            if usable:
                reachable.append(MailHost(host, preference, usable))
            elif addresses:
                self.internal = min(self.internal, (preference, f"{host} [{addresses[0][0]}]"))
        return [host for host in reachable if host.preference < self.limit]

    def refusal(self, domain: str) -> SmtpReply:
        """What stands for there being no server, where every question has an answer."""
        if self.has_internal:
            text = f"no server of {domain} has an address of the Internet: {self.internal[1]}"
            return _refusal(451, "4.4.4", text)
        if self.limit < math.inf:
            return _loops(domain)
        if not self.exists:
            return _refusal(550, "5.1.2", f"there is no domain {domain}")
        return _refusal(550, "5.4.4", f"no server of {domain} has an address that can be reached")


class _Lookups:
    """Questions to DNS, a bounded number at once."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._resolver: Resolver | None = None
        self._room = asyncio.Semaphore(settings.questions_max)

    async def servers_of(self, domain: str) -> DomainServers:
        """The servers of a domain; their lack is permanent only where every question has a negative answer."""
        try:
            answer = await self._asked(domain, RdataType.MX)
        except _Unanswered as error:
            return self._unknown(domain, error)
        if not answer.records:
            return await self._of_hosts(domain, [(0, domain)], answer)
        wanted = _exchanges(answer)
        if not wanted:
            return self._refused(answer.seconds, _refusal(556, "5.1.10", f"{domain} takes no mail"))
        return await self._of_hosts(domain, wanted, answer)

    async def _of_hosts(self, domain: str, wanted: Sequence[tuple[int, str]], named: _Answered) -> DomainServers:
        """The first hosts by preference that can be reached; those behind them are asked for where none can."""
        own = self._settings.own
        limit = math.inf
        for preference, host in wanted:
            if own.is_named(host):
                limit = min(limit, preference)
        before = [(preference, host) for preference, host in wanted if preference < limit]
        search = _HostSearch(self._settings, limit, named.seconds, named.exists)
        count = self._settings.hosts_max
        for start in range(0, min(len(before), count * _ROUNDS_MAX), count):
            some = before[start : start + count]
            hosts = search.take(some, await asyncio.gather(*(self._addresses(host) for _, host in some)))
            if hosts:
                return DomainServers(self._kept_seconds(search.seconds), hosts)
            if search.limit <= some[-1][0]:
                break
        unanswered = search.unanswered
        if unanswered is None and search.limit == math.inf and len(before) > count * _ROUNDS_MAX:
            unanswered = _Unanswered(f"it names {len(before)} servers, and the first of them have no address")
        if unanswered:
            return self._unknown(domain, unanswered)
        if search.has_internal:
            shown = {"domain": domain, "server": search.internal[1], "mend": "--next-hops-in allows its network"}
            _LOG.warning("no server of a domain has an address of the Internet", extra=shown)
        return self._refused(search.seconds, search.refusal(domain))

    async def _addresses(self, host: str) -> _HostAddresses:
        """The addresses of a host, IPv6 first; both are asked for, whatever comes of the other question."""
        kinds = [kind for family, kind in _TYPES.items() if family in self._settings.families]
        answers = await asyncio.gather(*(self._asked(host, kind) for kind in kinds), return_exceptions=True)
        addresses = list[str]()
        seconds = self._settings.kept_max.total_seconds()
        exists = False
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
            wanted = dns_names.from_text(name)
            seconds = math.inf
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
        least = self._settings.kept_min.total_seconds()
        most = self._settings.kept_max.total_seconds()
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
    if answer.rrset is None:
        return min(seconds, _MISSING_SECONDS_MAX)
    return seconds


def _seconds_of_missing(error: NXDOMAIN) -> float:
    ends = [response.resolve_chaining().minimum_ttl for response in error.responses().values()]  # type: ignore[no-untyped-call]
    return float(min([*ends, _MISSING_SECONDS_MAX]))


def _loops(domain: str) -> SmtpReply:
    return _refusal(554, "5.4.6", f"mail for {domain} would come back to this host")


def _refusal(code: int, enhanced: str, text: str) -> SmtpReply:
    return SmtpReply(code, enhanced, text, ours=True)
