"""Conditions of WHERE and IF, and changes of cells, as values. Pure."""

from dataclasses import dataclass
from enum import Enum


class LeftSide(Enum):
    """What a condition compares."""

    COLUMN = "a column"
    PART = "an element or a field of a column"
    TUPLE = "several columns"
    TOKEN = "the token of several columns"  # noqa: S105 - no password


@dataclass(frozen=True, slots=True)
class Compared:
    """One condition.

    Attributes:
        columns: the columns that it compares, as the server knows them.
        operator: in capitals, as `=`, `NOT IN`, `CONTAINS KEY`.
        value: the text of the other side; "" for IS NOT NULL.
        element: the index or key between brackets after the column; "" without.
        field_name: the field after the column and a dot, as the server knows it; "" without.
    """

    columns: tuple[str, ...]
    operator: str
    value: str
    left: LeftSide = LeftSide.COLUMN
    element: str = ""
    field_name: str = ""

    @property
    def compares_column(self) -> bool:
        """Whether it says that one whole column equals a value."""
        return self.left is LeftSide.COLUMN and self.operator == "="


class CellOperator(Enum):
    """What a statement does to a column, an element or a field; the value is CQL's form of it."""

    SET = "c = value"
    ADD = "c = c + value"
    SUBTRACT = "c = c - value"
    PREPEND = "c = value + c"
    DELETE = "DELETE c"


@dataclass(frozen=True, slots=True)
class CellChange:
    """One assignment of an UPDATE, or one column or part of a column that a DELETE names.

    Attributes:
        column: the column, as the server knows it.
        value: the text of the value; "" for DELETE.
        element: the index or key between brackets after the column; "" without.
        field_name: the field after the column and a dot, as the server knows it; "" without.
    """

    column: str
    operator: CellOperator
    value: str = ""
    element: str = ""
    field_name: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is about the whole column."""
        return not self.element and not self.field_name

    def conflicts_with(self, other: "CellChange") -> bool:
        """Whether one UPDATE cannot have both: one of them sets the whole column, or both set the same field."""
        if self.column != other.column:
            return False
        sets_all = any(change.whole and change.operator is CellOperator.SET for change in (self, other))
        return sets_all or (self.field_name != "" and self.field_name == other.field_name)
