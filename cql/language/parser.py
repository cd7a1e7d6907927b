"""CQL as people write it in files, read into the statements of `cql.statements`.

One pass, one small function for each kind of statement; errors name the place. What changes no
table (roles, permissions, functions, queries) is only passed over, up to the semicolon that ends
it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mailmend.cql.language.definitions import (
    alter_keyspace,
    alter_table,
    alter_type,
    alter_view,
    create_index,
    create_keyspace,
    create_table,
    create_type,
    create_view,
    drop,
    drop_keyspace,
    truncate,
)
from mailmend.cql.language.stream import Stream, Token, TokenKind
from mailmend.cql.language.values import (
    bind_mark,
    conditions,
    names_column,
    part_of_column,
    term,
    text_value,
)
from mailmend.cql.statements import (
    Batch,
    DropIndex,
    DropTable,
    DropType,
    DropView,
    Name,
    Other,
    Parsed,
    Span,
    Statement,
    Use,
    WriteKind,
    WriteRows,
)
from mailmend.cql.statements.base import CellChange, CellOperator, Compared
from mailmend.cql.statements.json_values import columns_in, first_value
from mailmend.model.errors import CqlSyntaxError
from mailmend.model.names import name_of


@dataclass(slots=True)
class _Extras:
    """The contents of USING, WHERE and IF."""

    timestamp: str | None = None
    ttl: str | None = None
    timeout: bool = False
    conditional: bool = False
    values: dict[str, str] = field(default_factory=dict)
    where: tuple[Compared, ...] = ()
    only_if: tuple[Compared, ...] = ()
    cells: list[CellChange] = field(default_factory=list)
    json: dict[str, object] | None = None


def insert(stream: Stream) -> WriteRows:
    stream.expect("INTO")
    name = stream.named("the name of a table")
    extras = _Extras()
    if stream.accept("JSON"):
        columns = _json(stream, extras)
    else:
        columns = _columns_and_values(stream, extras)
    extras.conditional = stream.if_not_exists()
    _using(stream, extras)
    return _write(WriteKind.INSERT, name, columns, extras)


def _columns_and_values(stream: Stream, extras: _Extras) -> tuple[str, ...]:
    stream.expect("(")
    columns = [_column(stream)]
    while stream.accept(","):
        token = stream.next
        columns.append(_column(stream))
        if columns[-1] in columns[:-1]:
            raise stream.wrong(f"the column {token.text} occurs twice", token)
    stream.expect(")")
    stream.expect("VALUES")
    opening = stream.expect("(")
    values = stream.separated(term)
    stream.expect(")")
    if len(values) != len(columns):
        raise stream.wrong(f"{len(columns)} columns are named, but {len(values)} values are given", opening)
    extras.values.update(zip(columns, values, strict=True))
    return tuple(columns)


def _column(stream: Stream) -> str:
    return name_of(stream.column().text)


def _json(stream: Stream, extras: _Extras) -> tuple[str, ...]:
    """The columns of a JSON object; empty where it is bound later."""
    token = stream.next
    if not bind_mark(stream):
        extras.json = _object(stream, text_value(stream.of_kind(TokenKind.STRING)))
        for name in extras.json:
            stream.place("column", token, name)
    if stream.accept("DEFAULT"):
        stream.one_of("NULL", "UNSET")
    return tuple(extras.json or ())


def _object(stream: Stream, text: str) -> dict[str, object]:
    try:
        found = first_value(text)
    except (ValueError, RecursionError) as error:
        raise stream.wrong(f"the text after JSON is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise stream.wrong("the text after JSON is no object: it names no columns")
    return columns_in(found)


def update(stream: Stream) -> WriteRows:
    name = stream.named("the name of a table")
    extras = _Extras()
    _using(stream, extras)
    stream.expect("SET")
    stream.separated(lambda _: _assignment(stream, extras))
    _where(stream, extras)
    return _write(WriteKind.UPDATE, name, _changed(extras), extras)


def _changed(extras: _Extras) -> tuple[str, ...]:
    """The columns that the statement changes, each once."""
    return tuple(dict.fromkeys(change.column for change in extras.cells))


def _assignment(stream: Stream, extras: _Extras) -> None:
    token = stream.next
    column = _column(stream)
    element, field_name = part_of_column(stream)
    if element or field_name:
        stream.expect("=")
        change = CellChange(column, CellOperator.SET, term(stream), element, field_name)
    else:
        change = _change_of_column(stream, column)
    if any(change.conflicts_with(earlier) for earlier in extras.cells):
        raise stream.wrong(f"the column {column} is set here a second time", token)
    extras.cells.append(change)
    if change.sets_column:
        extras.values[column] = change.value


_SIGNS = {"+": CellOperator.ADD, "-": CellOperator.SUBTRACT}


def _change_of_column(stream: Stream, column: str) -> CellChange:
    """What follows the name of a whole column in SET."""
    for sign, operator in _SIGNS.items():
        if stream.accept(sign):
            stream.expect("=")
            return CellChange(column, operator, term(stream))
    stream.expect("=")
    if names_column(stream) and stream.ahead(1).text in _SIGNS:
        _same_column(stream, column)
        operator = _SIGNS[stream.one_of(*_SIGNS)]
        return CellChange(column, operator, term(stream))
    value = term(stream)
    if stream.next.text == "+":
        stream.take()
        _same_column(stream, column)
        return CellChange(column, CellOperator.PREPEND, value)
    return CellChange(column, CellOperator.SET, value)


def _same_column(stream: Stream, column: str) -> None:
    token = stream.name("a column")
    if name_of(token.text) != column:
        problem = f"only {column} itself can be added to or taken from here, not {token.text}"
        raise stream.wrong(problem, token)


def delete(stream: Stream) -> WriteRows:
    extras = _Extras()
    while not stream.accept("FROM"):
        if extras.cells:
            stream.expect(",")
        column = _column(stream)
        element, field_name = part_of_column(stream)
        extras.cells.append(CellChange(column, CellOperator.DELETE, "", element, field_name))
    name = stream.named("the name of a table")
    _using(stream, extras)
    _where(stream, extras)
    return _write(WriteKind.DELETE, name, _changed(extras), extras)


def _where(stream: Stream, extras: _Extras) -> None:
    stream.expect("WHERE")
    extras.where = conditions(stream)
    for relation in extras.where:
        if relation.compares_column:
            extras.values[relation.columns[0]] = relation.value
    extras.conditional = stream.accept("IF")
    if extras.conditional and not stream.accept("EXISTS"):
        extras.only_if = conditions(stream)


def _using(stream: Stream, extras: _Extras) -> None:
    if stream.accept("USING"):
        stream.separated(lambda _: _attribute(stream, extras), by="AND")


def _attribute(stream: Stream, extras: _Extras) -> None:
    token = stream.next
    match stream.one_of("TIMESTAMP", "TTL", "TIMEOUT"):
        case "TIMESTAMP":
            extras.timestamp = _amount(stream)
        case "TTL":
            extras.ttl = _amount(stream)
        case _:
            stream.of_kind(TokenKind.DURATION)
            extras.timeout = True
    stream.place("option", token)


def _amount(stream: Stream) -> str:
    begin = stream.next.start
    if stream.accept(":"):
        stream.name("the name of a bind mark")
    elif not stream.accept("?"):
        stream.accept("-")
        token = stream.next
        stream.of_kind(TokenKind.NUMBER)
        if not token.text.isdigit():
            raise stream.wrong(f"{token.text} is no whole number", token)
    return stream.text[begin : stream.last_end]


def _write(change: WriteKind, name: Name, columns: tuple[str, ...], extras: _Extras) -> WriteRows:
    return WriteRows(
        name,
        change,
        columns,
        extras.timestamp,
        extras.ttl,
        extras.conditional,
        extras.values,
        extras.where,
        extras.only_if,
        tuple(extras.cells),
        extras.timeout,
        extras.json,
    )


_WRITES: dict[str, Callable[[Stream], WriteRows]] = {"INSERT": insert, "UPDATE": update, "DELETE": delete}


def batch(stream: Stream) -> Batch:
    logged = not stream.accept("UNLOGGED")
    counter = logged and stream.accept("COUNTER")
    stream.expect("BATCH")
    extras = _Extras()
    opening = stream.next
    _using(stream, extras)
    if extras.ttl is not None:
        raise stream.wrong("a batch has no TTL: each of its statements has its own", opening)
    writes: list[WriteRows] = []
    while not stream.accept("APPLY", "BATCH"):
        token = stream.next
        write = _WRITES[stream.one_of(*_WRITES)](stream)
        if extras.timestamp is not None and write.timestamp is not None:
            raise stream.wrong("a batch with a TIMESTAMP holds no statement with another", token)
        stream.name_in_batch(len(writes))
        stream.accept(";")
        timestamp = write.timestamp or extras.timestamp
        timeout = write.timeout or extras.timeout
        writes.append(replace(write, timestamp=timestamp, timeout=timeout))
    return Batch(tuple(writes), logged, counter)


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
    if "FROM" not in words:
        return passed_over
    begin = words.index("FROM") + 1
    where = len(tokens)
    if "WHERE" in words[begin:]:
        where = words.index("WHERE", begin)
    if where != begin + 1:  # a table of another keyspace, or no condition
        return passed_over
    likes = []
    for before, column, after in zip(words[where:], tokens[where + 1 :], words[where + 2 :], strict=False):
        if before in {"WHERE", "AND"} and after == "LIKE":
            likes.append(name_of(column.text))
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
    line_end = 0
    if before:
        line_end = stream.text.find("\n", before)
    if line_end < 0:
        line_end = len(stream.text)
    below = first.start
    kept = len(comments)
    for comment in reversed(comments):
        if comment.start < line_end or stream.text.count("\n", comment.end, below) > 1:
            break
        below = comment.start
        kept = kept - 1
    notes: list[str] = []
    for comment in comments[kept:]:
        notes.extend(_lines(comment))
    return tuple(notes)


def _lines(comment: Token) -> list[str]:
    if comment.text.startswith("/*"):
        lines = []
        for line in comment.text[2:-2].strip().splitlines():
            lines.append(line.strip().removeprefix("*").strip())
        return lines
    return [comment.text[2:].lstrip("-").strip()]
