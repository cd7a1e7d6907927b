"""The whole of the language, piece by piece: beginnings, types, literals, values, conditions, words that are kept."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.language.parser import parse
from mailmend.cql.language.stream import DEPTH
from mailmend.cql.statements import (
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    Name,
    SetOptions,
    Statement,
    WriteRows,
)
from mailmend.model.errors import CqlSyntaxError
from mailmend.model.table import Kind, Table


def one(text: str) -> Statement:
    (parsed,) = parse(text)
    return parsed.statement


def refusal(text: str) -> CqlSyntaxError:
    with pytest.raises(CqlSyntaxError) as refused:
        parse(text)
    return refused.value


def table(columns: str, options: str = "") -> Table:
    made = one(f"CREATE TABLE t ({columns}){options}")
    assert isinstance(made, CreateTable)
    return made.table


class TestTypes:
    """Types as columns have them."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("INT", "int"),
            ("varchar", "text"),
            ("set < text >", "set<text>"),
            ("Set<frozen<Map<text , list<int>>>>", "set<frozen<map<text,list<int>>>>"),
            ("tuple<int, text, tuple<int>>", "tuple<int,text,tuple<int>>"),
            ("vector<float, 1536>", "vector<float,1536>"),
            ('frozen<"Place">', 'frozen<"Place">'),
            ("'org.example.OwnType'", "'org.example.OwnType'"),
        ],
    )
    def test_each_form_is_read_into_one_spelling(self, text: str, expected: str) -> None:
        assert table(f"k int PRIMARY KEY, c {text}").column("c").type == expected
        made = one(f"CREATE TYPE u (f {text})")
        assert isinstance(made, CreateType)
        assert made.type.fields == (("f", expected),)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("list<int, int>", "list takes 1 in its angle brackets, not 2"),
            ("set<int, int>", "set takes 1 in its angle brackets, not 2"),
            ("frozen<list<int>, int>", "frozen takes 1 in its angle brackets, not 2"),
            ("map<int>", "map takes 2 in its angle brackets, not 1"),
            ("map<int, int, int>", "map takes 2 in its angle brackets, not 3"),
            ("vector<float>", "vector takes 2 in its angle brackets, not 1"),
            ("vector<float, x>", "expected a length, found x"),
            ("vector<float, 'x'>", "expected a length"),
            ("tuple<>", "a type, found >"),
            ("list<5>", "a type, found 5"),
            ("frozen", "expected <"),
            ("int<int>", "found <"),
            ("set", "found"),
        ],
    )
    def test_what_is_no_type_is_refused_where_it_goes_wrong(self, text: str, problem: str) -> None:
        assert problem in refusal(f"CREATE TABLE t (k int PRIMARY KEY, c {text}, d int)").problem


