"""ALTER TABLE ADD, DROP and RENAME: all of a statement's columns, or none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mailmend.cql.schema.risk import Before, Danger, DroppedColumns, Risk
from mailmend.cql.statements.base import Effect, NamedStatement, Statement
from mailmend.cql.statements.type_rules import (
    column_problem,
    expanded,
    is_user_type,
    mask_problem,
    returns,
    type_problem,
    user_types_in,
)
from mailmend.model.cql_types import normal_type, parse_type
from mailmend.model.keyspace import Index, Schema, View, find, put, without
from mailmend.model.names import columns_of, name_of, renamed_in, spelled
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table, names_of, spellings, types_of

_NO_TABLE_YET = "The table does not exist yet."


@dataclass(frozen=True, slots=True)
class AddColumns(NamedStatement):
    """ALTER TABLE ... ADD: the views that select all of the table get the columns too."""

    columns: tuple[Column, ...]
    if_exists: bool = False
    if_not_exists: bool = False
    verb = "ALTER TABLE ADD"
    harmless = "Existing rows read the new columns as null; nothing is rewritten."
    defines_table = True
    undo = "Nothing has to: rows that lack the columns read as before. Dropping them again loses what they hold."

    @property
    def columns_added(self) -> tuple[Column, ...]:
        return self.columns

    def needs(self) -> frozenset[str]:
        return NamedStatement.needs(self) | user_types_in(types_of(self.columns))

    def apply(self, schema: Schema) -> Schema:
        if self.if_exists and self.lacks_table(schema):
            return schema
        table = before = self.table_in(schema)
        for column in self.columns:
            self.must(type_problem(schema, column))
            if column.name in table:
                if self.if_not_exists:
                    continue
                mend = "Add IF NOT EXISTS after ADD (4.1 and later)."
                raise self.refused(f"it has a column {column.spelling} already", mend=mend)
            self.must(_add_problem(schema, before, column))
            table = table.with_columns((*table.columns, column))
            schema = _with_views(schema, table, column)
        return replace(schema, tables=put(schema.tables, table))

    def took_effect(self, live: Schema) -> Effect:
        found = find(live.tables, self.name.spelling)
        if found is None:
            return Effect.DIFFERENT
        return Effect.of_all([_effect_of(column, found) for column in self.columns], repeats=self.if_not_exists)

    def remaining(self, live: Schema) -> Statement | None:
        table = find(live.tables, self.name.spelling)
        if table is None:
            return None
        missing = tuple(column for column in self.columns if column.name not in table)
        if not missing:
            return None
        return replace(self, columns=missing)

    def _adds_again(self, before: Before) -> bool:
        once: set[str] = set()
        if not self.name.keyspace:
            table = before.live.table(self.name.spelling)
            if table:
                once.update(names_of(table.dropped))
        name = name_of(self.name.spelling)
        return any(column.name in once or (name, column.name) in before.dropped for column in self.columns)

    dangers = (
        Danger(
            Risk.DATA_LOSS,
            "A column of {name} is added again after it was dropped: cells with timestamps before the drop, repairs "
            "among them, stay invisible or vanish; another type is refused.",
            _adds_again,
        ),
    )


def _add_problem(schema: Schema, table: Table, column: Column) -> str:
    if COMPACT_STORAGE in table.options:
        return "it has compact storage, which takes no more columns"
    if column.kind is Kind.STATIC and not table.clustering:
        return f"the column {column.spelling} is static, but the table has no clustering column"
    if table.regular and table.has_counters is not column.is_counter:
        return f"{column.spelling} would mix counters with other columns"
    return column_problem(schema, column) or _return_problem(schema, table, column)


def _return_problem(schema: Schema, table: Table, column: Column) -> str:
    old = find(table.dropped, column.spelling)
    if old is None:
        return ""
    if not returns(schema, column, old):
        return f"{column.spelling} was dropped as {old.type}, so it cannot come back as {column.type}"
    if old.kind is not column.kind:
        return f"{column.spelling} was dropped as a {old.kind.value} column, so it cannot come back as another"
    if column.is_counter:
        return f"{column.spelling} was dropped, and a counter cannot come back"
    return ""


def _with_views(schema: Schema, table: Table, column: Column) -> Schema:
    for view in schema.views_of(table):
        if view.all_columns and column.kind is not Kind.STATIC:
            grown = replace(view, table=view.table.with_columns((*view.table.columns, column)))
            schema = replace(schema, views=put(schema.views, grown))
    return schema


def _effect_of(wanted: Column, found: Table) -> Effect:
    if wanted.name not in found:
        return Effect.NOT_APPLIED
    there = found.column(wanted.name)
    return Effect.alike((normal_type(wanted.type), wanted.kind) == (normal_type(there.type), there.kind))


@dataclass(frozen=True, slots=True)
class DropColumns(NamedStatement):
    """ALTER TABLE ... DROP; what the columns held is gone (up to `timestamp`, where USING names one)."""

    columns: tuple[str, ...]
    if_exists: bool = False
    columns_if_exist: bool = False
    timestamp: str | None = None
    verb = "ALTER TABLE DROP"
    harmless = _NO_TABLE_YET
    dangers = (
        Danger(
            Risk.DATA_LOSS,
            "The data in these columns of {name} is gone at once; adding the columns again does not bring it back.",
        ),
    )

    def drops(self) -> DroppedColumns:
        table = name_of(self.name.spelling)
        return frozenset((table, name_of(column)) for column in self.columns)

    def apply(self, schema: Schema) -> Schema:
        """The schema after the statement; the table's `dropped` has the dropped columns."""
        if self.timestamp and int(self.timestamp) >= 2**63:
            raise self.refused("its TIMESTAMP is out of range")
        if self.if_exists and self.lacks_table(schema):
            return schema
        table = self.table_in(schema)
        for spelling in self.columns:
            column = find(table.columns, spelling)
            if column is None and self.columns_if_exist:
                continue
            if column is None:
                raise self.refused(f"it has no column {spelling}")
            self.must(_drop_problem(schema, table, spelling, column))
            table = _without(schema, table, column)
        return replace(schema, tables=put(schema.tables, table))

    def took_effect(self, live: Schema) -> Effect:
        found = find(live.tables, self.name.spelling)
        if found is None:
            return Effect.DIFFERENT
        effects = []
        for spelling in self.columns:
            effects.append(Effect.done(name_of(spelling) not in found))
        return Effect.of_all(effects, repeats=self.columns_if_exist)


