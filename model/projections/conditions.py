"""Conditions on a row of a truth: which rows a filter or a counter is about. Pure.

Spark renders the same conditions in `spark_repair.suspects.holding`.
"""

from dataclasses import dataclass

from mailmend.model.table import Row, Table
from mailmend.model.values import CellConstant, constant_text


@dataclass(frozen=True, slots=True)
class RowCondition:
    """The base class of all conditions; a condition holds or does not, whatever is null."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The truth's columns that decide, each once."""
        raise NotImplementedError

    def holds(self, row: Row) -> bool:
        raise NotImplementedError

    def said(self, truth: Table) -> str:
        """The condition in words, with columns in the truth's spelling."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Condition(RowCondition):
    """A boolean column of the truth having a value; null reads as false."""

    column: str
    value: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, row: Row) -> bool:
        return bool(row.get(self.column)) is self.value

    def said(self, truth: Table) -> str:
        return f"{truth.column(self.column).spelling} is {str(self.value).lower()}"


@dataclass(frozen=True, slots=True)
class OneOf(RowCondition):
    """A column having one of some values; null does not count as a value."""

    column: str
    values: tuple[CellConstant, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, row: Row) -> bool:
        cell = row.get(self.column)
        return cell is not None and cell in self.values

    def said(self, truth: Table) -> str:
        shown = " or ".join(map(constant_text, self.values))
        return f"{truth.column(self.column).spelling} is {shown}"


@dataclass(frozen=True, slots=True)
class IsNull(RowCondition):
    """A column being null, or (`value` is False) not being null."""

    column: str
    value: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, row: Row) -> bool:
        return (row.get(self.column) is None) is self.value

    def said(self, truth: Table) -> str:
        negation = ""
        if not self.value:
            negation = "not "
        return f"{truth.column(self.column).spelling} is {negation}null"


@dataclass(frozen=True, slots=True)
class StartsWith(RowCondition):
    """A column having a text that begins with one of some texts; null has no beginning."""

    column: str
    beginnings: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, row: Row) -> bool:
        cell = row.get(self.column)
        return cell is not None and cell.startswith(self.beginnings)

    def said(self, truth: Table) -> str:
        shown = " or ".join(self.beginnings)
        return f"{truth.column(self.column).spelling} starts with {shown}"


@dataclass(frozen=True, slots=True)
class Not(RowCondition):
    """A condition that does not hold: null is not one of some values, so it is taken."""

    part: RowCondition

    @property
    def columns(self) -> tuple[str, ...]:
        return self.part.columns

    def holds(self, row: Row) -> bool:
        return not self.part.holds(row)

    def said(self, truth: Table) -> str:
        return f"not ({self.part.said(truth)})"


@dataclass(frozen=True, slots=True)
class Every(RowCondition):
    """All of some conditions; without any it always holds."""

    parts: tuple[RowCondition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return _columns(self.parts)

    def holds(self, row: Row) -> bool:
        return all(part.holds(row) for part in self.parts)

    def said(self, truth: Table) -> str:
        if not self.parts:
            return "always"
        return " and ".join(part.said(truth) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Either(RowCondition):
    """At least one of some conditions; without any it never holds."""

    parts: tuple[RowCondition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return _columns(self.parts)

    def holds(self, row: Row) -> bool:
        return any(part.holds(row) for part in self.parts)

    def said(self, truth: Table) -> str:
        return " or ".join(f"({part.said(truth)})" for part in self.parts)


def _columns(parts: tuple[RowCondition, ...]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for part in parts:
        names |= dict.fromkeys(part.columns)
    return tuple(names)
