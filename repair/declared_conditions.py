"""Declared conditions bound to a truth, and what of a declaration does not fit. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from mailmend.model.names import name_of
from mailmend.model.projections.conditions import (
    Condition,
    Either,
    Every,
    IsNull,
    Not,
    OneOf,
    RowCondition,
    StartsWith,
)
from mailmend.model.projections.declared_conditions import DeclaredCondition, DeclaredTest
from mailmend.model.projections.toml_values import Constant
from mailmend.model.table import Column, Kind, OtherColumn, Table
from mailmend.model.texts import names_instead
from mailmend.model.toml_places import TomlPath
from mailmend.model.transforms import TEXT_TYPES
from mailmend.model.values import CellConstant
from mailmend.repair.declared_computing import CONSTANTS_OF, constant_of


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something in a declaration that does not fit the live schema.

    Attributes:
        path: to the place in the declaration's canonical text.
    """

    path: TomlPath
    problem: str
    mend: str

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.mend}"


@dataclass(slots=True)
class Misfits:
    """What did not fit so far."""

    found: list[Misfit] = field(default_factory=list)

    def note(self, path: TomlPath, problem: str, mend: str) -> None:
        self.found.append(Misfit(path, problem, mend))

    def check_column(self, path: TomlPath, spelling: str, table: Table) -> None:
        if name_of(spelling) not in table:
            mend = names_instead(spelling, [column.spelling for column in table.columns])
            self.note(path, f"{table.spelling} has no column {spelling}", mend)


def bound_condition(
    misfits: Misfits,
    path: TomlPath,
    declared: DeclaredCondition,
    truth: Table,
) -> RowCondition:
    alternatives = []
    for number, tests in enumerate(declared.alternatives):
        place = path
        if len(declared.alternatives) > 1:
            place = (*path, number)
        parts: list[RowCondition] = []
        for test in tests:
            parts += _parts(misfits, (*place, test.column), test, truth)
        alternatives.append(_all_of(tuple(parts)))
    if len(alternatives) == 1:
        return alternatives[0]
    return Either(tuple(alternatives))


def _parts(
    misfits: Misfits,
    path: TomlPath,
    declared: DeclaredTest,
    truth: Table,
) -> Iterator[RowCondition]:
    """What has to hold for the test of a column; nothing where the column does not fit."""
    name = name_of(declared.column)
    misfits.check_column(path, declared.column, truth)
    if name not in truth:
        return
    column = truth.column(name)
    shown = f"{truth.spelling}.{declared.column}"
    if not is_one_cell(column):
        problem = f"{shown} decides nothing: it is static, or a collection of several cells"
        misfits.note(path, problem, "Test a column that is one cell of the row.")
        return
    if (declared.starts or declared.starts_not) and column.type not in TEXT_TYPES:
        problem = f"{shown} is of type {column.type}, and only a text has a beginning"
        misfits.note(path, problem, f"Write {_constants_of(column)}.")
        return
    if declared.values:
        yield _one_of(column, _constants(misfits, path, column, shown, declared.values))
    if declared.excluded:
        yield Not(_one_of(column, _constants(misfits, path, column, shown, declared.excluded)))
    if declared.starts:
        yield _as_read(column, lambda own: StartsWith(own, declared.starts))
    if declared.starts_not:
        yield Not(_as_read(column, lambda own: StartsWith(own, declared.starts_not)))
    if declared.null is not None:
        yield IsNull(name, declared.null)


def _one_of(column: Column, values: tuple[CellConstant, ...]) -> RowCondition:
    if column.null_is is False and values in {(True,), (False,)}:
        return Condition(column.name, value=bool(values[0]))
    return _as_read(column, lambda own: OneOf(own, values))


def _as_read(column: Column, of: Callable[[str], RowCondition]) -> RowCondition:
    """A condition on what is read of a cell: of a null, on what the null is read as.

    Args:
        column: the column.
        of: makes the condition for a column by its name.
    """
    own = of(column.name)
    match column.null_is:
        case None:
            return own
        case OtherColumn(other):
            return Either((own, Every((IsNull(column.name), of(other)))))
        case constant if own.holds({column.name: constant}):
            return Either((own, IsNull(column.name)))
        case _:
            return own


def _constants(
    misfits: Misfits,
    path: TomlPath,
    column: Column,
    shown: str,
    declared: Iterable[Constant],
) -> tuple[CellConstant, ...]:
    """The constants as values of the column; one that is not a value of it is noted."""
    values = []
    for value in declared:
        constant = constant_of(column.type, value)
        if constant is None:
            problem = f"{value!r} is not a value of {shown} ({column.type})"
            misfits.note(path, problem, f"Write {_constants_of(column)}.")
        else:
            values.append(constant)
    return tuple(values)


def is_one_cell(column: Column) -> bool:
    """Whether the column is one cell of a row, which may be null."""
    return column.kind is not Kind.STATIC and not column.is_collection


def _constants_of(column: Column) -> str:
    """How a constant of the column is written."""
    return CONSTANTS_OF.get(column.type, "a test for null: no constants")


def _all_of(parts: tuple[RowCondition, ...]) -> RowCondition:
    if len(parts) == 1:
        return parts[0]
    return Every(parts)
