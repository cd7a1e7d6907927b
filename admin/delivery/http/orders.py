"""Routes of orders: suspensions and conditions that people make for a while, on all servers of the queue."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.answers import LISTED_ORDERS, ORDER_HISTORY, ORDERED
from mailmend.admin.delivery.http.shared import ORDERS, HistoryLimit, ServerDesk, command_model
from mailmend.admin.delivery.options import HISTORY_SHOWN
from mailmend.admin.delivery.orders import (
    AddOrderRequest,
    ListOrdersRequest,
    RemoveOrderRequest,
    order_added,
    order_removed,
    orders_listed,
)
from mailmend.admin.delivery.orders_document import add_document, list_document, remove_document
from mailmend.admin.frame.http.application import Operator, Reader, log_change
from mailmend.admin.frame.http.bodies import (
    DryRun,
    ReasonText,
    StrictBody,
    answered,
    normal_at,
    responses,
)
from mailmend.delivery.policy.orders import OrderKind, normal_value
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate

TTL_SECONDS_MAX: Final = 365 * 86_400
COUNT_MAX: Final = 1_000_000
_VALUES_MAX: Final = 100

SUSPENSIONS: Final = APIRouter(tags=["suspensions"])
CONDITIONS: Final = APIRouter(tags=["conditions"])
FieldValue = Annotated[str, Field(max_length=1000)]
FieldValues = Annotated[tuple[FieldValue, ...], Field(min_length=1, max_length=_VALUES_MAX)]
Fields = Annotated[tuple[PickupField, ...], Field(max_length=len(PickupField))]
Seconds = Annotated[float, Field(gt=0.001, le=TTL_SECONDS_MAX)]
OnlyLook = Annotated[bool, Query(description="Write nothing, and answer what would be.")]


class SuspendBody(StrictBody):
    """Which mails: each field that is named must match, with one of its values. Values are as in a policy file."""

    fields: Annotated[dict[PickupField, FieldValues], Field(default_factory=dict)]
    everything: Annotated[bool, Field(description="Every mail of the queue; then no fields are named.")] = False
    ttl: Annotated[
        Annotated[int, Field(ge=1, le=TTL_SECONDS_MAX)] | SkipJsonSchema[None],
        Field(description="Seconds; else until it is lifted."),
    ] = None
    why: Annotated[ReasonText, Field(description="Shown to operators who find mails waiting.")]
    dry_run: DryRun = False


class RateLimit(StrictBody):
    """At most `count` deliveries in `seconds` seconds."""

    count: Annotated[int, Field(ge=1, le=COUNT_MAX)]
    seconds: Seconds = 1


class Limits(StrictBody):
    """All of the limits: nothing comes from the file then; what is left out is no limit."""

    concurrency: Annotated[
        Annotated[int, Field(ge=0, le=COUNT_MAX)] | SkipJsonSchema[None],
        Field(description="Deliveries at once; 0 lets none begin."),
    ] = None
    rate: RateLimit | SkipJsonSchema[None] = None
    connect_interval_seconds: Annotated[
        Seconds | SkipJsonSchema[None], Field(description="Between two new connections.")
    ] = None
    stop: Annotated[bool, Field(description="Later policies of the file are not consulted.")] = False
    cluster: Annotated[bool, Field(description="The servers of the queue share them; else each has all of them.")] = (
        True
    )

    def threshold(self) -> Threshold:
        rate = None
        if self.rate:
            rate = DeliveryRate(self.rate.count, round(self.rate.seconds * SECOND))
        gap = None
        if self.connect_interval_seconds:
            gap = round(self.connect_interval_seconds * SECOND)
        return Threshold(self.concurrency, rate, gap, self.stop, self.cluster)


class SetLimitsBody(StrictBody):
    """Of which policies, for which values, and which limits."""

    fields: Annotated[Fields, Field(description="By what the policies count, exactly; none: everything together.")]
    if_: Annotated[
        dict[PickupField, FieldValues],
        Field(alias="if", default_factory=dict, description="Values as in a policy file, `#group` too."),
    ]
    everything: Annotated[bool, Field(description="Whatever such a policy counts; then `if` is empty.")] = False
    then: Limits
    unlimited: Annotated[bool, Field(description="No limit at all, which has to be said.")] = False
    ttl: Annotated[
        Annotated[int, Field(ge=1, le=TTL_SECONDS_MAX)] | SkipJsonSchema[None],
        Field(description="Seconds; else until it is removed."),
    ] = None
    id: Annotated[UUID | SkipJsonSchema[None], Field(description="Else it follows from fields and values.")] = None
    why: Annotated[ReasonText, Field(description="Shown to operators who find mails waiting.")]
    dry_run: DryRun = False


async def _listed(desk: ServerDesk, kind: OrderKind) -> Response:
    request = ListOrdersRequest(settings=desk.settings, kind=kind)
    return answered(list_document(await desk.done(orders_listed, request)))


async def _history(desk: ServerDesk, kind: OrderKind, limit: int) -> Response:
    request = ListOrdersRequest(settings=desk.settings, kind=kind, history=True, limit=limit)
    return answered(list_document(await desk.done(orders_listed, request)))


async def _added(desk: ServerDesk, by: str, request: Request, asked: AddOrderRequest, said: str) -> Response:
    answer = await desk.done(order_added, asked, by)
    order = answer.found.order
    if not asked.dry_run:
        log_change(request, said, **{order.kind.value: str(order.id)}, ends_at=str(order.ends_at))
    return answered(add_document(answer))


async def _removed(desk: ServerDesk, by: str, request: Request, asked: RemoveOrderRequest, said: str) -> Response:
    answer = await desk.done(order_removed, asked, by)
    if not asked.dry_run:
        log_change(request, said, **{asked.kind.value: str(asked.id)})
    return answered(remove_document(answer))


def _values(kind: OrderKind, pointer: str, given: Mapping[PickupField, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The values of a call below a JSON pointer, by the names of their fields."""
    found = dict[str, tuple[str, ...]]()
    for named, texts in given.items():
        read = partial(normal_value, kind, named)
        places = [f"{pointer}/{named.value}/{number}" for number in range(len(texts))]
        found[named.value] = tuple(normal_at(place, read, text) for place, text in zip(places, texts, strict=True))
    return found


