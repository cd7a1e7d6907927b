"""The differences between a live schema and an expected one. Pure.

Whether a difference counts as drift is decided in `cql.schema.generations`, which knows what other generations of
James left behind.
"""

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from mailmend.cql.schema.risk import OPTION_DEFAULTS
from mailmend.model.keyspace import Index, Schema, View, by_name
from mailmend.model.names import map_literal, name_of, pairs_of, text_of
from mailmend.model.table import Table, UserType

P = TypeVar("P", UserType, Table, Index, View)


class Aspect(Enum):
    """The kinds of differences; the value is its name in reports."""

    MISSING_TYPE = "missing type"
    DIFFERENT_TYPE = "different type"  # a user type whose fields are others
    MISSING_TABLE = "missing table"
    UNEXPECTED_TABLE = "unexpected table"
    DIFFERENT_KEY = "different key"  # other key columns, or the same in another order
    DIFFERENT_ORDER = "different clustering order"
    MISSING_COLUMN = "missing column"
    UNEXPECTED_COLUMN = "unexpected column"
    DIFFERENT_COLUMN = "different column"  # another type, or static where it was not
    DIFFERENT_MASK = "different mask"
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
    """One difference between two schemas.

    Attributes:
        owner: the table, user type or view, in James's spelling where that is known; for an index its table.
        subject: the column, option or index, or "" when it is the owner as a whole.
        expected, found: both sides as CQL; "" where a side has nothing.
    """

    aspect: Aspect
    owner: str
    subject: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        place = self.owner
        if self.subject:
            place = f"{place}.{self.subject}"
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
    """All differences of the live schema: types, tables in the expected order, indexes, views."""
    return (
        *_compare(expected.types, live.types, "TYPE", _type_text),
        *_compare(expected.tables, live.tables, "TABLE", lambda _: "", table_differences),
        *_compare(expected.indexes, live.indexes, "INDEX", index_text, _index_options),
        *_compare(expected.views, live.views, "VIEW", view_text, _view_options),
    )


def _compare(
    expected: Iterable[P],
    live: Iterable[P],
    kind: str,
    text: Callable[[P], str],
    within: Callable[[P, P], Iterator[Difference]] = lambda _, __: iter(()),
) -> Iterator[Difference]:
    found = by_name(live)
    for wanted in expected:
        other = found.pop(wanted.name, None)
        if other is None:
            yield Difference(Aspect[f"MISSING_{kind}"], *_place(wanted), expected=text(wanted))
        elif text(wanted) != text(other):
            yield Difference(Aspect[f"DIFFERENT_{kind}"], *_place(wanted), text(wanted), text(other))
        else:
            yield from within(wanted, other)
    for other in found.values():
        yield Difference(Aspect[f"UNEXPECTED_{kind}"], *_place(other), found=text(other))


def aspects_of(found: Iterable[Difference]) -> frozenset[Aspect]:
    return frozenset(difference.aspect for difference in found)


def _place(part: UserType | Table | Index | View) -> tuple[str, str]:
    match part:
        case Index():
            return part.table, part.spelling
        case View():
            return part.table.spelling, ""
        case _:
            return part.spelling, ""


def _type_text(user_type: UserType) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in user_type.normal_fields)


def index_text(index: Index) -> str:
    """Target and class of an index, in one spelling."""
    text = f"{name_of(index.table)} ({_folded(index.target)})"
    if index.using:
        text += f" using {_short(index.using)}"
    return text


def _index_options(wanted: Index, found: Index) -> Iterator[Difference]:
    if not wanted.options.items() <= found.options.items():
        yield Difference(Aspect.DIFFERENT_INDEX, *_place(wanted), index_text(wanted), index_text(found))


def view_text(view: View) -> str:
    """A view's base table, columns, key, order and condition, in one spelling."""
    columns = ", ".join(sorted(view.table.names))
    key = f"{_key_text(view.table)}, {_order_text(view.table)}"
    return f"of {name_of(view.base)} ({columns}) key ({key}) where {_folded(view.where)}"


def _view_options(wanted: View, found: View) -> Iterator[Difference]:
    return _between_options(wanted.table, found.table)


def _short(class_name: str) -> str:
    """A class by its short name; both names of the storage-attached index are one."""
    short = class_name.strip("'").rsplit(".", 1)[-1]
    if short.lower() in {"sai", "storageattachedindex"}:
        return "StorageAttachedIndex"
    return short


_QUOTED = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")""")


def _folded(cql: str) -> str:
    """CQL in lower case and single spaces; quoted text keeps its case, names lose their quotes."""
    parts = []
    for part in _QUOTED.split(cql):
        if part.startswith(("'", '"')):
            parts.append(part)
        else:
            parts.append(part.lower())
    return " ".join("".join(parts).replace('"', "").split())


NO_MASK = "no mask"
"""How a column without a mask is shown where another mask is expected or found."""


def table_differences(wanted: Table, found: Table) -> Iterator[Difference]:
    """All differences of one live table: key, order, columns, options."""
    yield from _between_keys(wanted, found)
    yield from _between_columns(wanted, found)
    yield from _between_options(wanted, found)


