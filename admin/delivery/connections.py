"""What delivery is connected to next to the queue: its ledger, DNS, servers of mail, clients, hooks.

Its libraries are an extra.
"""

import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.delivery.transport_secrets import FileSecrets
from mailmend.admin.frame.cluster import OpenCluster, spark_source
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.queue.connections import PulsarConnections, QueueConnections
from mailmend.cql.introspect import tables_of
from mailmend.delivery.ledger.attempts import (
    AttemptsWanted,
    LedgerAttempts,
    LocalAttempts,
    read_attempts,
)
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.delivery.mail.attempts import MailRelay, NextHop, NextHops
from mailmend.delivery.policy.replay_sums import AttemptRecord
from mailmend.delivery.policy.reply_classes import ReplyClasses, ReplyRule
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.delivery.smtp.outgoing.addresses import (
    IpNetwork,
    OwnHost,
    loopback_of,
    reachable_families,
)
from mailmend.delivery.transports import SourceAddress
from mailmend.model.catalog.ledger import DELIVERY_ATTEMPT
from mailmend.model.errors import WrongUse
from mailmend.model.operations import Level
from mailmend.model.ports import Clock, Progress
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.decisions.engines import Engine
from mailmend.repair.mending.limits import Pace

if TYPE_CHECKING:
    from mailmend.delivery.policy.file.reading import PolicyFile
    from mailmend.delivery.settings import ListenerSettings
    from mailmend.delivery.smtp.incoming.listener import ListenerTls, MailListener
    from mailmend.mailqueue.queue import MailQueue

PRE_DELIVERY: Final = "mailmend.pre_delivery"
POST_DELIVERY: Final = "mailmend.post_delivery"
END_OF_DATA: Final = "mailmend.end_of_data"
"""The groups of entry points in which hooks are looked for."""


def made_orders(connections: QueueConnections) -> LedgerOrders:
    """What people order for deliveries; the ledger is created if missing.

    Raises:
        AccessDenied: a table of the ledger is missing, and we may not create it.
    """
    return _orders(connections.with_ledger())


def existing_orders(connections: QueueConnections, *tables: Table) -> LedgerOrders | None:
    """What people and hooks order; None where the ledger lacks one of these tables. Reading it creates nothing."""
    if not connections.ledger_has(*tables):
        return None
    return _orders(connections)


def _orders(connections: QueueConnections) -> LedgerOrders:
    return LedgerOrders(connections.ledger_tables, connections.settings.connection.keyspace)


def made_attempts(connections: QueueConnections) -> LedgerAttempts:
    """The journal of attempts; as for `made_orders`."""
    return _attempts(connections.with_ledger())


def existing_attempts(connections: QueueConnections) -> LedgerAttempts | None:
    """The journal of attempts; None where its table is missing. Reading it creates nothing."""
    if not connections.ledger_has(DELIVERY_ATTEMPT):
        return None
    return _attempts(connections)


def _attempts(connections: QueueConnections) -> LedgerAttempts:
    return LedgerAttempts(connections.ledger_tables, connections.settings.connection.keyspace)


def asks_of_server(connections: QueueConnections) -> Mapping[str, Callable[[], Awaitable[object]]]:
    """What a server is connected to, by name, and a small question to each.

    A queue over Pulsar has no tables of its own in Cassandra: the ledger is asked there.
    """
    asks = connections.asks()
    if connections.ledger and isinstance(connections, PulsarConnections):
        intents = _orders(connections).intents
        return {"Cassandra": partial(intents.are_there, connections.settings.name), **asks}
    return asks


def relay_of(host_name: str, authorities: Path | None, mails_per_connection: int) -> MailRelay:
    """What passes mails on, under this name; where `authorities` are named, only these are trusted."""
    smtp = import_or_name_extra("mailmend.delivery.smtp.outgoing.relay")
    reuse = None
    if mails_per_connection > 1:
        reuse = smtp.ConnectionReuse(mails_max=mails_per_connection)
    trusted = None
    if authorities:
        trusted = str(authorities.expanduser())
    relay: MailRelay = smtp.SmtpRelay(host_name, trusted, reuse)
    return relay


def listener_tls(certificate: Path, key: Path, authority: Path | None) -> "ListenerTls":
    """What secures the connections of a listener's clients; `authority` signed their own certificates."""
    tls: ListenerTls = import_or_name_extra("mailmend.delivery.smtp.incoming.listener").ListenerTls(
        certificate=certificate, key=key, authority=authority
    )
    return tls


def listener_of(
    queue: "MailQueue",
    clock: Clock,
    settings: "ListenerSettings",
    tls: "ListenerTls | None",
    users: ListenerUsers | None = None,
) -> "MailListener":
    """What takes mails from clients and puts them into the queue."""
    listener: MailListener = import_or_name_extra("mailmend.delivery.smtp.incoming.listener").MailListener(
        queue=queue, clock=clock, settings=settings, tls=tls, users=users
    )
    return listener