def _drop_problem(schema: Schema, table: Table, spelling: str, column: Column) -> str:
    if column.in_key:
        return f"{spelling} is part of the key, which cannot be changed"
    if is_user_type(parse_type(column.type)):
        return f"{spelling} is of a user type that is not frozen, which cannot be dropped"
    indexed = _indexed(schema, table, column)
    if indexed:
        return indexed
    views = spellings(schema.views_of(table))
    if views:
        return f"materialized views are made of it ({views}), so {spelling} cannot be dropped"
    return ""


def _indexed(schema: Schema, table: Table, column: Column) -> str:
    indexes = spellings(index for index in schema.indexes_of(table) if _is_on(index, column))
    if not indexes:
        return ""
    return f"the index {indexes} is on {column.spelling}: drop it first"


def _is_on(index: Index, column: Column) -> bool:
    columns = columns_of(index.target)
    return not columns or column.name in columns


def _without(schema: Schema, table: Table, column: Column) -> Table:
    old = replace(column, type=normal_type(str(expanded(schema, parse_type(column.type)))))
    dropped = (*without(table.dropped, column.spelling), old)
    return replace(table, columns=without(table.columns, column.spelling), dropped=dropped)


@dataclass(frozen=True, slots=True)
class RenameColumns(NamedStatement):
    """ALTER TABLE ... RENAME old TO new; only key columns can be renamed.

    RENAME IF EXISTS does not help: servers refuse an unknown column all the same.
    """

    renames: tuple[tuple[str, str], ...]
    if_exists: bool = False
    columns_if_exist: bool = False
    verb = "ALTER TABLE RENAME"
    harmless = _NO_TABLE_YET
    dangers = (Danger(Risk.BREAKING, "Clients that know the old names in {name} fail from then on."),)

    def apply(self, schema: Schema) -> Schema:
        """The schema after the statement; columns of the table's views are renamed too."""
        if self.if_exists and self.lacks_table(schema):
            return schema
        table = self.table_in(schema)
        renames = {name_of(old): new for old, new in self.renames}  # servers take the last new name of a column
        for old, new in renames.items():
            self.must(_rename_problem(schema, table, spelled(old), new))
        new_names = list(map(name_of, renames.values()))
        for name in new_names:
            if new_names.count(name) > 1:
                raise self.refused(f"two columns would be named {name}")
        for view in schema.views_of(table):
            schema = replace(schema, views=put(schema.views, _renamed_view(view, renames)))
        return replace(schema, tables=put(schema.tables, table.with_columns(_renamed(table.columns, renames))))

    def took_effect(self, live: Schema) -> Effect:
        found = find(live.tables, self.name.spelling)
        if found is None:
            return Effect.DIFFERENT
        return Effect.of_renames(self.renames, found.names)