def _time_of(ttl: int | None) -> timedelta | None:
    return timedelta(seconds=ttl) if ttl else None


@SUSPENSIONS.get(
    "/suspensions",
    responses=responses(command_model(LISTED_ORDERS[OrderKind.SUSPENSION]), "All of them."),
    summary="What is suspended",
)
async def suspensions(desk: ServerDesk, _: Reader) -> Response:
    """By hand, for all servers of the queue; what a policy file suspends is with the policies."""
    return await _listed(desk, OrderKind.SUSPENSION)


@SUSPENSIONS.get(
    "/suspensions/history",
    responses=responses(
        command_model(ORDER_HISTORY[OrderKind.SUSPENSION]), "The newest changes of the last 30 days, newest first."
    ),
    summary="Who changed suspensions",
)
async def suspension_history(desk: ServerDesk, _: Reader, limit: HistoryLimit = HISTORY_SHOWN) -> Response:
    """What was made, renewed and removed, by whom and why: by command, over HTTP, and by hooks of any server."""
    return await _history(desk, OrderKind.SUSPENSION, limit)


@SUSPENSIONS.post(
    "/suspensions",
    responses=responses(command_model(ORDERED[OrderKind.SUSPENSION]), "It is kept.", **ORDERS),
    summary="Hold mails back",
)
async def suspend(desk: ServerDesk, by: Operator, request: Request, given: SuspendBody) -> Response:
    """On all servers of the queue, within seconds. The very same mails again are one suspension, with this end."""
    asked = AddOrderRequest(
        settings=desk.settings,
        kind=OrderKind.SUSPENSION,
        values=_values(OrderKind.SUSPENSION, "/fields", given.fields),
        everything=given.everything,
        lasts=_time_of(given.ttl),
        why=given.why,
        dry_run=given.dry_run,
    )
    return await _added(desk, by, request, asked, "mails were suspended")


@SUSPENSIONS.delete(
    "/suspensions/{id}",
    responses=responses(
        command_model(ORDERED[OrderKind.SUSPENSION]), "It is lifted.", _404="There is no such suspension."
    ),
    summary="Let suspended mails go again",
)
async def lift(
    desk: ServerDesk,
    by: Operator,
    request: Request,
    id: UUID,  # noqa: A002 - the name in the path
    dry_run: OnlyLook = False,  # noqa: FBT002
) -> Response:
    """On all servers of the queue, within seconds."""
    asked = RemoveOrderRequest(settings=desk.settings, kind=OrderKind.SUSPENSION, id=id, dry_run=dry_run)
    return await _removed(desk, by, request, asked, "a suspension was lifted")


@CONDITIONS.get(
    "/conditions",
    responses=responses(command_model(LISTED_ORDERS[OrderKind.CONDITION]), "All of them."),
    summary="Limits set for a while",
)
async def conditions(desk: ServerDesk, _: Reader) -> Response:
    """In addition to the policy files, for all servers of the queue."""
    return await _listed(desk, OrderKind.CONDITION)


@CONDITIONS.get(
    "/conditions/history",
    responses=responses(
        command_model(ORDER_HISTORY[OrderKind.CONDITION]), "The newest changes of the last 30 days, newest first."
    ),
    summary="Who changed conditions",
)
async def condition_history(desk: ServerDesk, _: Reader, limit: HistoryLimit = HISTORY_SHOWN) -> Response:
    """What was made, renewed and removed, by whom and why: by command, over HTTP, and by hooks of any server."""
    return await _history(desk, OrderKind.CONDITION, limit)


@CONDITIONS.post(
    "/conditions",
    responses=responses(command_model(ORDERED[OrderKind.CONDITION]), "It is kept.", **ORDERS),
    summary="Set limits for a while",
)
async def set_limits(desk: ServerDesk, by: Operator, request: Request, given: SetLimitsBody) -> Response:
    """On all servers of the queue, within seconds. The same fields and values again are one condition."""
    asked = AddOrderRequest(
        settings=desk.settings,
        kind=OrderKind.CONDITION,
        values=_values(OrderKind.CONDITION, "/if", given.if_),
        everything=given.everything,
        lasts=_time_of(given.ttl),
        why=given.why,
        fields=tuple(field.value for field in given.fields),
        threshold=given.then.threshold(),
        unlimited=given.unlimited,
        id=given.id,
        dry_run=given.dry_run,
    )
    return await _added(desk, by, request, asked, "limits were set for a while")


@CONDITIONS.delete(
    "/conditions/{id}",
    responses=responses(
        command_model(ORDERED[OrderKind.CONDITION]), "It is removed.", _404="There is no such condition."
    ),
    summary="Let the policy file's limits hold again",
)
async def remove_limits(
    desk: ServerDesk,
    by: Operator,
    request: Request,
    id: UUID,  # noqa: A002 - the name in the path
    dry_run: OnlyLook = False,  # noqa: FBT002
) -> Response:
    """On all servers of the queue, within seconds."""
    asked = RemoveOrderRequest(settings=desk.settings, kind=OrderKind.CONDITION, id=id, dry_run=dry_run)
    return await _removed(desk, by, request, asked, "limits hold no longer")
