"""The catalog's families, restricted to the tables and columns that a live keyspace has.

A column that a generation of James lacks is neither read nor written. A column that the catalog
does not know is read, so that before-images are complete. A table or column that the live keyspace
lacks is drift where the keyspace's own generation has it (`schema verify` tells the generation),
and is left out silently where that generation never had it. Where a check can do without what is
missing, it skips the projections that need it; else it fails and names it.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from mailmend.cql.schema.generations import FLAG_USER, recognise
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.cql_types import normal_type
from mailmend.model.errors import SchemaMismatch, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Counts, Family, Filter, Union
from mailmend.model.projections.filled_mirror import FilledMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.table import Column, Kind, Table, is_plain_name
from mailmend.model.texts import keyspace_option

P = TypeVar("P", Mirror, Filter, Union, Counts, Content)

_KNOWN = {FLAG_USER.name: FLAG_USER}
"""Columns of older generations that mean something to a comparison."""


@dataclass(frozen=True, slots=True, order=True)
class MissingColumn:
    """A column that a check needs, and that the live table lacks; both in James's spelling."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


def missing_columns(
    live: Schema, families: Iterable[Family] = FAMILIES, without: Collection[str] = ()
) -> tuple[MissingColumn, ...]:
    """Columns that verdicts need and the live tables lack though their generation has them, except `without`."""
    return _missing_columns(recognise(live).generation.schema, live, families, without)


def _missing_columns(
    model: Schema, live: Schema, families: Iterable[Family], without: Collection[str]
) -> tuple[MissingColumn, ...]:
    missing: dict[MissingColumn, None] = {}
    for family in families:
        for table, name in _needed(family, without):
            there = live.table(table.name)
            known = model.table(table.name)
            root = name.partition(".")[0]
            if there is not None and root not in there and known is not None and root in known:
                missing[MissingColumn(table.spelling, table.column(name).spelling)] = None
    return tuple(missing)


def missing_tables(
    live: Schema, families: Iterable[Family] = FAMILIES, without: Collection[str] = ()
) -> tuple[str, ...]:
    """Tables that a check reads and the live keyspace lacks though its generation has them, except `without`."""
    return _missing_tables(recognise(live).generation.schema, live, families, without)


def _missing_tables(
    model: Schema, live: Schema, families: Iterable[Family], without: Collection[str]
) -> tuple[str, ...]:
    missing: dict[str, None] = {}
    for family in families:
        for table in family.tables:
            gone = live.table(table.name) is None and model.table(table.name) is not None
            if gone and table.name not in without:
                missing[table.spelling] = None
    return tuple(missing)


def _needed(family: Family, without: Collection[str]) -> Iterator[tuple[Table, str]]:
    mirror = family.mirror
    for column in mirror.compared:
        if column.name not in without:
            yield mirror.truth, mirror.truth_names.get(column.name, column.name)
            yield mirror.table, column.name
    for projection in family.projections:
        if projection.table.name not in without:
            deciding = projection.truth_columns - frozenset(without)
            for name in projection.truth.names:
                if name in deciding:
                    yield projection.truth, name
            for name in projection.table.names:
                if name in projection.own_columns:
                    yield projection.table, name


def left_out(names: Iterable[str], families: Iterable[Family] = FAMILIES) -> frozenset[str]:
    """The tables and columns of these names (in any case), which are to be neither compared nor written.

    Raises:
        WrongUse: a name is of no compared column and of no table that may be left out; keys may not be.
    """
    known = _may_be_left_out_of(families)
    left = set()
    for name in names:
        if name.lower() not in known:
            raise WrongUse(
                f"{name!r} is not a column or a table that can be left out",
                mend=f"These can: {', '.join(known.values())}.",
            )
        left.add(name.lower())
    return frozenset(left)


def _may_be_left_out_of(families: Iterable[Family]) -> dict[str, str]:
    """Compared columns by which no row is found, and tables that nothing else follows from, by name, as spelled."""
    wanted = tuple(families)
    keys: set[str] = set()
    apart = set()
    for family in wanted:
        keys.update(family.truth.key_names)
        apart.add(family.mirror.name)
        if family.content:
            apart.add(family.content.name)
    columns: dict[str, str] = {}
    tables: dict[str, str] = {}
    for family in wanted:
        for column in family.mirror.compared:
            if column.name not in keys:
                columns[column.name] = column.spelling
        for projection in family.projections:
            if projection.name not in apart:
                tables[projection.table.name] = projection.name
    return columns | tables


