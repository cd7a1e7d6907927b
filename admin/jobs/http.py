"""The routes of the server of jobs: James's own, as its operators' scripts call them.

To add routes, make an `APIRouter` and put it into `JOBS`; `needs` says which role a call takes.
"""

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.frame.http.application import METRICS, Api, Operator, Reader, described, error, health_router
from mailmend.admin.jobs.james_tasks import KINDS, TaskOutcome
from mailmend.admin.jobs.tasks import TaskDesk
from mailmend.model.durations import parse_duration
from mailmend.repair.ledger.jobs import AdminTask, TaskStatus

StatusText = Literal["waiting", "inProgress", "canceledRequested", "completed", "canceled", "failed"]
INVALID: Final = "Invalid arguments supplied in the user request"


class TaskIdBody(BaseModel):
    """The task that was taken; it is recorded, and will be run whatever becomes of this server."""

    taskId: UUID  # noqa: N815 - James's name


class TaskBody(BaseModel):
    """A task; what is not known yet is left out."""

    model_config = ConfigDict(extra="forbid")

    taskId: UUID  # noqa: N815 - James's names, to the end of the class
    type: str
    status: StatusText
    submittedFrom: str  # noqa: N815
    submitDate: str = Field(examples=["2026-11-23T02:30:00.000+0000"])  # noqa: N815
    executedOn: str | None = None  # noqa: N815
    cancelledFrom: str | None = None  # noqa: N815
    startedDate: str | None = None  # noqa: N815
    completedDate: str | None = None  # noqa: N815
    canceledDate: str | None = None  # noqa: N815
    failedDate: str | None = None  # noqa: N815
    additionalInformation: dict[str, Any]  # noqa: N815


def task_json(task: AdminTask) -> dict[str, Any]:
    """The task as James shows it; absent dates are left out."""
    ended = {"completed": "completedDate", "canceled": "canceledDate", "failed": "failedDate"}
    dates = {"submitDate": task.submitted_at, "startedDate": task.started_at}
    if task.status.is_over:
        dates[ended[task.status.value]] = task.ended_at
    body = {
        "taskId": task.id,
        "type": task.type,
        "status": task.status.value,
        "submittedFrom": task.submitted_from,
        "executedOn": task.executed_on,
        "cancelledFrom": task.cancelled_from,
        **{name: _date(at) for name, at in dates.items() if at},
    }
    shown = {name: value for name, value in body.items() if value is not None}
    encoded: dict[str, Any] = jsonable_encoder({**shown, "additionalInformation": _information(task)})
    return encoded


def _information(task: AdminTask) -> Mapping[str, Any]:
    """What it has done; before its end, its options and counts of nothing."""
    if task.information or task.type not in KINDS:
        return task.information
    began = {"type": task.type, "timestamp": f"{task.submitted_at:%Y-%m-%dT%H:%M:%S.%fZ}"}
    return {**began, **KINDS[task.type].information(task.options, TaskOutcome(0))}


