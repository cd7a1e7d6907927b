"""CREATE, ALTER and DROP TYPE folded into a schema."""

from dataclasses import replace

from model.errors import SchemaRefused
from model.schema.cql_types import names_in, normal_type
from model.schema.folding.lookups import find_type, with_type
from model.schema.folding.type_rules import field_problem, uses_type
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.statements import AddField, CreateType, Drop, Name, RenameFields
from model.schema.table import UserType

_CREATE, _ADD, _RENAME, _DROP = "CREATE TYPE", "ALTER TYPE ADD", "ALTER TYPE RENAME", "DROP TYPE"


def create_type(schema: Schema, statement: CreateType) -> Schema:
    """The schema with one type more."""
    name, user_type = statement.name, statement.type
    if find_type(schema, name.spelling) is not None:
        if statement.if_not_exists:
            return schema
        raise SchemaRefused(_CREATE, str(name), "it exists already", mend="Add IF NOT EXISTS, or leave it out.")
    _check_fields(schema, name, user_type)
    return with_type(schema, user_type)


def _check_fields(schema: Schema, name: Name, user_type: UserType) -> None:
    seen: set[str] = set()
    for field, kind in user_type.fields:
        if name_of(field) in seen:
            raise SchemaRefused(_CREATE, str(name), f"it names the field {field} twice")
        seen.add(name_of(field))
        problem = field_problem(schema, field, kind)
        if problem:
            raise SchemaRefused(_CREATE, str(name), problem)


def add_field(schema: Schema, statement: AddField) -> Schema:
    """The schema with one field more in a type."""
    name, field = statement.name, statement.field
    found = _altered(schema, name, _ADD, only=statement.if_exists)
    if found is None:
        return schema
    if name_of(field) in _fields(found) and normal_type(statement.type) != "counter":
        if statement.if_not_exists:
            return schema
        raise SchemaRefused(_ADD, str(name), f"it has a field {field} already", mend="Add IF NOT EXISTS after ADD.")
    problem = field_problem(schema, field, statement.type)
    if problem:
        raise SchemaRefused(_ADD, str(name), problem)
    if uses_type(schema, statement.type, found.name):
        raise SchemaRefused(_ADD, str(name), f"the field {field} would hold the type itself")
    keyed = [one.spelling for one in schema.tables for column in one.partition if _within(schema, column.type, found)]
    if keyed:
        raise SchemaRefused(_ADD, str(name), f"it is in the partition key of {', '.join(dict.fromkeys(keyed))}")
    return with_type(schema, replace(found, fields=(*found.fields, (field, statement.type))))


def _within(schema: Schema, kind: str, user_type: UserType) -> bool:
    return uses_type(schema, kind, user_type.name)


def rename_fields(schema: Schema, statement: RenameFields) -> Schema:
    """The schema with fields of a type named otherwise."""
    name = statement.name
    found = _altered(schema, name, _RENAME, only=statement.if_exists)
    if found is None:
        return schema
    fields = list(found.fields)
    before = _fields(found)
    for old, new in statement.renames:
        if name_of(old) in before:
            place = before.index(name_of(old))
            fields[place] = (new, fields[place][1])
        elif not statement.fields_if_exist:
            raise SchemaRefused(_RENAME, str(name), f"it has no field {old}", mend=f"Its fields: {', '.join(before)}.")
    renamed = replace(found, fields=tuple(fields))
    for field in _fields(renamed):
        if _fields(renamed).count(field) > 1:
            raise SchemaRefused(_RENAME, str(name), f"it would have two fields {field}")
    return with_type(schema, renamed)


def drop_type(schema: Schema, statement: Drop) -> Schema:
    """The schema with one type less."""
    name = statement.name
    found = find_type(schema, name.spelling)
    if found is None:
        return _unless(schema, _DROP, name, only=statement.if_exists)
    users = [
        *(f"the type {one.spelling}" for one in schema.types if any(_names(kind, found) for _, kind in one.fields)),
        *(f"the table {one.spelling}" for one in schema.tables if any(_names(c.type, found) for c in one.columns)),
    ]
    if users:
        raise SchemaRefused(_DROP, str(name), f"{', '.join(users)} still uses it", mend="Drop what uses it first.")
    return replace(schema, types=tuple(one for one in schema.types if one.name != found.name))


def _names(kind: str, user_type: UserType) -> bool:
    return user_type.name in names_in(kind)


def _altered(schema: Schema, name: Name, statement: str, *, only: bool) -> UserType | None:
    found = find_type(schema, name.spelling)
    if found is None:
        _unless(schema, statement, name, only=only)
    return found


def _unless(schema: Schema, statement: str, name: Name, *, only: bool) -> Schema:
    if only:
        return schema
    raise SchemaRefused(statement, str(name), "there is no such type")


def _fields(user_type: UserType) -> tuple[str, ...]:
    return tuple(name_of(field) for field, _ in user_type.fields)
