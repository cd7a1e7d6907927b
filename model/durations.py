"""Stretches of time: as people write them (`60s`, `5m`, `1h`, `30d`), and the waits between tries.

Pure: the waits have no random part. Tries of several processes are spread by the times at which
each one failed.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.model.errors import WrongUse

MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400
"""One day in seconds."""

DURATION_MAX: Final = timedelta(days=1)
"""The longest that makes sense where nothing else is said."""

_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
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


@dataclass(frozen=True, slots=True)
class BackOff:
    """The waits between tries: each is twice the last one, up to a limit.

    Attributes:
        first: the wait after the first try.
        longest: the longest wait.
    """

    first: timedelta
    longest: timedelta

    def wait(self, attempts: int) -> timedelta:
        """The wait after that many tries, counted from 1."""
        doublings: int = max(attempts, 1) - 1
        if doublings >= (self.longest // self.first).bit_length():
            return self.longest
        return min(self.first * (1 << doublings), self.longest)


RETRY: Final = BackOff(timedelta(minutes=1), timedelta(hours=4))
"""The waits before a mail that its consumer could not process is delivered again."""

LOOK_AGAIN: Final = BackOff(timedelta(seconds=1), timedelta(seconds=30))
"""The waits before a server that did not answer is asked again."""
