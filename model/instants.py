"""Microseconds since 1970, our unit of time, as the instants that `timestamp` columns keep."""

from datetime import UTC, datetime, timedelta
from typing import Final

MICROS: Final = 1_000_000
"""In a second."""


def instant_of(micros: int) -> datetime:
    """The time in whole milliseconds, as a `timestamp` column keeps it."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=micros // 1000)
