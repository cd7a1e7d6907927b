"""Settings and result of a check or repair, and the interface of detectors: scan once, keep suspects, look again."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from mailmend.model.errors import ExitCode, UnsafeRequest
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Level
from mailmend.model.ports import Clock, Progress, Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.verdicts import HARMLESS, Verdict, Why
from mailmend.repair.binding import MissingColumn
from mailmend.repair.clock import Timing
from mailmend.repair.decisions.engines import Engine
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE, LeftSample
from mailmend.repair.ledger.runs import Ledger, RunKind
from mailmend.repair.mending.fixer import Fixer
from mailmend.repair.mending.generators import BehindGenerator

DELAY_SECONDS = 60.0
"""The default of `--delay`: the time, in seconds, between the scan and the second look."""

RUNS_APART_MICROS = 1_000
"""The distance between the Ts of runs that continue one scan, so that each run and its undo have own stamps."""


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """The settings of a check or repair.

    Attributes:
        recheck: whether a check looks again before it reports; a repair always does.
        dry_run: whether a repair only reports what it would mend.
        missing_columns, missing_tables: what should be compared and does not exist, which is drift too.
        policy: what may be mended; its run, T and skew are set when the run begins.
        pressed: whether the run slows down while the cluster is under load (`--pace auto`).
        max_fixes: the number of fixes above which a person is asked, or nothing is written.
        as_of: T in microseconds of a plan or a staging area; None: from the clocks. The clocks may make it earlier.
        options: the options of the command line, for the ledger.
        kind: the kind of the repair, for its result.
    """

    keyspace: str
    families: tuple[Family, ...]
    level: Level = Level.LOCAL_QUORUM
    delay_seconds: float = DELAY_SECONDS
    timing: Timing = field(default_factory=Timing)
    missing_columns: tuple[MissingColumn, ...] = ()
    missing_tables: tuple[str, ...] = ()
    recheck: bool = True
    dry_run: bool = False
    policy: RepairPolicy = field(default_factory=RepairPolicy)
    pressed: bool = False
    max_fixes: int | None = None
    as_of: int | None = None
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: RunKind = RunKind.MESSAGES

    def __post_init__(self) -> None:
        if self.policy.leaks == "collect" and self.policy.dangling != "withdraw":
            raise UnsafeRequest(
                f"--leaks collect with --dangling {self.policy.dangling} could collect content "
                "whose last trace is to be kept",
                mend="First repair with --dangling alone; then run again with --leaks collect.",
            )

    def policy_of(self, as_of: int, run: RunId | None) -> RepairPolicy:
        """The policy for a run's second look; without a run nothing may be written."""
        timing = self.timing
        margin = timing.margin_micros / MICROS
        return replace(self.policy, run=run, as_of=as_of, skew_seconds=timing.skew_seconds, margin_seconds=margin)


Sink = Callable[[Finding], None]


