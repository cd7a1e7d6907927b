"""What is answered of tasks, in James's form, and to queries that cannot be read."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from mailmend.admin.frame.http.application import error
from mailmend.admin.jobs.james_tasks import KINDS, TaskOutcome
from mailmend.repair.ledger.tasks import AdminTask

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
        case "messagesPerSecond", "int_parsing":
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
