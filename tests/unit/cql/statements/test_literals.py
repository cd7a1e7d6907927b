"""Which literals a column takes: of each type those at its bounds, and what is said of others."""

import pytest

from mailmend.cql.statements.literals import (
    OTHER,
    Literal,
    LiteralForm,
    duration_problem,
    native_values,
    parse_literal,
    text_problem,
    value_problem,
)
from mailmend.model.keyspace import EMPTY, Schema
from mailmend.model.table import UserType

SCHEMA = Schema((UserType("place", (("street", "text"), ("codes", "list<int>"))),), ())
VERSION_1 = "6e0ab5e0-8d1c-11f0-8000-000000000001"
VERSION_4 = "6e0ab5e0-8d1c-41f0-8000-000000000001"
TODAY = "'2026-01-01'"


@pytest.mark.parametrize(
    ("text", "form", "bare"),
    [
        ("'it''s'", LiteralForm.TEXT, "it's"),
        ("$$it's$$", LiteralForm.TEXT, "it's"),
        (VERSION_1, LiteralForm.UUID, VERSION_1),
        ("0xCAfe", LiteralForm.BLOB, "0xCAfe"),
        ("0X", LiteralForm.BLOB, "0X"),
        ("-1Y2mo3us", LiteralForm.DURATION, "-1Y2mo3us"),
        ("3\u00b5s", LiteralForm.DURATION, "3\u00b5s"),
        ("1.", LiteralForm.FLOAT, "1."),
        ("-1.5E-3", LiteralForm.FLOAT, "-1.5E-3"),
        ("1e+5", LiteralForm.FLOAT, "1e+5"),
        ("NaN", LiteralForm.FLOAT, "NaN"),
        ("-Infinity", LiteralForm.FLOAT, "-Infinity"),
        ("  -5 ", LiteralForm.INTEGER, "-5"),
        ("TRUE", LiteralForm.BOOLEAN, "true"),
        ("False", LiteralForm.BOOLEAN, "false"),
        ("Null", LiteralForm.NULL, ""),
    ],
)
def test_a_single_literal_has_its_form_and_its_bare_text(text: str, form: LiteralForm, bare: str) -> None:
    assert parse_literal(text) == Literal(form, bare)


ONE, TWO = (Literal(LiteralForm.INTEGER, digit) for digit in "12")
NAMED = Literal(LiteralForm.TEXT, "a")


