"""Statements, tables and replication as CQL text, for one keyspace and server version.

The renderer is the inverse of `cql.language.parser`. Each text that is inserted here is first checked to be a whole
name, type or literal.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mailmend.cql.language.definitions import column_mask, targets
from mailmend.cql.language.stream import checked
from mailmend.cql.language.values import conditions, literal
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
    Use,
)
from mailmend.model.cql_types import parse_type
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.names import checked_spelling, keyspace_spelling, map_literal, text_literal
from mailmend.model.table import COMPACT_STORAGE, Column, Compaction, Kind, Table, UserType

SIMPLE = "SimpleStrategy"
BY_TOPOLOGY = "NetworkTopologyStrategy"
EVERY_DATA_CENTRE = "replication_factor"
COPIES_MAX = 100

_DATA_CENTRE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Replication:
    """A strategy by the short name of its class, and the number of copies per data centre (or in all of them)."""

    strategy: str
    copies: Mapping[str, str]

    def __str__(self) -> str:
        return map_literal({"class": self.strategy, **self.copies})


def in_every_data_centre(copies: int) -> Replication:
    return Replication(BY_TOPOLOGY, {EVERY_DATA_CENTRE: _number_of_copies(str(copies), str(copies))})


def parse_replication(text: str) -> Replication:
    """Replication from `dc1=3,dc2=2`, or `SimpleStrategy=1` for a cluster without data centres.

    Raises:
        WrongUse: the text is neither.
    """
    pairs = dict(_pair(part, text) for part in text.split(","))
    if SIMPLE in pairs:
        if len(pairs) > 1:
            raise _refusal(text, f"{SIMPLE} knows no data centres")
        return Replication(SIMPLE, {EVERY_DATA_CENTRE: pairs[SIMPLE]})
    return Replication(BY_TOPOLOGY, pairs)


def replication_from(options: Mapping[str, str]) -> Replication:
    copies = dict(options)
    strategy = copies.pop("class")
    return Replication(strategy.rsplit(".", 1)[-1], copies)


def _pair(part: str, text: str) -> tuple[str, str]:
    name, equals, number = map(str.strip, part.partition("="))
    if not equals or not _DATA_CENTRE.fullmatch(name) or name.lower() == "class":
        raise _refusal(text, f"{part.strip()!r} is not NAME=COPIES")
    return name, _number_of_copies(number, text)


def _number_of_copies(number: str, text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,4}", number) or not 1 <= int(number) <= COPIES_MAX:
        raise _refusal(text, f"{number!r} is not a number of copies from 1 to {COPIES_MAX}")
    return str(int(number))


def _refusal(text: str, why: str) -> WrongUse:
    return WrongUse(
        f"{text!r} is not a replication: {why}", mend="Write dc1=3,dc2=3, or SimpleStrategy=1, with your own names."
    )


@dataclass(frozen=True, order=True, slots=True)
class ServerVersion:
    """A server's version, which decides what CQL it understands."""

    major: int
    minor: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


CASSANDRA_5 = ServerVersion(5)
_SINCE = {"UnifiedCompactionStrategy": CASSANDRA_5}
"""Compaction strategies that older servers refuse."""

_OPTIONS_SINCE = {"read_repair": ServerVersion(4)}
"""Options that older servers lack, ScyllaDB among them (it calls itself 3.0.8): there they are left out."""

_PLAIN_CLASSES = frozenset({"", "sai", "legacy_local_table"})
"""Index classes that CREATE INDEX takes without CUSTOM (5.0 and later, except for the built-in one)."""

_UNLESS = "IF NOT EXISTS "
_ONLY = "IF EXISTS "


def parse_version(release: str) -> ServerVersion:
    """The version in a release's name, such as 5.0.9 or 4.1-rc1."""
    numbers = release.replace("-", ".").split(".")
    minor = 0
    if len(numbers) > 1 and numbers[1].isdigit():
        minor = int(numbers[1])
    return ServerVersion(int(numbers[0]), minor)


def ddl_cql(statement: Statement, keyspace: str | None, server: ServerVersion = CASSANDRA_5) -> str:
    """The statement as CQL with its semicolon.

    Args:
        statement: a change of the schema, TRUNCATE or USE.
        keyspace: for names without one; with None such names stay unqualified.
        server: the version for which the text is rendered.

    Raises:
        WrongUse: the server lacks what the statement needs, or the statement changes no schema.
        BadIdentifier: CQL does not accept a name in it.
    """
    return f"{_Renderer(keyspace, server).text(statement)};"


