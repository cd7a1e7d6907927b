"""Fingerprints of rows: sixteen bytes that are equal where all compared cells are the same.

"The same" is what Cassandra stores (`model.values`), in the canonical form of each column.
"""

import marshal
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from mailmend.model.table import Canonical, Column, Row
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
        elif column.canonical is Canonical.FLAG:
            flags.append(name)
        else:
            form = _cell_form(column, name, sources.get("messageid", "messageid"))
            others.append(form)
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
    return column.canonical is Canonical.PLAIN and column.type in SIMPLE


def _cell_form(column: Column, name: str, beside: str) -> Callable[[Row], Any]:
    """A function to a cell's canonical form (`canonical_value`), distinct for each value, as marshal takes it."""
    match column.canonical:
        case Canonical.NUMBER:
            return lambda row: row[name] or 0
        case Canonical.SET:
            return lambda row: sorted(map(repr, row[name] or ()))
        case Canonical.PLAIN if column.type == "timestamp":
            return lambda row: row[name] and row[name].timestamp()  # in whole milliseconds, so no two are one number
        case Canonical.THREAD:

            def thread(row: Row) -> Any:
                if row[name] is None:  # a message without a thread is its own
                    return exact_form(row.get(beside))
                return exact_form(row[name])

            return thread
        case _:
            return lambda row: exact_form(row[name])