@dataclass(slots=True)
class RepairResult:
    """The sums of a run so far, with the names of `--json`, where `kind` is called `command`.

    Attributes:
        run: the id to undo the run by; None: nothing was written.
        scanned: rows by table.
        findings: rows by projection and verdict.
        suspects: how many the scan had, before the second look.
        due: what a dry run would have mended, by verdict.
        fixed: what was mended, by verdict.
        left: what was found and is still there, by verdict.
        left_sample: for later runs; it is not part of `--json`.
        moved: rows that were written during the run; the next run looks at them.
        failed: suspects whose look or whose fix failed.
        untried: skipped, because the cluster could not be reached any more.
        last_traces: rows without truth whose content still exists.
        reasons: why rows are left or moved, by verdict.
        again_seconds: seconds after which no row is too young any more.
        seconds: how long each stage took.
        missing_columns: columns that should be compared and do not exist.
        missing_tables: tables that should be compared and do not exist.
        unseen: a sentence on what a targeted look cannot see.
        gaps: uids of a targeted mailbox behind which it cannot see.
        generators: of uids and modseqs, behind the messages; the first of them. Of an undo: what
            its run raised, and what stays so.
        engine: what scanned the keyspace; None where nothing was scanned.
        pace: the rates of the run, and why; None where nothing could change them.
        staging: the area of a staged scan, at its end.
        snapshot: the files that were read instead of the cluster; `damaged` and `missing` name
            the files that were not read.
        exit: the exit code of the command.
    """

    keyspace: str
    kind: RunKind
    run: RunId | None = None
    scanned: dict[str, int] = field(default_factory=dict)
    findings: dict[str, Counter[Verdict]] = field(default_factory=dict)
    suspects: int = 0
    due: Counter[Verdict] = field(default_factory=Counter)
    fixed: Counter[Verdict] = field(default_factory=Counter)
    left: Counter[Verdict] = field(default_factory=Counter)
    left_sample: LeftSample = field(default_factory=LeftSample)
    moved: int = 0
    failed: int = 0
    untried: int = 0
    last_traces: int = 0
    reasons: dict[Verdict, Counter[Why]] = field(default_factory=dict)
    again_seconds: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    missing_columns: tuple[MissingColumn, ...] = ()
    missing_tables: tuple[str, ...] = ()
    unseen: str | None = None
    gaps: int = 0
    generators: Sequence[BehindGenerator] = ()
    engine: Engine | None = None
    pace: Mapping[str, Any] | None = None
    staging: Mapping[str, Any] | None = None
    snapshot: Mapping[str, Any] | None = None
    exit: int = 0

    def count(self, finding: Finding) -> None:
        """Add one finding: confirmed ones count, settled ones do not, MOVED ones are left for the next run."""
        if finding.untried:
            self.untried += 1
            return
        if finding.error:
            self.failed += 1
        if finding.reason:
            self.reasons.setdefault(finding.result or finding.verdict, Counter())[finding.reason.why] += finding.number
        if finding.result is Verdict.MOVED:
            self.moved += finding.number
            return
        if not is_counted(finding):
            return
        if finding.result is Verdict.FIXED:
            self.fixed[finding.verdict] += finding.number
        elif (left := finding.result or finding.verdict) not in HARMLESS:
            self.left[left] += finding.number
            self.left_sample.add(left.value, finding.suspect.projection, finding.suspect.key)
        self.findings.setdefault(finding.suspect.projection, Counter())[finding.verdict] += finding.number
        self.due[finding.verdict] += finding.due * finding.number
        self.last_traces += finding.last_trace

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: 4: cluster lost before anything was mended; 3: something failed; 1: drift is left; else 0.

        Leaked content is not drift. Rows that are too young are drift in a dry run only. Tables and columns that were
        not compared although they should be count as drift.
        """
        if self.untried and not self.fixed.total():
            return ExitCode.CANNOT_REACH
        if self.failed or self.untried or self._has_unread_files:
            return ExitCode.PARTLY_FAILED
        if self.left.total() or self.missing_columns or self.missing_tables or self.gaps:
            return ExitCode.DRIFT
        if self.run is None and self.kind is not RunKind.CHECK and self.too_young:
            return ExitCode.DRIFT
        if not all(generator.raised for generator in self.generators):
            return ExitCode.DRIFT
        return ExitCode.FINE

    @property
    def _has_unread_files(self) -> bool:
        return bool(self.snapshot and (self.snapshot["damaged"] or self.snapshot["missing"]))

    @property
    def too_young(self) -> int:
        """The number of rows that differ and were changed less than the margin before the scan."""
        return sum(counts[Why.TOO_YOUNG] for counts in self.reasons.values())

    @property
    def named_reasons(self) -> dict[str, dict[str, int]]:
        """The reasons, by the names of verdicts and reasons."""
        named = {}
        for verdict, counts in self.reasons.items():
            named[verdict.value] = {why.value: number for why, number in counts.items()}
        return named

    @property
    def kept(self) -> dict[str, Any]:
        sums = {
            "scanned": self.scanned,
            "findings": {name: named_counts(counts) for name, counts in self.findings.items()},
            "suspects": self.suspects,
            "fixed": named_counts(self.fixed),
            "left": named_counts(self.left),
            LEFT_SAMPLE: self.left_sample.keys,
            "moved": self.moved,
            "failed": self.failed,
            "untried": self.untried,
            "last_traces": self.last_traces,
            "reasons": self.named_reasons,
            "again_seconds": self.again_seconds,
            "gaps": self.gaps,
            "seconds": self.seconds,
            "pace": self.pace,
            "exit": int(self.exit),
        }
        if self.generators:
            sums["generators"] = [generator.kept for generator in self.generators]
        return sums


def is_counted(finding: Finding) -> bool:
    """Whether it is one of a run's `findings`: seen, not moved, and not settled since the scan."""
    if finding.untried or finding.result is Verdict.MOVED:
        return False
    return finding.result is not None or not (finding.error or finding.verdict is Verdict.AGREE)


