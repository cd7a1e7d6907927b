"""Run-time conditions in the ledger: limits that people and hooks set for a while, for every server of a queue.

A row that a later version wrote, or that is damaged, does not stop the reading of the others. Where its limits cannot
be read, it lets no delivery begin of the mails that it names: the limits may be there to stop these mails, and a mail
that waits can still go. Where it does not tell which mails it limits, it is parked, and the limits of the policy file
hold: to stop every mail of the queue is what a suspension is for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from mailmend.delivery.ledger.unread_rows import UnreadRow, json_in, named_texts_in, texts_in
from mailmend.delivery.policy.conditions import MadeCondition
from mailmend.delivery.policy.policy import Threshold
from mailmend.delivery.policy.rates import DeliveryRate
from mailmend.model.catalog.ledger import DELIVERY_CONDITION
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.instants import micros_at
from mailmend.model.operations import Put, Read
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted
from mailmend.repair.ledger.expiring import kept_seconds, put_order, remove_order

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""When a row was made that does not say it."""

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
        """All that hold, in the order in which they are tested; for a moment also some that have ended."""
        seen = await self.tables.read(Read(DELIVERY_CONDITION, (self.keyspace, queue)))
        return sorted((condition_of(stored.row) for stored in seen), key=lambda one: one.rank)

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
    """The condition that a row keeps; where it cannot be read, its `unread` says why."""
    fields: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = {}
    threshold = Threshold(concurrency=0)
    has_target = False
    unread = ""
    try:
        fields = texts_in(json_in(row, "fields"), "fields")
        values = named_texts_in(json_in(row, "matches"), "matches")
        has_target = True
        threshold = _threshold_in(json_in(row, "limits"))
    except UnreadRow as error:
        unread = str(error)
    return MadeCondition(
        id=row["condition"],
        queue=QueueName(row["queuename"]),
        fields=fields,
        values=values,
        threshold=threshold,
        owner=row.get("owner") or "",
        reason=row.get("reason") or "",
        made_at=row.get("madeat") or LONG_AGO,
        ends_at=row.get("endsat"),
        unread=unread,
        has_target=has_target,
    )


def _threshold_in(limits: Any) -> Threshold:
    """The limits of a row.

    Raises:
        UnreadRow: limits of a later version, or of another shape.
    """
    if not isinstance(limits, Mapping):
        raise UnreadRow("its limits are damaged")
    if unknown := sorted(limits.keys() - _LIMITS):
        raise UnreadRow(f"it has limits that are not known here: {', '.join(unknown)}")
    rate = limits.get("rate")
    try:
        return Threshold(
            concurrency=_count_in(limits.get("concurrency")),
            rate=DeliveryRate(_whole(rate[0]), _whole(rate[1])) if rate is not None else None,
            connect_interval=_count_in(limits.get("connect_interval")),
            stop=bool(limits.get("stop")),
            cluster=bool(limits.get("cluster", True)),
        )
    except (TypeError, LookupError, WrongUse) as error:
        raise UnreadRow("its limits are damaged") from error


def _count_in(given: Any) -> int | None:
    return None if given is None else _whole(given)


def _whole(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise TypeError("no whole number from 0")
    return given
