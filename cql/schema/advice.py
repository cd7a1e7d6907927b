"""The traffic of a keyspace, reckoned from its tables, and the choice of compaction. Pure.

A message id carries the instant of its birth. A sample of ids tells how the births lie in time; with an estimate of how
many ids there are in all, it gives messages per second.

The rule for compaction is stated once, as data: fewest SSTables per read, then the 99th percentile of reading, then
bytes on disk. What lies within a measure's tolerance counts as equal, and among equals the present choice stays:
changing it rewrites every SSTable of three tables.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from uuid import UUID

from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.durations import DAY, HOUR
from mailmend.model.ids import micros_of
from mailmend.model.instants import MICROS
from mailmend.model.sizes import MIB

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
    hours: Counter[int] = Counter()  # recent births by their distance from the newest one
    for at in births:
        age = newest - at
        if age < RECENT_SECONDS * MICROS:
            hours[age // (HOUR * MICROS)] += 1
    lived = ((newest - oldest) // (HOUR * MICROS) + 1) * HOUR
    share = total / len(births)
    return Rates(
        mean=share * hours.total() / min(RECENT_SECONDS, lived),
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
        for start, later in pairwise(moments):
            gaps.append(later - start)
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


P99_READS_MIN: Final = 100


@dataclass(frozen=True, slots=True)
class ReadCost:
    """What one kind of read cost: the SSTables that it took rows from, and its time as the client saw it.

    Attributes:
        traced: the number of reads whose SSTables are known; a busy node drops some traces.
    """

    reads: int
    sstables_mean: float
    sstables_max: int
    p50_ms: float
    p99_ms: float
    traced: int = 1


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one choice of compaction cost in the trial.

    Attributes:
        mailbox: opening a mailbox, which reads one partition of messageIdTable.
        message: looking one message up by its id, which reads one partition of imapUidTable.
        disk_bytes: live bytes on disk once no compaction was pending.
        rewritten_bytes: bytes that compactions read and wrote again until then.
    """

    choice: CompactionChoice
    mailbox: ReadCost
    message: ReadCost
    disk_bytes: int
    rewritten_bytes: int

    @property
    def sstables(self) -> float:
        """The number of SSTables per read: the mean over both kinds of read."""
        return (self.mailbox.sstables_mean + self.message.sstables_mean) / 2

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of mailbox openings and message lookups together, in milliseconds.

        With fewer than a hundred reads it is just the slowest one: that kind is left out where the other was read often
        enough.
        """
        total = 0.0
        read_often = 0.0
        for cost in (self.mailbox, self.message):
            total += cost.p99_ms
            if cost.reads >= P99_READS_MIN:
                read_often += cost.p99_ms
        return read_often or total


@dataclass(frozen=True, slots=True)
class Measure:
    """One step of the rule: what is compared, and up to where two figures count as equal."""

    name: str
    of: Callable[[TrialResult], float]
    share: float
    least: float
    text: Callable[[float], str]

    def bound(self, best: float) -> float:
        """The highest figure that counts as equal to the best."""
        return best * (1 + self.share) + self.least


MEASURES: Final = (
    Measure("SSTables per read", lambda one: one.sstables, 0.10, 0.10, lambda figure: f"{figure:.2f}"),
    Measure("the 99th percentile of reading", lambda one: one.p99_ms, 0.25, 0.5, lambda figure: f"{figure:.1f} ms"),
    Measure("bytes on disk", lambda one: one.disk_bytes, 0.10, 0.0, lambda figure: f"{figure / MIB:.1f} MiB"),
)
"""The measures, the most important first. Times have the widest tolerance, as they vary on a shared machine."""


@dataclass(frozen=True, slots=True)
class CompactionAdvice:
    """The compaction that is advised for the message tables.

    Attributes:
        present: the present compaction of the tables; None where it is not one of the choices.
        too_small: whether several choices came out equal by every measure, so that changing gains nothing.
        why: the reasons as sentences, with the figures in them.
    """

    choice: CompactionChoice
    present: CompactionChoice | None
    too_small: bool
    why: tuple[str, ...]

    @property
    def change(self) -> bool:
        return self.present is not self.choice


def choose(
    results: Sequence[TrialResult], present: CompactionChoice | None, served: frozenset[CompactionChoice]
) -> CompactionAdvice:
    """Apply the rule above to the choices that the user's server supports.

    Args:
        results: what the trial measured, with at least one result of a supported choice.
        present: what the tables have now, None where it is something else.
        served: the choices that the server supports (unified needs Cassandra 5.0).
    """
    left = []
    why = []
    for result in results:
        if result.choice in served:
            left.append(result)
        else:
            why.append(f"{result.choice.value} is out: this server does not know it.")
    measures: tuple[Measure, ...] = MEASURES
    if not all(result.mailbox.traced and result.message.traced for result in left):
        why.append("SSTables per read do not count here: of some reads the node kept no trace at all.")
        measures = MEASURES[1:]
    for measure in measures:
        if len(left) > 1:
            left, sentence = _narrowed(left, measure)
            why.append(sentence)
    names = frozenset(result.choice for result in left)
    if present is not None and present in names:
        chosen = present
    else:
        chosen = next(choice for choice in CompactionChoice if choice in names)
    too_small = len(left) > 1
    if too_small:
        why.append(_equal_sentence(names, present))
    why += _price(chosen, results)
    return CompactionAdvice(chosen, present, too_small, tuple(why))


def _price(chosen: CompactionChoice, results: Sequence[TrialResult]) -> list[str]:
    """What merging costs in writes; the rule ignores it, because users wait for reads."""
    rewritten = {result.choice: result.rewritten_bytes for result in results}
    least = min(results, key=lambda one: one.rewritten_bytes).choice
    if rewritten[chosen] <= rewritten[least] * 2:
        return []
    spelled = (
        f"{chosen.value} wrote {rewritten[chosen] / MIB:.0f} MiB again, {least.value} {rewritten[least] / MIB:.0f}"
    )
    return [f"It is paid for in writing: until all had settled {spelled} MiB."]


def _narrowed(results: list[TrialResult], measure: Measure) -> tuple[list[TrialResult], str]:
    bound = measure.bound(min(map(measure.of, results)))
    kept = []
    figures = []
    for result in results:
        figure = measure.of(result)
        figures.append(f"{result.choice.value} {measure.text(figure)}")
        if figure <= bound:
            kept.append(result)
    if len(kept) == len(results):
        return kept, f"By {measure.name} they are alike: {', '.join(figures)}."
    return kept, f"By {measure.name} {_ahead(kept)}: {', '.join(figures)}."


def _ahead(kept: Iterable[TrialResult]) -> str:
    words = [result.choice.value for result in kept]
    if len(words) == 1:
        return f"{words[0]} wins"
    return f"{' and '.join(words)} are ahead, alike"


def _equal_sentence(names: frozenset[CompactionChoice], present: CompactionChoice | None) -> str:
    if present and present in names:
        return f"The difference is too small to matter: {present.value} stays, as changing it rewrites every SSTable."
    return "The difference between those is too small to matter; the first of them is named."
