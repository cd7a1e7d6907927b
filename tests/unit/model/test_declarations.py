"""A file of projections: its values, its canonical text, and its errors."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mailmend.model.errors import WrongUse
from mailmend.model.names import spelled
from mailmend.model.projections.declaration_file import (
    FILE_CHARACTERS_MAX,
    read_declaration,
    read_file,
)
from mailmend.model.projections.declaration_nodes import BadDeclaration
from mailmend.model.projections.declarations import (
    Declaration,
    DeclaredContent,
    DeclaredCount,
    DeclaredExplode,
    DeclaredFilter,
    DeclaredMax,
    DeclaredMin,
    DeclaredMirror,
    DeclaredProjection,
    DeclaredTruth,
    DeclaredUnion,
)
from mailmend.model.projections.declared_conditions import EVERY_ROW, DeclaredCondition, DeclaredTest
from mailmend.model.projections.declared_mirrors import REPORTED
from mailmend.model.projections.declared_transforms import BUCKETS_MAX, WORDS, DeclaredTransform
from mailmend.model.table import OtherColumn

SHOP = """\
[truth.users.mirror.users_by_email]
renamed = { owner = "user_id" }
needs = ["since"]
left_out = ["note"]

[truth.users.mirror.users_by_name]
"""
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp", "Zs", "Co", "Cn")), min_size=1).map(
    spelled
)


def refused(text: str) -> BadDeclaration:
    with pytest.raises(BadDeclaration) as caught:
        read_declaration(text, "shop.toml")
    return caught.value


def test_a_file_is_read_to_values() -> None:
    mirrors = (
        DeclaredMirror(
            "users_by_email",
            (("owner", "user_id"),),
            ("note",),
            needs=("since",),
        ),
        DeclaredMirror("users_by_name"),
    )
    assert read_declaration(SHOP, "shop.toml") == Declaration((DeclaredTruth("users", mirrors),))


def test_the_canonical_text_is_stable() -> None:
    assert read_declaration(SHOP, "shop.toml").text == SHOP


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
CONSTANTS = st.booleans() | st.integers() | TEXTS
LISTED = st.lists(CONSTANTS, max_size=3, unique_by=lambda value: (type(value), value)).map(tuple)
BEGINNINGS = st.lists(TEXTS.filter(bool), max_size=2, unique=True).map(tuple)


@st.composite
def declared_tests(draw: st.DrawFn) -> DeclaredTest:
    column = draw(NAMES)
    values = draw(LISTED)
    match draw(st.sampled_from(["values", "null", "keys"])):
        case "values":
            return DeclaredTest(column, values or ("one",))
        case "null":
            return DeclaredTest(column, null=draw(st.booleans()))
        case _:
            starts = draw(BEGINNINGS)
            starts_not = draw(BEGINNINGS)
            null = draw(st.sampled_from([None, False]))
            assume(values or starts or starts_not or null is False)
            return DeclaredTest(column, null=null, excluded=values, starts=starts, starts_not=starts_not)


CONDITIONS = st.lists(
    st.lists(declared_tests(), max_size=3, unique_by=lambda test: test.column).map(tuple), min_size=1, max_size=3
).map(lambda alternatives: DeclaredCondition(tuple(alternatives)))


KINDS = ("mirror", "filter", "union", "count", "content", "max", "min", "explode")
PAIRS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
NULLS = CONSTANTS | NAMES.map(OtherColumn)
REASONS = st.dictionaries(
    st.sampled_from(REPORTED), st.text(st.characters(categories=["L", "N", "S"]), min_size=1, max_size=3)
).map(lambda reasons: tuple(reasons.items()))
NAME_LISTS = st.lists(NAMES, max_size=2, unique=True).map(tuple)
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1, max_size=3)

PREFIXES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3)


@st.composite
def transforms(draw: st.DrawFn) -> DeclaredTransform:  # noqa: PLR0911 - one for each kind
    default = draw(st.none() | CONSTANTS)
    match draw(st.sampled_from(WORDS)):
        case "constant":
            return DeclaredTransform("constant", draw(CONSTANTS))
        case "column":
            return DeclaredTransform("column", draw(NAMES), None, draw(CONSTANTS))
        case "crc32_of":
            return DeclaredTransform("crc32_of", draw(NAMES), draw(st.integers(1, BUCKETS_MAX)), default)
        case "json_of":
            path = ".".join(draw(st.lists(KEYS, min_size=1, max_size=3)))
            return DeclaredTransform("json_of", draw(NAMES), path, default)
        case "month_of":
            return DeclaredTransform("month_of", draw(NAMES), draw(st.sampled_from([None, "digits"])), default)
        case "field_of":
            return DeclaredTransform("field_of", draw(NAMES), draw(NAMES), default)
        case "joined_of":
            return DeclaredTransform("joined_of", draw(NAMES), draw(st.none() | TEXTS), default)
        case "joined_columns":
            names = draw(st.lists(NAMES, min_size=2, max_size=3, unique=True))
            return DeclaredTransform("joined_columns", tuple(names), draw(PREFIXES), default)
        case "prefix_of" | "rest_of" as word:
            prefixes = draw(st.lists(PREFIXES, min_size=1, max_size=3, unique_by=lambda text: text[0]))
            return DeclaredTransform(word, draw(NAMES), tuple(prefixes), default)
        case word:
            return DeclaredTransform(word, draw(NAMES), None, default)


@st.composite
def projections(draw: st.DrawFn, table: str) -> DeclaredProjection:  # noqa: PLR0911 - one for each kind
    columns = draw(st.lists(NAMES, max_size=5, unique=True))
    count = draw(st.integers(0, len(columns)))
    renamed = tuple((own, draw(NAMES)) for own in columns[:count])
    also = draw(st.integers(count, len(columns)))
    computed = tuple((own, draw(transforms())) for own in columns[count:also])
    match draw(st.sampled_from(KINDS)):
        case "mirror":
            when = draw(CONDITIONS)
            required = draw(NAME_LISTS)
            filled = required[: draw(st.integers(0, 2))] if when == EVERY_ROW else ()
            fields = tuple((column, draw(PAIRS)) for column in columns[also:])
            also = len(columns) if fields else also
            return DeclaredMirror(
                table,
                renamed,
                tuple(columns[also:]),
                computed=computed,
                when=when,
                needs=draw(NAME_LISTS),
                required=required,
                filled=filled,
                fields=fields,
                only_reported=draw(REASONS),
            )
        case "explode":
            element, value, *left_out = (*columns[also:], "", "")
            return DeclaredExplode(
                table,
                renamed,
                tuple(filter(None, left_out)),
                computed=computed,
                when=draw(CONDITIONS),
                needs=draw(NAME_LISTS),
                required=draw(NAME_LISTS),
                only_reported=draw(REASONS),
                column=draw(NAMES),
                element=element,
                value=value,
            )
        case "filter":
            return DeclaredFilter(table, renamed, computed=computed, when=draw(CONDITIONS))
        case "union":
            return DeclaredUnion(table, renamed, computed=computed, column=draw(NAMES))
        case "count":
            names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
            counters = tuple((name, draw(CONDITIONS)) for name in names)
            generators = tuple(name for name in draw(NAME_LISTS) if name != table)
            numbered_by = tuple((f"n{place}", name) for place, name in enumerate(generators))
            used_with: tuple[str, ...] = ()
            if numbered_by:
                used_with = draw(NAME_LISTS)
            return DeclaredCount(
                table,
                renamed,
                computed=computed,
                counters=counters,
                generators=generators,
                numbered_by=numbered_by,
                used_with=used_with,
            )
        case "max" | "min" as word:
            kind = {"max": DeclaredMax, "min": DeclaredMin}[word]
            return kind(table, renamed, computed=computed, columns=draw(PAIRS))
        case _:
            return DeclaredContent(table, renamed)


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    tables = draw(st.lists(NAMES, min_size=2, max_size=6, unique=True))
    truth = tables.pop()
    by_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for table in tables:
        projection = draw(projections(table))
        by_kind[projection.kind].append(projection)
    null_is = tuple(draw(st.lists(st.tuples(NAMES, NULLS), max_size=2, unique_by=lambda pair: pair[0])))
    return Declaration((DeclaredTruth(truth, *map(tuple, by_kind.values()), null_is=null_is),))


@given(declarations())
def test_the_text_of_a_declaration_reads_back_as_the_same_value(declaration: Declaration) -> None:
    assert read_declaration(declaration.text, "run") == declaration


@pytest.mark.parametrize(
    "when",
    [
        '{ c = { not = "x" } }',
        '{ c = { not = ["x", 1, true] } }',
        '{ c = { not = ["anyone", "owner"], starts_not = ["-", "$"] } }',
        '{ c = { not = "x", starts = "a", starts_not = ["ab", "ac"], null = false } }',
        '[{ c = { starts = "a" } }, { c = { null = true } }]',
    ],
)
def test_a_test_of_keys_has_one_text(when: str) -> None:
    text = f"{TEST}{when}\n"

    assert read_declaration(text).text == text


def test_a_key_takes_one_constant_or_a_list_of_one() -> None:
    assert read_declaration(TEST + "{ c = { not = ['x'] } }") == read_declaration(TEST + "{ c = { not = 'x' } }")


def test_values_and_keys_do_not_go_together() -> None:
    with pytest.raises(WrongUse, match="neither values nor keys, or both"):
        DeclaredTest("c", ("x",), excluded=("y",))


def test_a_plain_name_has_no_case() -> None:
    assert DeclaredMirror("Users_By_Email") == DeclaredMirror("users_by_email")


def test_a_quoted_name_keeps_its_case() -> None:
    declared = read_declaration("""[truth.'"Users"'.mirror.copy]""", "x.toml")
    assert declared.truths[0].table == '"Users"'


COMPUTED = "[truth.users.mirror.x]\ncomputed = "
TEST = "[truth.a.filter.b]\nwhen = "


@pytest.mark.parametrize(
    ("text", "line", "column", "problem", "mend"),
    [
        ("[truth", 1, 7, "this is not TOML", ""),
        ("a = 1\nb =", 2, 4, "this is not TOML", ""),
        ("", 1, 1, "no truth is declared", "[truth.users.mirror.users_by_email]"),
        ("[truth]", 1, 1, "no truth is declared", "[truth.users.mirror.users_by_email]"),
        ("[truht.users]", 1, 2, "has no 'truht'", "Did you mean 'truth'?"),
        ("[truth.users]", 1, 8, "nothing follows from the truth users", "[truth.users.mirror.TABLE]"),
        ("[truth.users.miror.x]", 1, 14, "a truth has no 'miror'", "Did you mean 'mirror'?"),
        ("[truth.users.mirror.x]\nrename = {}", 2, 1, "a mirror has no 'rename'", "Did you mean 'renamed'?"),
        ("[truth.users.mirror.x]\nrenamed = 1", 2, 1, "renamed is not a table", 'column_of_projection = "column_of'),
        ("truth = 1", 1, 1, "truth is not a table", "Write a table like [truth.NAME]."),
        ("[truth]\nusers = 1", 2, 1, "a truth is not a table", "Write a table with: mirror, explode, filter"),
        ("[truth.users]\nmirror = 1", 2, 1, "mirror is not a table", "Write a table like [truth.users.mirror.NAME]."),
        ("[truth.users.mirror.x]\nqqq = 1", 2, 1, "a mirror has no 'qqq'", "It may have: renamed, computed"),
        ("[truth.users.mirror.x]\nrenamed = { a = 1 }", 2, 13, "a column name is a text", '"1"'),
        ("[truth.users.mirror.x]\nleft_out = 'a'", 2, 1, "left_out is a list of columns", '["note", "size"]'),
        (COMPUTED + "1", 2, 1, "computed is not a table", 'day_of = "at"'),
        (COMPUTED + "{ a = 1 }", 2, 14, "a transform is not a table", 'day_of = "at"'),
        (COMPUTED + "{ a = {} }", 2, 14, "a is computed by nothing", "constant, column, lower"),
        (
            COMPUTED + "{ a = { lower = 'b', day_of = 'c' } }",
            2,
            14,
            "a is computed by lower and day_of",
            "Write one of",
        ),
        (COMPUTED + "{ a = { lower = 1 } }", 2, 14, "lower names no column: 1", '"email"'),
        (COMPUTED + "{ a = { lower = 'b', buckets = 1 } }", 2, 33, "lower has no 'buckets'", "It may have: default"),
        (COMPUTED + "{ a = { lower = 1.5 } }", 2, 20, "lower is neither a text", "day_of"),
        (
            COMPUTED + "{ a = { crc32_of = 'b', buckets = 0 } }",
            2,
            14,
            "buckets is no number of buckets: 0",
            "from 1 to",
        ),
        (COMPUTED + "{ a = { json_of = 'b', path = '.c' } }", 2, 14, "path has no keys: '.c'", "customer.city"),
        (COMPUTED + "{ a = { day_of = 'b', form = 'iso' } }", 2, 14, "form is no form of a time: 'iso'", '"digits"'),
        (COMPUTED + "{ a = { lower = 'b', form = 'digits' } }", 2, 33, "lower has no 'form'", "It may have: default"),
        (
            COMPUTED + "{ a = { joined_of = 'b', separator = 1 } }",
            2,
            14,
            "separator is not a text: 1",
            'separator = ","',
        ),
        (COMPUTED + "{ a = { joined_of = 'b', path = 'c' } }", 2, 37, "joined_of has no 'path'", "separator, default"),
        (
            COMPUTED + "{ a = { joined_columns = ['b'], separator = '@' } }",
            2,
            14,
            "does not name several",
            "two columns",
        ),
        (COMPUTED + "{ a = { joined_columns = 'b', separator = '@' } }", 2, 14, "does not name several", "two columns"),
        (COMPUTED + "{ a = { joined_columns = ['b', 'B'], separator = '@' } }", 2, 14, "does not name several", "once"),
        (COMPUTED + "{ a = { joined_columns = ['b', 'c'] } }", 2, 14, "separator is not a text: None", '"@"'),
        (COMPUTED + "{ a = { joined_columns = ['b', 1] } }", 2, 20, "joined_columns has something other", "day_of"),
        (COMPUTED + "{ a = { lower = ['b', 'c'] } }", 2, 20, "lower is neither a text", "day_of"),
        (COMPUTED + "{ a = { prefix_of = 'b' } }", 2, 14, "prefixes is no list of texts: None", '["a:", "b:"]'),
        (COMPUTED + "{ a = { rest_of = 'b', prefixes = 'x' } }", 2, 14, "prefixes is no list of texts: 'x'", "a:"),
        (COMPUTED + "{ a = { rest_of = 'b', prefixes = ['x', 'xy'] } }", 2, 14, "'xy' begins with another one", "a:"),
        (COMPUTED + "{ a = { column = 'b' } }", 2, 14, "a column is computed by nothing", "Name a default"),
        (
            COMPUTED + "{ a = { constant = 1, default = 2 } }",
            2,
            14,
            "a constant is never null",
            "Leave the default out",
        ),
        (COMPUTED + "{ a = { lower = 'b' } }\nleft_out = ['a']", 1, 21, "a occurs twice", "Name it once."),
        (
            "[truth.users.mirror.x]\nleft_out = ['a', 'b c']",
            2,
            18,
            "'b c' is not a valid column name",
            "in double quotes",
        ),
        ("[truth.users.mirror.x]\nneeds = 'a'", 2, 1, "needs is a list of columns", '["note", "size"]'),
        ("[truth.users.mirror.x]\nneeds = ['a', 'A']", 1, 21, "a occurs twice", "Name it once."),
        ("[truth.users.mirror.x]\nleft_out = ['a', 'A']", 1, 21, "a occurs twice", "Name it once."),
        ("[truth.users.mirror.users]", 1, 8, "users occurs twice", "Name it once."),
        ("[truth.'a b'.mirror.c]", 1, 8, "'a b' is not a valid table name", "in double quotes"),
        ("[truth.from.mirror.c]", 1, 8, "'from' is not a valid table name", "in double quotes"),
        ("[truth.a.mirror.c]\n[truth.b.mirror.c]", 1, 1, "c occurs twice among the projections", "Name it once."),
        ("[truth.a.filter.b]", 1, 17, "a filter needs 'when'", "Which rows of the truth"),
        ("[truth.a.filter.b]\nwhen = 1", 2, 1, "a condition is not a table", 'column = "value"'),
        ("[truth.a.filter.b]\nwhen = { c = 1.5 }", 2, 10, "c is compared with neither a text", 'column = "value"'),
        ("[truth.a.filter.b]\nwhen = { c = [1, 1] }", 2, 10, "a value of c occurs twice", "Write it once."),
        ("[truth.a.filter.b]\nwhen = { c = [] }", 2, 10, "has neither values nor keys", "null = true"),
        ("[truth.a.filter.b]\nwhen = { c = {} }", 2, 10, "c is compared with neither", "null = true"),
        ("[truth.a.filter.b]\nwhen = [{ c = { nul = true } }]", 2, 17, "a test has no 'nul'", "'null'"),
        (TEST + "{ c = { nt = 1 } }", 2, 16, "a test has no 'nt'", "'not'"),
        (TEST + "{ c = { null = 1 } }", 2, 16, "null is neither true nor false", "{ null = true }"),
        (TEST + "{ c = { not = [] } }", 2, 16, "not has an empty list", '{ not = "one" }'),
        (TEST + "{ c = { not = [1, 1] } }", 2, 10, "a value of c occurs twice", "Write it once."),
        (TEST + "{ c = { not = 1.5 } }", 2, 16, "a value of not is not a text, a whole number", '["one", "other"]'),
        (TEST + "{ c = { not = [true, [1]] } }", 2, 16, "or a boolean: [1]", '["one", "other"]'),
        (TEST + "{ c = { starts = [] } }", 2, 16, "starts has an empty list", '{ starts = "one" }'),
        (TEST + "{ c = { starts = 1 } }", 2, 16, "a value of starts is not a text: 1", '["one", "other"]'),
        (TEST + "{ c = { starts = ['d', true] } }", 2, 16, "a value of starts is not a text: True", '"one"'),
        (TEST + "{ c = { starts = '' } }", 2, 10, "the test of c has an empty beginning", "{ null = false }"),
        (TEST + "{ c = { starts_not = ['d', ''] } }", 2, 10, "the test of c has an empty beginning", "Leave it out"),
        (TEST + "{ c = { starts_not = ['d', 'd'] } }", 2, 10, "a value of c occurs twice", "Write it once."),
        (TEST + "{ c = { null = true, not = 'd' } }", 2, 10, "has null = true with other keys", "null = false"),
        ("[truth.a.filter.b]\nwhen = []", 2, 1, "a condition without alternatives", "null = true"),
        ("[truth.a.union.b]\ncolumn = 1", 2, 1, "a column name is a text", '"1"'),
        ("[truth.a.max.b]\ncolumns = {}", 1, 14, "b has no columns of a max", "last_seen"),
        ("[truth.a.min.b]\ncolumns = { c = 1 }", 2, 13, "a column name is a text", '"1"'),
        ("[truth.a.count.b]\ncounters = {}", 1, 16, "b has no counters", "total = {}"),
        ("[truth.a.count.b]\ncounters = { n = 5 }", 2, 14, "a condition is not a table", "null = true"),
        ("[[truth]]\na = 1", 1, 3, "truth is not a table", "[truth.NAME]"),
        ("[truth.a.explode.b]", 1, 18, "an explode needs 'column'", "set, list or map"),
        ("[truth.a.explode.b]\ncolumn = 'c'\nelement = 1", 3, 1, "a column name is a text", '"1"'),
        ("[truth.a.explode.b]\ncolumn = 'c'\nelement = 'd'\nvalue = 'd'", 1, 18, "d occurs twice", "Name it once."),
        ("[truth.a.mirror.b]\nwhen = { 'c d' = [1] }", 2, 10, "'c d' is not a valid column name", "in double quotes"),
        (COMPUTED + "{ 'c d' = { lower = 'b' } }", 2, 14, "'c d' is not a valid column name", "in double quotes"),
    ],
)
def test_an_error_names_place_and_mend(text: str, line: int, column: int, problem: str, mend: str) -> None:
    error = refused(text)
    assert (error.place.line, error.place.column) == (line, column)
    assert problem in error.problem
    assert mend in error.mend
    assert f"shop.toml, line {line}, column {column}" in str(error)


def test_every_error_of_a_file_is_named_at_once() -> None:
    error = refused("[truth.users.mirror.x]\nrename = {}\nleft_out = 'a'\n[truth.b.miror.y]")
    assert [each.place.line for each in error.each] == [2, 3, 4]


def test_a_file_with_windows_line_ends_has_the_same_places() -> None:
    error = refused("[truth.users.mirror.x]\r\n\r\nrename = {}\r\n")
    assert (error.place.line, error.place.column, error.place.text) == (3, 1, "rename = {}")


@pytest.mark.parametrize("text", ["[" * 100_000, "a = " + "9" * 5_000, "#" * (FILE_CHARACTERS_MAX + 1)])
def test_a_file_that_would_exhaust_the_reader_is_refused(text: str) -> None:
    assert refused(text).place.line == 1


def test_a_file_may_have_as_many_characters_as_the_page_says() -> None:
    assert FILE_CHARACTERS_MAX == 262_144
    rest = "#" * (FILE_CHARACTERS_MAX - len(SHOP))

    assert read_declaration(SHOP + rest) == read_declaration(SHOP)


def test_a_file_without_truths_says_just_that() -> None:
    assert refused("").problem == "no truth is declared"


def test_a_file_that_was_read_knows_its_name() -> None:
    assert read_file(SHOP, "shop.toml").file == "shop.toml"


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BadDeclaration):
        read_declaration(text, "shop.toml")


def test_a_truth_needs_something_that_follows_from_it() -> None:
    with pytest.raises(WrongUse, match="nothing follows"):
        DeclaredTruth("users")


EVERY_KIND = """\
[truth.users.mirror.by_email]

