"""What the routes of a server of deliveries share: its desk, kinds of parameters, how answers are described."""

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain
from keyword import iskeyword
from types import GenericAlias
from typing import Annotated, Any, Final, get_args

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.desk import DeliveryDesk
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.http.application import CheckBody, check_bodies, described, error
from mailmend.model.errors import WrongUse
from mailmend.model.json_forms import JsonField, JsonForm
from mailmend.model.texts import wellformed

LOG: Final = "mailmend.delivery"


async def _desk(request: Request) -> DeliveryDesk:
    desk: DeliveryDesk = request.app.state.desk
    return desk


def _storable(given: Any) -> Any:
    return wellformed(given) if isinstance(given, str) else given


ServerDesk = Annotated[DeliveryDesk, Depends(_desk)]
DurationText = Annotated[
    str,
    Field(
        pattern=r"^([1-9][0-9]{0,6}s?|[1-9][0-9]{0,4}m|[1-9][0-9]{0,3}h|[1-9][0-9]{0,2}d)$",
        examples=["2h"],
        description="Like 30s, 5m, 2h, 1d.",
    ),
]
ReasonText = Annotated[str, BeforeValidator(_storable), Field(min_length=1, max_length=1000)]
"""JSON may hold half a surrogate pair, which is no reason to refuse what is ordered."""
DryRun = Annotated[bool, Field(description="Write nothing, and answer what would be.")]


class StrictBody(BaseModel):
    """What a call brings: only what is named, so that no slip is passed over.

    A field that may be left out takes no null, unless its schema says so.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_null(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for name, field in cls.model_fields.items():
                said = field.alias or name
                if said in given and given[said] is None and _takes_no_null(field.annotation):
                    raise ValueError(f"{said} is null, which is no value of it: leave it out")
        return given


def _takes_no_null(annotation: Any) -> bool:
    """Whether None is only what a field has that was left out: its schema does not name it."""
    notes = chain.from_iterable(map(get_args, get_args(annotation)))
    return any(type(note) is SkipJsonSchema for note in notes)


class CommandAnswer(StrictBody):
    """What every answer begins with, as the command's own answer in JSON."""

    keyspace: str
    queue: str
    exit: int = Field(description="The exit code of the command: 0, or 3 where some of it could not be done.")


Instant = Annotated[datetime, Field(examples=["2026-11-23T02:30:00.000Z"])]
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


def answered(document: Document) -> Response:
    """The JSON of the command."""
    return JSONResponse(document.json)


def responses(model: type[BaseModel], what: str, **meanings: str) -> dict[int | str, dict[str, Any]]:
    """How a route's answers are described; `_STATUS` of errors in addition to the errors of every route."""
    known: Mapping[str, str] = {"_400": "The call cannot be read, or cannot be.", **meanings}
    return {200: {"model": model, "description": what}, **described(**known)}


def normal_at(pointer: str, read: Callable[[str], str], text: str) -> str:
    """What a reader makes of a value of a call; what it refuses is told with its place, a JSON pointer or a name.

    Raises:
        WrongUse: it is refused.
    """
    try:
        return read(text)
    except WrongUse as error:
        raise WrongUse(f"{pointer}: {error.what}", mend=error.mend) from error


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


async def bad_request(_: Request, refused: RequestValidationError) -> Response:
    """The first thing that is wrong with a call, and where."""
    first = refused.errors()[0]
    place = ".".join(str(step) for step in first["loc"])
    return error(400, "InvalidArgument", "The call cannot be read", f"{place}: {first['msg']}")
