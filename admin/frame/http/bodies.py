"""What calls bring and how answers are described, for the routes of any server."""

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, get_args

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.frame.document import Document
from mailmend.admin.frame.http.application import described, error
from mailmend.model.errors import WrongUse
from mailmend.model.texts import wellformed


def _storable(given: Any) -> Any:
    return wellformed(given) if isinstance(given, str) else given


Instant = Annotated[datetime, Field(examples=["2026-11-23T02:30:00.000Z"])]
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


def answered(document: Document) -> Response:
    """The JSON of the command."""
    return JSONResponse(document.json)


def responses(
    model: type[BaseModel],
    what: str,
    **meanings: str,
) -> dict[int | str, dict[str, Any]]:
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


async def bad_request(_: Request, refused: RequestValidationError) -> Response:
    """The first thing that is wrong with a call, and where."""
    first = refused.errors()[0]
    place = ".".join(str(step) for step in first["loc"])
    return error(400, "InvalidArgument", "The call cannot be read", f"{place}: {first['msg']}")