[truth.users.mirror.by_team]

[truth.users.mirror.some]
when = { state = "active" }

[truth.users.explode.by_tag]
column = "tags"
element = "tag"

[truth.users.filter.active]
when = { state = "active" }

[truth.users.union.tags]
column = "tags"

[truth.users.count.counts]
counters = { total = {} }

[truth.users.max.latest]
columns = { seen_at = "seen_at" }

[truth.users.min.first]
columns = { seen_at = "seen_at" }

[truth.users.content.profiles]
"""


@pytest.mark.parametrize(
    ("named", "left"),
    [
        ("by_email", ("by_email",)),
        ("by_team", ("by_team",)),
        ("some", ("some",)),
        ("by_tag", ("by_tag",)),
        *[
            (table, ("by_email", "by_team", table))
            for table in ("active", "tags", "counts", "latest", "first", "profiles")
        ],
    ],
)
def test_a_mirror_is_alone_and_another_projection_has_the_mirrors(named: str, left: tuple[str, ...]) -> None:
    """A filter, group or content is looked at through a mirror; a mirror needs nothing else."""
    (truth,) = read_declaration(EVERY_KIND).truths

    assert truth.table == truth.only(named).table
    assert truth.only(named).projections == left


def test_a_text_of_several_truths_reads_back_as_the_same_value() -> None:
    """The ledger keeps such a text with a run, and the undo reads it."""
    text = f"{SHOP}\n{EVERY_KIND.replace('truth.users', 'truth.people')}"
    declaration = read_declaration(text)

    assert [truth.table for truth in declaration.truths] == ["users", "people"]
    assert declaration.text == text


def test_a_declaration_has_a_truth() -> None:
    with pytest.raises(WrongUse, match="no truth is declared"):
        Declaration(())


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: DeclaredMirror("a b"), "table name"),
        (lambda: DeclaredTruth("a b", (DeclaredMirror("t"),)), "table name"),
        (lambda: DeclaredMirror("t", (("a b", "c"),)), "column name"),
        (lambda: DeclaredMirror("t", (("c", "a b"),)), "column name"),
        (lambda: DeclaredMirror("t", (), ("a b",)), "column name"),
        (lambda: DeclaredUnion("t", column="a b"), "column name"),
        (lambda: DeclaredCount("t", counters=(("a b", DeclaredCondition()),)), "column name"),
        (lambda: DeclaredTest("a b", (1,)), "column name"),
    ],
    ids=["table", "truth", "renamed", "source", "left out", "union", "counter", "test"],
)
def test_an_error_tells_the_kind_of_a_refused_name(make: Callable[[], object], what: str) -> None:
    with pytest.raises(WrongUse, match=what):
        make()
