"""Statements of `model.schema.statements` as CQL text, the inverse of the parser, for one keyspace and server version.

Tables and types are rendered in one place only, `cql.render`; nothing is written here that was not checked to be a
whole name, a type or a literal.
"""

from collections.abc import Mapping, Sequence

from cql.language.alters import targets
from cql.language.stream import checked
from cql.language.terms import conditions
from cql.render import (
    CASSANDRA_5,
    ServerVersion,
    column_cql,
    key_cql,
    keyspace_name,
    option_cql,
    options_cql,
    qualified,
    table_cql,
    type_cql,
)
from model.errors import WrongUse
from model.schema.cql_types import parse_type
from model.schema.keyspace import Index, View
from model.schema.literals import map_literal, text_literal
from model.schema.names import checked_spelling
from model.schema.statements import (
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
    Name,
    RenameColumns,
    RenameFields,
    SetOptions,
    SetViewOptions,
    Statement,
    Truncate,
    Use,
)

_UNLESS = "IF NOT EXISTS "
_ONLY = "IF EXISTS "


def ddl_cql(statement: Statement, keyspace: str | None, server: ServerVersion = CASSANDRA_5) -> str:
    """The statement as CQL, with its semicolon.

    Args:
        statement: a change of the schema, TRUNCATE or USE.
        keyspace: where its name lies, unless the name says so itself; with None such a name stays alone.
        server: what the text is for.

    Raises:
        WrongUse: the server does not have what the statement asks for, or the statement changes no schema.
        BadIdentifier: a name in it is none that CQL takes.
    """
    return f"{_text(statement, keyspace, server)};"


def _text(statement: Statement, keyspace: str | None, server: ServerVersion) -> str:  # noqa: PLR0911 - one for each kind
    match statement:
        case CreateKeyspace() | AlterKeyspace() | DropKeyspace() | Use():
            return _of_keyspace(statement, server)
        case CreateType() | AddField() | RenameFields():
            return _of_type(statement, keyspace)
        case CreateTable(name, table, unless):
            return table_cql(_lies_in(name, keyspace), table, server, if_not_exists=unless).removesuffix(";")
        case AddColumns() | DropColumns() | RenameColumns() | SetOptions() | DropCompactStorage():
            return _of_table(statement, keyspace, server)
        case Drop(name, only):
            return f"DROP {statement.word} {_ONLY * only}{_qualified(name, keyspace)}"
        case Truncate(name):
            return f"TRUNCATE {_qualified(name, keyspace)}"
        case CreateIndex(name, index, unless):
            return _index(index, _qualified(name, keyspace), server, unless=unless)
        case CreateView(name, view, unless):
            return _view(view, name, keyspace, server, unless=unless)
        case _:
            raise WrongUse(
                "a statement that changes no schema is kept only as far as rules ask about it",
                mend="Its text stands where it was read.",
            )


def _lies_in(name: Name, keyspace: str | None) -> str | None:
    return name.keyspace or keyspace


def _qualified(name: Name, keyspace: str | None) -> str:
    return qualified(_lies_in(name, keyspace), name.spelling)


def _of_keyspace(statement: CreateKeyspace | AlterKeyspace | DropKeyspace | Use, server: ServerVersion) -> str:
    name = keyspace_name(statement.keyspace)
    match statement:
        case CreateKeyspace(_, options, unless):
            return f"CREATE KEYSPACE {_UNLESS * unless}{name} WITH {_options(options, name, server)}"
        case AlterKeyspace(_, options, only):
            return f"ALTER KEYSPACE {_ONLY * only}{name} WITH {_options(options, name, server)}"
        case DropKeyspace(_, only):
            return f"DROP KEYSPACE {_ONLY * only}{name}"
        case Use():
            return f"USE {name}"


def _options(options: Mapping[str, str], owner: str, server: ServerVersion) -> str:
    return " AND ".join(option_cql(name, value, owner, server) for name, value in options.items())


