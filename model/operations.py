"""Reads and writes as values: decided by pure code, carried out by code that holds a session.

`cql.row_statements` renders them for Cassandra, `cql.memory` applies them to its twin; no other
module writes CQL text for rows.
Timestamps are microseconds since 1970, as Cassandra has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from mailmend.model.instants import MICROS
from mailmend.model.table import ComputedColumns, Key, Row, Table, computed_cells
from mailmend.model.values import same_values


class Level(Enum):
    """The consistency level of a read. SERIAL also completes a conditional write that was left unfinished."""

    ONE = "ONE"
    LOCAL_QUORUM = "LOCAL_QUORUM"
    QUORUM = "QUORUM"
    SERIAL = "SERIAL"
    LOCAL_SERIAL = "LOCAL_SERIAL"


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as it was read: its cells, and when each visible one was written.

    A cell whose time cannot be read (a key column, a collection before Cassandra 5) is absent from `written_at`;
    for a collection it is the newest element's time.

    Attributes:
        ttls: for each visible cell that expires, the seconds that it had left when it was read; for
            a collection the seconds of the element that expires last. Two looks at one row differ
            in it: it is never compared.
        expires_at: the same as instants, in whole seconds since 1970; set by the caller, who knows when it asked. A row
            that consists of its key shows no TTL: where its expiry is known from another row, its key columns have it.
    """

    row: Row
    written_at: Mapping[str, int] = field(default_factory=dict)
    ttls: Mapping[str, int] = field(default_factory=dict, compare=False)
    expires_at: Mapping[str, int] = field(default_factory=dict, compare=False)

    def asked_at(self, micros: int) -> "Seen":
        """The row with the instants of its expiry, where the read began at `micros`: never later than they are."""
        if not self.ttls:
            return self
        seconds = micros // MICROS
        return replace(self, expires_at={name: seconds + left for name, left in self.ttls.items()})

    def completed(self, computed: ComputedColumns) -> "Seen":
        """The row with computed cells; of several sources the newest and the first to expire."""
        if not computed:
            return self
        row = {**self.row, **computed_cells(computed, self.row)}
        written_at = dict(self.written_at)
        ttls = dict(self.ttls)
        for name, rule in computed:
            for times, decide in ((written_at, max), (ttls, min)):
                known = [times[source] for source in rule.sources if source in times]
                if known and row[name] is not None:
                    times[name] = decide(known)
        return Seen(row, written_at, ttls)

    @property
    def ends_at(self) -> int | None:
        """When the whole row is gone, in seconds since 1970; None: never, or its cells do not tell."""
        if not self.expires_at or not self.written_at.keys() <= self.expires_at.keys():
            return None
        return max(self.expires_at.values())

    def without_expired(self, now: int) -> "Seen | None":
        """What is left of the row at `now` (seconds since 1970); None where nothing is."""
        gone = {name for name, ends_at in self.expires_at.items() if ends_at <= now}
        if not gone:
            return self
        ends_at = self.ends_at
        if ends_at is not None and ends_at <= now:
            return None
        row = dict(self.row)
        for name in gone & row.keys():
            row[name] = None
        written_at = dict(self.written_at)
        expires_at = dict(self.expires_at)
        for name in gone:
            written_at.pop(name, None)
            del expires_at[name]
        return Seen(row, written_at, expires_at=expires_at)

    def is_same(self, other: "Seen") -> bool:
        """Whether the cells are the same, as Cassandra stores them, with the same write times."""
        return self.written_at == other.written_at and same_values(self.row, other.row)

    @property
    def newest(self) -> int | None:
        """The latest visible write in microseconds; None where no time can be read (a row of key columns only)."""
        return max(self.written_at.values(), default=None)


def cells_of(seen: Seen | None) -> Row:
    """The cells of a row; empty where there is no row."""
    if seen is None:
        return {}
    return seen.row


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of one partition, or of several.

    Of one partition: `key` is the partition key or any longer prefix of the primary key. Of several: `among` holds the
    values of the column after `key`. This saves requests, but one partition without an answer fails them all, so ask
    for few. A `joinable` read returns few and small rows: an adapter may answer several such reads by one request. With
    `columns` it returns the key and these columns only, but the write times of all columns.
    """

    table: Table
    key: Key
    level: Level = Level.QUORUM
    times: bool = False  # also read WRITETIMEs
    among: Key = ()
    joinable: bool = False
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows in order, read page by page: of a whole table, a token range (after, up to], or some partitions.

    Of one partition, in clustering order: `under` is its key, or any longer prefix of the primary key; `after` holds
    the clustering values that the rows must come after, none of them descending. Of several partitions: `among` holds
    values of the last column of the partition key, and `under` the columns before it.

    With `distinct` each partition is read once, and only columns of the partition key.
    """

    table: Table
    columns: tuple[str, ...]
    level: Level = Level.LOCAL_QUORUM
    tokens: tuple[int, int] | None = None
    under: Key = ()
    after: Key = ()
    limit: int | None = None
    page_rows: int | None = None  # None: as many as the adapter likes
    among: Key = ()
    distinct: bool = False


