"""Statements of `model.schema.statements` as CQL text, the inverse of the parser, for one keyspace and server version.

Tables and types are rendered in `cql.render` only; each text inserted here is first checked to be a whole name, type
or literal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cql.language.alters import targets
from cql.language.stream import checked
from cql.language.values import conditions
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

_PLAIN_CLASSES = frozenset({"", "sai", "legacy_local_table"})
"""Index classes that CREATE INDEX takes without CUSTOM (5.0 and later, except for the built-in one)."""

_UNLESS = "IF NOT EXISTS "
_ONLY = "IF EXISTS "


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
                return f"CREATE KEYSPACE {_UNLESS * unless}{keyspace_name(name)} WITH {self._options(options, name)}"
            case AlterKeyspace(name, options, only):
                return f"ALTER KEYSPACE {_ONLY * only}{keyspace_name(name)} WITH {self._options(options, name)}"
            case DropKeyspace(name, only):
                return f"DROP KEYSPACE {_ONLY * only}{keyspace_name(name)}"
            case Use(name):
                return f"USE {keyspace_name(name)}"
            case CreateType(name, user_type, unless):
                return type_cql(name.keyspace or self.keyspace, user_type, if_not_exists=unless).removesuffix(";")
            case AddField(name, field, kind, only, unless):
                added = f"{_UNLESS * unless}{checked_spelling(field)} {parse_type(kind)}"
                return f"ALTER TYPE {_ONLY * only}{self._name(name)} ADD {added}"
            case RenameFields(name, renames, only, fields_only):
                return f"ALTER TYPE {_ONLY * only}{self._name(name)} RENAME {_ONLY * fields_only}{_renames(renames)}"
            case CreateTable(name, table, unless):
                lies_in = name.keyspace or self.keyspace
                return table_cql(lies_in, table, self.server, if_not_exists=unless).removesuffix(";")
            case AddColumns(name, columns, only, unless):
                added = _listed([column_cql(column) for column in columns])
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} ADD {_UNLESS * unless}{added}"
            case DropColumns(name, columns, only, columns_only, stamp):
                dropped = _listed([checked_spelling(column) for column in columns])
                using = f" USING TIMESTAMP {int(stamp)}" if stamp else ""
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} DROP {_ONLY * columns_only}{dropped}{using}"
            case RenameColumns(name, renames, only, columns_only):
                return f"ALTER TABLE {_ONLY * only}{self._name(name)} RENAME {_ONLY * columns_only}{_renames(renames)}"
            case SetOptions(name, options, only):
                what = "MATERIALIZED VIEW" if isinstance(statement, SetViewOptions) else "TABLE"
                options_text = self._options(options, name.spelling)
                return f"ALTER {what} {_ONLY * only}{self._name(name)} WITH {options_text}"
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
                    mend="Its text stands where it was read.",
                )

    def _name(self, name: Name) -> str:
        return qualified(name.keyspace or self.keyspace, name.spelling)

    def _options(self, options: Mapping[str, str], owner: str) -> str:
        return " AND ".join(option_cql(name, value, owner, self.server) for name, value in options.items())

    def _index(self, index: Index, table: Name, *, unless: bool) -> str:
        custom = "" if index.using.lower() in _PLAIN_CLASSES else "CUSTOM "
        if index.using and not custom and self.server < CASSANDRA_5:
            raise WrongUse(
                f"the index {index.spelling or index.target} cannot be of class {index.using!r}: the server is "
                f"Cassandra {self.server}, it needs {CASSANDRA_5}",
                mend="Leave USING out, or name the class of an index that this server has.",
            )
        name = f"{checked_spelling(index.spelling)} " if index.spelling else ""
        using = f" USING {text_literal(index.using)}" if index.using else ""
        options = f" WITH OPTIONS = {map_literal(index.options)}" if index.options else ""
        target = checked(index.target, targets)
        return f"CREATE {custom}INDEX {_UNLESS * unless}{name}ON {self._name(table)} ({target}){using}{options}"

    def _view(self, view: View, name: Name, *, unless: bool) -> str:
        selected = "*" if view.all_columns else ", ".join(checked_spelling(one.spelling) for one in view.table.columns)
        base = qualified(name.keyspace or self.keyspace, view.base)
        where = f"\n    WHERE {checked(view.where, conditions)}" if view.where else ""
        options = "\n    AND ".join(options_cql(view.table, self.server))
        tail = f"\n    WITH {options}" if options else ""
        query = f"    SELECT {selected}\n    FROM {base}{where}"  # noqa: S608 - every part of it was checked
        head = f"CREATE MATERIALIZED VIEW {_UNLESS * unless}{self._name(name)}"
        return f"{head} AS\n{query}\n    {key_cql(view.table)}{tail}"


def _renames(renames: Sequence[tuple[str, str]]) -> str:
    return " AND ".join(f"{checked_spelling(old)} TO {checked_spelling(new)}" for old, new in renames)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