def _rename_problem(schema: Schema, table: Table, old: str, new: str) -> str:
    column = find(table.columns, old)
    if column is None:
        return f"it has no column {old}"
    if not column.in_key:
        return f"{old} is not part of the key, and other columns cannot be renamed"
    if find(table.columns, new) is not None:
        return f"it has a column {new} already"
    return _indexed(schema, table, column)


def _renamed(columns: Iterable[Column], renames: Mapping[str, str]) -> list[Column]:
    return [replace(column, spelling=renames.get(column.name, column.spelling)) for column in columns]


def _renamed_view(view: View, renames: Mapping[str, str]) -> View:
    table = view.table.with_columns(_renamed(view.table.columns, renames))
    return replace(view, table=table, where=renamed_in(view.where, renames))


@dataclass(frozen=True, slots=True)
class MaskColumn(NamedStatement):
    """ALTER TABLE ... ALTER ... MASKED WITH, or DROP MASKED where `mask` is ""."""

    column: str
    mask: str
    if_exists: bool = False
    column_if_exists: bool = False
    verb = "ALTER TABLE ALTER"
    harmless = "No row changes: the column is shown as it is to everyone who may read the table."
    undo = "Set the mask that DESCRIBE TABLE shows now once more, or drop it."

    def _hides(self, before: Before) -> bool:
        return bool(self.mask) and before.holds(self.name)

    dangers = (
        Danger(
            Risk.BREAKING,
            "Roles without the permission UNMASK read a mask in place of the values of a column of {name}, and can no "
            "longer compare the column in WHERE where SELECT_MASKED is missing too.",
            _hides,
        ),
    )

    def apply(self, schema: Schema) -> Schema:
        if self.if_exists and self.lacks_table(schema):
            return schema
        table = self.table_in(schema)
        column = find(table.columns, self.column)
        if column is None:
            if not self.column_if_exists:
                raise self.refused(f"it has no column {self.column}")
            return schema
        masked = replace(column, mask=self.mask)
        self.must(mask_problem(masked))
        return replace(schema, tables=put(schema.tables, table.with_columns(put(table.columns, masked))))

    def took_effect(self, live: Schema) -> Effect:
        table = find(live.tables, self.name.spelling)
        if table is None:
            return Effect.DIFFERENT
        column = find(table.columns, self.column)
        if column is None:
            return Effect.DIFFERENT
        return Effect.done(column.mask == self.mask)
