"""What Spark compares exactly, and keys as text between its frames and Python.

Spark's connector rounds decimals, and Spark has no order of maps. A family with such a column is
refused by name; the engine without Spark compares it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import Column as Expression
from pyspark.sql import functions as sf

from mailmend.cql.rows import decode
from mailmend.model.errors import WrongUse
from mailmend.model.projections.family import Family
from mailmend.model.projections.partial_mirror import ExplodedMirror
from mailmend.model.table import Column, Key, Table
from mailmend.repair.comparable import TEXTS, UUIDS, WHOLE_NUMBERS

IN_KEYS: Final = TEXTS | WHOLE_NUMBERS | UUIDS | {"blob", "boolean", "date", "timestamp"}
COMPARED: Final = IN_KEYS | {"double", "float", "set<text>"}
_SETS: Final = frozenset(f"set<{element}>" for element in IN_KEYS)
_LISTS: Final = frozenset(f"list<{element}>" for element in IN_KEYS)
EXPLODED: Final = _SETS | _LISTS | {f"frozen<{kind}>" for kind in _SETS | _LISTS}


def refuse_incomparable_here(families: Iterable[Family]) -> None:
    """Refuse families with a column that Spark does not compare exactly.

    Raises:
        WrongUse: the error names each such column, with its type.
    """
    problems: dict[str, None] = {}
    for family in families:
        problems |= dict.fromkeys(_problems(family))
    if problems:
        raise WrongUse(
            f"Spark does not compare exactly: {', '.join(problems)}",
            mend="Check these tables with: --engine local.",
        )


def _problems(family: Family) -> Iterator[str]:
    for table in family.tables:
        yield from _other_than(IN_KEYS, table, table.key)
    mirror = family.mirror
    theirs = {mirror.truth_names.get(column.name, column.name) for column in mirror.compared}
    yield from _other_than(COMPARED, mirror.table, mirror.compared)
    theirs.update(mirror.required)
    truth = [column for column in mirror.truth.columns if column.name in theirs]
    yield from _other_than(COMPARED, mirror.truth, truth)
    if isinstance(mirror, ExplodedMirror):
        yield from _other_than(EXPLODED, mirror.truth, [mirror.truth.column(mirror.collection)])


def _other_than(known: frozenset[str], table: Table, columns: Iterable[Column]) -> Iterator[str]:
    for column in columns:
        if column.type not in known:
            yield f"{table.spelling}.{column.spelling} ({column.type})"


def plain_form(cell: Expression, cql_type: str) -> Expression:
    """A cell with a hash of its own for each value: Spark hashes 0.0 and -0.0 alike, not their text."""
    if cql_type in WHOLE_NUMBERS:
        return cell.cast("long")
    if cql_type in {"double", "float"}:
        return cell.cast("string")
    if cql_type == "set<text>":
        return sf.sort_array(cell)
    return cell


def key_texts(keyed: Iterable[tuple[str, Column]]) -> Expression:
    """A key as an array of text, from pairs of a name in the frame and the column of the key."""
    return sf.array(*(_text_of(sf.col(f"`{name}`"), column) for name, column in keyed))


def _text_of(cell: Expression, column: Column) -> Expression:
    match column.type:
        case "timestamp":
            return sf.date_format(cell, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
        case "blob":
            return sf.lower(sf.hex(cell))
        case _:
            return cell.cast("string")


def key_of(columns: Sequence[Column], texts: Sequence[str]) -> Key:
    """A key from the texts that `key_texts` makes."""
    return tuple(_part_of(column, text) for column, text in zip(columns, texts, strict=True))


def _part_of(column: Column, text: str) -> Any:
    if column.type == "boolean":
        return text == "true"
    return decode(column.type, text)
