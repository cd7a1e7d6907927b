"""Routes of run-time conditions: limits that people set for a while, on all servers of the queue."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.conditions import (
    AddConditionRequest,
    add_document,
    condition_added,
    condition_removed,
    conditions_listed,
    list_document,
    remove_document,
)
from mailmend.admin.delivery.http.policies import ThresholdBody
from mailmend.admin.delivery.http.shared import (
    ORDERS,
    CommandAnswer,
    DryRun,
    HistoryLimit,
    Instant,
    OrderRecordBody,
    ReasonText,
    ServerDesk,
    StrictBody,
    answered,
    normal_at,
    responses,
)
from mailmend.admin.delivery.http.suspensions import TTL_SECONDS_MAX, FieldValues
from mailmend.admin.delivery.order_history import HISTORY_SHOWN, ListOrdersRequest, RemoveOrderRequest, history_listed
from mailmend.admin.frame.http.callers import Operator, Reader, log_change
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.policy.conditions import MadeCondition, normal_condition_value
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate

COUNT_MAX: Final = 1_000_000

CONDITIONS: Final = APIRouter(tags=["conditions"])
Seconds = Annotated[float, Field(gt=0.001, le=TTL_SECONDS_MAX)]
Fields = Annotated[tuple[PickupField, ...], Field(max_length=len(PickupField))]


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
        rate = self.rate
        gap = self.connect_interval_seconds
        return Threshold(
            self.concurrency,
            DeliveryRate(rate.count, round(rate.seconds * SECOND)) if rate else None,
            round(gap * SECOND) if gap else None,
            self.stop,
            self.cluster,
        )


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


class MadeConditionBody(StrictBody):
    """Limits that an operator or a hook set."""

    id: UUID
    fields: list[PickupField]
    if_: dict[PickupField, list[str]] = Field(alias="if")
    then: ThresholdBody
    made_at: Instant
    ends_at: Instant | None = Field(description="null: until it is removed.")
    owner: str
    why: str
    unread: str | None = Field(
        description="Why it cannot be read; it then lets nothing begin of the mails that it names, or is parked."
    )


class ConditionOnServer(StrictBody):
    """What a condition is to one server."""

    server: str
    parked: str | None = Field(description="Why it sets no limits there.")
    counted_as: dict[str, str] = Field(description="By value, the group as which it is counted there.")


class ConditionStateBody(MadeConditionBody):
    """A condition, and what it is to the servers that are at work."""

    parked: str | None = Field(description="Why it sets limits on none of them.")
    servers: list[ConditionOnServer]


class ConditionsAnswer(CommandAnswer):
    """What is set now, in the order in which it is tested."""

    conditions: list[ConditionStateBody]


class ConditionRecordBody(OrderRecordBody):
    """With the condition as it was behind the change; where it was removed, before."""

    condition: MadeConditionBody


class ConditionHistoryAnswer(CommandAnswer):
    """What was done to conditions."""

    history: list[ConditionRecordBody]


class ConditionAnswer(CommandAnswer):
    """A condition that was set, or removed; or would be."""

    dry_run: bool
    condition: ConditionStateBody


@CONDITIONS.get("/conditions", responses=responses(ConditionsAnswer, "All of them."), summary="Limits set for a while")
async def conditions(desk: ServerDesk, _: Reader) -> Response:
    """In addition to the policy files, for all servers of the queue."""
    return answered(list_document(await desk.done(conditions_listed, QueueRequest(settings=desk.settings))))


@CONDITIONS.get(
    "/conditions/history",
    responses=responses(ConditionHistoryAnswer, "The newest changes of the last 30 days, newest first."),
    summary="Who changed conditions",
)
async def condition_history(desk: ServerDesk, _: Reader, limit: HistoryLimit = HISTORY_SHOWN) -> Response:
    """What was made, renewed and removed, by whom and why: by command, over HTTP, and by hooks of any server."""
    asked = ListOrdersRequest(settings=desk.settings, history=True, limit=limit)
    return answered(list_document(await desk.done(partial(history_listed, MadeCondition), asked)))


@CONDITIONS.post(
    "/conditions", responses=responses(ConditionAnswer, "It is kept.", **ORDERS), summary="Set limits for a while"
)
async def set_limits(desk: ServerDesk, by: Operator, request: Request, given: SetLimitsBody) -> Response:
    """On all servers of the queue, within seconds. The same fields and values again are one condition."""
    asked = AddConditionRequest(
        settings=desk.settings,
        fields=tuple(field.value for field in given.fields),
        values={
            named.value: tuple(
                normal_at(f"/if/{named.value}/{number}", partial(normal_condition_value, named), text)
                for number, text in enumerate(some)
            )
            for named, some in given.if_.items()
        },
        everything=given.everything,
        threshold=given.then.threshold(),
        unlimited=given.unlimited,
        lasts=timedelta(seconds=given.ttl) if given.ttl else None,
        id=given.id,
        why=given.why,
        dry_run=given.dry_run,
    )
    answer = await desk.done(condition_added, asked, by)
    made = answer.found.made
    if not given.dry_run:
        log_change(request, "limits were set for a while", condition=str(made.id), ends_at=str(made.ends_at))
    return answered(add_document(answer))


@CONDITIONS.delete(
    "/conditions/{id}",
    responses=responses(ConditionAnswer, "It is removed.", _404="There is no such condition."),
    summary="Let the policy file's limits hold again",
)
async def remove_limits(
    desk: ServerDesk,
    by: Operator,
    request: Request,
    id: UUID,  # noqa: A002 - the name in the path
    dry_run: Annotated[bool, Query(description="Write nothing, and answer what would be.")] = False,  # noqa: FBT002
) -> Response:
    """On all servers of the queue, within seconds."""
    answer = await desk.done(condition_removed, RemoveOrderRequest(settings=desk.settings, id=id, dry_run=dry_run), by)
    if not dry_run:
        log_change(request, "limits hold no longer", condition=str(id))
    return answered(remove_document(answer))
