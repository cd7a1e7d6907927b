"""Which compaction the message tables should have, judged by what a trial measured on a copy of the user's own rows.

The rule is stated once, as data: fewest SSTables per read, then the 99th percentile of reading, then bytes on disk.
What lies within a measure's tolerance counts as equal, and among equals the present choice stays: changing it rewrites
every SSTable of three tables.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mailmend.model.catalog.mail import CompactionChoice
from mailmend.model.sizes import MIB

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
        both = (self.mailbox, self.message)
        return sum(cost.p99_ms for cost in both if cost.reads >= P99_READS_MIN) or sum(cost.p99_ms for cost in both)


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
    best = min(measure.of(result) for result in results)
    kept = [result for result in results if measure.of(result) <= measure.bound(best)]
    figures = ", ".join(f"{result.choice.value} {measure.text(measure.of(result))}" for result in results)
    if len(kept) == len(results):
        return kept, f"By {measure.name} they are alike: {figures}."
    return kept, f"By {measure.name} {_names(result.choice for result in kept)}: {figures}."


def _names(choices: Iterable[CompactionChoice]) -> str:
    words = [choice.value for choice in choices]
    if len(words) == 1:
        return f"{words[0]} wins"
    return f"{' and '.join(words)} are ahead, alike"


def _equal_sentence(names: frozenset[CompactionChoice], present: CompactionChoice | None) -> str:
    if present and present in names:
        return f"The difference is too small to matter: {present.value} stays, as changing it rewrites every SSTable."
    return "The difference between those is too small to matter; the first of them is named."
