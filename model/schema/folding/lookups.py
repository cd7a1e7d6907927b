"""Finding and replacing the parts of a schema by their exact names, for folding statements into it."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from model.errors import SchemaRefused
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.statements import Index, Name, View
from model.schema.table import Table, UserType

T = TypeVar("T")
EMPTY = Schema((), ())
"""What a keyspace holds that was created just now."""


def find_table(schema: Schema, spelling: str) -> Table | None:
    """The table of exactly that name, or None."""
    return next((one for one in schema.tables if one.name == name_of(spelling)), None)


def find_type(schema: Schema, spelling: str) -> UserType | None:
    """The user type of exactly that name, or None."""
    return next((one for one in schema.types if one.name == name_of(spelling)), None)


def find_view(schema: Schema, spelling: str) -> View | None:
    """The view of exactly that name, or None."""
    return next((one for one in schema.views if one.table.name == name_of(spelling)), None)


def find_index(schema: Schema, spelling: str) -> Index | None:
    """The index of exactly that name, or None."""
    return next((one for one in schema.indexes if name_of(one.spelling) == name_of(spelling)), None)


def table_of(schema: Schema, name: Name, statement: str) -> Table:
    """The table that a statement names.

    Raises:
        SchemaRefused: there is none, or it is a view.
    """
    table = find_table(schema, name.spelling)
    if table is not None:
        return table
    if find_view(schema, name.spelling) is not None:
        raise SchemaRefused(
            statement,
            str(name),
            "it is a materialized view, not a table",
            mend="Change its base table, or use the statements for materialized views.",
        )
    raise SchemaRefused(statement, str(name), "there is no such table", mend=_nearest(schema, name.spelling))


def _nearest(schema: Schema, spelling: str) -> str:
    same = [one.spelling for one in schema.tables if one.name.lower() == name_of(spelling).lower()]
    return f"There is {same[0]}: a name in double quotes keeps its case." if same else ""


def views_of(schema: Schema, table: Table) -> tuple[View, ...]:
    """The views whose base the table is."""
    return tuple(one for one in schema.views if name_of(one.base) == table.name)


def indexes_of(schema: Schema, table: Table) -> tuple[Index, ...]:
    """The indexes on the table."""
    return tuple(one for one in schema.indexes if name_of(one.table) == table.name)


def with_table(schema: Schema, table: Table) -> Schema:
    """The schema with the table in place of the one of that name, or after all the others."""
    return replace(schema, tables=_put(schema.tables, table, lambda one: one.name))


def with_type(schema: Schema, user_type: UserType) -> Schema:
    """The schema with the type in place of the one of that name, or after all the others."""
    return replace(schema, types=_put(schema.types, user_type, lambda one: one.name))


def with_view(schema: Schema, view: View) -> Schema:
    """The schema with the view in place of the one of that name, or after all the others."""
    return replace(schema, views=_put(schema.views, view, lambda one: one.table.name))


def _put(held: tuple[T, ...], new: T, name: Callable[[T], str]) -> tuple[T, ...]:
    there = any(name(one) == name(new) for one in held)
    return tuple(new if name(one) == name(new) else one for one in held) if there else (*held, new)