@dataclass(frozen=True, slots=True)
class _Renderer:
    """Renders each kind of statement for one keyspace and server."""

    keyspace: str | None
    server: ServerVersion

    def text(self, statement: Statement) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each kind
        match statement:
            case CreateKeyspace(name, options, unless):
                given = self._options(options)
                return f"CREATE KEYSPACE {_UNLESS * unless}{keyspace_spelling(name)} WITH {given}"
            case AlterKeyspace(name, options, only):
                return f"ALTER KEYSPACE {_ONLY * only}{keyspace_spelling(name)} WITH {self._options(options)}"
            case DropKeyspace(name, only):
                return f"DROP KEYSPACE {_ONLY * only}{keyspace_spelling(name)}"
            case Use(name):
                return f"USE {keyspace_spelling(name)}"
            case CreateType(name, user_type, unless):
                return self._type(user_type, name, unless=unless)
            case AddField(name, field, kind, only, unless):
                added = f"{_UNLESS * unless}{checked_spelling(field)} {parse_type(kind)}"
                return f"ALTER TYPE {_ONLY * only}{self._name(name)} ADD {added}"
            case RenameFields(name, renames, only, fields_only):
                return f"ALTER TYPE {_ONLY * only}{self._name(name)} RENAME {_ONLY * fields_only}{_renames(renames)}"
            case CreateTable(name, table, unless):
                return self._table(table, name, unless=unless)
            case AddColumns(name, columns, only, unless):
                added = _listed(list(map(_column_cql, columns)))
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} ADD {_UNLESS * unless}{added}"
            case DropColumns(name, columns, only, columns_only, stamp):
                dropped = _listed(list(map(checked_spelling, columns)))
                using = ""
                if stamp:
                    using = f" USING TIMESTAMP {int(stamp)}"
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} DROP {_ONLY * columns_only}{dropped}{using}"
            case RenameColumns(name, renames, only, columns_only):
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} RENAME {_ONLY * columns_only}{_renames(renames)}"
            case SetViewOptions(name, options, only):
                given = self._options(options)
                return f"ALTER MATERIALIZED VIEW {_ONLY * only}{self._name(name)} WITH {given}"
            case SetOptions(name, options, only):
                given = self._options(options)
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} WITH {given}"
            case MaskColumn(name, column, mask, only, column_only):
                masked = "DROP MASKED"
                if mask:
                    masked = f"MASKED WITH {checked(mask, column_mask)}"
                altered = f"ALTER {_ONLY * column_only}{checked_spelling(column)} {masked}"
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} {altered}"
            case DropCompactStorage(name, only):
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} DROP COMPACT STORAGE"
            case Drop(name, only):
                return f"DROP {statement.word} {_ONLY * only}{self._name(name)}"
            case Truncate(name):
                return f"TRUNCATE {self._name(name)}"
            case CreateIndex(name, index, unless):
                return self._index(index, name, unless=unless)
            case CreateView(name, view, unless):
                return self._view(view, name, unless=unless)
            case _:
                raise WrongUse(
                    "a statement that changes no schema is kept only as far as rules ask about it",
                    mend="Its text stays where it was read.",
                )

    def _name(self, name: Name) -> str:
        own = checked_spelling(name.spelling)
        keyspace = name.keyspace or self.keyspace
        if keyspace is None:
            return own
        return f"{keyspace_spelling(keyspace)}.{own}"

    def _options(self, options: Mapping[str, str]) -> str:
        return " AND ".join(_option_cql(name, value) for name, value in options.items())

    def _type(self, user_type: UserType, name: Name, *, unless: bool) -> str:
        fields = ",\n".join(
            f"    {checked_spelling(spelling)} {parse_type(kind)}" for spelling, kind in user_type.fields
        )
        return f"CREATE TYPE {_UNLESS * unless}{self._name(name)} (\n{fields}\n)"

    def _table(self, table: Table, name: Name, *, unless: bool) -> str:
        lines = [*map(_column_cql, table.columns), _key_cql(table)]
        body = ",\n".join(f"    {line}" for line in lines)
        tail = ""
        options = "\n    AND ".join(_options_cql(table, self.server))
        if options:
            tail = f" WITH {options}"
        return f"CREATE TABLE {_UNLESS * unless}{self._name(name)} (\n{body}\n){tail}"

    def _index(self, index: Index, table: Name, *, unless: bool) -> str:
        custom = "CUSTOM "
        if index.using.lower() in _PLAIN_CLASSES:
            custom = ""
        if index.using and not custom and self.server < CASSANDRA_5:
            raise WrongUse(
                f"the index {index.spelling or index.target} cannot be of class {index.using!r}: the server is "
                f"Cassandra {self.server}, it needs {CASSANDRA_5}",
                mend="Leave USING out, or name the class of an index that this server has.",
            )
        head = f"CREATE {custom}INDEX {_UNLESS * unless}"
        if index.spelling:
            head += f"{checked_spelling(index.spelling)} "
        tail = ""
        if index.using:
            tail = f" USING {text_literal(index.using)}"
        if index.options:
            tail += f" WITH OPTIONS = {map_literal(index.options)}"
        target = checked(index.target, targets)
        return f"{head}ON {self._name(table)} ({target}){tail}"

    def _view(self, view: View, name: Name, *, unless: bool) -> str:
        selected = "*"
        if not view.all_columns:
            selected = ", ".join(_checked_spellings(view.table.columns))
        query = f"    SELECT {selected}\n    FROM {self._name(Name(view.base, name.keyspace))}"  # noqa: S608 - every part is checked
        if view.where:
            query += f"\n    WHERE {checked(view.where, conditions)}"
        tail = ""
        options = "\n    AND ".join(_options_cql(view.table, self.server))
        if options:
            tail = f"\n    WITH {options}"
        head = f"CREATE MATERIALIZED VIEW {_UNLESS * unless}{self._name(name)}"
        return f"{head} AS\n{query}\n    {_key_cql(view.table)}{tail}"


