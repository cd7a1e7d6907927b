"""CREATE and DROP TABLE."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mailmend.cql.schema.difference import table_differences
from mailmend.cql.schema.risk import Danger, Risk
from mailmend.cql.statements.base import Drop, Effect, NamedStatement
from mailmend.cql.statements.type_rules import column_problem, user_types_in
from mailmend.model.cql_types import parse_type
from mailmend.model.keyspace import Schema, find, put, without
from mailmend.model.names import pairs_of, text_of
from mailmend.model.table import COMPACT_STORAGE, Kind, Table

_NAME = re.compile(r"[A-Za-z0-9_]{1,207}")
NO_CLASS = "its compaction names no class"
ROWS_GONE = Danger(
    Risk.DATA_LOSS,
    "Every row of {name} is gone; only Cassandra's automatic snapshot (auto_snapshot) brings it back.",
)


def name_problem(name: str) -> str:
    """Why the name is not allowed; "" where it is."""
    if _NAME.fullmatch(name):
        return ""
    return "a name has at most 207 letters, digits and underscores, also in double quotes"


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


_INTERVALS = (("min_index_interval", 128), ("max_index_interval", 2048))
"""The two bounds of the index interval, each with its default."""


def interval_problem(options: Mapping[str, str]) -> str:
    """Why the bounds of the index interval do not fit each other; "" where they do."""
    texts = [text_of(options.get(name, str(default))) for name, default in _INTERVALS]
    if not all(text.isascii() and text.isdigit() for text in texts):
        return ""
    least, most = (int(text) for text in texts)
    return f"max_index_interval ({most}) is less than min_index_interval ({least})" if most < least else ""


def _compact_problem(table: Table) -> str:
    """Why the table cannot have COMPACT STORAGE; "" where it can."""
    if any(column.kind is Kind.STATIC for column in table.columns):
        return "a table with COMPACT STORAGE has no static columns"
    if any(parse_type(column.type).name in _MANY_CELLS for column in table.regular):
        return "a table with COMPACT STORAGE has only frozen collections"
    if table.clustering and len(table.regular) > 1:
        return "with clustering columns, COMPACT STORAGE takes one column outside the key at most"
    if not table.clustering and not table.regular:
        return "COMPACT STORAGE without clustering columns needs a column outside the key"
    return ""


_MANY_CELLS = frozenset({"list", "set", "map"})


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
        by_class = [column.spelling for column in table.columns if column.counts_by_class]
        if by_class:
            return (
                f"the column {by_class[0]} names the class of counters, where CREATE TABLE takes only the type counter"
            )
        if statics and not table.clustering:
            return f"the column {statics[0]} is static, but the table has no clustering column"
        if len({column.is_counter for column in table.regular}) > 1:
            return "it mixes counters with other columns"
        compact = _compact_problem(table) if COMPACT_STORAGE in table.options else ""
        return compact or option_problem(table, table.literals()) or interval_problem(table.options)

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
        indexes = tuple(index for index in schema.indexes if index not in gone)
        return replace(schema, tables=without(schema.tables, table.spelling), indexes=indexes)
