"""The form of a JSON object that commands print, HTTP routes answer and OpenAPI describes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any


@dataclass(frozen=True, slots=True)
class JsonField:
    """A member of a JSON object.

    Attributes:
        type: of the JSON value; a form: an object of that form.
        meaning: for people who read the OpenAPI description.
        attribute: where the shown value keeps it, like `entry.id`; "": under its own name; None:
            the caller tells it.
        to_json: makes the JSON value; None: it is kept as one, or the form makes it.
        many: a list of such objects.
        optional: the object, or the list, may be missing.
    """

    type: Any
    meaning: str = ""
    attribute: str | None = ""
    to_json: Callable[[Any], Any] | None = None
    many: bool = False
    optional: bool = False

    def json(self, kept: Any) -> Any:
        if self.to_json:
            return self.to_json(kept)
        if kept is None:
            return None
        if self.many:
            return [self.type.json(each) for each in kept]
        if isinstance(self.type, JsonForm):
            return self.type.json(kept)
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """A JSON object that shows a value.

    Attributes:
        body: what the OpenAPI description calls it.
        about: what it is.
        answers: its members by name, in the order of the description.
        first: the members that come first in JSON, where the description has another order.
        sparse: the object leaves out what is not there.
    """

    body: str = ""
    about: str = ""
    answers: Mapping[str, JsonField] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    sparse: bool = False

    def json(self, kept: Any, **given: Any) -> dict[str, Any]:
        """The object that shows a value; `given` is what the caller tells, by its name in JSON.

        Members may still be values of ours, like instants and ids: `plain` comes last.
        """
        found = dict[str, Any]()
        for name in dict.fromkeys((*self.first, *self.answers)):
            answer = self.answers[name]
            if answer.attribute is None:
                found[name] = given[name]
            else:
                found[name] = answer.json(attrgetter(answer.attribute or name)(kept))
        return found

    def below(self, attribute: str) -> dict[str, JsonField]:
        """The same members, where the shown value keeps the value of this form as an attribute."""
        found = dict[str, JsonField]()
        for name, answer in self.answers.items():
            place = answer.attribute
            if place is not None:
                place = f"{attribute}.{place or name}"
            found[name] = replace(answer, attribute=place)
        return found