@pytest.mark.parametrize(
    ("text", "form", "parts"),
    [
        ("[]", LiteralForm.LIST, ()),
        ("[1, 2]", LiteralForm.LIST, (ONE, TWO)),
        ("(1, 2)", LiteralForm.TUPLE, (ONE, TWO)),
        ("{}", LiteralForm.SET, ()),
        ("{1}", LiteralForm.SET, (ONE,)),
        ("{1: 2}", LiteralForm.MAP, (ONE, TWO)),
        ("{1: 2, 2: 1}", LiteralForm.MAP, (ONE, TWO, TWO, ONE)),
        ("{a: 1}", LiteralForm.FIELDS, (NAMED, ONE)),
        ("{a: 1, a: 2}", LiteralForm.FIELDS, (NAMED, ONE, NAMED, TWO)),
        ("[{1}]", LiteralForm.LIST, (Literal(LiteralForm.SET, "", (ONE,)),)),
    ],
)
def test_a_collection_has_its_form_and_its_parts(text: str, form: LiteralForm, parts: tuple[Literal, ...]) -> None:
    assert parse_literal(text) == Literal(form, "", parts)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "?",
            ":a",
            "now()",
            "x",
            '"x"',
            "-",
            "1 2",
            "1 + 2",
            "[1 + 2]",
            "(1, 2) + 3",
            "1 + x",
            "\u00a7",
        ),
        *(
            "[1",
            "[1,",
            "[1 2]",
            "(1}",
            "{1: 2",
            "{1: ",
            "[1: 2]",
            "[now()]",
            "{1: now()}",
            "{now(): 1}",
            "[1]]",
        ),
    ],
)
def test_everything_else_is_no_literal(text: str) -> None:
    assert parse_literal(text) is OTHER


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("tinyint", ["127", "-128", "0x01"]),
        ("smallint", ["32767", "-32768"]),
        (
            "int",
            [
                "2147483647",
                "-2147483648",
                "(5)",
                "((5))",
                "(null)",
                "((null))",
                "null",
                "now()",
                "?",
            ],
        ),
        ("bigint", [f"{2**63 - 1}", f"{-(2**63)}"]),
        ("counter", [f"{2**63 - 1}", f"{-(2**63)}"]),
        ("varint", ["1" * 50]),
        ("float", ["1", "1.5", "NaN", "-Infinity", "1e308", "1" * 400]),
        ("double", ["1", "1.5", "Infinity"]),
        ("decimal", ["1", "1.5"]),
        ("boolean", ["true"]),
        ("text", ["'gr\u00fcn'", "$$a$$"]),
        ("ascii", ["'a'"]),
        ("blob", ["0x", "0xCAfe"]),
        ("uuid", [VERSION_1, VERSION_4]),
        ("timeuuid", [VERSION_1]),
        (
            "inet",
            [
                "'192.0.2.255'",
                "'1.2.65535'",
                "'1.16777215'",
                "'4294967295'",
                "'255.1'",
                "'::1'",
                "'a.host'",
            ],
        ),
        (
            "timestamp",
            [
                *(
                    "0",
                    f"{2**63 - 1}",
                    "'-5'",
                    "''",
                    TODAY,
                    "'+2026-12-31 24:59:59.123456789+1859'",
                    "'2026-01-01Z'",
                ),
                *(
                    "'2026-01-01T00:00'",
                    "'2026-01-01 00:00 Europe/Berlin'",
                    "'2026-01-01-18:59'",
                    "'2026-01-01 -18'",
                ),
            ],
        ),
        (
            "date",
            [
                *("0", "4294967295", "'4294967295'", "'2028-02-29'", "'2000-02-29'"),
                *("'-5877641-06-23'", "'+5881580-07-11'", "'+12026-01-01'"),
            ],
        ),
        ("time", ["0", "86399999999999", "'86399999999999'", "'23:59:59.999999999'", "'1:2:3'"]),
        (
            "duration",
            [
                *(
                    "1y2mo3w4d5h6m7s8ms9us1ns",
                    "1\u00b5s",
                    "-5D",
                    "2147483647mo",
                    "178956970y7mo",
                    "306783378w1d",
                ),
                "2562047h47m16s854ms775us807ns",
            ],
        ),
        ("list<int>", ["[]", "[1, 2]"]),
        ("set<text>", ["{}", "{'a'}"]),
        ("map<int, text>", ["{}", "{1: 'a'}"]),
        ("frozen<set<int>>", ["{1}"]),
        ("tuple<int, text>", ["(1, 'a')", "(1)", "(null, null)", "5"]),
        ("vector<float, 2>", ["[1, 2.5]"]),
        ("place", ["{street: 'a', codes: [1]}", "{STREET: 'a'}", "{street: null}", "null"]),
        ("somebodys", ["5"]),
        ("'a.Own'", ["5"]),
    ],
)
def test_a_column_takes_the_literals_of_its_type(kind: str, texts: list[str]) -> None:
    assert {text: value_problem(SCHEMA, kind, text) for text in texts} == dict.fromkeys(texts, "")


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("tinyint", "128", "128 is out of range: from -128 to 127"),
        ("tinyint", "0x1", "the blob 0x1 has half a byte"),
        ("smallint", "-32769", "-32769 is out of range: from -32768 to 32767"),
        ("int", "2147483648", "2147483648 is out of range: from -2147483648 to 2147483647"),
        ("int", "'a'", "a text (a) is not of type int"),
        ("int", "('a')", "a text (a) is not of type int"),
        ("int", "(5, 6)", "a tuple is not of type int"),
        ("bigint", f"{2**63}", f"{2**63} is out of range: from {-(2**63)} to {2**63 - 1}"),
        ("counter", f"{2**63}", f"{2**63} is out of range: from {-(2**63)} to {2**63 - 1}"),
        ("varint", "1.5", "a number with a fraction (1.5) is not of type varint"),
        ("float", "1e400", "1e400 is greater than any number of CQL"),
        ("double", "-1e400", "-1e400 is greater than any number of CQL"),
        ("decimal", "1e400", "1e400 is greater than any number of CQL"),
        ("decimal", "NaN", "NaN is no decimal number"),
        ("decimal", "-Infinity", "-Infinity is no decimal number"),
        ("boolean", "1", "a whole number (1) is not of type boolean"),
        ("text", "true", "true or false (true) is not of type text"),
        ("text", "1d", "a duration (1d) is not of type text"),
        ("text", "0x01", "a blob (0x01) is not of type text"),
        ("text", VERSION_1, f"a UUID ({VERSION_1}) is not of type text"),
        ("int", f"'{'a' * 40}'", f"a text ({'a' * 40}) is not of type int"),
        ("int", f"'{'a' * 41}'", f"a text ({'a' * 40}...) is not of type int"),
        ("ascii", "'gr\u00fcn'", "a text (gr\u00fcn) is not ASCII"),
        ("blob", f"0x{'a' * 39}", f"the blob 0x{'a' * 38} has half a byte"),
        ("timeuuid", VERSION_4, f"{VERSION_4} is not a UUID of version 1"),
        ("duration", "1d1y", "the duration 1d1y names each unit once, the longer ones first"),
        ("duration", "1d1d", "the duration 1d1d names each unit once, the longer ones first"),
        ("duration", "2147483648mo", "the duration 2147483648mo is out of range"),
        ("list<int>", "{}", "a set is not of type list<int>"),
        ("list<int>", "[1, null]", "null is no element of a list"),
        ("list<int>", "[1, 'a']", "a text (a) is not of type int"),
        ("set<int>", "{1: 2}", "a map is not of type set<int>"),
        ("map<int, text>", "{1}", "a set is not of type map<int,text>"),
        ("map<int, text>", "{1: 2}", "a whole number (2) is not of type text"),
        ("map<int, text>", "{'a': 'b'}", "a text (a) is not of type int"),
        ("map<int, text>", "{a: 'b'}", "fields with values is not of type map<int,text>"),
        ("frozen<list<int>>", "['a']", "a text (a) is not of type int"),
        ("vector<float, 2>", "[1]", "vector<float,2> takes 2 elements, not 1"),
        ("vector<float, 2>", "[1, 'a']", "a text (a) is not of type float"),
        ("tuple<int, text>", "(1, 'a', 2)", "tuple<int,text> takes 2 elements, not 3"),
        ("tuple<int, text>", "(1, 2)", "a whole number (2) is not of type text"),
        ("tuple<int, text>", "[1]", "a list is not of type tuple<int,text>"),
        ("tuple<int, text>", "{1}", "a set is not of type tuple<int,text>"),
        ("tuple<int, text>", "{1: 2}", "a map is not of type tuple<int,text>"),
        ("place", "{nothing: 1}", "the user type place has no field nothing"),
        ("place", "{street: 'a', codes: [1, 'b']}", "a text (b) is not of type int"),
        ("place", "('a')", "a value of the user type place names its fields"),
        ("place", "['a']", "a list is not of type place"),
        ("place", "5", "a whole number (5) is not of type place"),
    ],
)
def test_what_a_column_does_not_take_is_reported(kind: str, text: str, problem: str) -> None:
    assert value_problem(SCHEMA, kind, text) == problem