def _of_type(statement: CreateType | AddField | RenameFields, keyspace: str | None) -> str:
    name = statement.name
    match statement:
        case CreateType(_, user_type, unless):
            return type_cql(_lies_in(name, keyspace), user_type, if_not_exists=unless).removesuffix(";")
        case AddField(_, field, kind, only, unless):
            added = f"{_UNLESS * unless}{checked_spelling(field)} {parse_type(kind)}"
            return f"ALTER TYPE {_ONLY * only}{_qualified(name, keyspace)} ADD {added}"
        case RenameFields(_, renames, only, fields_only):
            return (
                f"ALTER TYPE {_ONLY * only}{_qualified(name, keyspace)} RENAME {_ONLY * fields_only}{_renames(renames)}"
            )


def _renames(renames: Sequence[tuple[str, str]]) -> str:
    return " AND ".join(f"{checked_spelling(old)} TO {checked_spelling(new)}" for old, new in renames)


def _of_table(
    statement: AddColumns | DropColumns | RenameColumns | SetOptions | DropCompactStorage,
    keyspace: str | None,
    server: ServerVersion,
) -> str:
    kind = "MATERIALIZED VIEW" if isinstance(statement, SetViewOptions) else "TABLE"
    head = f"ALTER {kind} {_ONLY * statement.if_exists}{_qualified(statement.name, keyspace)}"
    match statement:
        case AddColumns(_, columns, _, unless):
            return f"{head} ADD {_UNLESS * unless}{_listed([column_cql(column) for column in columns])}"
        case DropColumns(_, names, _, columns_only, stamp):
            using = f" USING TIMESTAMP {int(stamp)}" if stamp else ""
            return f"{head} DROP {_ONLY * columns_only}{_listed([checked_spelling(name) for name in names])}{using}"
        case RenameColumns(_, renames, _, columns_only):
            return f"{head} RENAME {_ONLY * columns_only}{_renames(renames)}"
        case DropCompactStorage():
            return f"{head} DROP COMPACT STORAGE"
        case SetOptions(name, options):
            return f"{head} WITH {_options(options, name.spelling, server)}"


def _listed(parts: Sequence[str]) -> str:
    """One as it is, several in brackets."""
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


_PLAIN_CLASSES = frozenset({"", "sai", "legacy_local_table"})
"""What CREATE INDEX takes without CUSTOM (5.0 and later, except for the built-in one)."""


def _index(index: Index, table: str, server: ServerVersion, *, unless: bool) -> str:
    custom = "" if index.using.lower() in _PLAIN_CLASSES else "CUSTOM "
    if index.using and not custom and server < CASSANDRA_5:
        raise WrongUse(
            f"the index {index.spelling or index.target} cannot be of class {index.using!r}: the server is Cassandra "
            f"{server}, it needs {CASSANDRA_5}",
            mend="Leave USING out, or name the class of an index that this server has.",
        )
    name = f"{checked_spelling(index.spelling)} " if index.spelling else ""
    using = f" USING {text_literal(index.using)}" if index.using else ""
    options = f" WITH OPTIONS = {map_literal(index.options)}" if index.options else ""
    target = checked(index.target, targets)
    return f"CREATE {custom}INDEX {_UNLESS * unless}{name}ON {table} ({target}){using}{options}"


def _view(view: View, name: Name, keyspace: str | None, server: ServerVersion, *, unless: bool) -> str:
    selected = "*" if view.all_columns else ", ".join(checked_spelling(one.spelling) for one in view.table.columns)
    base = qualified(_lies_in(name, keyspace), view.base)
    where = f"\n    WHERE {checked(view.where, conditions)}" if view.where else ""
    options = "\n    AND ".join(options_cql(view.table, server))
    tail = f"\n    WITH {options}" if options else ""
    query = f"    SELECT {selected}\n    FROM {base}{where}"  # noqa: S608 - every part of it was checked
    head = f"CREATE MATERIALIZED VIEW {_UNLESS * unless}{_qualified(name, keyspace)}"
    return f"{head} AS\n{query}\n    {key_cql(view.table)}{tail}"
