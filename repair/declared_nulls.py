"""How null cells are read, in a truth and in what follows, bound to a live schema. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mailmend.model.cql_types import normal_type
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import COLUMN, COMPUTED, LEFT_OUT
from mailmend.model.projections.declared_nulls import NULL_IS, DeclaredNull
from mailmend.model.projections.toml_values import toml_text
from mailmend.model.table import Column, Kind, NullReading, OtherColumn, Table
from mailmend.model.toml_places import TomlPath
from mailmend.repair.declared_computing import CONSTANTS_OF, constant_of
from mailmend.repair.declared_conditions import Misfits


def read_as_declared(
    misfits: Misfits,
    path: TomlPath,
    declared: Sequence[tuple[str, DeclaredNull]],
    truth: Table,
) -> Table:
    """The truth, with what its nulls are read as; a reading that does not fit is noted."""
    readings: dict[str, NullReading] = {}
    for spelling, given in declared:
        place = (*path, NULL_IS, spelling)
        misfits.check_column(place, spelling, truth)
        if name_of(spelling) not in truth:
            continue
        column = truth.column(name_of(spelling))
        if column.kind is not Kind.REGULAR or column.is_collection:
            problem = f"{_shown(truth, column)} is in the key, static, or a collection"
            misfits.note(place, problem, "Name a column that is one cell of the row.")
            continue
        reading: NullReading | None
        if isinstance(given, OtherColumn):
            reading = _other(misfits, (*place, COLUMN), truth, column, given)
        else:
            reading = constant_of(normal_type(column.type), given)
            if reading is None:
                problem = f"{given!r} is not a value of {_shown(truth, column)} ({column.type})"
                constant = CONSTANTS_OF.get(column.type, f"{{ {COLUMN} = NAME }}: no constants")
                misfits.note(place, problem, f"Write {constant}.")
        if reading is not None:
            readings[column.name] = reading
    _check_chains(misfits, path, truth, readings)
    return _reading(truth, readings)


def _other(
    misfits: Misfits,
    place: TomlPath,
    truth: Table,
    column: Column,
    given: OtherColumn,
) -> OtherColumn | None:
    misfits.check_column(place, given.name, truth)
    if name_of(given.name) not in truth:
        return None
    other = truth.column(name_of(given.name))
    is_of_row = other.kind is not Kind.STATIC and other.name != column.name
    if not is_of_row or normal_type(other.type) != normal_type(column.type):
        problem = f"a null of {_shown(truth, column)} is not read as {_shown(truth, other)}"
        misfits.note(place, problem, f"Name another column of the row, of type {column.type}.")
        return None
    return OtherColumn(other.name)


def _check_chains(
    misfits: Misfits,
    path: TomlPath,
    truth: Table,
    readings: Mapping[str, NullReading],
) -> None:
    """Note a column that is read instead of another one, and whose own null is not read as null."""
    for name, reading in readings.items():
        if isinstance(reading, OtherColumn) and reading.name in readings:
            column = truth.column(name)
            other = _shown(truth, truth.column(reading.name))
            problem = f"{other} is read for {_shown(truth, column)}, and has a {NULL_IS} itself"
            place = (*path, NULL_IS, column.spelling, COLUMN)
            misfits.note(place, problem, "Name a column whose null is read as null.")


def _reading(table: Table, readings: Mapping[str, NullReading]) -> Table:
    columns = []
    for column in table.columns:
        if column.name in readings:
            columns.append(replace(column, null_is=readings[column.name]))
        else:
            columns.append(column)
    return table.with_columns(columns)


def read_as_truth(
    misfits: Misfits,
    path: TomlPath,
    own: Table,
    truth: Table,
    fed: Mapping[str, str],
) -> Table:
    """A table whose nulls are read as the truth's; one that cannot be is noted.

    Args:
        misfits: take what does not fit.
        path: of the projection.
        own: the table of the projection.
        truth: with what its nulls are read as.
        fed: the truth's column behind each column of the projection.
    """
    holders = {source: name for name, source in fed.items()}
    readings: dict[str, NullReading] = {}
    for column in own.regular:
        source = fed.get(column.name, "")
        if source not in truth:  # it is computed, or has no source
            continue
        reading = truth.column(source).null_is
        if isinstance(reading, OtherColumn):
            if reading.name in holders:
                readings[column.name] = OtherColumn(holders[reading.name])
            else:
                other = _shown(truth, truth.column(reading.name))
                shown = _shown(own, column)
                problem = f"a null of {shown} is read as {other}, which no column of it holds"
                mend = f"Leave it out: {LEFT_OUT} = [{toml_text(column.spelling)}]"
                misfits.note(path, problem, mend)
        elif reading is not None:
            readings[column.name] = reading
    return _reading(own, readings)


def check_key(misfits: Misfits, path: TomlPath, own: str, source: Column) -> None:
    """Note a column of a key whose source is read as something where it is null: it has no row."""
    if source.null_is is None:
        return
    problem = f"the key column {own} is null where {source.spelling} is, whatever it is read as"
    default = f'{{ {COLUMN} = "{source.spelling}", default = CONSTANT }}'
    misfits.note(path, problem, f"Give it a default: {COMPUTED} = {{ COLUMN = {default} }}.")


def _shown(table: Table, column: Column) -> str:
    return f"{table.spelling}.{column.spelling}"
