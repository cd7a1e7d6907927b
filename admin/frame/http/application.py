"""The application of a server's HTTP side: its routes for monitoring, its errors, who may call.

A call that is refused or fails gets an answer in James's form. Each call has a line in the log.
"""

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from traceback import extract_tb
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as AnyHttpException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mailmend.admin.frame.http.access import Access, Refusal, TokenRole
from mailmend.admin.frame.http.desk import HealthStatus, MonitoredDesk, PartHealth, TooManyCalls
from mailmend.mailqueue.prometheus import CONTENT_TYPE
from mailmend.model.errors import (
    CannotReach,
    LeaseHeld,
    MailmendError,
    NotThere,
    UnknownRun,
    UnsafeRequest,
    WrongUse,
)
from mailmend.model.grammar import counted_address
from mailmend.repair.ledger.jobs import TooManyTasks, UnknownTask

_FAILED: Final = "a call failed"

ErrorAnswer = Callable[[Request, Any], Awaitable[Response]]
ErrorKind = Literal["InvalidArgument", "notFound", "WrongState", "ServerError", "Unauthorized", "Forbidden"]


class ErrorBody(BaseModel):
    """Why a call was refused, or failed."""

    statusCode: int  # noqa: N815 - James's name
    type: ErrorKind
    message: str
    details: str | None = None


def error(status: int, kind: ErrorKind, message: str, details: str | None = None) -> JSONResponse:
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status)
    body = ErrorBody(statusCode=status, type=kind, message=message, details=details or None)
    return JSONResponse(body.model_dump(), status, headers)


def described(**meanings: str) -> dict[int | str, dict[str, Any]]:
    """Answers for the description of a route, by `_STATUS`, in addition to the answers that every route has."""
    known = {"_401": "No known token was given.", "_403": "The token's role does not do.", "_503": "No cluster."}
    answers: dict[int | str, dict[str, Any]] = {}
    for status, text in {**known, **meanings}.items():
        answers[int(status.removeprefix("_"))] = {"model": ErrorBody, "description": text}
    return answers


async def _refused(request: Request, refusal: Refusal) -> Response:
    request.state.caller = refusal.who
    kind: ErrorKind = "Unauthorized" if refusal.status == HTTPStatus.UNAUTHORIZED else "Forbidden"
    return error(refusal.status, kind, refusal.what)


async def _no_route(_: Request, refused: AnyHttpException) -> Response:
    kind: ErrorKind = "notFound" if refused.status_code == HTTPStatus.NOT_FOUND else "InvalidArgument"
    answer = error(refused.status_code, kind, refused.detail)
    answer.headers.update(refused.headers or {})
    return answer


_STATUS: Final[Mapping[type[MailmendError], tuple[int, ErrorKind]]] = {
    UnknownTask: (404, "notFound"),
    NotThere: (404, "notFound"),
    UnknownRun: (404, "notFound"),
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
    AnyHttpException: _no_route,
    MailmendError: _failed,
    Exception: _unforeseen,
}


BODY_BYTES_MAX: Final = 262_144
CALLS_AT_ONCE: Final = 100
CALLS_BY_ADDRESS: Final = 50
PROBES_AT_ONCE: Final = 20
"""Calls of one of the paths of probes at once. They do not count as other calls."""

PROBE_PATHS: Final = frozenset({"/health", "/healthcheck", "/metrics", "/ready"})
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")

_BEARER: Final = HTTPBearer(
    auto_error=False, description="A token of the server's file, with the role read, or operate (repair is the same)."
)


def needs(role: TokenRole) -> Callable[..., Awaitable[str]]:
    """A dependency: the name of who calls, who must have that role."""

    async def caller(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> str:
        access: Access = request.app.state.access
        token = None
        if given:
            token = given.credentials
        name = access.caller(
            token,
            role,
            host=request.headers.get("host", ""),
            origin=request.headers.get("origin"),
        )
        request.state.caller = name
        return name

    return caller


Reader = Annotated[str, Depends(needs(TokenRole.READ))]
Operator = Annotated[str, Depends(needs(TokenRole.OPERATE))]


class CallRecord:
    """A line for each call: from where, who, what, the answer; of the query nothing, for it may hold anything."""

    def __init__(self, app: ASGIApp, log: str) -> None:
        self._app = app
        self._log = logging.getLogger(log)

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
            self._log.info("a call was answered", extra=called)


class AddedHeaders:
    """Adds header fields to every answer, to refusals of other middleware too."""

    def __init__(self, app: ASGIApp, fields: Mapping[str, str]) -> None:
        self._app = app
        self._fields = fields

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._fields)
            await send(message)

        await self._app(scope, receive, with_fields)


