"""CREATE, DROP and ALTER ... WITH of TABLE; ALTER MATERIALIZED VIEW ... WITH; DROP COMPACT STORAGE."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mailmend.cql.schema.difference import differences, option_says, table_differences
from mailmend.cql.schema.risk import Before, Danger, Risk
from mailmend.cql.statements.base import Drop, Effect, NamedStatement, Statement
from mailmend.cql.statements.type_rules import column_problem, user_types_in
from mailmend.model.cql_types import parse_type
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Schema, find, put, without
from mailmend.model.names import pairs_of, text_of
from mailmend.model.table import COMPACT_STORAGE, Kind, Table, spellings, types_of
from mailmend.model.texts import is_digits

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
    if expires and table.has_counters:
        return "counters never expire, so the table cannot have default_time_to_live"
    return ""


_INTERVALS = (("min_index_interval", 128), ("max_index_interval", 2048))
"""The two bounds of the index interval, each with its default."""


def interval_problem(options: Mapping[str, str]) -> str:
    """Why the bounds of the index interval do not fit each other; "" where they do."""
    texts = []
    for name, default in _INTERVALS:
        text = text_of(options.get(name, str(default)))
        if not is_digits(text):
            return ""
        texts.append(text)
    least, most = map(int, texts)
    if most >= least:
        return ""
    return f"max_index_interval ({most}) is less than min_index_interval ({least})"


def _compact_problem(table: Table) -> str:
    """Why the table cannot have COMPACT STORAGE; "" where it can."""
    for column in table.columns:
        if column.kind is Kind.STATIC:
            return "a table with COMPACT STORAGE has no static columns"
    for column in table.regular:
        if parse_type(column.type).name in _MANY_CELLS:
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
        return user_types_in(types_of(self.table.columns))

    def apply(self, schema: Schema) -> Schema:
        if not self.lacks_table(schema):
            if self.if_not_exists:
                return schema
            raise self.refused("it exists already", mend="Add IF NOT EXISTS, or leave it out.")
        self.must(name_problem(self.table.name) or self._problem(schema))
        kept = dict(self.table.options)
        kept.pop("id", None)
        return replace(schema, tables=put(schema.tables, replace(self.table, options=kept)))

    def _problem(self, schema: Schema) -> str:
        table = self.table
        for column in table.columns:
            if problem := column_problem(schema, column):
                return problem
        for column in table.columns:
            if column.counts_by_class:
                name = column.spelling
                return f"the column {name} names the class of counters, where CREATE TABLE takes only the type counter"
        for column in table.columns:
            if column.kind is Kind.STATIC and not table.clustering:
                return f"the column {column.spelling} is static, but the table has no clustering column"
        if len({column.is_counter for column in table.regular}) > 1:
            return "it mixes counters with other columns"
        problem = ""
        if COMPACT_STORAGE in table.options:
            problem = _compact_problem(table)
        return problem or option_problem(table, table.literals()) or interval_problem(table.options)

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
        if self.if_exists and self.lacks_table(schema):
            return schema
        return self.without(schema)

    def without(self, schema: Schema) -> Schema:
        table = self.table_in(schema)
        views = spellings(schema.views_of(table))
        if views:
            mend = "Drop them first: DROP MATERIALIZED VIEW."
            raise self.refused(f"materialized views are made of it: {views}", mend=mend)
        gone = schema.indexes_of(table)
        indexes = tuple(index for index in schema.indexes if index not in gone)
        return replace(schema, tables=without(schema.tables, table.spelling), indexes=indexes)


_LIGHT_COMPACTION = frozenset(
    {
        "enabled",
        "log_all",
        "max_threshold",
        "min_threshold",
        "only_purge_repaired_tombstones",
        "provide_overlapping_tombstones",
        "tombstone_compaction_interval",
        "tombstone_threshold",
        "unchecked_tombstone_compaction",
        "unsafe_aggressive_sstable_expiration",
    }
)
"""Compaction options that only affect later compactions."""

_NOTHING_REWRITTEN = "It applies to new data; no SSTable is rewritten."


def _seconds(literal: str) -> float:
    """The number in a literal; unknown ones count as infinite, so that anything is below them."""
    try:
        return float(text_of(literal))
    except ValueError:
        return math.inf


@dataclass(frozen=True, slots=True)
class SetOptions(NamedStatement):
    """ALTER TABLE ... WITH; values are literals, `comment` and `compaction` among them."""

    options: Mapping[str, str]
    if_exists: bool = False
    verb = "ALTER TABLE WITH"
    undo = "Set the option back to what DESCRIBE TABLE shows now; the table is rewritten once more."
    harmless = _NOTHING_REWRITTEN
    defines_table = True

    @property
    def options_set(self) -> Mapping[str, str]:
        return self.options

    def apply(self, schema: Schema) -> Schema:
        """The schema after the statement; options are checked before the table's existence, as servers do."""
        if names_no_class(self.options):
            raise self.refused(NO_CLASS)
        if self.if_exists and self.lacks_table(schema):
            return schema
        table = self.table_in(schema)
        self.must(self._problem(schema, table))
        return replace(schema, tables=put(schema.tables, table.with_options(self.options)))

    def _problem(self, schema: Schema, table: Table) -> str:
        if "id" in self.options:
            return "the id of a table cannot be changed"
        if schema.views_of(table) and text_of(self.options.get("gc_grace_seconds", "")) == "0":
            return "materialized views are made of it, so gc_grace_seconds cannot be 0"
        problem = option_problem(table, self.options)
        if not problem and "max_index_interval" in self.options:
            return interval_problem({**table.options, **self.options})
        return problem

    def took_effect(self, live: Schema) -> Effect:
        try:
            after = self.apply(live)
        except SchemaRefused:
            return Effect.DIFFERENT
        return Effect.done(not differences(after, live) and _comments(after) == _comments(live))

    def may_not_have_run(self, live: Schema) -> bool:
        return self.took_effect(live) is not Effect.APPLIED

    def remaining(self, live: Schema) -> Statement | None:
        table = find(live.tables, self.name.spelling)
        if table is None:
            return None
        found = table.literals(comment=False)
        due = {}
        for option, value in self.options.items():
            if not option_says(value, found.get(option, "")):
                due[option] = value
        if not due:
            return None
        return replace(self, options=due)

    def _expires_sooner(self, before: Before) -> bool:
        """0 means never, and counts as the greatest."""
        wanted, found = self._numbers(before, "default_time_to_live")
        return (wanted or math.inf) < (found or math.inf)

    def _forgets_sooner(self, before: Before) -> bool:
        wanted, found = self._numbers(before, "gc_grace_seconds")
        return wanted < found

    def _numbers(self, before: Before, option: str) -> tuple[float, float]:
        """(new, present) value: any is below an unknown present one; an option that is not set changes nothing."""
        if option not in self.options or not before.holds(self.name):
            return math.inf, math.inf
        return _seconds(self.options[option]), _seconds(before.option(self.name, option))

    def _recompacts(self, before: Before) -> bool:
        return bool(self._changed_pairs(before, "compaction") - _LIGHT_COMPACTION)

    def _recompresses(self, before: Before) -> bool:
        return bool(self._changed_pairs(before, "compression"))

    def _changed_pairs(self, before: Before, option: str) -> frozenset[str]:
        """Pairs of a map that would change: a map is replaced as a whole, so those left out count too."""
        if option not in self.options or not before.holds(self.name):
            return frozenset()
        wanted = pairs_of(self.options[option])
        found = pairs_of(before.option(self.name, option))
        return frozenset(pair for pair, _ in wanted.items() ^ found.items())

    def _expires_unsafely(self, _: Before) -> bool:
        option = pairs_of(self.options.get("compaction", "")).get("unsafe_aggressive_sstable_expiration", "")
        return option.lower() == "true"

    def _stops_read_repair(self, before: Before) -> bool:
        wanted = self.options.get("read_repair", "").strip("'").upper()
        return wanted == "NONE" and before.option(self.name, "read_repair").strip("'").upper() != "NONE"

    dangers = (
        Danger(
            Risk.DATA_LOSS,
            "Rows written to {name} from then on expire sooner than before; existing rows keep their own time to live.",
            _expires_sooner,
        ),
        Danger(
            Risk.RESURRECTION,
            "Tombstones of {name} are purged sooner: a row that was deleted comes back when a replica missed the "
            "deletion and no repair ran within the new gc_grace_seconds.",
            _forgets_sooner,
        ),
        Danger(
            Risk.RESURRECTION,
            "SSTables of {name} are dropped without a check for overlaps: deleted and overwritten rows come back.",
            _expires_unsafely,
        ),
        Danger(
            Risk.STALE,
            "Without blocking read repair two reads of {name} at QUORUM may answer the newer value first and the older "
            "one after it.",
            _stops_read_repair,
        ),
        Danger(
            Risk.REWRITE,
            "Every SSTable of {name} is rewritten under the new strategy, on every node: disk and I/O for the "
            "size of the table.",
            _recompacts,
        ),
        Danger(
            Risk.REWRITE,
            "New SSTables of {name} are compressed the new way; the old ones when they are compacted, or all at once "
            "by nodetool upgradesstables -a, which rewrites the whole table.",
            _recompresses,
        ),
    )


