"""Cells of SSTables as values of rows, in the model's form (`cql.rows`).

The bytes are the bytes of CQL's native protocol: a Java process reads them from the files and sends
them by column (`repair.snapshots.wire`).
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from struct import Struct, unpack
from typing import Any, Final
from uuid import UUID

from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.errors import WrongUse
from mailmend.model.values import FrozenMap

CellReader = Callable[[bytes], Any]
"""From the bytes of a cell, which is not null, to its value."""

UserTypes = Mapping[str, Sequence[tuple[str, str]]]
"""(field, CQL type) of each field, by the user type's name."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTH: Final = Struct(">i")


def instant_of_millis(millis: int) -> datetime:
    return _EPOCH + timedelta(0, millis // 1000, millis % 1000 * 1000)


def reader_of(cql_type: str, user_types: UserTypes) -> CellReader:
    """How to read the cells of a type.

    Raises:
        WrongUse: cells of this type cannot be read from a snapshot.
    """
    return _reader(parse_type(cql_type), user_types)


def without_unknown_types(cql_type: str, known: Container[str]) -> str:
    """The type with a blob for each user type that is not known.

    A cell that is not looked at needs no more.

    Args:
        cql_type: of a column.
        known: the names of user types.
    """
    return str(_known(parse_type(cql_type), known))


def _known(kind: CqlType, known: Container[str]) -> CqlType:
    if kind.name == "frozen":
        (inner,) = kind.arguments
        found = _known(inner, known)
        if found.name == "blob":
            return found
        return replace(kind, arguments=(found,))
    if kind.arguments:
        return replace(kind, arguments=tuple(_known(part, known) for part in kind.arguments))
    if kind.name in _NATIVE or kind.name in known or kind.name.isdigit():
        return kind
    return CqlType("blob")


def _reader(kind: CqlType, user_types: UserTypes) -> CellReader:  # noqa: PLR0911 - each kind
    inner = kind.arguments
    match kind.name:
        case "frozen":
            return _reader(inner[0], user_types)
        case "set":
            return partial(_set, _reader(inner[0], user_types))
        case "list":
            return partial(_list, _reader(inner[0], user_types))
        case "map":
            return partial(_map, _reader(inner[0], user_types), _reader(inner[1], user_types))
        case "tuple":
            return partial(_tuple, [_reader(part, user_types) for part in inner])
        case name if name in _SCALARS:
            return _SCALARS[name]
        case name if name in user_types:
            names = []
            readers = []
            for field, field_type in user_types[name]:
                names.append(field)
                readers.append(reader_of(field_type, user_types))
            return partial(_user_type, names, readers)
        case _:
            raise WrongUse(
                f"cells of type {kind} cannot be read from a snapshot",
                mend="Leave --snapshot out: the check then reads the cluster.",
            )


def _parts(value: bytes) -> list[bytes | None]:
    """The elements of a collection, of which the first four bytes are the number."""
    number, *_ = _LENGTH.unpack_from(value)
    return _fields(value, _LENGTH.size, number)


def _fields(value: bytes, at: int, most: int) -> list[bytes | None]:
    """At most `most` parts, each after its length; later parts may be lacking."""
    found: list[bytes | None] = []
    while len(found) < most and at < len(value):
        length, *_ = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size
        if length < 0:
            found.append(None)
            continue
        found.append(value[at : at + length])
        at += length
    return found


def _read(reader: CellReader, part: bytes | None) -> Any:
    if part is None:
        return None
    return reader(part)


def _set(element: CellReader, value: bytes) -> frozenset[Any]:
    return frozenset(_read(element, part) for part in _parts(value))


def _list(element: CellReader, value: bytes) -> tuple[Any, ...]:
    return tuple(_read(element, part) for part in _parts(value))


def _map(of_key: CellReader, of_value: CellReader, value: bytes) -> FrozenMap:
    number, *_ = _LENGTH.unpack_from(value)
    parts = _fields(value, _LENGTH.size, 2 * number)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return FrozenMap((_read(of_key, key), _read(of_value, part)) for key, part in pairs)


def _tuple(readers: Sequence[CellReader], value: bytes) -> tuple[Any, ...]:
    parts = _fields(value, 0, len(readers))
    parts += [None] * (len(readers) - len(parts))
    return tuple(map(_read, readers, parts))


def _user_type(names: Sequence[str], readers: Sequence[CellReader], value: bytes) -> FrozenMap:
    return FrozenMap(zip(names, _tuple(readers, value), strict=True))


def _whole(value: bytes) -> int | None:
    """An empty cell of a number is null, as the driver reads it."""
    if not value:
        return None
    return int.from_bytes(value, signed=True)


def _uuid(value: bytes) -> UUID | None:
    if not value:
        return None
    return UUID(bytes=value)


def _flag(value: bytes) -> bool | None:
    if not value:
        return None
    return value != b"\0"


def _instant(value: bytes) -> datetime | None:
    if not value:
        return None
    return instant_of_millis(int.from_bytes(value, signed=True))


def _real(form: str, value: bytes) -> float | None:
    if not value:
        return None
    number: float
    number, *_ = unpack(form, value)
    return number


def _address(value: bytes) -> str | None:
    if not value:
        return None
    return str(ip_address(value))


def _text(value: bytes) -> str:
    return value.decode()


def _blob(value: bytes) -> bytes:
    return value


_SCALARS: Final[Mapping[str, CellReader]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "varint", "counter"), _whole),
    **dict.fromkeys(("ascii", "text", "varchar"), _text),
    **dict.fromkeys(("uuid", "timeuuid"), _uuid),
    "blob": _blob,
    "boolean": _flag,
    "double": partial(_real, ">d"),
    "float": partial(_real, ">f"),
    "inet": _address,
    "timestamp": _instant,
}

_NATIVE: Final = frozenset({*_SCALARS, "date", "decimal", "duration", "time"})
"""The types that are no user types and have no arguments."""
