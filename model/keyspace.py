"""The schema of a keyspace as a value: the expected one (from the catalog) or a live one (read from a server)."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mailmend.model.cql_types import names_in
from mailmend.model.names import name_of
from mailmend.model.table import Column, Table, UserType


@dataclass(frozen=True, slots=True)
class Index:
    """An index: its target (`flags`, `values(flags)`) and its class ("" is the built-in one)."""

    spelling: str
    table: str
    target: str
    using: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.spelling)


@dataclass(frozen=True, slots=True)
class View:
    """A materialized view: its own columns, key and options as a table, its base table, and its condition as CQL.

    Attributes:
        all_columns: whether it selects `*`, so that it gets new columns of its base table. After parsing, its table
            then has the key columns only, as the types of columns are known only once it is applied to a schema.
    """

    table: Table
    base: str
    where: str
    all_columns: bool = False

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def spelling(self) -> str:
        return self.table.spelling


SchemaPart = UserType | Table | Index | View
P = TypeVar("P", bound=SchemaPart | Column)


@dataclass(frozen=True, slots=True)
class Schema:
    """The user types, tables, indexes and views of one keyspace, each type before the first that uses it."""

    types: tuple[UserType, ...]
    tables: tuple[Table, ...]
    indexes: tuple[Index, ...] = ()
    views: tuple[View, ...] = ()

    def table(self, name: str) -> Table | None:
        """The table of a name or spelling, in any case unless quoted; None where there is no such table."""
        return _named(name, self.tables)

    def user_type(self, name: str) -> UserType | None:
        return _named(name, self.types)

    def index(self, name: str) -> Index | None:
        return _named(name, self.indexes)

    def view(self, name: str) -> View | None:
        return _named(name, self.views)

    def views_of(self, table: Table) -> tuple[View, ...]:
        return tuple(view for view in self.views if name_of(view.base) == table.name)

    def indexes_of(self, table: Table) -> tuple[Index, ...]:
        return tuple(index for index in self.indexes if name_of(index.table) == table.name)

    @property
    def empty(self) -> bool:
        return not self.types and not self.tables


EMPTY = Schema((), ())
"""The schema of a keyspace that was just created."""


def by_name(parts: Iterable[P]) -> dict[str, P]:
    return {part.name: part for part in parts}


def among(parts: Iterable[P], names: Container[str]) -> tuple[P, ...]:
    """The parts whose names are among these, in their order."""
    return tuple(part for part in parts if part.name in names)


def all_but(parts: Iterable[P], names: Container[str]) -> tuple[P, ...]:
    """The parts whose names are not among these, in their order."""
    return tuple(part for part in parts if part.name not in names)


def find(parts: Iterable[P], spelling: str) -> P | None:
    name = name_of(spelling)
    for part in parts:
        if part.name == name:
            return part
    return None


def put(parts: tuple[P, ...], new: P) -> tuple[P, ...]:
    """Replace the part of the same name, or append."""
    for place, part in enumerate(parts):
        if part.name == new.name:
            return (*parts[:place], new, *parts[place + 1 :])
    return (*parts, new)


def without(parts: tuple[P, ...], spelling: str) -> tuple[P, ...]:
    return all_but(parts, {name_of(spelling)})


def in_order_of_use(types: Iterable[UserType]) -> tuple[UserType, ...]:
    """Each type after those that its fields use; otherwise in the order given."""
    left = by_name(types)
    ordered: dict[str, UserType] = {}
    while left:
        ready = [name for name, user_type in left.items() if not (_used_by(user_type) & left.keys()) - {name}]
        for name in ready or list(left):
            ordered[name] = left.pop(name)
    return tuple(ordered.values())


def _used_by(user_type: UserType) -> frozenset[str]:
    used: set[str] = set()
    for _, kind in user_type.fields:
        used.update(names_in(kind))
    return frozenset(used)


def _named(name: str, parts: Iterable[P]) -> P | None:
    """The server's own name goes first: in double quotes `A` and `a` are two names."""
    held = tuple(parts)
    for part in held:
        if part.name == name:
            return part
    return find(held, name)
