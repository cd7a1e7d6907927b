"""CREATE TABLE and CREATE MATERIALIZED VIEW: columns, key, order, options.

What no server accepts (no key, two keys, a key of missing columns) is refused here, at its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mailmend.cql.language.stream import Stream, Token
from mailmend.cql.language.values import conditions, cql_type, literal, spaced, term, text_value
from mailmend.cql.statements import CreateTable, CreateView
from mailmend.cql.statements.literals import LiteralForm, parse_literal
from mailmend.cql.statements.relations import Compared
from mailmend.model.keyspace import View
from mailmend.model.names import name_of, spelled, text_literal
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table


@dataclass(slots=True)
class Body:
    """The parts of a table read so far."""

    columns: dict[str, Column] = field(default_factory=dict)
    """By name, as the server knows it."""
    partition: list[Token] = field(default_factory=list)
    clustering: list[Token] = field(default_factory=list)

    @property
    def key(self) -> tuple[Token, ...]:
        """The tokens of the primary key's columns."""
        return (*self.partition, *self.clustering)


@dataclass(slots=True)
class Options:
    """The options of one statement, each with its place."""

    literals: dict[str, str] = field(default_factory=dict)
    order: list[tuple[Token, bool]] = field(default_factory=list)
    """Columns of CLUSTERING ORDER BY, each with whether it descends."""


def options(stream: Stream, *, of_table: bool = False) -> Options:
    """Take options joined by AND; `of_table`: the options that only CREATE TABLE and CREATE MATERIALIZED VIEW have."""
    found = Options()
    stream.separated(lambda _: _option(stream, found, of_table=of_table), by="AND")
    return found


def _option(stream: Stream, found: Options, *, of_table: bool) -> None:
    if of_table and stream.sees("COMPACT", "STORAGE"):
        stream.place("option", stream.next, COMPACT_STORAGE)
        stream.expect("COMPACT", "STORAGE")
        found.literals[COMPACT_STORAGE] = "true"
    elif of_table and stream.accept("CLUSTERING", "ORDER", "BY"):
        stream.expect("(")
        found.order += stream.separated(_ordered)
        stream.expect(")")
    else:
        _property(stream, found)


def _property(stream: Stream, found: Options) -> None:
    token = stream.name("an option")
    name = name_of(token.text)
    if name in found.literals:
        raise stream.wrong(f"the option {name} occurs twice", token)
    stream.expect("=")
    stream.place("option", token)
    found.literals[name] = literal(stream)


def _ordered(stream: Stream) -> tuple[Token, bool]:
    return stream.name("a clustering column"), stream.one_of("ASC", "DESC") == "DESC"


def create_table(stream: Stream) -> CreateTable:
    unless = stream.if_not_exists()
    name = stream.named("the name of a table")
    body = Body()
    opening = stream.expect("(")
    _part(stream, body)
    while stream.accept(","):
        if not stream.sees(")"):
            _part(stream, body)
    stream.expect(")")
    if not body.partition:
        raise stream.wrong(f"the table {name} has no PRIMARY KEY", opening)
    return CreateTable(name, _table(stream, name.spelling, body), unless)


def _part(stream: Stream, body: Body) -> None:
    if stream.accept("PRIMARY", "KEY"):
        _key(stream, body)
        return
    token = stream.next
    if token.word != "KEY" and stream.ahead(1).word == "KEY" and stream.ahead(2).text == "(":
        raise stream.unexpected("PRIMARY KEY")
    column = column_definition(stream)
    if column.name in body.columns:
        raise stream.wrong(f"the column {column.spelling} occurs twice", token)
    body.columns[column.name] = column
    if stream.sees("PRIMARY"):
        stream.expect("PRIMARY", "KEY")
        _only_key(stream, body, token)
        stream.place("key", token, "")
        body.partition.append(token)


def column_definition(stream: Stream) -> Column:
    token = stream.column()
    column_type = cql_type(stream)
    kind = Kind.REGULAR
    if stream.accept("STATIC"):
        kind = Kind.STATIC
    mask = ""
    if stream.accept("MASKED", "WITH"):
        mask = column_mask(stream)
    return Column(token.text, column_type, kind, mask=mask)


def column_mask(stream: Stream) -> str:
    """Take what follows MASKED WITH; returns its normalised text, as `mask_inner(1, null)`."""
    if stream.accept("DEFAULT"):
        return "mask_default()"
    function, _ = stream.qualified("a function")
    stream.expect("(")
    arguments = stream.until(")", _mask_argument)
    call = f"{spelled(name_of(function.spelling))}({', '.join(arguments)})"
    keyspace = spelled(name_of(function.keyspace or "system"))
    if keyspace == "system":
        return call
    return f"{keyspace}.{call}"


