"""A whole keyspace as a value: what it should hold (from the catalog) or does hold (read from a server)."""

from dataclasses import dataclass

from model.ddl import Index, View
from model.table import Table, UserType


@dataclass(frozen=True, slots=True)
class Schema:
    """The user types, tables, indexes and views of one keyspace, each type before the first that uses it."""

    types: tuple[UserType, ...]
    tables: tuple[Table, ...]
    indexes: tuple[Index, ...] = ()
    views: tuple[View, ...] = ()

    def table(self, name: str) -> Table | None:
        """The table of that name (any case), or None."""
        return next((table for table in self.tables if table.name == name.lower()), None)

    def user_type(self, name: str) -> UserType | None:
        """The user type of that name (any case), or None."""
        return next((user_type for user_type in self.types if user_type.name == name.lower()), None)

    @property
    def empty(self) -> bool:
        """Whether the keyspace holds nothing."""
        return not self.types and not self.tables