def named_counts(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {verdict.value: number for verdict, number in counts.items() if number}


def names_of_counters(families: Iterable[Family]) -> list[str]:
    """The names of the families' counters in findings."""
    names = []
    for family in families:
        for counts in family.counts:
            names.append(counts.name)
    return names


class Detection(ABC):
    """The result of one scan, kept by its engine (on executors, on disk or in memory) until it is closed.

    Attributes:
        scanned: the number of rows read, by table in James's spelling.
        counts: the number of suspects, by projection and verdict.
        gaps: the number of uids that a mailbox gave and that no row has (expunged, or drift), where the truth was not
            paged.
    """

    def __init__(self) -> None:
        self.gaps = 0
        self.scanned: Counter[str] = Counter()
        self.counts: dict[str, Counter[Verdict]] = {}

    @abstractmethod
    def suspects(self) -> Iterator[Suspect]:
        """Yield every suspect."""

    @abstractmethod
    def revisit(self, policy: RepairPolicy, progress: Progress) -> Iterator[Finding]:
        """Look again at each row-wise suspect and mend what the policy allows; streams one finding for each.

        Counters are skipped: `repair.mending.counters` mends them one by one, outside of retried tasks.
        """

    @property
    def number(self) -> int:
        """The number of suspects of all projections and verdicts."""
        return sum(counts.total() for counts in self.counts.values())

    def row_wise(self, family: Family) -> int:
        """The number of suspects of a family, without suspects of its counters, which `revisit` skips."""
        number = 0
        for projection in family.projections:
            if projection.by_row and projection.name in self.counts:
                number += self.counts[projection.name].total()
        return number

    def generators_behind(self) -> list[BehindGenerator]:
        """The generators of uids and modseqs that are behind the messages; none where the engine does not look."""
        return []

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Free files, memory and executors' storage."""


class LocalSuspects(Detection):
    """Suspects that this process looks at again, one batch after the other."""

    def __init__(self, mail: Tables, ledger: Ledger, clock: Clock, families: tuple[Family, ...]) -> None:
        super().__init__()
        self._mail = mail
        self._ledger = ledger
        self._clock = clock
        self._families = families

    def revisit(self, policy: RepairPolicy, progress: Progress) -> Iterator[Finding]:
        fixer = Fixer(self._mail, self._ledger, self._clock, self._families, policy)
        progress.stage("look again", sum(map(self.row_wise, self._families)))
        for finding in fixer.revisit(self.suspects()):
            progress.advance(1)
            yield finding


class KnownSuspects(LocalSuspects):
    """An engine for suspects that are known without a scan: journalled lags, or the suspects of a plan.

    Args:
        counts: the number of suspects, by projection and verdict.
        found: returns an iterator over them; called repeatedly.
        text: the name of this stage in the progress display.
    """

    def __init__(  # noqa: PLR0917 - those of its parent come first
        self,
        mail: Tables,
        ledger: Ledger,
        clock: Clock,
        families: tuple[Family, ...],
        counts: Mapping[str, Counter[Verdict]],
        found: Callable[[], Iterator[Suspect]],
        text: str,
    ) -> None:
        super().__init__(mail, ledger, clock, families)
        self.counts = dict(counts)
        self._found = found
        self._text = text

    def detect(self, settings: "RepairSettings", progress: Progress) -> "KnownSuspects":  # noqa: ARG002 - all is known
        progress.stage(self._text, self.number)
        return self

    def suspects(self) -> Iterator[Suspect]:
        return self._found()


class Detector(Protocol):
    """A scanner: `spark_repair`, `repair.scanners`, or what is known without one."""

    def detect(self, settings: RepairSettings, progress: Progress) -> Detection:
        """Read each table of the families once and find the suspects."""
        ...
