"""Tables in memory that answer as Cassandra would.

Many tests depend on it, so it follows Cassandra's rules cell by cell (`cql.cells`): an insert leaves a row marker, an
update does not; a delete covers everything with the same or an earlier stamp; a conditional write has the stamp of its
ballot, not of its author. Both pass the same suite (`tests/conformance`). Not modelled: static columns, lists changed
in place, purged tombstones.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, assert_never

from mailmend.cql.cells import NEVER, Partition, StoredRow, in_clustering_order
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
)
from mailmend.model.table import Key, Row, Table

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
        keys = _among(read.key, read.among)
        seen: Sequence[Seen] = self._surrounded(
            read,
            lambda: [_narrowed(read, seen) for key in keys for seen in self._read(read.table, key, times=read.times)],
        )
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
        keys = partition.keys_under(table, key)
        now = self._seconds()
        seen = (partition.look(table, full, now, times=times) for full in keys)
        return in_clustering_order(table, [row for row in seen if row])

    def _scan(self, scan: Scan) -> list[Row]:
        within = _among(scan.under, scan.among) if scan.under or scan.among else self._partitions_in(scan)
        rows = [seen.row for key in within for seen in self._read(scan.table, key, times=False)]
        start = len(scan.under)
        end = len(scan.under) + len(scan.after)
        behind = [row for row in rows if not scan.after or scan.table.key_of(row)[start:end] > scan.after]
        return [{name: row[name] for name in scan.columns} for row in behind[: scan.limit]]

    def _partitions_in(self, scan: Scan) -> list[Key]:
        after, up_to = scan.tokens or (NEVER - 1, -NEVER)
        keys = sorted((token_of(key), key) for key in self._tables[scan.table.name])
        return [key for token, key in keys if after < token <= up_to]

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
        return Applied(applied=False, current=current and {name: current[name] for name in expected})

    def _current(self, table: Table, key: Key) -> Row | None:
        return next((seen.row for seen in self._read(table, key, times=False)), None)

    def _put(self, table: Table, row: Row, at: int, ttl: int | None, *, clear: bool) -> None:
        stored = self._stored(table, table.key_of(row))
        expires_at = self._expiry(table, ttl)
        stored.mark(at, expires_at)
        for column in table.regular:
            if column.name in row and (clear or row[column.name] is not None):
                stored.assign(column, row[column.name], at, expires_at)

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
        for name, value in assign.items():
            stored.assign(table.column(name), value, at, expires_at)
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
        return self._seconds() + seconds if seconds else None

    def _seconds(self) -> int:
        return self._micros() // MICROS


def _among(key: Key, among: Key) -> list[Key]:
    return [(*key, value) for value in dict.fromkeys(among)] if among else [key]


def _narrowed(read: Read, seen: Seen) -> Seen:
    if read.columns is None:
        return seen
    wanted = (*(column.name for column in read.table.key), *read.columns)
    return Seen({name: seen.row[name] for name in wanted}, seen.written_at, seen.ttls)


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