def _date(at: datetime) -> str:
    """As James's pattern yyyy-MM-dd'T'HH:mm:ss.SSSZ writes it."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}{at:%z}"


def refused_query(errors: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> JSONResponse:
    """James's answer to a query that it cannot read, by the first thing that is wrong with it.

    Args:
        errors: what pydantic found.
        tasks: the values that `task` may have there.
    """
    first = errors[0]
    name = str(first["loc"][1])  # query or path; name; which type of a union
    if first["loc"][0] == "path":
        return error(400, "InvalidArgument", "Invalid task id", str(first["msg"]))
    if name == "timeout":
        return error(400, "InvalidArgument", "Invalid timeout", str(first["msg"]))
    if name == "status":
        return error(400, "InvalidArgument", "Invalid status query parameter", str(first["msg"]))
    return error(400, "InvalidArgument", INVALID, _details(name, first, tasks))


def _details(name: str, first: Mapping[str, Any], tasks: Sequence[str]) -> str:
    match name, first["type"]:
        case "scope", _:
            return "'scope' is missing or must be 'unreferenced'"
        case "task", kind:
            return f"{_about_task(kind, str(first.get('input')))}. Supported values are [{', '.join(tasks)}]"
        case "messagesPerSecond" | "maxIterations", "int_parsing":
            wanted = "expecting a strictly positive optional integer"
            said = f"Illegal value supplied for query parameter '{name}', {wanted}"
        case _, "greater_than_equal" if first["ctx"]["ge"] == 1:
            said = f"'{name}' must be strictly positive"
        case _, "int_parsing" | "float_parsing":
            said = f"'{name}' must be numeric"
        case _, "greater_than" | "less_than":
            said = f"'{name}' must be greater than 0.0 and smaller than 1.0"
        case _:
            said = f"'{name}': {first['msg']}"
    return said


def _about_task(kind: str, given: str) -> str:
    if kind == "missing":
        return "'task' query parameter is compulsory"
    if not given.strip():
        return "'task' query parameter cannot be empty or blank"
    return f"Invalid value supplied for query parameter 'task': {given}"


INT_MAX: Final = 2**31 - 1
AWAIT_MAX: Final = timedelta(minutes=5)
"""How long a call waits for a task at most, whatever it asks for: each one holds a connection and reads the ledger."""

_STATED_AWAIT_MAX: Final = timedelta(days=365)
_TIMEOUT: Final = r"^([0-9]{1,6}(ms|s)?|[0-9]{1,5}m|[0-7]?[0-9]{1,3}h|[0-9]{1,2}d|[12][0-9]{2}d|3[0-5][0-9]d|36[0-5]d)$"
_ABOUT: Final = """\
James's administrative tasks, done by mailmend: the same routes, statuses and fields. A task is recorded before it is
acknowledged, and run by the server that leads, as a command of mailmend in a process of its own."""


class MessagesTask(StrEnum):
    """What can be done with all messages."""

    SOLVE_INCONSISTENCIES = "SolveInconsistencies"


class MailboxesTask(StrEnum):
    """What can be done with all mailboxes."""

    SOLVE_INCONSISTENCIES = "SolveInconsistencies"
    RECOMPUTE_MAILBOX_COUNTERS = "RecomputeMailboxCounters"
    SOLVE_MESSAGE_DELETED_INCONSISTENCIES = "SolveMessageDeletedInconsistencies"
    SOLVE_MESSAGE_RECENT_INCONSISTENCIES = "SolveMessageRecentInconsistencies"


KNOWN_RISK: Final = "I-KNOW-WHAT-I-M-DOING"
"""The header field without which James solves no inconsistencies of mailboxes."""

OFFLINE: Final = "ALL-SERVICES-ARE-OFFLINE"
_UNDECLARED: Final = (
    f"Due to concurrency risks, a `{KNOWN_RISK}` header should be positioned to `{OFFLINE}` "
    "in order to prevent accidental calls. Check the documentation for details."
)
"""James's words, for a script that shows them."""

_ABOUT_RISK: Final = f"SolveInconsistencies needs {OFFLINE}, as with James. Services may run."

TASKS_OF: Final = {"/messages": tuple(MessagesTask), "/mailboxes": tuple(MailboxesTask)}
"""The values of `task` by path."""


async def _desk(request: Request) -> TaskDesk:
    desk: TaskDesk = request.app.state.desk
    return desk


Desk = Annotated[TaskDesk, Depends(_desk)]
CountParameter = Annotated[int, Field(ge=1, le=INT_MAX)] | SkipJsonSchema[None]
TaskId = Annotated[UUID, Path(description="The taskId of the answer to the call that asked for the task.")]


_BAD: Final = "The query cannot be read."
_TAKEN: Final[dict[int | str, dict[str, Any]]] = {
    201: {
        "model": TaskIdBody,
        "description": "The task is recorded.",
        "headers": {"Location": {"description": "Where the task is.", "schema": {"type": "string"}}},
    },
    **described(_400=_BAD, _429="Too many tasks wait."),
}
_TASK: Final[dict[int | str, dict[str, Any]]] = {200: {"model": TaskBody, "description": "The task."}}
TASKS: Final = APIRouter(tags=["tasks"])


async def _taken(desk: TaskDesk, kind: str, by: str, **options: Any) -> JSONResponse:
    task = await desk.submit(kind, options, by)
    body = TaskIdBody(taskId=task.id)
    return JSONResponse(body.model_dump(mode="json"), 201, {"Location": f"/tasks/{task.id}"})


