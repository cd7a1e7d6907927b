"""Requests to the process that reads SSTables, and the frames of its answers. Pure.

Numbers are big-endian. A text is its length (4 bytes) and its UTF-8. A request names one table:
keyspace, table, instant (8 bytes, seconds), user types (name, fields), columns (name, type, a
letter for the kind: p, c, d for a descending clustering column, s, r), dropped columns (name, type,
letter, 8 bytes of microseconds), the names of the wanted columns, and the files; each list begins
with its number (4 bytes).

A frame of the answer is a letter, the length of its body (4 bytes), and the body. R: rows, by
column, after their number. Each column has the width of its cells (1 byte; 0: varying), whether a
cell is null (1 byte), for varying cells the length of each (4 bytes; -1: null), else a byte for
each cell where one is null, then the bytes of all cells after their length. D: a damaged file and
the reason, in two lines. F: why the table could not be read. E: the end, with the number of rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from struct import Struct, iter_unpack, unpack, unpack_from
from typing import Any, Final
from uuid import UUID

from mailmend.model.cql_types import parse_type
from mailmend.model.table import Column, Kind, UserType
from mailmend.repair.snapshots.cells import CellReader, UserTypes, instant_of_millis, reader_of

HEAD: Final = Struct(">ci")
ROWS: Final = b"R"
DAMAGE: Final = b"D"
FAILURE: Final = b"F"
END: Final = b"E"
KINDS: Final = frozenset((ROWS, DAMAGE, FAILURE, END))

_NUMBER: Final = Struct(">i")
_LONG: Final = Struct(">q")
_FLAGS: Final = (False, True)


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    """A column that files may still have; its cells up to `at` (microseconds) do not count."""

    column: Column
    at: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A table whose rows are to be read.

    Attributes:
        now: the instant at which cells that expire are judged, in seconds since 1970.
        wanted: the names of the columns, in the order of their values.
        files: the paths of the files that end in -Data.db.
    """

    keyspace: str
    table: str
    now: int
    types: tuple[UserType, ...]
    columns: tuple[Column, ...]
    dropped: tuple[DroppedColumn, ...]
    wanted: tuple[str, ...]
    files: tuple[str, ...]

    def encoded(self) -> bytes:
        parts = [_text(self.keyspace), _text(self.table), _LONG.pack(self.now)]
        parts.append(_NUMBER.pack(len(self.types)))
        for user_type in self.types:
            parts += (_text(user_type.name), _NUMBER.pack(len(user_type.normal_fields)))
            for name, kind in user_type.normal_fields:
                parts += (_text(name), _text(kind))
        parts.append(_NUMBER.pack(len(self.columns)))
        for column in self.columns:
            parts += (_text(column.name), _text(column.type), _letter(column))
        parts.append(_NUMBER.pack(len(self.dropped)))
        for gone in self.dropped:
            column = gone.column
            parts += (_text(column.name), _text(column.type), _letter(column), _LONG.pack(gone.at))
        for texts in (self.wanted, self.files):
            parts.append(_NUMBER.pack(len(texts)))
            parts += map(_text, texts)
        return b"".join(parts)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _NUMBER.pack(len(encoded)) + encoded


def _letter(column: Column) -> bytes:
    match column.kind:
        case Kind.PARTITION:
            return b"p"
        case Kind.CLUSTERING:
            if column.descending:
                return b"d"
            return b"c"
        case Kind.STATIC:
            return b"s"
        case Kind.REGULAR:
            return b"r"


class RowFrames:
    """Reads frames of rows of some columns.

    Args:
        columns: of the values, in order.
        user_types: of the keyspace.
    """

    def __init__(self, columns: Sequence[Column], user_types: UserTypes) -> None:
        self._readers = [reader_of(column.type, user_types) for column in columns]
        self._instants = [str(parse_type(column.type)) == "timestamp" for column in columns]

    def values(self, body: bytes) -> Iterator[tuple[Any, ...]]:
        """The values of each row."""
        number, *_ = _NUMBER.unpack_from(body)
        at = _NUMBER.size
        columns = []
        for reader, is_instant in zip(self._readers, self._instants, strict=True):
            values, at = _column(body, at, number, reader, is_instant=is_instant)
            columns.append(values)
        return zip(*columns, strict=True)


def _column(
    body: bytes,
    at: int,
    number: int,
    reader: CellReader,
    *,
    is_instant: bool,
) -> tuple[list[Any], int]:
    """The values of the column that begins at a place, and the place after it."""
    width = body[at]
    any_null = body[at + 1]
    at += 2
    if not width:
        lengths = unpack_from(f">{number}i", body, at)
        at += 4 * number + 4
        return _varying(body, at, lengths, reader)
    nulls = b""
    if any_null:
        nulls = body[at : at + number]
        at += number
    length, *_ = _NUMBER.unpack_from(body, at)
    at += _NUMBER.size
    end = at + length
    values = _FIXED[width](body[at:end], number)
    if is_instant:
        values = list(map(instant_of_millis, values))
    if any_null:
        for place in compress(range(number), nulls):
            values[place] = None
    return values, end


def _varying(
    body: bytes,
    at: int,
    lengths: Sequence[int],
    reader: CellReader,
) -> tuple[list[Any], int]:
    values: list[Any] = []
    for length in lengths:
        if length < 0:
            values.append(None)
            continue
        values.append(reader(body[at : at + length]))
        at += length
    return values, at


def _flags(cells: bytes, _number: int) -> list[Any]:
    return list(map(_FLAGS.__getitem__, cells))


def _ints(cells: bytes, number: int) -> list[Any]:
    return list(unpack(f">{number}i", cells))


def _longs(cells: bytes, number: int) -> list[Any]:
    return list(unpack(f">{number}q", cells))


def _uuids(cells: bytes, _number: int) -> list[Any]:
    """The UUIDs; one that comes again and again, as of a partition, is made once."""
    values = []
    last = -1
    value: UUID | None = None
    for high, low in iter_unpack(">QQ", cells):
        found = high << 64 | low
        if found != last:
            value = UUID(int=found)
            last = found
        values.append(value)
    return values


_FIXED: Final[Mapping[int, Callable[[bytes, int], list[Any]]]] = {
    1: _flags,
    4: _ints,
    8: _longs,
    16: _uuids,
}
