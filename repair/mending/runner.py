"""A check or a repair from its first clock reading to its exit code, whichever engine does the scanning.

The steps of the protocol (docs/design.md, "Ideas") are: take T, scan, stop if more fixes are due than allowed, wait,
look again and mend, sum up. The engine, the mender of counters and the progress display are arguments.

What an interrupted run has mended is counted by its ledger, as executors did more than was reported. Each fix is
recorded before it is written, and settled after it was read back. A fix that is recorded and not settled is read once
more: the row shows whether it was written.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import CannotReach, ExitCode, MailmendError, came_of_interruption
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Read, Seen
from mailmend.model.ports import Clock, NodeClocks, Progress, Tables
from mailmend.model.projections.family import Family, projections_of
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import HARMLESS, Reason, Verdict, Why
from mailmend.repair.binding import MissingColumn
from mailmend.repair.clock import read_clocks, take_as_of
from mailmend.repair.decisions.engines import Engine
from mailmend.repair.decisions.left_sample import LEFT_SAMPLE, LeftSample
from mailmend.repair.decisions.recheck import fixed_at, reason_of
from mailmend.repair.ledger.leases import Leases, TakenLease
from mailmend.repair.ledger.runs import Ledger, Run, RunKind, RunState
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import Detection, Detector, RepairSettings
from mailmend.repair.mending.fix_limit import GoOn, stop_at_limit
from mailmend.repair.mending.generators import BehindGenerator
from mailmend.repair.mending.throttle import Throttle, pace_of

_LOG: Final = logging.getLogger("mailmend.runs")

Sink = Callable[[Finding], None]


@dataclass(slots=True)
class RepairResult:
    """The sums of a run so far, with the names of `--json`, where `kind` is called `command`."""

    keyspace: str
    kind: RunKind
    run: RunId | None = None
    scanned: dict[str, int] = field(default_factory=dict)
    findings: dict[str, Counter[Verdict]] = field(default_factory=dict)
    suspects: int = 0
    due: Counter[Verdict] = field(default_factory=Counter)  # what a dry run would have mended
    fixed: Counter[Verdict] = field(default_factory=Counter)
    left: Counter[Verdict] = field(default_factory=Counter)
    left_sample: LeftSample = field(default_factory=LeftSample)  # for later runs; no part of `--json`
    moved: int = 0
    failed: int = 0
    untried: int = 0  # skipped, because the cluster could not be reached any more
    last_traces: int = 0
    reasons: dict[Verdict, Counter[Why]] = field(default_factory=dict)  # why what is left or moved stays
    again_seconds: int | None = None  # after which no row is too young any more
    seconds: dict[str, float] = field(default_factory=dict)
    missing_columns: tuple[MissingColumn, ...] = ()  # what ought to be compared and is not there
    missing_tables: tuple[str, ...] = ()
    unseen: str | None = None  # a sentence on what a targeted look cannot see
    gaps: int = 0  # uids of a targeted mailbox behind which it cannot see
    generators: Sequence[BehindGenerator] = ()  # of uids and modseqs, behind the messages; the first of them
    engine: Engine | None = None  # what scanned the keyspace; None where nothing was scanned
    pace: Mapping[str, Any] | None = None  # the rates it had, and why; None where nothing could change them
    staging: Mapping[str, Any] | None = None  # the area of a staged scan, as it stood at the end
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
        if finding.result is None and (finding.error or finding.verdict is Verdict.AGREE):
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
        if self.failed or self.untried:
            return ExitCode.PARTLY_FAILED
        if self.left.total() or self.missing_columns or self.missing_tables or self.gaps:
            return ExitCode.DRIFT
        if self.run is None and self.kind is not RunKind.CHECK and self.too_young:
            return ExitCode.DRIFT
        if not all(generator.raised for generator in self.generators):
            return ExitCode.DRIFT
        return ExitCode.FINE

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
        return {
            "scanned": self.scanned,
            "findings": {name: _named(counts) for name, counts in self.findings.items()},
            "suspects": self.suspects,
            "fixed": _named(self.fixed),
            "left": _named(self.left),
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


@dataclass(frozen=True, slots=True)
class RepairTools:
    """The parts of a check or repair.

    Attributes:
        counters: looks at suspect counters again and mends them; None leaves them alone.
        ledger, leases: needed to write; a check and a dry run have none.
        mail: read for the sums of an interrupted run; None: only what was reported until then counts.
        go_on: asks a person when more is due than `max_fixes` allows; None without a terminal.
        throttle: changes the pace of the run while it is at work.
        meanwhile: called during the delay before the second look; the time that it takes counts as part of the delay.
    """

    engine: Detector
    clock: Clock
    nodes: NodeClocks
    progress: Progress
    counters: CounterMender | None = None
    ledger: Ledger | None = None
    leases: Leases | None = None
    mail: Tables | None = None
    go_on: GoOn | None = None
    throttle: Throttle | None = None
    meanwhile: Callable[[], object] | None = None


def check(settings: RepairSettings, tools: RepairTools, sink: Sink) -> RepairResult:
    """Find drift without any write."""
    as_of = read_clocks(tools.clock, tools.nodes).earliest - settings.timing.margin_micros
    if settings.as_of is not None:
        as_of = min(as_of, settings.as_of)
    result = RepairResult(settings.keyspace, RunKind.CHECK)
    result.missing_columns = settings.missing_columns
    result.missing_tables = settings.missing_tables
    _Stages(settings, tools, sink, settings.policy_of(as_of, None), result).go_through()
    return result


def repair(settings: RepairSettings, tools: RepairTools, sink: Sink) -> RepairResult:
    """Find and mend drift, under a lease and with a ledger; a dry run only looks.

    Raises:
        ClocksDiffer: the clocks differ by more than the margin covers.
        LeaseHeld: another repair of the keyspace is running.
        FixLimit: more would be mended than `max_fixes` allows, and no person agreed; nothing was written.
    """
    result = RepairResult(settings.keyspace, settings.kind)
    if settings.dry_run or tools.ledger is None:
        as_of = _as_of(settings, tools)
        _Stages(settings, tools, sink, settings.policy_of(as_of, None), result).go_through()
        return result
    command = RunKind.MESSAGES.value
    with lease_of_repair(tools.leases, settings.keyspace, command) as held:
        if held and tools.mail:
            close_killed(tools.ledger, settings.keyspace, command, tools.mail, settings.families)
        as_of = _as_of(settings, tools)
        run = tools.ledger.start(settings.keyspace, command, as_of, settings.options, owner=settings.owner)
        result.run = run.id
        if tools.throttle:
            tools.throttle.hear_of(run.id)
        with recorded(tools.ledger, run, result, tools.mail, settings.families):
            _Stages(settings, tools, sink, settings.policy_of(as_of, run.id), result, held).go_through()
    return result


def lease_of_repair(leases: Leases | None, keyspace: str, command: str) -> AbstractContextManager[TakenLease | None]:
    """Hold the lease that keeps a second repair of the keyspace away; without leases hold none."""
    if leases is None:
        return nullcontext()
    return leases.held(KeyspaceLease.REPAIR.of(keyspace), command)


def _as_of(settings: RepairSettings, tools: RepairTools) -> int:
    """T: now less the margin, or a plan's or a staging area's. A smaller T is safe: it only leaves more as MOVED."""
    latest = take_as_of(tools.clock, tools.nodes, settings.timing)
    if settings.as_of is None:
        return latest
    return min(latest, settings.as_of)


@contextmanager
def recorded(
    ledger: Ledger, run: Run, result: RepairResult, mail: Tables | None, families: Sequence[Family]
) -> Iterator[None]:
    """Close the run in the ledger however it ends; its fixes stay and can be undone."""
    try:
        yield
    except BaseException as error:
        with suppress(MailmendError, KeyboardInterrupt):  # pressed again: whatever was reported must do
            if mail:
                result.fixed = mended_so_far(ledger, run, mail, families)
        sums = result.kept
        del sums["exit"]
        state = RunState.FAILED
        if came_of_interruption(error):
            state = RunState.INTERRUPTED
        with suppress(MailmendError):
            ledger.finish(run, sums, state)
        raise
    if not result.untried:
        ledger.finish(run, result.kept, RunState.DONE)
        return
    with suppress(CannotReach):
        ledger.finish(run, result.kept, RunState.FAILED)


def close_killed(ledger: Ledger, keyspace: str, command: str, mail: Tables, families: Sequence[Family] = ()) -> None:
    """Close earlier runs whose process was killed, with what they mended; call it under the command's lease."""
    for run in ledger.runs(keyspace):
        if run.command == command and run.state is RunState.RUNNING:
            ledger.interrupt(run, {"fixed": _named(mended_so_far(ledger, run, mail, families))})