def computed_in(read: Read | Scan) -> ComputedColumns:
    """The computed columns that a read asks for."""
    names = read.columns
    if names is None:
        return read.table.computed
    return tuple((name, rule) for name, rule in read.table.computed if name in names)


@dataclass(frozen=True, slots=True)
class Put:
    """Insert a row. Null columns are left unset; with `clear` they are deleted, each by a tombstone.

    With `at` None the driver takes the write time. A retry of the same value is the same write.

    `expires_at`, here and in `Change` and `PutIfAbsent`, is a decision about an instant, in seconds since 1970:
    `lasting` turns it into the TTL just before the write is sent.

    `joinable`, here and in `Change` and `Remove`, allows an adapter to send several such writes of one partition, or
    several removals of whole partitions, as one request with one answer for all. Tables for
    asyncio also send inserts of several partitions so, where they are under way together.
    """

    table: Table
    row: Row
    at: int | None = None
    clear: bool = False
    ttl_seconds: int | None = None
    joinable: bool = False
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Set columns of a row, and add to or remove from its set columns, without reading it.

    An element-wise change of a set leaves no range tombstone behind, unlike assigning it (JAMES-3626).
    """

    table: Table
    key: Key
    assign: Row = field(default_factory=dict)
    add: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    take: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    at: int | None = None
    joinable: bool = False
    ttl_seconds: int | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a row, or every row under a prefix of the key."""

    table: Table
    key: Key
    at: int | None = None
    joinable: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Add to counters: carries no timestamp, is not idempotent, and is therefore sent once and never retried."""

    table: Table
    key: Key
    deltas: Mapping[str, int]


Write = Put | Change | Remove | Count


@dataclass(frozen=True, slots=True)
class PutIfAbsent:
    """Insert a row if it does not exist (LWT).

    `beside` has changes of the same row that are part of the insert: cells with a TTL of their own.
    They are made under the same condition, at the same instant, or not at all, and have no write time of their own.
    """

    table: Table
    row: Row
    ttl_seconds: int | None = None
    expires_at: int | None = None
    beside: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeIf:
    """Change a row while it is as expected (LWT). Expected columns are compared by equality; None means null.

    `IF column = null` also holds for an absent row: expect a column that is never null as well.
    """

    table: Table
    key: Key
    expected: Row
    assign: Row = field(default_factory=dict)
    add: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    take: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveIf:
    """Delete exactly one row while it is as expected (LWT)."""

    table: Table
    key: Key
    expected: Row


Conditional = PutIfAbsent | ChangeIf | RemoveIf


@dataclass(frozen=True, slots=True)
class Applied:
    """The answer to a conditional write: whether it was applied, and if not, the row that was there (None: no row)."""

    applied: bool
    current: Row | None = None


Lasting = TypeVar("Lasting", bound=Write | Conditional)


def run_out(write: Write | Conditional, now: int) -> bool:
    """Whether the instant until which the write is to last has passed; `now` in microseconds."""
    ends_at = getattr(write, "expires_at", None)
    return ends_at is not None and ends_at * MICROS <= now


def lasting(write: Lasting, now: int) -> Lasting:
    """The write with the TTL that ends it at its instant, never later; as it is where it has none.

    Expired cells next to an insert are left out.
    """
    if isinstance(write, PutIfAbsent) and write.beside:
        beside = []
        for change in write.beside:
            if not run_out(change, now):
                beside.append(lasting(change, now))
        return replace(lasting(replace(write, beside=()), now), beside=tuple(beside))
    if not isinstance(write, Put | Change | PutIfAbsent) or write.expires_at is None:
        return write
    seconds = max(1, write.expires_at - -(-now // MICROS))
    return replace(write, ttl_seconds=seconds, expires_at=None)
