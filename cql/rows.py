"""Values of rows, as the driver gives them, as the model has them, and as JSON text keeps them.

The model's forms are plain and comparable: UUID, int, bool, str, bytes, datetime in UTC, frozenset,
tuple, `FrozenMap` (of a map or a user type), None. JSON is for people and files: findings,
before-images, exported tables.
Pure; types are CQL's own text, as a `Column` carries it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, partial
from typing import Any
from uuid import UUID

from mailmend.cql.row_statements import Operation, selection_of
from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.operations import (
    Applied,
    ChangeIf,
    PutIfAbsent,
    Read,
    RemoveIf,
    Scan,
    Seen,
    computed_in,
)
from mailmend.model.table import Column, ComputedColumns, computed_cells, names_of
from mailmend.model.values import CqlDuration, FrozenMap, date_of, time_of

Conversion = Callable[[Any], Any]

_parsed = cache(parse_type)

_WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "varint", "counter"})
_PLAIN = _WHOLE_NUMBERS | {"ascii", "blob", "boolean", "decimal", "double", "float", "inet", "text", "timeuuid"}
_PLAIN |= {"uuid", "varchar"}


def normalised(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    if value is None or isinstance(value, str | bytes | bool | int | float | UUID | Decimal):
        return value
    if isinstance(value, datetime):
        return _in_utc(value)
    if hasattr(value, "_asdict"):
        return FrozenMap((name, normalised(part)) for name, part in value._asdict().items())
    if isinstance(value, tuple | list):
        return tuple(map(normalised, value))
    if isinstance(value, Mapping):
        return FrozenMap((normalised(name), normalised(part)) for name, part in value.items())
    if hasattr(value, "__iter__"):  # the driver's own sorted set
        return frozenset(map(normalised, value))
    return _of_days_and_times(value)


def _of_days_and_times(value: Any) -> Any:
    """The driver's own types of dates, times and durations, in the model's form."""
    if hasattr(value, "days_from_epoch"):
        return date_of(value.days_from_epoch)
    if hasattr(value, "nanosecond_time"):
        return time_of(value.nanosecond_time)
    if hasattr(value, "nanoseconds"):
        return CqlDuration(value.months, value.days, value.nanoseconds)
    return value


def conversion_of(cql_type: str) -> Conversion | None:
    """The conversion from the driver's value (never null) to the model's; None where they are equal."""
    if cql_type in _PLAIN:
        return None
    if cql_type == "timestamp":
        return _in_utc
    if cql_type.startswith("set<") and cql_type[4:-1] in _PLAIN:
        return frozenset
    return normalised


def row_reader(
    columns: Sequence[Column],
    computed: ComputedColumns = (),
) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """A function from the driver's values to a row; made once for many rows, because scans are long."""
    names = names_of(columns)
    changed = []
    for column in columns:
        conversion = conversion_of(column.type)
        if conversion:
            changed.append((column.name, conversion))

    def read(values: Sequence[Any]) -> dict[str, Any]:
        row = dict(zip(names, values, strict=False))  # the times follow the columns
        for name, conversion in changed:
            if row[name] is not None:
                row[name] = conversion(row[name])
        if computed:
            row |= computed_cells(computed, row)
        return row

    return read


def seen_reader(columns: Sequence[Column], timed: Sequence[Column]) -> Callable[[Sequence[Any]], Seen]:
    """A function from the driver's values (columns, then times and TTLs of some) to a row with both."""
    read = row_reader(columns)
    width = len(columns)
    names = names_of(timed)

    def see(values: Sequence[Any]) -> Seen:
        times = zip(names, values[width : width + len(names)], strict=True)
        ttls = zip(names, values[width + len(names) :], strict=True)
        return Seen(
            read(values),
            {name: at for name, at in times if at is not None},
            {name: left for name, left in ttls if left is not None},
        )

    return see


def adaptation_of(kind: Any) -> Conversion | None:
    """The conversion to the driver's form: fields of a user type in order instead of by name."""
    parts = [adaptation_of(part) for part in getattr(kind, "subtypes", ())]
    names = getattr(kind, "fieldnames", None)
    if names:
        return partial(_fields_in_order, names, parts)
    if not any(parts):
        return None
    match getattr(kind, "typename", ""):
        case "map":
            of_names, of_parts = parts
            return partial(_adapted_map, of_names, of_parts)
        case "tuple":
            return partial(_adapted_parts, parts)
        case _:
            return partial(_adapted_elements, parts[0])