@dataclass(slots=True)
class _Stages:
    settings: RepairSettings
    tools: RepairTools
    sink: Sink
    policy: RepairPolicy
    result: RepairResult
    held: TakenLease | None = None
    again_at: int = 0

    def go_through(self) -> None:
        try:
            with self._timed("scan"):
                detection = self.tools.engine.detect(self.settings, self.tools.progress)
            try:
                self._follow_up(detection)
            finally:
                detection.close()
        finally:
            self.result.pace = pace_of(self.tools.throttle)
        if self.again_at:
            self.result.again_seconds = max(0, -((self.tools.clock.micros() - self.again_at) // MICROS))
        self.result.exit = self.result.exit_code

    def _follow_up(self, detection: Detection) -> None:
        self.result.scanned = dict(sorted(detection.scanned.items()))
        self.result.gaps = detection.gaps
        self.result.generators = detection.generators_behind()
        _LOG.info("scan ended", extra={"scanned": self.result.scanned})
        self.result.suspects = sum(sum(counts.values()) for counts in detection.counts.values())
        if not self.settings.recheck and self.result.kind is RunKind.CHECK:
            raw = Reason(Why.RAW)
            self._take(Finding(suspect, suspect.verdict, reason=raw) for suspect in detection.suspects())
            return
        tools = self.tools
        allowed = self.settings.max_fixes
        if tools.throttle:
            allowed = tools.throttle.max_fixes(allowed)
        limited = replace(self.settings, max_fixes=allowed)
        stop_at_limit(detection, limited, self.policy, tools.clock.micros(), tools.go_on, tools.progress)
        self._wait(detection)
        with self._timed("recheck"):
            self._take(detection.revisit(self.policy, self.tools.progress))
        with self._timed("counters"):
            self._take(self._recounted(detection))

    def _wait(self, detection: Detection) -> None:
        """Wait for lags to settle; no wait where nothing can settle (content that is only reported)."""
        settling = set()
        for counts in detection.counts.values():
            settling |= {verdict for verdict, number in counts.items() if number}
        if self.settings.policy.leaks != "collect":
            settling.discard(Verdict.LEAK)
        if not settling or self.settings.delay_seconds <= 0:
            return
        clock = self.tools.clock
        meanwhile = self.tools.meanwhile
        until = clock.monotonic() + self.settings.delay_seconds
        if meanwhile:
            meanwhile()
        with self._timed("delay"):
            left = max(0.0, until - clock.monotonic())
            self.tools.progress.stage("waiting", round(left))
            for seconds in _portions(left):
                clock.sleep(seconds)
                self.tools.progress.advance(1)

    def _recounted(self, detection: Detection) -> Iterator[Finding]:
        counts = [count for family in self.settings.families for count in family.counts]
        if self.tools.counters is None or not any(detection.counts.get(count.name) for count in counts):
            return iter(())
        self.tools.progress.stage("counters")
        return self.tools.counters.revisit(detection.suspects, self.policy, self.held)

    def _take(self, findings: Iterable[Finding]) -> None:
        projections = projections_of(self.settings.families)
        for finding in findings:
            explained = self._explained(finding, projections)
            self.result.count(explained)
            self.sink(explained)

    def _explained(self, finding: Finding, projections: Mapping[str, Projection]) -> Finding:
        projection = projections.get(finding.suspect.projection)
        if finding.reason is not None or projection is None:
            return finding
        reason = reason_of(finding, self.policy, self.tools.clock.micros(), projection)
        if reason is None:
            return finding
        if reason.why is Why.TOO_YOUNG:
            self.again_at = max(self.again_at, reason.again_at or 0)
        return replace(finding, reason=reason)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = self.tools.clock.monotonic()
        try:
            yield
        finally:
            self.result.seconds[stage] = self.tools.clock.monotonic() - started


def _portions(seconds: float) -> Iterator[float]:
    while seconds > 0:
        yield min(1.0, seconds)
        seconds -= 1.0


def _named(counts: Mapping[Verdict, int]) -> dict[str, int]:
    return {verdict.value: number for verdict, number in counts.items() if number}


_BATCH_FINDINGS = 200


def mended_so_far(ledger: Ledger, run: Run, mail: Tables, families: Iterable[Family]) -> Counter[Verdict]:
    """The run's fixes by verdict; those that only their rows show are settled in the ledger as well.

    Call it only when no process works for the run any more.
    """
    by_row: dict[str, tuple[Family, Projection]] = {}
    for family in families:
        for projection in family.projections:
            if projection.by_row:
                by_row[projection.name] = (family, projection)
    fixed: Counter[Verdict] = Counter()
    unsettled: list[Finding] = []
    for finding in ledger.findings(run.id):
        if finding.result is Verdict.FIXED:
            fixed[finding.verdict] += finding.number
        elif finding.result is None and _is_own(finding, by_row.get(finding.suspect.projection)):
            unsettled.append(finding)
    pending = iter(unsettled)
    while batch := list(islice(pending, _BATCH_FINDINGS)):
        shown = list(_shown(batch, run.as_of, mail, by_row))
        fixed.update(example.verdict for example in shown)
        ledger.settle(run.id, [replace(example, result=Verdict.FIXED, error=None) for example in shown])
    return fixed


def fix_shows(image: Finding, seen: Seen | None, as_of: int) -> bool:
    """Whether the row is as the run's fix of this before-image left it."""
    appeared_or_went = (seen is None) != (image.projected is None)
    return appeared_or_went or (seen is not None and fixed_at(image, as_of) in seen.written_at.values())


def _is_own(image: Finding, of: tuple[Family, Projection] | None) -> bool:
    """False for counters, and for other rows that a quarantine changes: their images are never settled."""
    if of is None:
        return False
    family, projection = of
    return image.verdict is not Verdict.LOST_CONTENT or projection is family.mirror


def _shown(
    batch: Sequence[Finding], as_of: int, mail: Tables, by_row: Mapping[str, tuple[Family, Projection]]
) -> Iterator[Finding]:
    reads = []
    for finding in batch:
        _, projection = by_row[finding.suspect.projection]
        reads.append(Read(projection.table, finding.suspect.key, times=True, joinable=True))
    for image, answer in zip(batch, mail.read_all(reads), strict=True):
        if not isinstance(answer, MailmendError) and fix_shows(image, next(iter(answer), None), as_of):
            yield image
