"""James's routes of mail queues, with James's names, statuses and forms.

A removal is a task, as with James: it is recorded before it is acknowledged, and the leader of the
jobs runs it.
"""

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.api.http.shared import BUSY, OF_QUEUE, PAGE, ServedApi, router
from mailmend.admin.frame.http.application import Operator, Reader, described, error, log_change
from mailmend.admin.frame.http.bodies import Instant
from mailmend.admin.frame.values import instant_text
from mailmend.admin.jobs.james_tasks import CLEAR_QUEUE, DELETE_MAILS
from mailmend.admin.queue.reading import BrowsedMail, BrowseRequest, SizeRequest, browse, queue_size
from mailmend.admin.queue.redrive import flush
from mailmend.admin.queue.request import DryRunRequest, MailSelection
from mailmend.mailqueue.rules.mails import NULL_SENDER, Whereabouts
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import read_mailbox

MAIL_QUEUES: Final = router("mailQueues", "/mailQueues")
LIMIT_MAX: Final = 10_000
_BAD: Final = {"_400": "The call cannot be read."}


class MailQueueBody(BaseModel):
    """A queue; its size counts delayed mails too."""

    name: str
    size: int


class MailQueueItemBody(BaseModel):
    """A mail of a queue."""

    name: str
    sender: str | None
    recipients: list[str]
    nextDelivery: Instant | None = Field(description="Of a delayed mail.")  # noqa: N815 - as James


class ForcedDeliveryBody(BaseModel):
    """Delayed mails are to be delivered now."""

    delayed: Literal[False]


class MailQueueTaskBody(BaseModel):
    """The task that was taken."""

    taskId: UUID  # noqa: N815 - James's name


@MAIL_QUEUES.get(
    "",
    responses={200: {"model": list[str], "description": "Their names."}, **described(**BUSY)},
    summary="List the names of the queues",
)
async def list_mail_queues(desk: ServedApi, _: Reader) -> Response:
    """Of the keyspace."""
    return JSONResponse(sorted(await desk.queues()))


@MAIL_QUEUES.get(
    "/{queue}",
    responses={
        200: {"model": MailQueueBody, "description": "The queue."},
        **described(**OF_QUEUE),
    },
    summary="Show a queue",
)
async def show_mail_queue(desk: ServedApi, by: Reader, queue: str) -> Response:
    """Its name and size."""
    request = SizeRequest(settings=await desk.of_queue(queue))
    size = (await desk.done(queue_size, request, by=by)).found
    return JSONResponse({"name": queue, "size": size.mails + size.delayed})


@MAIL_QUEUES.get(
    "/{queue}/mails",
    responses={
        200: {"model": list[MailQueueItemBody], "description": "The mails."},
        **described(**_BAD, **OF_QUEUE),
    },
    summary="List the mails of a queue, as James does",
)
async def list_mail_queue_items(
    desk: ServedApi,
    by: Reader,
    queue: str,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = PAGE,
    delayed: Annotated[bool | SkipJsonSchema[None], Query(description="Which mails.")] = None,
) -> Response:
    """The limit counts the mails that are listed.

    With James it counts the mails before `delayed` leaves some out.
    """
    selection = MailSelection()
    if delayed is not None:
        selection = MailSelection(where=_WHERE[delayed].value)
    request = BrowseRequest(settings=await desk.of_queue(queue), selection=selection, limit=limit)
    found = await desk.done(browse, request, by=by)
    return JSONResponse(list(map(_item, found.mails)))


_WHERE: Final = {True: Whereabouts.DELAYED, False: Whereabouts.WAITING}


def _item(browsed: BrowsedMail) -> dict[str, Any]:
    mail = browsed.listed.queued.mail
    return {
        "name": mail.name,
        "sender": mail.sender,
        "recipients": list(mail.recipients),
        "nextDelivery": instant_text(browsed.listed.due_at),
    }


@MAIL_QUEUES.patch(
    "/{queue}/mails",
    status_code=204,
    responses=described(**_BAD, **OF_QUEUE),
    summary="Deliver delayed mails now, as James does",
)
async def force_delivery(
    *,
    desk: ServedApi,
    by: Operator,
    request: Request,
    queue: str,
    given: ForcedDeliveryBody,  # noqa: ARG001 - it has one value
    delayed: Annotated[Literal["true"], Query(description="Which mails.")],  # noqa: ARG001
) -> Response:
    """As `mailmend queue flush`."""
    asked = DryRunRequest(settings=await desk.of_queue(queue))
    result = await desk.done(flush, asked, by=by)
    log_change(request, "a queue was flushed", queue=queue, count=result.found.count)
    return Response(status_code=204)


Address = Annotated[str, Query(max_length=1000)] | SkipJsonSchema[None]
_ONE_OF: Final = (
    "You should provide only one of the query parameters 'sender', 'name', 'recipient' for "
    "deleting mails by condition or no parameter for deleting all mails in the mail queue."
)
"""James's words, for a script that shows them."""


@MAIL_QUEUES.delete(
    "/{queue}/mails",
    status_code=201,
    responses={
        201: {
            "model": MailQueueTaskBody,
            "description": "The task is recorded.",
            "headers": {"Location": {"description": "The task.", "schema": {"type": "string"}}},
        },
        **described(**_BAD, _404="There is no such queue.", _429="Too many tasks or calls."),
    },
    summary="Remove mails of a queue, as James does",
)
async def delete_mail_queue_items(
    *,
    desk: ServedApi,
    by: Operator,
    queue: str,
    sender: Address = None,
    name: Annotated[str, Query(max_length=1000)] | SkipJsonSchema[None] = None,
    recipient: Address = None,
) -> Response:
    """Exactly one of the three, or all mails without one.

    The leader of the jobs keeps a copy of each mail.
    """
    known = await desk.of_queue(queue)
    given = {"sender": sender, "name": name, "recipient": recipient}
    conditions = {which: text for which, text in given.items() if text is not None}
    if len(conditions) > 1:
        return error(400, "InvalidArgument", _ONE_OF)
    for which, text in conditions.items():
        if refused := _refused(which, text):
            return error(400, "InvalidArgument", refused)
    kind = CLEAR_QUEUE
    if conditions:
        kind = DELETE_MAILS
    task = await desk.submit(kind, {"queue": known.name, **conditions}, by)
    return JSONResponse({"taskId": str(task.id)}, 201, {"Location": f"/tasks/{task.id}"})


def _refused(which: str, text: str) -> str:
    """Why a condition is refused; "" where it is not.

    James compares whole texts: there are no wildcards.
    """
    if "*" in text:
        return f"'{which}' must not hold *: name it exactly, or use /v1/queues"
    if not text:
        return f"'{which}' must not be empty"
    if which == "name" or text == NULL_SENDER:
        return ""
    try:
        read_mailbox(text)
    except WrongUse:
        return f"'{which}' should be a mail address (i.e. {which}@james.org)"
    return ""
