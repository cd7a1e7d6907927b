"""CREATE and DROP of INDEX and MATERIALIZED VIEW; names and types as a server gives them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from mailmend.cql.schema.risk import Before, Danger, Risk, always
from mailmend.cql.statements.base import Drop, Effect, NamedStatement, makes_alike, table_of
from mailmend.cql.statements.relations import Compared, LeftSide
from mailmend.cql.statements.tables import name_problem
from mailmend.cql.statements.type_rules import holds, is_user_type
from mailmend.cql.statements.write_rules import compared_problem, restricted_twice
from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Index, Schema, View, find, put, without
from mailmend.model.names import Name, columns_of, name_of, short_class, spelled, text_of
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table

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
        problem = name_problem(index.name) if self.index.spelling else ""
        if problem := problem or _problem(schema, table, index):
            raise SchemaRefused(self.verb, subject, problem)
        same = next((other.spelling for other in schema.indexes_of(table) if _same(other, index)), "")
        if same and self.if_not_exists:
            return schema
        if same:
            raise SchemaRefused(self.verb, subject, f"the index {same} is the same already")
        return replace(schema, indexes=(*schema.indexes, index))

    def _class_problem(self) -> str:
        """Why no server has the class; a class of a package is known to the server alone."""
        using = self.index.using.lower()
        if not using or "." in using or using in _STORAGE_ATTACHED:
            return ""
        if using in _BUILT_IN:
            return f"{self.index.using} is the class of an index without CUSTOM" if self.is_custom else ""
        return f"no server has an index of class {self.index.using}"

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
        own = spelled(column.name)
        aspect = aspect or ("values" if column.is_collection else "")
        target = f"{aspect}({own})" if aspect else own
    using = "" if index.using.lower() in _BUILT_IN else index.using
    return replace(index, table=spelled(table.name), target=target, using=using)


def _aspect(table: Table, index: Index) -> tuple[str, Column | None]:
    """(what is indexed, of which column); None where there are several columns, or none of that name."""
    found = _TARGET.fullmatch(index.target)
    return (found[1] or "", find(table.columns, found[2])) if found else ("", None)


def _named(schema: Schema, table: Table, index: Index) -> Index:
    """The index with the name that a server would choose: the first that is free."""
    if index.spelling:
        return index
    columns = columns_of(index.target)
    middle = re.sub(r"\W", "", columns[0]) if len(columns) == 1 else ""
    base = f"{table.name}_{middle}_idx" if middle else f"{table.name}_idx"
    names = (spelled(base if number == 0 else f"{base}_{number}") for number in count())
    return replace(index, spelling=next(name for name in names if find(schema.indexes, name) is None))


def _problem(schema: Schema, table: Table, index: Index) -> str:  # noqa: PLR0911 - one for each reason
    if any(column.is_counter for column in table.columns):
        return "a table of counters can have no index"
    if index.options and not index.using:
        return "only an index of a class of its own has options"
    columns = columns_of(index.target)
    unknown = [name for name in columns if name not in table]
    if unknown or not columns:
        return f"the table has no column {unknown[0]}" if unknown else "it names no column"
    if len(columns) > 1:
        return "only indexes of a class of their own can have several columns" if not index.using else ""
    aspect, column = _aspect(table, index)
    if column is None:
        return f"{index.target} is nothing that can be indexed"
    attached = [
        other.spelling for other in schema.indexes_of(table) if is_attached(other) and other.target == index.target
    ]
    second = f"{index.target} has a storage-attached index already: {attached[0]}" if attached else ""
    if is_attached(index):
        return _column_problem(schema, table, column, aspect) or second or _attached_problem(column, index)
    if COMPACT_STORAGE in table.options and (column.in_key or table.clustering):
        return f"no index can be on {column.spelling}, as the table has COMPACT STORAGE"
    return _column_problem(schema, table, column, aspect)


_ATTACHED_OPTIONS = frozenset(
    {"case_sensitive", "normalize", "ascii", "similarity_function", "optimize_for"}
    | {"maximum_node_connections", "construction_beam_width"}
)


def _attached_problem(column: Column, index: Index) -> str:
    """Why no storage-attached index can be made of the column with these options."""
    unknown = [name for name in index.options if name not in _ATTACHED_OPTIONS]
    if unknown:
        return f"a storage-attached index has no option {unknown[0]}"
    parsed = parse_type(column.type)
    if parsed.name == "vector" and parsed.arguments[0].name != "float":
        return f"{column.spelling} is of {column.type}: such an index takes only vectors of floats"
    inside = parsed.arguments if parsed.name in {"list", "set", "map"} else (parsed,)
    return f"{column.spelling} holds blobs, which no such index takes" if CqlType("blob") in inside else ""


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
        self.must(f"its key names {self.unselected[0]}, which it does not select" if self.unselected else "")
        return replace(schema, views=put(schema.views, replace(view, table=_typed(base, view))))

    def took_effect(self, live: Schema) -> Effect:
        """Whether the view exists; types of its columns are taken from the live base table."""
        if find(live.views, self.view.table.spelling) is None:
            return Effect.NOT_APPLIED
        return Effect.alike(makes_alike(self, replace(live, views=without(live.views, self.view.table.spelling)), live))


def _base_problem(base: Table, view: View) -> str:
    unknown = [column.spelling for column in view.table.columns if column.name not in base]
    if unknown:
        return f"its base {base.spelling} has no column {unknown[0]}"
    if any(column.is_counter for column in base.columns):
        return "no view can be made of counters"
    selected = base.columns if view.all_columns else [base.column(column.name) for column in view.table.columns]
    statics = [column.spelling for column in selected if column.kind is Kind.STATIC]
    if statics:
        return f"{statics[0]} is static, which no view can hold"
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
    twice = restricted_twice([relation for relation in compared if relation.operator != "IS NOT NULL"])
    return f"its condition restricts {twice} twice" if twice else ""


def _key_problem(base: Table, view: View, compared: Sequence[Compared]) -> str:
    names = [column.name for column in view.table.key]
    lacking = [column.spelling for column in base.key if column.name not in names]
    if lacking:
        return f"its key lacks {', '.join(lacking)}, which is part of the key of {base.spelling}"
    added = [name for name in names if not base.column(name).in_key]
    if len(added) > 1:
        return f"its key has {' and '.join(added)}, but only one column outside the key of {base.spelling} can be in it"
    restricted = tuple(name for relation in compared for name in relation.columns) or columns_of(view.where)
    collections = [name for name in names if base.column(name).is_collection]
    if collections:
        return f"{base.column(collections[0]).spelling} is a collection, which cannot be part of its key"
    free = [name for name in names if name not in restricted]
    if free:
        return f"its condition must say that {free[0]} IS NOT NULL"
    outside = [name for name in restricted if name not in names]
    return f"its condition speaks of {outside[0]}, which is not in its key" if outside else ""


def _typed(base: Table, view: View) -> Table:
    """The view's columns with the types of the base; all of them for `SELECT *`."""
    chosen = list(view.table.columns)
    if view.all_columns:
        chosen += [replace(column, descending=False) for column in base.columns if column.name not in view.table.names]
    return view.table.with_columns(_column(base, column) for column in chosen)


def _column(base: Table, column: Column) -> Column:
    own = base.column(column.name)
    kind = column.kind if column.in_key else Kind.REGULAR
    return Column(own.spelling, own.type, kind, descending=column.descending, mask=own.mask)


@dataclass(frozen=True, slots=True)
class DropView(Drop):
    """DROP MATERIALIZED VIEW."""

    verb = "DROP MATERIALIZED VIEW"
    word = "MATERIALIZED VIEW"
    held_in = "views"
    dangers = (QUERIES_REFUSED,)
