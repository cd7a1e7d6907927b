"""What a declaration tells of the rows of a truth, bound to a live schema. Pure."""

from collections.abc import Sequence

from mailmend.model.cql_types import normal_type
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import COUNTERS, GENERATORS, REQUIRED
from mailmend.model.table import Kind, Table, is_plain_name
from mailmend.model.toml_places import TomlPath
from mailmend.repair.declared_conditions import Misfits


def required_columns(
    misfits: Misfits,
    path: TomlPath,
    declared: Sequence[str],
    truth: Table,
) -> tuple[str, ...]:
    """The names of columns that a whole row of the truth has; a column that may be null is noted."""
    names = []
    for number, spelling in enumerate(declared):
        place = (*path, REQUIRED, number)
        misfits.check_column(place, spelling, truth)
        if name_of(spelling) not in truth:
            continue
        column = truth.column(name_of(spelling))
        names.append(column.name)
        if column.kind is not Kind.REGULAR or column.is_collection:
            shown = f"{truth.spelling}.{column.spelling}"
            parts = "in the key, static, or a collection, whose null is the empty one"
            mend = "Name columns that an insert of a row fills."
            misfits.note(place, f"{shown} is {parts}", mend)
    return tuple(names)


def check_generator(misfits: Misfits, place: TomlPath, generator: Table, counters: Table) -> None:
    """Note a generator that has no row for each group."""
    own = [normal_type(column.type) for column in generator.key]
    theirs = [normal_type(column.type) for column in counters.key]
    if own != theirs:
        problem = f"the key of {generator.spelling} is not the key of {counters.spelling}"
        mend = f"A generator has a row for each group. Types of that key: {', '.join(theirs)}."
        misfits.note(place, problem, mend)
    for column in generator.columns:
        if not is_plain_name(column.name):
            problem = f"the name of the column {column.spelling} needs double quotes"
            misfits.note(place, problem, "Such a table is not read yet: leave it out.")


def check_counters(misfits: Misfits, path: TomlPath, table: Table) -> None:
    """Note generators of values, which need none."""
    if not table.has_counters:
        problem = f"{table.spelling} has no counters, and only counters have {GENERATORS}"
        mend = f"The rows of its group tell when its {COUNTERS} changed: leave the part out."
        misfits.note((*path, GENERATORS), problem, mend)
