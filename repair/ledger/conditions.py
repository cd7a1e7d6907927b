"""Run-time conditions in the ledger: limits that people and hooks set for a while, for every server of a queue."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from model.catalog.ledger import DELIVERY_CONDITION
from model.errors import WrongUse
from model.ids import QueueName
from model.instants import micros_at
from model.operations import Put, Read
from model.pickup.conditions import MadeCondition
from model.pickup.policy import Threshold
from model.pickup.rates import DeliveryRate
from model.ports import AsyncTables
from model.schema.table import Row
from model.texts import noted
from repair.ledger.expiring import kept_seconds, put_order, remove_order

_LIMITS: Final = frozenset({"concurrency", "rate", "connect_interval", "stop", "cluster"})


@dataclass(frozen=True, slots=True)
class LedgerConditions:
    """The run-time conditions of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, made: MadeCondition, now: datetime) -> None:
        """Keep it durably until its end; `now` is the time of the call.

        Raises:
            Outweighed: it is not in force: a removal by a clock that is ahead hides it.
        """
        key = DELIVERY_CONDITION.key_row((self.keyspace, made.queue, made.id))
        row = {**key, **condition_cells(made)}
        put = Put(DELIVERY_CONDITION, row, clear=True, ttl_seconds=kept_seconds(made.ends_at, now))
        await put_order(self.tables, put, micros_at(now))

    async def of(self, queue: QueueName) -> Sequence[MadeCondition]:
        """All that hold, in the order in which they are tested; for a moment also some that have ended.

        Raises:
            WrongUse: one whose limits this version does not know.
        """
        seen = await self.tables.read(Read(DELIVERY_CONDITION, (self.keyspace, queue)))
        return sorted((condition_of(one.row) for one in seen), key=lambda one: one.rank)

    async def find(self, queue: QueueName, condition_id: UUID) -> MadeCondition | None:
        seen = await self.tables.read(Read(DELIVERY_CONDITION, (self.keyspace, queue, condition_id)))
        return condition_of(seen[0].row) if seen else None

    async def remove(self, made: MadeCondition, now: datetime) -> None:
        """Remove it, also where another host's clock is ahead; `now` is the time of the call.

        Raises:
            Outweighed: it is still in force.
        """
        await remove_order(self.tables, DELIVERY_CONDITION, (self.keyspace, made.queue, made.id), micros_at(now))


def condition_cells(made: MadeCondition) -> Row:
    """All but its key."""
    return {
        "fields": json.dumps(made.fields),
        "matches": json.dumps(made.values),
        "limits": json.dumps(_limits(made.threshold)),
        "owner": noted(made.owner),
        "reason": noted(made.reason),
        "madeat": made.made_at,
        "endsat": made.ends_at,
    }


def _limits(threshold: Threshold) -> Mapping[str, Any]:
    rate = threshold.rate
    return {
        "concurrency": threshold.concurrency,
        "rate": [rate.count, rate.interval] if rate else None,
        "connect_interval": threshold.connect_interval,
        "stop": threshold.stop,
        **({} if threshold.cluster else {"cluster": False}),  # versions that do not know it refuse only what needs it
    }


def condition_of(row: Row) -> MadeCondition:
    """The condition that a row keeps.

    Raises:
        WrongUse: its limits are not known to this version.
    """
    limits: Mapping[str, Any] = json.loads(row.get("limits") or "{}")
    if unknown := sorted(limits.keys() - _LIMITS):
        raise WrongUse(f"the condition {row['condition']} has limits that are not known here: {', '.join(unknown)}")
    values: Mapping[str, Sequence[str]] = json.loads(row.get("matches") or "{}")
    rate = limits.get("rate")
    return MadeCondition(
        id=row["condition"],
        queue=QueueName(row["queuename"]),
        fields=tuple(json.loads(row.get("fields") or "[]")),
        values={name: tuple(texts) for name, texts in values.items()},
        threshold=Threshold(
            concurrency=limits.get("concurrency"),
            rate=DeliveryRate(*rate) if rate else None,
            connect_interval=limits.get("connect_interval"),
            stop=bool(limits.get("stop")),
            cluster=bool(limits.get("cluster", True)),
        ),
        owner=row.get("owner") or "",
        reason=row.get("reason") or "",
        made_at=row["madeat"],
        ends_at=row.get("endsat"),
    )
