"""Random cells of every CQL type, with values that often meet, and the bytes that a driver stores for them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid5

from cassandra import cqltypes
from hypothesis import strategies as st

from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.values import CqlDuration, FrozenMap, date_of, time_of

_ID = UUID(int=1)
_FEW = st.sampled_from

SCALARS: Mapping[str, tuple[st.SearchStrategy[Any], Any]] = {
    "ascii": (_FEW(["", "a", "ab", "A"]), cqltypes.AsciiType),
    "bigint": (_FEW([0, 1, -1, 2**62]), cqltypes.LongType),
    "blob": (_FEW([b"", b"a", b"\x00", b"ab"]), cqltypes.BytesType),
    "boolean": (st.booleans(), cqltypes.BooleanType),
    "date": (_FEW([date_of(days) for days in (0, 1, -800_000, 2**31 - 1, -(2**31))]), cqltypes.SimpleDateType),
    "decimal": (_FEW(list(map(Decimal, ("0", "0.0", "1", "1.0", "1.00", "1E+1", "10")))), cqltypes.DecimalType),
    "double": (_FEW([0.0, -0.0, 1.5, 0.1, float("inf"), float("nan")]), cqltypes.DoubleType),
    "duration": (_FEW([CqlDuration(0, 30, 0), CqlDuration(1, 0, 0), CqlDuration(0, 0, 1)]), cqltypes.DurationType),
    "float": (_FEW([0.0, -0.0, 1.5, float("-inf"), float("nan")]), cqltypes.FloatType),
    "inet": (_FEW(["127.0.0.1", "::1", "127.0.0.2"]), cqltypes.InetAddressType),
    "int": (_FEW([0, 1, -1, 2**31 - 1]), cqltypes.Int32Type),
    "smallint": (_FEW([0, 1, -1]), cqltypes.ShortType),
    "text": (_FEW(["", "a", "ä", "a\x00", "None", "\ud7ff"]), cqltypes.UTF8Type),
    "time": (_FEW([time_of(nanos) for nanos in (0, 1, 1_000, 86_399_999_999_999)]), cqltypes.TimeType),
    "timestamp": (
        _FEW([datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)]),
        cqltypes.DateType,
    ),
    "timeuuid": (_FEW([UUID(int=2**76), UUID(int=2**76 + 1)]), cqltypes.TimeUUIDType),
    "tinyint": (_FEW([0, 1, -1]), cqltypes.ByteType),
    "uuid": (_FEW([_ID, uuid5(_ID, "a")]), cqltypes.UUIDType),
    "varint": (_FEW([0, 1, -1, 2**90]), cqltypes.IntegerType),
}
"""For each type its values and the driver's own codec."""

_MANY = ("set<{}>", "list<{}>", "map<text,{}>", "tuple<{},text>", "frozen<set<frozen<list<{}>>>>")
TYPES = st.sampled_from([*SCALARS, *(many.format(of) for many in _MANY for of in SCALARS), "vector<float,2>"])


def cells_of_type(text: str) -> st.SearchStrategy[Any]:
    """Cells of a CQL type, null among them."""
    return st.none() | values_of_type(text)


def values_of_type(text: str) -> st.SearchStrategy[Any]:
    """Cells of a CQL type, without null."""
    return _values(parse_type(text))


def _values(kind: CqlType) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    inner = [_values(part) for part in kind.arguments if not part.name.isdigit()]
    match kind.name:
        case "frozen":
            return inner[0]
        case "set":
            return st.frozensets(inner[0], max_size=3)
        case "list":
            return st.lists(inner[0], max_size=3).map(tuple)
        case "map":
            return st.dictionaries(*inner, max_size=3).map(FrozenMap)
        case "tuple":
            return st.tuples(*inner)
        case "vector":
            return st.lists(inner[0], min_size=2, max_size=2).map(tuple)
        case scalar:
            values, _ = SCALARS[scalar]
            return values


def stored(text: str, cell: Any) -> Any:
    """What Cassandra stores: the driver's bytes, in the order of a set's or map's elements."""
    if cell is None:
        return None
    return _stored(parse_type(text), cell)


def _stored(kind: CqlType, cell: Any) -> Any:
    match kind.name:
        case "frozen":
            return _stored(kind.arguments[0], cell)
        case "set":
            return sorted(_stored(kind.arguments[0], element) for element in cell)
        case "list" | "vector":
            return [_stored(kind.arguments[0], element) for element in cell]
        case "map":
            of_names, of_parts = kind.arguments
            return sorted((_stored(of_names, name), _stored(of_parts, part)) for name, part in cell.items())
        case "tuple":
            return [_stored(part, element) for part, element in zip(kind.arguments, cell, strict=True)]
        case scalar:
            _, codec = SCALARS[scalar]
            return codec.serialize(cell, 4)
