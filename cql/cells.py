"""Cells as Cassandra keeps and reconciles them: the rules of the tables in memory.

Of two cells the later stays; at a tie a tombstone beats a value, an expiring cell one that does not expire, and the
larger value the smaller. A row is visible while its marker or any of its cells is. Pure: time and stamps are arguments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from mailmend.model.operations import Seen
from mailmend.model.table import Column, Key, Table

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
        else:
            _merge(self.cells, column.name, Cell(value, at, expires_at if value is not None else None))

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
            before = self.counters.get(name)
            counted = before.value if before and before.at > deleted_at else 0
            self.counters[name] = Cell(counted + delta, at)

    def look(self, deleted_at: int, now_seconds: int) -> tuple[dict[str, Any], dict[str, int], dict[str, int]] | None:
        """The visible cells, their times, and the TTLs of the cells that expire; None without visible cells."""
        plain = {name: cell for name, cell in self.cells.items() if cell.shows(deleted_at, now_seconds)}
        values = {name: cell.value for name, cell in plain.items()}
        values |= {name: cell.value for name, cell in self.counters.items() if cell.shows(deleted_at, now_seconds)}
        times = {name: cell.at for name, cell in plain.items()}
        ends = {name: cell.expires_at for name, cell in plain.items() if cell.expires_at is not None}
        for name, elements in self.collections.items():
            covered = max(deleted_at, elements.cleared_at)
            shown = {part: cell for part, cell in elements.cells.items() if cell.shows(covered, now_seconds)}
            if shown:
                values[name] = {part: cell.value for part, cell in shown.items()}
                times[name] = max(cell.at for cell in shown.values())
                expiring = [cell.expires_at for cell in shown.values() if cell.expires_at is not None]
                if expiring:
                    ends[name] = max(expiring)
        ttls = {name: ends_at - now_seconds for name, ends_at in ends.items()}
        return (values, times, ttls) if values or self.marker.shows(deleted_at, now_seconds) else None


@dataclass(slots=True)
class Partition:
    """The rows of a partition, and its deletions: of the whole partition, of ranges, and of rows."""

    rows: dict[Key, StoredRow] = field(default_factory=dict)
    deleted_at: dict[Key, int] = field(default_factory=dict)

    def remove(self, key: Key, at: int) -> None:
        """Delete all rows under the key (a prefix will do) with stamp `at`."""
        self.deleted_at[key] = max(at, self.deleted_at.get(key, NEVER))

    def keys_under(self, table: Table, key: Key) -> list[Key]:
        if len(key) == len(table.key):
            return [key] if key in self.rows else []
        return [full for full in self.rows if full[: len(key)] == key]

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
        row = table.key_row(key) | {column.name: _value(column, values) for column in table.regular}
        if not times:
            return Seen(row)
        known = {column.name: column.name.partition(".")[0] for column in table.regular}
        return Seen(
            row,
            {name: written[whole] for name, whole in known.items() if whole in written},
            {name: ttls[whole] for name, whole in known.items() if whole in ttls},
        )


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
        return list(values.items())
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
    return frozenset(value) if column.type.startswith("set<") else tuple(value[place] for place in sorted(value))


def _order(column: Column, value: Any) -> Any:
    """Version-1 UUIDs are ordered by time, then by their signed bytes; text by its bytes."""
    if column.type == "timeuuid":
        return (value.time, [byte - 256 if byte > 127 else byte for byte in value.bytes[8:]])  # noqa: PLR2004 - a sign bit
    return value.encode() if isinstance(value, str) else value


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
