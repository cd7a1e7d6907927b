"""The servers that deliver a queue, and how they share its limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mailmend.admin.frame.caller import Caller
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.delivery.policy.servers import SeatState, ServerName, ServerSeat, ServerView


@dataclass(frozen=True, slots=True)
class QueueServer:
    """A server that is there, or was a moment ago.

    Attributes:
        has_share: the view gives it a part of each limit, and it has adopted that.
    """

    seat: ServerSeat
    has_share: bool

    @property
    def state(self) -> str:
        return self.seat.state.value


@dataclass(frozen=True, slots=True)
class QueueServers:
    """Who delivers a queue.

    Attributes:
        epoch: of the view that holds; 0: no server was ever there.
        settled: all that share the limits have adopted it.
        absent: those in the view whose seats have expired.
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
        ledger = connections.existing_servers()
        view = await ledger.view(request.queue) if ledger else None
        if ledger is None or view is None:
            return QueueAnswer(request, QueueServers())
        return QueueAnswer(request, _servers(view, await ledger.seats(request.queue)))

    return with_queues(request.settings, found)


def _servers(view: ServerView, seats: Mapping[ServerName, ServerSeat]) -> QueueServers:
    share = {name: name in view.members and seat.adopted >= view.epoch for name, seat in seats.items()}
    serving = {name for name, seat in seats.items() if seat.state is SeatState.SERVING}
    settled = view.is_complete(seats) and all(share[name] for name in serving)
    servers = [QueueServer(seats[name], share[name]) for name in sorted(seats)]
    return QueueServers(view.epoch, settled, servers, [name for name in view.members if name not in seats])
