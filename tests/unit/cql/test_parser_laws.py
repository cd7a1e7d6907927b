"""Tokens, and laws of the language: what is rendered is read back, however it is written; no text does harm."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.language.parser import parse
from mailmend.cql.language.stream import Stream, Token, TokenKind, checked, tokens_of
from mailmend.cql.render import ddl_cql
from mailmend.cql.statements import Batch, Other, Statement, WriteRows
from mailmend.model.errors import CqlSyntaxError
from tests.support.statements import BY_KIND, KINDS, STATEMENTS, written_otherwise

WRITES = (
    "INSERT INTO k.t (a, \"B\") VALUES (1, {'x': [1.5, -2], 'y': [now(), ?]}) IF NOT EXISTS USING TTL 5",
    "UPDATE t USING TIMESTAMP 5 SET a = a + {1}, b['x'] = 0xaf, c.f = (int) :v WHERE k IN (1, 2) IF a != null",
    "BEGIN UNLOGGED BATCH DELETE a, b[1] FROM t WHERE k = 1 AND (c, d) > (1, 'x'); APPLY BATCH",
    "CREATE FUNCTION f (x int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ return x; // ' $$",
)
STATEMENT_TEXTS = st.one_of(STATEMENTS.map(lambda one: ddl_cql(one, None)), st.sampled_from(WRITES))


def test_every_kind_of_statement_has_a_text_but_those_of_data() -> None:
    assert set(BY_KIND) == set(KINDS) - {WriteRows, Batch, Other}


@given(STATEMENTS)
def test_what_is_rendered_is_read_back(statement: Statement) -> None:
    (parsed,) = parse(ddl_cql(statement, None))
    assert parsed.statement == statement


@given(STATEMENTS, st.data())
def test_white_space_comments_and_the_case_of_keywords_say_nothing(statement: Statement, data: st.DataObject) -> None:
    text = data.draw(written_otherwise(ddl_cql(statement, None)))
    (parsed,) = parse(text)
    assert parsed.statement == statement


@given(st.lists(STATEMENT_TEXTS, max_size=4))
def test_spans_give_back_the_text(texts: list[str]) -> None:
    text = "\n".join(f"-- {number}\n{one.removesuffix(';')};" for number, one in enumerate(texts))
    parsed = parse(text)
    assert len(parsed) == len(texts)
    for number, (one, source) in enumerate(zip(parsed, texts, strict=True)):
        assert text[one.span.start : one.span.end] == source.removesuffix(";")
        assert one.notes == (str(number),)
        for span in (*one.places.values(), *([one.name_at] if one.name_at else [])):
            assert one.span.start <= span.start < span.end <= one.span.end
    assert all(one.span.end <= other.span.start for one, other in pairwise(parsed))


@given(st.text() | st.text(alphabet="(){}[]<>'\"$-/*;:.,= aPIS0x1\n"))
def test_any_text_is_read_or_refused_at_its_place(text: str) -> None:
    error = _refusal(text)
    if error is not None:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


def _refusal(text: str) -> CqlSyntaxError | None:
    try:
        parse(text)
    except CqlSyntaxError as error:
        return error
    return None


@given(st.lists(STATEMENT_TEXTS, min_size=1, max_size=3), st.data())
def test_a_damaged_statement_is_read_or_refused(texts: list[str], data: st.DataObject) -> None:
    words = [token.text for text in texts for token in tokens_of(text)]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place : place + 1] = data.draw(st.sampled_from([[], [words[place]] * 2, ["("], [words[0]], ["'"]]))
        if not words:
            return
    error = _refusal(" ".join(words))
    assert error is None or error.problem


@given(st.text())
def test_tokens_cover_the_text_but_for_white_space(text: str) -> None:
    try:
        tokens = list(tokens_of(text))
    except CqlSyntaxError:
        return
    for before, after in pairwise(tokens):
        assert not text[before.end : after.start].strip(" \t\r\n")
        assert text[after.start : after.end] == after.text
    assert tokens[-1] == Token(TokenKind.END, "", len(text), len(text))


def _calls(act: Callable[[], Any]) -> int:
    """How many functions are called, as a measure of work that no clock disturbs."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def _many(part: str, count: int) -> str:
    return ", ".join(part.format(number) for number in range(count))


