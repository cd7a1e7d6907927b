"""Orders for the deliveries of one mail keyspace's queues in the ledger, and the history of their changes.

Suspensions and conditions have a table each. A row that a later version wrote, or that is damaged, does not stop the
reading of the other rows:
- A suspension that does not tell its mails holds every mail, because a mail that waits can still go, and a mail that
went cannot come back.
- A condition whose limits cannot be read lets no delivery begin of the mails that it names: the limits may be there to
stop these mails.
- A condition that does not tell its mails is parked, and the limits of the policy file hold: a suspension is the order
that stops every mail of a queue.

A row of the history is written after the change that it tells of, and not together with it: where a process is killed
in between, the change has no row. Rows of the history expire after 30 days.

`LedgerPolicies` keeps what the servers of a queue count by: it tells which conditions set limits, and which do not.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

from mailmend.delivery.ledger.intents import LedgerIntents
from mailmend.delivery.ledger.servers import LedgerServers
from mailmend.delivery.policy.covering import pattern_text
from mailmend.delivery.policy.orders import NOTHING_BEGINS, Order, OrderKind, ServedPolicies
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    field_named,
    kept_pattern,
)
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.model.catalog.ledger import (
    DELIVERY_CONDITION,
    DELIVERY_ORDER_HISTORY,
    DELIVERY_POLICIES,
    DELIVERY_SUSPENSION,
    day_of,
    days_back,
)
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName, micros_of
from mailmend.model.instants import instant_of, micros_at
from mailmend.model.operations import Put, Read, Remove, Scan
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row
from mailmend.model.texts import noted
from mailmend.repair.ledger.expiring import kept_seconds, put_order, remove_order

ORDER_TABLES: Final = {OrderKind.SUSPENSION: DELIVERY_SUSPENSION, OrderKind.CONDITION: DELIVERY_CONDITION}
"""The table of each kind; the column of an order's id has the kind's name."""

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""When a condition was made whose row does not say it."""

_LIMITS: Final = frozenset({"concurrency", "rate", "connect_interval", "stop", "cluster"})


_LOG: Final = logging.getLogger("mailmend.delivery")

SAID_FOR: Final = timedelta(minutes=5)
"""How long what a server said is there, unless it says it again."""


class _UnreadRow(ValueError):
    """What cannot be read of a row, in words."""


