"""CREATE and DROP MATERIALIZED VIEW: a view's columns get their types from its base."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mailmend.cql.schema.risk import Before, Danger, Risk
from mailmend.cql.statements.base import Drop, Effect, NamedStatement, makes_alike, table_of
from mailmend.cql.statements.indexes import QUERIES_REFUSED
from mailmend.cql.statements.relations import Compared, LeftSide
from mailmend.cql.statements.tables import name_problem
from mailmend.cql.statements.write_rules import compared_problem, restricted_twice
from mailmend.model.keyspace import Schema, View, find, put, without
from mailmend.model.names import Name, columns_of, name_of, text_of
from mailmend.model.table import Column, Kind, Table


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
