"""Whether a statement took effect: told from the live schema alone, whether or not its answer ever came.

A statement whose answer was lost (its applier was killed, the node went away) was carried out or was not. Each kind of
change leaves something behind that tells; what leaves nothing can be sent again without harm.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from model.errors import SchemaRefused
from model.schema.cql_types import normal_type
from model.schema.difference import Aspect, differences, table_differences
from model.schema.folding.fold import fold
from model.schema.keyspace import Schema
from model.schema.names import name_of
from model.schema.options import COMPACT_STORAGE
from model.schema.statements import (
    AddColumns,
    AddField,
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    Drop,
    DropColumns,
    Dropped,
    Index,
    RenameColumns,
    RenameFields,
    SetOptions,
    Statement,
)
from model.schema.table import Column, Table, UserType


class Effect(Enum):
    """What the live schema says about a statement."""

    THERE = "there"  # it took effect: sending it again would fail, or do nothing
    ABSENT = "absent"  # it did not; or sending it again is harmless
    OTHERWISE = "otherwise"  # what it names is there, but not as it would have left it


def effect_of(statement: Statement, live: Schema) -> Effect:  # noqa: PLR0911 - one return for each kind of statement
    """What the live schema says about the statement."""
    match statement:
        case CreateTable(name, table):
            return _of_table(table, live.table(name.spelling))
        case CreateType(name, user_type):
            return _of_type(user_type, live.user_type(name.spelling))
        case CreateView():
            return _of_view(statement, live)
        case CreateIndex():
            return _of_index(statement, live)
        case AddColumns() | DropColumns() | RenameColumns():
            return _of_columns(statement, live.table(statement.name.spelling))
        case AddField() | RenameFields():
            return _of_fields(statement, live)
        case Drop():
            return _there(not _stands(statement, live))
        case SetOptions():
            return _of_options(statement, live)
        case _:
            return Effect.ABSENT


def _there(holds: bool) -> Effect:  # noqa: FBT001 - the one thing it is about
    return Effect.THERE if holds else Effect.ABSENT


def _either(holds: bool) -> Effect:  # noqa: FBT001 - the one thing it is about
    return Effect.THERE if holds else Effect.OTHERWISE


def _of_table(wanted: Table, found: Table | None) -> Effect:
    """Its key and columns tell; its options may have been changed since."""
    if found is None:
        return Effect.ABSENT
    bare = replace(wanted, options={}, compaction=None)
    return _either(not list(table_differences(bare, found)))


def _of_type(wanted: UserType, found: UserType | None) -> Effect:
    if found is None:
        return Effect.ABSENT
    sides = ([(name_of(name), normal_type(kind)) for name, kind in one.fields] for one in (wanted, found))
    return _either(next(sides) == next(sides))


def _of_view(statement: CreateView, live: Schema) -> Effect:
    """A statement names columns only: what a view of the base as it is would be is told by making it anew."""
    name = name_of(statement.view.table.spelling)
    if not any(one.table.name == name for one in live.views):
        return Effect.ABSENT
    rest = replace(live, views=tuple(one for one in live.views if one.table.name != name))
    return _either(_makes(statement, rest, live))


def _of_index(statement: CreateIndex, live: Schema) -> Effect:
    """By its name; where the server was left to choose one, by what it is on."""
    if not statement.index.spelling:
        return _there(any(_makes_alike(statement, one, live) for one in live.indexes))
    name = name_of(statement.index.spelling)
    rest = tuple(one for one in live.indexes if name_of(one.spelling) != name)
    if len(rest) == len(live.indexes):
        return Effect.ABSENT
    return _either(_makes(statement, replace(live, indexes=rest), live))


def _makes(statement: Statement, before: Schema, live: Schema) -> bool:
    """Whether the statement makes the live schema of the one before it, but for options that may have changed since."""
    try:
        found = differences(fold(before, statement), live)
    except SchemaRefused:
        return False
    return all(one.aspect is Aspect.DIFFERENT_OPTION for one in found)


def _makes_alike(statement: CreateIndex, found: Index, live: Schema) -> bool:
    """Whether an index is what the statement would make in its place, whatever it is called."""
    rest = tuple(one for one in live.indexes if one is not found)
    named = replace(statement, index=replace(statement.index, spelling=found.spelling))
    return _makes(named, replace(live, indexes=rest), live)


def _of_columns(statement: AddColumns | DropColumns | RenameColumns, found: Table | None) -> Effect:
    if found is None:
        return Effect.OTHERWISE
    match statement:
        case AddColumns(_, columns):
            return _of_each([_of_column(one, found) for one in columns], repeats=statement.if_not_exists)
        case DropColumns(_, names):
            return _of_each([_there(name_of(name) not in found) for name in names], repeats=statement.columns_if_exist)
        case RenameColumns(_, renames):
            return _of_renames(renames, found.names)


def _of_column(wanted: Column, found: Table) -> Effect:
    if wanted.name not in found:
        return Effect.ABSENT
    there = found.column(wanted.name)
    return _either((normal_type(wanted.type), wanted.kind) == (normal_type(there.type), there.kind))


def _of_fields(statement: AddField | RenameFields, live: Schema) -> Effect:
    found = live.user_type(statement.name.spelling)
    if found is None:
        return Effect.OTHERWISE
    fields = {name_of(name): normal_type(kind) for name, kind in found.fields}
    match statement:
        case AddField(_, name, kind):
            there = fields.get(name_of(name))
            return Effect.ABSENT if there is None else _either(there == normal_type(kind))
        case RenameFields(_, renames):
            return _of_renames(renames, tuple(fields))


def _of_renames(renames: Iterable[tuple[str, str]], names: Sequence[str]) -> Effect:
    steps = {(True, False): Effect.ABSENT, (False, True): Effect.THERE}
    return _of_each(
        [steps.get((name_of(old) in names, name_of(new) in names), Effect.OTHERWISE) for old, new in renames]
    )


def _of_options(statement: SetOptions, live: Schema) -> Effect:
    table = live.table(statement.name.spelling)
    if table is not None and statement.options.get(COMPACT_STORAGE) == "false":
        return _there(COMPACT_STORAGE not in table.options)
    try:
        after = fold(live, statement)
    except SchemaRefused:
        return Effect.OTHERWISE
    return _there(not differences(after, live) and _comments(after) == _comments(live))


def _comments(schema: Schema) -> list[str]:
    return [one.comment for one in (*schema.tables, *(view.table for view in schema.views))]


def _of_each(parts: Sequence[Effect], *, repeats: bool = False) -> Effect:
    """A statement is carried out as a whole: a mixture is somebody else's work, unless it may be sent again."""
    if repeats and len(set(parts)) > 1:
        return Effect.ABSENT if Effect.ABSENT in parts else Effect.THERE
    return parts[0] if len(set(parts)) == 1 else Effect.OTHERWISE


def _stands(statement: Drop, live: Schema) -> bool:
    """Whether what is to be dropped is still there."""
    name = statement.name.spelling
    match statement.what:
        case Dropped.TABLE:
            return live.table(name) is not None
        case Dropped.TYPE:
            return live.user_type(name) is not None
        case Dropped.INDEX:
            return any(name_of(one.spelling) == name_of(name) for one in live.indexes)
        case Dropped.VIEW:
            return any(one.table.name == name_of(name) for one in live.views)
