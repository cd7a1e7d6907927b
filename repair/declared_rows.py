"""What a declaration tells of the rows of a truth, bound to a live schema. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mailmend.model.cql_types import normal_type
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import (
    CONTENT,
    COUNTERS,
    GENERATORS,
    MIRROR,
    NEEDS,
    NUMBERED_BY,
    TRUTH,
    DeclaredContent,
    DeclaredCount,
    DeclaredMirror,
    DeclaredTruth,
)
from mailmend.model.projections.declared_mirrors import FILLED, REQUIRED
from mailmend.model.projections.family import Counts
from mailmend.model.projections.filled_mirror import FilledMirror
from mailmend.model.projections.partial_mirror import PartialMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.toml_values import toml_key
from mailmend.model.table import Column, Kind, Table, is_plain_name
from mailmend.model.toml_places import TomlPath
from mailmend.repair.comparable import UUIDS
from mailmend.repair.declared_conditions import Misfits, is_one_cell

_DeclaredContentPair = tuple[DeclaredContent, Projection]


def _listed_columns(
    misfits: Misfits,
    path: TomlPath,
    declared: Sequence[str],
    truth: Table,
) -> Iterator[tuple[TomlPath, Column]]:
    """The truth's columns in a list, each with its place; a name that it does not have is noted."""
    for number, spelling in enumerate(declared):
        place = (*path, number)
        misfits.check_column(place, spelling, truth)
        if name_of(spelling) in truth:
            yield place, truth.column(name_of(spelling))


def required_columns(
    misfits: Misfits,
    path: TomlPath,
    declared: Sequence[str],
    truth: Table,
) -> tuple[str, ...]:
    """The names of columns that a whole row of the truth has; one that may be null is noted."""
    names = []
    for place, column in _listed_columns(misfits, (*path, REQUIRED), declared, truth):
        names.append(column.name)
        if column.kind is not Kind.REGULAR or column.is_collection:
            shown = f"{truth.spelling}.{column.spelling}"
            parts = "in the key, static, or a collection, whose null is the empty one"
            mend = "Name columns that an insert of a row fills."
            misfits.note(place, f"{shown} is {parts}", mend)
    return tuple(names)


def needed_columns(
    misfits: Misfits,
    path: TomlPath,
    declared: Sequence[str],
    truth: Table,
) -> tuple[str, ...]:
    """The names of columns that a copy needs; one that cannot be null as a whole is noted."""
    names = []
    for place, column in _listed_columns(misfits, (*path, NEEDS), declared, truth):
        names.append(column.name)
        if not is_one_cell(column):
            shown = f"{truth.spelling}.{column.spelling}"
            problem = f"{shown} is static, or a collection of several cells"
            misfits.note(place, problem, "Name a column that is one cell of the row.")
    return tuple(names)


def check_generator(misfits: Misfits, place: TomlPath, generator: Table, counters: Table) -> None:
    """Note a generator that has no row for each group."""
    own = [normal_type(column.type) for column in generator.key]
    theirs = [normal_type(column.type) for column in counters.key]
    if own != theirs:
        problem = f"the key of {generator.spelling} is not the key of {counters.spelling}"
        mend = f"A generator has a row for each group. Types of that key: {', '.join(theirs)}."
        misfits.note(place, problem, mend)
    elif _is_permuted(generator.key_names, counters.key_names):
        problem = f"the key of {generator.spelling} has the columns of {counters.spelling}"
        mend = "Such a generator cannot be read here: leave it out."
        misfits.note(place, f"{problem} in another order", mend)
    for column in generator.columns:
        if not is_plain_name(column.name):
            problem = f"the name of the column {column.spelling} needs double quotes"
            misfits.note(place, problem, "Such a table is not read yet: leave it out.")


def _is_permuted(some: Sequence[str], others: Sequence[str]) -> bool:
    return some != others and set(some) == set(others)


def check_counters(misfits: Misfits, path: TomlPath, table: Table) -> None:
    """Note generators of values, which need none."""
    if not table.has_counters:
        problem = f"{table.spelling} has no counters, and only counters have {GENERATORS}"
        mend = f"The rows of its group tell when its {COUNTERS} changed: leave the part out."
        misfits.note((*path, GENERATORS), problem, mend)


def numbered_columns(
    misfits: Misfits,
    path: TomlPath,
    declared: DeclaredCount,
    counts: Counts,
    truth: Table,
) -> tuple[tuple[str, str], ...]:
    """The truth's columns with numbers, each with the name of one of the generators of `counts`."""
    known = {generator.name: generator for generator in counts.generators}
    found = []
    for spelling, generator_spelling in declared.numbered_by:
        place = (*path, NUMBERED_BY, spelling)
        misfits.check_column(place, spelling, truth)
        name = name_of(spelling)
        generator = known.get(name_of(generator_spelling))
        if name in truth and generator is not None:
            _check_number(misfits, place, truth, truth.column(name))
            if name in counts.key_sources:
                problem = f"{truth.spelling}.{spelling} names the group, and is no number in it"
                mend = "Name the column that the generator gives numbers for."
                misfits.note(place, problem, mend)
            _check_last_number(misfits, place, generator)
            found.append((name, generator.name))
    return tuple(found)


