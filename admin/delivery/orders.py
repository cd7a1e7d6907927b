"""Orders for the deliveries of a queue: what `suspend` and `policy add`, `list` and `remove` do, and their HTTP routes.

A suspension and a condition take the same way. They differ in what is checked, and in the words of `WORDS`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from mailmend.admin.delivery.connections import existing_orders, made_orders
from mailmend.admin.delivery.options import HISTORY_SHOWN
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import owner_name
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.request import DryRunRequest, QueueAnswer, QueueRequest
from mailmend.delivery.ledger.orders import ORDER_TABLES, OrderEvent, OrderRecord
from mailmend.delivery.policy.orders import (
    NOTHING_BEGINS,
    Order,
    OrderKind,
    PlacedCondition,
    ServedPolicies,
    new_order,
    normal_scope,
    refuse_negative_limits,
    with_conditions,
)
from mailmend.delivery.policy.policy import PatternTexts, Threshold
from mailmend.model.catalog.ledger import DELIVERY_ORDER_HISTORY, DELIVERY_POLICIES
from mailmend.model.errors import MailmendError, NotThere, WrongUse
from mailmend.model.ids import QueueName


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderWords:
    """The words for one kind of orders.

    Attributes:
        command: the group of its commands.
        look: how one begins to say where to look.
        wrapped: the columns of its list that may be wrapped.
    """

    command: str
    look: str
    would_be_added: str
    added: str
    under_way: str
    would_be_removed: str
    removed: str
    empty: str
    title: str
    wrapped: frozenset[str]
    remedy: str


WORDS: Final = {
    OrderKind.SUSPENSION: OrderWords(
        command="suspend",
        look="See what is suspended with",
        would_be_added="Would be suspended in",
        added="Suspended in",
        under_way="what is under way goes on",
        would_be_removed="Would go again in",
        removed="Go again in",
        empty="Nothing is suspended in",
        title="Suspended in",
        wrapped=frozenset({"which mails", "by"}),
        remedy="Suspend its mails again",
    ),
    OrderKind.CONDITION: OrderWords(
        command="policy",
        look="See what is set with",
        would_be_added="Would be set in",
        added="Set in",
        under_way="what is under way counts",
        would_be_removed="Would hold no longer in",
        removed="Holds no longer in",
        empty="There are no run-time conditions in",
        title="Run-time conditions in",
        wrapped=frozenset({"for", "limits", "by", "why", "on servers"}),
        remedy="Set its limits again",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOrderRequest(DryRunRequest):
    """Order something for all servers of a queue.

    Attributes:
        values: of the mails, by the name of their field; one of a field's must match, and each field.
        everything: every mail of the queue, or whatever the policies count; then no values are given.
        lasts: None: until it is removed.
        why: for those who find mails waiting.
        fields: of a condition: the fields of its policies; none: of the policies that count everything together.
        threshold: of a condition: the limits, all of them.
        unlimited: of a condition: no limit, which has to be said.
        id: of a condition; None: it follows from fields and values.
    """

    kind: OrderKind
    values: PatternTexts = field(default_factory=dict)
    everything: bool = False
    lasts: timedelta | None = None
    why: str
    fields: tuple[str, ...] = ()
    threshold: Threshold = NOTHING_BEGINS
    unlimited: bool = False
    id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOrdersRequest(QueueRequest):
    """List what holds now, or with `history` what was done in the last 30 days, at most `limit` changes."""

    kind: OrderKind
    history: bool = False
    limit: int = HISTORY_SHOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrderRequest(DryRunRequest):
    """End an order before its time."""

    kind: OrderKind
    id: UUID


@dataclass(frozen=True, slots=True)
class OrderState:
    """An order, and what a condition is to the servers of its queue.

    Attributes:
        servers: by server, that is at work or was a moment ago; none: it is not known.
    """

    order: Order
    servers: tuple[tuple[str, PlacedCondition], ...] = ()

    @property
    def parked(self) -> str:
        """Why a condition sets limits on no server; "" where it does on one, or where it is not known."""
        whys = [condition.parked for _, condition in self.servers]
        if not whys or not all(whys):
            return ""
        return whys[0]


def add_order(request: AddOrderRequest, caller: Caller) -> QueueAnswer[AddOrderRequest, OrderState]:
    """Keep an order, which every server of the queue obeys within seconds.

    An order of the same mails (and fields) that holds already is renewed: it gets these limits, this end, this reason.

    Raises:
        WrongUse: it is not said which mails or which limits, something is no value of its field, or another
            condition has the id.
        CannotReach: the ledger cannot be reached; nothing is ordered.
    """
    return with_queues(request.settings, partial(order_added, request, caller))


async def order_added(
    request: AddOrderRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[AddOrderRequest, OrderState]:
    if request.kind is OrderKind.SUSPENSION:
        _refuse_unsaid_mails(request)
    else:
        _refuse_unsaid_limits(request)
    scope = normal_scope(request.kind, request.values, request.fields)
    now = connections.now
    if request.queue not in await connections.names(everything=True):
        caller.remark(f"No mail was ever in {request.queue}: is it the right queue? See: mailmend queue list")
    before = await holding(connections, request.kind, request.queue)
    order = new_order(
        request.kind,
        request.queue,
        scope,
        owner=caller.name or owner_name(),
        reason=request.why,
        now=now,
        lasts=request.lasts or None,
        new_id=connections.clock.new_uuid(),
        threshold=request.threshold,
    )
    same = next((other for other in before if other.has_scope_of(order) and not other.is_of_program), None)
    _refuse_other_id(request, same, before)
    event = OrderEvent.ADDED
    if same:
        event = OrderEvent.RENEWED
        order = replace(order, id=same.id, made_at=same.made_at)
    elif request.id:
        order = replace(order, id=request.id)
    if not request.dry_run:
        await made_orders(connections).put(order, now)
        await _keep_record(connections, event, order, caller)
    (state,) = await _states(connections, request, [order])
    return QueueAnswer(request, state)


def _refuse_unsaid_mails(request: AddOrderRequest) -> None:
    if not request.values and not request.everything:
        mend = "Name them by a field, like --domain example.org; every mail of the queue: --all."
        raise WrongUse("it is not said which mails are suspended", mend=mend)
    if request.values and request.everything:
        raise WrongUse("--all is every mail, and fields name some of them", mend="Leave out the one or the other.")


def _refuse_unsaid_limits(request: AddOrderRequest) -> None:
    threshold = request.threshold
    if bool(request.values) is request.everything:
        what = "it is not said for which values"
        if request.values:
            what = "--all is always, and values are given"
        mend = "Name them, like --if recipientdomain=example.org; for all that the policy counts: --all."
        raise WrongUse(what, mend=mend)
    refuse_negative_limits(threshold)
    limits = (threshold.concurrency, threshold.rate, threshold.connect_interval)
    if request.unlimited is any(limit is not None for limit in limits):
        what = "it is not said which limits are set"
        if request.unlimited:
            what = "--unlimited is no limit, and one is given"
        raise WrongUse(what, mend="Give one, like --concurrency 2 or --rate 100/60; none at all: --unlimited.")


def _refuse_other_id(request: AddOrderRequest, same: Order | None, before: Sequence[Order]) -> None:
    if request.id and same and same.id != request.id:
        mend = "Leave --condition-id out to renew it."
        raise WrongUse(f"there is such a condition already, with the id {same.id}", mend=mend)
    if request.id and not same and request.id in {order.id for order in before}:
        raise WrongUse(f"{request.id} is the id of another condition", mend=_look(request))


def _look(request: AddOrderRequest | RemoveOrderRequest) -> str:
    words = WORDS[request.kind]
    return f"{words.look}: mailmend {words.command} list {request.queue}"


def remove_order(request: RemoveOrderRequest, caller: Caller) -> QueueAnswer[RemoveOrderRequest, OrderState]:
    """End an order.

    Raises:
        NotThere: no order of the kind has that id.
        CannotReach: the ledger cannot be reached; all stays as it was.
    """
    return with_queues(request.settings, partial(order_removed, request, caller))


async def order_removed(
    request: RemoveOrderRequest, caller: Caller, connections: QueueConnections
) -> QueueAnswer[RemoveOrderRequest, OrderState]:
    kind = request.kind
    ledger = existing_orders(connections, ORDER_TABLES[kind])
    found = None
    if ledger:
        found = await ledger.find(kind, request.queue, request.id)
    if ledger is None or found is None or found.has_ended(connections.now):
        what = f"{request.queue} has no {kind.value} {request.id}: it has ended, or was removed"
        raise NotThere(what, mend=_look(request))
    if not request.dry_run:
        await ledger.remove(found, connections.now)
        await _keep_record(connections, OrderEvent.REMOVED, found, caller)
    return QueueAnswer(request, OrderState(found))


def list_orders(
    request: ListOrdersRequest, caller: Caller
) -> QueueAnswer[ListOrdersRequest, Sequence[OrderState | OrderRecord]]:
    """The orders that hold now, or their history; reading them creates no ledger.

    Suspensions have the order in which they were made, conditions the order in which they are tested.

    Raises:
        CannotReach: the ledger cannot be reached.
    """
    return with_queues(request.settings, partial(orders_listed, request, caller))


async def orders_listed(
    request: ListOrdersRequest, _: Caller, connections: QueueConnections
) -> QueueAnswer[ListOrdersRequest, Sequence[OrderState | OrderRecord]]:
    if not request.history:
        orders = await holding(connections, request.kind, request.queue)
        return QueueAnswer(request, await _states(connections, request, orders))
    ledger = existing_orders(connections, DELIVERY_ORDER_HISTORY)
    if ledger is None:
        return QueueAnswer(request, ())
    now = connections.clock.micros()
    return QueueAnswer(request, await ledger.records(request.kind, request.queue, now, request.limit))


async def holding(connections: QueueConnections, kind: OrderKind, queue: QueueName) -> list[Order]:
    """The orders of a queue that have not ended, in the ledger's order; empty without a table."""
    ledger = existing_orders(connections, ORDER_TABLES[kind])
    if ledger is None:
        return []
    now = connections.now
    return [order for order in await ledger.of(kind, queue) if not order.has_ended(now)]


async def _keep_record(connections: QueueConnections, event: OrderEvent, order: Order, caller: Caller) -> None:
    """Keep in the history what was done; where that fails it is done all the same, and the caller is told."""
    record = OrderRecord(connections.clock.new_uuid(), event, order, caller.name or owner_name())
    try:
        await made_orders(connections).put_record(record)
    except MailmendError as error:
        caller.remark(f"The change is done, but cannot be written into the history: {error.what}")


async def _states(connections: QueueConnections, request: QueueRequest, orders: Sequence[Order]) -> list[OrderState]:
    """What each condition is to each server, by what the servers said that they count by."""
    conditions = [order for order in orders if order.kind is OrderKind.CONDITION]
    ledger = None
    if conditions:
        ledger = existing_orders(connections, DELIVERY_POLICIES)
    said: Sequence[ServedPolicies] = ()
    if ledger:
        said = await ledger.policies.of(request.queue)
    servers: dict[UUID, list[tuple[str, PlacedCondition]]] = {order.id: [] for order in orders}
    for policies in said:
        _, placed = with_conditions(policies.policies, conditions, policies.algorithm)
        for condition in placed:
            servers[condition.order.id].append((policies.server, condition))
    return [OrderState(order, tuple(servers[order.id])) for order in orders]
