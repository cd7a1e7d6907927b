"""The statements that turn a live schema into the expected one, each with its risk and its reason.

What CQL cannot change (a key, an order, a column's type) becomes a manual change with instructions. Two kinds of
changes are proposed only on request: options, because they may rewrite tables, and the removal of unexpected objects,
because they may belong to another application.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from enum import Enum

from mailmend.cql.schema.difference import Aspect, Difference, differences, options_among, with_lifetimes
from mailmend.cql.schema.risk import Assessment, Risk
from mailmend.cql.statements import (
    AddColumns,
    AddField,
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    DropColumns,
    DropIndex,
    DropTable,
    DropType,
    DropView,
    MaskColumn,
    Name,
    SetOptions,
    SetViewOptions,
    Statement,
)
from mailmend.model.cql_types import names_in, normal_type
from mailmend.model.errors import SchemaRefused
from mailmend.model.keyspace import Schema, all_but, by_name
from mailmend.model.names import name_of
from mailmend.model.table import Column, Table, UserType


class Include(Enum):
    """Kinds of changes that are proposed only on request."""

    OPTIONS = "options"
    REMOVALS = "removals"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One step towards the expected schema.

    Attributes:
        owner: the table, type, index or view that is changed.
        statement: the statement that makes the change; None where no statement can.
        manual: instructions for a person, where no statement can make the change; else "".
    """

    owner: str
    statement: Statement | None
    assessment: Assessment
    manual: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """An expected schema and a live one, and which changes may be proposed.

    Attributes:
        rebuildable: tables (by spelling) whose rows `mailmend repair` can write again.
    """

    expected: Schema
    live: Schema
    include: frozenset[Include] = frozenset()
    rebuildable: frozenset[str] = frozenset()
    found: tuple[Difference, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expected", with_lifetimes(self.expected, self.live))
        object.__setattr__(self, "found", differences(self.expected, self.live))

    def of(self, *aspects: Aspect) -> Iterator[Difference]:
        return (difference for difference in self.found if difference.aspect in aspects)

    def owners(self, *aspects: Aspect) -> frozenset[str]:
        """The names of the tables, types and views that differ in one of these aspects."""
        return frozenset(name_of(difference.owner) for difference in self.of(*aspects))

    @property
    def removes(self) -> bool:
        return Include.REMOVALS in self.include

    def step(self, owner: str, statement: Statement) -> SchemaChange:
        return SchemaChange(owner, statement, statement.assess(self.live))


def changes(gap: Gap) -> tuple[SchemaChange, ...]:
    """The changes from the live schema to the expected one, in an order in which they can run.

    Each statement is first applied to the live schema as a value; one that the server would refuse becomes manual.
    """
    return tuple(_rehearsed(gap.live, _steps(gap)))


def _steps(gap: Gap) -> Iterator[SchemaChange]:
    types = tuple(_types(gap))
    tables = tuple(_tables(gap))
    waiting = set()
    for change in tables:
        if change.manual:
            waiting.add(name_of(change.owner))
    yield from _drops_of_views_and_indexes(gap, waiting)
    yield from types
    yield from tables
    yield from _creations_of_indexes_and_views(gap, waiting)
    if gap.removes:
        yield from _drops_of_tables_and_types(gap)


def _rehearsed(schema: Schema, steps: Iterator[SchemaChange]) -> Iterator[SchemaChange]:
    for step in steps:
        try:
            if step.statement:
                schema = step.statement.apply(schema)
        except SchemaRefused as refused:
            yield _manual(step.owner, _REFUSED.format(what=refused.what))
        else:
            yield step


def _manual(owner: str, how: str) -> SchemaChange:
    return SchemaChange(owner, None, Assessment((Risk.NONE,), "CQL has no statement for it; nothing runs."), how)


def _drops_of_views_and_indexes(gap: Gap, waiting: Container[str]) -> Iterator[SchemaChange]:
    """First of all: a column with a view or an index on it cannot be dropped."""
    views = {Aspect.DIFFERENT_VIEW}
    indexes = {Aspect.DIFFERENT_INDEX}
    if gap.removes:
        views.add(Aspect.UNEXPECTED_VIEW)
        indexes.add(Aspect.UNEXPECTED_INDEX)
    expected = by_name(gap.expected.views)
    for difference in gap.of(*views):
        view = expected.get(name_of(difference.owner))
        if view is None or name_of(view.base) not in waiting:
            yield gap.step(difference.owner, DropView(Name(difference.owner)))
    for difference in gap.of(*indexes):
        if difference.aspect is Aspect.UNEXPECTED_INDEX or name_of(difference.owner) not in waiting:
            yield gap.step(difference.owner, DropIndex(Name(difference.subject)))


def _creations_of_indexes_and_views(gap: Gap, waiting: Container[str]) -> Iterator[SchemaChange]:
    """The changes of a table that is changed by hand wait for that: on the present table they would differ."""
    lacking = set()
    for difference in gap.of(Aspect.MISSING_INDEX, Aspect.DIFFERENT_INDEX):
        lacking.add(name_of(difference.subject))
    for index in gap.expected.indexes:
        if name_of(index.spelling) in lacking and name_of(index.table) in waiting:
            yield _manual(index.table, _WAITS.format(name=index.spelling, table=index.table))
        elif name_of(index.spelling) in lacking:
            yield gap.step(index.table, CreateIndex(Name(index.table), index))
    lacking_views = gap.owners(Aspect.MISSING_VIEW, Aspect.DIFFERENT_VIEW)
    for view in gap.expected.views:
        if view.table.name in lacking_views and name_of(view.base) in waiting:
            yield _manual(view.table.spelling, _WAITS.format(name=view.table.spelling, table=view.base))
        elif view.table.name in lacking_views:
            yield gap.step(view.table.spelling, CreateView(Name(view.table.spelling), view))
        else:
            yield from _options(gap, view.table, SetViewOptions)


def _types(gap: Gap) -> Iterator[SchemaChange]:
    """In the expected order: each type before those that use it."""
    for wanted in gap.expected.types:
        found = gap.live.user_type(wanted.name)
        if found is None:
            yield gap.step(wanted.spelling, CreateType(Name(wanted.spelling), wanted))
        elif wanted.normal_fields != found.normal_fields:
            yield from _fields_added(gap, wanted, found)


def _fields_added(gap: Gap, wanted: UserType, found: UserType) -> Iterator[SchemaChange]:
    """Fields can only be added at the end, and only while no key holds the type."""
    count = len(found.fields)
    if wanted.normal_fields[:count] != found.normal_fields or _is_in_a_key(found, gap.live):
        yield _manual(wanted.spelling, _TYPE_BY_HAND.format(name=wanted.spelling))
        return
    for name, text in wanted.fields[count:]:
        yield gap.step(wanted.spelling, AddField(Name(wanted.spelling), name, text))


def _is_in_a_key(user_type: UserType, schema: Schema) -> bool:
    for table in schema.tables:
        for column in table.key:
            if user_type.name in names_in(column.type):
                return True
    return False


def _tables(gap: Gap) -> Iterator[SchemaChange]:
    keyed_otherwise = gap.owners(Aspect.DIFFERENT_KEY, Aspect.DIFFERENT_ORDER)
    for wanted in gap.expected.tables:
        found = gap.live.table(wanted.name)
        if found is None:
            yield gap.step(wanted.spelling, CreateTable(Name(wanted.spelling), wanted))
        elif wanted.name in keyed_otherwise or _becomes_counters(wanted, found):
            yield _manual(wanted.spelling, _table_by_hand(gap, wanted))
        else:
            yield from _columns(gap, wanted, found)
            yield from _options(gap, wanted)


def _becomes_counters(wanted: Table, found: Table) -> bool:
    """Whether only the wanted one counts: counters need tables of their own."""
    return _counts(wanted) is not _counts(found)


def _counts(table: Table) -> bool:
    return any(column.is_counter for column in table.columns)


def _columns(gap: Gap, wanted: Table, found: Table) -> Iterator[SchemaChange]:
    unexpected = all_but(found.columns, wanted.names)
    if unexpected and gap.removes:
        spellings = tuple(column.spelling for column in unexpected)
        yield gap.step(wanted.spelling, DropColumns(Name(wanted.spelling), spellings))
    once = by_name(found.dropped)
    added = []
    refused = []
    for column in all_but(wanted.columns, found.names):
        if once.get(column.name, column).shape == column.shape:
            added.append(column)
        else:
            refused.append(column)
    if added:
        yield gap.step(wanted.spelling, AddColumns(Name(wanted.spelling), tuple(added)))
    for column in refused:
        yield _manual(wanted.spelling, _column_by_hand(gap, wanted, column, once[column.name]))
    for column in wanted.columns:
        if column.name in found and column.shape != found.column(column.name).shape:
            yield _manual(wanted.spelling, _column_by_hand(gap, wanted, column, found.column(column.name)))
        elif column.name in found and column.mask != found.column(column.name).mask:
            yield gap.step(wanted.spelling, MaskColumn(Name(wanted.spelling), column.spelling, column.mask))


def _options(gap: Gap, wanted: Table, kind: type[SetOptions] = SetOptions) -> Iterator[SchemaChange]:
    """One statement for all of a table's options: each ALTER changes the schema on every node."""
    names = set()
    for difference in gap.of(Aspect.DIFFERENT_OPTION):
        if difference.owner == wanted.spelling:
            names.add(difference.subject)
    declared = {**wanted.options, **wanted.literals(comment=False)}
    if names and Include.OPTIONS in gap.include:
        literals = options_among(declared, names)
        yield gap.step(wanted.spelling, kind(Name(wanted.spelling), literals))


def _drops_of_tables_and_types(gap: Gap) -> Iterator[SchemaChange]:
    """Types last, each before those that it uses; one that a column still has cannot go."""
    for difference in gap.of(Aspect.UNEXPECTED_TABLE):
        yield gap.step(difference.owner, DropTable(Name(difference.owner)))
    unexpected = gap.owners(Aspect.UNEXPECTED_TYPE)
    for user_type in reversed(gap.live.types):
        if user_type.name in unexpected:
            yield gap.step(user_type.spelling, DropType(Name(user_type.spelling)))


def _table_by_hand(gap: Gap, table: Table) -> str:
    text = _COPIED
    if table.spelling in gap.rebuildable:
        text = _REBUILT
    return text.format(name=table.spelling)


def _column_by_hand(gap: Gap, table: Table, wanted: Column, found: Column) -> str:
    if table.spelling in gap.rebuildable or wanted.in_key:
        return _table_by_hand(gap, table)
    return _COLUMN_BY_HAND.format(
        name=table.spelling, column=wanted.spelling, wanted=_kind_text(wanted), found=_kind_text(found)
    )


def _kind_text(column: Column) -> str:
    return f"{normal_type(column.type)} ({column.kind.value})"


_WAITS = "{name} waits until {table} is changed by hand; then plan again."
_REFUSED = "The server would refuse it as things stand: {what}. Change by hand what is in its way, then plan again."
_REBUILT = (
    "While nothing writes: drop {name}, create it again with mailmend schema apply --complete, then fill it again from "
    "the source of truth with mailmend repair messages."
)
_COPIED = (
    "A table's key, order and counters cannot be changed: create a table of another name as the model has {name}, copy "
    "the rows (mailmend cannot), move the clients over, then drop {name}."
)
_COLUMN_BY_HAND = (
    "{name}.{column} is or was {found} and should be {wanted}, which CQL cannot change: add a column of another name, "
    "copy the cells, move the clients over, then drop the old one."
)
_TYPE_BY_HAND = (
    "The fields of {name} cannot be taken away, reordered, retyped, or added to while a key holds it: create a type of "
    "another name, add columns of it, copy the cells, then drop the old ones."
)