class TestLiterals:
    """Values of options, in the one form in which they are compared."""

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{'x', 'y'}", "expected :, found ,"),
            ("{'x'}", "expected :, found }"),
            ("{'a': 'b',}", "found }"),
            ("{'a': 'b', 'a': 'c'}", "the key 'a' occurs twice"),
            ("['a']", "found ["),
        ],
    )
    def test_an_option_is_neither_a_set_nor_a_list(self, text: str, problem: str) -> None:
        assert problem in refusal(f"ALTER TABLE t WITH a = {text}").problem

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("-5", "-5"),
            ("- 5", "-5"),
            ("1.5E3", "1.5E3"),
            ("TRUE", "true"),
            ("False", "false"),
            ("Infinity", "infinity"),
            ("NaN", "nan"),
            ("-Infinity", "-infinity"),
            ("-NaN", "-nan"),
            ("ttl", "ttl"),
            ("{}", "{}"),
            ("{ 'a' :1 ,'b': -2}", "{'a': 1, 'b': -2}"),
            ("{'a': {'b': 0xAF}}", "{'a': {'b': 0xAF}}"),
            ("1h30m", "1h30m"),
            ("$$it's$$", "'it''s'"),
            ("'it''s'", "'it''s'"),
            ("5a1c395e-b41f-11e5-9f22-ba0be0483c18", "5a1c395e-b41f-11e5-9f22-ba0be0483c18"),
        ],
    )
    def test_each_kind_has_one_form(self, text: str, expected: str) -> None:
        assert one(f"ALTER TABLE t WITH Opt = {text} AND b = 1") == SetOptions(Name("t"), {"opt": expected, "b": "1"})

    @pytest.mark.parametrize(
        ("text", "column"),
        [("", 23), ("-true", 25), ("{'a' 'b'}", 29), ("{'a':}", 29), ("['a' 'b']", 24), ("1,", 25), ("{1: 2", 29)],
    )
    def test_what_is_none_is_refused_at_its_place(self, text: str, column: int) -> None:
        assert refusal(f"ALTER TABLE t WITH a = {text}".rstrip()).column == column

    @pytest.mark.parametrize("words", ["CLUSTERING ORDER BY (a DESC)", "COMPACT STORAGE"])
    def test_words_of_create_table_are_none_of_alter_table(self, words: str) -> None:
        assert "expected =" in refusal(f"ALTER TABLE t WITH {words}").problem

    @given(st.integers(1, DEPTH + 20))
    def test_brackets_may_be_as_deep_as_the_bound_and_no_deeper(self, depth: int) -> None:
        text = f"ALTER TABLE t WITH a = {'{1: ' * depth}1{'}' * depth}"
        if depth <= DEPTH:
            assert isinstance(one(text), SetOptions)
        else:
            assert f"more than {DEPTH} deep" in refusal(text).problem

    def test_brackets_side_by_side_are_no_deeper_than_one(self) -> None:
        assert valued(f"[{'[], ' * DEPTH}1]").endswith("[], 1]")
        assert f"more than {DEPTH} deep" in refusal(f"INSERT INTO t (a) VALUES ([{'[], ' * DEPTH}{'[' * DEPTH}").problem


def valued(text: str) -> str:
    made = one(f"INSERT INTO t (a, b) VALUES ({text}, 7)")
    assert isinstance(made, WriteRows)
    assert made.values["b"] == "7"
    return made.values["a"]


class TestValues:
    """Terms of data statements."""

    @pytest.mark.parametrize(
        "text",
        [
            *("-5", "- -5", "1 + 2 * 3 - 4 / 5 % 6", "(1, 'a')", "()", "{}", "[]", "{1: 2, 3: 4}", "{1, 2}"),
            *(
                "{a: 1, b: 'x'}",
                "now()",
                "k.f(1, ?)",
                "cast(5 AS text)",
                '"F"(1)',
                "(int) 5",
                "(list<int>) [1]",
                "(text) :x",
            ),
            *("(int) - 5", "(int) (int) 5", "(5)", "P1Y", "PT5M", "NaN", "-Infinity", "null", "token(1)", "true"),
            *("?", ":bind", "$$ x, y $$", "1d", "0xAF", "{[1]: (2, 3)}"),
        ],
    )
    def test_each_form_is_taken_whole_and_kept_as_it_stands(self, text: str) -> None:
        assert valued(text) == text

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "a value, found ,"),
            ("1 +", "a value, found ,"),
            ("[1", "expected"),
            ("{1:}", "a value, found }"),
            ("'x' 'y'", "found 'y'"),
            ("1 2", "found 2"),
            ("select", "a value, found select"),
            ("f(1", "found"),
            ("a", "a value, found a"),
            ("1 + a", "found +"),
            ("[a", "a value, found a"),
            (":", "expected the name of a bind mark"),
            ("k.", "expected a name"),
            ("(list<int>)", "found ,"),
        ],
    )
    def test_what_is_none_is_refused(self, text: str, problem: str) -> None:
        assert problem in refusal(f"INSERT INTO t (a, b) VALUES ({text}, 7)").problem


