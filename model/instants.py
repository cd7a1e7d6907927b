"""Conversion of microseconds since 1970, mailmend's unit of time, to the instants of `timestamp` columns."""

from datetime import UTC, datetime, timedelta
from typing import Final

MICROS: Final = 1_000_000
"""Microseconds in a second."""

_MICRO: Final = timedelta(microseconds=1)
_MICRO_NANOS: Final = 1_000


def instant_of(micros: int) -> datetime:
    """The time in whole milliseconds, as a `timestamp` column keeps it."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=micros // 1000)


def micros_at(instant: datetime) -> int:
    """The microseconds since 1970 of an aware instant."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // _MICRO


def nanos_of(monotonic: float) -> int:
    """The seconds of a clock that never goes back, as pickup counts them: nanoseconds, in whole microseconds."""
    return round(monotonic * MICROS) * _MICRO_NANOS


def nanos_in(span: timedelta) -> int:
    """The nanoseconds of a span."""
    return span // _MICRO * _MICRO_NANOS


def span_of(nanos: int) -> timedelta:
    """No less than that."""
    return _MICRO * -(-nanos // _MICRO_NANOS)


def instant_before(now: datetime, age: timedelta | None) -> datetime | None:
    """The instant that lies the age before now; None without an age, or with an age of zero."""
    if not age:
        return None
    return now - age
