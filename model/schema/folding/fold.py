"""What a schema is after a statement: as strict as the server, so that a migration is known to work before it runs.

Each refusal says what the server would say, and how to mend it. Versions differ in details; where they do, the newest
one counts. What only a server knows (its guardrails, the options of its classes) is not judged here.
"""

from collections.abc import Iterable

from model.errors import SchemaRefused
from model.schema.folding.columns import add_columns, drop_columns, rename_columns
from model.schema.folding.indexes import create_index, drop_index
from model.schema.folding.lookups import EMPTY, table_of
from model.schema.folding.tables import create_table, drop_table, set_options
from model.schema.folding.user_types import add_field, create_type, drop_type, rename_fields
from model.schema.folding.views import create_view, drop_view
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.statements import (
    AddColumns,
    AddField,
    AlterKeyspace,
    Batch,
    CreateIndex,
    CreateKeyspace,
    CreateTable,
    CreateType,
    CreateView,
    Drop,
    DropColumns,
    DropKeyspace,
    Dropped,
    Other,
    Parsed,
    RenameColumns,
    RenameFields,
    SetOptions,
    Statement,
    Truncate,
    Use,
    Write,
)


def fold(schema: Schema, statement: Statement, keyspace: str | None = None) -> Schema:
    """The schema after the statement.

    Args:
        schema: what the keyspace holds before.
        statement: what is carried out; data statements and the like change nothing.
        keyspace: whose schema it is; statements that name another one change nothing. With None every name is ours.

    Raises:
        SchemaRefused: the server would refuse the statement.
    """
    if keyspace is not None and not _ours(statement, keyspace):
        return schema
    return _folded(schema, statement)


def fold_all(parsed: Iterable[Parsed], schema: Schema = EMPTY, keyspace: str | None = None) -> Schema:
    """The schema after all the statements, one after the other; USE says where names without a keyspace lie.

    Raises:
        SchemaRefused: the server would refuse one of them; its `index` says which.
    """
    current = keyspace
    for index, one in enumerate(parsed):
        if isinstance(one.statement, Use):
            current = one.statement.keyspace
        elsewhere = keyspace is not None and current is not None and name_of(current) != name_of(keyspace)
        if elsewhere and _keyspace_of(one.statement) is None:
            continue
        try:
            schema = fold(schema, one.statement, keyspace)
        except SchemaRefused as refused:
            refused.index = index
            raise
    return schema


def _ours(statement: Statement, keyspace: str) -> bool:
    named = _keyspace_of(statement)
    return named is None or name_of(named) == name_of(keyspace)


def _keyspace_of(statement: Statement) -> str | None:
    match statement:
        case CreateKeyspace() | AlterKeyspace() | DropKeyspace() | Use():
            return statement.keyspace
        case Batch() | Other():
            return None
        case _:
            return statement.name.keyspace


def _folded(schema: Schema, statement: Statement) -> Schema:  # noqa: C901, PLR0911, PLR0912 - one line for each kind
    match statement:
        case CreateKeyspace() | AlterKeyspace() | Use() | Other():
            return schema
        case DropKeyspace():
            return EMPTY
        case CreateType():
            return create_type(schema, statement)
        case AddField():
            return add_field(schema, statement)
        case RenameFields():
            return rename_fields(schema, statement)
        case CreateTable():
            return create_table(schema, statement)
        case AddColumns():
            return add_columns(schema, statement)
        case DropColumns():
            return drop_columns(schema, statement)
        case RenameColumns():
            return rename_columns(schema, statement)
        case SetOptions():
            return set_options(schema, statement)
        case Drop():
            return _DROPS[statement.what](schema, statement)
        case Truncate(name):
            table_of(schema, name, "TRUNCATE")
            return schema
        case CreateIndex():
            return create_index(schema, statement)
        case CreateView():
            return create_view(schema, statement)
        case Write():
            return _written(schema, statement)
        case Batch(writes):
            for write in writes:
                _written(schema, write)
            return schema


_DROPS = {
    Dropped.TABLE: drop_table,
    Dropped.TYPE: drop_type,
    Dropped.INDEX: drop_index,
    Dropped.VIEW: drop_view,
}


def _written(schema: Schema, write: Write) -> Schema:
    """Data changes no schema, but it needs its table and columns."""
    table = table_of(schema, write.name, write.change.value)
    for name in write.columns:
        if name not in table:
            raise SchemaRefused(write.change.value, str(write.name), f"the table has no column {name}")
    return schema
