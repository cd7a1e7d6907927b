"""Tables in memory that answer as Cassandra would, and the rules by which it reconciles cells.

Of two cells the later stays; at a tie a tombstone beats a value, an expiring cell one that does not
expire, and the larger value the smaller. A row is visible while its marker or any of its cells is.
Pure: time and stamps are arguments.

Many tests depend on it, so it follows Cassandra's rules cell by cell: an insert
leaves a row marker, an update does not; a delete covers everything with the same or an earlier
stamp; a conditional write has the stamp of its ballot, not of its author. Both pass the same suite
(`tests/conformance`). Not modelled: static columns, lists changed in place, purged tombstones.
"""

import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any, assert_never
from uuid import UUID

from mailmend.cql.row_statements import Operation
from mailmend.model.errors import MailmendError
from mailmend.model.instants import MICROS
from mailmend.model.operations import (
    Applied,
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
    Seen,
    Write,
    computed_in,
)
from mailmend.model.table import Column, Key, Row, Table

NEVER = -(2**63)
"""A stamp before all others."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One written value, or a tombstone (None)."""

    value: Any
    at: int
    expires_at: int | None = None  # in seconds, as the server counts them

    @property
    def strength(self) -> tuple[Any, ...]:
        """Sort key: of two cells the one with the larger strength stays."""
        fades = self.value is None or self.expires_at is not None
        return (self.at, fades, self.value is None, self.expires_at or 0, _as_bytes(self.value))

    def shows(self, deleted_at: int, now_seconds: int) -> bool:
        """Whether the cell is newer than the deletion and not expired."""
        alive = self.expires_at is None or now_seconds < self.expires_at
        return self.value is not None and alive and self.at > deleted_at


@dataclass(slots=True)
class Elements:
    """A collection: a cell for each element, and when it was last cleared as a whole."""

    cells: dict[Any, Cell] = field(default_factory=dict)
    cleared_at: int = NEVER


@dataclass(slots=True)
class StoredRow:
    """All cells that were written under one primary key."""

    marker: Cell = Cell(None, NEVER)
    cells: dict[str, Cell] = field(default_factory=dict)
    collections: dict[str, Elements] = field(default_factory=dict)
    counters: dict[str, Cell] = field(default_factory=dict)

    def mark(self, at: int, expires_at: int | None) -> None:
        """Set the row marker, which an insert writes and an update does not."""
        self.marker = max(self.marker, Cell("row", at, expires_at), key=lambda cell: cell.strength)

    def assign(self, column: Column, value: Any, at: int, expires_at: int | None) -> None:
        """Set a column, or clear it (None). A collection is first cleared under the stamp just before `at`."""
        if column.is_collection:
            elements = self.collections.setdefault(column.name, Elements())
            elements.cleared_at = max(elements.cleared_at, at - 1)
            self.add(column, value or (), at, expires_at)
            return
        if value is None:
            expires_at = None
        _merge(self.cells, column.name, Cell(value, at, expires_at))

    def add(self, column: Column, values: Any, at: int, expires_at: int | None) -> None:
        cells = self.collections.setdefault(column.name, Elements()).cells
        for name, value in _elements(column, values):
            _merge(cells, name, Cell(value, at, expires_at))

    def take(self, column: Column, values: Iterable[Any], at: int) -> None:
        cells = self.collections.setdefault(column.name, Elements()).cells
        for name in values:
            _merge(cells, name, Cell(None, at))

    def count(self, deltas: Mapping[str, int], at: int, deleted_at: int) -> None:
        """Add to counters; a deleted counter starts again from 0."""
        for name, delta in deltas.items():
            counted = 0
            before = self.counters.get(name)
            if before and before.at > deleted_at:
                counted = before.value
            self.counters[name] = Cell(counted + delta, at)

    def look(self, deleted_at: int, now_seconds: int) -> tuple[dict[str, Any], dict[str, int], dict[str, int]] | None:
        """The visible cells, their times, and the TTLs of the cells that expire; None without visible cells."""
        values: dict[str, Any] = {}
        times: dict[str, int] = {}
        ends: dict[str, int] = {}
        for name, cell in self.cells.items():
            if cell.shows(deleted_at, now_seconds):
                values[name] = cell.value
                times[name] = cell.at
                if cell.expires_at is not None:
                    ends[name] = cell.expires_at
        for name, cell in self.counters.items():
            if cell.shows(deleted_at, now_seconds):
                values[name] = cell.value
        for name, elements in self.collections.items():
            covered = max(deleted_at, elements.cleared_at)
            shown = {part: cell for part, cell in elements.cells.items() if cell.shows(covered, now_seconds)}
            if shown:
                values[name] = {part: cell.value for part, cell in shown.items()}
                times[name] = max(cell.at for cell in shown.values())
                expiring = [cell.expires_at for cell in shown.values() if cell.expires_at is not None]
                if expiring:
                    ends[name] = max(expiring)
        if not values and not self.marker.shows(deleted_at, now_seconds):
            return None
        ttls = {name: ends_at - now_seconds for name, ends_at in ends.items()}
        return values, times, ttls


