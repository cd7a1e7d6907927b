"""`mailmend delivery`: the group of its commands, and `servers`.

`servers` says which servers deliver a queue, and how they share its limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mailmend.admin.delivery.connections import existing_orders
from mailmend.admin.delivery.entries import GROUP, LIST
from mailmend.admin.delivery.entry_changes import BOUNCE, DEFER, DELETE, HOLD, RELEASE, RETRY
from mailmend.admin.delivery.explain import EXPLAIN
from mailmend.admin.delivery.options import OF_A_QUEUE
from mailmend.admin.delivery.serve_options import SERVE
from mailmend.admin.delivery.set_values import CHANGES, SET
from mailmend.admin.delivery.show import SHOW
from mailmend.admin.delivery.top import TOP
from mailmend.admin.delivery.users import USER
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import fields_json, printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import QUEUE_ARGUMENT
from mailmend.admin.queue.request import QueueAnswer, QueueRequest, queue_document
from mailmend.delivery.policy.shares import Members, Membership, MembershipState, ServerName
from mailmend.model.catalog.ledger import DELIVERY_SERVER, DELIVERY_VIEW


@dataclass(frozen=True, slots=True)
class QueueServer:
    """A server that is there, or was a moment ago.

    Attributes:
        has_share: the list of members gives it a part of each limit, and it has adopted that.
    """

    membership: Membership
    has_share: bool

    @property
    def state(self) -> str:
        return self.membership.state.value


@dataclass(frozen=True, slots=True)
class QueueServers:
    """Who delivers a queue.

    Attributes:
        epoch: of the list that holds; 0: no server was ever there.
        settled: all that share the limits have adopted it.
        absent: members whose memberships have expired.
    """

    epoch: int = 0
    settled: bool = True
    servers: Sequence[QueueServer] = ()
    absent: Sequence[ServerName] = ()


def list_servers(request: QueueRequest, _: Caller) -> QueueAnswer[QueueRequest, QueueServers]:
    """The servers of a queue by their names; reading them creates no ledger.

    Raises:
        CannotReach: the ledger cannot be reached.
    """

    async def found(connections: QueueConnections) -> QueueAnswer[QueueRequest, QueueServers]:
        orders = existing_orders(connections, DELIVERY_VIEW, DELIVERY_SERVER)
        if orders is None:
            return QueueAnswer(request, QueueServers())
        members = await orders.servers.members(request.queue)
        if members is None:
            return QueueAnswer(request, QueueServers())
        return QueueAnswer(request, _servers(members, await orders.servers.memberships(request.queue)))

    return with_queues(request.settings, found)


def _servers(members: Members, memberships: Mapping[ServerName, Membership]) -> QueueServers:
    servers = list[QueueServer]()
    settled = members.is_complete(memberships)
    for name, membership in sorted(memberships.items()):
        has_share = name in members.since and membership.adopted >= members.epoch
        if membership.state is MembershipState.SERVING and not has_share:
            settled = False
        servers.append(QueueServer(membership, has_share))
    absent = [name for name in members.since if name not in memberships]
    return QueueServers(members.epoch, settled, servers, absent)


def servers_document(result: QueueAnswer[QueueRequest, QueueServers]) -> Document:
    queue = result.request.queue
    found = result.found
    servers = [_server_json(server) for server in found.servers]
    json = {**fields_json(found, "epoch", "settled", "absent"), "servers": servers}
    if not found.epoch:
        return queue_document(result, json, (f"No server has shared limits of {queue} yet.",))
    columns = ("name", "state", "shares", "since", "last seen", "process")
    rows = [_server_row(server) for server in found.servers]
    negation = "" if found.settled else "not "
    body: list[Part] = [
        Grid(f"Servers of {queue}", columns, rows, frozenset({"process"})),
        f"Limits of {queue} are shared in epoch {found.epoch}, {negation}by all of them.",
    ]
    body += [f"{printable(name)} is absent: its part is kept until the others may have it." for name in found.absent]
    return queue_document(result, json, body)


def _server_json(server: QueueServer) -> dict[str, Any]:
    membership = server.membership
    return {
        "name": membership.name,
        "state": server.state,
        "has_share": server.has_share,
        "adopted": membership.adopted,
        **fields_json(membership, "since", "seen_at", "owner"),
    }


def _server_row(server: QueueServer) -> tuple[str, ...]:
    membership = server.membership
    return (
        printable(membership.name),
        server.state,
        "yes" if server.has_share else "not yet",
        shown(membership.since),
        shown(membership.seen_at),
        printable(membership.owner),
    )


SERVERS: Final = Command(
    name="servers",
    summary="Say which servers deliver a queue, and whether they share its limits by now.",
    about="""A server that is killed, or cut off from Cassandra, is absent after a minute; some seconds later the others
    have its part of each limit. One that ended in an orderly way keeps its part for that minute too, and goes on with
    it where it is started again under its name.""",
    service="mailmend.admin.delivery.delivery:list_servers",
    present="mailmend.admin.delivery.delivery:servers_document",
    paged=True,
    options=(QUEUE_ARGUMENT,),
    shared=(OF_A_QUEUE,),
    examples="""
        mailmend delivery servers outgoing
        mailmend delivery servers outgoing --json""",
    exits="0 done, also without any server; 2 wrong use, 4 the cluster cannot be reached.",
)


_MOVES: Final = (HOLD, RELEASE, RETRY, DEFER, BOUNCE, DELETE)
ENTRY_COMMANDS: Final = (LIST, SHOW, GROUP, *_MOVES, SET, CHANGES)


DELIVERY: Final = CommandGroup(
    name="delivery",
    summary="Deliver the mails of a queue to their recipients' servers.",
    about="""The queue is over RabbitMQ or Pulsar, as for `mailmend queue`. The ledger, which is in Cassandra with
    either broker, keeps the journal of attempts and the orders of people, by the names of keyspace and queue. A queue
    that moves keeps both; queues of one name in several namespaces of Pulsar need a --ledger-keyspace each. To hold
    mails back on all servers, use `mailmend suspend`.""",
    commands=(SERVE, TOP, EXPLAIN, SERVERS, USER, *ENTRY_COMMANDS),
    examples="""
        mailmend delivery serve outgoing
        mailmend delivery serve outgoing --next-hop relay.example.org
        mailmend delivery serve outgoing --broker pulsar://pulsar.example.org --host cassandra.example.org
        mailmend delivery group outgoing                                 which domains wait
        mailmend delivery user ann@example.org >> users              a user of --listen-users
        mailmend delivery hold outgoing --tenant acme --why 'looks like spam'""",
)
