"""What the queue's tables and slices should be set to, worked out from its traffic. Pure.

The rules stand below as data. Sources: docs/design.md, "Queue" and "Lifetimes"; Cassandra's own
documentation on time windows (20 to 30 of them over the time to live) and on partitions (well below
100 MB).

`mailqueue.rules.advice` computes the slice window and the number of buckets. This module computes
the pace, and says which of James's rules stand between the present configuration and the best one.
Pure.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Final

from mailmend.mailqueue.rules.configuration import QueueConfiguration, window_text
from mailmend.mailqueue.rules.slices import SECOND, Slicing
from mailmend.model.catalog.mail_queue import (
    BLOOM_CHANCES,
    WINDOWS,
    Lifetimes,
    _slack,
    _sstables,
    gc_grace_for,
    lifetimes,
)
from mailmend.model.durations import DAY, HOUR, MINUTE
from mailmend.model.sizes import MIB

MAILS_PER_SLICE: Final = 10_000
"""What a slice should hold on average: browsing reads slice after slice, cleanup removes one at a time."""

SLICE_WINDOWS: Final = (60, 300, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
"""Slice windows to choose from, in seconds; each divides the next, since a window may later only become a divisor."""

PARTITION_ROWS_MAX: Final = 20_000
PARTITION_BYTES_MAX: Final = 10 * MIB
"""A tenth of the 100 MB at which partitions begin to hurt: the peak may be higher than any that was seen."""

HOT_MAILS_PER_SECOND: Final = 100
"""Above it one partition takes too many writes at once; James took 893/s into one, with nothing else to do."""

BUCKETS_PER_NODE: Final = 2


HISTORY_WINDOWS: Final = 24


class FigureSource(Enum):
    """Where a figure comes from; nothing that was assumed is passed off as measured."""

    MEASURED = "measured"
    GIVEN = "given"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, where it comes from, and how it was found."""

    value: float
    source: FigureSource
    how: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much mail goes through the queue, and the cluster that it goes through.

    Attributes:
        mails_per_second, peak_per_second: mails that are enqueued, on average and in the busiest stretch of time.
        longest_stay_seconds: the longest time from enqueueing a mail to its last try.
        row_bytes: the mean size of a row of enqueuedMailsV4.
        nodes, copies: the nodes of the cluster, and the copies of each row, over all data centres.
        hint_window_seconds: how long nodes keep hints for one that is away.
    """

    mails_per_second: Figure
    peak_per_second: Figure
    longest_stay_seconds: Figure
    row_bytes: Figure
    nodes: Figure
    copies: Figure
    hint_window_seconds: Figure


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting: what it should be, as it is written, and why in a sentence with the figures in it."""

    setting: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class QueueAdvice(Lifetimes):
    """Everything advised for the queue; all times in seconds."""

    slice_seconds: int
    buckets: int
    gc_grace_seconds: int
    reasons: tuple[Advice, ...] = ()


def advise_queue(traffic: Traffic, now: QueueConfiguration | None = None) -> QueueAdvice:
    stay = math.ceil(traffic.longest_stay_seconds.value)
    slice_seconds = _slice_for(traffic.mails_per_second.value, stay + _slack(stay), now)
    bare = QueueAdvice(
        **asdict(lifetimes(stay, slice_seconds)),
        slice_seconds=slice_seconds,
        buckets=_buckets_for(traffic, slice_seconds, now),
        gc_grace_seconds=gc_grace_for(traffic.hint_window_seconds.value),
    )
    reasons = (*_shape_reasons(bare, traffic, now), *_expiry_reasons(bare, traffic), _bloom_reason(bare, traffic))
    return replace(bare, reasons=reasons)


def history_window_days(history_seconds: float) -> int:
    """Time window in days for a table without time to live: about two dozen over its history."""
    return max(1, round(history_seconds / DAY / HISTORY_WINDOWS))


def bloom_bytes(rows: float, chance: float) -> float:
    """Memory of bloom filters for that many keys, in bytes (textbook formula for an ideal filter)."""
    return rows * -math.log(chance) / math.log(2) ** 2 / 8


def _slice_for(rate: float, seconds: int, now: QueueConfiguration | None) -> int:
    """The slice window nearest to 10,000 mails on average, short enough that time windows are whole slices."""
    *_, most = WINDOWS
    fitting = [window for window in SLICE_WINDOWS if window <= seconds / most / 2] or [SLICE_WINDOWS[0]]
    present = now.slicing.window // SECOND if now else 0
    allowed = [fit for fit in fitting if present % fit == 0]
    if not allowed:
        return present
    return min(allowed, key=lambda one: _distance(rate * one, MAILS_PER_SLICE))


def _distance(one: float, other: float) -> float:
    return max(one, other) / max(min(one, other), 1e-9)