def _mask_argument(stream: Stream) -> str:
    token = stream.next
    text = term(stream)
    form = parse_literal(text).form
    if form is LiteralForm.OTHER:
        raise stream.wrong("the arguments of a mask are literals", token)
    if form is LiteralForm.TEXT:
        return text_literal(text_value(token))
    if form is LiteralForm.NULL:
        return text.lower()
    return text


def _only_key(stream: Stream, body: Body, token: Token) -> None:
    if body.partition:
        raise stream.wrong("a second PRIMARY KEY", token)


def _key(stream: Stream, body: Body) -> None:
    opening = stream.expect("(")
    _only_key(stream, body, opening)
    if stream.accept("("):
        body.partition += _names(stream)
        stream.expect(")")
    else:
        body.partition.append(stream.name("a column"))
    if stream.accept(","):
        body.clustering += _names(stream)
    closing = stream.expect(")")
    stream.place("key", opening, "", until=closing)


def _names(stream: Stream) -> list[Token]:
    return stream.separated(lambda _: stream.name("a column"))


def _table(stream: Stream, spelling: str, body: Body, *, whole_order: bool = False) -> Table:
    """The table; call after its columns and key are read. `whole_order`: the order names every clustering column."""
    found = Options()
    if stream.accept("WITH"):
        found = options(stream, of_table=True)
    order = found.order
    if whole_order and order and len(order) < len(body.clustering):
        lacking = body.clustering[len(order)].text
        raise stream.wrong(f"CLUSTERING ORDER BY of a view lacks {lacking}", order[-1][0])
    table = Table(spelling, (*_key_columns(stream, body, order), *_others(body)))
    return table.with_options(found.literals)


def _key_columns(stream: Stream, body: Body, order: Sequence[tuple[Token, bool]]) -> list[Column]:
    descending = _descending(stream, body, order)
    seen: set[str] = set()
    columns = []
    for place, token in enumerate(body.key):
        name = name_of(token.text)
        column = body.columns.get(name)
        if column is None:
            raise stream.wrong(f"the key names {token.text}, which is no column of the table", token)
        if name in seen:
            raise stream.wrong(f"the key names {token.text} twice", token)
        if column.kind is Kind.STATIC:
            raise stream.wrong(f"the static column {token.text} cannot be part of the key", token)
        seen.add(name)
        kind = Kind.CLUSTERING
        if place < len(body.partition):
            kind = Kind.PARTITION
        columns.append(Column(column.spelling, column.type, kind, descending=name in descending, mask=column.mask))
    return columns


def _descending(stream: Stream, body: Body, order: Sequence[tuple[Token, bool]]) -> set[str]:
    """The descending clustering columns; the order names the first ones of the key, and the rest ascends."""
    wanted = [name_of(token.text) for token in body.clustering]
    for place, (token, _) in enumerate(order):
        if wanted[place : place + 1] != [name_of(token.text)]:
            wanted_text = f"the clustering columns in the key's order: {', '.join(wanted) or 'none'}"
            raise stream.wrong(f"CLUSTERING ORDER BY names {token.text}, it must name {wanted_text}", token)
    return {name_of(token.text) for token, descends in order if descends}


def _others(body: Body) -> list[Column]:
    key = {name_of(token.text) for token in body.key}
    return [column for name, column in body.columns.items() if name not in key]


def create_view(stream: Stream) -> CreateView:
    unless = stream.if_not_exists()
    name = stream.named("the name of a view")
    stream.expect("AS", "SELECT")
    body = Body()
    every = stream.accept("*")
    if not every:
        body.columns = _selected(stream)
    stream.expect("FROM")
    base, span = stream.qualified("the name of a table")
    stream.mark(("base", ""), span)
    where = ""
    compared: tuple[Compared, ...] = ()
    if stream.accept("WHERE"):
        where, compared = _where(stream)
    stream.expect("PRIMARY", "KEY")
    _key(stream, body)
    unselected: list[str] = []
    for token in body.key:
        if not every and name_of(token.text) not in body.columns:
            unselected.append(token.text)
        body.columns.setdefault(name_of(token.text), Column(token.text, ""))
    table = _table(stream, name.spelling, body, whole_order=True)
    return CreateView(name, View(table, base.spelling, where, every), unless, compared, tuple(unselected))


def _selected(stream: Stream) -> dict[str, Column]:
    """The columns that a view selects; their types are unknown."""
    tokens = stream.separated(Stream.column)
    return {name_of(token.text): Column(token.text, "") for token in tokens}


def _where(stream: Stream) -> tuple[str, tuple[Compared, ...]]:
    """The normalised text of the conditions, and the conditions."""
    first = stream.position
    compared = conditions(stream)
    return spaced(stream.taken_since(first)), compared
