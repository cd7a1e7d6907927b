"""A check or a repair from its first clock reading to its exit code, whichever engine does the scanning.

The steps of the protocol (docs/design.md, "Ideas") are: take T, scan, stop if more fixes are due
than allowed, wait, look again and mend, sum up. The engine, the mender of counters and the progress
display are arguments.

`--max-fixes`: fixes are counted before the first write; above the limit a person is asked.

A repair of lags reads its suspects from the journal instead of scanning. It waits before it takes
T: T must be after the change that lags, or the second look would leave the row alone (MOVED).

What an interrupted run has mended is counted by its ledger, as executors did more than was
reported. Each fix is recorded before it is written, and settled after it was read back. A fix that
is recorded and not settled is read once more: the row shows whether it was written.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from mailmend.model.catalog.ledger import KeyspaceLease
from mailmend.model.errors import CannotReach, FixLimit, MailmendError, came_of_interruption
from mailmend.model.instants import MICROS
from mailmend.model.operations import Read, Seen
from mailmend.model.ports import Clock, NodeClocks, Progress, Silent, Tables
from mailmend.model.projections.family import Family, projections_of
from mailmend.model.projections.findings import Excess, Finding, RepairPolicy, Suspect, counts_of, merged
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import (
    BY_POLICY,
    SETTLED,
    Reason,
    Verdict,
    Why,
    younger_than_a_day,
)
from mailmend.model.table import Key
from mailmend.model.texts import keyspace_option
from mailmend.model.waiting import wait_visibly
from mailmend.repair.clock import read_clocks, take_as_of
from mailmend.repair.decisions.recheck import fixed_at, reason_of
from mailmend.repair.ledger.lags import Lag, LagJournal
from mailmend.repair.ledger.leases import Leases, TakenLease
from mailmend.repair.ledger.runs import Ledger, Run, RunKind, RunState
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import (
    Detection,
    Detector,
    KnownSuspects,
    RepairResult,
    RepairSettings,
    Sink,
    named_counts,
    names_of_counters,
)
from mailmend.repair.mending.generators import Generators, generators_of
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.throttle import Throttle, pace_of

SAMPLES_MAX = 5
"""The largest number of suspects that are shown to the person who is asked."""


GoOn = Callable[[Excess], bool]
"""Asks a person whether to go on."""


_LOG: Final = logging.getLogger("mailmend.runs")


@dataclass(frozen=True, slots=True)
class RepairTools:
    """The parts of a check or repair.

    Attributes:
        counters: looks at suspect counters again and mends them; None leaves them alone.
        ledger, leases: needed to write; a check and a dry run have none.
        mail: read for the sums of an interrupted run, and where generators are raised; None:
            neither is done.
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


LAGS_MAX = 100_000
"""The largest number of lags that one run mends, the oldest first; the rest waits for the next run."""


def repair_lags(
    lags: LagJournal, mail: Tables, settings: RepairSettings, tools: RepairTools, sink: Sink
) -> RepairResult:
    """Mend the lags journalled until now, and remove those that then agree; the rest stays for the next run.

    Lags of tables that do not belong to the families of the settings stay too.

    Args:
        lags: the journal; local files are drained into it first.
        mail: the mail keyspace.
        settings: of a repair; its delay is counted from when the youngest lag was noticed.
        tools: of a repair; its engine is not used.
        sink: gets each finding.

    Raises:
        CannotReach: the journal cannot be read.
        LeaseHeld: another repair of the keyspace is running.
    """
    assert tools.ledger is not None, "mending needs a ledger"
    if not settings.dry_run:
        lags.drain()
    known = projections_of(settings.families)
    journalled = lags.due(tools.clock.micros() + 1)
    due = list(islice((lag for lag in journalled if lag.suspect.projection in known), LAGS_MAX))
    _wait_for_lags(due, settings, tools)
    pace = Pace(settings.policy.rows_per_second, tools.clock, tools.throttle)
    found = merged(lag.suspect for lag in due)
    ledger = replace(tools.ledger, tables=pace.over(tools.ledger.tables))
    engine = KnownSuspects(
        pace.over(mail),
        ledger,
        tools.clock,
        settings.families,
        counts_of(found),
        lambda: iter(found),
        "read journalled lags",
    )
    settled: set[tuple[str, Key]] = set()

    def note(finding: Finding) -> None:
        if finding.error is None and (finding.result or finding.verdict) in SETTLED:
            settled.add((finding.suspect.projection, finding.suspect.key))
        sink(finding)

    without_delay = replace(settings, kind=RunKind.LAGS, delay_seconds=0.0)
    result = repair(without_delay, replace(tools, engine=engine), note)
    if not settings.dry_run:
        mended = []
        for lag in due:
            if (lag.suspect.projection, lag.suspect.key) in settled:
                mended.append(lag)
        lags.remove(mended)
    return result


