"""What hooks order in addition to their decisions: this server obeys at once; the ledger keeps it for the others.

No attempt waits for the ledger. Until it has an order, the order holds here alone, in addition to
all that is read meanwhile.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.orders import LedgerOrders, OrderEvent, OrderRecord
from mailmend.delivery.mail.hooks import HookOrder, order_of
from mailmend.delivery.policy.orders import Order, OrderKind
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.ports import Clock

HOLDING_MAX: Final = 1_000
"""The maximum number of suspensions of hooks in a queue, and also of conditions; a further one is not taken."""

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, eq=False)
class HookOrders:
    """Orders of the hooks of one server, until the ledger has them."""

    queue: QueueName
    clock: Clock
    _unwritten: dict[UUID, Order] = field(default_factory=dict)
    _unremoved: dict[UUID, Order] = field(default_factory=dict)
    _renewed: set[UUID] = field(default_factory=set)

    def ordered(self, given: HookOrder, owner: str, holding: Iterable[Order]) -> Sequence[Order] | None:
        """The orders that hold after this one, of all that hold of its kind; None where nothing changes."""
        now = self._now
        order = order_of(given, self.queue, owner, now, self.clock.new_uuid())
        lasting = [other for other in holding if not other.has_ended(now)]
        same = [other for other in lasting if other.owner == owner and other.has_scope_of(order)]
        if not given.lasts:
            return self._without(same, lasting)
        for other in same:
            # Half of its time is left: nothing is written before.
            suffices = other.ends_at is not None and other.ends_at - now >= given.lasts / 2
            if suffices and other.threshold == order.threshold:
                return None
        if same:
            order = replace(order, id=same[0].id, made_at=same[0].made_at)
        return self._with(order, lasting)

    def beside(self, read: Sequence[Order], kind: OrderKind) -> Sequence[Order]:
        """What holds of a kind by a reading, with what the ledger has not been told yet."""
        unwritten = {order.id: order for order in self._unwritten.values() if order.kind is kind}
        found = [order for order in read if order.id not in unwritten and order.id not in self._unremoved]
        return [*found, *unwritten.values()]

    async def write(self, ledger: LedgerOrders) -> None:
        """Tell the ledger what it does not know yet.

        Raises:
            CannotReach: it does not answer; what is left is told the next time.
        """
        for order in list(self._unwritten.values()):
            if not order.has_ended(self._now):
                await ledger.put(order, self._now)
                event = OrderEvent.RENEWED if order.id in self._renewed else OrderEvent.ADDED
                await self._record(ledger, event, order)
            if self._unwritten.get(order.id) is order:
                del self._unwritten[order.id]
        for order in list(self._unremoved.values()):
            await ledger.remove(order, self._now)
            await self._record(ledger, OrderEvent.REMOVED, order)
            if self._unremoved.get(order.id) is order:
                del self._unremoved[order.id]

    @property
    def _now(self) -> datetime:
        return instant_of(self.clock.micros())

    def _with(self, order: Order, lasting: Sequence[Order]) -> Sequence[Order] | None:
        others = [other for other in lasting if other.id != order.id]
        if sum(other.is_of_hook for other in others) >= HOLDING_MAX:
            _LOG.warning("a hook orders too much", extra={"owner": order.owner, "holding": HOLDING_MAX})
            return None
        if order.id not in self._unwritten:
            if len(others) == len(lasting):
                self._renewed.discard(order.id)
            else:
                self._renewed.add(order.id)
        self._unwritten[order.id] = order
        self._unremoved.pop(order.id, None)
        return [*others, order]

    def _without(self, ended: Sequence[Order], lasting: Sequence[Order]) -> Sequence[Order] | None:
        for order in ended:
            self._unwritten.pop(order.id, None)
            self._unremoved[order.id] = order
        return [order for order in lasting if order not in ended] if ended else None

    async def _record(self, ledger: LedgerOrders, event: OrderEvent, order: Order) -> None:
        """Keep in the history what was done; where that fails it is done all the same."""
        try:
            await ledger.put_record(OrderRecord(self.clock.new_uuid(), event, order, order.owner))
        except MailmendError as error:
            shown = {"event": event.value, "id": str(order.id), "owner": order.owner, "error": str(error)}
            _LOG.warning("what a hook orders cannot be written into the history", extra=shown)