@dataclass(frozen=True, slots=True)
class SetViewOptions(SetOptions):
    """ALTER MATERIALIZED VIEW ... WITH."""

    verb = "ALTER MATERIALIZED VIEW WITH"

    def apply(self, schema: Schema) -> Schema:
        if names_no_class(self.options):
            raise self.refused(NO_CLASS)
        view = find(schema.views, self.name.spelling)
        if view is None:
            if not self.if_exists:
                raise self.refused("there is no such materialized view")
            return schema
        if text_of(self.options.get("gc_grace_seconds", "")) == "0":
            raise self.refused("gc_grace_seconds of a view cannot be 0: updates that were not delivered live as long")
        if text_of(self.options.get("default_time_to_live", "0")) != "0":
            raise self.refused("rows of a view expire with the rows of its base table: set default_time_to_live there")
        self.must(option_problem(view.table, self.options))
        return replace(schema, views=put(schema.views, replace(view, table=view.table.with_options(self.options))))


@dataclass(frozen=True, slots=True)
class DropCompactStorage(NamedStatement):
    """ALTER TABLE ... DROP COMPACT STORAGE."""

    if_exists: bool = False
    verb = "ALTER TABLE DROP COMPACT STORAGE"
    harmless = _NOTHING_REWRITTEN
    defines_table = True

    @property
    def options_set(self) -> Mapping[str, str]:
        return {COMPACT_STORAGE: "false"}

    def apply(self, schema: Schema) -> Schema:
        if self.if_exists and self.lacks_table(schema):
            return schema
        table = self.table_in(schema)
        if COMPACT_STORAGE not in table.options:
            raise self.refused("it has no compact storage")
        kept = dict(table.options)
        del kept[COMPACT_STORAGE]
        return replace(schema, tables=put(schema.tables, replace(table, options=kept)))

    def took_effect(self, live: Schema) -> Effect:
        table = find(live.tables, self.name.spelling)
        if table is None:
            return Effect.alike(self.if_exists)
        return Effect.done(COMPACT_STORAGE not in table.options)

    def may_not_have_run(self, live: Schema) -> bool:
        return self.took_effect(live) is not Effect.APPLIED


def _comments(schema: Schema) -> list[str]:
    comments = [table.comment for table in schema.tables]
    for view in schema.views:
        comments.append(view.table.comment)
    return comments
