"""How much mail goes through, reckoned from what lies in the tables: rows per slice, and the births of messages.

Pure: what was read comes in as values. A message id carries the instant of its birth, so a sample of ids that says how
the births lie in time, and an estimate of how many there are in all, give messages per second.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from uuid import UUID

from mailmend.model.durations import DAY, HOUR
from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS

RECENT_SECONDS: Final = 7 * DAY
"""The present traffic is the mean over this time before the newest message: one week, so that each weekday counts.

In a younger keyspace it is the mean since its first message.
"""

_EARLIEST_MICROS: Final = 788_918_400_000_000  # 1995: an id that says earlier was not made by a mail server
_VERSION_WITH_TIME: Final = 1


@dataclass(frozen=True, slots=True)
class Rates:
    """Mails per second.

    Attributes:
        mean, peak: mails per second on average, and in the busiest stretch of time.
        history_seconds: the time from the oldest to the newest message or slice that was read.
    """

    mean: float
    peak: float
    history_seconds: float
    looked_at: int


def births_of(ids: Iterable[UUID], now_micros: int) -> list[int]:
    """Birth times of the messages in microseconds since 1970; ids without a believable time are left out."""
    births = []
    for id_ in ids:
        if id_.version == _VERSION_WITH_TIME:
            at = micros_of(id_)
            if _EARLIEST_MICROS <= at <= now_micros + DAY * MICROS:
                births.append(at)
    return births


def rates_of_births(births: Sequence[int], total: float) -> Rates | None:
    """Messages per second from a fair sample of births and the number of all messages; None without a sample."""
    if not births:
        return None
    newest = max(births)
    oldest = min(births)
    recent = [at for at in births if newest - at < RECENT_SECONDS * MICROS]
    hours = Counter((newest - at) // (HOUR * MICROS) for at in recent)
    lived = ((newest - oldest) // (HOUR * MICROS) + 1) * HOUR
    share = total / len(births)
    return Rates(
        mean=share * len(recent) / min(RECENT_SECONDS, lived),
        peak=share * max(hours.values()) / HOUR,
        history_seconds=(newest - oldest) / MICROS,
        looked_at=len(births),
    )


def busiest_queue(mails: Mapping[tuple[str, int], int]) -> str | None:
    """The queue with the most mails; `mails` counts them by queue and start of the slice (seconds since 1970)."""
    sums: Counter[str] = Counter()
    for (queue, _), count in mails.items():
        sums[queue] += count
    return max(sums, key=sums.__getitem__, default=None)


def slice_gap(mails: Mapping[tuple[str, int], int]) -> int | None:
    """The smallest distance between two slices of one queue: the slice window, unless slices between were empty."""
    starts: dict[str, list[int]] = defaultdict(list)
    for queue, start in sorted(mails):
        starts[queue].append(start)
    gaps: list[int] = []
    for moments in starts.values():
        gaps.extend(later - start for start, later in pairwise(moments))
    return min(gaps, default=None)


def rates_of_slices(mails: Mapping[tuple[str, int], int], queue: str, window: int, now_seconds: int) -> Rates | None:
    """Mails per second of one queue, from its finished slices (empty ones between them count); None without any."""
    over = {}
    for (name, start), count in mails.items():
        if name == queue and start + window <= now_seconds:
            over[start] = count
    if not over:
        return None
    stretch = max(over) - min(over) + window
    return Rates(sum(over.values()) / stretch, max(over.values()) / window, float(stretch), len(over))


def changes_per_message(uids_given: int, modseqs_given: int) -> float | None:
    """How often a message changes after it was added: each addition and each change takes one modseq."""
    if uids_given <= 0:
        return None
    return max(0, modseqs_given - uids_given) / uids_given
