"""CQL as people write it in files, read into the statements of `cql.statements`.

One pass, one small function for each kind of statement; errors name the place. What changes
no table (roles, permissions, functions, queries) is only passed over, up to the semicolon that ends it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mailmend.cql.language.alters import (
    alter_keyspace,
    alter_table,
    alter_type,
    alter_view,
    create_index,
    create_keyspace,
    create_type,
    drop,
    drop_keyspace,
    truncate,
)
from mailmend.cql.language.lexer import Token
from mailmend.cql.language.stream import Stream
from mailmend.cql.language.tables import create_table, create_view
from mailmend.cql.language.writes import batch, delete, insert, update
from mailmend.cql.statements import DropIndex, DropTable, DropType, DropView, Other, Parsed, Span, Statement, Use
from mailmend.model.errors import CqlSyntaxError
from mailmend.model.names import name_of

Grammar = Callable[[Stream], Statement]


def _use(stream: Stream) -> Use:
    return Use(stream.named_keyspace())


_RULES: dict[tuple[str, ...], Grammar] = {
    ("CREATE", "KEYSPACE"): create_keyspace,
    ("CREATE", "SCHEMA"): create_keyspace,
    ("CREATE", "TABLE"): create_table,
    ("CREATE", "COLUMNFAMILY"): create_table,
    ("CREATE", "TYPE"): create_type,
    ("CREATE", "INDEX"): create_index,
    ("CREATE", "CUSTOM", "INDEX"): lambda stream: create_index(stream, custom=True),
    ("CREATE", "MATERIALIZED", "VIEW"): create_view,
    ("ALTER", "KEYSPACE"): alter_keyspace,
    ("ALTER", "SCHEMA"): alter_keyspace,
    ("ALTER", "TABLE"): alter_table,
    ("ALTER", "COLUMNFAMILY"): alter_table,
    ("ALTER", "TYPE"): alter_type,
    ("ALTER", "MATERIALIZED", "VIEW"): alter_view,
    ("DROP", "KEYSPACE"): drop_keyspace,
    ("DROP", "SCHEMA"): drop_keyspace,
    ("DROP", "TABLE"): lambda stream: drop(stream, DropTable),
    ("DROP", "COLUMNFAMILY"): lambda stream: drop(stream, DropTable),
    ("DROP", "TYPE"): lambda stream: drop(stream, DropType),
    ("DROP", "INDEX"): lambda stream: drop(stream, DropIndex),
    ("DROP", "MATERIALIZED", "VIEW"): lambda stream: drop(stream, DropView),
    ("TRUNCATE",): truncate,
    ("USE",): _use,
    ("INSERT",): insert,
    ("UPDATE",): update,
    ("DELETE",): delete,
    ("BEGIN",): batch,
}
_PASSED_OVER: tuple[tuple[str, ...], ...] = (
    ("SELECT",),
    ("GRANT",),
    ("REVOKE",),
    ("LIST",),
    ("DESCRIBE",),
    ("DESC",),
    ("ADD", "IDENTITY"),
    ("DROP", "IDENTITY"),
    *(
        (verb, noun)
        for noun in ("ROLE", "USER", "FUNCTION", "AGGREGATE", "TRIGGER", "SERVICE_LEVEL")
        for verb in ("CREATE", "ALTER", "DROP")
    ),
    ("CREATE", "OR", "REPLACE"),
    ("ATTACH", "SERVICE_LEVEL"),
    ("DETACH", "SERVICE_LEVEL"),
)
"""The first words of statements that change no table."""

_WORDS_OF_CQLSH = """
    capture clear cls consistency copy debug elapsed exit expand help history login paging quit serial show source
    tracing unicode
