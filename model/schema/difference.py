"""What a live schema has otherwise than an expected one: pure, so that every kind of drift is tested without a server.

Two values in, a list of differences out; whether one counts as drift is judged in `model.catalog.generations`, which
knows what other generations of James left behind.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from model.schema.cql_types import normal_type
from model.schema.keyspace import Index, Schema, View
from model.schema.literals import map_literal, pairs_of, text_of
from model.schema.names import name_of
from model.schema.table import Column, Kind, Table, UserType


class Aspect(Enum):
    """What is different; the value is its name in reports."""

    MISSING_TYPE = "missing type"
    DIFFERENT_TYPE = "different type"  # a user type whose fields are others
    MISSING_TABLE = "missing table"
    UNEXPECTED_TABLE = "unexpected table"
    DIFFERENT_KEY = "different key"  # other key columns, or the same in another order
    DIFFERENT_ORDER = "different clustering order"
    MISSING_COLUMN = "missing column"
    UNEXPECTED_COLUMN = "unexpected column"
    DIFFERENT_COLUMN = "different column"  # another type, or static where it was not
    DIFFERENT_OPTION = "different option"
    UNEXPECTED_TYPE = "unexpected type"
    MISSING_INDEX = "missing index"
    UNEXPECTED_INDEX = "unexpected index"
    DIFFERENT_INDEX = "different index"  # on another table or column, or of another class
    MISSING_VIEW = "missing view"
    UNEXPECTED_VIEW = "unexpected view"
    DIFFERENT_VIEW = "different view"  # of another table, with another key, other columns or another condition


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is otherwise.

    Attributes:
        owner: the table, user type or view, in James's spelling where it is known; of an index its table.
        subject: the column, option or index, or "" when it is the owner as a whole.
        expected, found: both sides as CQL has them, "" where there is none.
    """

    aspect: Aspect
    owner: str
    subject: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        place = f"{self.owner}.{self.subject}" if self.subject else self.owner
        match (self.expected, self.found):
            case ("", ""):
                return f"{self.aspect.value}: {place}"
            case (expected, ""):
                return f"{self.aspect.value}: {place} ({expected})"
            case ("", found):
                return f"{self.aspect.value}: {place} ({found})"
            case (expected, found):
                return f"{self.aspect.value}: {place}: expected {expected}, found {found}"


def differences(expected: Schema, live: Schema) -> tuple[Difference, ...]:
    """Everything in which the live schema is otherwise: types, tables in the expected order, indexes, views."""
    return (
        *_between_types(expected, live),
        *_between_tables(expected, live),
        *_between_indexes(expected, live),
        *_between_views(expected, live),
    )


def _between_types(expected: Schema, live: Schema) -> Iterator[Difference]:
    for wanted in expected.types:
        found = live.user_type(wanted.name)
        if found is None:
            yield Difference(Aspect.MISSING_TYPE, wanted.spelling, expected=_fields(wanted))
        elif _fields(wanted) != _fields(found):
            yield Difference(Aspect.DIFFERENT_TYPE, wanted.spelling, "", _fields(wanted), _fields(found))
    for user_type in live.types:
        if expected.user_type(user_type.name) is None:
            yield Difference(Aspect.UNEXPECTED_TYPE, user_type.spelling, found=_fields(user_type))


def _fields(user_type: UserType) -> str:
    return ", ".join(f"{name_of(name)} {normal_type(text)}" for name, text in user_type.fields)


def _between_tables(expected: Schema, live: Schema) -> Iterator[Difference]:
    for wanted in expected.tables:
        found = live.table(wanted.name)
        if found is None:
            yield Difference(Aspect.MISSING_TABLE, wanted.spelling)
        else:
            yield from table_differences(wanted, found)
    for table in live.tables:
        if expected.table(table.name) is None:
            yield Difference(Aspect.UNEXPECTED_TABLE, table.spelling)


def _between_indexes(expected: Schema, live: Schema) -> Iterator[Difference]:
    wanted, found = ({name_of(one.spelling): one for one in schema.indexes} for schema in (expected, live))
    for name, index in wanted.items():
        if name not in found:
            yield Difference(Aspect.MISSING_INDEX, index.table, index.spelling, expected=index_text(index))
        elif not _same_index(index, found[name]):
            texts = index_text(index), index_text(found[name])
            yield Difference(Aspect.DIFFERENT_INDEX, index.table, index.spelling, *texts)
    for name, index in found.items():
        if name not in wanted:
            yield Difference(Aspect.UNEXPECTED_INDEX, index.table, index.spelling, found=index_text(index))


def index_text(index: Index) -> str:
    """What an index is on, and by which class, in one spelling."""
    using = f" using {_short(index.using)}" if index.using else ""
    return f"{name_of(index.table)} ({_folded(index.target)}){using}"


def _same_index(wanted: Index, found: Index) -> bool:
    return index_text(wanted) == index_text(found) and wanted.options.items() <= found.options.items()


