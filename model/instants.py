"""Conversion of microseconds since 1970, mailmend's unit of time, to the instants of `timestamp` columns."""

from datetime import UTC, datetime, timedelta
from typing import Final

MICROS: Final = 1_000_000
"""Microseconds in a second."""


def instant_of(micros: int) -> datetime:
    """The time in whole milliseconds, as a `timestamp` column keeps it."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=micros // 1000)