class TestDataStatements:
    """Conditions, and what stands before and after them."""

    @pytest.mark.parametrize(
        ("text", "equal"),
        [
            ("a = 1 AND B = 'x AND y = 2' AND \"C\" = ?", {"a": "1", "b": "'x AND y = 2'", "C": "?"}),
            ("a != 2 AND b > 3 AND c < 4 AND d >= 5 AND e <= 6 AND f = 7", {"f": "7"}),
            ("a BETWEEN 1 AND 5 AND b = 2", {"b": "2"}),
            ("a NOT IN (1, 2) AND b NOT CONTAINS 5 AND c NOT CONTAINS KEY 5 AND d = 1", {"d": "1"}),
            ("a CONTAINS 1 AND b CONTAINS KEY 2 AND c LIKE 'x%' AND d IS NOT NULL", {}),
            ("a IN ? AND b IN (1) AND c IN :x", {}),
            ("token(a, b) = token(1, 2) AND (c, d) = (1, 2)", {}),
            ("a['x'] = 5 AND b.c = 3 AND e = 1", {"e": "1"}),
        ],
    )
    def test_conditions_hold_columns_only_to_what_they_must_equal(self, text: str, equal: dict[str, str]) -> None:
        made = one(f"DELETE FROM t WHERE {text}")
        assert isinstance(made, WriteRows)
        assert made.values == equal

    @pytest.mark.parametrize(
        "text",
        ["", "a", "a IS NULL", "a NOT 5", "a NOT LIKE 'x'", "a BETWEEN 1, 5", "(a, b = 1", "a == 1", "a = 1 AND"],
    )
    def test_what_is_no_condition_is_refused(self, text: str) -> None:
        assert refusal(f"DELETE FROM t WHERE {text}".strip()).problem.startswith("expected ")

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("INSERT INTO t (a) VALUES (1) USING TTL 5 IF NOT EXISTS", "IF"),
            ("INSERT INTO t (a) VALUES (1) IF EXISTS", "EXISTS"),
            ("INSERT INTO t (a) VALUES (1) IF a = 5", "a"),
            ("UPDATE t SET a = 1 WHERE k = 1 USING TTL 5", "USING"),
            ("UPDATE t SET a = 1 WHERE k = 1 IF NOT EXISTS", "NOT"),
            ("DELETE FROM t WHERE k = 1 USING TIMESTAMP 7", "USING"),
            ("DELETE FROM t WHERE k = 1 IF NOT EXISTS", "NOT"),
            ("DELETE FROM t WHERE k = 1 IF EXISTS IF EXISTS", "IF"),
            ("INSERT INTO t (a) VALUES (1) USING TTL 5 USING TTL 5", "USING"),
            ("BEGIN UNLOGGED COUNTER BATCH APPLY BATCH", "COUNTER"),
        ],
    )
    def test_using_and_if_stand_where_servers_take_them(self, text: str, found: str) -> None:
        assert refusal(text).problem.endswith(f", found {found}")

    @pytest.mark.parametrize(
        ("using", "stamp", "ttl"),
        [
            ("TIMESTAMP 5", "5", None),
            ("TTL ? AND TIMESTAMP :at", ":at", "?"),
            ("TIMESTAMP - 5", "- 5", None),
            ("TIMEOUT 5s AND TTL 60", None, "60"),
        ],
    )
    def test_using_says_what_it_says_in_any_order(self, using: str, stamp: str | None, ttl: str | None) -> None:
        for text in (
            f"INSERT INTO t (k) VALUES (1) USING {using}",
            f"UPDATE t USING {using} SET a = 1 WHERE k = 1",
            f"DELETE FROM t USING {using} WHERE k = 1",
        ):
            made = one(text)
            assert isinstance(made, WriteRows)
            assert (made.timestamp, made.ttl, made.conditional) == (stamp, ttl, False)

    @pytest.mark.parametrize(
        ("using", "problem"),
        [
            ("FOO 5", "expected TIMESTAMP, TTL or TIMEOUT, found FOO"),
            ("TTL", "found the end"),
            ("TTL 'x'", "a number"),
            ("TIMEOUT 5", "a duration"),
            ("TTL 5,", "found ,"),
        ],
    )
    def test_using_of_anything_else_is_refused(self, using: str, problem: str) -> None:
        assert problem in refusal(f"INSERT INTO t (k) VALUES (1) USING {using}").problem

    @pytest.mark.parametrize(
        ("json", "columns"),
        [
            ("?", ()),
            (":row DEFAULT NULL", ()),
            ("'{}'", ()),
            ('$${"A": 1, "b": [2]}$$ DEFAULT UNSET', ("a", "b")),
        ],
    )
    def test_json_names_its_columns_unless_it_is_bound(self, json: str, columns: Sequence[str]) -> None:
        made = one(f"INSERT INTO t JSON {json} IF NOT EXISTS")
        assert isinstance(made, WriteRows)
        assert (made.columns, made.conditional) == (columns, True)


