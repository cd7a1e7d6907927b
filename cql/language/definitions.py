"""Definitions: CREATE, ALTER and DROP of keyspaces, types, tables, views and indexes; TRUNCATE.

What no server accepts (no key, two keys, a key of missing columns) is refused here, at its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mailmend.cql.language.stream import Stream, Token, TokenKind
from mailmend.cql.language.values import conditions, cql_type, literal, spaced, term, text_value
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateType,
    CreateView,
    Drop,
    DropColumns,
    DropCompactStorage,
    DropKeyspace,
    MaskColumn,
    Name,
    RenameColumns,
    RenameFields,
    SetOptions,
    SetViewOptions,
    Statement,
    Truncate,
)
from mailmend.cql.statements.base import Compared
from mailmend.cql.statements.literals import LiteralForm, parse_literal
from mailmend.model.keyspace import Index, View
from mailmend.model.names import name_of, pairs_of, spelled, text_literal
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table, UserType


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


_TYPES_ARE_KEPT = "The type of a column or field cannot be changed: add one of the other type and copy what it holds."


def create_keyspace(stream: Stream) -> CreateKeyspace:
    unless = stream.if_not_exists()
    keyspace = stream.named_keyspace()
    stream.expect("WITH")
    return CreateKeyspace(keyspace, options(stream).literals, unless)


def alter_keyspace(stream: Stream) -> AlterKeyspace:
    only = stream.if_exists()
    keyspace = stream.named_keyspace()
    stream.expect("WITH")
    return AlterKeyspace(keyspace, options(stream).literals, only)


def drop_keyspace(stream: Stream) -> DropKeyspace:
    only = stream.if_exists()
    return DropKeyspace(stream.named_keyspace(), only)


def create_type(stream: Stream) -> CreateType:
    unless = stream.if_not_exists()
    name = stream.named("the name of a type")
    stream.expect("(")
    fields: dict[str, tuple[str, str]] = {}
    while not fields or stream.accept(","):
        token = stream.next
        if fields and stream.sees(")"):
            continue
        spelling, type_text = _field(stream)
        if name_of(spelling) in fields:
            raise stream.wrong(f"the field {spelling} occurs twice", token)
        fields[name_of(spelling)] = (spelling, type_text)
    stream.expect(")")
    return CreateType(name, UserType(name.spelling, tuple(fields.values())), unless)


def _field(stream: Stream) -> tuple[str, str]:
    token = stream.name("a field")
    stream.place("field", token)
    return token.text, cql_type(stream)


def alter_type(stream: Stream) -> Statement:
    only = stream.if_exists()
    name = stream.named("the name of a type")
    if stream.accept("ADD"):
        unless = stream.if_not_exists()
        return AddField(name, *_field(stream), only, unless)
    if stream.accept("RENAME"):
        fields = stream.if_exists()
        return RenameFields(name, _renames(stream, "field"), only, fields)
    if stream.sees("ALTER"):
        raise stream.wrong("ALTER TYPE ... ALTER is refused by every server since 3.10", mend=_TYPES_ARE_KEPT)
    raise stream.unexpected()


def _renames(stream: Stream, what: str) -> tuple[tuple[str, str], ...]:
    def rename(_: Stream) -> tuple[str, str]:
        old = stream.name(f"a {what}")
        stream.place(what, old)
        stream.expect("TO")
        return old.text, stream.name(f"a {what}").text

    return tuple(stream.separated(rename, by="AND"))


def alter_table(stream: Stream) -> Statement:
    only = stream.if_exists()
    name = stream.named("the name of a table")
    if stream.accept("ADD"):
        return _add(stream, name, only=only)
    if stream.accept("DROP", "COMPACT", "STORAGE"):
        return DropCompactStorage(name, only)
    if stream.accept("DROP"):
        return _drop(stream, name, only=only)
    if stream.accept("RENAME"):
        columns = stream.if_exists()
        return RenameColumns(name, _renames(stream, "column"), only, columns)
    if stream.accept("WITH"):
        return SetOptions(name, options(stream).literals, only)
    if stream.accept("ALTER"):
        return _mask(stream, name, only=only)
    raise stream.unexpected()


def _add(stream: Stream, name: Name, *, only: bool) -> AddColumns:
    unless = stream.if_not_exists()
    if not stream.accept("("):
        return AddColumns(name, (column_definition(stream),), only, unless)
    columns = stream.separated(column_definition)
    stream.expect(")")
    return AddColumns(name, tuple(columns), only, unless)


def _drop(stream: Stream, name: Name, *, only: bool) -> DropColumns:
    columns_only = stream.if_exists()
    if stream.accept("("):
        tokens = stream.separated(Stream.column)
        stream.expect(")")
    else:
        tokens = [stream.column()]
    stamp = None
    if stream.accept("USING"):
        stream.expect("TIMESTAMP")
        stamp = stream.of_kind(TokenKind.NUMBER).text
    return DropColumns(name, tuple(token.text for token in tokens), only, columns_only, stamp)


def _mask(stream: Stream, name: Name, *, only: bool) -> MaskColumn:
    """ALTER TABLE ... ALTER: only a column's mask can be changed."""
    column_only = stream.if_exists()
    column = stream.column().text
    if stream.sees("TYPE"):
        raise stream.wrong("ALTER TABLE ... ALTER ... TYPE is refused by every server since 3.10", mend=_TYPES_ARE_KEPT)
    if stream.accept("DROP"):
        stream.expect("MASKED")
        return MaskColumn(name, column, "", only, column_only)
    stream.expect("MASKED", "WITH")
    return MaskColumn(name, column, column_mask(stream), only, column_only)