def dns_hops(
    clock: Clock, own: OwnHost, sources: Sequence[SourceAddress], internal: Sequence[IpNetwork] = ()
) -> NextHops:
    """The servers of each domain; none that would send mail round in a circle, or that these addresses do not reach.

    Those in `internal` networks may be next hops though they are not of the Internet.
    """
    dns = import_or_name_extra("mailmend.delivery.smtp.outgoing.dns")
    allowed = (*internal, *loopback_of(sources))
    settings = dns.DnsSettings(own=own, families=reachable_families(sources), internal=allowed)
    hops: NextHops = dns.DnsNextHops(clock, settings)
    return hops


def hook_named(group: str, name: str | None) -> Callable[..., Any] | None:
    """What an installed package declares as an entry point; None where none is named.

    Raises:
        WrongUse: no hook has that name, or it cannot be imported, or it is nothing to call.
    """
    if name is None:
        return None
    known = {point.name: point for point in entry_points(group=group)}
    if name not in known:
        there = "No installed package has any."
        if known:
            there = f"There are: {', '.join(sorted(known))}."
        raise WrongUse(f"no installed package has an entry point {name!r} in the group {group}", mend=there)
    try:
        hook = known[name].load()
    except (ImportError, AttributeError) as error:
        raise WrongUse(f"the entry point {name!r} of {group} cannot be loaded: {error}") from error
    if not callable(hook):
        raise WrongUse(f"the entry point {name!r} of {group} is no function", mend="Name a function, or a coroutine's.")
    found: Callable[..., Any] = hook
    return found


def policy_file(file: Path) -> "PolicyFile":
    """What the file says, and where it says so."""
    found: PolicyFile = import_or_name_extra("mailmend.delivery.policy.file.reading").read_policies(file)
    return found


def reply_classes(own: Sequence[ReplyRule] = ()) -> ReplyClasses:
    """A file's own rules of classes, and then the rules that come with the package.

    Raises:
        MissingExtra: the packages that read policy files are not installed.
    """
    replies = import_or_name_extra("mailmend.delivery.policy.file.replies")
    found: ReplyClasses = replies.all_classes(own)
    return found


def served_policy_file(file: Path) -> "PolicyFile":
    """The same as a server uses it: keys and passwords that it names are read."""
    reading = import_or_name_extra("mailmend.delivery.policy.file.reading")
    secrets = FileSecrets(file.expanduser().parent, os.environ, SystemClock().micros)
    found: PolicyFile = reading.read_policies(file, secrets)
    return found


@dataclass(slots=True, eq=False)
class HopsBySources:
    """Implements `NextHops`: DNS, with what is known of the addresses that mails are sent from.

    Attributes:
        made: for some addresses.
        sources: these addresses.
    """

    made: Callable[[Sequence[SourceAddress]], NextHops]
    sources: Sequence[SourceAddress]
    _hops: NextHops = field(init=False)

    def __post_init__(self) -> None:
        self._hops = self.made(self.sources)

    async def of(self, domain: str) -> Sequence[NextHop]:
        return await self._hops.of(domain)

    def know(self, sources: Sequence[SourceAddress]) -> None:
        """Ask for these addresses from now on."""
        if list(sources) != list(self.sources):
            self.sources = sources
            self._hops = self.made(sources)


def at_ledger(opened: OpenCluster) -> OpenCluster:
    """The same cluster, with ledger and mail keyspace exchanged."""
    connection = opened.connection
    mail = connection.keyspace
    ledger = connection.ledger_keyspace
    return replace(opened, connection=replace(connection, keyspace=ledger, ledger_keyspace=mail))


def attempt_record(
    ledger: OpenCluster, engine: Engine, wanted: AttemptsWanted, level: Level, pace: Pace, *, progress: Progress
) -> AttemptRecord:
    """The recorded attempts of a queue, to be replayed; none where the ledger has no table of them.

    Raises:
        WrongUse: there are more than this process should hold, and it is to read them alone.
    """
    if DELIVERY_ATTEMPT.name not in tables_of(ledger.cluster, ledger.connection.keyspace):
        return LocalAttempts()
    if engine.name == "local":
        return read_attempts(pace.over(ledger.mail), wanted, level, progress)
    read: Callable[..., AttemptRecord] = import_or_name_extra("mailmend.spark_repair.attempts").read_attempts
    return read(spark_source(ledger, engine, level, pace), wanted, progress)


def own_name() -> str:
    """The name of this host, as the system knows it."""
    return socket.getfqdn()


def own_host(names: Sequence[str], sources: Sequence[SourceAddress], listens_at: Sequence[str]) -> OwnHost:
    """This host by all of its names: the names of the system, of its sources, and these."""
    known = (own_name(), socket.gethostname(), *(source.helo for source in sources), *names)
    return OwnHost.known_as(filter(None, known), listens_at)
