"""The application of a server's HTTP side: its routes, errors, and a line of the log for each call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError

from mailmend.admin.frame.http.access import Access
from mailmend.admin.frame.http.callers import BodyLimit, CallCheck, CallLimit, CallRecord
from mailmend.admin.frame.http.errors import ANSWERS, ErrorAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What one server answers over HTTP.

    Attributes:
        about: for its description.
        log: the logger of its calls and errors.
        bad_request: the answer to a call whose parts cannot be read.
    """

    about: str
    log: str
    routers: Sequence[APIRouter]
    bad_request: ErrorAnswer


def application(api: Api, desk: Any, access: Access) -> FastAPI:
    """The application at a desk; at None it only describes itself."""
    app = _Application(title="mailmend", version="1", description=api.about, docs_url=None, redoc_url=None)
    app.state.desk = desk
    app.state.access = access
    app.state.log = api.log
    for router in api.routers:
        app.include_router(router)
    app.add_exception_handler(RequestValidationError, api.bad_request)
    for kind, answer in ANSWERS.items():
        app.add_exception_handler(kind, answer)
    app.add_middleware(BodyLimit)
    app.add_middleware(CallLimit)
    app.add_middleware(CallCheck, access=access)
    app.add_middleware(CallRecord, log=api.log)
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