@dataclass(slots=True)
class Partition:
    """The rows of a partition, and its deletions: of the whole partition, of ranges, and of rows."""

    rows: dict[Key, StoredRow] = field(default_factory=dict)
    deleted_at: dict[Key, int] = field(default_factory=dict)

    def remove(self, key: Key, at: int) -> None:
        """Delete all rows under the key (a prefix will do) with stamp `at`."""
        self.deleted_at[key] = max(at, self.deleted_at.get(key, NEVER))

    def keys_under(self, table: Table, key: Key) -> list[Key]:
        if len(key) < len(table.key):
            return [full for full in self.rows if full[: len(key)] == key]
        if key in self.rows:
            return [key]
        return []

    def deletion_of(self, key: Key) -> int:
        """The stamp of the latest deletion that covers the row."""
        if not self.deleted_at:
            return NEVER
        return max(self.deleted_at.get(key[:length], NEVER) for length in range(1, len(key) + 1))

    def look(self, table: Table, key: Key, now_seconds: int, *, times: bool) -> Seen | None:
        shown = self.rows[key].look(self.deletion_of(key), now_seconds)
        if shown is None:
            return None
        values, written, ttls = shown
        row = table.key_row(key)
        written_at = {}
        left = {}
        for column in table.regular:
            row[column.name] = _value(column, values)
            whole = column.name.partition(".")[0]
            if times and whole in written:
                written_at[column.name] = written[whole]
            if times and whole in ttls:
                left[column.name] = ttls[whole]
        return Seen(row, written_at, left)


def in_clustering_order(table: Table, rows: list[Seen]) -> list[Seen]:
    for column in reversed(table.clustering):
        rows = sorted(rows, key=lambda seen: _order(column, seen.row[column.name]), reverse=column.descending)
    return rows


def _merge(cells: dict[Any, Cell], name: Any, cell: Cell) -> None:
    before = cells.get(name)
    if before is None or cell.at > before.at or (cell.at == before.at and cell.strength > before.strength):
        cells[name] = cell


def _elements(column: Column, values: Any) -> Iterable[tuple[Any, Any]]:
    """Pairs of (element key, value): a set's element is its own key, a list's key is its index."""
    if column.type.startswith("map<"):
        return list(dict(values).items())
    if column.type.startswith("list<"):
        return list(enumerate(values))
    return [(value, True) for value in values]


def _value(column: Column, values: Mapping[str, Any]) -> Any:
    """A column's value in the model's form; a dotted name is a field of a user type."""
    whole, _, part = column.name.partition(".")
    value = values.get(whole)
    if value is None or not (part or column.is_collection):
        return value
    if part:
        return value.get(part)
    if column.type.startswith("map<"):
        return dict(value)
    if column.type.startswith("set<"):
        return frozenset(value)
    return tuple(value[place] for place in sorted(value))


def _order(column: Column, value: Any) -> Any:
    """Version-1 UUIDs are ordered by time, then by their signed bytes; text by its bytes."""
    if column.type == "timeuuid":
        return (value.time, struct.unpack("8b", value.bytes[8:]))
    if isinstance(value, str):
        return value.encode()
    return value


def _as_bytes(value: Any) -> bytes:  # noqa: PLR0911 - one for each kind
    """The value as stored, as far as the order at a tie depends on it."""
    match value:
        case int():
            return int(value).to_bytes(8, "big", signed=True)
        case str():
            return value.encode()
        case UUID():
            return value.bytes
        case datetime():
            return round(value.timestamp() * 1000).to_bytes(8, "big", signed=True)
        case bytes():
            return value
        case Mapping():
            return b"".join(len(part).to_bytes(4, "big") + part for part in map(_as_bytes, value.values()))
        case _:
            return repr(value).encode()


