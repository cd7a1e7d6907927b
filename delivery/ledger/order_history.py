"""The history of suspensions and conditions in the ledger: what was made, renewed and removed, by whom, and why.

A row is written behind the change that it tells of, and not together with it: a process that is killed in between has
changed something, and no row says so. Rows expire after 30 days.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from mailmend.delivery.ledger.conditions import condition_cells, condition_of
from mailmend.delivery.ledger.suspensions import suspension_cells, suspension_of
from mailmend.delivery.policy.conditions import MadeCondition
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.model.catalog.ledger import DELIVERY_ORDER_HISTORY, day_of, days_back
from mailmend.model.ids import QueueName, micros_of
from mailmend.model.instants import instant_of
from mailmend.model.operations import Put, Scan
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted

M = TypeVar("M", bound=MadeSuspension | MadeCondition)


class OrderEvent(Enum):
    """What was done; the value is its name in rows."""

    ADDED = "added"
    RENEWED = "renewed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class OrderRecord(Generic[M]):
    """What was done to a suspension or condition.

    Attributes:
        id: a version-1 UUID; its time is when it was done.
        made: as it was behind that; where it was removed, before.
        by: who did it.
    """

    id: UUID
    event: OrderEvent
    made: M
    by: str

    @property
    def at(self) -> datetime:
        return instant_of(micros_of(self.id))


@dataclass(frozen=True, slots=True)
class LedgerOrderHistory:
    """What was done to the suspensions and conditions of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, record: OrderRecord[M]) -> None:
        """Keep it.

        Raises:
            MailmendError: the ledger does not answer, or has no such table.
        """
        made = record.made
        cells = suspension_cells(made) if isinstance(made, MadeSuspension) else condition_cells(made)
        key = (self.keyspace, made.queue, _KINDS[type(made)], day_of(record.id), record.id)
        row = {**cells, "orderid": made.id, "event": record.event.value, "changedby": noted(record.by)}
        await self.tables.write(Put(DELIVERY_ORDER_HISTORY, DELIVERY_ORDER_HISTORY.key_row(key) | row))

    async def of(self, kind: type[M], queue: QueueName, now_micros: int, limit: int) -> Sequence[OrderRecord[M]]:
        """What was done last to the suspensions, or to the conditions, of a queue, newest first, at most `limit`."""
        found = list[OrderRecord[M]]()
        for day in days_back(now_micros):
            under = (self.keyspace, queue, _KINDS[kind], day)
            scan = Scan(DELIVERY_ORDER_HISTORY, DELIVERY_ORDER_HISTORY.names, under=under, limit=limit - len(found))
            found += [_record(kind, row) async for row in self.tables.scan(scan)]
            if len(found) >= limit:
                break
        return found


_KINDS: Final[Mapping[type[Any], str]] = {
    MadeSuspension: "suspension",
    MadeCondition: "condition",
}


def _record(kind: type[M], row: Row) -> OrderRecord[M]:
    name = _KINDS[kind]
    made: Any = (suspension_of if name == "suspension" else condition_of)({**row, name: row["orderid"]})
    return OrderRecord(row["at"], OrderEvent(row["event"]), made, row.get("changedby") or "")
