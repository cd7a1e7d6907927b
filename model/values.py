"""Values of CQL types that Python has no type for, and equality of cells as Cassandra stores them.

Python's `==` is neither: it takes 1.0 and 1.00 for one decimal, 0.0 and -0.0 for one double, and no
NaN for itself. Two cells are the same here where Cassandra stores the same: a decimal's scale and
a double's sign and bits count. The order of a set's or map's elements does not.

Dates, times and durations have the attributes by which the drivers write such values.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

_ALONE: Final = (str, bool, int, UUID, bytes, type(None))
"""Types whose values of one column are the same exactly where `==` says so."""

_UNIX_EPOCH: Final = date(1970, 1, 1).toordinal()
_SECOND_NANOS: Final = 1_000_000_000
_MICRO_NANOS: Final = 1_000


class FrozenMap(dict[Any, Any]):
    """A map or a user type that is part of a key or of a set; it is not changed once it is made."""

    def __hash__(self) -> int:  # type: ignore[override] # a dictionary has none
        return hash(frozenset(self.items()))


@dataclass(frozen=True, slots=True, order=True)
class FarDate:
    """A date before the year 1 or after the year 9999, in days since 1970."""

    days_from_epoch: int

    def __str__(self) -> str:
        return f"{self.days_from_epoch} days since 1970-01-01"


@dataclass(frozen=True, slots=True, order=True)
class FineTime:
    """A time of day that is no whole number of microseconds, in nanoseconds since midnight."""

    nanosecond_time: int

    def __str__(self) -> str:
        seconds, nanos = divmod(self.nanosecond_time, _SECOND_NANOS)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return f"{hour:02}:{minute:02}:{second:02}.{nanos:09}"


@dataclass(frozen=True, slots=True, order=True)
class CqlDuration:
    """A duration of CQL: three numbers that are not converted into each other."""

    months: int
    days: int
    nanoseconds: int

    def __str__(self) -> str:
        return f"{self.months}mo{self.days}d{self.nanoseconds}ns"


CellConstant = bool | int | str | UUID
"""A value of a cell that a declaration gives."""


def constant_text(value: CellConstant) -> str:
    """The constant for people: a boolean as CQL writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def date_of(days_from_epoch: int) -> date | FarDate:
    """The date of a number of days since 1970-01-01, which may be negative."""
    ordinal = _UNIX_EPOCH + days_from_epoch
    if date.min.toordinal() <= ordinal <= date.max.toordinal():
        return date.fromordinal(ordinal)
    return FarDate(days_from_epoch)


def time_of(nanosecond_time: int) -> time | FineTime:
    """The time of day of a number of nanoseconds since midnight."""
    if nanosecond_time % _MICRO_NANOS:
        return FineTime(nanosecond_time)
    seconds, nanos = divmod(nanosecond_time, _SECOND_NANOS)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, nanos // _MICRO_NANOS)


def exact_form(value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """Bytes, numbers, text and tuples of them: equal where the cells of one type are the same."""
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case UUID():
            return value.bytes
        case float():
            return struct.pack(">d", value)
        case Decimal():
            return str(value)
        case datetime():
            return in_utc(value).isoformat()
        case date() | time():
            return value.isoformat()
        case FarDate() | FineTime() | CqlDuration():
            return str(value)
        case _:
            return _exact_parts(value)


def _exact_parts(value: Any) -> tuple[Any, ...]:
    match value:
        case set() | frozenset():
            return tuple(sorted(map(exact_form, value), key=repr))
        case list() | tuple():
            return tuple(map(exact_form, value))
        case Mapping():
            return tuple(sorted(map(exact_form, value.items()), key=repr))
        case _:
            raise TypeError(f"a {type(value).__name__} is no value of a row")


def same_value(one: Any, other: Any) -> bool:
    """Whether two cells of one type are the same, as Cassandra stores them."""
    if isinstance(one, _ALONE):
        return bool(one == other)
    return bool(exact_form(one) == exact_form(other))


def same_values(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows have the same cells, each under the same name."""
    if one.keys() != other.keys():
        return False
    return all(same_value(value, other[name]) for name, value in one.items())


def in_utc(value: datetime) -> datetime:
    """The instant with its zone; an instant without one, as drivers give it, is in UTC."""
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value.astimezone(UTC)
