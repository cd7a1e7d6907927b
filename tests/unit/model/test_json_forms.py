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

    place: Place | str | None
    texts: tuple[Place, ...] | None = ()


PLACE = JsonForm(answers={"line": JsonField(int), "at": JsonField(int, attribute="column")})


def test_an_object_has_the_order_of_its_form_with_the_first_members_first() -> None:
    form = JsonForm(answers={"at": PLACE.answers["at"], "line": PLACE.answers["line"]}, first=("line",))
    assert list(PLACE.json(Place(3, 7)).items()) == [("line", 3), ("at", 7)]
    assert list(form.json(Place(3, 7)).items()) == [("line", 3), ("at", 7)]


def test_a_form_within_a_form_shows_one_object_or_many_or_what_is_missing() -> None:
    form = JsonForm(answers={"place": JsonField(PLACE, optional=True), "texts": JsonField(PLACE, many=True)})
    assert form.json(Found(None, (Place(1, 2),))) == {"place": None, "texts": [{"line": 1, "at": 2}]}
    assert form.json(Found(Place(3, 7))) == {"place": {"line": 3, "at": 7}, "texts": []}


def test_members_below_an_attribute_show_its_value() -> None:
    form = JsonForm(answers={**PLACE.below("place"), "by": JsonField(str, attribute=None)})
    assert form.json(Found(Place(3, 7)), by="ada") == {"line": 3, "at": 7, "by": "ada"}


def test_a_member_may_have_a_rule_of_its_own_which_sees_what_is_missing_too() -> None:
    form = JsonForm(answers={"line": JsonField(str, attribute="place", to_json=lambda place: f"{place} of a text")})

    assert form.json(Found("line 3")) == {"line": "line 3 of a text"}
    assert form.json(Found(None)) == {"line": "None of a text"}


def test_a_missing_list_differs_from_an_empty_one() -> None:
    form = JsonForm(answers={"texts": JsonField(PLACE, many=True, optional=True)})

    assert form.json(Found(None, None)) == {"texts": None}
    assert form.json(Found(None, ())) == {"texts": []}


def test_members_below_an_attribute_are_the_same_but_for_their_place() -> None:
    described, kept = JsonField(str, "who", attribute=None), JsonField(int, "where", attribute="column", optional=True)
    below = JsonForm(answers={"by": described, "at": kept, "line": JsonField(int)}).below("place")

    assert below["by"] == described
    assert below["at"] == JsonField(int, "where", attribute="place.column", optional=True)
    assert below["line"] == JsonField(int, attribute="place.line")


def test_a_form_without_members_shows_an_empty_object() -> None:
    assert JsonForm().json(Place(3, 7)) == {}
    assert JsonForm() == JsonForm(body="", about="", answers={}, first=(), sparse=False)