def _buckets_for(traffic: Traffic, slice_seconds: int, now: QueueConfiguration | None) -> int:
    rows = traffic.peak_per_second.value * slice_seconds
    by_rows = math.ceil(rows / PARTITION_ROWS_MAX)
    by_bytes = math.ceil(rows * traffic.row_bytes.value / PARTITION_BYTES_MAX)
    buckets = max(1, by_rows, by_bytes)
    if traffic.peak_per_second.value > HOT_MAILS_PER_SECOND:
        buckets = max(buckets, BUCKETS_PER_NODE * round(traffic.nodes.value))
    if now:
        buckets = max(buckets, now.slicing.buckets)
    return buckets


def _shape_reasons(bare: QueueAdvice, traffic: Traffic, now: QueueConfiguration | None) -> Iterable[Advice]:
    rate = traffic.mails_per_second.value
    peak = traffic.peak_per_second.value
    mean = rate * bare.slice_seconds
    busiest = peak * bare.slice_seconds
    of_now = ""
    grown = ""
    if now:
        of_now = f" It may only become a divisor of the present {span(now.slicing.window / SECOND)}."
        grown = f" It never shrinks; at present it is {now.slicing.buckets}."
    yield Advice(
        "slice window",
        span(bare.slice_seconds),
        f"At {rate:,.3g} mails/s such a slice holds {mean:,.0f} mails; about {MAILS_PER_SLICE:,} "
        "are aimed at, and it must be short compared with the time to live of "
        f"{span(bare.ttl_seconds)}.{of_now}",
    )
    size = traffic.row_bytes.value
    hot = ""
    if peak > HOT_MAILS_PER_SECOND:
        hot = (
            f"; above {HOT_MAILS_PER_SECOND} mails/s the writes are spread over {BUCKETS_PER_NODE} buckets for each of "
            f"{traffic.nodes.value:.0f} nodes"
        )
    yield Advice(
        "bucket count",
        str(bare.buckets),
        f"At the peak of {peak:,.3g} mails/s a slice holds {busiest:,.0f} mails of {size:,.0f} bytes, "
        f"{busiest * size / MIB:,.1f} MiB; a partition should stay below {PARTITION_ROWS_MAX:,} rows and "
        f"{PARTITION_BYTES_MAX // MIB} MiB{hot}. Every bucket more is one partition more to browse.{grown}",
    )


def _expiry_reasons(bare: QueueAdvice, traffic: Traffic) -> Iterable[Advice]:
    stay = math.ceil(traffic.longest_stay_seconds.value)
    live = traffic.mails_per_second.value * bare.ttl_seconds * traffic.row_bytes.value * traffic.copies.value
    held = live / max(1.0, traffic.nodes.value) / MIB
    yield Advice(
        "enqueuedMailsV4: time to live",
        span(bare.ttl_seconds),
        f"The longest stay of {span(stay)} and {span(bare.slack_seconds)} of slack, in whole windows. Without it no "
        f"SSTable is ever dropped; with it each node holds about {held:,.0f} MiB.",
    )
    yield Advice(
        "enqueuedMailsV4: time window",
        span(bare.window_seconds),
        f"{span(bare.ttl_seconds)} in {bare.ttl_seconds // bare.window_seconds} windows (20 to 30 are advised), each "
        f"{bare.window_seconds // bare.slice_seconds} slices of {span(bare.slice_seconds)}.",
    )
    yield Advice(
        "deletedMailsV2: time to live",
        span(bare.mark_ttl_seconds),
        f"A mark must outlive the row that it hides: {span(bare.ttl_seconds)} and {span(bare.slack_seconds)} of slack.",
    )
    yield Advice(
        "deletedMailsV2: time window",
        span(bare.mark_window_seconds),
        f"{span(bare.mark_ttl_seconds)} in {bare.mark_ttl_seconds // bare.mark_window_seconds} windows.",
    )
    yield Advice(
        "both: gc_grace",
        span(bare.gc_grace_seconds),
        "All rows expire, so a day is enough, but never less than the hint window of "
        f"{span(math.ceil(traffic.hint_window_seconds.value))}: hints would be dropped.",
    )


def _bloom_reason(bare: QueueAdvice, traffic: Traffic) -> Advice:
    sstables = _sstables(bare.mark_ttl_seconds, bare.mark_window_seconds)
    marks = traffic.mails_per_second.value * bare.mark_ttl_seconds * traffic.copies.value
    memory = bloom_bytes(marks / max(1.0, traffic.nodes.value), bare.mark_bloom_chance) / MIB
    return Advice(
        "deletedMailsV2: bloom_filter_fp_chance",
        str(bare.mark_bloom_chance),
        f"Each mail is looked up in up to {sstables} SSTables where it mostly is not: "
        f"{sstables} x {bare.mark_bloom_chance} = {sstables * bare.mark_bloom_chance:.3f} are read in vain, against "
        f"{sstables * BLOOM_CHANCES[0]:.2f} at {BLOOM_CHANCES[0]}; it takes {memory:,.1f} MiB of memory on each node.",
    )