@dataclass(frozen=True, slots=True)
class BoundFamilies:
    """Families restricted to what a live keyspace has, and what it lacks.

    Attributes:
        missing_tables: in James's spelling.
        unseen: the projections that are skipped although their tables were not left out by option.
    """

    families: tuple[Family, ...]
    missing_columns: tuple[MissingColumn, ...]
    missing_tables: tuple[str, ...]
    unseen: tuple[str, ...] = ()

    def whole(self, keyspace: str, *, may_leave_out: bool = True) -> tuple[Family, ...]:
        """The families, where nothing is missing, so that rows may be written.

        Raises:
            SchemaMismatch: something is missing, so that a written row would lack what users see.
        """
        if self.missing_columns or self.missing_tables:
            raise _lost(keyspace, self, may_leave_out=may_leave_out)
        return self.families


def bound(keyspace: str, live: Schema, families: Iterable[Family], without: Collection[str] = ()) -> BoundFamilies:
    wanted = tuple(families)
    there = bind(keyspace, live, wanted, without)
    expected = set(without)
    for family in there:
        for projection in family.projections:
            expected.add(projection.table.name)
    unseen = []
    for family in wanted:
        for projection in family.projections:
            if projection.table.name not in expected:
                unseen.append(projection.name)
    model = recognise(live).generation.schema
    return BoundFamilies(
        there,
        _missing_columns(model, live, wanted, without),
        _missing_tables(model, live, wanted, without),
        tuple(unseen),
    )


def _lost(keyspace: str, found: BoundFamilies, *, may_leave_out: bool) -> SchemaMismatch:
    leave = dict.fromkeys(found.missing_tables)
    for column in found.missing_columns:
        if column.table in (MESSAGES.truth.spelling, MESSAGES.mirror.name):
            leave[column.column] = None
        else:
            leave[column.table] = None
    mend = f"See the statement that adds it with: mailmend schema verify {keyspace_option(keyspace)}"
    if may_leave_out and set(_may_be_left_out_of(FAMILIES).values()) >= set(leave):
        options = " ".join(f"--without {name}" for name in leave)
        mend += f"; or leave it out: {options}"
    return SchemaMismatch(keyspace, (*found.missing_tables, *map(str, found.missing_columns)), mend=mend)


def bind(
    keyspace: str, live: Schema, families: Iterable[Family] = FAMILIES, without: Collection[str] = ()
) -> tuple[Family, ...]:
    """The families restricted to what the live keyspace has.

    A projection is left out where its table, or a column by which it is decided, is missing.
    A family after the first one is left out where it has no truth or mirror.
    The columns of `without` are read (before-images are whole), and
    neither compared nor written; a table of `without` is not read either.

    Raises:
        SchemaMismatch: a truth or its mirror is missing, or a column by which rows are found, or one has another type.
    """
    every = tuple(families)
    others = [family for family in every[1:] if _stands(family, live)]
    wanted = (*every[:1], *others)
    lacking: dict[str, None] = {}
    for family in wanted:
        lacking |= dict.fromkeys(_lacking(family, live))
    if lacking:
        raise SchemaMismatch(keyspace, tuple(lacking))
    return tuple(_bound(family, live, frozenset(without)) for family in wanted)


def _stands(family: Family, live: Schema) -> bool:
    truth = live.table(family.truth.name)
    mirror = live.table(family.mirror.table.name)
    return truth is not None and mirror is not None and all(name in truth for name in family.mirror.truth_columns)


def live_form(table: Table, live: Table) -> Table:
    """The table with the columns that really exist: the catalog's first, then unknown ones."""
    known = tuple(column for column in table.columns if _root(column) in live)
    roots = {_root(column) for column in table.columns}
    unknown = tuple(_named(column) for column in live.regular if column.name not in roots and _belongs_to_row(column))
    return table.with_columns(known + unknown)


def _belongs_to_row(column: Column) -> bool:
    """Static columns belong to the partition: no write to a row touches them."""
    return column.kind is not Kind.STATIC


def _root(column: Column) -> str:
    """The live column behind a column: a field of a user type is read as `column.field`."""
    return column.name.partition(".")[0]


