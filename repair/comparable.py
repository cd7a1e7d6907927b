"""What a check can compare exactly: what it cannot is refused by name, before any row is read.

Python compares keys by value. So a type is refused in a key where Cassandra tells equal values
apart, or takes different ones for one key. In other columns every type that Cassandra
has is compared as it is stored (`model.values`).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.errors import BadIdentifier
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Kind, Table

TEXTS: Final = frozenset({"ascii", "inet", "text", "varchar"})
WHOLE_NUMBERS: Final = frozenset({"bigint", "int", "smallint", "tinyint"})
UUIDS: Final = frozenset({"timeuuid", "uuid"})
SIMPLE: Final = TEXTS | WHOLE_NUMBERS | {"boolean"}
"""Types whose values are the same exactly where they are equal in Python."""

_OTHERS_IN_KEYS: Final = frozenset({"blob", "boolean", "date", "time", "timestamp", "varint"})
_IN_KEYS: Final = TEXTS | WHOLE_NUMBERS | UUIDS | _OTHERS_IN_KEYS
_COMPARED: Final = _IN_KEYS | {"decimal", "double", "duration", "float"}
_MADE_OF_OTHERS: Final = frozenset({"frozen", "list", "map", "set", "tuple", "vector"})
_NOT_IN_KEYS: Final = frozenset({"decimal", "double", "duration", "float", "vector"})
_GATHERED: Final = frozenset(f"set<{name}>" for name in SIMPLE)


def incomparable(family: Family) -> Iterator[str]:
    """A sentence on each column that cannot be compared exactly; a sentence may come twice."""
    mirror = family.mirror
    for table in family.tables:
        yield from _static(table)
        yield from _keys(table)
    yield from _cells(mirror.table, mirror.compared)
    sources = mirror.truth_names
    theirs = {sources.get(column.name, column.name) for column in mirror.compared}
    truth = [column for column in mirror.truth.columns if column.name in theirs]
    yield from _cells(mirror.truth, truth)
    for union in family.unions:
        kind = union.table.column(union.column).type
        if kind not in _GATHERED:
            gathered = _name(union.table, union.column)
            yield f"{gathered} has the type {kind}, which is not gathered by group"


def _static(table: Table) -> Iterator[str]:
    for column in table.columns:
        if column.kind is Kind.STATIC:
            yield f"{_name(table, column.spelling)} is static: it belongs to no row"


def _keys(table: Table) -> Iterator[str]:
    for column in table.key:
        yield from _masked(table, column)
        if not _is_made_of(column.type, _IN_KEYS, _NOT_IN_KEYS):
            part = _name(table, column.spelling)
            yield f"{part} has the type {column.type}, and is part of a key: they are not told apart"


def _cells(table: Table, compared: Iterable[Column]) -> Iterator[str]:
    for column in compared:
        yield from _masked(table, column)
        if column.is_counter:
            yield f"{_name(table, column.spelling)} is a counter: it is not compared with a column"
        elif not _is_made_of(column.type, _COMPARED, frozenset()):
            cell = _name(table, column.spelling)
            yield f"{cell} has the type {column.type}, which is not compared exactly"


def _masked(table: Table, column: Column) -> Iterator[str]:
    if column.mask:
        yield f"{_name(table, column.spelling)} is masked: a login without UNMASK compares masks"


def _is_made_of(text: str, scalars: Collection[str], refused: Collection[str]) -> bool:
    """Whether the type, and each type within it, is known; another name is a user type."""
    try:
        parsed = parse_type(text)
    except BadIdentifier:
        return False
    return all(_is_known(part, scalars, refused) for part in _parts(parsed))


def _is_known(name: str, scalars: Collection[str], refused: Collection[str]) -> bool:
    if name in scalars or name in _MADE_OF_OTHERS - set(refused):
        return True
    is_class = name.startswith("'")
    return not (is_class or name in refused or name in _COMPARED or name in {"counter", "empty"})


def _parts(parsed: CqlType) -> Iterator[str]:
    yield parsed.name
    arguments = parsed.arguments
    if parsed.name == "vector":
        arguments = arguments[:1]  # the other one is its length
    for argument in arguments:
        yield from _parts(argument)


def _name(table: Table, column: str) -> str:
    return f"{table.spelling}.{column}"
