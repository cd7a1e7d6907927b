"""Limits of a repair: rows per second, failures in a row, and fixes without asking."""

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
"""After a pause this many seconds' worth of rows may be taken at once."""

UNREACHED_MAX = 500
"""After this many unreached suspects in a row the rest is skipped; each batch has waited for its timeout."""

COUNTERS_UNREACHED_MAX = 5
"""The same for counters, which are visited one by one: each has waited for its own timeout."""

SAMPLES_MAX = 5
"""Suspects that are shown to the person who is asked."""


def granted_until(until: int, now: int, rows: int, rows_per_second: float) -> int:
    """The instant in microseconds until which the pace is used up, once `rows` more are granted."""
    idle_since = now - round(BURST_SECONDS * MICROS)
    return max(until, idle_since) + round(rows * MICROS / rows_per_second)


def share(rows_per_second: int | None, workers: int) -> float | None:
    """One worker's part of a common pace; None (no pace) stays None."""
    return None if rows_per_second is None else rows_per_second / max(1, workers)


@dataclass(slots=True)
class Pace:
    """A pace for one thread: call `take` before (or after) rows are read. Rate None: never waits."""

    rows_per_second: float | None
    clock: Clock
    _until: int = field(default=0, init=False)

    def take(self, rows: int) -> None:
        """Wait until `rows` more are due."""
        if self.rows_per_second is None or rows <= 0:
            return
        now = self.clock.micros()
        self._until = granted_until(self._until, now, rows, self.rows_per_second)
        if self._until > now:
            self.clock.sleep((self._until - now) / MICROS)


@dataclass(slots=True)
class Breaker:
    """Skips the rest of a run once the cluster is gone: counts unreached suspects in a row. Thread-safe.

    What is skipped is unchanged; the same command can be repeated later.
    """

    unreached_max: int = UNREACHED_MAX
    _unreached: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def open(self) -> bool:
        """Whether to skip the rest. It never closes again: a run that lost its cluster must not go on in part."""
        return self._unreached >= self.unreached_max

    def note(self, findings: Iterable[Finding]) -> None:
        """Count the results of suspects, in the order in which they were tried."""
        with self._lock:
            for finding in findings:
                if not self.open:
                    self._unreached = self._unreached + 1 if finding.unreached else 0

    def left(self, suspect: Suspect) -> Finding:
        error = f"not looked at again: the cluster could not be reached {self.unreached_max:,} times in a row"
        return Finding(suspect, suspect.verdict, error=error, unreached=True, untried=True)


@dataclass(frozen=True, slots=True)
class Excess:
    """More than `--max-fixes` allows: shown to a person before any write.

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
        return sum(counts.total() for counts in self.counts.values())


GoOn = Callable[[Excess], bool]
"""Asks a person whether to go on."""


def stop_at_limit(
    detection: Detection, settings: RepairSettings, policy: RepairPolicy, now: int, go_on: GoOn | None
) -> None:
    """Stop before any write when more would be mended than allowed, unless a person agrees.

    Args:
        detection: what the scan found.
        settings: `max_fixes` is the limit, None is no limit.
        policy: what would be mended; nothing without a run.
        now: microseconds since 1970.
        go_on: asked once, only above the limit; None where nobody can be asked.

    Raises:
        FixLimit: more suspects than `max_fixes` would be mended, and nobody agreed.
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
    """What would be mended, where that is more than allowed; else None.

    Once the plain counts exceed the limit, content and truth rows are counted again by age: young ones are never
    removed.
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
    for suspect in detection.suspects():
        wanted = projections[suspect.projection].asks_for(suspect.verdict, policy)
        if wanted and (suspect.verdict not in BY_POLICY or older_than_a_day(suspect.truth_ids or suspect.key, now)):
            yield suspect