@pytest.mark.parametrize(
    ("kind", "problem", "texts"),
    [
        (
            "inet",
            "{} is no IP address",
            ["256.0.0.1", "1.2.3.256", "1.2.65536", "1.16777216", "4294967296", "1.2.3.4.5", "::x"],
        ),
        (
            "timestamp",
            "{} is no timestamp: write it like '2026-01-31 23:59:59+0000'",
            [
                *(
                    "soon",
                    "2026-00-01",
                    "2026-13-01",
                    "2026-01-00",
                    "2026-01-32",
                    "2026-01-01 25:00",
                ),
                *("2026-01-01 00:60", "2026-01-01 00:00:60", "2026-01-01+19", "2026-01-01+1860"),
            ],
        ),
        ("date", "{} is no date: write it like '2026-01-31'", ["soon", "12026-01-01", "026-01-01"]),
        (
            "date",
            "{} is no date: the calendar has no such day",
            ["2026-02-29", "1900-02-29", "2026-13-01"],
        ),
        ("date", "{} is out of the range of dates", ["-5877641-06-22", "+5881580-07-12"]),
        (
            "time",
            "{} is no time of a day: write it like '23:59:59.999'",
            ["soon", "24:00:00", "00:60:00", "00:00:60", "00:00:00.1234567890"],
        ),
    ],
)
def test_what_a_text_does_not_mean_is_reported_with_the_text(kind: str, problem: str, texts: list[str]) -> None:
    assert [value_problem(EMPTY, kind, f"'{text}'") for text in texts] == [problem.format(repr(text)) for text in texts]


