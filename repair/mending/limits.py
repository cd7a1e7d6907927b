"""Limits of a repair: rows per second, failures in a row, and how much may be mended before somebody is asked."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from model.errors import FixLimit
from model.instants import MICROS
from model.ports import Clock
from model.projections.findings import Finding, RepairPolicy, Suspect, counts_of
from model.projections.projection import Projection
from model.projections.verdicts import BY_POLICY, Verdict
from repair.decisions.recheck import older_than_a_day
from repair.mending.engine import Detection
from repair.mending.settings import RepairSettings

BURST_SECONDS = 0.25
"""What may be taken at once after a pause: this many seconds' worth of rows."""

UNREACHED_MAX = 500
"""Suspects in a row that could not be reached, after which the rest is left: each batch of them has waited its time."""

COUNTERS_UNREACHED_MAX = 5
"""The same for counters, which are looked at one after the other: each has waited its time alone."""

SAMPLES_MAX = 5
"""Suspects that are shown to whoever is asked."""


def granted_until(until: int, now: int, rows: int, rows_per_second: float) -> int:
    """The instant until which rows are granted, once `rows` more are; in microseconds."""
    idle_since = now - round(BURST_SECONDS * MICROS)
    return max(until, idle_since) + round(rows * MICROS / rows_per_second)


def share(rows_per_second: int | None, workers: int) -> float | None:
    """One worker's part of a pace that all keep together; no pace, no part."""
    return None if rows_per_second is None else rows_per_second / max(1, workers)


@dataclass(slots=True)
class Pace:
    """A pace that one thread keeps: `take` before (or after) so many rows. None for the rate: no waiting at all."""

    rows_per_second: float | None
    clock: Clock
    _until: int = field(default=0, init=False)

    def take(self, rows: int) -> None:
        """Wait until so many rows are due."""
        if self.rows_per_second is None or rows <= 0:
            return
        now = self.clock.micros()
        self._until = granted_until(self._until, now, rows, self.rows_per_second)
        if self._until > now:
            self.clock.sleep((self._until - now) / MICROS)


@dataclass(slots=True)
class Breaker:
    """Leaves the rest of a run once the cluster is gone: counts what could not be reached in a row. Thread-safe.

    What is left is as it was; the same command goes on with it later.
    """

    unreached_max: int = UNREACHED_MAX
    _unreached: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def open(self) -> bool:
        """Whether the rest is to be left. It stays so: a run that lost its cluster is not to go on by halves."""
        return self._unreached >= self.unreached_max

    def note(self, findings: Iterable[Finding]) -> None:
        """Take in what became of some suspects, in the order in which they were tried."""
        with self._lock:
            for finding in findings:
                if not self.open:
                    self._unreached = self._unreached + 1 if finding.unreached else 0

    def left(self, suspect: Suspect) -> Finding:
        """The finding of a suspect that is not tried any more."""
        error = f"not looked at again: the cluster could not be reached {self.unreached_max:,} times in a row"
        return Finding(suspect, suspect.verdict, error=error, unreached=True, untried=True)


@dataclass(frozen=True, slots=True)
class Excess:
    """More than `--max-fixes` allows: what a person is shown before anything is written.

    Attributes:
        allowed: what `--max-fixes` said.
        counts: suspects that would be mended, per projection and verdict.
        samples: a few of them.
    """

    keyspace: str
    allowed: int
    counts: Mapping[str, Counter[Verdict]] = field(default_factory=dict)
    samples: tuple[Suspect, ...] = ()

    @property
    def total(self) -> int:
        """How many would be mended."""
        return sum(counts.total() for counts in self.counts.values())


GoOn = Callable[[Excess], bool]
"""Asks whoever can be asked whether to go on."""


def stop_at_limit(
    detection: Detection, settings: RepairSettings, policy: RepairPolicy, now: int, go_on: GoOn | None
) -> None:
    """Stop before anything is written when more could be mended than was allowed, unless somebody says to go on.

    Args:
        detection: what the scan found.
        settings: its `max_fixes` is the limit, None is none.
        policy: what would be mended; without a run nothing would.
        now: microseconds since 1970.
        go_on: asked once, and only then; None where nobody can be asked.

    Raises:
        FixLimit: more suspects than `max_fixes` would be mended, and nobody wanted that.
    """
    if settings.max_fixes is None or policy.run is None:
        return
    excess = excess_over(settings.max_fixes, detection, settings, policy, now)
    if excess is not None and not (go_on and go_on(excess)):
        raise FixLimit(
            f"{excess.total:,} suspects in {excess.keyspace} could be mended, --max-fixes allows {excess.allowed:,}; "
            "nothing was written",
            mend=f"See what they are with: mailmend check messages --keyspace {excess.keyspace}; "
            f"if that is what you want mended, type the same command with --max-fixes {excess.total}.",
        )


def excess_over(
    allowed: int, detection: Detection, settings: RepairSettings, policy: RepairPolicy, now: int
) -> Excess | None:
    """What would be mended, where that is more than allowed.

    Content and truth rows are counted by their age too, once the plain counts alone exceed the limit: a young one is
    never removed.
    """
    projections = {one.name: one for family in settings.families for one in family.projections}
    counts = {
        name: Counter({one: number for one, number in sums.items() if projections[name].asks_for(one, policy)})
        for name, sums in detection.counts.items()
    }
    excess = Excess(settings.keyspace, allowed, {name: sums for name, sums in counts.items() if sums})
    if excess.total > allowed and any(BY_POLICY & sums.keys() for sums in excess.counts.values()):
        excess = Excess(settings.keyspace, allowed, counts_of(_due(detection, projections, policy, now)))
    if excess.total <= allowed:
        return None
    samples = tuple(islice(_due(detection, projections, policy, now), SAMPLES_MAX))
    return Excess(settings.keyspace, allowed, excess.counts, samples)


def _due(
    detection: Detection, projections: Mapping[str, Projection], policy: RepairPolicy, now: int
) -> Iterator[Suspect]:
    """The suspects that would be mended, streamed."""
    for suspect in detection.suspects():
        wanted = projections[suspect.projection].asks_for(suspect.verdict, policy)
        if wanted and (suspect.verdict not in BY_POLICY or older_than_a_day(suspect.truth_ids or suspect.key, now)):
            yield suspect