def _check_number(misfits: Misfits, place: TomlPath, truth: Table, column: Column) -> None:
    shown = f"{truth.spelling}.{column.spelling}"
    if normal_type(column.type) not in _NUMBERS:
        mend = f"A generator gives numbers of type {' or '.join(_NUMBERS)}."
        misfits.note(place, f"{shown} is of type {column.type}", mend)
    if column.kind is Kind.STATIC:
        mend = "A generator gives a number to each row: name a column of the row."
        misfits.note(place, f"{shown} is static", mend)


def _check_last_number(misfits: Misfits, place: TomlPath, generator: Table) -> None:
    """Note a generator whose row has not one number alone."""
    types = [normal_type(column.type) for column in generator.columns if not column.in_key]
    if len(types) != 1 or types[0] not in _NUMBERS:
        problem = f"the rows of {generator.spelling} have not one number alone"
        types_of_numbers = " or ".join(_NUMBERS)
        mend = f"A generator has one column outside its key, {types_of_numbers}."
        misfits.note(place, problem, mend)


_NUMBERS: Final = ("bigint", "int")


def fill_from_content(
    misfits: Misfits,
    path: TomlPath,
    declared: DeclaredTruth,
    found: dict[str, list[Projection]],
) -> None:
    """Replace mirrors that are declared so by mirrors that can fill a torn row of the truth."""
    wanted = {name_of(mirror.table): mirror for mirror in declared.mirrors if mirror.filled}
    first = True
    for number, mirror in enumerate(found.get(MIRROR, ())):
        if isinstance(mirror, PartialMirror) or not isinstance(mirror, Mirror):
            continue
        if mirror.table.name in wanted:
            given = wanted[mirror.table.name]
            place = (*path, MIRROR, given.table, FILLED)
            content = _content_of(misfits, place, declared, found, first=first)
            if content is not None:
                fills = _fills(misfits, place, given, mirror, content)
                found[MIRROR][number] = _filling(mirror, fills)
        first = False


def _content_of(
    misfits: Misfits,
    place: TomlPath,
    declared: DeclaredTruth,
    found: Mapping[str, Sequence[Projection]],
    *,
    first: bool,
) -> _DeclaredContentPair | None:
    """The content of the truth, and its declaration; None where no mirror is filled from it."""
    if not declared.contents:
        problem = f"the truth {declared.table} has no content"
        header = f"[{TRUTH}.{toml_key(declared.table)}.{CONTENT}.TABLE]"
        misfits.note(place, problem, f"Declare it: {header}.")
        return None
    if not first:
        problem = "only the first mirror of all rows is filled from the content"
        misfits.note(place, problem, "Declare this mirror before the others.")
    for content in found.get(CONTENT, ()):
        for given in declared.contents:
            if name_of(given.table) == content.table.name:
                return given, content
    return None


def _fills(
    misfits: Misfits,
    place: TomlPath,
    declared: DeclaredMirror,
    mirror: Mirror,
    found: _DeclaredContentPair,
) -> tuple[tuple[str, str], ...]:
    """(column of the truth, column of the content)."""
    given, content = found
    truth = mirror.truth
    if not any(column.type in UUIDS for column in truth.partition):
        problem = f"no UUID in the partition key of {truth.spelling} tells when a row was made"
        misfits.note(place, problem, f"A row is filled a day after that: leave {FILLED} out.")
    renamed = {name_of(source): name_of(own) for own, source in given.renamed}
    fills = []
    for number, spelling in enumerate(declared.filled):
        own = name_of(spelling)
        theirs = renamed.get(own, own)
        misfits.check_column((*place, number), theirs, content.table)
        if own not in truth or theirs not in content.table:
            continue
        column = content.table.column(theirs)
        if normal_type(column.type) != normal_type(truth.column(own).type):
            shown = f"{content.table.spelling}.{column.spelling} is of type {column.type}"
            mend = f"Leave it out, or name a column of type {truth.column(own).type}."
            misfits.note((*place, number), shown, mend)
        fills.append((own, theirs))
    return tuple(fills)


def _filling(mirror: Mirror, fills: tuple[tuple[str, str], ...]) -> FilledMirror:
    return FilledMirror(
        mirror.truth,
        mirror.table,
        mirror.key,
        mirror.compared,
        mirror.renamed,
        mirror.required,
        mirror.kept,
        mirror.left_out,
        mirror.needs,
        fills=fills,
    )