@TASKS.post("/messages", status_code=201, responses=_TAKEN, summary="Mend the tables of messages")
async def messages(
    *,
    desk: Desk,
    by: Operator,
    task: MessagesTask,  # noqa: ARG001 - there is one
    messages_per_second: Annotated[
        CountParameter, Query(alias="messagesPerSecond", description="Rows of a table.")
    ] = None,
    cleanup: Annotated[
        bool,
        Query(
            alias="cleanupEntriesWithoutContent", description="Remove rows whose content is lost, a day old or more."
        ),
    ] = False,
) -> Response:
    """Solve the inconsistencies of messages: `mailmend repair messages`."""
    given = {"messagesPerSecond": messages_per_second, "cleanupEntriesWithoutContent": cleanup}
    return await _taken(desk, "solve-message-inconsistencies", by, **given)


@TASKS.post("/mailboxes", status_code=201, responses=_TAKEN, summary="Mend what is kept of each mailbox")
async def mailboxes(
    *,
    desk: Desk,
    by: Operator,
    task: MailboxesTask,
    trust: Annotated[  # noqa: ARG001 - the source of truth is always looked at
        bool, Query(alias="trustMessageProjection", description="No effect: the counts come from imapUidTable.")
    ] = False,
    max_iterations: Annotated[
        CountParameter,
        Query(alias="maxIterations", description="No effect: one run mends all that it can."),
    ] = None,
    auto_merge: Annotated[
        bool,
        Query(alias="autoMerge", description="No effect: no mailboxes are merged."),
    ] = False,
    declared: Annotated[
        str | SkipJsonSchema[None],
        Header(alias=KNOWN_RISK, description=_ABOUT_RISK),
    ] = None,
) -> Response:
    """Mend rows of mailboxes, counters, or the list of messages that are deleted or recent.

    SolveInconsistencies is `mailmend repair mailboxes`; another task is `mailmend repair messages`
    with `--without`.
    """
    match task:
        case MailboxesTask.SOLVE_INCONSISTENCIES:
            if declared is None or declared.upper() != OFFLINE:
                return error(400, "InvalidArgument", INVALID, _UNDECLARED)
            given = {"maxIterations": max_iterations, "autoMerge": auto_merge}
            return await _taken(desk, "solve-mailbox-inconsistencies", by, **given)
        case MailboxesTask.RECOMPUTE_MAILBOX_COUNTERS:
            return await _taken(desk, "recompute-mailbox-counters", by)
        case MailboxesTask.SOLVE_MESSAGE_DELETED_INCONSISTENCIES:
            return await _taken(desk, "solve-mailbox-flag-inconsistencies", by, targetFlag="DELETED")
        case MailboxesTask.SOLVE_MESSAGE_RECENT_INCONSISTENCIES:
            return await _taken(desk, "solve-mailbox-flag-inconsistencies", by, targetFlag="RECENT")


@TASKS.delete("/blobs", status_code=201, responses=_TAKEN, summary="Collect blobs that nothing refers to")
async def blobs(
    *,
    desk: Desk,
    by: Operator,
    scope: Literal["unreferenced"],  # noqa: ARG001 - there is one
    expected: Annotated[
        CountParameter, Query(alias="expectedBlobCount", description="Of James's filter; we need none.")
    ] = None,
    probability: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | SkipJsonSchema[None],
        Query(alias="associatedProbability", description="Of James's filter; we need none."),
    ] = None,
    window: Annotated[CountParameter, Query(alias="deletionWindowSize", description="Of no effect.")] = None,
) -> Response:
    """Collect them: `mailmend repair blobs`, with what the server's settings say of the store."""
    given = {"expectedBlobCount": expected, "associatedProbability": probability, "deletionWindowSize": window}
    return await _taken(desk, "BlobGCTask", by, **given)


Moment = AwareDatetime | SkipJsonSchema[None]


