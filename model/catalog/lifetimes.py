"""How long rows and marks of a queue live, and the time windows of their tables.

The catalog and the advice on a queue's settings both compute them here, so they cannot disagree.
"""

import math
from dataclasses import dataclass
from typing import Final

from mailmend.model.table import Compaction

MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400
"""One day in seconds."""

WINDOWS: Final = (20, 24, 30)
"""How many time windows the time to live should span: the least, the ideal and the largest number."""

SLACK_SECONDS_MIN: Final = 3 * DAY
"""The least slack: rows survive a weekend without any sweep. In seconds."""

GC_GRACE_SECONDS_MIN: Final = DAY


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a queue's rows and marks live, and the length of their time windows; all times in seconds.

    Attributes:
        slack_seconds: how much longer rows live than any mail stays, and marks than rows.
        mark_ttl_seconds, mark_window_seconds: the same of deletedMailsV2, whose marks outlive the rows that they hide.
    """

    slack_seconds: int
    ttl_seconds: int
    window_seconds: int
    mark_ttl_seconds: int
    mark_window_seconds: int
    mark_bloom_chance: float


def lifetimes(stay_seconds: int, slice_seconds: int) -> Lifetimes:
    """How long rows and marks must live if no mail stays longer than `stay_seconds`; windows are whole slices.

    The advice and the catalog both call this, so they cannot disagree.
    """
    slack = _slack(stay_seconds)
    ttl, window = windows_over(stay_seconds + slack, slice_seconds)
    mark_ttl, mark_window = windows_over(ttl + slack, slice_seconds)
    chance = _bloom_chance(_sstables(mark_ttl, mark_window))
    return Lifetimes(slack, ttl, window, mark_ttl, mark_window, chance)


def gc_grace_for(hint_window_seconds: float) -> int:
    """`gc_grace_seconds` of tables in which everything expires."""
    return max(GC_GRACE_SECONDS_MIN, math.ceil(hint_window_seconds))


def _slack(stay_seconds: int) -> int:
    return max(SLACK_SECONDS_MIN, stay_seconds // 2)


def windows_over(seconds: int, slice_seconds: int) -> tuple[int, int]:
    """A time to live of at least that many seconds, and a time window that fits into it 20 to 30 times.

    The window is a whole number of slices and of minutes. Where the slice is longer than a sixtieth of the time, the
    time to live grows until 20 windows fit.
    """
    least, ideal, most = WINDOWS
    unit = math.lcm(slice_seconds, MINUTE)
    window = unit * max(1, round(seconds / ideal / unit))
    if seconds > window * most:
        window += unit
    return window * max(least, math.ceil(seconds / window)), window


def window_compaction(seconds: int) -> Compaction:
    """TWCS with a window of that length (whole minutes), in the largest unit that fits."""
    unit, name = _window_unit(seconds)
    options = {"compaction_window_unit": name, "compaction_window_size": str(max(1, seconds // unit))}
    return Compaction("TimeWindowCompactionStrategy", options)


def _window_unit(seconds: int) -> tuple[int, str]:
    for unit, name in _WINDOW_UNITS:
        if seconds % unit == 0:
            return unit, name
    return _WINDOW_UNITS[-1]


OPEN_WINDOW_SSTABLES: Final = 4
"""The number of SSTables that the present time window may hold before they are merged."""

BLOOM_CHANCES: Final = (0.01, 0.001, 0.0001)

FALSE_READS_MAX: Final = 0.05
"""The mean number of SSTables that looking up an absent mark may open without need (bloom filter errors)."""

_WINDOW_UNITS: Final = ((DAY, "DAYS"), (HOUR, "HOURS"), (MINUTE, "MINUTES"))


def _sstables(ttl: int, window: int) -> int:
    return ttl // window + OPEN_WINDOW_SSTABLES


def _bloom_chance(sstables: int) -> float:
    for chance in BLOOM_CHANCES:
        if sstables * chance <= FALSE_READS_MAX:
            return chance
    return BLOOM_CHANCES[-1]