class OrderEvent(Enum):
    """What was done; the value is its name in rows."""

    ADDED = "added"
    RENEWED = "renewed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """What was done to an order.

    Attributes:
        id: a version-1 UUID; its time is when it was done.
        order: as it was after the change; where it was removed, before.
        by: who did it.
    """

    id: UUID
    event: OrderEvent
    order: Order
    by: str

    @property
    def at(self) -> datetime:
        return instant_of(micros_of(self.id))


@dataclass(frozen=True, slots=True)
class LedgerPolicies:
    """What the servers of one mail keyspace's queues count by.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, queue: QueueName, said: ServedPolicies) -> None:
        cells = {
            "algorithm": said.algorithm.value,
            "policies": json.dumps([_policy_cells(policy) for policy in said.policies]),
            "saidat": said.said_at,
        }
        row = DELIVERY_POLICIES.key_row((self.keyspace, queue, said.server)) | cells
        await self.tables.write(Put(DELIVERY_POLICIES, row, ttl_seconds=round(SAID_FOR.total_seconds())))

    async def of(self, queue: QueueName) -> Sequence[ServedPolicies]:
        """Of each server that is at work, or was a moment ago; without conditions and limits.

        What cannot be read is left out, and the log says so: a server of a later version said it, or it is damaged.
        """
        seen = await self.tables.read(Read(DELIVERY_POLICIES, (self.keyspace, queue)))
        found = list[ServedPolicies]()
        for stored in seen:
            try:
                found.append(_said(stored.row))
            except (WrongUse, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                shown = {"queue": queue, "server": stored.row["server"], "error": str(error)}
                _LOG.warning("what a server counts by cannot be read", extra=shown)
        return found

    async def remove(self, queue: QueueName, server: str) -> None:
        await self.tables.write(Remove(DELIVERY_POLICIES, (self.keyspace, queue, server)))


@dataclass(frozen=True, slots=True)
class LedgerOrders:
    """What is ordered for the queues of one mail keyspace, what was done to it, and who delivers.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.
    """

    tables: AsyncTables
    keyspace: str

    async def put(self, order: Order, now: datetime) -> None:
        """Keep it durably until its end; `now` is the time of the call.

        Raises:
            Outweighed: it is not in force: a removal by a clock that is ahead hides it.
        """
        table = ORDER_TABLES[order.kind]
        row = {**table.key_row((self.keyspace, order.queue, order.id)), **_cells(order)}
        put = Put(table, row, clear=True, ttl_seconds=kept_seconds(order.ends_at, now))
        await put_order(self.tables, put, micros_at(now))

    async def of(self, kind: OrderKind, queue: QueueName) -> Sequence[Order]:
        """All orders of a kind that hold; for a moment also some that have ended.

        Suspensions have the order in which they were made, conditions the order in which they are tested.
        """
        seen = await self.tables.read(Read(ORDER_TABLES[kind], (self.keyspace, queue)))
        orders = [_order_of(kind, stored.row) for stored in seen]
        if kind is OrderKind.CONDITION:
            orders.sort(key=lambda order: order.rank)
        return orders

    async def find(self, kind: OrderKind, queue: QueueName, order_id: UUID) -> Order | None:
        seen = await self.tables.read(Read(ORDER_TABLES[kind], (self.keyspace, queue, order_id)))
        if not seen:
            return None
        return _order_of(kind, seen[0].row)

    async def remove(self, order: Order, now: datetime) -> None:
        """Remove it, also where another host's clock is ahead; `now` is the time of the call.

        Raises:
            Outweighed: it is still in force.
        """
        key = (self.keyspace, order.queue, order.id)
        await remove_order(self.tables, ORDER_TABLES[order.kind], key, micros_at(now))

    async def put_record(self, record: OrderRecord) -> None:
        """Keep what was done.

        Raises:
            MailmendError: the ledger does not answer, or has no such table.
        """
        order = record.order
        key = (self.keyspace, order.queue, order.kind.value, day_of(record.id), record.id)
        row = {**_cells(order), "orderid": order.id, "event": record.event.value, "changedby": noted(record.by)}
        await self.tables.write(Put(DELIVERY_ORDER_HISTORY, DELIVERY_ORDER_HISTORY.key_row(key) | row))

    async def records(self, kind: OrderKind, queue: QueueName, now_micros: int, limit: int) -> Sequence[OrderRecord]:
        """What was done last to the orders of a kind, newest first, at most `limit`."""
        found = list[OrderRecord]()
        for day in days_back(now_micros):
            under = (self.keyspace, queue, kind.value, day)
            scan = Scan(DELIVERY_ORDER_HISTORY, DELIVERY_ORDER_HISTORY.names, under=under, limit=limit - len(found))
            async for row in self.tables.scan(scan):
                order = _order_of(kind, {**row, kind.value: row["orderid"]})
                found.append(OrderRecord(row["at"], OrderEvent(row["event"]), order, row.get("changedby") or ""))
            if len(found) >= limit:
                break
        return found

    @property
    def intents(self) -> LedgerIntents:
        return LedgerIntents(self.tables, self.keyspace)

    @property
    def policies(self) -> LedgerPolicies:
        return LedgerPolicies(self.tables, self.keyspace)

    @property
    def servers(self) -> LedgerServers:
        return LedgerServers(self.tables, self.keyspace)


def _cells(order: Order) -> Row:
    """All cells of an order but its key."""
    cells: Row = {"owner": noted(order.owner), "reason": noted(order.reason), "endsat": order.ends_at}
    if order.kind is OrderKind.SUSPENSION:
        return {**cells, "fields": json.dumps(order.values)}
    return {
        **cells,
        "fields": json.dumps(order.fields),
        "matches": json.dumps(order.values),
        "limits": json.dumps(_limits(order.threshold)),
        "madeat": order.made_at,
    }


def _limits(threshold: Threshold) -> Mapping[str, Any]:
    rate = None
    if threshold.rate:
        rate = [threshold.rate.count, threshold.rate.interval]
    limits: dict[str, Any] = {
        "concurrency": threshold.concurrency,
        "rate": rate,
        "connect_interval": threshold.connect_interval,
        "stop": threshold.stop,
    }
    if not threshold.cluster:  # versions that do not know it refuse only what needs it
        limits["cluster"] = False
    return limits


def _order_of(kind: OrderKind, row: Row) -> Order:
    """The order that a row keeps; where it cannot be read, its `damage` says why."""
    order_id = row[kind.value]
    made_at = row.get("madeat") or LONG_AGO
    values: Mapping[str, tuple[str, ...]] = {}
    fields: tuple[str, ...] = ()
    threshold = NOTHING_BEGINS
    has_scope = kind is OrderKind.SUSPENSION
    damage = ""
    try:
        if kind is OrderKind.SUSPENSION:
            made_at = instant_of(micros_of(order_id))
            values = _named_texts_in(_json_in(row, "fields"), "fields")
        else:
            fields = _texts_in(_json_in(row, "fields"), "fields")
            values = _named_texts_in(_json_in(row, "matches"), "matches")
            has_scope = True
            threshold = _threshold_in(_json_in(row, "limits"))
    except _UnreadRow as error:
        damage = str(error)
    return Order(
        kind=kind,
        id=order_id,
        queue=QueueName(row["queuename"]),
        values=values,
        fields=fields,
        threshold=threshold,
        owner=row.get("owner") or "",
        reason=row.get("reason") or "",
        made_at=made_at,
        ends_at=row.get("endsat"),
        damage=damage,
        has_scope=has_scope,
    )


def _threshold_in(limits: Any) -> Threshold:
    """The limits of a row.

    Raises:
        _UnreadRow: limits of a later version, or of another shape.
    """
    if not isinstance(limits, Mapping):
        raise _UnreadRow("its limits are damaged")
    if unknown := sorted(limits.keys() - _LIMITS):
        raise _UnreadRow(f"it has limits that are not known here: {', '.join(unknown)}")
    given = limits.get("rate")
    try:
        rate = None
        if given is not None:
            rate = DeliveryRate(_whole(given[0]), _whole(given[1]))
        return Threshold(
            concurrency=_count_in(limits.get("concurrency")),
            rate=rate,
            connect_interval=_count_in(limits.get("connect_interval")),
            stop=bool(limits.get("stop")),
            cluster=bool(limits.get("cluster", True)),
        )
    except (TypeError, LookupError, WrongUse) as error:
        raise _UnreadRow("its limits are damaged") from error


def _count_in(given: Any) -> int | None:
    if given is None:
        return None
    return _whole(given)


def _whole(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise TypeError("no whole number from 0")
    return given


def _json_in(row: Row, column: str) -> Any:
    """The value that a column keeps as JSON.

    Raises:
        _UnreadRow: the column is empty, or no JSON.
    """
    text = row.get(column)
    if not isinstance(text, str):
        raise _UnreadRow(f"its column {column} is empty")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadRow(f"its column {column} is no JSON") from error


def _texts_in(found: Any, column: str) -> tuple[str, ...]:
    """A list of texts.

    Raises:
        _UnreadRow: it is something else.
    """
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise _UnreadRow(f"its column {column} is damaged")
    return tuple(found)


def _named_texts_in(found: Any, column: str) -> Mapping[str, tuple[str, ...]]:
    """Lists of texts by name.

    Raises:
        _UnreadRow: it is something else.
    """
    if not isinstance(found, Mapping):
        raise _UnreadRow(f"its column {column} is damaged")
    return {name: _texts_in(texts, column) for name, texts in found.items()}


def _policy_cells(policy: CounterPolicy) -> Mapping[str, Any]:
    groups = dict[str, list[Any]]()
    for named, some in policy.groups.items():
        groups[named.value] = [[group.name, list(map(pattern_text, group.patterns))] for group in some]
    return {"fields": [named.value for named in policy.fields], "groups": groups}


def _said(row: Row) -> ServedPolicies:
    return ServedPolicies(
        server=row["server"],
        algorithm=RateAlgorithm(row["algorithm"]),
        policies=tuple(_policy(policy) for policy in json.loads(row["policies"])),
        said_at=row["saidat"],
    )


def _policy(cells: Mapping[str, Any]) -> CounterPolicy:
    groups = dict[PickupField, tuple[FieldGroup, ...]]()
    for name, some in cells["groups"].items():
        named = field_named(name)
        read = list[FieldGroup]()
        for group, texts in some:
            read.append(FieldGroup(group, tuple(kept_pattern(named, text) for text in texts)))
        groups[named] = tuple(read)
    return CounterPolicy(tuple(map(field_named, cells["fields"])), groups)
