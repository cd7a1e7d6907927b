"""Who calls: what role a route takes, how many calls there may be, and a line of the log for each call and change."""

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mailmend.admin.frame.http.access import Access, TokenRole
from mailmend.admin.frame.http.errors import error
from mailmend.model.grammar import counted_address

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
