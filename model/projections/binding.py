"""The catalog's families as far as a live keyspace has them: what is read, compared and written there.

A generation of James that lacks a column neither has it read nor written; a column that the catalog does not know is
read all the same, so that before-images are whole. What a check cannot do without is asked for at once, by name.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from model.catalog.generations import FLAG_USER
from model.catalog.mail import FAMILIES
from model.errors import BadIdentifier, SchemaMismatch, WrongUse
from model.projections.content import Content
from model.projections.family import Family
from model.projections.filters import Filter
from model.projections.groups import Counts, Union
from model.projections.mirror import Mirror
from model.schema.cql_types import normal_type
from model.schema.keyspace import Schema
from model.schema.table import Column, Kind, Table, identifier

P = TypeVar("P", Mirror, Filter, Union, Counts, Content)

_KNOWN = {FLAG_USER.name: FLAG_USER}
"""Columns of older generations that mean something to a comparison."""


@dataclass(frozen=True, slots=True, order=True)
class MissingColumn:
    """A column that is to be compared, and that the live table lacks; both in James's spelling."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


def missing_columns(
    live: Schema, families: Iterable[Family] = FAMILIES, without: Collection[str] = ()
) -> tuple[MissingColumn, ...]:
    """The compared columns that a table of the live keyspace lacks, unless they are left out on purpose."""
    found = (
        MissingColumn(table.spelling, table.column(name).spelling)
        for family in families
        for column in family.mirror.compared
        if column.name not in without
        for table, name in _both_sides(family.mirror, column.name)
        if (there := live.table(table.name)) is not None and name.partition(".")[0] not in there
    )
    return tuple(dict.fromkeys(found))


def _both_sides(mirror: Mirror, name: str) -> tuple[tuple[Table, str], tuple[Table, str]]:
    return (mirror.truth, mirror.truth_names.get(name, name)), (mirror.table, name)


def left_out(names: Iterable[str], families: Iterable[Family] = FAMILIES) -> frozenset[str]:
    """The names of compared columns that are neither to be compared nor written, however their case is written.

    Raises:
        WrongUse: no such column is compared, or rows are found by it.
    """
    known = _may_be_left_out_of(families)
    asked = tuple(names)
    unknown = [name for name in asked if name.lower() not in known]
    if unknown:
        raise WrongUse(
            f"{unknown[0]!r} is not a column that can be left out", mend=f"These can: {', '.join(known.values())}."
        )
    return frozenset(name.lower() for name in asked)


def _may_be_left_out_of(families: Iterable[Family]) -> dict[str, str]:
    """Compared columns by which no row is found: their names, and how they are spelled."""
    mirrors = [family.mirror for family in families]
    keys = {column.name for mirror in mirrors for column in mirror.truth.key}
    return {one.name: one.spelling for mirror in mirrors for one in mirror.compared if one.name not in keys}


@dataclass(frozen=True, slots=True)
class Bound:
    """Families as a live keyspace has them, and the compared columns that it lacks."""

    families: tuple[Family, ...]
    missing: tuple[MissingColumn, ...]


def bound(keyspace: str, live: Schema, families: Iterable[Family], without: Collection[str] = ()) -> Bound:
    wanted = tuple(families)
    return Bound(bind(keyspace, live, wanted, without), missing_columns(live, wanted, without))


def lacking(keyspace: str, missing: Iterable[MissingColumn]) -> SchemaMismatch:
    """Why nothing is mended: a row would be written without what users see in it."""
    found = tuple(missing)
    columns = dict.fromkeys(one.column for one in found)
    mend = f"See the statement that adds it with: mailmend schema verify --keyspace {keyspace}"
    if set(_may_be_left_out_of(FAMILIES).values()) >= set(columns):
        mend += f"; or leave it out: {' '.join(f'--without {column}' for column in columns)}"
    return SchemaMismatch(keyspace, tuple(map(str, found)), mend=mend)


def bind(
    keyspace: str, live: Schema, families: Iterable[Family] = FAMILIES, without: Collection[str] = ()
) -> tuple[Family, ...]:
    """The families restricted to what the live keyspace has.

    A missing projection is left out, and so is a family that is only reported when a table of it is missing. The
    columns of `without` are read (before-images are whole), and neither compared nor written.

    Raises:
        SchemaMismatch: a truth or its mirror is missing, or a column that decides is missing or of another type.
    """
    wanted = tuple(family for family in families if not _may_be_left_out(family, live))
    lacking = tuple(dict.fromkeys(lack for family in wanted for lack in _lacking(family, live)))
    if lacking:
        raise SchemaMismatch(keyspace, lacking)
    return tuple(_bound(family, live, frozenset(without)) for family in wanted)


def _may_be_left_out(family: Family, live: Schema) -> bool:
    absent = any(live.table(table.name) is None for table in (family.truth, family.mirror.table))
    return absent and family.mirror.report_only


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
    for table, deciding in _deciding(family):
        found = live.table(table.name)
        if found is not None:
            yield from _lacking_columns(table, found, deciding)
        elif table in (family.truth, family.mirror.table):
            yield table.spelling


def _deciding(family: Family) -> Iterator[tuple[Table, frozenset[str]]]:
    yield family.truth, frozenset[str]().union(*(one.truth_columns for one in family.projections))
    yield from ((one.table, one.own_columns) for one in family.projections)


def _lacking_columns(table: Table, found: Table, deciding: frozenset[str]) -> Iterator[str]:
    if tuple(column.name for column in found.key) != tuple(column.name for column in table.key):
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
        if column.name not in table and not _is_plain(column.spelling):
            yield f'a plain name for the column "{column.spelling}" of {table.spelling}'


def _is_plain(name: str) -> bool:
    try:
        return identifier(name) == name
    except BadIdentifier:
        return False


def _bound(family: Family, live: Schema, without: frozenset[str]) -> Family:
    forms = {table.name: live_form(table, found) for table in family.tables if (found := live.table(table.name))}
    truth = forms[family.truth.name]

    def bound(projection: P) -> P:
        return replace(projection, truth=truth, table=forms[projection.table.name])

    def there(projections: tuple[P, ...]) -> tuple[P, ...]:
        return tuple(bound(one) for one in projections if one.table.name in forms)

    has_content = family.content is not None and family.content.table.name in forms
    return Family(
        mirror=_bound_mirror(bound(family.mirror), without),
        filters=there(family.filters),
        unions=there(family.unions),
        counts=tuple(_bound_counts(counts, live) for counts in there(family.counts)),
        content=bound(family.content) if family.content and has_content else None,
    )


def _bound_counts(counts: Counts, live: Schema) -> Counts:
    forms = [live_form(table, found) for table in counts.generators if (found := live.table(table.name))]
    return replace(counts, generators=tuple(forms))


def _bound_mirror(mirror: Mirror, without: frozenset[str]) -> Mirror:
    theirs = mirror.truth_names
    candidates = (*mirror.compared, *_KNOWN.values())
    return replace(
        mirror,
        compared=tuple(
            column
            for column in candidates
            if column.name not in without
            and column.name in mirror.table
            and theirs.get(column.name, column.name) in mirror.truth
        ),
        left_out=without,
        required=tuple(name for name in mirror.required if name in mirror.truth),
    )
