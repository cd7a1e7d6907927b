"""Reads and writes as CQL text with markers: the one place where row statements are spelled.

Pure. The text depends only on an operation's *shape* (its kind, table, columns and options), the values only on the
operation; so a session prepares each shape once and afterwards only binds. Names are validated, values always bound.
"""
# ruff: noqa: S608 - text is built here, and only here, from validated names; every value is a marker

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, assert_never

from mailmend.model.names import keyspace_spelling
from mailmend.model.operations import (
    Change,
    ChangeIf,
    Conditional,
    Count,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Scan,
    Write,
)
from mailmend.model.table import Column, Key, Row, Table, identifier, names_of

Operation = Read | Scan | Write | Conditional


@dataclass(frozen=True, slots=True)
class Selection:
    """What a read selects, in order: columns, then the write times of some of them, then these cells' TTLs."""

    columns: tuple[Column, ...]
    timed: tuple[Column, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names; a field of a user type has a dotted name."""
        return names_of(self.columns)


def shape_of(operation: Operation) -> Hashable:  # noqa: PLR0911 - one for each kind
    """The key by which texts are cached. Tables count by identity: keep the table while the shape is in use."""
    match operation:
        case Put(table, row, at, clear, ttl):
            return (Put, id(table), *row, at is None, clear, ttl is None)
        case Read(table, key, level, times, among, _, columns):
            return (Read, id(table), len(key), level, times, bool(among), columns)
        case Change(table, key, assign, add, take, at, ttl_seconds=ttl):
            return (Change, id(table), len(key), *assign, "+", *add, "-", *take, at is None, ttl is None)
        case Remove(table, key, at):
            return (Remove, id(table), len(key), at is None)
        case Count(table, key, deltas):
            return (Count, id(table), len(key), *deltas)
        case PutIfAbsent(table, row, ttl):
            return (PutIfAbsent, id(table), *row, ttl is None)
        case ChangeIf(table, key, expected, assign, add, take, ttl):
            return (ChangeIf, id(table), len(key), *expected, "=", *assign, "+", *add, "-", *take, ttl is None)
        case RemoveIf(table, key, expected):
            return (RemoveIf, id(table), len(key), *expected)
        case Scan(table, columns, level, tokens, under, after, limit, _, among, distinct):
            kinds = (tokens is None, len(under), len(after), limit is None, bool(among), distinct)
            return (Scan, id(table), columns, level, *kinds)
        case _:
            assert_never(operation)


def values_of(operation: Operation, unset: object) -> tuple[Any, ...]:  # noqa: PLR0911 - one for each kind
    """The values of the text's markers, in order; `unset` is the driver's value for "leave this column alone"."""
    match operation:
        case Put(table, row, at, clear, ttl):
            return (*_cells(table.whole_cells(row), unset, clear=clear), *_given(ttl), *_given(at))
        case Read(_, key, among=among):
            return (*key, *_listed(among))
        case Change(table, key, assign, add, take, at, ttl_seconds=ttl):
            cells = table.whole_cells(assign).values()
            return (*_given(ttl), *_given(at), *cells, *add.values(), *take.values(), *key)
        case Remove(_, key, at):
            return (*_given(at), *key)
        case Count(_, key, deltas):
            return (*deltas.values(), *key)
        case PutIfAbsent(table, row, ttl):
            return (*_cells(table.whole_cells(row), unset, clear=False), *_given(ttl))
        case ChangeIf(_, key, expected, assign, add, take, ttl):
            return (*_given(ttl), *assign.values(), *add.values(), *take.values(), *key, *expected.values())
        case RemoveIf(_, key, expected):
            return (*key, *expected.values())
        case Scan(_, _, _, tokens, under, after, limit, _, among):
            return (*(under or tokens or ()), *after, *_listed(among), *_given(limit))
        case _:
            assert_never(operation)


def selection_of(read: Read | Scan, *, collection_times: bool) -> Selection:
    """What the read selects. Times of collections can be read from Cassandra 5 on only."""
    match read:
        case Read(table, _, _, times, columns=names):
            columns = tuple(map(table.column, table.stored(table.names)))
            if names is not None:
                columns = (*table.key, *map(table.column, table.stored(names)))
            timed: tuple[Column, ...] = ()
            if times:
                timed = tuple(_timed(table, collection_times=collection_times))
            return Selection(columns, timed)
        case Scan(table, names):
            return Selection(tuple(map(table.column, table.stored(names))))


def render(keyspace: str, operation: Operation, *, collection_times: bool = False) -> str:  # noqa: PLR0911 - one for each kind
    name = f"{keyspace_spelling(keyspace)}.{identifier(operation.table.spelling, 'table name')}"
    match operation:
        case Read() | Scan():
            selected = _render_selection(selection_of(operation, collection_times=collection_times))
            rest = f"{selected} FROM {name}{_render_restriction(operation)}"
            if isinstance(operation, Read):
                return f"SELECT {rest}"
            return _render_scan(operation, rest)
        case Put(_, row, at, _, ttl):
            return f"INSERT INTO {name} {_render_row(operation.table, row)}{_using(ttl=ttl, at=at)}"
        case Change(table, key, assign, add, take, at, ttl_seconds=ttl):
            changes = _render_changes(table, assign, add, take)
            return f"UPDATE {name}{_using(ttl=ttl, at=at)} SET {changes} WHERE {_render_key(table, key)}"
        case Remove(table, key, at):
            return f"DELETE FROM {name}{_using(at=at)} WHERE {_render_key(table, key)}"
        case Count(table, key, deltas):
            return f"UPDATE {name} SET {_render_changes(table, {}, deltas, {})} WHERE {_render_key(table, key)}"
        case PutIfAbsent(table, row, ttl):
            return f"INSERT INTO {name} {_render_row(table, row)} IF NOT EXISTS{_using(ttl=ttl)}"
        case ChangeIf(table, key, expected, assign, add, take, ttl):
            changes = _render_changes(table, assign, add, take)
            where = f"{_render_key(table, key)} IF {_render_expected(table, expected)}"
            return f"UPDATE {name}{_using(ttl=ttl)} SET {changes} WHERE {where}"
        case RemoveIf(table, key, expected):
            return f"DELETE FROM {name} WHERE {_render_key(table, key)} IF {_render_expected(table, expected)}"
        case _:
            assert_never(operation)


def _render_scan(scan: Scan, rest: str) -> str:
    words = ["SELECT"]
    if scan.distinct:
        words.append("DISTINCT")
    words.append(rest)
    if scan.limit is not None:
        words.append("LIMIT ?")
    return " ".join(words)


def _timed(table: Table, *, collection_times: bool) -> Iterable[Column]:
    for column in table.regular:
        if not column.is_counter and (collection_times or not column.is_collection):
            yield column


def _render_selection(selection: Selection) -> str:
    times = [*map(_render_time, selection.timed), *map(_render_ttl, selection.timed)]
    return ", ".join([*map(_render_column, selection.columns), *times])


def _render_column(column: Column) -> str:
    return ".".join(identifier(part, "column name") for part in column.name.split("."))


def _render_time(column: Column) -> str:
    """A field has the write time of its whole (frozen) value."""
    whole = identifier(column.name.partition(".")[0], "column name")
    if column.is_collection:
        return f"MAXWRITETIME({whole})"
    return f"WRITETIME({whole})"


def _render_ttl(column: Column) -> str:
    """Of a collection (5.0 and later) the longest of its elements; one that stays is not looked at, as servers do."""
    whole = identifier(column.name.partition(".")[0], "column name")
    if column.is_collection:
        return f"COLLECTION_MAX(TTL({whole}))"
    return f"TTL({whole})"


def _render_restriction(read: Read | Scan) -> str:
    match read:
        case Read(table, key, among=among) | Scan(table, under=key, among=among) if among:
            return f" WHERE {_render_among(table, key)}"
        case Read(table, key):
            return f" WHERE {_render_key(table, key)}"
        case Scan(table, under=under, after=after) if under:
            return f" WHERE {_render_key(table, under)}{_render_after(table, len(under), len(after))}"
        case Scan(tokens=None):
            return ""
        case Scan(table):
            token = f"token({', '.join(table.partition_names)})"
            return f" WHERE {token} > ? AND {token} <= ?"


def _render_key(table: Table, key: tuple[Any, ...]) -> str:
    if not len(table.partition) <= len(key) <= len(table.key):
        raise ValueError(f"{table.spelling} has no key of {len(key)} values")
    return " AND ".join(_equations(table.key[: len(key)]))


def _render_among(table: Table, key: tuple[Any, ...]) -> str:
    if not len(table.partition) <= len(key) + 1 <= len(table.key):
        raise ValueError(f"{table.spelling} has no key of {len(key) + 1} values")
    *fixed, meant = table.key[: len(key) + 1]
    return " AND ".join([*_equations(fixed), f"{_plain(meant)} IN ?"])


def _render_after(table: Table, fixed: int, width: int) -> str:
    columns = list(map(_plain, table.key[fixed : fixed + width]))
    if len(columns) != width:
        raise ValueError(f"{table.spelling} has no key of {fixed + width} values")
    if not columns:
        return ""
    return f" AND ({', '.join(columns)}) > ({', '.join('?' * width)})"


def _render_row(table: Table, row: Row) -> str:
    columns = [_plain(table.whole_column(name)) for name in table.whole_cells(row)]
    return f"({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _render_changes(table: Table, assign: Row, add: Iterable[str], take: Iterable[str]) -> str:
    changes = _equations(map(table.whole_column, table.whole_cells(assign)))
    for sign, changed in (("+", add), ("-", take)):
        for name in changed:
            column = _plain(table.column(name))
            changes.append(f"{column} = {column} {sign} ?")
    if not changes:
        raise ValueError(f"a change of {table.spelling} changes nothing")
    return ", ".join(changes)


def _render_expected(table: Table, expected: Row) -> str:
    return " AND ".join(_equations(map(table.column, expected))) or "EXISTS"


def _equations(columns: Iterable[Column]) -> list[str]:
    """Each column with a mark for the value that it equals."""
    return [f"{_plain(column)} = ?" for column in columns]


def _plain(column: Column) -> str:
    return identifier(column.name, "column name")


def _using(*, ttl: int | None = None, at: int | None = None) -> str:
    options = []
    if ttl is not None:
        options.append("TTL ?")
    if at is not None:
        options.append("TIMESTAMP ?")
    if not options:
        return ""
    return f" USING {' AND '.join(options)}"


def _given(value: int | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,)


def _listed(among: Key) -> tuple[Key, ...]:
    """The values of an IN, which has one marker."""
    if not among:
        return ()
    return (among,)


def _cells(row: Row, unset: object, *, clear: bool) -> list[Any]:
    """The row's values. A null column is written only with `clear`; otherwise it is left alone."""
    if clear:
        return list(row.values())
    cells = []
    for value in row.values():
        if value is None:
            cells.append(unset)
        else:
            cells.append(value)
    return cells