_UNITS: Sequence[tuple[int, str]] = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))


def span(seconds: float) -> str:
    """A duration in at most two units: `8 d`, `2 h 30 min`."""
    left = math.ceil(seconds)
    words = []
    for unit, name in _UNITS:
        count, left = divmod(left, unit)
        if count:
            words.append(f"{count} {name}")
    return " ".join(words[:2]) or "0 s"


MOVES_PER_SLICE: Final = 10
"""How many times the browse start should move in a slice. James's default pace gives 10, with 10,000 mails a slice."""

PACE_MIN: Final = 10
"""The smallest pace, in dequeues: at 10, every tenth dequeue already waits for a conditional write."""

PACE_MAX: Final = 1_000_000
_STEPS: Final = (1, 2, 5)

SHAPES: Final = frozenset({"slice window", "bucket count"})
"""The advice of `mailqueue.rules.advice` that is about the configuration; all other advice is about tables."""


@dataclass(frozen=True, slots=True)
class ConfigurationAdvice:
    """The configuration that is advised for the view of the queues.

    Attributes:
        present: the stored configuration; None where none is stored, and the first process will store James's defaults.
        advised: the best configuration to which the present one may be changed.
        allowed: the changes that James's rules allow, one sentence each.
        hindered: why a better configuration is not reachable; empty where the advised one is the best.
    """

    present: QueueConfiguration | None
    advised: QueueConfiguration
    best: QueueConfiguration
    reasons: tuple[Advice, ...]
    allowed: tuple[str, ...]
    hindered: tuple[str, ...]

    @property
    def changes(self) -> bool:
        return self.advised != self.present


def advise_configuration(traffic: Traffic, present: QueueConfiguration | None) -> ConfigurationAdvice:
    bound = advise_queue(traffic, present)
    free = advise_queue(traffic)
    advised = _configuration(bound, traffic)
    best = _configuration(free, traffic)
    return ConfigurationAdvice(
        present,
        advised,
        best,
        (*(reason for reason in bound.reasons if reason.setting in SHAPES), _pace_reason(advised, traffic)),
        tuple(_allowed(present)),
        tuple(_hindered(present, advised, best)),
    )


def pace_for(mails_per_slice: float) -> int:
    """After how many dequeues the browse start moves: about ten times a slice, as a round number."""
    wanted = mails_per_slice / MOVES_PER_SLICE
    return min(_round_numbers(), key=lambda one: max(one, wanted) / max(min(one, wanted), 1e-9))


def _round_numbers() -> Iterable[int]:
    numbers: list[int] = []
    for power in range(1, 7):
        numbers += [step * 10**power for step in _STEPS]
    return [number for number in numbers if PACE_MIN <= number <= PACE_MAX]


def _configuration(advice: QueueAdvice, traffic: Traffic) -> QueueConfiguration:
    mails = traffic.mails_per_second.value * advice.slice_seconds
    return QueueConfiguration(Slicing(timedelta(seconds=advice.slice_seconds), advice.buckets), pace_for(mails))


def _pace_reason(advised: QueueConfiguration, traffic: Traffic) -> Advice:
    mails = traffic.mails_per_second.value * (advised.slicing.window / SECOND)
    moves = mails / advised.pace
    return Advice(
        "pace",
        f"{advised.pace:,}",
        f"One of {advised.pace:,} dequeues and deletes moves the browse start: {moves:,.3g} times in a slice of "
        f"{mails:,.0f} mails, {MOVES_PER_SLICE} are aimed at. More often costs conditional writes and reads of what "
        f"waits (at least {PACE_MIN}); more seldom, every browse reads slices that are done with.",
    )


def _allowed(present: QueueConfiguration | None) -> Iterator[str]:
    if present is None:
        yield "Nothing is stored yet: any slice window, number of buckets and pace may be set."
        return
    window = window_text(present.slicing.window)
    buckets = present.slicing.buckets
    yield f"A slice window may become any that divides the present {window}, and no other."
    yield f"Buckets may stay {buckets}, or grow."
    yield "The pace is free."


def _hindered(
    present: QueueConfiguration | None, advised: QueueConfiguration, best: QueueConfiguration
) -> Iterator[str]:
    if present is None:
        return
    if advised.slicing.window != best.slicing.window:
        yield (
            f"About {MAILS_PER_SLICE:,} mails would take a slice of {window_text(best.slicing.window)}, which does not "
            f"divide the present {window_text(present.slicing.window)}: {window_text(advised.slicing.window)} is the "
            "nearest that may be."
        )
    if advised.slicing.buckets > best.slicing.buckets and advised.slicing.window == best.slicing.window:
        yield f"{best.slicing.buckets} would do, but the {present.slicing.buckets} buckets that there are never shrink."
