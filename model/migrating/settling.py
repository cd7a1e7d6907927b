"""Whether a statement took effect: told from the live schema alone, whether or not its answer ever came.

A statement whose answer was lost (its applier was killed, the node went away) was carried out or was not. Each kind of
change leaves something behind that tells; what leaves nothing can be sent again without harm.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from model.cql_types import normal_type
from model.ddl import (
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
    View,
)
from model.difference import differences, table_differences
from model.errors import SchemaRefused
from model.folding.fold import fold
from model.names import name_of
from model.schema import Schema
from model.table import Column, Table, UserType


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
        case CreateView(_, view):
            return _of_table(view.table, _view_table(view, live))
        case CreateIndex(_, index):
            return _there(any(_same_index(index, one) for one in live.indexes))
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


def _view_table(wanted: View, live: Schema) -> Table | None:
    return next((one.table for one in live.views if one.table.name == wanted.table.name), None)


def _of_columns(statement: AddColumns | DropColumns | RenameColumns, found: Table | None) -> Effect:
    if found is None:
        return Effect.OTHERWISE
    match statement:
        case AddColumns(_, columns):
            return _of_each([_of_column(one, found) for one in columns])
        case DropColumns(_, names):
            return _of_each([_there(name_of(name) not in found) for name in names])
        case RenameColumns(_, renames):
            return _of_renames(renames, found.names)


def _of_column(wanted: Column, found: Table) -> Effect:
    if wanted.name not in found:
        return Effect.ABSENT
    return _either(normal_type(wanted.type) == normal_type(found.column(wanted.name).type))


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
    try:
        return _there(not differences(fold(live, statement), live))
    except SchemaRefused:
        return Effect.OTHERWISE


def _of_each(parts: Sequence[Effect]) -> Effect:
    """A statement is carried out as a whole: a mixture is somebody else's work."""
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


def _same_index(wanted: Index, found: Index) -> bool:
    """By its name, or, where the server was left to choose one, by what it is on."""
    if wanted.spelling:
        return name_of(wanted.spelling) == name_of(found.spelling)
    return name_of(wanted.table) == name_of(found.table) and name_of(wanted.target) == name_of(found.target)