def _fields_in_order(names: Sequence[str], parts: Sequence[Conversion | None], value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return _adapted_parts(parts, [value.get(name) for name in names])


def _adapted_parts(parts: Sequence[Conversion | None], value: Sequence[Any]) -> tuple[Any, ...]:
    known = (*parts, *[None] * (len(value) - len(parts)))
    return tuple(map(_adapted, known, value))


def _adapted_elements(part: Conversion | None, value: Iterable[Any]) -> list[Any]:
    return [_adapted(part, element) for element in value]


def _adapted_map(of_names: Conversion | None, of_parts: Conversion | None, value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {_adapted(of_names, name): _adapted(of_parts, part) for name, part in value.items()}


def _adapted(part: Conversion | None, value: Any) -> Any:
    if part is None or value is None:
        return value
    return part(value)


def adapted_values(
    values: tuple[Any, ...], adaptations: Iterable[tuple[int, Conversion]], unset: object
) -> tuple[Any, ...]:
    """The markers' values, converted at some places; null and unset stay as they are."""
    changed = list(values)
    for place, adapt in adaptations:
        if changed[place] is not None and changed[place] is not unset:
            changed[place] = adapt(changed[place])
    return tuple(changed)


def encode(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """A model value for JSON: UUIDs and instants as text, sets sorted, bytes as `0x…`."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return _in_utc(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case bytes():
            return f"0x{value.hex()}"
        case set() | frozenset():
            return sorted(map(encode, value), key=_order)
        case list() | tuple():
            return list(map(encode, value))
        case Mapping():
            return {str(encode(name)): encode(part) for name, part in value.items()}
        case _:
            return str(value)


def decode(cql_type: str, value: Any) -> Any:
    """A JSON value in the model's form, by its CQL type. Fields of a user type stay as they are.

    Raises:
        ValueError: the value is not one of that type.
    """
    try:
        return _decode(_parsed(cql_type), value)
    except (TypeError, AttributeError, ArithmeticError, KeyError, IndexError) as error:
        raise ValueError(f"{value!r} is not a value of type {cql_type}") from error


def _decode(kind: CqlType, value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    if value is None:
        return None
    inner = kind.arguments
    match kind.name:
        case "frozen":
            (of,) = inner
            return _decode(of, value)
        case "set":
            (of,) = inner
            return frozenset(_decode(of, part) for part in value)
        case "list":
            (of,) = inner
            return tuple(_decode(of, part) for part in value)
        case "tuple":
            return tuple(_decode(cql_type, part) for cql_type, part in zip(inner, value, strict=True))
        case "map":
            of_keys, of_values = inner
            return {_decode(of_keys, name): _decode(of_values, part) for name, part in value.items()}
        case name:
            return _SCALARS.get(name, _as_it_is)(value)


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value.astimezone(UTC)


def _as_it_is(value: Any) -> Any:
    return value


def _order(value: Any) -> tuple[str, Any]:
    """JSON values of different kinds do not compare, so the kind comes first."""
    kind = type(value).__name__
    if isinstance(value, str | int | float):
        return kind, value
    return kind, str(value)


def _bytes_from(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))


def _instant_from(value: str) -> datetime:
    return _in_utc(datetime.fromisoformat(value))


def _flag_from(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


_SCALARS: Mapping[str, Conversion] = {
    **dict.fromkeys(_WHOLE_NUMBERS, int),
    "blob": _bytes_from,
    "boolean": _flag_from,
    "date": date.fromisoformat,
    "decimal": Decimal,
    "double": float,
    "float": float,
    "time": time.fromisoformat,
    "timestamp": _instant_from,
    "timeuuid": UUID,
    "uuid": UUID,
}


def answer_of(operation: Operation, *, collection_times: bool) -> Callable[[Any], Any]:
    """A function from the driver's answer to ours: rows with times, a scan's row, Applied, or None."""
    match operation:
        case Read():
            selection = selection_of(operation, collection_times=collection_times)
            see = seen_reader(selection.columns, selection.timed)
            computed = computed_in(operation)
            return lambda rows: [see(values).completed(computed) for values in rows]
        case Scan():
            columns = selection_of(operation, collection_times=False).columns
            return row_reader(columns, computed_in(operation))
        case PutIfAbsent() | ChangeIf() | RemoveIf():
            return applied_of
        case _:
            return lambda _: None


def applied_of(answer: Any) -> Applied:
    """The server adds the current values to a refusal, and nothing where there is no row."""
    (applied, *found), names = answer.one(), answer.column_names[1:]
    if applied or not names:
        return Applied(bool(applied))
    return Applied(applied=False, current=dict(zip(names, map(normalised, found), strict=True)))
