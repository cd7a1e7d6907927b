"""A whole keyspace as a value: what it should hold (from the catalog) or does hold (read from a server)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from model.schema.cql_types import names_in
from model.schema.names import name_of
from model.schema.statements import Index, View
from model.schema.table import Table, UserType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Schema:
    """The user types, tables, indexes and views of one keyspace, each type before the first that uses it."""

    types: tuple[UserType, ...]
    tables: tuple[Table, ...]
    indexes: tuple[Index, ...] = ()
    views: tuple[View, ...] = ()

    def table(self, name: str) -> Table | None:
        """The table of that name or spelling (in any case, unless it is in quotes), or None."""
        return _named(name, ((table.name, table) for table in self.tables))

    def user_type(self, name: str) -> UserType | None:
        """The user type of that name or spelling, or None."""
        return _named(name, ((user_type.name, user_type) for user_type in self.types))

    def index(self, name: str) -> Index | None:
        """The index of that name or spelling, or None."""
        return _named(name, ((name_of(index.spelling), index) for index in self.indexes))

    def view(self, name: str) -> View | None:
        """The materialised view of that name or spelling, or None."""
        return _named(name, ((view.table.name, view) for view in self.views))

    @property
    def empty(self) -> bool:
        """Whether the keyspace holds nothing."""
        return not self.types and not self.tables


def in_order_of_use(types: Iterable[UserType]) -> tuple[UserType, ...]:
    """The types, each after those that its fields are made of; otherwise in the order given."""
    left = {one.name: one for one in types}
    ordered: dict[str, UserType] = {}
    while left:
        ready = [name for name, one in left.items() if not (_used_by(one) & left.keys()) - {name}]
        for name in ready or list(left):
            ordered[name] = left.pop(name)
    return tuple(ordered.values())


def _used_by(user_type: UserType) -> frozenset[str]:
    return frozenset(name for _, kind in user_type.fields for name in names_in(kind))


def _named(name: str, held: Iterable[tuple[str, T]]) -> T | None:
    """The server's own name goes first: in double quotes `A` and `a` are two."""
    folded, second = name_of(name), None
    for own, value in held:
        if own == name:
            return value
        if own == folded:
            second = value
    return second
