"""Routes of suspensions: what people hold back on all servers of the queue."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

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
from mailmend.admin.delivery.order_history import HISTORY_SHOWN, ListOrdersRequest, RemoveOrderRequest, history_listed
from mailmend.admin.delivery.suspend import (
    AddSuspensionRequest,
    add_document,
    list_document,
    remove_document,
    suspension_added,
    suspension_removed,
    suspensions_listed,
)
from mailmend.admin.frame.http.callers import Operator, Reader, log_change
from mailmend.admin.queue.request import QueueRequest
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.suspensions import MadeSuspension, normal_value

TTL_SECONDS_MAX: Final = 365 * 86_400
_VALUES_MAX: Final = 100

SUSPENSIONS: Final = APIRouter(tags=["suspensions"])
FieldValue = Annotated[str, Field(max_length=1000)]
FieldValues = Annotated[tuple[FieldValue, ...], Field(min_length=1, max_length=_VALUES_MAX)]


class SuspensionBody(StrictBody):
    """Mails that are held back."""

    id: UUID
    fields: dict[PickupField, list[str]] = Field(description="Values by field; none is every mail.")
    made_at: Instant
    ends_at: Instant | None = Field(description="null: until it is lifted.")
    owner: str
    why: str
    unread: list[str] = Field(description="Why a field cannot be read; the suspension then holds more than it names.")


class SuspensionsAnswer(CommandAnswer):
    """What is suspended now."""

    suspensions: list[SuspensionBody]


class SuspensionRecordBody(OrderRecordBody):
    """With the suspension as it was behind the change; where it was removed, before."""

    suspension: SuspensionBody


class SuspensionHistoryAnswer(CommandAnswer):
    """What was done to suspensions."""

    history: list[SuspensionRecordBody]


class SuspensionAnswer(CommandAnswer):
    """A suspension that was made, or lifted; or would be."""

    dry_run: bool
    suspension: SuspensionBody


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


@SUSPENSIONS.get("/suspensions", responses=responses(SuspensionsAnswer, "All of them."), summary="What is suspended")
async def suspensions(desk: ServerDesk, _: Reader) -> Response:
    """By hand, for all servers of the queue; what a policy file suspends is with the policies."""
    return answered(list_document(await desk.done(suspensions_listed, QueueRequest(settings=desk.settings))))


@SUSPENSIONS.get(
    "/suspensions/history",
    responses=responses(SuspensionHistoryAnswer, "The newest changes of the last 30 days, newest first."),
    summary="Who changed suspensions",
)
async def suspension_history(desk: ServerDesk, _: Reader, limit: HistoryLimit = HISTORY_SHOWN) -> Response:
    """What was made, renewed and removed, by whom and why: by command, over HTTP, and by hooks of any server."""
    asked = ListOrdersRequest(settings=desk.settings, history=True, limit=limit)
    return answered(list_document(await desk.done(partial(history_listed, MadeSuspension), asked)))


@SUSPENSIONS.post(
    "/suspensions", responses=responses(SuspensionAnswer, "It is kept.", **ORDERS), summary="Hold mails back"
)
async def suspend(desk: ServerDesk, by: Operator, request: Request, given: SuspendBody) -> Response:
    """On all servers of the queue, within seconds. The very same mails again are one suspension, with this end."""
    asked = AddSuspensionRequest(
        settings=desk.settings,
        values={
            named.value: tuple(
                normal_at(f"/fields/{named.value}/{number}", partial(normal_value, named), text)
                for number, text in enumerate(some)
            )
            for named, some in given.fields.items()
        },
        everything=given.everything,
        lasts=timedelta(seconds=given.ttl) if given.ttl else None,
        why=given.why,
        dry_run=given.dry_run,
    )
    answer = await desk.done(suspension_added, asked, by)
    if not given.dry_run:
        log_change(request, "mails were suspended", suspension=str(answer.found.id), ends_at=str(answer.found.ends_at))
    return answered(add_document(answer))


@SUSPENSIONS.delete(
    "/suspensions/{id}",
    responses=responses(SuspensionAnswer, "It is lifted.", _404="There is no such suspension."),
    summary="Let suspended mails go again",
)
async def lift(
    desk: ServerDesk,
    by: Operator,
    request: Request,
    id: UUID,  # noqa: A002 - the name in the path
    dry_run: Annotated[bool, Query(description="Write nothing, and answer what would be.")] = False,  # noqa: FBT002
) -> Response:
    """On all servers of the queue, within seconds."""
    asked = RemoveOrderRequest(settings=desk.settings, id=id, dry_run=dry_run)
    answer = await desk.done(suspension_removed, asked, by)
    if not dry_run:
        log_change(request, "a suspension was lifted", suspension=str(id))
    return answered(remove_document(answer))
