"""Fingerprints of rows: sixteen bytes that are equal where all compared cells are the same.

"The same" is what Cassandra stores (`model.values`), in the canonical form of each column.
"""

import marshal
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from mailmend.model.table import Column, OtherColumn, Row
from mailmend.model.values import exact_form
from mailmend.repair.comparable import SIMPLE

_FINGERPRINT_BYTES = 16
_BY_VALUE = 2
"""The last form of marshal whose bytes follow from the values alone, not from how often an object is referred to."""


def fingerprinting(columns: Iterable[Column], sources: Mapping[str, str]) -> Callable[[Row], bytes]:
    """A function from a row to its fingerprint: equal for equal rows, else different except by chance.

    Args:
        columns: the compared columns.
        sources: the row's name for each column whose name differs.
    """
    plain = []
    flags = []
    others = []
    for column in columns:
        name = sources.get(column.name, column.name)
        if _is_plain(column):
            plain.append(name)
        elif column.null_is is False:
            flags.append(name)
        else:
            others.append(_read_form(column, name, sources))
    plain_cells = cells_at(plain)
    flag_cells = cells_at(flags)

    def of(row: Row) -> bytes:
        forms = [form(row) for form in others]
        return fingerprint((plain_cells(row), *map(bool, flag_cells(row)), *forms))

    return of


def fingerprint(values: tuple[Any, ...]) -> bytes:
    """Equal for equal values, which marshal takes."""
    return blake2b(marshal.dumps(values, _BY_VALUE), digest_size=_FINGERPRINT_BYTES).digest()


def cells_at(names: Iterable[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A function to some cells of a row, by their names, or of a tuple, by their places."""
    wanted = tuple(names)
    if len(wanted) > 1:
        return itemgetter(*wanted)
    return lambda row: tuple([row[name] for name in wanted])


def _is_plain(column: Column) -> bool:
    """Whether a cell is its own canonical form. It is taken without a call: there are millions."""
    return column.null_is is None and column.type in SIMPLE


def _read_form(column: Column, name: str, sources: Mapping[str, str]) -> Callable[[Row], Any]:
    """A function to a cell's form for comparison (`canonical_value`), as marshal takes it."""
    form = _form(column)
    match column.null_is:
        case None:
            return lambda row: form(row[name])
        case OtherColumn(other):
            beside = sources.get(other, other)
            return lambda row: form(_either(row[name], row.get(beside)))
        case constant if not constant:  # each cell that is false is this constant
            return lambda row: row[name] or constant
        case constant:
            return lambda row: form(_either(row[name], constant))


def _either(cell: Any, instead: Any) -> Any:
    if cell is None:
        return instead
    return cell


def _form(column: Column) -> Callable[[Any], Any]:
    """A function from a cell to a value that marshal takes, distinct for each cell."""
    if column.is_set:
        return _elements
    if column.type == "timestamp":
        return _instant
    if column.type in SIMPLE:
        return _as_it_is
    return exact_form


def _elements(cell: Any) -> Any:
    """Of a set that is not frozen, null and the empty set are one."""
    if not cell:
        return ()
    return exact_form(frozenset(cell))


def _instant(cell: Any) -> Any:
    """In whole milliseconds, so no two are one number."""
    return cell and cell.timestamp()


def _as_it_is(cell: Any) -> Any:
    return cell
