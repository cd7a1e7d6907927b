"""CREATE and DROP of INDEX and MATERIALIZED VIEW; names and types as a server gives them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mailmend.cql.schema.risk import Before, Danger, Risk, always
from mailmend.cql.statements.base import Compared, Drop, Effect, LeftSide, NamedStatement, makes_alike, table_of
from mailmend.cql.statements.tables import name_problem
from mailmend.cql.statements.type_rules import holds, is_user_type
from mailmend.cql.statements.write_rules import compared_problem, restricted_twice
from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Index, Schema, View, find, put, without
from mailmend.model.names import Name, columns_of, name_of, short_class, spelled, text_of
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table, spellings

_TARGET = re.compile(r"(?:(values|keys|entries|full)\()?(\"(?:[^\"]|\"\")+\"|\w+)\)?")
_BUILT_IN = frozenset({"", "legacy_local_table"})
_STORAGE_ATTACHED = frozenset({"sai", "storageattachedindex"})
QUERIES_REFUSED = Danger(Risk.BREAKING, "Queries that need {name} are refused from then on.", always)


@dataclass(frozen=True, slots=True)
class CreateIndex(NamedStatement):
    """CREATE [CUSTOM] INDEX; `name` is the table's.

    Attributes:
        is_custom: whether its text says CUSTOM; None where it was read from no text.
    """

    index: Index
    if_not_exists: bool = False
    is_custom: bool | None = field(default=None, compare=False)
    verb = "CREATE INDEX"
    creates = "index"
    harmless = "The table does not exist yet, or is empty."
    dangers = (Danger(Risk.LONG, "Every node reads all its rows to build {name}."),)

    @property
    def subject(self) -> str:
        return self.index.spelling or f"the index on {self.index.table}"

    @property
    def created(self) -> str:
        return f"index {self.index.spelling or f'on {self.index.table}'}"

    def makes(self) -> frozenset[str]:
        return frozenset({self.index.name})

    def apply(self, schema: Schema) -> Schema:
        table = self.table_in(schema)
        taken = bool(self.index.spelling) and find(schema.indexes, self.index.spelling) is not None
        if taken and self.if_not_exists:
            return schema
        self.must(self._class_problem())
        index = _named(schema, table, _as_stored(table, self.index))
        subject = f"{index.spelling} ON {self.name}"
        if taken:
            mend = "Add IF NOT EXISTS."
            raise SchemaRefused(self.verb, subject, "an index of that name exists already", mend=mend)
        problem = ""
        if self.index.spelling:
            problem = name_problem(index.name)
        if problem := problem or _problem(schema, table, index):
            raise SchemaRefused(self.verb, subject, problem)
        for other in schema.indexes_of(table):
            if _same(other, index):
                if self.if_not_exists:
                    return schema
                raise SchemaRefused(self.verb, subject, f"the index {other.spelling} is the same already")
        return replace(schema, indexes=(*schema.indexes, index))

    def _class_problem(self) -> str:
        """Why no server has the class; a class of a package is known to the server alone."""
        using = self.index.using.lower()
        if not using or "." in using or using in _STORAGE_ATTACHED:
            return ""
        if using not in _BUILT_IN:
            return f"no server has an index of class {self.index.using}"
        if self.is_custom:
            return f"{self.index.using} is the class of an index without CUSTOM"
        return ""

    def took_effect(self, live: Schema) -> Effect:
        """Whether the index exists: judged by its name, or by its target where the server chose the name."""
        if not self.index.spelling:
            return Effect.done(any(self._made(index, live) for index in live.indexes))
        found = find(live.indexes, self.index.spelling)
        if found is None:
            return Effect.NOT_APPLIED
        return Effect.alike(makes_alike(self, replace(live, indexes=without(live.indexes, found.spelling)), live))

    def _made(self, found: Index, live: Schema) -> bool:
        """Whether an index is what the statement would make, whatever its name."""
        named = replace(self, index=replace(self.index, spelling=found.spelling))
        return makes_alike(named, replace(live, indexes=without(live.indexes, found.spelling)), live)


def _as_stored(table: Table, index: Index) -> Index:
    """The index as a server lists it: with what is indexed of a collection, without the built-in class."""
    aspect, column = _aspect(table, index)
    target = index.target
    if column is not None:
        target = spelled(column.name)
        if not aspect and column.is_collection:
            aspect = "values"
        if aspect:
            target = f"{aspect}({target})"
    using = index.using
    if using.lower() in _BUILT_IN:
        using = ""
    return replace(index, table=spelled(table.name), target=target, using=using)


def _aspect(table: Table, index: Index) -> tuple[str, Column | None]:
    """(what is indexed, of which column); None where there are several columns, or none of that name."""
    found = _TARGET.fullmatch(index.target)
    if not found:
        return "", None
    return found[1] or "", find(table.columns, found[2])


def _named(schema: Schema, table: Table, index: Index) -> Index:
    """The index with the name that a server would choose: the first that is free."""
    if index.spelling:
        return index
    base = f"{table.name}_idx"
    columns = columns_of(index.target)
    if len(columns) == 1:
        middle = re.sub(r"\W", "", columns[0])
        if middle:
            base = f"{table.name}_{middle}_idx"
    spelling = spelled(base)
    number = 0
    while find(schema.indexes, spelling) is not None:
        number += 1
        spelling = spelled(f"{base}_{number}")
    return replace(index, spelling=spelling)


def _problem(schema: Schema, table: Table, index: Index) -> str:  # noqa: PLR0911 - one for each reason
    if table.has_counters:
        return "a table of counters can have no index"
    if index.options and not index.using:
        return "only an index of a class of its own has options"
    columns = columns_of(index.target)
    if not columns:
        return "it names no column"
    unknown = [name for name in columns if name not in table]
    if unknown:
        return f"the table has no column {unknown[0]}"
    if len(columns) > 1:
        if index.using:
            return ""
        return "only indexes of a class of their own can have several columns"
    aspect, column = _aspect(table, index)
    if column is None:
        return f"{index.target} is nothing that can be indexed"
    problem = _column_problem(schema, table, column, aspect)
    if is_attached(index):
        return problem or _attached_problem(schema, table, column, index)
    if COMPACT_STORAGE in table.options and (column.in_key or table.clustering):
        return f"no index can be on {column.spelling}, as the table has COMPACT STORAGE"
    return problem


_ATTACHED_OPTIONS = frozenset(
    {"case_sensitive", "normalize", "ascii", "similarity_function", "optimize_for"}
    | {"maximum_node_connections", "construction_beam_width"}
)


def _attached_problem(schema: Schema, table: Table, column: Column, index: Index) -> str:
    """Why no storage-attached index can be made of the column with these options."""
    for other in schema.indexes_of(table):
        if is_attached(other) and other.target == index.target:
            return f"{index.target} has a storage-attached index already: {other.spelling}"
    for option in index.options:
        if option not in _ATTACHED_OPTIONS:
            return f"a storage-attached index has no option {option}"
    parsed = parse_type(column.type)
    if parsed.name == "vector" and parsed.arguments[0].name != "float":
        return f"{column.spelling} is of {column.type}: such an index takes only vectors of floats"
    inside: tuple[CqlType, ...] = (parsed,)
    if parsed.name in {"list", "set", "map"}:
        inside = parsed.arguments
    if CqlType("blob") in inside:
        return f"{column.spelling} holds blobs, which no such index takes"
    return ""


def _column_problem(schema: Schema, table: Table, column: Column, aspect: str) -> str:
    parsed = parse_type(column.type)
    if column.kind is Kind.PARTITION and len(table.partition) == 1:
        return f"{column.spelling} is the whole partition key, by which rows are found anyway"
    if is_user_type(parsed):
        return f"{column.spelling} is of a user type that is not frozen"
    if parsed.name.startswith("'"):
        return ""
    if holds(schema, parsed, "duration"):
        return f"{column.spelling} holds durations, which have no order"
    if aspect in {"keys", "entries"} and parsed.name != "map":
        return f"{aspect}() is for maps that are not frozen, {column.spelling} is {column.type}"
    return _collection_problem(column, aspect)


def _collection_problem(column: Column, aspect: str) -> str:
    parsed = parse_type(column.type)
    frozen = parsed.name == "frozen" and parsed.arguments[0].name in {"list", "set", "map"}
    if frozen and aspect != "full":
        return f"{column.spelling} is frozen, so only full({column.spelling}) can be indexed"
    if aspect == "full" and not frozen:
        return f"full() is for frozen collections, {column.spelling} is {column.type}"
    if aspect == "values" and not column.is_collection:
        return f"values() is for collections, {column.spelling} is {column.type}"
    return ""


def is_attached(index: Index) -> bool:
    return short_class(index.using).lower() in _STORAGE_ATTACHED


def _same(one: Index, other: Index) -> bool:
    return (one.target, one.using, dict(one.options)) == (other.target, other.using, dict(other.options))


@dataclass(frozen=True, slots=True)
class DropIndex(Drop):
    """DROP INDEX."""

    verb = "DROP INDEX"
    word = "INDEX"
    held_in = "indexes"
    dangers = (QUERIES_REFUSED,)


@dataclass(frozen=True, slots=True)
class CreateView(NamedStatement):
    """CREATE MATERIALIZED VIEW.

    Attributes:
        compared: the conditions of its WHERE, where it was read from a text.
        unselected: the columns of its key that its text does not select.
    """

    view: View
    if_not_exists: bool = False
    compared: tuple[Compared, ...] = field(default=(), compare=False)
    unselected: tuple[str, ...] = field(default=(), compare=False)
    verb = "CREATE MATERIALIZED VIEW"
    creates = "view"
    harmless = "The base table does not exist yet, or is empty."
    defines_table = True

    @property
    def options_set(self) -> Mapping[str, str]:
        return self.view.table.literals()

    @property
    def base(self) -> Name:
        return replace(self.name, spelling=self.view.base)

    def _base_is_live(self, before: Before) -> bool:
        return before.holds(self.base)

    dangers = (
        Danger(
            Risk.LONG,
            "Every node reads all rows of the base table to build {name}; views are experimental and have no check of "
            "their own.",
            _base_is_live,
        ),
    )

    def needs(self) -> frozenset[str]:
        return frozenset({name_of(self.view.base)})

    def apply(self, schema: Schema) -> Schema:
        base = table_of(schema, self.base, f"{self.verb} {self.name} AS SELECT FROM")
        if not self.lacks_table(schema):
            if self.if_not_exists:
                return schema
            raise self.refused("it exists already", mend="Add IF NOT EXISTS, or leave it out.")
        view = self.view
        self.must(name_problem(view.name) or _base_problem(base, view) or _key_problem(base, view, self.compared))
        self.must(_condition_problem(schema, base, self.compared))
        if self.unselected:
            raise self.refused(f"its key names {self.unselected[0]}, which it does not select")
        return replace(schema, views=put(schema.views, replace(view, table=_typed(base, view))))

    def took_effect(self, live: Schema) -> Effect:
        """Whether the view exists; types of its columns are taken from the live base table."""
        if find(live.views, self.view.table.spelling) is None:
            return Effect.NOT_APPLIED
        return Effect.alike(makes_alike(self, replace(live, views=without(live.views, self.view.table.spelling)), live))


def _base_problem(base: Table, view: View) -> str:
    for column in view.table.columns:
        if column.name not in base:
            return f"its base {base.spelling} has no column {column.spelling}"
    if base.has_counters:
        return "no view can be made of counters"
    selected = base.names
    if not view.all_columns:
        selected = view.table.names
    for column in map(base.column, selected):
        if column.kind is Kind.STATIC:
            return f"{column.spelling} is static, which no view can hold"
    if text_of(base.options.get("gc_grace_seconds", "")) == "0":
        return "gc_grace_seconds of its base is 0, so updates that were not delivered would be lost"
    if text_of(view.table.options.get("default_time_to_live", "0")) != "0":
        return "rows of a view expire with the rows of its base table: set default_time_to_live there"
    return ""


def _condition_problem(schema: Schema, base: Table, compared: Sequence[Compared]) -> str:
    """Why the view cannot have these conditions; they name columns of its key."""
    for relation in compared:
        column = base.column(relation.columns[0])
        if relation.left is LeftSide.TOKEN:
            return "its condition compares a token, which only SELECT does"
        if relation.operator in {"!=", "LIKE"}:
            return f"its condition has {relation.operator}, which no view takes"
        if not column.in_key and relation.operator != "IS NOT NULL":
            return f"its condition must say that {column.spelling} IS NOT NULL, and nothing else of it"
        if problem := compared_problem(relation, schema, base):
            return problem
    restricting = [relation for relation in compared if relation.operator != "IS NOT NULL"]
    twice = restricted_twice(restricting)
    if twice:
        return f"its condition restricts {twice} twice"
    return ""


def _key_problem(base: Table, view: View, compared: Sequence[Compared]) -> str:
    names = view.table.key_names
    lacking = spellings(column for column in base.key if column.name not in names)
    if lacking:
        return f"its key lacks {lacking}, which is part of the key of {base.spelling}"
    added = [name for name in names if not base.column(name).in_key]
    if len(added) > 1:
        return f"its key has {' and '.join(added)}, but only one column outside the key of {base.spelling} can be in it"
    collections = [name for name in names if base.column(name).is_collection]
    if collections:
        return f"{base.column(collections[0]).spelling} is a collection, which cannot be part of its key"
    restricted: list[str] = []
    for relation in compared:
        restricted.extend(relation.columns)
    if not restricted:
        restricted.extend(columns_of(view.where))
    for name in names:
        if name not in restricted:
            return f"its condition must say that {name} IS NOT NULL"
    for name in restricted:
        if name not in names:
            return f"its condition speaks of {name}, which is not in its key"
    return ""


def _typed(base: Table, view: View) -> Table:
    """The view's columns with the types of the base; all of them for `SELECT *`."""
    columns = []
    for column in view.table.columns:
        columns.append(_column(base, column))
    if view.all_columns:
        for column in base.columns:
            if column.name not in view.table.names:
                columns.append(_column(base, replace(column, descending=False)))
    return view.table.with_columns(columns)


def _column(base: Table, column: Column) -> Column:
    own = base.column(column.name)
    kind = Kind.REGULAR
    if column.in_key:
        kind = column.kind
    return Column(own.spelling, own.type, kind, descending=column.descending, mask=own.mask)


@dataclass(frozen=True, slots=True)
class DropView(Drop):
    """DROP MATERIALIZED VIEW."""

    verb = "DROP MATERIALIZED VIEW"
    word = "MATERIALIZED VIEW"
    held_in = "views"
    dangers = (QUERIES_REFUSED,)
