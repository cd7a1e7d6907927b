"""Bodies of answers that follow from a description: pydantic models for the OpenAPI description."""

from dataclasses import dataclass
from keyword import iskeyword
from types import GenericAlias
from typing import Any, Final

from pydantic import BaseModel, Field, GetCoreSchemaHandler, create_model
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema

from mailmend.admin.delivery.http.shared import StrictBody
from mailmend.delivery.policy.file.forms import FileAnswer, FileForm

_Missing = SkipJsonSchema[None]
_MADE: Final = dict[str, type[BaseModel]]()


@dataclass(frozen=True, slots=True)
class Described:
    """Annotates a part of an answer: it has the fields that the answers of a form have."""

    form: FileForm

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_body(self.form))


def _body(form: FileForm) -> type[BaseModel]:
    """The model of a form, which is made once."""
    if form.body not in _MADE:
        fields = dict[str, Any]()
        for name, answer in form.answers.items():
            # A keyword cannot be the name of a field: its alias is the name in the answer.
            own_name = f"{name}_" if iskeyword(name) else name
            fields[own_name] = _field(name, answer, sparse=form.sparse)
        _MADE[form.body] = create_model(form.body, __base__=StrictBody, __doc__=form.about, **fields)
    return _MADE[form.body]


def _field(name: str, answer: FileAnswer, *, sparse: bool) -> tuple[Any, Any]:
    """The type of a field, and what else there is to say of it."""
    found = answer.type
    if isinstance(answer.type, FileForm):
        found = _body(answer.type)
    if answer.many:
        found = GenericAlias(list, found)
    if answer.optional:
        found = found | None
    alias = name if iskeyword(name) else None
    meaning = answer.meaning or None
    if sparse:
        return found | _Missing, Field(None, alias=alias, description=meaning)
    return found, Field(alias=alias, description=meaning)
