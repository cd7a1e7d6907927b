"""What suspensions and conditions share: which hold, how one ends, and the history of changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import plain, printable, shown
from mailmend.admin.queue.connections import QueueConnections
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, QueueRequest
from mailmend.admin.queue.values import queue_document
from mailmend.delivery.ledger.order_history import OrderEvent, OrderRecord
from mailmend.delivery.policy.conditions import MadeCondition
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.model.errors import MailmendError, NotThere
from mailmend.model.ids import QueueName

HISTORY_SHOWN: Final = 100
"""How many of the newest changes are listed by default."""

M = TypeVar("M", bound=MadeSuspension | MadeCondition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOrdersRequest(QueueRequest):
    """List what holds now, or with `history` what was done in the last 30 days, at most `limit` changes."""

    history: bool = False
    limit: int = HISTORY_SHOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrderRequest(DryRunRequest):
    """End an order before its time."""

    id: UUID


@dataclass(frozen=True, slots=True)
class OrderHistory(Generic[M]):
    """What was done, newest first."""

    records: Sequence[OrderRecord[M]]
    limit: int


class OrderLedger(Protocol[M]):
    """The table of one kind of orders."""

    async def of(self, queue: QueueName) -> Sequence[M]: ...

    async def find(self, queue: QueueName, order_id: UUID, /) -> M | None: ...

    async def remove(self, made: M, now: datetime) -> None: ...


async def remark_if_unused(queue: QueueName, caller: Caller, connections: QueueConnections) -> None:
    """Tell the caller where no mail was ever in the queue: its name may be mistyped."""
    if queue not in await connections.names(everything=True):
        doubt = f"No mail was ever in {queue}: is it the right queue?"
        caller.remark(f"{doubt} See: mailmend queue list")


async def holding(ledger: OrderLedger[M] | None, queue: QueueName, now: datetime) -> list[M]:
    """The orders of a queue that have not ended, in the ledger's order; empty without a table."""
    if ledger is None:
        return []
    return [order for order in await ledger.of(queue) if not order.has_ended(now)]


async def removed(
    ledger: OrderLedger[M] | None,
    request: RemoveOrderRequest,
    caller: Caller,
    connections: QueueConnections,
    missing: NotThere,
) -> M:
    """End an order, unless the request is a dry run; the order.

    Raises:
        NotThere: the error `missing`, where the queue has no such order.
    """
    found = await ledger.find(request.queue, request.id) if ledger else None
    if ledger is None or found is None or found.has_ended(connections.now):
        raise missing
    if not request.dry_run:
        await ledger.remove(found, connections.now)
        await keep_record(connections, OrderEvent.REMOVED, found, caller)
    return found


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


_NO_END: Final = "it is removed"
"""What ends an order that has no time of its own."""


def until_text(ends_at: datetime | None) -> str:
    """Until when an order holds, within a sentence."""
    if ends_at is None:
        return f"until {_NO_END}"
    return f"until {shown(ends_at)}"


def end_cell(ends_at: datetime | None) -> str:
    """When an order ends, as the cell of a table."""
    if ends_at is None:
        return f"when {_NO_END}"
    return shown(ends_at)


def unread_text(made: MadeSuspension | MadeCondition, why: str, effect: str, remedy: str, removal: str) -> str:
    """What an order does that cannot be read, and how to mend that.

    Args:
        made: the order.
        why: what cannot be read.
        effect: what it does all the same.
        remedy: what to order anew.
        removal: the command that removes an order, without its queue and id.
    """
    return printable(
        f"{made.id} cannot be read: {why}. Until {_NO_END} it {effect}. "
        f"{remedy} in a way that can be read, then: {removal} {made.queue} {made.id}"
    )


def history_document(
    result: QueueAnswer[QueueRequest, Any],
    history: OrderHistory[M],
    named: str,
    said: Callable[[M], str],
    as_json: Callable[[M], Mapping[str, Any]],
) -> Document:
    """A history.

    Args:
        result: the answer.
        history: what it found.
        named: what they are, as the JSON calls one.
        said: which mails one is of, and its limits.
        as_json: one as JSON.
    """
    queue = result.request.queue
    records = history.records
    limit = history.limit
    json = {
        "history": [
            {"id": record.id, "at": record.at, "event": record.event, "by": record.by, named: as_json(record.made)}
            for record in records
        ]
    }
    if not records:
        return queue_document(result, plain(json), (f"No {named} of {queue} was changed in the last 30 days.",))
    columns = ("when", "what", "by", named, "ends", "why", "id")
    rows = [
        (
            shown(record.at),
            record.event.value,
            printable(record.by),
            said(record.made),
            end_cell(record.made.ends_at),
            printable(record.made.reason),
            str(record.made.id),
        )
        for record in records
    ]
    grid = Grid(f"What was done to each {named} of {queue}, newest first", columns, rows, frozenset({"by", named}))
    body = (grid, f"These are the newest {limit:,}; more: --changes.") if len(records) == limit else (grid,)
    return queue_document(result, plain(json), body)


HISTORY_OPTIONS: Final = (
    flag("--history", "What was made, renewed and removed in the last 30 days, by whom and why, newest first."),
    option(
        "--changes",
        "With --history: maximum number of changes.",
        "limit",
        type=click.IntRange(1, 100_000),
        default=HISTORY_SHOWN,
        metavar="N",
    ),
)
"""What was done, in place of what holds."""
