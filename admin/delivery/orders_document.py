"""Orders for the deliveries of a queue, as people and programs read them: the answers of the commands and of HTTP."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from mailmend.admin.delivery.answers import LISTED_ORDERS, ORDER_HISTORY, ORDERED
from mailmend.admin.delivery.orders import WORDS, AddOrderRequest, ListOrdersRequest, OrderState, RemoveOrderRequest
from mailmend.admin.delivery.policy_texts import limits_text
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import NOTHING_WRITTEN, printable, shown
from mailmend.admin.queue.request import QueueAnswer, queue_document
from mailmend.delivery.ledger.orders import OrderRecord
from mailmend.delivery.policy.orders import Order, OrderKind

_NO_END: Final = "it is removed"
"""What ends an order that has no time of its own."""


def add_document(result: QueueAnswer[AddOrderRequest, OrderState]) -> Document:
    request = result.request
    state = result.found
    order = state.order
    words = WORDS[order.kind]
    json = ORDERED[order.kind].json(result)
    said = f"{request.queue}: {_effect(order)}, {until_text(order.ends_at)}."
    if request.dry_run:
        lines = [f"{NOTHING_WRITTEN} {words.would_be_added} {said}", *_on_servers(state)]
        return queue_document(result, json, lines)
    removal = f"mailmend {words.command} remove {request.queue} {order.id}"
    lines = [
        f"{words.added} {said}",
        *_on_servers(state),
        f"Its servers heed it within seconds; {words.under_way}. {removal}",
    ]
    return queue_document(result, json, lines)


def remove_document(result: QueueAnswer[RemoveOrderRequest, OrderState]) -> Document:
    request = result.request
    order = result.found.order
    words = WORDS[order.kind]
    json = ORDERED[order.kind].json(result)
    line = f"{words.removed} {request.queue}, within seconds: {_effect(order)}."
    if request.dry_run:
        line = f"{NOTHING_WRITTEN} {words.would_be_removed} {request.queue}: {_effect(order)}."
    return queue_document(result, json, (line,))


def list_document(result: QueueAnswer[ListOrdersRequest, Sequence[OrderState | OrderRecord]]) -> Document:
    request = result.request
    if request.history:
        return _history_document(result, [record for record in result.found if isinstance(record, OrderRecord)])
    states = [state for state in result.found if isinstance(state, OrderState)]
    words = WORDS[request.kind]
    json = LISTED_ORDERS[request.kind].json(result)
    if not states:
        return queue_document(result, json, (f"{words.empty} {request.queue}.",))
    rows = [_listed(state) for state in states]
    cells = [tuple(row.values()) for row in rows]
    body: list[Part] = [Grid(f"{words.title} {request.queue}", tuple(rows[0]), cells, words.wrapped)]
    for state in states:
        body += _unread_texts(state.order)
    return queue_document(result, json, body)


def _listed(state: OrderState) -> dict[str, str]:
    """The cells of an order in a list, by their columns."""
    order = state.order
    times_and_owner = {
        "made": shown(order.made_at),
        "ends": _end_cell(order.ends_at),
        "by": printable(order.owner),
        "why": printable(order.reason),
    }
    if order.kind is OrderKind.SUSPENSION:
        return {"id": str(order.id), "which mails": _which(order), **times_and_owner}
    return {
        "id": str(order.id),
        "for": _which(order),
        "limits": _limits_of(order),
        **times_and_owner,
        "on servers": "; ".join(_on_servers(state)),
    }


def _history_document(
    result: QueueAnswer[ListOrdersRequest, Sequence[OrderState | OrderRecord]], records: Sequence[OrderRecord]
) -> Document:
    queue = result.request.queue
    limit = result.request.limit
    kind = result.request.kind.value
    json = ORDER_HISTORY[result.request.kind].json(result)
    if not records:
        return queue_document(result, json, (f"No {kind} of {queue} was changed in the last 30 days.",))
    columns = ("when", "what", "by", kind, "ends", "why", "id")
    rows = [_record_row(record) for record in records]
    title = f"What was done to each {kind} of {queue}, newest first"
    body: list[Part] = [Grid(title, columns, rows, frozenset({"by", kind}))]
    if len(records) == limit:
        body.append(f"These are the newest {limit:,}; more: --changes.")
    return queue_document(result, json, body)


def _record_row(record: OrderRecord) -> tuple[str, ...]:
    order = record.order
    return (
        shown(record.at),
        record.event.value,
        printable(record.by),
        _effect(order, _limits_of(order)),
        _end_cell(order.ends_at),
        printable(order.reason),
        str(order.id),
    )


def _effect(order: Order, limits: str = "") -> str:
    """Which mails an order is of, and the limits of a condition."""
    if order.kind is OrderKind.SUSPENSION:
        return _which(order)
    return f"{limits or limits_text(order.threshold)}, for {_which(order)}"


def _which(order: Order) -> str:
    is_suspension = order.kind is OrderKind.SUSPENSION
    if is_suspension and order.damage:
        return "every mail, as it cannot be read"
    if not order.has_scope:
        return "what cannot be read"
    named = ", ".join(f"{name} {' or '.join(texts)}" for name, texts in order.values.items())
    if is_suspension:
        return printable(named) or "every mail"
    counted = ", ".join(order.fields) or "everything together"
    return printable(f"{named or 'all'} of what is counted by {counted}")


def _limits_of(order: Order) -> str:
    limits = limits_text(order.threshold)
    if order.damage:
        return f"{limits}, as it cannot be read"
    return limits


def _unread_texts(order: Order) -> Iterator[str]:
    """What an order does that cannot be read, and how to mend that."""
    if order.kind is OrderKind.SUSPENSION:
        why = "; ".join(order.unread)
        effect = "holds every mail that its other fields name"
        if order.holds_every_mail:
            effect = "holds every mail"
    else:
        why = order.damage
        effect = "sets no limits, and the limits of the policy files hold"
        if order.has_scope:
            effect = "lets no such mail begin"
    if why:
        words = WORDS[order.kind]
        removal = f"mailmend {words.command} remove {order.queue} {order.id}"
        yield printable(
            f"{order.id} cannot be read: {why}. Until {_NO_END} it {effect}. "
            f"{words.remedy} in a way that can be read, then: {removal}"
        )


def _on_servers(state: OrderState) -> Iterator[str]:
    """Where a condition sets no limits, and what it means where it does: each once, whichever servers it is of."""
    if state.order.kind is OrderKind.SUSPENSION:
        return
    if not state.servers:
        yield "No server of the queue is at work: whether a policy counts by these fields is not known."
    parked = dict[str, list[str]]()
    groups = dict[tuple[str, str], None]()
    for server, condition in state.servers:
        if condition.parked:
            parked.setdefault(condition.parked, []).append(server)
        groups |= dict.fromkeys(condition.groups.items())
    for why, servers in parked.items():
        where = "" if state.parked else f" on {', '.join(servers)}"
        yield printable(f"Parked{where}: {why}.")
    for value, group in groups:
        yield printable(f"{value} is counted as {group}: the limits are for the whole group.")


def until_text(ends_at: datetime | None) -> str:
    """Until when an order holds, within a sentence."""
    if ends_at is None:
        return f"until {_NO_END}"
    return f"until {shown(ends_at)}"


def _end_cell(ends_at: datetime | None) -> str:
    if ends_at is None:
        return f"when {_NO_END}"
    return shown(ends_at)


def suspended_text(order: Order) -> str:
    """That a suspension holds a mail, and how to end that."""
    until = until_text(order.ends_at)
    lift = f"mailmend suspend remove {order.queue} {order.id}"
    said = f"Suspended by {order.owner} since {shown(order.made_at)}, {until}: {order.reason}. To let it go: {lift}"
    return printable(said)


def set_text(order: Order) -> str:
    """Who set the limits of a condition, until when, and why."""
    until = f" until {shown(order.ends_at)}" if order.ends_at else ""
    return printable(f"{order.owner} set{until} ({order.reason})")
