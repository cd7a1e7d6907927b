"""INSERT, UPDATE, DELETE and batches of them, as far as the rules need them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mailmend.cql.language.lexer import TokenKind
from mailmend.cql.language.stream import Stream
from mailmend.cql.language.values import bind_mark, conditions, names_column, part_of_column, term, text_value
from mailmend.cql.statements import Batch, Name, WriteKind, WriteRows
from mailmend.cql.statements.json_values import columns_in, first_value
from mailmend.cql.statements.relations import CellChange, CellOperator, Compared
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
    columns = _json(stream, extras) if stream.accept("JSON") else _columns_and_values(stream, extras)
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
    if change.whole and change.operator is CellOperator.SET:
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
        writes.append(_WRITES[stream.one_of(*_WRITES)](stream))
        if extras.timestamp is not None and writes[-1].timestamp is not None:
            raise stream.wrong("a batch with a TIMESTAMP holds no statement with another", token)
        stream.name_in_batch(len(writes) - 1)
        stream.accept(";")
    stamped = (
        replace(write, timestamp=write.timestamp or extras.timestamp, timeout=write.timeout or extras.timeout)
        for write in writes
    )
    return Batch(tuple(stamped), logged, counter)