def alter_view(stream: Stream) -> SetViewOptions:
    only = stream.if_exists()
    name = stream.named("the name of a view")
    stream.expect("WITH")
    return SetViewOptions(name, options(stream).literals, only)


def drop(stream: Stream, kind: type[Drop]) -> Drop:
    only = stream.if_exists()
    return kind(stream.named(f"the name of what is dropped ({kind.word})"), only)


def truncate(stream: Stream) -> Truncate:
    if not stream.accept("TABLE"):
        stream.accept("COLUMNFAMILY")
    return Truncate(stream.named("the name of a table"))


def create_index(stream: Stream, *, custom: bool = False) -> CreateIndex:
    unless = stream.if_not_exists()
    spelling = ""
    if not stream.sees("ON"):
        spelling = stream.name("the name of an index").text
    stream.expect("ON")
    name = stream.named("the name of a table")
    stream.expect("(")
    target = targets(stream)
    stream.expect(")")
    if custom and not stream.sees("USING"):
        raise stream.unexpected(mend="A CUSTOM INDEX names its class: USING 'StorageAttachedIndex', for example.")
    using = ""
    if stream.accept("USING"):
        using = _index_class(stream)
    found = Options()
    if stream.accept("WITH"):
        found = options(stream)
    index = Index(spelling, name.spelling, target, using, _index_options(stream, found))
    return CreateIndex(name, index, unless, custom)


def _index_class(stream: Stream) -> str:
    token = stream.of_kind(TokenKind.STRING)
    if not text_value(token):
        raise stream.wrong("USING names no class", token)
    return text_value(token)


def targets(stream: Stream) -> str:
    """Take an index's targets; returns normalised text, "" where the class decides."""
    if stream.sees(")") or stream.ended:
        return ""
    return ", ".join(stream.separated(_target))


def _target(stream: Stream) -> str:
    """A column, an aspect of a collection as `values(c)`, or the key of a local index in brackets."""
    if stream.accept("("):
        with stream.nested():
            inner = targets(stream)
            stream.expect(")")
        return f"({inner})"
    if stream.sees("ENTRIES", "(") or stream.sees("FULL", "("):
        token = stream.take()
    else:
        token = stream.name("a column")
    if not stream.accept("("):
        stream.place("column", token)
        return token.text
    column = stream.column()
    stream.expect(")")
    return f"{token.text.lower()}({column.text})"


def _index_options(stream: Stream, found: Options) -> dict[str, str]:
    for name in found.literals:
        if name != "options":
            raise stream.wrong(f"an index has no option {name}, only OPTIONS = {{...}}")
    return pairs_of(found.literals.get("options", ""))