def _key_text(table: Table) -> str:
    partition = ", ".join(table.partition_names)
    clustering = table.key_names[len(table.partition) :]
    return ", ".join((f"({partition})", *clustering))


def _order_text(table: Table) -> str:
    return ", ".join(f"{column.name} {column.order}" for column in table.clustering)


def _between_keys(wanted: Table, found: Table) -> Iterator[Difference]:
    if _key_text(wanted) != _key_text(found):
        yield Difference(Aspect.DIFFERENT_KEY, wanted.spelling, "", _key_text(wanted), _key_text(found))
    elif _order_text(wanted) != _order_text(found):
        yield Difference(Aspect.DIFFERENT_ORDER, wanted.spelling, "", _order_text(wanted), _order_text(found))


def _between_columns(wanted: Table, found: Table) -> Iterator[Difference]:
    for column in wanted.columns:
        if column.name not in found:
            yield Difference(Aspect.MISSING_COLUMN, wanted.spelling, column.spelling, expected=column.shape)
        elif column.shape != (there := found.column(column.name).shape):
            yield Difference(Aspect.DIFFERENT_COLUMN, wanted.spelling, column.spelling, column.shape, there)
        if column.name in found and column.mask != (live_mask := found.column(column.name).mask):
            yield Difference(
                Aspect.DIFFERENT_MASK,
                wanted.spelling,
                column.spelling,
                column.mask or NO_MASK,
                live_mask or NO_MASK,
            )
    for column in found.columns:
        if column.name not in wanted:
            yield Difference(Aspect.UNEXPECTED_COLUMN, wanted.spelling, column.name, found=column.shape)


def with_lifetimes(expected: Schema, live: Schema) -> Schema:
    """The expected schema with the default lifetimes written out for tables that exist in the live one."""
    found = by_name(live.tables)
    tables = []
    for table in expected.tables:
        if table.name in found:
            tables.append(_with_lifetimes(table, found[table.name]))
        else:
            tables.append(table)
    return replace(expected, tables=tuple(tables))


def _with_lifetimes(table: Table, live: Table) -> Table:
    defaults = options_among(OPTION_DEFAULTS, live.options)
    table = replace(table, options={**defaults, **table.options})
    if live.compaction is None or not _expires_unsafely(live.compaction.literal):
        return table
    compaction = table.compaction or live.compaction
    options = {**compaction.options, _UNSAFE: "false"}
    if table.compaction:
        options.update(table.compaction.options)
    return replace(table, compaction=replace(compaction, options=options))


def endangers(difference: Difference) -> bool:
    """Whether a live option may lose data or bring deleted data back: it expires or forgets too early."""
    if difference.aspect is not Aspect.DIFFERENT_OPTION or not difference.found:
        return False
    expected = difference.expected
    found = difference.found
    match difference.subject:
        case "gc_grace_seconds":
            return _seconds(found) < _seconds(expected)
        case "default_time_to_live":
            return (_seconds(found) or math.inf) < (_seconds(expected) or math.inf)
        case "compaction":
            return _expires_unsafely(found) and not _expires_unsafely(expected)
        case _:
            return False


def _seconds(literal: str) -> float:
    return _number(text_of(literal)) or 0.0


_UNSAFE = "unsafe_aggressive_sstable_expiration"
"""Expired SSTables go without a look at what they still hide elsewhere."""


def _expires_unsafely(compaction: str) -> bool:
    return pairs_of(compaction).get(_UNSAFE, "").lower() == "true"


_KEPT_AS_NULL = {"allow_auto_snapshot": "true", "cdc": "false", "incremental_backups": "true", "memtable": "'default'"}
"""Options that a server keeps as null while they have their default, and that its descriptions show all the same."""


def _between_options(wanted: Table, found: Table) -> Iterator[Difference]:
    """Only declared options: servers add other options."""
    expected = {**wanted.options, **wanted.literals(comment=False)}
    live = found.literals(comment=False)
    for name, value in expected.items():
        text = option_text(value)
        live_text = option_text(live.get(name, _KEPT_AS_NULL.get(name, "")))
        if not option_says(text, live_text):
            yield Difference(Aspect.DIFFERENT_OPTION, wanted.spelling, name, text, live_text)


def options_among(options: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    """The options whose names are among these."""
    return {name: literal for name, literal in options.items() if name in names}


def option_text(literal: str) -> str:
    """An option's literal in one spelling, for comparison."""
    pairs = pairs_of(literal)
    if not pairs:
        return literal
    return map_literal(pairs)


_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?)p(?:ercentile)?", re.IGNORECASE)


def option_says(expected: str, found: str) -> bool:
    """Whether the live option has all expected values; a map may have more, as servers add their defaults."""
    if expected.startswith("{"):
        return pairs_of(expected).items() <= pairs_of(found).items()
    one = _retry(text_of(expected))
    other = _retry(text_of(found))
    return one == other or (_number(one) is not None and _number(one) == _number(other))


def _retry(text: str) -> str:
    """A speculative retry as servers show it: `99PERCENTILE` is `99p`."""
    found = _PERCENTILE.fullmatch(text)
    if not found:
        return text
    return f"{float(found[1]):g}p"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