class CallCheck:
    """Refuses calls that no program of an operator makes: a bad Host, and web pages of elsewhere without tokens."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers()
        if scope["type"] == "http":
            headers = Headers(scope=scope)
        host = headers.get("host")
        site = headers.get("sec-fetch-site")
        if host is not None and not _HOST.fullmatch(host):
            answer = error(400, "InvalidArgument", "The header field Host is not HOST or HOST:PORT")
        elif self._access.refuses_page(site):
            answer = error(403, "Forbidden", "Without tokens only programs of this machine may ask: not a web page")
        else:
            await self._app(scope, receive, send)
            return
        await answer(scope, receive, send)


class CallLimit:
    """Refuses calls beyond those that may be answered at once, by address and over all.

    Each path of probes has room of its own.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._calls = Counter[str]()
        self._probes = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path in PROBE_PATHS:
            counts = self._probes
            key = path
            has_room = counts[key] < PROBES_AT_ONCE
        else:
            counts = self._calls
            key = counted_address(str((scope.get("client") or ("",))[0]))
            has_room = counts[key] < CALLS_BY_ADDRESS and counts.total() < CALLS_AT_ONCE
        if not has_room:
            await _busy()(scope, receive, send)
            return
        counts[key] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


def _busy() -> Response:
    answer = error(503, "ServerError", "The server already answers its maximum number of calls")
    answer.headers["Retry-After"] = "1"
    return answer


class BodyLimit:
    """Refuses a call whose body is larger than any that means something, before it is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > BODY_BYTES_MAX:
                raise HTTPException(413, f"The body is larger than {BODY_BYTES_MAX:,} bytes")
            return message

        await self._app(scope, counted, send)


def log_change(request: Request, event: str, **what: Any) -> None:
    """A line for a change: who, from where, what, and how many."""
    address = None
    if request.client:
        address = request.client.host
    fields = {"address": address, "caller": request.state.caller or None, **what}
    logging.getLogger(request.app.state.log).info(event, extra=fields)


StatusName = Literal["healthy", "degraded", "unhealthy"]
_STATUS_NAMES: Final[Mapping[HealthStatus, StatusName]] = {
    HealthStatus.HEALTHY: "healthy",
    HealthStatus.DEGRADED: "degraded",
    HealthStatus.UNHEALTHY: "unhealthy",
}


class CheckBody(BaseModel):
    """The health of a part."""

    componentName: str  # noqa: N815 - James's name
    escapedComponentName: str  # noqa: N815
    status: StatusName
    cause: str | None = None


class HealthBody(BaseModel):
    """The health of the server: the health of its worst part."""

    status: StatusName
    checks: list[CheckBody]


async def _desk(request: Request) -> MonitoredDesk:
    desk: MonitoredDesk = request.app.state.desk
    return desk


AnyDesk = Annotated[MonitoredDesk, Depends(_desk)]


def check_bodies(parts: Sequence[PartHealth]) -> list[CheckBody]:
    """As James tells of its components."""
    checks = []
    for part in parts:
        check = CheckBody(
            componentName=part.name,
            escapedComponentName=part.name,
            status=_STATUS_NAMES[part.status],
            cause=part.cause or None,
        )
        checks.append(check)
    return checks


METRICS: Final = APIRouter(tags=["metrics"])


def health_router(path: str) -> APIRouter:
    """The route of the server's health, at this path."""
    router = APIRouter(tags=["health"])

    @router.get(
        path,
        responses={
            200: {"model": HealthBody, "description": "It works, or is on standby."},
            503: {"model": HealthBody, "description": "A part of it does not work."},
        },
        summary="The health of this server",
    )
    async def health(desk: AnyDesk) -> Response:
        """For probes: it takes no token, and however often it is called, no other server is asked more often."""
        parts = desk.health()
        worst = max(part.status for part in parts)
        body = HealthBody(status=_STATUS_NAMES[worst], checks=check_bodies(parts))
        status = 503 if worst is HealthStatus.UNHEALTHY else 200
        return JSONResponse(body.model_dump(exclude_none=True), status)

    return router


@METRICS.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "In Prometheus's text format."},
        **described(),
    },
    summary="Metrics for Prometheus",
)
async def metrics(desk: AnyDesk, _: Reader) -> Response:
    """As the commands of this server print or write them, of at most half a minute ago."""
    return Response(await desk.metrics(), media_type=CONTENT_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What one server answers over HTTP.

    Attributes:
        about: for its description.
        log: the logger of its calls and errors.
        bad_request: the answer to a call whose parts cannot be read.
        answers: to errors.
        headers: header fields of every answer.
    """

    about: str
    log: str
    routers: Sequence[APIRouter]
    bad_request: ErrorAnswer
    answers: Mapping[type[Exception], ErrorAnswer] = field(default_factory=lambda: ANSWERS)
    headers: Mapping[str, str] = field(default_factory=dict)


def application(api: Api, desk: Any, access: Access) -> FastAPI:
    """The application at a desk; at None it only describes itself."""
    app = _Application(title="mailmend", version="1", description=api.about, docs_url=None, redoc_url=None)
    app.state.desk = desk
    app.state.access = access
    app.state.log = api.log
    for router in api.routers:
        app.include_router(router)
    app.add_exception_handler(RequestValidationError, api.bad_request)
    for kind, answer in api.answers.items():
        app.add_exception_handler(kind, answer)
    app.add_middleware(BodyLimit)
    app.add_middleware(CallLimit)
    app.add_middleware(CallCheck, access=access)
    app.add_middleware(CallRecord, log=api.log)
    if api.headers:
        app.add_middleware(AddedHeaders, fields=api.headers)
    return app


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The framework adds its own answer to bad queries (422), which the API's own answer replaces."""
        document = super().openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document
