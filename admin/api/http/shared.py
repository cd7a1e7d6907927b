"""What the routes of the API share: the desk, pages, readable ids of operations."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.api.desk import ApiDesk
from mailmend.admin.frame.http.access import Access, TokenRole
from mailmend.admin.frame.http.bodies import StrictBody

LOG: Final = "mailmend.api"
PAGE: Final = 100
PAGE_MAX: Final = 1000
BUSY: Final = {"_429": "The server already has the maximum number of calls at work."}
OF_QUEUE: Final = {"_404": "There is no such queue.", **BUSY}
OF_RUN: Final = {"_404": "The ledger holds no such run.", **BUSY}


async def _desk(request: Request) -> ApiDesk:
    desk: ApiDesk = request.app.state.desk.api
    return desk


ServedApi = Annotated[ApiDesk, Depends(_desk)]


async def _operates(request: Request) -> bool:
    access: Access = request.app.state.access
    if not access.tokens:
        return True
    roles = [token.role for token in access.tokens if token.name == request.state.caller]
    return max(roles, default=TokenRole.READ) >= TokenRole.OPERATE


Operates = Annotated[bool, Depends(_operates)]
"""Whether the caller, whom a dependency before it has let in, may change something."""


def _operation_id(route: APIRoute) -> str:
    """`list_runs` is `listRuns`."""
    first, *others = route.name.split("_")
    return first + "".join(map(str.capitalize, others))


def router(tag: str, prefix: str = "/v1") -> APIRouter:
    """A router whose operations are named after their functions."""
    return APIRouter(prefix=prefix, tags=[tag], generate_unique_id_function=_operation_id)


PageLimit = Annotated[int, Field(ge=1, le=PAGE_MAX, description="Maximum number on the page.")]
PageToken = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,4000}$")] | SkipJsonSchema[None]
PageAfter = Annotated[PageToken, Field(description="`next` of the page before.")]


class PageQuery(StrictBody):
    """A page."""

    limit: PageLimit = PAGE
    after: PageAfter = None


class OpenBody(BaseModel):
    """An answer; later versions may add fields."""

    model_config = ConfigDict(extra="allow")


Json = dict[str, Any]
QueueNamed = Annotated[str, Query(description="Name of the queue.", max_length=100)]
