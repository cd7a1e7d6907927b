"""Declared conditions bound to a truth, and what of a declaration does not fit. Pure."""

from dataclasses import dataclass, field

from mailmend.model.names import name_of
from mailmend.model.projections.conditions import Either, Every, IsNull, OneOf, RowCondition
from mailmend.model.projections.declarations import DeclaredCondition, DeclaredTest
from mailmend.model.table import Kind, Table
from mailmend.model.texts import names_instead
from mailmend.model.toml_places import TomlPath
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
        parts = [_test(misfits, (*place, test.column), test, truth) for test in tests]
        alternatives.append(_all_of(tuple(parts)))
    if len(alternatives) == 1:
        return alternatives[0]
    return Either(tuple(alternatives))


def _test(misfits: Misfits, path: TomlPath, declared: DeclaredTest, truth: Table) -> RowCondition:
    name = name_of(declared.column)
    misfits.check_column(path, declared.column, truth)
    if name not in truth:
        return Every(())
    column = truth.column(name)
    shown = f"{truth.spelling}.{declared.column}"
    if column.kind is Kind.STATIC or column.is_collection:
        problem = f"{shown} decides nothing: it is static, or a collection of several cells"
        misfits.note(path, problem, "Test a column that is one cell of the row.")
        return Every(())
    if declared.null is not None:
        return IsNull(name, declared.null)
    values = []
    for value in declared.values:
        constant = constant_of(column.type, value)
        if constant is None:
            mend = f"Write {CONSTANTS_OF.get(column.type, 'a test for null: no constants')}."
            misfits.note(path, f"{value!r} is not a value of {shown} ({column.type})", mend)
        else:
            values.append(constant)
    return OneOf(name, tuple(values))


def _all_of(parts: tuple[RowCondition, ...]) -> RowCondition:
    if len(parts) == 1:
        return parts[0]
    return Every(parts)
