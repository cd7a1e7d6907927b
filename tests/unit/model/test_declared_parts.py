"""Parts of a file of projections about rows of a truth: errors with their place, and what is kept."""

import pytest

from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import OtherColumn
from tests.unit.model.test_declarations import EVERY_KIND, refused

MIRROR = "[truth.a.mirror.b]\n"
COUNT = "[truth.a.count.b]\ncounters = { n = {} }\n"
NUMBERED = COUNT + "generators = ['c']\nnumbered_by = "
NULL_IS = "[truth.a.mirror.b]\n[truth.a]\nnull_is = "


@pytest.mark.parametrize(
    ("text", "line", "column", "problem", "mend"),
    [
        ("[truth.users.mirror.x]\nrequired = 'a'", 2, 1, "required is a list of columns", '["note", "size"]'),
        ("[truth.users.mirror.x]\nrequired = ['a', 1]", 2, 18, "a column name is a text", '"1"'),
        (
            "[truth.users.mirror.x]\nrequired = ['a', 'A']",
            1,
            21,
            "a occurs twice among the required columns of x",
            "Name it once.",
        ),
        (MIRROR + "filled_from_content = ['a']", 1, 17, "a is filled, and not required", "name it in required"),
        (
            MIRROR + "required = ['a']\nfilled_from_content = ['a']\nwhen = { b = 1 }",
            1,
            17,
            "b has not every row, so it fills none",
            "Leave filled_from_content or when out.",
        ),
        (MIRROR + "only_reported = ['AMEND']", 2, 1, "a list of verdicts is not a table", "PROJECT, AMEND, WITHDRAW"),
        (MIRROR + "only_reported = { TORN = 'x' }", 2, 19, "a list of verdicts has no 'TORN'", "It may have: PROJECT"),
        (MIRROR + "only_reported = { AMEND = 1 }", 2, 19, "the reason of AMEND is not a text", "a person decides"),
        (MIRROR + "only_reported = { AMEND = ' ' }", 1, 17, "the reason of AMEND is not one line", "a person decides"),
        (MIRROR + "fields = { a = 'b' }", 2, 12, "a is not a table", "address = { city"),
        (MIRROR + "fields = { a = {} }", 1, 17, "a has no fields", "address = { city"),
        (MIRROR + "fields = { a = { b = 1 } }", 2, 18, "a column name is a text", '"1"'),
        (MIRROR + "fields = { a = { b = 'c', B = 'd' } }", 1, 17, "b occurs twice among the fields of a", "once"),
        (MIRROR + "left_out = ['a']\nfields = { a = { b = 'c' } }", 1, 17, "a occurs twice among the columns", "once"),
        (
            "[truth.a.count.b]\ncounters = { n = {} }\ngenerators = 'c'",
            3,
            1,
            "generators is a list of tables",
            '["note", "size"]',
        ),
        (
            "[truth.a.count.b]\ncounters = { n = {} }\ngenerators = ['c', 'B']",
            1,
            16,
            "b occurs twice among b and its generators",
            "Name it once.",
        ),
        (
            "[truth.a.count.b]\ncounters = { n = {} }\ngenerators = ['from']",
            3,
            15,
            "'from' is not a valid table name",
            "in double quotes",
        ),
        (NUMBERED + "['c']", 4, 1, "numbered_by is not a table", "column_of_truth"),
        (NUMBERED + "{ d = 'x' }", 1, 16, "x gives numbers, and is no generator of b", "Name it in generators too."),
        (NUMBERED + "{ d = 'c', e = 'c' }", 1, 16, "c occurs twice among the generators of numbered_by", "once"),
        (COUNT + "used_with = ['c']", 1, 16, "used_with of b is about numbers, of which it has none", "numbered_by"),
        (NULL_IS + "1", 3, 1, "null_is is not a table", "done = false"),
        (NULL_IS + "{ c = 1.5 }", 3, 13, "the null of c is neither a constant nor another column", "done = false"),
        (NULL_IS + "{ c = {} }", 3, 13, "the null of c is read as nothing", 'column = "message"'),
        (NULL_IS + "{ c = { col = 'd' } }", 3, 19, "another column has no 'col'", "Did you mean 'column'?"),
        (NULL_IS + "{ c = { column = 1 } }", 3, 19, "a column name is a text", '"1"'),
        (NULL_IS + "{ c = 1, C = 2 }", 1, 8, "c occurs twice among the columns of null_is", "Name it once."),
    ],
)
def test_a_part_that_is_refused_is_named_with_its_place(
    text: str,
    line: int,
    column: int,
    problem: str,
    mend: str,
) -> None:
    error = refused(text)
    assert (error.place.line, error.place.column) == (line, column)
    assert problem in error.problem
    assert mend in error.mend


def test_a_mirror_that_is_filled_keeps_its_content() -> None:
    text = '[truth.users.mirror.one]\nrequired = ["a"]\nfilled_from_content = ["a"]\n'
    (truth,) = read_declaration(text + EVERY_KIND).truths

    for named in ("one", "active", "counts", "profiles"):
        assert "profiles" in truth.only(named).projections
    assert "profiles" not in truth.only("by_email").projections


def test_a_part_of_a_truth_keeps_how_its_nulls_are_read() -> None:
    text = '[truth.users]\nnull_is = { done = false, thread = { column = "message" } }\n\n'
    (truth,) = read_declaration(text + EVERY_KIND).truths

    assert read_declaration(text + EVERY_KIND).text == text + EVERY_KIND
    assert {truth.only(table).null_is for table in truth.projections} == {truth.null_is}
    assert truth.null_is == (("done", False), ("thread", OtherColumn("message")))
