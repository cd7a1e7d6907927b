"""Columns that hold elements of a collection, bound to a live schema. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from mailmend.model.cql_types import normal_type, parse_type
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import (
    COLUMN,
    ELEMENT,
    VALUE,
    DeclaredExplode,
)
from mailmend.model.table import Column, Kind, Table
from mailmend.model.toml_places import TomlPath
from mailmend.model.transforms import ElementCell, ElementPart
from mailmend.repair.declared_conditions import Misfits

_COLLECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "set": (ELEMENT,),
    "list": (ELEMENT,),
    "map": (ELEMENT, VALUE),
}
"""The parts of an element, by the collection's type."""


class CollectionElements(NamedTuple):
    """A collection of a truth, and the type of each part of its elements."""

    column: Column
    types: Mapping[str, str]

    def as_one(self, truth: Table) -> Table:
        """The truth with one element, or one key, instead of the collection."""
        one = replace(self.column, type=self.types[ELEMENT])
        columns = []
        for column in truth.columns:
            if column.name == one.name:
                columns.append(one)
            else:
                columns.append(column)
        return truth.with_columns(columns)


def elements_of(
    misfits: Misfits,
    path: TomlPath,
    declared: DeclaredExplode,
    truth: Table,
    live: Schema,
) -> CollectionElements | None:
    """The collection that a declaration names; None where it does not fit, which is noted."""
    place = (*path, COLUMN)
    misfits.check_column(place, declared.column, truth)
    if name_of(declared.column) not in truth:
        return None
    column = truth.column(name_of(declared.column))
    types = element_types(column)
    shown = f"{truth.spelling}.{column.spelling}"
    if not types:
        listed = ", ".join(_COLLECTIONS)
        problem = f"{shown} is of type {column.type}, which has no elements"
        misfits.note(place, problem, f"Name a column of one of these types: {listed}.")
        return None
    if column.kind is Kind.STATIC:
        problem = f"{shown} is static: it is of a partition, not of a row"
        misfits.note(place, problem, "Name a collection of the row.")
        return None
    for part, kind in types.items():
        if live.user_type(kind) is not None:
            types[part] = f"frozen<{kind}>"
    return CollectionElements(column, types)


def element_types(column: Column) -> dict[str, str]:
    """The type of each part of an element; empty where the column is no collection."""
    parsed = parse_type(column.type)
    if parsed.name == "frozen":
        (parsed,) = parsed.arguments
    parts = _COLLECTIONS.get(parsed.name, ())
    return {part: str(argument) for part, argument in zip(parts, parsed.arguments, strict=False)}


def has_elements(collection: Column, own: Column) -> bool:
    """Whether the elements or keys of a collection could be in another column, by type and name."""
    kind = element_types(collection).get(ELEMENT)
    if collection.kind is not Kind.REGULAR or kind != normal_type(own.type):
        return False
    return own.name in collection.name or collection.name in own.name


def element_cells(
    misfits: Misfits,
    path: TomlPath,
    declared: DeclaredExplode,
    table: Table,
    elements: CollectionElements,
) -> Iterator[tuple[str, ElementCell]]:
    """(column of the projection, what fills it) for `element` and `value`."""
    for part, spelling in declared.parts:
        place = (*path, part)
        misfits.check_column(place, spelling, table)
        if name_of(spelling) not in table:
            continue
        own = table.column(name_of(spelling))
        if part not in elements.types:
            problem = f"the elements of {elements.column.spelling} have no {part}"
            misfits.note(place, problem, f"Only a map has a {part} under each key: leave it out.")
            continue
        if normal_type(own.type) != normal_type(elements.types[part]):
            problem = f"{table.spelling}.{own.spelling} is of type {own.type}"
            mend = f"Name a column of type {elements.types[part]}."
            misfits.note(place, problem, mend)
            continue
        source = elements.column.name
        cell = ElementCell(source=source, type=normal_type(own.type), part=ElementPart(part))
        yield own.name, cell


def check_element_in_key(
    misfits: Misfits,
    path: TomlPath,
    table: Table,
    filled: Mapping[str, Column],
) -> None:
    """Note a projection whose key has no part of an element: all elements would have one row."""
    for name in table.key_names:
        if name in filled and isinstance(filled[name].computed, ElementCell):
            return
    problem = f"no key column of {table.spelling} holds an element"
    listed = ", ".join(table.key_names)
    mend = f"Name the key column that holds it: {ELEMENT} = COLUMN. Key columns: {listed}."
    misfits.note(path, problem, mend)