@pytest.mark.parametrize(
    ("kind", "number", "least", "most"),
    [
        ("timestamp", 2**63, -(2**63), 2**63 - 1),
        ("date", 2**32, 0, 2**32 - 1),
        ("time", 86_400_000_000_000, 0, 86_399_999_999_999),
    ],
)
def test_a_moment_is_a_number_of_its_range_too(kind: str, number: int, least: int, most: int) -> None:
    problem = f"{number} is out of range: from {least} to {most}"
    assert [value_problem(EMPTY, kind, text) for text in (f"{number}", f"'{number}'")] == [
        problem,
        problem,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "178956970y8mo",
        "306783378w2d",
        "2562047h47m16s854ms775us808ns",
        "2562048h",
        "153722868m",
        "9223372037s",
    ],
)
def test_a_duration_has_bounds_in_months_days_and_nanoseconds(text: str) -> None:
    assert duration_problem(text) == f"the duration {text} is out of range"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "1 + 2 * 3"),
        ("int", "10 / 10 - 0"),
        ("int", "1 / null"),
        ("int", "(1 + 2)"),
        ("double", "1 / 0"),
        ("float", "1.5 % 0"),
        ("tinyint", "1 + 0x01"),
        ("text", "'a' + 'b' + null"),
        ("ascii", "'a' + 'b'"),
        ("timestamp", f"{TODAY} + 1d - 5h + null"),
        ("date", f"{TODAY} - 1Y2mo3w4d"),
        ("uuid", f"{VERSION_1} + null"),
        ("blob", "0x01 + 0x02"),
        ("int", "1 + now()"),
    ],
)
def test_a_column_takes_a_sum_that_its_type_has(kind: str, text: str) -> None:
    assert value_problem(EMPTY, kind, text) == ""


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("int", "1 + 'a'", "a text (a) is not of type int"),
        ("float", "1.5 + 'a'", "a text (a) is not of type float"),
        ("double", "1.5 + 'a'", "a text (a) is not of type double"),
        ("int", "1 + 2147483648", "2147483648 is out of range: from -2147483648 to 2147483647"),
        *((kind, "1 / 0", "a division by zero fails") for kind in ("tinyint", "smallint", "int", "bigint", "varint")),
        ("decimal", "1 % -0.0", "a division by zero fails"),
        ("int", "1 + 2 / 0", "a division by zero fails"),
        ("text", "'a' + 1", "a whole number (1) is not of type text"),
        ("text", "'a' + 'b' * 'c' - 'd'", "texts have no operator *"),
        ("ascii", "'a' - 'b'", "texts have no operator -"),
        ("timestamp", f"{TODAY} * 1d", "values of type timestamp have only the operators + and -"),
        (
            "timestamp",
            f"{TODAY} + 5",
            "only durations are added to a timestamp, not a whole number (5)",
        ),
        (
            "timestamp",
            f"{TODAY} + 1d1d",
            "the duration 1d1d names each unit once, the longer ones first",
        ),
        ("date", "'soon' + 1d", "'soon' is no date: write it like '2026-01-31'"),
        ("date", f"{TODAY} + 1d1H", "the duration 1d1H has parts of a day, which no date takes"),
        ("boolean", "true + true", "values of type boolean have no operator +"),
        ("counter", "1 + 1", "values of type counter have no operator +"),
        ("uuid", f"{VERSION_1} * 1", "values of type uuid have no operator *"),
        ("timeuuid", f"{VERSION_1} + 1", "values of type timeuuid have no operator +"),
        ("inet", "'::1' + 1 - 1", "values of type inet have no operator +"),
        ("time", "'1:2:3' - 1h", "values of type time have no operator -"),
        ("duration", "1d + 1d", "values of type duration have no operator +"),
    ],
)
def test_a_sum_that_a_type_does_not_have_is_reported(kind: str, text: str, problem: str) -> None:
    assert value_problem(EMPTY, kind, text) == problem


@pytest.mark.parametrize(
    ("kind", "text", "natives"),
    [
        ("int", "((1))", [("int", "1")]),
        ("list<tinyint>", "[1, 2]", [("tinyint", "1"), ("tinyint", "2")]),
        ("map<int, frozen<list<text>>>", "{1: ['a']}", [("int", "1"), ("text", "a")]),
        ("tuple<int, text>", "(1, 'a')", [("int", "1"), ("text", "a")]),
        ("vector<float, 2>", "[1, 2]", [("float", "1"), ("float", "2")]),
        ("place", "{STREET: 'a', nothing: 5, codes: [1]}", [("text", "a"), ("int", "1")]),
    ],
)
def test_the_native_values_of_a_literal_have_their_types(kind: str, text: str, natives: list[tuple[str, str]]) -> None:
    assert [(name, value.text) for name, value in native_values(SCHEMA, kind, text)] == natives


def test_a_collection_that_is_no_literal_is_one_value() -> None:
    assert list(native_values(EMPTY, "list<int>", "now()")) == [("list", OTHER)]


@pytest.mark.parametrize(
    ("kind", "form", "problem"),
    [
        ("text", LiteralForm.TEXT, ""),
        ("int", LiteralForm.TEXT, "'300' is not of type int"),
        ("tinyint", LiteralForm.INTEGER, "300 is out of range: from -128 to 127"),
    ],
)
def test_a_text_is_judged_as_a_literal_of_a_form(kind: str, form: LiteralForm, problem: str) -> None:
    assert text_problem(kind, form, "300") == problem