Surround = Callable[[Operation, Callable[[], Any]], Any]
"""Called for each operation with a function that carries it out; may fail before, after, or instead."""


def token_of(partition_key: Key) -> int:
    """A partition's place in the order of a scan: from -2**63 to 2**63-1, spread like real tokens."""
    return int.from_bytes(blake2b(repr(partition_key).encode(), digest_size=8).digest(), signed=True)


class MemoryTables:
    """The tables of one keyspace, and its one node's clock. Implements `model.ports.Tables` and `NodeClocks`.

    Args:
        micros: the clock: stamps what has no stamp of its own, numbers the ballots, lets what has a TTL expire.
        surround: for tests of crashes, doubtful answers and missing replicas.
    """

    def __init__(self, micros: Callable[[], int], surround: Surround | None = None) -> None:
        self.surround: Surround = surround or (lambda _, carry_out: carry_out())
        self._micros = micros
        self._last_stamp = NEVER
        self._tables: defaultdict[str, dict[Key, Partition]] = defaultdict(dict)
        self._lock = threading.RLock()

    def read(self, read: Read) -> Sequence[Seen]:
        def narrowed() -> list[Seen]:
            rows = []
            for key in _among(read.key, read.among):
                for row in self._read(read.table, key, times=read.times):
                    rows.append(_narrowed(read, row.completed(computed_in(read))))
            return rows

        seen: Sequence[Seen] = self._surrounded(read, narrowed)
        return seen

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        return [_caught(self.read, read) for read in reads]

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Yield the rows as they are when the scan begins, in token order."""
        rows: Sequence[Row] = self._surrounded(scan, lambda: self._scan(scan))
        yield from rows

    def write(self, write: Write) -> None:
        self._surrounded(write, lambda: self._write(write))

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        return [_caught(self.write, write) for write in writes]

    def attempt(self, write: Conditional) -> Applied:
        applied: Applied = self._surrounded(write, lambda: self._attempt(write))
        return applied

    def node_micros(self) -> list[int]:
        return [self._micros()]

    def _surrounded(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        def alone() -> Any:
            with self._lock:
                return carry_out()

        return self.surround(operation, alone)

    def _read(self, table: Table, key: Key, *, times: bool) -> list[Seen]:
        partition = self._partition(table, key)
        now = self._seconds()
        rows = []
        for full in partition.keys_under(table, key):
            row = partition.look(table, full, now, times=times)
            if row:
                rows.append(row)
        return in_clustering_order(table, rows)

    def _scan(self, scan: Scan) -> list[Row]:
        if scan.under or scan.among:
            within = _among(scan.under, scan.among)
        else:
            within = self._partitions_in(scan)
        start = len(scan.under)
        end = len(scan.under) + len(scan.after)
        rows: list[Row] = []
        for key in within:
            found = self._read(scan.table, key, times=False)
            if scan.distinct:
                found = found[:1]
            for seen in found:
                if not scan.after or scan.table.key_of(seen.row)[start:end] > scan.after:
                    rows.append(_cells(scan.table.completed(seen.row), scan.columns))
        return rows[: scan.limit]

    def _partitions_in(self, scan: Scan) -> list[Key]:
        after, up_to = scan.tokens or (NEVER - 1, -NEVER)
        within = []
        for key in self._tables[scan.table.name]:
            token = token_of(key)
            if after < token <= up_to:
                within.append((token, key))
        return [key for _, key in sorted(within)]

    def _write(self, write: Write) -> None:
        match write:
            case Put(table, row, at, clear, ttl):
                self._put(table, row, self._stamp(at), ttl, clear=clear)
            case Change(table, key, assign, add, take, at, ttl_seconds=ttl):
                self._change(table, key, (assign, add, take), self._stamp(at), ttl)
            case Remove(table, key, at):
                self._partition(table, key).remove(key, self._stamp(at))
            case Count(table, key, deltas):
                deleted_at = self._partition(table, key).deletion_of(key)
                self._stored(table, key).count(deltas, self._stamp(None), deleted_at)
            case _:
                assert_never(write)

    def _attempt(self, write: Conditional) -> Applied:
        match write:
            case PutIfAbsent(table, row, ttl):
                current = self._current(table, table.key_of(row))
                if current is not None:
                    return Applied(applied=False, current=current)
                ballot = self._stamp(None)
                self._put(table, row, ballot, ttl, clear=False)
                for change in write.beside:
                    cells = (change.assign, change.add, change.take)
                    self._change(table, change.key, cells, ballot, change.ttl_seconds)
            case ChangeIf(table, key, expected, assign, add, take, ttl):
                refused = self._refusal(table, key, expected)
                if refused is not None:
                    return refused
                self._change(table, key, (assign, add, take), self._stamp(None), ttl)
            case RemoveIf(table, key, expected):
                refused = self._refusal(table, key, expected)
                if refused is not None:
                    return refused
                self._partition(table, key).remove(key, self._stamp(None))
        return Applied(applied=True)

    def _refusal(self, table: Table, key: Key, expected: Row) -> Applied | None:
        """An absent row equals one of nulls, except where only its existence is expected."""
        current = self._current(table, key)
        as_expected = all(_equal((current or {}).get(name), value) for name, value in expected.items())
        if as_expected and (expected or current is not None):
            return None
        return Applied(applied=False, current=current and _cells(current, expected))

    def _current(self, table: Table, key: Key) -> Row | None:
        rows = self._read(table, key, times=False)
        if not rows:
            return None
        return rows[0].row

    def _put(self, table: Table, row: Row, at: int, ttl: int | None, *, clear: bool) -> None:
        stored = self._stored(table, table.key_of(row))
        expires_at = self._expiry(table, ttl)
        stored.mark(at, expires_at)
        cells = table.whole_cells(row)
        for column in (*table.regular, *map(table.whole_column, table.by_field)):
            if column.name in cells and (clear or cells[column.name] is not None):
                stored.assign(column, cells[column.name], at, expires_at)

    def _change(
        self,
        table: Table,
        key: Key,
        changes: tuple[Row, Mapping[str, Any], Mapping[str, Any]],
        at: int,
        ttl: int | None,
    ) -> None:
        if not any(changes):
            raise ValueError(f"a change of {table.spelling} changes nothing")
        (assign, add, take), expires_at = changes, self._expiry(table, ttl)
        stored = self._stored(table, key)
        for name, value in table.whole_cells(assign).items():
            stored.assign(table.whole_column(name), value, at, expires_at)
        for name, elements in add.items():
            stored.add(table.column(name), elements, at, expires_at)
        for name, elements in take.items():
            stored.take(table.column(name), elements, at)

    def _stored(self, table: Table, key: Key) -> StoredRow:
        if len(key) != len(table.key) or None in key:
            raise ValueError(f"{table.spelling} has no row under {key}")
        return self._partition(table, key).rows.setdefault(key, StoredRow())

    def _partition(self, table: Table, key: Key) -> Partition:
        width = len(table.partition)
        if not width <= len(key) <= len(table.key):
            raise ValueError(f"{table.spelling} has no key of {len(key)} values")
        return self._tables[table.name].setdefault(key[:width], Partition())

    def _stamp(self, at: int | None) -> int:
        """`at`, else now; our own stamps never repeat and never go back."""
        if at is not None:
            return at
        self._last_stamp = max(self._micros(), self._last_stamp + 1)
        return self._last_stamp

    def _expiry(self, table: Table, ttl: int | None) -> int | None:
        seconds = ttl or int(table.options.get("default_time_to_live", "0"))
        if not seconds:
            return None
        return self._seconds() + seconds

    def _seconds(self) -> int:
        return self._micros() // MICROS


def _among(key: Key, among: Key) -> list[Key]:
    if not among:
        return [key]
    return [(*key, value) for value in dict.fromkeys(among)]


def _narrowed(read: Read, seen: Seen) -> Seen:
    if read.columns is None:
        return seen
    wanted = (*read.table.key_names, *read.columns)
    return Seen(_cells(seen.row, wanted), seen.written_at, seen.ttls)


def _cells(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _equal(one: Any, other: Any) -> bool:
    """Equality as in conditions: no collection equals an empty one."""
    return one == other or (not one and not other and (_is_collection(one) or _is_collection(other)))


def _is_collection(value: Any) -> bool:
    return isinstance(value, frozenset | set | tuple | list | dict)


def _caught(carry_out: Callable[[Any], Any], operation: Operation) -> Any:
    try:
        return carry_out(operation)
    except MailmendError as error:
        return error
