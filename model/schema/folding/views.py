"""CREATE and DROP MATERIALIZED VIEW folded into a schema: a view's columns get their types from its base."""

from dataclasses import replace

from model.errors import SchemaRefused
from model.schema.folding.lookups import find_table, find_view, table_of, with_view
from model.schema.folding.references import columns_of
from model.schema.folding.tables import name_problem
from model.schema.keyspace import Schema
from model.schema.literals import text_of
from model.schema.names import name_of
from model.schema.statements import CreateView, Drop, View
from model.schema.table import Column, Kind, Table

_CREATE, _DROP = "CREATE MATERIALIZED VIEW", "DROP MATERIALIZED VIEW"


def create_view(schema: Schema, statement: CreateView) -> Schema:
    """The schema with one view more."""
    name, view = statement.name, statement.view
    base = table_of(schema, replace(name, spelling=view.base), f"{_CREATE} {name} AS SELECT FROM")
    if find_view(schema, name.spelling) is not None or find_table(schema, name.spelling) is not None:
        if statement.if_not_exists:
            return schema
        raise SchemaRefused(_CREATE, str(name), "it exists already", mend="Add IF NOT EXISTS, or leave it out.")
    problem = name_problem(view.table.name) or _base_problem(base, view) or _key_problem(base, view)
    if problem:
        raise SchemaRefused(_CREATE, str(name), problem)
    return with_view(schema, replace(view, table=_typed(base, view)))


def _base_problem(base: Table, view: View) -> str:
    unknown = [column.spelling for column in view.table.columns if column.name not in base]
    if unknown:
        return f"its base {base.spelling} has no column {unknown[0]}"
    if any(column.is_counter for column in base.columns):
        return "no view can be made of counters"
    selected = base.columns if view.all_columns else [base.column(column.name) for column in view.table.columns]
    statics = [column.spelling for column in selected if column.kind is Kind.STATIC]
    if statics:
        return f"{statics[0]} is static, which no view can hold"
    if text_of(base.options.get("gc_grace_seconds", "")) == "0":
        return "gc_grace_seconds of its base is 0, so updates that were not delivered would be lost"
    if "default_time_to_live" in view.table.options:
        return "rows of a view expire with those of its base: default_time_to_live belongs there"
    return ""


def _key_problem(base: Table, view: View) -> str:
    names = [column.name for column in view.table.key]
    lacking = [column.spelling for column in base.key if column.name not in names]
    if lacking:
        return f"its key lacks {', '.join(lacking)}, which is part of the key of {base.spelling}"
    added = [name for name in names if not base.column(name).in_key]
    if len(added) > 1:
        return f"its key has {' and '.join(added)}, but only one column outside the key of {base.spelling} can be in it"
    restricted = columns_of(view.where)
    free = [name for name in names if name not in restricted]
    if free:
        return f"its condition must say that {free[0]} IS NOT NULL"
    outside = [name for name in restricted if name not in names]
    return f"its condition speaks of {outside[0]}, which is not in its key" if outside else ""


def _typed(base: Table, view: View) -> Table:
    """The view's columns with the types of the base; all of them where it selects `*`."""
    chosen = list(view.table.columns)
    if view.all_columns:
        have = view.table.names
        chosen += [replace(one, descending=False) for one in base.columns if one.name not in have]
    return view.table.with_columns(_column(base, column) for column in chosen)


def _column(base: Table, column: Column) -> Column:
    own = base.column(column.name)
    kind = column.kind if column.in_key else Kind.REGULAR
    return Column(own.spelling, own.type, kind, descending=column.descending, mask=own.mask)


def drop_view(schema: Schema, statement: Drop) -> Schema:
    """The schema with one view less."""
    name = statement.name
    found = find_view(schema, name.spelling)
    if found is None:
        if statement.if_exists:
            return schema
        raise SchemaRefused(_DROP, str(name), "there is no such materialized view")
    return replace(schema, views=tuple(one for one in schema.views if one.table.name != name_of(name.spelling)))
