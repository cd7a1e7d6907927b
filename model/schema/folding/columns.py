"""ALTER TABLE ADD, DROP and RENAME folded into a schema: all of a statement's columns, or none."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from model.errors import SchemaRefused
from model.schema.cql_types import parse_type
from model.schema.folding.lookups import find_table, find_view, indexes_of, table_of, views_of, with_table, with_view
from model.schema.folding.references import columns_of, renamed_in
from model.schema.folding.type_rules import column_problem, expanded, is_user_type, returns, type_problem
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.options import COMPACT_STORAGE
from model.schema.statements import AddColumns, DropColumns, Index, Name, RenameColumns, View
from model.schema.table import Column, Kind, Table

_ADD, _DROP, _RENAME = "ALTER TABLE ADD", "ALTER TABLE DROP", "ALTER TABLE RENAME"


def _altered(schema: Schema, name: Name, statement: str, *, only: bool) -> Table | None:
    if only and find_table(schema, name.spelling) is None and find_view(schema, name.spelling) is None:
        return None
    return table_of(schema, name, statement)


def add_columns(schema: Schema, statement: AddColumns) -> Schema:
    """The schema with more columns in a table, and in the views that select all of it."""
    table = _altered(schema, statement.name, _ADD, only=statement.if_exists)
    if table is None:
        return schema
    before = table
    for column in statement.columns:
        problem = type_problem(schema, column)
        if problem:
            raise SchemaRefused(_ADD, str(statement.name), problem)
        if column.name in table:
            if statement.if_not_exists:
                continue
            reason = f"it has a column {column.spelling} already"
            raise SchemaRefused(_ADD, str(statement.name), reason, mend="Add IF NOT EXISTS after ADD (4.1 and later).")
        problem = _add_problem(schema, before, column)
        if problem:
            raise SchemaRefused(_ADD, str(statement.name), problem)
        table = table.with_columns((*table.columns, column))
        schema = _with_views(schema, table, column)
    return with_table(schema, table)


def _add_problem(schema: Schema, table: Table, column: Column) -> str:
    if COMPACT_STORAGE in table.options:
        return "it has compact storage, which takes no more columns"
    if column.kind is Kind.STATIC and not table.clustering:
        return f"the column {column.spelling} is static, but the table has no clustering column"
    counters = {one.is_counter for one in (*table.regular, column)}
    if len(counters) > 1:
        return f"{column.spelling} would mix counters with other columns"
    return column_problem(schema, column) or _return_problem(schema, table, column)


def _return_problem(schema: Schema, table: Table, column: Column) -> str:
    old = next((one for one in table.dropped if one.name == column.name), None)
    if old is None:
        return ""
    if not returns(schema, column, old):
        return f"{column.spelling} was dropped as {old.type}, so it cannot come back as {column.type}"
    if old.kind is not column.kind:
        return f"{column.spelling} was dropped as a {old.kind.value} column, so it cannot come back as another"
    return f"{column.spelling} was dropped, and a counter cannot come back" if column.is_counter else ""


def _with_views(schema: Schema, table: Table, column: Column) -> Schema:
    if column.kind is Kind.STATIC:
        return schema
    for view in views_of(schema, table):
        if view.all_columns:
            schema = with_view(schema, replace(view, table=view.table.with_columns((*view.table.columns, column))))
    return schema


def drop_columns(schema: Schema, statement: DropColumns) -> Schema:
    """The schema with fewer columns in a table; which they were is remembered."""
    table = _altered(schema, statement.name, _DROP, only=statement.if_exists)
    if table is None:
        return schema
    for spelling in statement.columns:
        column = _column(table, spelling)
        if column is None and statement.columns_if_exist:
            continue
        problem = _drop_problem(schema, table, spelling, column)
        if column is None or problem:
            raise SchemaRefused(_DROP, str(statement.name), problem)
        table = _without(schema, table, column)
    return with_table(schema, table)


def _column(table: Table, spelling: str) -> Column | None:
    return next((one for one in table.columns if one.name == name_of(spelling)), None)


def _drop_problem(schema: Schema, table: Table, spelling: str, column: Column | None) -> str:
    if column is None:
        return f"it has no column {spelling}"
    if column.in_key:
        return f"{spelling} is part of the key, which cannot be changed"
    if is_user_type(parse_type(column.type)):
        return f"{spelling} is of a user type that is not frozen, which cannot be dropped"
    return _in_the_way(schema, table, column) or _viewed(schema, table, spelling)


def _viewed(schema: Schema, table: Table, spelling: str) -> str:
    views = ", ".join(view.table.spelling for view in views_of(schema, table))
    return f"materialized views are made of it ({views}), so {spelling} cannot be dropped" if views else ""


def _in_the_way(schema: Schema, table: Table, column: Column) -> str:
    indexes = ", ".join(one.spelling for one in indexes_of(schema, table) if _is_on(one, column))
    return f"the index {indexes} is on {column.spelling}: drop it first" if indexes else ""


def _is_on(index: Index, column: Column) -> bool:
    columns = columns_of(index.target)
    return not columns or column.name in columns


def _without(schema: Schema, table: Table, column: Column) -> Table:
    old = replace(column, type=str(parse_type(str(expanded(schema, parse_type(column.type))))))
    return replace(
        table,
        columns=tuple(one for one in table.columns if one.name != column.name),
        dropped=(*(one for one in table.dropped if one.name != column.name), old),
    )


def rename_columns(schema: Schema, statement: RenameColumns) -> Schema:
    """The schema with key columns named otherwise, in a table and in its views.

    RENAME IF EXISTS helps nothing: servers refuse an unknown column all the same.
    """
    name = statement.name
    table = _altered(schema, name, _RENAME, only=statement.if_exists)
    if table is None:
        return schema
    renames: dict[str, str] = {}
    for old, new in statement.renames:
        problem = _rename_problem(schema, table, old, new)
        if problem or name_of(old) in renames or name_of(new) in map(name_of, renames.values()):
            raise SchemaRefused(_RENAME, str(name), problem or f"{old} or {new} is named twice")
        renames[name_of(old)] = new
    for view in views_of(schema, table):
        schema = with_view(schema, _renamed_view(view, renames))
    return with_table(schema, table.with_columns(_renamed(table.columns, renames)))


def _rename_problem(schema: Schema, table: Table, old: str, new: str) -> str:
    column = _column(table, old)
    if column is None:
        return f"it has no column {old}"
    if not column.in_key:
        return f"{old} is not part of the key, and other columns cannot be renamed"
    if _column(table, new) is not None:
        return f"it has a column {new} already"
    return _in_the_way(schema, table, column)


def _renamed(columns: Iterable[Column], renames: dict[str, str]) -> Sequence[Column]:
    return [replace(one, spelling=renames.get(one.name, one.spelling)) for one in columns]


def _renamed_view(view: View, renames: dict[str, str]) -> View:
    table = view.table.with_columns(_renamed(view.table.columns, renames))
    return replace(view, table=table, where=renamed_in(view.where, renames))
