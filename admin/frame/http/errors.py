"""What is answered when a call is refused or fails, in James's form, whatever was asked."""

import logging
from collections.abc import Awaitable, Callable, Mapping
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
    return {
        int(status[1:]): {"model": ErrorBody, "description": text} for status, text in {**known, **meanings}.items()
    }


async def _refused(request: Request, refusal: Refusal) -> Response:
    request.state.caller = refusal.who
    return error(refusal.status, "Unauthorized" if refusal.status == 401 else "Forbidden", refusal.what)  # noqa: PLR2004


async def _no_route(_: Request, refused: HTTPException) -> Response:
    answer = error(refused.status_code, "notFound" if refused.status_code == 404 else "InvalidArgument", refused.detail)  # noqa: PLR2004
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
    if status >= 500:  # noqa: PLR2004 - errors of ours
        level, event = (logging.WARNING, "a call cannot be answered") if status == 503 else (logging.ERROR, _FAILED)  # noqa: PLR2004
        logging.getLogger(request.app.state.log).log(level, event, extra={"error": failed.what})
    what = "The cluster does not answer" if isinstance(failed, CannotReach) else failed.what
    return error(status, kind, what, None if status >= 500 else failed.mend)  # noqa: PLR2004


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
