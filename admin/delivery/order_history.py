"""What was done to suspensions and conditions: kept behind each change, and listed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.queue.connections import QueueConnections
from mailmend.admin.queue.request import QueueAnswer, QueueRequest
from mailmend.delivery.ledger.order_history import OrderEvent, OrderRecord
from mailmend.delivery.policy.conditions import MadeCondition
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.model.errors import MailmendError

HISTORY_SHOWN: Final = 100
"""So many changes are listed, the newest ones, unless it is said otherwise."""

M = TypeVar("M", bound=MadeSuspension | MadeCondition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOrdersRequest(QueueRequest):
    """List what holds now, or with `history` what was done in the last 30 days, at most `limit` changes."""

    history: bool = False
    limit: int = HISTORY_SHOWN


@dataclass(frozen=True, slots=True)
class OrderHistory(Generic[M]):
    """What was done, newest first."""

    records: Sequence[OrderRecord[M]]
    limit: int


async def keep_record(connections: QueueConnections, event: OrderEvent, made: M, caller: Caller) -> None:
    """Keep in the history what was done; where that fails it is done all the same, and the caller is told."""
    record = OrderRecord(connections.clock.new_uuid(), event, made, caller.name or owner_name())
    try:
        await connections.orders().history.put(record)
    except MailmendError as error:
        caller.remark(f"This is done, and cannot be written into the history: {error.what}")


async def history_listed(
    kind: type[M], request: ListOrdersRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[ListOrdersRequest, OrderHistory[M]]:
    """Reading it creates no ledger."""
    ledger = connections.existing_history()
    now = connections.clock.micros()
    records = await ledger.of(kind, request.queue, now, request.limit) if ledger else ()
    return QueueAnswer(request, OrderHistory(records, request.limit))
