"""The desk of a server of deliveries: what may be asked of it, and ordered, while it delivers.

The work is that of the commands, done over the connections that the server has open, in the name of who asks.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from admin.services.caller import Caller, Question
from admin.services.desk import HealthStatus, PartHealth, TooManyCalls
from admin.services.served_policies import ServedPolicies
from admin.settings import QueueSettings
from admin.wiring.queues import QueueConnections
from delivery.server import DeliveryServer
from mailqueue.prometheus import metrics_text
from model.errors import UnsafeRequest
from model.metrics import MetricSample
from model.pickup.engine import PolicyChanges
from model.pickup.policies import PickupPolicies

if TYPE_CHECKING:
    from delivery.listener import MailListener

Q = TypeVar("Q")
T = TypeVar("T")

_LOG: Final = logging.getLogger("mailmend.delivery")

READERS_MAX: Final = 2
"""How many calls read the queue through at once: each takes time from deliveries."""


@dataclass(slots=True, kw_only=True, eq=False)
class DeliveryDesk:
    """Answers for one server; one event loop uses both."""

    server: DeliveryServer
    connections: QueueConnections
    policies: ServedPolicies
    listener: "MailListener | None" = None
    _reading: int = 0

    @property
    def settings(self) -> QueueSettings:
        return self.connections.settings

    async def done(self, work: Callable[[Q, Caller, QueueConnections], Awaitable[T]], request: Q, by: str = "") -> T:
        """The result of a command's work, in the name of who asks."""
        return await work(request, Caller(name=by, ask=_unconfirmed), self.connections)

    async def read_through(
        self, work: Callable[[Q, Caller, QueueConnections], Awaitable[T]], request: Q, by: str = ""
    ) -> T:
        """Likewise, of work that reads the queue through.

        Raises:
            TooManyCalls: others do already.
        """
        if self._reading >= READERS_MAX:
            raise TooManyCalls(f"{READERS_MAX} calls read the queue through already", mend="Ask again in a moment.")
        self._reading += 1
        try:
            return await self.done(work, request, by)
        finally:
            self._reading -= 1

    def reload(self) -> PolicyChanges:
        """Have the server work by what its policy file says now; where that cannot be used, all stays as it was.

        Raises:
            BadPolicyFile, WrongUse: it cannot.
        """
        changes = self.policies.reload(self._limit, self.connections.now)
        counts = {"kept": len(changes.kept), "new": len(changes.new), "dropped": len(changes.dropped)}
        said = self.policies.said
        others = {"suspensions": len(said.suspensions), "tenants": len(said.weights)}
        _LOG.info("the policies were read again", extra={**counts, **others})
        return changes

    def _limit(self, found: PickupPolicies) -> PolicyChanges:
        changes = self.server.limit(found.policies, found.suspensions, found.weights)
        if self.listener:
            self.listener.intake.rules = found.incoming
            self.listener.intake.quotas.limit(found.quotas)
        return changes

    def samples(self) -> Iterable[MetricSample]:
        """What the server, and its listener, tell monitoring."""
        return chain(self.server.samples(), self.listener.samples() if self.listener else ())

    async def metrics(self) -> bytes:
        """The same, in Prometheus's text format."""
        return metrics_text(self.samples()).encode()

    def health(self) -> Sequence[PartHealth]:
        """As far as the server knows without asking others."""
        return (
            _part("Queue", "" if self.server.is_ready else "nothing is taken: the server starts, or ends"),
            _part("Departures", _stuck(self.server.stuck)),
            _part("Ledger", "suspensions cannot be read, and stay as they were" if self.server.is_stale else ""),
        )


def _unconfirmed(question: Question) -> NoReturn:
    raise UnsafeRequest(f"not confirmed: {question}", mend='Look first with "dry_run": true; then say "confirm": true.')


def _stuck(mails: int) -> str:
    return (
        f"{mails:,} mails cannot leave the queue yet: the tables, the broker or the store do not answer"
        if mails
        else ""
    )


def _part(name: str, trouble: str) -> PartHealth:
    return PartHealth(name, HealthStatus.DEGRADED if trouble else HealthStatus.HEALTHY, trouble)
