"""Columns of user types that are read field by field, bound to a live schema. Pure."""

from collections.abc import Sequence

from mailmend.model.cql_types import normal_type
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declared_mirrors import FIELDS, FieldSources
from mailmend.model.table import Column, Kind, Table
from mailmend.model.texts import names_instead
from mailmend.model.toml_places import TomlPath
from mailmend.repair.declared_conditions import Misfits


def by_fields(
    misfits: Misfits,
    path: TomlPath,
    declared: Sequence[tuple[str, FieldSources]],
    table: Table,
    truth: Table,
    *,
    live: Schema,
) -> tuple[Table, dict[str, str]]:
    """The table with a column for each field, and the truth's column behind each field."""
    sources: dict[str, str] = {}
    parts: dict[str, tuple[Column, ...]] = {}
    for spelling, fields in declared:
        place = (*path, FIELDS, spelling)
        misfits.check_column(place, spelling, table)
        if name_of(spelling) not in table:
            continue
        column = table.column(name_of(spelling))
        types = _types(misfits, place, table, column, live)
        given = {name_of(field): source for field, source in fields}
        for field, source in given.items():
            if types and field not in types:
                mend = names_instead(field, list(types))
                misfits.note((*place, field), f"{column.type} has no field {field}", mend)
            misfits.check_column((*place, field), source, truth)
            sources[f"{column.name}.{field}"] = name_of(source)
        lacking = [field for field in types if field not in given]
        if lacking:
            problem = f"{table.spelling}.{column.spelling} is written with all of its fields"
            misfits.note(place, problem, f"Name a column for: {', '.join(lacking)}.")
        columns_of = [Column(f"{column.spelling}.{name}", kind) for name, kind in types.items()]
        parts[column.name] = tuple(columns_of)
    columns: list[Column] = []
    for column in table.columns:
        columns.extend(parts.get(column.name, (column,)))
    return table.with_columns(columns), sources


def _types(
    misfits: Misfits,
    place: TomlPath,
    table: Table,
    column: Column,
    live: Schema,
) -> dict[str, str]:
    """The fields of the column's type, each with its type; empty where it has no fields."""
    kind = normal_type(column.type)
    inner = kind.removeprefix("frozen<").removesuffix(">")
    user_type = live.user_type(inner)
    if user_type is not None and inner != kind and column.kind is Kind.REGULAR:
        return dict(user_type.normal_fields)
    problem = f"{table.spelling}.{column.spelling} is of type {column.type}"
    mend = "Name a column outside the key, of a frozen user type."
    misfits.note(place, f"{problem}, and has no fields to read", mend)
    return {}
