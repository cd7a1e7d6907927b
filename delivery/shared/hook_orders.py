"""What hooks order in addition to their decisions: this server obeys at once; the ledger keeps it for the others.

No attempt waits for the ledger. Until it has an order, the order holds here alone, in addition to
all that is read meanwhile.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

from mailmend.delivery.ledger.order_history import OrderEvent, OrderRecord
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.delivery.mail.hooks import HookOrder, LimitMails, SuspendMails
from mailmend.delivery.policy.conditions import MadeCondition
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock

HOLDING_MAX: Final = 1_000
"""The maximum number of suspensions of hooks in a queue, and also of conditions; a further one is not taken."""

_LOG: Final = logging.getLogger("mailmend.delivery")

M = TypeVar("M", bound=MadeSuspension | MadeCondition)


@dataclass(slots=True, eq=False)
class HookOrders:
    """Orders of the hooks of one server, until the ledger has them."""

    queue: QueueName
    clock: Clock
    _unwritten: dict[UUID, MadeSuspension | MadeCondition] = field(default_factory=dict)
    _unremoved: dict[UUID, MadeSuspension | MadeCondition] = field(default_factory=dict)
    _renewed: set[UUID] = field(default_factory=set)

    def suspended(
        self, order: SuspendMails, owner: str, holding: Iterable[MadeSuspension]
    ) -> Sequence[MadeSuspension] | None:
        """What holds behind it; None where that is what has held before."""
        now = self._now
        lasting = self._lasting(holding)
        same = [suspension for suspension in lasting if order.is_what(suspension, owner)]
        if not order.lasts:
            return self._without(same, lasting)
        if any(_suffices(suspension, order, now) for suspension in same):
            return None
        name = same[0].id if same else self.clock.new_uuid()
        return self._with(order.made(self.queue, owner, now, name), lasting)

    def limited(
        self, order: LimitMails, owner: str, holding: Iterable[MadeCondition]
    ) -> Sequence[MadeCondition] | None:
        """Likewise."""
        now = self._now
        lasting = self._lasting(holding)
        same = [condition for condition in lasting if order.is_what(condition, owner)]
        if not order.lasts:
            return self._without(same, lasting)
        if any(condition.threshold == order.threshold and _suffices(condition, order, now) for condition in same):
            return None
        made_at = same[0].made_at if same else now
        return self._with(order.made(self.queue, owner, now, made_at), lasting)

    def beside(self, read: Sequence[M], kind: type[M]) -> Sequence[M]:
        """What holds by a reading, with what the ledger has not been told yet."""
        unwritten: dict[UUID, M] = {
            suspension.id: suspension for suspension in self._unwritten.values() if isinstance(suspension, kind)
        }
        found = [order for order in read if order.id not in unwritten and order.id not in self._unremoved]
        return [*found, *unwritten.values()]

    async def write(self, ledger: LedgerOrders) -> None:
        """Tell the ledger what it does not know yet.

        Raises:
            CannotReach: it does not answer; what is left is told the next time.
        """
        for suspension in list(self._unwritten.values()):
            if not suspension.has_ended(self._now):
                await _put(ledger, suspension, self._now)
                await self._record(
                    ledger, OrderEvent.RENEWED if suspension.id in self._renewed else OrderEvent.ADDED, suspension
                )
            if self._unwritten.get(suspension.id) is suspension:
                del self._unwritten[suspension.id]
        for suspension in list(self._unremoved.values()):
            await _remove(ledger, suspension, self._now)
            await self._record(ledger, OrderEvent.REMOVED, suspension)
            if self._unremoved.get(suspension.id) is suspension:
                del self._unremoved[suspension.id]

    @property
    def _now(self) -> datetime:
        return instant_of(self.clock.micros())

    def _lasting(self, holding: Iterable[M]) -> list[M]:
        return [order for order in holding if not order.has_ended(self._now)]

    def _with(self, one: M, lasting: Sequence[M]) -> Sequence[M] | None:
        others: list[M] = [other for other in lasting if other.id != one.id]
        if sum(other.is_of_hook for other in others) >= HOLDING_MAX:
            _LOG.warning("a hook orders too much", extra={"owner": one.owner, "holding": HOLDING_MAX})
            return None
        if one.id not in self._unwritten:
            (self._renewed.discard if len(others) == len(lasting) else self._renewed.add)(one.id)
        self._unwritten[one.id] = one
        self._unremoved.pop(one.id, None)
        return [*others, one]

    async def _record(self, ledger: LedgerOrders, event: OrderEvent, one: MadeSuspension | MadeCondition) -> None:
        """Keep in the history what was done; where that fails it is done all the same."""
        try:
            await ledger.history.put(OrderRecord(self.clock.new_uuid(), event, one, one.owner))
        except MailmendError as error:
            shown = {"event": event.value, "id": str(one.id), "owner": one.owner, "error": str(error)}
            _LOG.warning("what a hook orders cannot be written into the history", extra=shown)

    def _without(self, ended: Sequence[M], lasting: Sequence[M]) -> Sequence[M] | None:
        for order in ended:
            self._unwritten.pop(order.id, None)
            self._unremoved[order.id] = order
        return [order for order in lasting if order not in ended] if ended else None


def _suffices(one: MadeSuspension | MadeCondition, order: HookOrder, now: datetime) -> bool:
    """Whether half of the time is left: nothing is written before."""
    return one.ends_at is not None and one.ends_at - now >= order.lasts / 2


async def _put(ledger: LedgerOrders, one: MadeSuspension | MadeCondition, now: datetime) -> None:
    if isinstance(one, MadeSuspension):
        await ledger.suspensions.put(one, now)
    else:
        await ledger.conditions.put(one, now)


async def _remove(ledger: LedgerOrders, one: MadeSuspension | MadeCondition, now: datetime) -> None:
    if isinstance(one, MadeSuspension):
        await ledger.suspensions.remove(one, now)
    else:
        await ledger.conditions.remove(one, now)
