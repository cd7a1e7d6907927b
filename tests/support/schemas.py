"""Schemas as a server would tell them, made from declared ones: for tests that need no server."""

from collections.abc import Iterable
from dataclasses import replace

from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Table, UserType


def served_table(table: Table, comment: str = "") -> Table:
    """Every name in lower case; the comment is James's own unless another is given."""
    columns = tuple(replace(column, spelling=column.name) for column in table.columns)
    return replace(table, spelling=table.name, columns=columns, comment=comment)


def served(schema: Schema, *, made_here: bool = False) -> Schema:
    """The schema as a server has it, made by James or by `schema apply`."""
    types = tuple(UserType(one.name, tuple((name.lower(), kind) for name, kind in one.fields)) for one in schema.types)
    return Schema(types, tuple(served_table(table, table.comment if made_here else "") for table in schema.tables))


def without_time_to_live(schema: Schema) -> Schema:
    """As James makes its tables: nothing ever expires."""
    lasting = {"default_time_to_live": "0"}
    return replace(schema, tables=tuple(replace(one, options={**one.options, **lasting}) for one in schema.tables))


def without_tables(schema: Schema, *names: str) -> Schema:
    return replace(schema, tables=tuple(table for table in schema.tables if table.spelling not in names))


def with_columns(schema: Schema, table: str, columns: Iterable[Column]) -> Schema:
    wanted = tuple(columns)
    return replace(
        schema, tables=tuple(one.with_columns(wanted) if one.name == table else one for one in schema.tables)
    )


def columns_of(schema: Schema, table: str) -> tuple[Column, ...]:
    found = schema.table(table)
    assert found is not None
    return found.columns
