"""What a check or repair hands from one stage to the next: suspects, outcomes and their sums.

An engine (Spark, local) detects suspects; each is looked at again by key, wherever that is cheapest, and becomes one
outcome. The names of `Summary` are a contract with scripts (DESIGN section 5).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from model.ids import RunId
from model.operations import Level, Seen
from model.ports import Progress
from model.projections.declarations import Family
from model.schema.table import Key, Table
from repair.decisions.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Suspect:
    """A key that looked wrong once.

    Attributes:
        projection: name of the projection.
        key: primary key of the projection's row (for a leak: of the content row).
        verdict: what the scan made of it.
        truth_ids: partition keys of the truth that the scan saw at this place (message ids), so that the second look
            finds the truth even where the projection cannot lead to it.
        wanted: for unions the elements that were missing; for counters the recounted values {counter: n}.
    """

    projection: str
    key: Key
    verdict: Verdict
    truth_ids: tuple[UUID, ...] = ()
    wanted: Mapping[str, Any] = field(default_factory=dict)


def counts_of(suspects: Iterable[Suspect]) -> dict[str, Counter[Verdict]]:
    """How many suspects there are of each projection and verdict."""
    counts: dict[str, Counter[Verdict]] = {}
    for one in suspects:
        counts.setdefault(one.projection, Counter())[one.verdict] += 1
    return counts


def merged(suspects: Iterable[Suspect]) -> list[Suspect]:
    """One suspect for each place: with every truth, and every missing element, that any of them knows of."""
    found: dict[tuple[str, Key], Suspect] = {}
    for one in suspects:
        place = (one.projection, one.key)
        found[place] = _joined(found[place], one) if place in found else one
    return list(found.values())


def _joined(one: Suspect, other: Suspect) -> Suspect:
    ids = tuple(dict.fromkeys((*one.truth_ids, *other.truth_ids)))
    names = {*one.wanted, *other.wanted}
    wanted = {name: frozenset(one.wanted.get(name, ())) | frozenset(other.wanted.get(name, ())) for name in names}
    return replace(one, truth_ids=ids, wanted=wanted)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a suspect.

    Attributes:
        suspect: what was looked at again.
        verdict: the second verdict, before anything was written (AGREE: it had settled by itself).
        result: FIXED, HIDDEN, MOVED or AHEAD where that is what happened; else None (only looked at, or left).
        truths, projected: both sides as they were read again, with their times.
        last_trace: a WITHDRAW whose content still exists while no truth names it: the last trace of a message.
        due: a fix would have been written, had anything been allowed to be (a check, a dry run).
        error: why the look or the fix failed (one sentence), or None.
        unreached: it failed because the cluster could not be reached.
        untried: it was not even tried, because so many before it could not be reached.
    """

    suspect: Suspect
    verdict: Verdict
    result: Verdict | None = None
    truths: tuple[Seen, ...] = ()
    projected: Seen | None = None
    last_trace: bool = False
    error: str | None = None
    due: bool = False
    unreached: bool = False
    untried: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """What a scan is asked to look at."""

    families: tuple[Family, ...]
    level: Level = Level.LOCAL_QUORUM
    accept_torn: bool = False
    rows_per_second: int | None = None  # over all readers together


@dataclass(frozen=True, slots=True)
class Errand:
    """What the second look may do; plain data, so that executors receive it whole.

    Attributes:
        run: the ledger's run, or None when nothing may be written.
        as_of: T, in microseconds.
        skew_seconds: S, the greatest difference between any two clocks.
        only: the verdicts that may be mended.
        orphans: "report" or "quarantine" (truth rows whose content is lost).
        dangling: "withdraw", "restore" or "report" (projections without truth).
        leaks: "report" or "collect".
        beat_ahead: write just above cells from the future.
        accept_torn: treat truth rows that lack columns as whole.
        serial: read the truth at SERIAL (LWT is on).
        rows_per_second: pace of this errand over all workers together, or None.
    """

    run: RunId | None
    as_of: int
    skew_seconds: float
    only: frozenset[Verdict]
    orphans: str = "report"
    dangling: str = "withdraw"
    leaks: str = "report"
    beat_ahead: bool = False
    accept_torn: bool = False
    serial: bool = True
    rows_per_second: int | None = None


def told(
    outcomes: Iterable[Outcome], progress: Progress, counts: Mapping[str, Mapping[Verdict, int]]
) -> Iterator[Outcome]:
    """The outcomes of a second look as they come, and how far it is; `counts` says how many suspects there are."""
    progress.stage("look again", sum(sum(verdicts.values()) for verdicts in counts.values()))
    for outcome in outcomes:
        progress.advance(1)
        yield outcome


class Detection(Protocol):
    """The result of one scan, held by the engine that made it (on executors, on disk) until closed."""

    @property
    def scanned(self) -> Mapping[str, int]:
        """Rows read, per table in James's spelling."""
        ...

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        ...

    def suspects(self) -> Iterator[Suspect]:
        """Every suspect, streamed."""
        ...

    def revisit(self, errand: Errand, progress: Progress) -> Iterator[Outcome]:
        """Look at every row-wise suspect again, and mend what the errand allows; streamed, one outcome for each.

        Counters are not visited: they are mended one by one by `repair.mending.counters`, outside of retried tasks.
        """
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class Scanned:
    """Rows read and suspects found, added up while a scan goes on: the figures of a Detection."""

    def __init__(self) -> None:
        self._scanned: Counter[str] = Counter()
        self._counts: dict[str, Counter[Verdict]] = {}

    @property
    def scanned(self) -> Mapping[str, int]:
        """Rows read, per table in James's spelling."""
        return self._scanned

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        return self._counts

    def saw(self, table: Table, rows: int) -> None:
        """So many more rows of a table were read."""
        self._scanned[table.spelling] += rows


class Engine(Protocol):
    """Something that can scan a whole keyspace: `spark_repair` or `repair.scanners.local`."""

    def detect(self, survey: Survey, progress: Progress) -> Detection:
        """Read every table of the families once and find the suspects."""
        ...


@dataclass(slots=True)
class Summary:
    """The sums of a check or repair, with the names that `--json` promises (DESIGN section 5)."""

    keyspace: str
    command: str
    run: RunId | None = None
    scanned: dict[str, int] = field(default_factory=dict)
    findings: dict[str, Counter[Verdict]] = field(default_factory=dict)
    suspects: int = 0
    due: Counter[Verdict] = field(default_factory=Counter)  # what a dry run would have mended
    fixed: Counter[Verdict] = field(default_factory=Counter)
    left: Counter[Verdict] = field(default_factory=Counter)
    moved: int = 0
    failed: int = 0
    untried: int = 0  # left as they were, because the cluster could not be reached any more
    last_traces: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    unseen: str | None = None  # what the look at a target could not see, in a sentence
    exit: int = 0
