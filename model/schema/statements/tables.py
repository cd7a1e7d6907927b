"""CREATE and DROP TABLE."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from model.schema.difference import table_differences
from model.schema.keyspace import Schema, find, put, without
from model.schema.names import pairs_of, text_of
from model.schema.risk import Danger, Risk
from model.schema.statements.base import Drop, Effect, NamedStatement
from model.schema.table import Kind, Table
from model.schema.type_rules import column_problem, user_types_in

_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
NO_CLASS = "its compaction names no class"
ROWS_GONE = Danger(
    Risk.DATA_LOSS,
    "Every row of {name} is gone; only the snapshot that Cassandra takes by itself (auto_snapshot) brings it back.",
)


def name_problem(name: str) -> str:
    """Why the name is not allowed; "" where it is."""
    if _NAME.fullmatch(name):
        return ""
    return "a name has at most 48 letters, digits and underscores, also in double quotes"


def names_no_class(options: Mapping[str, str]) -> bool:
    return "compaction" in options and not pairs_of(options["compaction"]).get("class")


def option_problem(table: Table, options: Mapping[str, str]) -> str:
    """Why a table cannot have these options; "" where it can."""
    if names_no_class(options):
        return NO_CLASS
    expires = text_of(options.get("default_time_to_live", "0")) != "0"
    if expires and any(column.is_counter for column in table.regular):
        return "counters never expire, so the table cannot have default_time_to_live"
    return ""


@dataclass(frozen=True, slots=True)
class CreateTable(NamedStatement):
    """CREATE TABLE; the table carries its comment, compaction and the other options as literals."""

    table: Table
    if_not_exists: bool = False
    verb = "CREATE TABLE"
    creates = "table"
    harmless = "A new table is empty."
    defines_table = True
    undo = "DROP TABLE takes it away again, with every row that it holds by then."

    @property
    def table_created(self) -> Table:
        return self.table

    def creating(self, table: Table) -> "CreateTable":
        return replace(self, table=table)

    @property
    def options_set(self) -> Mapping[str, str]:
        return self.table.literals()

    def needs(self) -> frozenset[str]:
        return user_types_in(column.type for column in self.table.columns)

    def apply(self, schema: Schema) -> Schema:
        if not self.lacks_table(schema):
            if self.if_not_exists:
                return schema
            raise self.refused("it exists already", mend="Add IF NOT EXISTS, or leave it out.")
        self.must(name_problem(self.table.name) or self._problem(schema))
        kept = {option: literal for option, literal in self.table.options.items() if option != "id"}
        return replace(schema, tables=put(schema.tables, replace(self.table, options=kept)))

    def _problem(self, schema: Schema) -> str:
        table = self.table
        of_columns = (column_problem(schema, column) for column in table.columns)
        statics = [column.spelling for column in table.columns if column.kind is Kind.STATIC]
        if problem := next(filter(None, of_columns), ""):
            return problem
        if statics and not table.clustering:
            return f"the column {statics[0]} is static, but the table has no clustering column"
        if len({column.is_counter for column in table.regular}) > 1:
            return "it mixes counters with other columns"
        return option_problem(table, table.literals())

    def took_effect(self, live: Schema) -> Effect:
        """Whether the table exists with the same key and columns; its options may have been changed since."""
        found = find(live.tables, self.name.spelling)
        if found is None:
            return Effect.NOT_APPLIED
        return Effect.alike(not list(table_differences(replace(self.table, options={}, compaction=None), found)))


@dataclass(frozen=True, slots=True)
class DropTable(Drop):
    """DROP TABLE: its rows and its indexes go with it."""

    verb = "DROP TABLE"
    word = "TABLE"
    held_in = "tables"
    undo = "Only a snapshot (auto_snapshot takes one at the drop) brings a dropped table back."
    dangers = (ROWS_GONE,)

    def apply(self, schema: Schema) -> Schema:
        return schema if self.if_exists and self.lacks_table(schema) else self.without(schema)

    def without(self, schema: Schema) -> Schema:
        table = self.table_in(schema)
        views = ", ".join(view.table.spelling for view in schema.views_of(table))
        if views:
            mend = "Drop them first: DROP MATERIALIZED VIEW."
            raise self.refused(f"materialized views are made of it: {views}", mend=mend)
        gone = schema.indexes_of(table)
        indexes = tuple(one for one in schema.indexes if one not in gone)
        return replace(schema, tables=without(schema.tables, table.spelling), indexes=indexes)
