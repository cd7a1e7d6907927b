"""Which JSON values a column takes: of each type the values at its bounds, and what is said of others."""

import pytest

from mailmend.cql.statements.json_values import JsonValue, columns_in, first_value, json_problem
from mailmend.model.keyspace import Schema
from mailmend.model.table import UserType

SCHEMA = Schema((UserType("place", (("street", "text"), ("codes", "list<int>"))),), ())
A_UUID = "6e0ab5e0-8d1c-11f0-8000-000000000001"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("tinyint", [127, -128, "127", "-128", "+5", ""]),
        ("smallint", [32_767, -32_768, "32767", "-32768"]),
        ("int", [2**31 - 1, -(2**31), "2147483647", "-2147483648"]),
        ("bigint", [2**63 - 1, -(2**63), f"{2**63 - 1}", f"{-(2**63)}"]),
        ("varint", [10**50, "-5", "0"]),
        ("float", [1, 1.5, "", "NaN", "-Infinity", "1e3", " .5f "]),
        ("double", [1, 1.5, "0x1p3", "5D"]),
        ("decimal", [1, 1.5, "1.5e3", "", "-.5"]),
        ("boolean", [True, False, "TRUE", "false", ""]),
        ("text", ["", "grün"]),
        ("ascii", ["", "a"]),
        ("blob", ["0x", "0xCAfe"]),
        ("uuid", [A_UUID, ""]),
        ("timeuuid", [A_UUID, ""]),
        ("inet", ["192.0.2.1", "::1", ""]),
        ("timestamp", [0, "2026-09-01", ""]),
        ("date", ["2026-09-01"]),
        ("time", ["08:12:54"]),
        ("duration", ["", "1h30m", "P1D", "-2mo"]),
        ("list<int>", [[], [1, "2"], "[1]", " \t\r\n[1]"]),
        ("frozen<set<text>>", [["a"]]),
        ("map<int, text>", [{}, {"1": "a"}, '{"1": "a"}']),
        ("tuple<int, text>", [[1, "a"], [None, None]]),
        ("vector<float, 2>", [[1, 2.5], "[1, 2]"]),
        ("place", [{}, {"street": None}, {"STREET": "a", "codes": [1]}, '{"codes": "[1]"}']),
        ("int", [None]),
        ("somebodys", [5]),
    ],
)
def test_a_column_takes_what_a_server_makes_a_value_of(kind: str, values: list[JsonValue]) -> None:
    assert {json_problem(SCHEMA, kind, value) for value in values} == {""}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("tinyint", [128, -129, "128", "-129", True, 1.5, "a", "1" * 41]),
        ("smallint", [32_768, -32_769, "32768", "-32769"]),
        ("int", [2**31, -(2**31) - 1, "2147483648", "-2147483649"]),
        ("bigint", [2**63, -(2**63) - 1, f"{2**63}", f"{-(2**63) - 1}"]),
        ("varint", [1.5, True, "1.5", ""]),
        ("float", [True, "a", [], "1_0"]),
        ("double", [False, "--1"]),
        ("decimal", [float("inf"), float("-inf"), "NaN", True, " 1"]),
        ("boolean", [1, "yes", [True]]),
        ("text", [5, ["a"]]),
        ("ascii", ["grün", 5]),
        ("blob", ["", "cafe", "0xabc", 5]),
        ("uuid", ["a", 5, f"{A_UUID}0"]),
        ("timeuuid", ["6e0ab5e0-8d1c-41f0-8000-000000000001"]),
        ("inet", [5, "300.0.0.1"]),
        ("timestamp", [True, "soon", 1.5]),
        ("date", ["", 5, "2026-13-01"]),
        ("time", ["", "25:00:00", 5]),
        ("duration", [5, "1", "soon"]),
        ("list<int>", [5, {}, "a", "{}", "5"]),
        ("map<int, text>", [[], 5, "[]"]),
        ("place", [[], 5, "a"]),
    ],
)
def test_what_is_no_value_of_a_type_is_shown_with_the_type(kind: str, values: list[JsonValue]) -> None:
    for value in values:
        assert json_problem(SCHEMA, kind, value).endswith(f" is not of type {kind.replace(', ', ',')}"), value


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("text", ["grün"], '["grün"] is not of type text'),
        ("int", "x" * 38, f'"{"x" * 38}" is not of type int'),
        ("int", "x" * 39, f'"{"x" * 39}... is not of type int'),
        ("list<int>", [1, None], "null is no element of a list"),
        ("set<int>", [None], "null is no element of a set"),
        ("vector<float, 1>", [None], "null is no element of a vector"),
        ("map<int, int>", {"1": None}, "null is no element of a map"),
        ("map<int, int>", {"a": 1}, '"a" is not of type int'),
        ("map<text, int>", {"a": "b"}, '"b" is not of type int'),
        ("list<int>", ["a"], '"a" is not of type int'),
        ("tuple<int, text>", [1], "tuple<int,text> takes another number of elements than 1"),
        ("tuple<int, text>", [1, 2], "2 is not of type text"),
        ("vector<float, 2>", [1], "vector<float,2> takes another number of elements than 1"),
        ("vector<float, 2>", [1, 2, 3], "vector<float,2> takes another number of elements than 3"),
        ("place", {"town": "a"}, "the user type place has no field town"),
        ("frozen<place>", {"codes": ["a"]}, '"a" is not of type int'),
    ],
)
def test_the_first_thing_that_is_wrong_with_a_value_is_named(kind: str, value: JsonValue, problem: str) -> None:
    assert json_problem(SCHEMA, kind, value) == problem


def test_a_server_reads_the_first_value_of_a_text_and_nothing_behind_it() -> None:
    assert first_value(' \t\r\n{"a": 1} and more') == {"a": 1}
    for text in ("", "XX1", "\u00a01", "NaN", "[Infinity]"):
        with pytest.raises(ValueError, match=r"Expecting value|is no number of JSON"):
            first_value(text)


def test_of_two_spellings_of_a_column_the_one_in_other_letters_wins() -> None:
    assert columns_in({"A": 1, "a": 2, '"B"': 3, "c": 4}) == {"a": 1, "B": 3, "c": 4}