"""
_OF_CQLSH = frozenset(_WORDS_OF_CQLSH.upper().split())
"""Commands of cqlsh, which servers do not know."""

_MEND_CQLSH = "A migration is sent to the server, so it holds CQL only: leave the command out."


def parse(text: str, file: str = "") -> tuple[Parsed, ...]:
    """The statements of a text, each with its place.

    Raises:
        CqlSyntaxError: placed at the first thing that is not CQL; the message names the file, where there is one.
    """
    try:
        return tuple(_statements(Stream(text), file))
    except CqlSyntaxError as error:
        raise error.in_file(file) from None


def _statements(stream: Stream, file: str) -> Iterator[Parsed]:
    while True:
        while stream.accept(";"):
            pass
        if stream.ended:
            return
        yield _parsed(stream, file)
        if not stream.ended:
            stream.expect(";")


def _parsed(stream: Stream, file: str) -> Parsed:
    stream.begin_statement()
    first = stream.next
    before = stream.last_end
    statement = _statement(stream)
    span = Span(first.start, stream.last_end)
    notes = _notes(stream, first, before)
    return Parsed(statement, span, stream.name_at, stream.places, notes, file)


def _statement(stream: Stream) -> Statement:
    ahead = tuple(stream.ahead(place).word for place in range(3))
    for count in (1, 2, 3):
        rule = _RULES.get(ahead[:count])
        if rule is not None:
            stream.expect(*ahead[:count])
            return rule(stream)
        if ahead[:count] == ("SELECT",):
            return _query(stream)
        if ahead[:count] in _PASSED_OVER:
            return _other(stream, ahead[:count])
    raise _unknown(stream)


_PERMISSIONS_OF_MASKS = frozenset({"UNMASK", "SELECT_MASKED"})


def _query(stream: Stream) -> Other:
    """A SELECT: only its table and the columns of its conditions with LIKE are read."""
    first = stream.position
    passed_over = _other(stream, ("SELECT",))
    tokens = (*stream.taken_since(first), stream.next)
    words = [token.word for token in tokens]
    begin = words.index("FROM") + 1 if "FROM" in words else len(tokens)
    where = words.index("WHERE", begin) if "WHERE" in words[begin:] else len(tokens)
    if where != begin + 1:  # a table of another keyspace, or no condition
        return passed_over
    likes = [
        name_of(column.text)
        for before, column, after in zip(words[where:], tokens[where + 1 :], words[where + 2 :], strict=False)
        if before in {"WHERE", "AND"} and after == "LIKE"
    ]
    return replace(passed_over, table=tokens[begin].text, like=tuple(likes))


def _other(stream: Stream, words: Sequence[str]) -> Other:
    calls: dict[str, None] = {}
    parts: dict[str, None] = {}
    before = stream.next
    while not stream.sees(";") and not stream.ended:
        token = stream.take()
        if token.word == "CIDRS" and before.word in {"FROM", "ALL"} and words[-1] in {"ROLE", "USER"}:
            parts["ACCESS FROM CIDRS"] = None
        named_permission = stream.next.word in {"ON", "PERMISSION"} or stream.next.text == ","
        if token.word in _PERMISSIONS_OF_MASKS and named_permission and words[0] in {"GRANT", "REVOKE"}:
            parts[f"permission {token.word}"] = None
        before = token
        if token.word and stream.next.text == "(" and token.end == stream.next.start:
            calls[token.text.lower()] = None
    return Other(" ".join(words), tuple(calls), tuple(parts))


def _unknown(stream: Stream) -> CqlSyntaxError:
    """The error where no statement begins: at the first word that fits none."""
    first = stream.next
    if first.word in _OF_CQLSH:
        return stream.wrong(f"{first.text} is a command of cqlsh, which servers do not know", mend=_MEND_CQLSH)
    left = [*_RULES, *_PASSED_OVER]
    while going_on := [words[1:] for words in left if words[0] == stream.next.word]:
        stream.take()
        left = going_on
    return stream.unexpected(*(words[0] for words in left))


def _notes(stream: Stream, first: Token, before: int) -> tuple[str, ...]:
    """The comments directly before a statement: not before an empty line, not on another statement's line."""
    comments = stream.comments_until(first.start)
    line_end = stream.text.find("\n", before) if before else 0
    behind = len(stream.text) if line_end < 0 else line_end
    below = first.start
    kept = len(comments)
    for comment in reversed(comments):
        if comment.start < behind or stream.text.count("\n", comment.end, below) > 1:
            break
        below = comment.start
        kept = kept - 1
    return tuple(line for comment in comments[kept:] for line in _lines(comment))


def _lines(comment: Token) -> list[str]:
    if comment.text.startswith("/*"):
        return [line.strip().removeprefix("*").strip() for line in comment.text[2:-2].strip().splitlines()]
    return [comment.text[2:].lstrip("-").strip()]
