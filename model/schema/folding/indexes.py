"""CREATE and DROP INDEX folded into a schema, with the names and targets that a server gives them."""

import re
from dataclasses import replace
from itertools import count

from model.errors import SchemaRefused
from model.schema.cql_types import parse_type
from model.schema.folding.lookups import find_index, indexes_of, table_of
from model.schema.folding.references import columns_of
from model.schema.folding.tables import name_problem
from model.schema.folding.type_rules import holds, is_user_type
from model.schema.keyspace import Schema
from model.schema.literals import short_class
from model.schema.names import name_of, spelled
from model.schema.statements import CreateIndex, Drop, Index
from model.schema.table import Column, Kind, Table

_CREATE, _DROP = "CREATE INDEX", "DROP INDEX"
_TARGET = re.compile(r"(?:(values|keys|entries|full)\()?((?:\"(?:[^\"]|\"\")+\"|\w)+)\)?")
_BUILT_IN = frozenset({"", "legacy_local_table"})
_STORAGE_ATTACHED = frozenset({"sai", "storageattachedindex"})


def create_index(schema: Schema, statement: CreateIndex) -> Schema:
    """The schema with one index more."""
    table = table_of(schema, statement.name, _CREATE)
    asked = statement.index
    taken = asked.spelling and find_index(schema, asked.spelling) is not None
    if taken and statement.if_not_exists:
        return schema
    index = _named(schema, table, _as_stored(table, asked))
    subject = f"{index.spelling} ON {statement.name}"
    if taken:
        raise SchemaRefused(_CREATE, subject, "an index of that name exists already", mend="Add IF NOT EXISTS.")
    problem = name_problem(name_of(index.spelling)) if asked.spelling else ""
    problem = problem or _problem(schema, table, index)
    if problem:
        raise SchemaRefused(_CREATE, subject, problem)
    same = next((one.spelling for one in indexes_of(schema, table) if _alike(one, index)), "")
    if same and statement.if_not_exists:
        return schema
    if same:
        raise SchemaRefused(_CREATE, subject, f"the index {same} is the same already")
    return replace(schema, indexes=(*schema.indexes, index))


def _as_stored(table: Table, index: Index) -> Index:
    """The index as a server lists it: what is indexed of a collection is said, the built-in class is not."""
    aspect, column = _aspect(table, index)
    target = index.target
    if column is not None:
        own = spelled(column.name)
        aspect = aspect or ("values" if column.is_collection else "")
        target = f"{aspect}({own})" if aspect else own
    using = "" if index.using.lower() in _BUILT_IN else index.using
    return replace(index, table=spelled(table.name), target=target, using=using)


def _aspect(table: Table, index: Index) -> tuple[str, Column | None]:
    """What of which column is indexed; no column where there are several, or none of that name."""
    found = _TARGET.fullmatch(index.target)
    if found is None:
        return "", None
    column = next((one for one in table.columns if one.name == name_of(found[2])), None)
    return found[1] or "", column


def _named(schema: Schema, table: Table, index: Index) -> Index:
    """The index with the name that a server makes for one without: the first that is free."""
    if index.spelling:
        return index
    columns = columns_of(index.target)
    middle = re.sub(r"\W", "", columns[0]) if len(columns) == 1 else ""
    base = f"{table.name}_{middle}_idx" if middle else f"{table.name}_idx"
    names = (base if number == 0 else f"{base}_{number}" for number in count())
    return replace(index, spelling=next(spelled(name) for name in names if find_index(schema, spelled(name)) is None))


def _problem(schema: Schema, table: Table, index: Index) -> str:
    if any(column.is_counter for column in table.columns):
        return "a table of counters can have no index"
    columns = columns_of(index.target)
    unknown = [name for name in columns if name not in table]
    if unknown or not columns:
        return f"the table has no column {unknown[0]}" if unknown else "it names no column"
    if len(columns) > 1:
        return "only indexes of a class of their own can have several columns" if not index.using else ""
    aspect, column = _aspect(table, index)
    if column is None:
        return f"{index.target} is nothing that can be indexed"
    return _column_problem(schema, table, column, aspect) or _second_problem(schema, table, index)


def _column_problem(schema: Schema, table: Table, column: Column, aspect: str) -> str:
    parsed = parse_type(column.type)
    if column.kind is Kind.PARTITION and len(table.partition) == 1:
        return f"{column.spelling} is the whole partition key, by which rows are found anyway"
    if is_user_type(parsed):
        return f"{column.spelling} is of a user type that is not frozen"
    if holds(schema, parsed, "duration"):
        return f"{column.spelling} holds durations, which have no order"
    if aspect in {"keys", "entries"} and parsed.name != "map":
        return f"{aspect}() is for maps that are not frozen, {column.spelling} is {column.type}"
    return _collection_problem(column, aspect)


def _collection_problem(column: Column, aspect: str) -> str:
    inner = parse_type(column.type)
    frozen = inner.name == "frozen" and inner.arguments[0].name in {"list", "set", "map"}
    if frozen and aspect != "full":
        return f"{column.spelling} is frozen, so only full({column.spelling}) can be indexed"
    if aspect == "full" and not frozen:
        return f"full() is for frozen collections, {column.spelling} is {column.type}"
    if aspect == "values" and not column.is_collection:
        return f"values() is for collections, {column.spelling} is {column.type}"
    return ""


def _second_problem(schema: Schema, table: Table, index: Index) -> str:
    others = [one.spelling for one in indexes_of(schema, table) if _attached(one) and one.target == index.target]
    if _attached(index) and others:
        return f"{index.target} has a storage-attached index already: {others[0]}"
    return ""


def _attached(index: Index) -> bool:
    return short_class(index.using).lower() in _STORAGE_ATTACHED


def _alike(one: Index, other: Index) -> bool:
    return (one.target, one.using, dict(one.options)) == (other.target, other.using, dict(other.options))


def drop_index(schema: Schema, statement: Drop) -> Schema:
    """The schema with one index less."""
    found = find_index(schema, statement.name.spelling)
    if found is None:
        if statement.if_exists:
            return schema
        raise SchemaRefused(_DROP, str(statement.name), "there is no such index")
    return replace(schema, indexes=tuple(one for one in schema.indexes if one is not found))
