"""The application: routes, errors in James's form, a line of the log for each call."""

import logging
from collections.abc import Awaitable, Callable
from traceback import extract_tb
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin.api.access import Access, Refusal
from admin.api.bodies import error, refused_query
from admin.api.routes import ROUTERS, TASKS_OF
from admin.services.tasks import TaskDesk
from model.errors import CannotReach, MailmendError
from repair.ledger.tasks import TooManyTasks, UnknownTask

_LOG: Final = logging.getLogger("mailmend.jobs")
_ABOUT: Final = """\
James's administrative tasks, done by mailmend: the same routes, statuses and fields. A task is recorded before it is
acknowledged, and run by the server that leads, as a command of mailmend in a process of its own."""

ErrorAnswer = Callable[[Request, Any], Awaitable[Response]]


def application(desk: TaskDesk | None, access: Access) -> FastAPI:
    """The application; without a desk it only describes itself."""
    app = FastAPI(title="mailmend", version="1", description=_ABOUT, docs_url=None, redoc_url=None)
    app.state.desk, app.state.access = desk, access
    for router in ROUTERS:
        app.include_router(router)
    answers: dict[type[Exception], ErrorAnswer] = {
        RequestValidationError: _refused_query,
        Refusal: _refused,
        HTTPException: _no_route,
        MailmendError: _failed,
        Exception: _unforeseen,
    }
    for kind, answer in answers.items():
        app.add_exception_handler(kind, answer)
    app.add_middleware(CallRecord)
    _describe_errors_as_they_are(app)
    return app


def _describe_errors_as_they_are(app: FastAPI) -> None:
    """The framework adds its own answer to bad queries (422), which James's takes the place of."""
    document = app.openapi()
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


class CallRecord:
    """A line for each call: from where, who, what, the answer; of the query nothing, for it may hold anything."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            called = {
                "address": (scope.get("client") or (None,))[0],
                "caller": scope.get("state", {}).get("caller") or None,
                "method": scope["method"],
                "path": ascii(scope["path"])[1:-1],
                "status": status,
            }
            _LOG.info("a call was answered", extra=called)


async def _refused_query(request: Request, refused: RequestValidationError) -> Response:
    return refused_query(refused.errors(), TASKS_OF.get(request.url.path, ()))


async def _refused(request: Request, refusal: Refusal) -> Response:
    request.state.caller = refusal.who
    return error(refusal.status, "Unauthorized" if refusal.status == 401 else "Forbidden", refusal.what)  # noqa: PLR2004


async def _no_route(_: Request, refused: HTTPException) -> Response:
    answer = error(refused.status_code, "notFound" if refused.status_code == 404 else "InvalidArgument", refused.detail)  # noqa: PLR2004
    answer.headers.update(refused.headers or {})
    return answer


async def _failed(_: Request, failed: MailmendError) -> Response:
    match failed:
        case UnknownTask():
            return error(404, "notFound", failed.what)
        case TooManyTasks():
            return error(429, "WrongState", failed.what, failed.mend)
        case CannotReach():
            _LOG.warning("a call cannot be answered", extra={"error": failed.what})
            return error(503, "ServerError", "The cluster does not answer")
        case _:
            _LOG.error("a call failed", extra={"error": failed.what})
            return error(500, "ServerError", failed.what)


async def _unforeseen(_: Request, failed: Exception) -> Response:
    place = extract_tb(failed.__traceback__)[-1]
    said = {"error": f"{type(failed).__name__}: {failed}", "place": f"{place.filename}:{place.lineno}"}
    _LOG.error("a call failed", extra=said)
    return error(500, "ServerError", "This should not happen: the server's log says more")