def _wait_for_lags(due: Sequence[Lag], settings: RepairSettings, tools: RepairTools) -> None:
    """Wait until the youngest lag is older than the delay and than T's distance to now."""
    youngest = max((lag.noticed_micros for lag in due), default=0)
    ripe = youngest + max(round(settings.delay_seconds * MICROS), settings.timing.margin_micros + MICROS)
    seconds = (ripe - tools.clock.micros()) / MICROS
    if due and seconds > 0 and not settings.timing.no_writers:
        what = "waiting until lags are old enough to be mended"
        wait_visibly(tools.clock, tools.progress, what, seconds)


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
            ledger.interrupt(run, {"fixed": named_counts(mended_so_far(ledger, run, mail, families))})


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
        self.result.suspects = detection.number
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
        self._raise_generators()
        self._wait(detection)
        with self._timed("recheck"):
            self._take(detection.revisit(self.policy, self.tools.progress))
        with self._timed("counters"):
            self._take(self._recounted(detection))

    def _raise_generators(self) -> None:
        """Raise the generators that are behind, first: until then they give numbers that are in use.

        They only ever grow, so an undo leaves them.
        """
        mail = self.tools.mail
        if mail is None or self.policy.run is None:
            return
        generators = self._generators_in(mail)
        raised = []
        for found in self.result.generators:
            raised.append(generators[found.table].raised(found))
        self.result.generators = raised

    def _generators_in(self, mail: Tables) -> dict[str, Generators]:
        """The generators by the spelling of their tables."""
        found = {}
        for family in self.settings.families:
            for generators in generators_of(family, mail, self.tools.clock, self.settings.keyspace):
                for table in generators.numbering.generators:
                    found[table.spelling] = generators
        return found

    def _wait(self, detection: Detection) -> None:
        """Wait for lags to settle; no wait where nothing can settle (content that is only reported)."""
        settling = set()
        for counts in detection.counts.values():
            for verdict, number in counts.items():
                if number:
                    settling.add(verdict)
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
            left = until - clock.monotonic()
            what = "waiting for late writes before the second look"
            wait_visibly(clock, self.tools.progress, what, left)

    def _recounted(self, detection: Detection) -> Iterator[Finding]:
        counters = names_of_counters(self.settings.families)
        if self.tools.counters is None or not any(map(detection.counts.get, counters)):
            return iter(())
        self.tools.progress.stage("counters")
        progress = self.tools.progress
        return self.tools.counters.revisit(detection.suspects, self.policy, self.held, progress)

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
        settled = []
        for example in _shown(batch, run.as_of, mail, by_row):
            fixed[example.verdict] += 1
            settled.append(replace(example, result=Verdict.FIXED, error=None))
        ledger.settle(run.id, settled)
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
    if image.verdict is not Verdict.LOST_CONTENT:
        return True
    return projection is family.mirror and family.content is not None


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


def stop_at_limit(  # noqa: PLR0917 - as many parts
    detection: Detection,
    settings: RepairSettings,
    policy: RepairPolicy,
    now: int,
    go_on: GoOn | None,
    progress: Progress | None = None,
) -> None:
    """Stop before any write when more would be mended than `settings.max_fixes`, unless a person agrees.

    Raises:
        FixLimit: no person agreed, or there is no terminal to ask on.
    """
    if settings.max_fixes is None or policy.run is None:
        return
    excess = excess_over(settings.max_fixes, detection, settings, policy, now)
    if excess is not None and settings.as_of is not None:
        excess = _still_over(excess, detection, settings, policy, progress or Silent())
    if excess is not None and not (go_on and go_on(excess)):
        raise FixLimit(
            f"{excess.total:,} suspects in {excess.keyspace} could be mended, --max-fixes allows {excess.allowed:,}; "
            "nothing was written",
            mend=f"See what they are with: mailmend check messages {keyspace_option(excess.keyspace)}; "
            f"if that is what you want mended, type the same command with --max-fixes {excess.total}.",
        )


def excess_over(
    allowed: int, detection: Detection, settings: RepairSettings, policy: RepairPolicy, now: int
) -> Excess | None:
    """The suspects that would be mended, where there are more than allowed; else None.

    Once the plain counts exceed the limit, content and truth rows are counted again by age: young ones are never
    removed.
    """
    projections = projections_of(settings.families)
    counts: dict[str, Counter[Verdict]] = {}
    for name, sums in detection.counts.items():
        for verdict, number in sums.items():
            if projections[name].asks_for(verdict, policy):
                counts.setdefault(name, Counter())[verdict] = number
    excess = Excess(settings.keyspace, allowed, counts)
    if excess.total > allowed and any(BY_POLICY & sums.keys() for sums in excess.counts.values()):
        excess = Excess(settings.keyspace, allowed, counts_of(_due(detection, projections, policy, now)))
    if excess.total <= allowed:
        return None
    samples = tuple(islice(_due(detection, projections, policy, now), SAMPLES_MAX))
    return Excess(settings.keyspace, allowed, excess.counts, samples)


def _still_over(
    excess: Excess, detection: Detection, settings: RepairSettings, policy: RepairPolicy, progress: Progress
) -> Excess | None:
    """The same after a look without writing: rows that a staged scan read hours apart differ where users worked.

    Counters are counted as suspected: only their own two looks tell.
    """
    counters = names_of_counters(settings.families)
    counts = {name: sums for name, sums in excess.counts.items() if name in counters}
    samples = list[Suspect]()
    for finding in detection.revisit(replace(policy, run=None), progress):
        if finding.due:
            counts.setdefault(finding.suspect.projection, Counter())[finding.verdict] += finding.number
            if len(samples) < SAMPLES_MAX:
                samples.append(finding.suspect)
    seen = Excess(excess.keyspace, excess.allowed, counts, tuple(samples) or excess.samples)
    if seen.total <= seen.allowed:
        return None
    return seen


def _due(
    detection: Detection, projections: Mapping[str, Projection], policy: RepairPolicy, now: int
) -> Iterator[Suspect]:
    for suspect in detection.suspects():
        wanted = projections[suspect.projection].asks_for(suspect.verdict, policy)
        dated = suspect.truth_parts or suspect.key
        young = suspect.verdict in BY_POLICY and younger_than_a_day(dated, now)
        if wanted and not young:
            yield suspect
