"""Conditions of WHERE and IF as values, and what a write may restrict by them. Pure."""

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
    """

    columns: tuple[str, ...]
    operator: str
    value: str
    left: LeftSide = LeftSide.COLUMN

    @property
    def compares_column(self) -> bool:
        """Whether it says that one whole column equals a value."""
        return self.left is LeftSide.COLUMN and self.operator == "="
