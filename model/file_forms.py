"""What readers of files share: the error, the rows of a form, and pieces of JSON schema. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from mailmend.model.errors import WrongUse
from mailmend.model.json_forms import JsonForm
from mailmend.model.texts import Place

JsonSchema = Mapping[str, Any]

REFUSED_SHOWN: Final = 20
"""The largest number of refused places that an error shows."""


class BadFile(WrongUse):
    """A file that cannot be used; the message says where, and what to write instead.

    Args:
        file: its name, as it was given.
        place: where.
        problem: what is wrong there.
        refused: the errors of several places, in the order of the file; the message shows the
            first of them.
    """

    def __init__(
        self,
        file: str,
        place: Place,
        problem: str,
        *,
        mend: str = "",
        refused: Sequence[Self] = (),
    ) -> None:
        what = f"{file}, line {place.line}, column {place.column}: {problem}\n{place.pointed}"
        self.refused = tuple(refused)
        if refused:
            what = "\n".join(self._shown())
        super().__init__(what, mend=mend)
        self.file = file
        self.place = place
        self.problem = problem

    def _shown(self) -> list[str]:
        lines = [str(error) for error in self.refused[:REFUSED_SHOWN]]
        more = len(self.refused) - REFUSED_SHOWN
        if more > 0:
            lines.append(f"and {more} more")
        return lines

    @property
    def each(self) -> Sequence[Self]:
        """The error of each place, in the order of the file."""
        return self.refused or (self,)


ANY_VALUE: Final[JsonSchema] = {"type": ["string", "number", "boolean", "null"]}
"""A value is its text, whatever type YAML has for it; a missing text is the empty value."""


def whole(pattern: str) -> JsonSchema:
    """What matches an expression from its beginning to its end."""
    return {"pattern": f"^(?:{pattern})$"}


def text_schema(pattern: str) -> JsonSchema:
    return {"type": "string", **whole(pattern)}


@dataclass(frozen=True, slots=True)
class Scalar:
    """How one value is written.

    Attributes:
        pattern: what the text of the value matches as a whole.
        meaning: what a text that matches stands for.
        problem: what is wrong with any other text; the text itself comes before it.
        mend: how the value is written.
        unquoted: the JSON schema of the value where the file makes another type than a text of it.
        form: the JSON schema of the value, where it is neither of the two.
    """

    pattern: str
    meaning: Callable[[re.Match[str]], Any]
    problem: str
    mend: str = ""
    unquoted: JsonSchema | None = None
    form: JsonSchema | None = None

    def matches(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text) is not None

    def parse(self, text: str) -> Any:
        """What a text stands for.

        Raises:
            WrongUse: it is no such value.
        """
        found = re.fullmatch(self.pattern, text)
        if not found:
            raise WrongUse(f"{text!r} {self.problem}", mend=self.mend)
        return self.meaning(found)

    @property
    def schema(self) -> JsonSchema:
        return self.form or {"anyOf": [self.unquoted, text_schema(self.pattern)]}


@dataclass(frozen=True, slots=True)
class FilePart:
    """A name in a mapping of the file, and what is written there.

    Attributes:
        value: one value, which the reader parses by this; or the JSON schema of anything else.
        meaning: for people who write such files; "" where the name says it.
        attribute: where the reader keeps it; "": under the part's own name.
    """

    name: str
    value: Scalar | JsonSchema
    meaning: str = ""
    attribute: str = ""

    @property
    def schema(self) -> JsonSchema:
        schema = self.value
        if isinstance(schema, Scalar):
            schema = schema.schema
        return described(self.meaning, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm(JsonForm):
    """A mapping of the file: its parts, which are all that it may have, and how answers show it.

    Attributes:
        what: what errors call it.
        required: the names of parts that must be there.
    """

    what: str = ""
    parts: tuple[FilePart, ...] = ()
    meaning: str = ""
    required: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    @property
    def schema(self) -> JsonSchema:
        parts = {part.name: part.schema for part in self.parts}
        schema = dict(described(self.meaning, object_schema(parts)))
        if self.required:
            schema["required"] = list(self.required)
        return schema


def described(text: str, schema: JsonSchema) -> JsonSchema:
    if not text:
        return schema
    return {"description": text, **schema}


def object_schema(parts: Mapping[str, JsonSchema]) -> JsonSchema:
    """A mapping with these names and no others."""
    return {"type": "object", "properties": parts, "additionalProperties": False}


def by_name(schema: JsonSchema, name: Scalar | None = None) -> JsonSchema:
    """A mapping of things by their name."""
    found: dict[str, Any] = {"type": "object"}
    if name:
        found["propertyNames"] = whole(name.pattern)
    found["additionalProperties"] = schema
    return found


def list_schema(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def one_or_more(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, list_schema(schema)]}


def defined(name: str) -> JsonSchema:
    """What the schema defines under a name."""
    return {"$ref": f"#/$defs/{name}"}
