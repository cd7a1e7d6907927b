"""A text as tokens: each kind, what ends them, and what never ends."""

import pytest

from cql.language.lexer import TokenKind, tokens_of
from model.errors import CqlSyntaxError

KINDS: tuple[tuple[str, TokenKind], ...] = (
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


@pytest.mark.parametrize(("text", "kind"), KINDS)
def test_each_kind_of_token_is_told_alone_and_among_others(text: str, kind: TokenKind) -> None:
    assert next((token.kind, token.text) for token in tokens_of(text)) == (kind, text)
    token = list(tokens_of(f"a\n {text}\n;"))[1]
    assert (token.kind, token.text, token.start, token.end) == (kind, text, 3, 3 + len(text))


def test_brackets_of_types_are_marks_of_their_own() -> None:
    assert [token.text for token in tokens_of("map<int,list<int>>")] == [
        *("map", "<", "int", ",", "list", "<", "int", ">", ">"),
        "",
    ]


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


@pytest.mark.parametrize(("text", "line", "column", "told"), NEVER_ENDING)
def test_what_never_ends_is_told_where_it_begins(text: str, line: int, column: int, told: str) -> None:
    with pytest.raises(CqlSyntaxError, match="line ") as refused:
        list(tokens_of(text))
    assert (refused.value.line, refused.value.column) == (line, column)
    assert told in refused.value.problem
