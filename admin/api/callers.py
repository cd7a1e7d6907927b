"""Who calls: what role a route takes, and a line of the log for each call and for each change."""

import logging
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin.api.access import Access, TokenRole

BODY_BYTES_MAX: Final = 262_144

_BEARER: Final = HTTPBearer(
    auto_error=False, description="A token of the server's file, with the role read, or operate (repair is the same)."
)


def needs(role: TokenRole) -> Callable[..., str]:
    """A dependency: the name of who calls, who must have that role."""

    def caller(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> str:
        access: Access = request.app.state.access
        name = access.caller(
            given.credentials if given else None,
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
        self._app, self._log = app, logging.getLogger(log)

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
    """A line for what somebody has changed: who, from where, what, and how many."""
    client = request.client.host if request.client else None
    fields = {"address": client, "caller": request.state.caller or None, **what}
    logging.getLogger(request.app.state.log).info(event, extra=fields)
