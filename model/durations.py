"""Stretches of time as people write them: `60s`, `5m`, `1h`, `30d`."""

import re
from datetime import timedelta
from typing import Final

from mailmend.model.errors import WrongUse

DURATION_MAX: Final = timedelta(days=1)
"""The longest that makes sense where nothing else is said."""

_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


def parse_duration(text: str, *, maximum: timedelta = DURATION_MAX, zero: bool = True) -> timedelta:
    """Parse `60s`, `5m`, `1h`, `30d`, or a bare number of seconds; zero only where it has a meaning.

    Raises:
        WrongUse: it is no duration, or one that makes no sense here.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if not match:
        raise WrongUse(f"{text!r} is not a duration", mend="Write it like 60s, 5m or 1h.")
    seconds = float(match[1]) * _SECONDS_PER_UNIT[match[2] or "s"]
    if seconds > maximum.total_seconds():
        raise WrongUse(f"{text!r} is longer than {format_duration(maximum)}, the longest that makes sense here")
    if not seconds and not zero:
        raise WrongUse(f"{text!r} is no time at all", mend="Write it like 60s, 5m or 1h.")
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """The duration in its largest whole unit, as `parse_duration` reads it."""
    seconds = duration.total_seconds()
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS_PER_UNIT[unit] == 0:
            return f"{seconds / _SECONDS_PER_UNIT[unit]:.0f}{unit}"
    return f"{seconds:g}s"