class TestTables:
    """Keys, indexes and views."""

    @pytest.mark.parametrize(
        ("columns", "partition", "clustering"),
        [
            ("a int PRIMARY KEY, b int", ["a"], []),
            ("a int, b int, c int, PRIMARY KEY (b)", ["b"], []),
            ("a int, b int, c int, PRIMARY KEY (c, a)", ["c"], ["a"]),
            ("a int, b int, c int, PRIMARY KEY ((c, a), b)", ["c", "a"], ["b"]),
            ("PRIMARY KEY ((a)), a int,", ["a"], []),
        ],
    )
    def test_keys_have_the_order_in_which_they_name_columns(
        self, columns: str, partition: list[str], clustering: list[str]
    ) -> None:
        made = table(columns)
        assert [column.name for column in made.partition] == partition
        assert [column.name for column in made.clustering] == clustering
        assert [one.kind for one in made.columns].count(Kind.REGULAR) == len(made.columns) - len(made.key)

    @pytest.mark.parametrize(
        ("columns", "options", "problem"),
        [
            ("", "", "expected PRIMARY KEY or a column"),
            ("PRIMARY KEY (a)", "", "the key names a, which is no column"),
            ("a int, PRIMARY KEY ()", "", "a column, found )"),
            ("a int, PRIMARY KEY ((a), (b))", "", "expected a column, found ("),
            ("a int, b int, PRIMARY KEY (a), PRIMARY KEY (b)", "", "a second PRIMARY KEY"),
            ("a int PRIMARY KEY, b int PRIMARY KEY", "", "a second PRIMARY KEY"),
            ("a int PRIMARY", "", "expected KEY"),
            ("a int PRIMARY KEY", " WITH CLUSTERING ORDER BY (a ASC)", "in the key's order: none"),
            ("a int, b int, PRIMARY KEY (a, b)", " WITH CLUSTERING ORDER BY (b)", "expected ASC or DESC"),
            ("a int, b int, PRIMARY KEY (a, b)", " WITH CLUSTERING ORDER BY (b ASC, b ASC)", "must name"),
            ("a int PRIMARY KEY", " WITH", "expected CLUSTERING ORDER BY"),
        ],
    )
    def test_what_no_table_can_be_is_reported(self, columns: str, options: str, problem: str) -> None:
        assert problem in refusal(f"CREATE TABLE t ({columns}){options}").problem.replace("COMPACT STORAGE, ", "")

    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            ("m", "m"),
            ("KEYS ( m )", "keys(m)"),
            ("values(m)", "values(m)"),
            ("Entries(m)", "entries(m)"),
            ("FULL(m)", "full(m)"),
            ("(a, b), c", "(a, b), c"),
            ('"M"', '"M"'),
        ],
    )
    def test_what_an_index_is_on_has_one_spelling(self, target: str, expected: str) -> None:
        made = one(f"CREATE INDEX IF NOT EXISTS ON k.t ({target})")
        assert isinstance(made, CreateIndex)
        assert (made.index.target, made.index.spelling, made.if_not_exists) == (expected, "", True)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("CREATE INDEX i ON t", "expected (, found the end"),
            ("CREATE INDEX i t (a)", "expected ON, found t"),
            ("CREATE INDEX i ON t (a) WITH comment = 'x'", "an index has no option comment"),
            ("CREATE INDEX i ON t (a) USING sai", "expected a text in quotes"),
            ("CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE a IS NULL PRIMARY KEY (a)", "expected NOT"),
            ("CREATE MATERIALIZED VIEW v AS SELECT a FROM t", "expected WHERE or PRIMARY, found the end"),
            ("CREATE MATERIALIZED VIEW v SELECT a FROM t PRIMARY KEY (a)", "expected AS"),
            ("DROP TABLE IF t", "expected EXISTS, found t"),
            ("CREATE TABLE IF EXISTS t (a int PRIMARY KEY)", "expected NOT, found EXISTS"),
            ("CREATE TABLE a.b.c (a int PRIMARY KEY)", "expected (, found ."),
            ("ALTER TYPE t DROP a", "expected ADD, RENAME or ALTER"),
            ("ALTER TABLE t ADD (a int, b)", "a type, found )"),
            ("ALTER TABLE t ALTER a ADD", "expected TYPE, DROP or MASKED"),
            ("ALTER TABLE t DROP a, b", "expected USING or ;, found ,"),
            ("ALTER TABLE t RENAME a b", "expected TO, found b"),
        ],
    )
    def test_other_statements_tell_what_they_lack(self, text: str, problem: str) -> None:
        assert problem in refusal(text).problem

    def test_a_view_of_everything_knows_its_key_and_order(self) -> None:
        made = one(
            "CREATE MATERIALIZED VIEW IF NOT EXISTS k.v AS SELECT * FROM t WHERE a IS NOT NULL "
            "PRIMARY KEY ((a, b), c) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'c'"
        )
        assert isinstance(made, CreateView)
        assert (made.view.all_columns, made.view.base, made.if_not_exists) == (True, "t", True)
        assert [(one.name, one.kind, one.descending) for one in made.view.table.columns] == [
            ("a", Kind.PARTITION, False),
            ("b", Kind.PARTITION, False),
            ("c", Kind.CLUSTERING, True),
        ]
        assert made.view.table.comment == "c"


