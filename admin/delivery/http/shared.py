"""What the routes of a server of deliveries share: its desk, kinds of parameters, how answers are described."""

from datetime import datetime
from keyword import iskeyword
from types import GenericAlias
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.desk import DeliveryDesk
from mailmend.admin.frame.http.application import CheckBody, check_bodies
from mailmend.admin.frame.http.bodies import Instant, StrictBody
from mailmend.model.json_forms import JsonField, JsonForm

LOG: Final = "mailmend.delivery"


async def _desk(request: Request) -> DeliveryDesk:
    desk: DeliveryDesk = request.app.state.desk
    return desk


ServerDesk = Annotated[DeliveryDesk, Depends(_desk)]


class CommandAnswer(StrictBody):
    """What every answer begins with, as the command's own answer in JSON."""

    keyspace: str
    queue: str
    exit: int = Field(description="The exit code of the command: 0, or 3 where some of it could not be done.")


_Missing = SkipJsonSchema[None]
_MADE: Final = dict[str, type[BaseModel]]()


def answer_model(form: JsonForm, base: type[BaseModel] = StrictBody) -> type[BaseModel]:
    """The model that describes the objects of a form; it is made once."""
    if form.body not in _MADE:
        fields = dict[str, Any]()
        for name, shown in form.answers.items():
            # A keyword cannot be the name of a field: its alias is the name in the answer.
            own_name = f"{name}_" if iskeyword(name) else name
            fields[own_name] = _field(name, shown, sparse=form.sparse)
        _MADE[form.body] = create_model(form.body, __base__=base, __doc__=form.about, **fields)
    return _MADE[form.body]


def command_model(form: JsonForm) -> type[BaseModel]:
    """The same for the answer of a command."""
    return answer_model(form, CommandAnswer)


def _field(name: str, shown: JsonField, *, sparse: bool) -> tuple[Any, Any]:
    """The type of a field, and what else there is to say of it."""
    found = shown.type
    if isinstance(shown.type, JsonForm):
        found = answer_model(shown.type)
    elif shown.type is datetime:
        found = Instant
    elif shown.type == datetime | None:
        found = Instant | None
    if shown.many:
        found = GenericAlias(list, found)
    if shown.optional:
        found = found | None
    alias = name if iskeyword(name) else None
    meaning = shown.meaning or None
    if sparse:
        return found | _Missing, Field(None, alias=alias, description=meaning)
    return found, Field(alias=alias, description=meaning)


HistoryLimit = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of changes, the newest first.")]
ORDERS: Final = {"_413": "The body is larger than any that means something."}
READS_THROUGH: Final = {"_429": "As many calls as may read the queue through already."}


class ReadyAnswer(StrictBody):
    """Whether the server takes mails, and what its parts say, as `/health` does."""

    ready: bool
    checks: list[CheckBody]


READY: Final = APIRouter(tags=["health"])


@READY.get(
    "/ready",
    responses={
        200: {"model": ReadyAnswer, "description": "It takes mails."},
        503: {"model": ReadyAnswer, "description": "It does not, or the broker or Cassandra does not answer."},
    },
    summary="Whether it takes mails",
)
async def ready(desk: ServerDesk) -> Response:
    """For probes: it takes no token. A server is ready once it knows what is suspended, and consumes.

    The broker and Cassandra are asked every 10 seconds; while one is silent it is not ready, and delivers what it has.
    """
    body = ReadyAnswer(ready=desk.is_ready, checks=check_bodies(desk.health()))
    return JSONResponse(body.model_dump(exclude_none=True), 200 if body.ready else 503)
