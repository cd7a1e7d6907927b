"""The form of a JSON object shows a value, and the value of an attribute."""

from dataclasses import dataclass

from mailmend.model.json_forms import JsonField, JsonForm


@dataclass(frozen=True)
class Place:
    """A place in a text."""

    line: int
    column: int


@dataclass(frozen=True)
class Found:
    """What was found, and where."""

    place: Place | None
    texts: tuple[Place, ...] = ()


PLACE = JsonForm(answers={"line": JsonField(int), "at": JsonField(int, attribute="column")})


def test_an_object_has_the_order_of_its_form_with_the_first_members_first() -> None:
    form = JsonForm(answers={"at": PLACE.answers["at"], "line": PLACE.answers["line"]}, first=("line",))
    assert list(PLACE.json(Place(3, 7)).items()) == [("line", 3), ("at", 7)]
    assert list(form.json(Place(3, 7)).items()) == [("line", 3), ("at", 7)]


def test_a_form_within_a_form_shows_one_object_or_many_or_what_is_missing() -> None:
    form = JsonForm(answers={"place": JsonField(PLACE, optional=True), "texts": JsonField(PLACE, many=True)})
    assert form.json(Found(None, (Place(1, 2),))) == {"place": None, "texts": [{"line": 1, "at": 2}]}


def test_members_below_an_attribute_show_its_value() -> None:
    form = JsonForm(answers={**PLACE.below("place"), "by": JsonField(str, attribute=None)})
    assert form.json(Found(Place(3, 7)), by="ada") == {"line": 3, "at": 7, "by": "ada"}