@TASKS.get(
    "/tasks",
    responses={200: {"model": list[TaskBody], "description": "The tasks."}, **described(_400=_BAD)},
    summary="List tasks, the newest first",
)
async def tasks(
    *,
    desk: Desk,
    _: Reader,
    status: StatusText | SkipJsonSchema[None] = None,
    kind: Annotated[str | SkipJsonSchema[None], Query(alias="type")] = None,
    submitted_before: Annotated[Moment, Query(alias="submittedBefore")] = None,
    submitted_after: Annotated[Moment, Query(alias="submittedAfter")] = None,
    started_before: Annotated[Moment, Query(alias="startedBefore")] = None,
    started_after: Annotated[Moment, Query(alias="startedAfter")] = None,
    completed_before: Annotated[Moment, Query(alias="completedBefore")] = None,
    completed_after: Annotated[Moment, Query(alias="completedAfter")] = None,
    failed_before: Annotated[Moment, Query(alias="failedBefore")] = None,
    failed_after: Annotated[Moment, Query(alias="failedAfter")] = None,
    offset: Annotated[int, Query(ge=0, le=INT_MAX)] = 0,
    limit: Annotated[int, Field(ge=0, le=INT_MAX)] | SkipJsonSchema[None] = None,
) -> Response:
    """Of the newest 1,000 that the ledger keeps, for 30 days."""
    found = []
    for task in await desk.listed():
        completed_at = task.ended_at if task.status is TaskStatus.COMPLETED else None
        failed_at = task.ended_at if task.status is TaskStatus.FAILED else None
        if (
            status in (None, task.status.value)
            and kind in (None, task.type)
            and _within(task.submitted_at, submitted_after, submitted_before)
            and _within(task.started_at, started_after, started_before)
            and _within(completed_at, completed_after, completed_before)
            and _within(failed_at, failed_after, failed_before)
        ):
            found.append(task)
    end = None
    if limit is not None:
        end = offset + limit
    return JSONResponse([task_json(task) for task in found[offset:end]])


def _within(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at > after) and (before is None or at < before)


@TASKS.get(
    "/tasks/{task_id}",
    responses={**_TASK, **described(_400="That is no id.", _404="There is no such task.")},
    summary="Look at a task",
)
async def task(desk: Desk, _: Reader, task_id: TaskId) -> Response:
    """The state of a task, and what it has done."""
    return JSONResponse(task_json(await desk.get(task_id)))


@TASKS.get(
    "/tasks/{task_id}/await",
    responses={
        **_TASK,
        **described(_400="That is no id, or no duration.", _404="There is no such task.", _408="It takes longer."),
    },
    summary="Wait until a task is over",
)
async def await_task(
    request: Request,
    desk: Desk,
    _: Reader,
    task_id: TaskId,
    timeout: Annotated[  # noqa: ASYNC109 - James's name
        str,
        Query(
            pattern=_TIMEOUT,
            description="Seconds, or like 500ms, 30s, 5m, 2h, 1d; at most 365d. The server waits for at most 5m.",
        ),
    ] = "365d",
) -> Response:
    """Wait for it as long as the timeout says, and at most 5 minutes: then 408 says to ask again."""
    stated = parse_duration(timeout, maximum=_STATED_AWAIT_MAX)
    found = await _unless_it_leaves(request, desk.ended(task_id, min(stated, AWAIT_MAX)))
    if found is None:
        return error(408, "ServerError", "The timeout has been reached")
    return JSONResponse(task_json(found))


async def _unless_it_leaves(request: Request, waiting: Coroutine[Any, Any, AdminTask | None]) -> AdminTask | None:
    """What is waited for; None once the client has left, so that nothing waits for it any more."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    ending = asyncio.ensure_future(waiting)
    leaving = asyncio.ensure_future(left())
    try:
        await asyncio.wait((ending, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            return None
        return await ending
    finally:
        ending.cancel()
        leaving.cancel()


@TASKS.delete(
    "/tasks/{task_id}",
    status_code=204,
    responses=described(_400="That is no id.", _404="There is no such task."),
    summary="Cancel a task",
)
async def cancel(desk: Desk, by: Operator, task_id: TaskId) -> Response:
    """End it in good order; what it has mended stays, and `mailmend undo` takes it back."""
    await desk.cancel(task_id, by)
    return Response(status_code=204)


async def _bad_request(request: Request, refused: RequestValidationError) -> Response:
    return refused_query(refused.errors(), TASKS_OF.get(request.url.path, ()))


JOBS: Final = Api(
    about=_ABOUT,
    log="mailmend.jobs",
    routers=(TASKS, METRICS, health_router("/healthcheck")),
    bad_request=_bad_request,
)
assert re.fullmatch(_TIMEOUT, "365d")