def _renames(renames: Sequence[tuple[str, str]]) -> str:
    return " AND ".join(f"{checked_spelling(old)} TO {checked_spelling(new)}" for old, new in renames)


def _listed(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return f"({', '.join(parts)})"


def keyspace_cql(keyspace: str, replication: Replication) -> str:
    return f"CREATE KEYSPACE IF NOT EXISTS {keyspace_spelling(keyspace)} WITH replication = {replication};"


def type_cql(keyspace: str | None, user_type: UserType) -> str:
    """CREATE TYPE IF NOT EXISTS; without a keyspace the name is unqualified."""
    return ddl_cql(CreateType(Name(user_type.spelling), user_type, if_not_exists=True), keyspace)


def table_cql(keyspace: str | None, table: Table, server: ServerVersion = CASSANDRA_5) -> str:
    """CREATE TABLE IF NOT EXISTS; without a keyspace the name is unqualified."""
    return ddl_cql(CreateTable(Name(table.spelling), table, if_not_exists=True), keyspace, server)


def schema_cql(keyspace: str, schema: Schema, server: ServerVersion = CASSANDRA_5) -> Iterator[str]:
    """The statements that create the schema, in an order in which they can run."""
    for user_type in schema.types:
        yield type_cql(keyspace, user_type)
    for table in schema.tables:
        yield table_cql(keyspace, table, server)
    for index in schema.indexes:
        yield ddl_cql(CreateIndex(Name(index.table), index, if_not_exists=True), keyspace, server)
    for view in schema.views:
        yield ddl_cql(CreateView(Name(view.table.spelling), view, if_not_exists=True), keyspace, server)


def _column_cql(column: Column) -> str:
    suffix = ""
    if column.kind is Kind.STATIC:
        suffix = " STATIC"
    if column.mask:
        suffix += f" MASKED WITH {checked(column.mask, column_mask)}"
    return f"{checked_spelling(column.spelling)} {parse_type(column.type)}{suffix}"


def _key_cql(table: Table) -> str:
    partition = ", ".join(_checked_spellings(table.partition))
    key = (f"({partition})", *_checked_spellings(table.clustering))
    return f"PRIMARY KEY ({', '.join(key)})"


def _checked_spellings(columns: Iterable[Column]) -> list[str]:
    return [checked_spelling(column.spelling) for column in columns]


def _options_cql(table: Table, server: ServerVersion) -> Iterator[str]:
    """The options after WITH, one by one."""
    if table.clustering:
        order = ", ".join(f"{column.spelling} {column.order}" for column in table.clustering)
        yield f"CLUSTERING ORDER BY ({order})"
    if table.comment:
        yield f"comment = {text_literal(table.comment)}"
    if table.compaction:
        _refuse_too_new(table, table.compaction, server)
    options = table.literals(comment=False)
    lacking = lacking_options(table, server)
    for name, value in options.items():
        if name not in lacking:
            yield _option_cql(name, value)


def lacking_options(table: Table, server: ServerVersion) -> frozenset[str]:
    """The table's options that this server does not have yet."""
    return frozenset(name for name in table.options if server < _OPTIONS_SINCE.get(name, server))


def _option_cql(name: str, value: str) -> str:
    """`name = value` for WITH."""
    if name == COMPACT_STORAGE:
        return "COMPACT STORAGE"
    return f"{checked_spelling(name)} = {checked(value, literal)}"


def _refuse_too_new(table: Table, compaction: Compaction, server: ServerVersion) -> None:
    since = _SINCE.get(compaction.strategy, server)
    if server < since:
        raise WrongUse(
            f"{table.spelling} cannot have {compaction.strategy}: the server is Cassandra {server}, it needs {since}",
            mend="Choose another with: --compaction leveled, or --compaction twcs.",
        )
