"""CREATE and DROP TABLE, and options, folded into a schema."""

import re
from collections.abc import Mapping
from dataclasses import replace

from model.errors import SchemaRefused
from model.schema.folding.lookups import find_table, find_view, table_of, views_of, with_table, with_view
from model.schema.folding.type_rules import column_problem
from model.schema.keyspace import Schema
from model.schema.literals import pairs_of, text_of
from model.schema.names import name_of
from model.schema.options import COMPACT_STORAGE, options_of, with_options
from model.schema.statements import CreateTable, Drop, SetOptions
from model.schema.table import Kind, Table

_CREATE, _DROP, _WITH, _VIEW_WITH = "CREATE TABLE", "DROP TABLE", "ALTER TABLE WITH", "ALTER MATERIALIZED VIEW WITH"
_NO_CLASS = "its compaction names no class"
_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")


def create_table(schema: Schema, statement: CreateTable) -> Schema:
    """The schema with one table more."""
    name, table = statement.name, statement.table
    if find_table(schema, name.spelling) is not None or find_view(schema, name.spelling) is not None:
        if statement.if_not_exists:
            return schema
        raise SchemaRefused(_CREATE, str(name), "it exists already", mend="Add IF NOT EXISTS, or leave it out.")
    problem = name_problem(table.name) or _table_problem(schema, table)
    if problem:
        raise SchemaRefused(_CREATE, str(name), problem)
    kept = {option: literal for option, literal in table.options.items() if option != "id"}
    return with_table(schema, replace(table, options=kept))


def name_problem(name: str) -> str:
    """Why nothing can be called that; "" where it can."""
    if _NAME.fullmatch(name):
        return ""
    return "a name has at most 48 letters, digits and underscores, also in double quotes"


def _table_problem(schema: Schema, table: Table) -> str:
    for column in table.columns:
        problem = column_problem(schema, column)
        if problem:
            return problem
    statics = [column.spelling for column in table.columns if column.kind is Kind.STATIC]
    if statics and not table.clustering:
        return f"the column {statics[0]} is static, but the table has no clustering column"
    counters = {column.is_counter for column in table.regular}
    if len(counters) > 1:
        return "it mixes counters with other columns"
    return option_problem(table, options_of(table))


def option_problem(table: Table, options: Mapping[str, str]) -> str:
    """Why a table cannot have these options; "" where it can."""
    if _nameless(options):
        return _NO_CLASS
    expires = text_of(options.get("default_time_to_live", "0")) != "0"
    if expires and any(column.is_counter for column in table.regular):
        return "counters never expire, so the table cannot have default_time_to_live"
    return ""


def _nameless(options: Mapping[str, str]) -> bool:
    """Whether there is a compaction without a class."""
    return "compaction" in options and not pairs_of(options["compaction"]).get("class")


def drop_table(schema: Schema, statement: Drop) -> Schema:
    """The schema with one table less, its indexes with it."""
    name = statement.name
    if find_table(schema, name.spelling) is None and find_view(schema, name.spelling) is None and statement.if_exists:
        return schema
    table = table_of(schema, name, _DROP)
    views = ", ".join(view.table.spelling for view in views_of(schema, table))
    if views:
        reason = f"materialized views are made of it: {views}"
        raise SchemaRefused(_DROP, str(name), reason, mend="Drop them first: DROP MATERIALIZED VIEW.")
    return replace(
        schema,
        tables=tuple(one for one in schema.tables if one.name != table.name),
        indexes=tuple(one for one in schema.indexes if name_of(one.table) != table.name),
    )


def set_options(schema: Schema, statement: SetOptions) -> Schema:
    """The schema with options of a table or view set anew; what they say is judged before whether it is there."""
    if _nameless(statement.options):
        raise SchemaRefused(_VIEW_WITH if statement.of_view else _WITH, str(statement.name), _NO_CLASS)
    if statement.of_view:
        return _set_view_options(schema, statement)
    name, options = statement.name, statement.options
    if statement.if_exists and find_table(schema, name.spelling) is None and find_view(schema, name.spelling) is None:
        return schema
    table = table_of(schema, name, _WITH)
    if options.get(COMPACT_STORAGE) == "false":
        return _without_compact_storage(schema, statement, table)
    problem = _change_problem(schema, table, options)
    if problem:
        raise SchemaRefused(_WITH, str(name), problem)
    return with_table(schema, with_options(table, options))


def _change_problem(schema: Schema, table: Table, options: Mapping[str, str]) -> str:
    if "id" in options:
        return "the id of a table cannot be changed"
    if views_of(schema, table) and text_of(options.get("gc_grace_seconds", "")) == "0":
        return "materialized views are made of it, so gc_grace_seconds cannot be 0"
    return option_problem(table, options)


def _without_compact_storage(schema: Schema, statement: SetOptions, table: Table) -> Schema:
    if COMPACT_STORAGE not in table.options:
        raise SchemaRefused("ALTER TABLE DROP COMPACT STORAGE", str(statement.name), "it has no compact storage")
    kept = {name: literal for name, literal in table.options.items() if name != COMPACT_STORAGE}
    return with_table(schema, replace(table, options=kept))


def _set_view_options(schema: Schema, statement: SetOptions) -> Schema:
    name, options = statement.name, statement.options
    view = find_view(schema, name.spelling)
    if view is None:
        if statement.if_exists:
            return schema
        raise SchemaRefused(_VIEW_WITH, str(name), "there is no such materialized view")
    problem = _view_option_problem(view.table, options)
    if problem:
        raise SchemaRefused(_VIEW_WITH, str(name), problem)
    return with_view(schema, replace(view, table=with_options(view.table, options)))


def _view_option_problem(table: Table, options: Mapping[str, str]) -> str:
    if text_of(options.get("gc_grace_seconds", "")) == "0":
        return "gc_grace_seconds of a view cannot be 0: updates that were not delivered live as long"
    if text_of(options.get("default_time_to_live", "0")) != "0":
        return "rows of a view expire with those of its base: default_time_to_live belongs there"
    return option_problem(table, options)