def _named(column: Column) -> Column:
    return replace(_KNOWN.get(column.name, column), type=column.type)


def _lacking(family: Family, live: Schema) -> Iterator[str]:
    for table in family.tables:
        found = live.table(table.name)
        if found is not None:
            deciding: Collection[str] = ()
            if table is family.truth:
                deciding = family.mirror.truth_columns
            yield from _lacking_columns(table, found, deciding)
        elif table in (family.truth, family.mirror.table):
            yield table.spelling


def _lacking_columns(table: Table, found: Table, deciding: Collection[str]) -> Iterator[str]:
    if found.key_names != table.key_names:
        yield f"{table.spelling} with the key ({', '.join(column.spelling for column in table.key)})"
        return
    for column in table.columns:
        if column.name in deciding and _root(column) not in found:
            yield f"{table.spelling}.{column.spelling}"
        elif _is_of_another_type(column, found):
            live_type = found.column(column.name).type
            yield f"{table.spelling}.{column.spelling} of type {column.type} (it is {live_type})"
    yield from _unnameable(table, found)


def _is_of_another_type(column: Column, found: Table) -> bool:
    return column.name in found and normal_type(found.column(column.name).type) != normal_type(column.type)


def _unnameable(table: Table, found: Table) -> Iterator[str]:
    """Columns whose names need quotes: they cannot be kept in a before-image."""
    for column in found.columns:
        if column.name not in table and not is_plain_name(column.spelling):
            yield f'a plain name for the column "{column.spelling}" of {table.spelling}'


def _bound(family: Family, live: Schema, without: frozenset[str]) -> Family:
    forms = _live_forms(family.tables, live)
    truth = forms[family.truth.name]

    def bound(projection: P) -> P:
        return replace(projection, truth=truth, table=forms[projection.table.name])

    def there(projections: tuple[P, ...]) -> tuple[P, ...]:
        return tuple(bound(projection) for projection in projections if is_there(projection))

    def is_there(projection: Projection) -> bool:
        name = projection.table.name
        if name not in forms or name in without:
            return False
        return projection.own_columns.issubset(forms[name].names) and projection.truth_columns.issubset(truth.names)

    content = None
    if family.content and is_there(family.content):
        content = bound(family.content)
    mirror = _bound_mirror(bound(family.mirror), without)
    if isinstance(mirror, FilledMirror):
        mirror = replace(mirror, fills=_bound_fills(mirror, content))
    return Family(
        mirror=mirror,
        filters=there(family.filters),
        unions=there(family.unions),
        counts=tuple(_bound_counts(counts, live) for counts in there(family.counts)),
        content=content,
    )


def _bound_fills(mirror: FilledMirror, content: Content | None) -> tuple[tuple[str, str], ...]:
    """What both sides have; a column that is left out is not written."""
    fills = []
    for own, theirs in mirror.fills:
        there = content is not None and theirs in content.table and own in mirror.truth
        if there and own not in mirror.left_out:
            fills.append((own, theirs))
    return tuple(fills)


def _live_forms(tables: Iterable[Table], live: Schema) -> dict[str, Table]:
    """The tables that the live keyspace has, by name, as `live_form` gives them."""
    forms = {}
    for table in tables:
        if found := live.table(table.name):
            forms[table.name] = live_form(table, found)
    return forms


def _bound_counts(counts: Counts, live: Schema) -> Counts:
    """What the live keyspace has of its generators and of the numbers that they gave."""
    generators = _live_forms(counts.generators, live)
    numbered_by = [pair for pair in counts.numbered_by if pair[0] in counts.truth]
    return replace(
        counts,
        generators=tuple(generators.values()),
        numbered_by=tuple(numbered_by),
    )


def _bound_mirror(mirror: Mirror, without: frozenset[str]) -> Mirror:
    theirs = mirror.truth_names
    compared = []
    for column in (*mirror.compared, *_KNOWN.values()):
        on_both_sides = column.name in mirror.table and theirs.get(column.name, column.name) in mirror.truth
        if on_both_sides and column.name not in without:
            compared.append(column)
    return replace(
        mirror,
        compared=tuple(compared),
        left_out=without,
        required=tuple(name for name in mirror.required if name in mirror.truth),
    )
