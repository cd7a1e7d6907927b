"""ALTER, DROP and TRUNCATE of keyspaces, types, tables and views; CREATE KEYSPACE, TYPE and INDEX."""

from mailmend.cql.language.stream import Stream, TokenKind
from mailmend.cql.language.tables import Options, column_definition, column_mask, options
from mailmend.cql.language.values import cql_type, text_value
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    CreateIndex,
    CreateKeyspace,
    CreateType,
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
from mailmend.model.keyspace import Index
from mailmend.model.names import name_of, pairs_of
from mailmend.model.table import UserType

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