def _between_views(expected: Schema, live: Schema) -> Iterator[Difference]:
    wanted, found = ({one.table.name: one for one in schema.views} for schema in (expected, live))
    for name, view in wanted.items():
        if name not in found:
            yield Difference(Aspect.MISSING_VIEW, view.table.spelling, expected=view_text(view))
        elif view_text(view) != view_text(found[name]):
            texts = view_text(view), view_text(found[name])
            yield Difference(Aspect.DIFFERENT_VIEW, view.table.spelling, "", *texts)
        else:
            yield from _between_options(view.table, found[name].table)
    for name, view in found.items():
        if name not in wanted:
            yield Difference(Aspect.UNEXPECTED_VIEW, view.table.spelling, found=view_text(view))


def view_text(view: View) -> str:
    """What makes a view: its base table, columns, key, order and condition, in one spelling."""
    columns = ", ".join(sorted(view.table.names))
    key = f"{_key_text(view.table)}, {_order_text(view.table)}"
    return f"of {name_of(view.base)} ({columns}) key ({key}) where {_folded(view.where)}"


def _short(class_name: str) -> str:
    """A class by its short name; the two names of the storage-attached index are one."""
    short = class_name.strip("'").rsplit(".", 1)[-1]
    return "StorageAttachedIndex" if short.lower() in {"sai", "storageattachedindex"} else short


_QUOTED = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")""")


def _folded(cql: str) -> str:
    """A piece of CQL in lower case and single spaces; what stands in quotes keeps its case, names lose the quotes."""
    parts = [part if part[:1] in ("'", '"') else part.lower() for part in _QUOTED.split(cql)]
    return " ".join("".join(parts).replace('"', "").split())


def table_differences(wanted: Table, found: Table) -> Iterator[Difference]:
    """Everything in which one live table is otherwise: key, order, columns, options."""
    yield from _between_keys(wanted, found)
    yield from _between_columns(wanted, found)
    yield from _between_options(wanted, found)


def _key_text(table: Table) -> str:
    partition = ", ".join(column.name for column in table.partition)
    return ", ".join((f"({partition})", *(column.name for column in table.clustering)))


def _order_text(table: Table) -> str:
    return ", ".join(f"{column.name} {'DESC' if column.descending else 'ASC'}" for column in table.clustering)


def _between_keys(wanted: Table, found: Table) -> Iterator[Difference]:
    if _key_text(wanted) != _key_text(found):
        yield Difference(Aspect.DIFFERENT_KEY, wanted.spelling, "", _key_text(wanted), _key_text(found))
    elif _order_text(wanted) != _order_text(found):
        yield Difference(Aspect.DIFFERENT_ORDER, wanted.spelling, "", _order_text(wanted), _order_text(found))


def _column_text(column: Column) -> str:
    static = " static" if column.kind is Kind.STATIC else ""
    return f"{normal_type(column.type)}{static}"


def _between_columns(wanted: Table, found: Table) -> Iterator[Difference]:
    for column in wanted.columns:
        if column.name not in found:
            yield Difference(Aspect.MISSING_COLUMN, wanted.spelling, column.spelling, expected=_column_text(column))
            continue
        texts = _column_text(column), _column_text(found.column(column.name))
        if texts[0] != texts[1]:
            yield Difference(Aspect.DIFFERENT_COLUMN, wanted.spelling, column.spelling, *texts)
    for column in found.columns:
        if column.name not in wanted:
            yield Difference(Aspect.UNEXPECTED_COLUMN, wanted.spelling, column.name, found=_column_text(column))


_UNTOLD = {"allow_auto_snapshot": "true", "cdc": "false", "incremental_backups": "true", "memtable": "'default'"}
"""Options that a server keeps as null where they are as by default, and tells all the same in a description."""


def _between_options(wanted: Table, found: Table) -> Iterator[Difference]:
    """Only options that are declared: what a server adds by itself is its own business."""
    expected = {**wanted.options, **wanted.literals(comment=False)}
    live = found.literals(comment=False)
    for name, value in expected.items():
        texts = option_text(value), option_text(live.get(name, _UNTOLD.get(name, "")))
        if not option_says(texts[0], texts[1]):
            yield Difference(Aspect.DIFFERENT_OPTION, wanted.spelling, name, *texts)


def option_text(literal: str) -> str:
    """An option's literal in one spelling, so that two can be compared."""
    pairs = pairs_of(literal)
    return map_literal(pairs) if pairs else literal


_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?)p(?:ercentile)?", re.IGNORECASE)


def option_says(expected: str, found: str) -> bool:
    """Whether the live option says at least what is expected: servers add their own defaults to a map."""
    if expected.startswith("{"):
        return pairs_of(expected).items() <= pairs_of(found).items()
    texts = _retry(text_of(expected)), _retry(text_of(found))
    return texts[0] == texts[1] or (_number(texts[0]) is not None and _number(texts[0]) == _number(texts[1]))


def _retry(text: str) -> str:
    """A speculative retry as servers tell it: `99PERCENTILE` is `99p`."""
    found = _PERCENTILE.fullmatch(text)
    return f"{float(found[1]):g}p" if found else text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
