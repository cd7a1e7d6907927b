"""What is answered when a call is refused or fails, in James's form, whatever was asked."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from traceback import extract_tb
from typing import Any, Final, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from mailmend.admin.frame.http.access import Refusal
from mailmend.admin.frame.http.desk import TooManyCalls
from mailmend.model.errors import CannotReach, LeaseHeld, MailmendError, NotThere, UnsafeRequest, WrongUse
from mailmend.repair.ledger.tasks import TooManyTasks, UnknownTask

_FAILED: Final = "a call failed"

ErrorAnswer = Callable[[Request, Any], Awaitable[Response]]


class ErrorBody(BaseModel):
    """Why a call was refused, or failed."""

    statusCode: int  # noqa: N815 - James's name
    type: Literal["InvalidArgument", "notFound", "WrongState", "ServerError", "Unauthorized", "Forbidden"]
    message: str
    details: str | None = None


def error(status: int, kind: str, message: str, details: str | None = None) -> JSONResponse:
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status)
    body = {"statusCode": status, "type": kind, "message": message, "details": details or None}
    return JSONResponse(body, status, headers)


def described(**meanings: str) -> dict[int | str, dict[str, Any]]:
    """Answers for the description of a route, by `_STATUS`, in addition to the answers that every route has."""
    known = {"_401": "No known token was given.", "_403": "The token's role does not do.", "_503": "No cluster."}
    answers: dict[int | str, dict[str, Any]] = {}
    for status, text in {**known, **meanings}.items():
        answers[int(status.removeprefix("_"))] = {"model": ErrorBody, "description": text}
    return answers


async def _refused(request: Request, refusal: Refusal) -> Response:
    request.state.caller = refusal.who
    kind = "Unauthorized" if refusal.status == HTTPStatus.UNAUTHORIZED else "Forbidden"
    return error(refusal.status, kind, refusal.what)


async def _no_route(_: Request, refused: HTTPException) -> Response:
    kind = "notFound" if refused.status_code == HTTPStatus.NOT_FOUND else "InvalidArgument"
    answer = error(refused.status_code, kind, refused.detail)
    answer.headers.update(refused.headers or {})
    return answer


_STATUS: Final[Mapping[type[MailmendError], tuple[int, str]]] = {
    UnknownTask: (404, "notFound"),
    NotThere: (404, "notFound"),
    UnsafeRequest: (409, "WrongState"),
    TooManyTasks: (429, "WrongState"),
    TooManyCalls: (429, "WrongState"),
    LeaseHeld: (503, "ServerError"),
    CannotReach: (503, "ServerError"),
    WrongUse: (400, "InvalidArgument"),
    MailmendError: (500, "ServerError"),
}
"""The first that an error is counts."""


async def _failed(request: Request, failed: MailmendError) -> Response:
    status, kind = next(found for cls, found in _STATUS.items() if isinstance(failed, cls))
    what = failed.what
    if isinstance(failed, CannotReach):
        what = "The cluster does not answer"
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return error(status, kind, what, failed.mend)
    log = logging.getLogger(request.app.state.log)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        log.warning("a call cannot be answered", extra={"error": failed.what})
    else:
        log.error(_FAILED, extra={"error": failed.what})
    return error(status, kind, what)


async def _unforeseen(request: Request, failed: Exception) -> Response:
    place = extract_tb(failed.__traceback__)[-1]
    said = {"error": f"{type(failed).__name__}: {failed}", "place": f"{place.filename}:{place.lineno}"}
    logging.getLogger(request.app.state.log).error(_FAILED, extra=said)
    return error(500, "ServerError", "This should not happen: the server's log says more")


ANSWERS: Final[dict[type[Exception], ErrorAnswer]] = {
    Refusal: _refused,
    HTTPException: _no_route,
    MailmendError: _failed,
    Exception: _unforeseen,
}
