"""Forms of files: what is refused is said with its place, and the JSON schema of a form takes what its reader takes."""

import pytest

from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import (
    REFUSED_SHOWN,
    BadFile,
    FileForm,
    FilePart,
    Scalar,
    by_name,
    defined,
    list_schema,
    object_schema,
    one_or_more,
)
from mailmend.model.texts import Place

PLACE = Place(2, 3, "a: x")
NUMBER = Scalar("[0-9]+", lambda found: int(found[0]), "is no number", "Write 5.", unquoted={"type": "integer"})
WORD = Scalar("[a-z]+", lambda found: found[0], "is no word", form={"enum": ["a", "b"]})


def refused(problem: str) -> BadFile:
    return BadFile("a.yaml", PLACE, problem)


def test_an_error_of_a_file_says_where_it_is_and_what_to_write() -> None:
    error = BadFile("a.yaml", PLACE, "x is no number", mend="Write 5.")

    assert str(error) == "a.yaml, line 2, column 3: x is no number\na: x\n  ^\nWrite 5."
    assert (error.file, error.place, error.problem, error.refused) == ("a.yaml", PLACE, "x is no number", ())
    assert error.each == (error,)


@pytest.mark.parametrize(("count", "more"), [(2, []), (REFUSED_SHOWN, []), (REFUSED_SHOWN + 1, ["and 1 more"])])
def test_an_error_of_several_places_shows_the_first_of_them_and_counts_the_rest(count: int, more: list[str]) -> None:
    each = [refused(f"problem {number}") for number in range(count)]

    error = BadFile("a.yaml", PLACE, "problem 0", refused=each)

    assert error.what == "\n".join([*map(str, each[:REFUSED_SHOWN]), *more])
    assert error.each == tuple(each)


def test_a_value_is_read_where_its_whole_text_matches() -> None:
    assert NUMBER.parse("42") == 42
    assert NUMBER.matches("42")
    assert not NUMBER.matches("42 ")
    with pytest.raises(WrongUse) as error:
        NUMBER.parse("42 ")
    assert str(error.value) == "'42 ' is no number\nWrite 5."


def test_a_value_may_stand_in_quotes_or_without_in_a_file() -> None:
    assert NUMBER.schema == {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^(?:[0-9]+)$"}]}
    assert WORD.schema == {"enum": ["a", "b"]}


def test_the_schema_of_a_form_has_its_parts_and_what_they_mean_and_nothing_else() -> None:
    number, names = FilePart("a", NUMBER, "How many."), FilePart("b", list_schema(WORD.schema))
    form = FileForm(what="a thing", parts=(number, names), meaning="A thing.", required=("a",))

    assert form.names == ("a", "b")
    assert form.schema == {
        "description": "A thing.",
        "type": "object",
        "properties": {
            "a": {"description": "How many.", **NUMBER.schema},
            "b": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
        "additionalProperties": False,
        "required": ["a"],
    }
    assert FileForm(parts=(names,)).schema == object_schema({"b": names.schema})


def test_pieces_of_schemas_are_put_together() -> None:
    assert by_name({"type": "null"}) == {"type": "object", "additionalProperties": {"type": "null"}}
    assert by_name({}, WORD) == {
        "type": "object",
        "propertyNames": {"pattern": "^(?:[a-z]+)$"},
        "additionalProperties": {},
    }
    assert one_or_more(defined("word")) == {
        "anyOf": [{"$ref": "#/$defs/word"}, {"type": "array", "items": {"$ref": "#/$defs/word"}}]
    }