_RESERVED = """
    add allow alter and apply asc authorize batch begin by columnfamily create delete desc describe drop entries execute
    from full grant if in index infinity insert into is keyspace limit materialized modify nan norecursive not null of
    on or order primary rename revoke schema select set table to token truncate unlogged update use using view
    where with
"""
_FREE = """
    key keys type values ttl timestamp writetime as json static storage compact clustering custom exists contains like
    list map tuple frozen text int uuid date time partition default cast role user password login function language
    masked vector between unset mbean mbeans replace
"""


@pytest.mark.parametrize("word", _RESERVED.split())
def test_words_that_cassandra_keeps_for_itself_are_names_in_quotes_only(word: str) -> None:
    """Asked of Cassandra 5.0, word by word."""
    assert f'"{word}"' in refusal(f"CREATE TABLE t (a int PRIMARY KEY, {word} int)").mend
    assert table(f'a int PRIMARY KEY, "{word}" int').columns[1].name == word


@pytest.mark.parametrize("word", _FREE.split())
def test_other_words_are_names_like_any(word: str) -> None:
    made = one(f"CREATE TABLE {word}.{word} (a int PRIMARY KEY, {word} int)")
    assert isinstance(made, CreateTable)
    assert made.name == Name(word, word)
    assert made.table.columns[1].name == word