LONG: dict[str, Callable[[int], str]] = {
    "statements": lambda n: "DROP TABLE t;" * n,
    "columns": lambda n: f"CREATE TABLE t (k int PRIMARY KEY{''.join(f', c{i} int' for i in range(n))})",
    "key columns": lambda n: f"CREATE TABLE t ({_many('c{} int', n)}, PRIMARY KEY ({_many('c{}', n)}))",
    "fields": lambda n: f"CREATE TYPE t ({_many('f{} int', n)})",
    "options": lambda n: f"ALTER TABLE t WITH {' AND '.join(f'o{i} = 1' for i in range(n))}",
    "values": lambda n: f"INSERT INTO t (a) VALUES ([{', '.join(['1'] * n)}])",
    "sums": lambda n: f"UPDATE t SET a = {' + '.join(['a'] * n)} WHERE k = 1",
    "signs": lambda n: f"UPDATE t SET a = {'- ' * n} 1 WHERE k = 1",
    "comments": lambda n: "-- note\n" * n + "DROP TABLE t",
    "comments that say nothing": lambda n: "/**/" * n,
    "brackets": lambda n: f"INSERT INTO t (a) VALUES ({'[' * n}",
    "types": lambda n: f"CREATE TABLE t (a {'list<' * n}",
    "casts": lambda n: f"INSERT INTO t (a) VALUES ({'(int) ' * n} 1)",
    "quotes": lambda n: "'" * (2 * n + 1),
    "dollars": lambda n: "$$ $" * (2 * n + 1),
    "stars": lambda n: "/*" + "* /" * n,
    "batch": lambda n: f"BEGIN BATCH {'DELETE FROM t WHERE k = 1; ' * n} APPLY BATCH",
    "relations": lambda n: f"DELETE FROM t WHERE {' AND '.join(['a = 1'] * n)}",
    "semicolons": lambda n: ";" * n,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_twice_the_text_takes_twice_the_work(text: Callable[[int], str]) -> None:
    _refusal(text(10))  # what is worked out once
    one, two = (_calls(partial(_refusal, text(count))) for count in (300, 600))
    assert two <= 2.2 * one + 100


TOKENS: tuple[tuple[str, TokenKind], ...] = (
    ("name", TokenKind.WORD),
    ("Name_2", TokenKind.WORD),
    ('"a ""b"" -- c"', TokenKind.QUOTED),
    ("'it''s -- ; $$'", TokenKind.STRING),
    ("''", TokenKind.STRING),
    ("$$ ' ; $ $$", TokenKind.STRING),
    ("12", TokenKind.NUMBER),
    ("1.5e-3", TokenKind.NUMBER),
    ("123e4567-e89b-12d3-a456-426614174000", TokenKind.UUID),
    ("0xCAFE", TokenKind.BLOB),
    ("0x", TokenKind.BLOB),
    ("1y2mo3d4h5m6s7ms8us9ns", TokenKind.DURATION),
    ("3\u00b5s", TokenKind.DURATION),
    ("P0001-02-03T04:05:06", TokenKind.DURATION),
    ("<=", TokenKind.MARK),
    ("?", TokenKind.MARK),
    ("-- a comment ; '", TokenKind.COMMENT),
    ("// another", TokenKind.COMMENT),
    ("/* over\n lines * ; */", TokenKind.COMMENT),
)


@pytest.mark.parametrize(("text", "kind"), TOKENS)
def test_each_kind_of_token_is_reported_alone_and_among_others(text: str, kind: TokenKind) -> None:
    assert next((token.kind, token.text) for token in tokens_of(text)) == (kind, text)
    token = list(tokens_of(f"a\n {text}\n;"))[1]
    assert (token.kind, token.text, token.start, token.end) == (kind, text, 3, 3 + len(text))


def test_brackets_of_types_are_marks_of_their_own() -> None:
    assert [token.text for token in tokens_of("map<int,list<int>>")] == [
        *("map", "<", "int", ",", "list", "<", "int", ">", ">"),
        "",
    ]


def test_a_division_after_a_comment_is_a_mark() -> None:
    assert [token.text for token in tokens_of("/* a */ 4 / 2")] == ["/* a */", "4", "/", "2", ""]


def test_nothing_is_taken_after_the_end() -> None:
    stream = Stream("a")
    assert [stream.take().kind for _ in range(3)] == [TokenKind.WORD, TokenKind.END, TokenKind.END]


@pytest.mark.parametrize("text", ["a b", "a -- b", "a /* b */", "a;"])
def test_a_checked_text_is_what_the_rule_takes_and_nothing_more(text: str) -> None:
    assert checked("a", Stream.take) == "a"
    with pytest.raises(CqlSyntaxError, match="expected nothing more, found"):
        checked(text, Stream.take)


def test_an_index_range_is_two_numbers() -> None:
    assert [token.text for token in tokens_of("a[1..2]")][2:6] == ["1", ".", ".", "2"]


def test_words_are_compared_in_capitals_and_names_in_quotes_are_none() -> None:
    table, quoted, _ = tokens_of('Table "table"')
    assert (table.word, quoted.word) == ("TABLE", "")


NEVER_ENDING = (
    ("USE a;\n  'text ''", 2, 3, "a text begins here and never ends"),
    ('USE "name;', 1, 5, "a name in double quotes begins here"),
    ("/* a\n* b", 1, 1, "a comment begins here and never ends"),
    ("AS $$ return 1; $", 1, 4, "its closing $$ is missing"),
    ('USE "";', 1, 5, "a name in double quotes is empty"),
    ("USE a\u00a0;", 1, 6, "no use for the character"),
    ("a $ b", 1, 3, "no use for the character '$'"),
)


@pytest.mark.parametrize(("text", "line", "column", "expected"), NEVER_ENDING)
def test_what_never_ends_is_reported_where_it_begins(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(CqlSyntaxError, match="line ") as refused:
        list(tokens_of(text))
    assert (refused.value.line, refused.value.column) == (line, column)
    assert expected in refused.value.problem
