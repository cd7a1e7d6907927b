"""A check or a repair from its first clock reading to its exit code, whichever engine does the scanning.

The steps are the protocol's (DESIGN ideas 3 and 4): take T, scan, stop if more is due than allowed, wait, look again
and mend, sum up. The engine, the mender of counters and the progress display are arguments.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

from model.errors import CannotReach, MailmendError, came_of_interruption
from model.instants import MICROS
from model.ports import Clock, NodeClocks, Progress
from model.projections.findings import Finding, RepairPolicy
from model.projections.verdicts import Verdict
from repair.clock import read_clocks, take_as_of
from repair.ledger.leases import Leases, TakenLease
from repair.ledger.runs import Ledger, Run, RunState
from repair.mending.counters import CounterMender
from repair.mending.engine import Detection, Engine
from repair.mending.limits import GoOn, stop_at_limit
from repair.mending.result import RepairResult
from repair.mending.settings import RepairSettings

Sink = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class RepairTools:
    """The parts of a check or repair.

    Attributes:
        counters: looks at suspect counters again and mends them; None leaves them alone.
        ledger, leases: needed to write; a check and a dry run have none.
        go_on: asked when more is due than `max_fixes` allows; None where nobody can be asked.
    """

    engine: Engine
    clock: Clock
    nodes: NodeClocks
    progress: Progress
    counters: CounterMender | None = None
    ledger: Ledger | None = None
    leases: Leases | None = None
    go_on: GoOn | None = None


def check(settings: RepairSettings, tools: RepairTools, sink: Sink) -> RepairResult:
    """Find drift without any write."""
    as_of = read_clocks(tools.clock, tools.nodes).earliest - settings.timing.margin_micros
    result = RepairResult(settings.keyspace, "check")
    _Stages(settings, tools, sink, settings.policy_of(as_of, None), result).go_through()
    return result


def repair(settings: RepairSettings, tools: RepairTools, sink: Sink) -> RepairResult:
    """Find and mend drift, under a lease and with a ledger; a dry run only looks.

    Raises:
        ClocksDiffer: the clocks differ by more than the margin covers.
        LeaseHeld: another repair of the keyspace is running.
        FixLimit: more would be mended than `max_fixes` allows, and nobody agreed; nothing was written.
    """
    result = RepairResult(settings.keyspace, "repair")
    if settings.dry_run or tools.ledger is None:
        as_of = take_as_of(tools.clock, tools.nodes, settings.timing)
        _Stages(settings, tools, sink, settings.policy_of(as_of, None), result).go_through()
        return result
    lease = tools.leases.held(lease_name(settings.keyspace), "repair") if tools.leases else nullcontext()
    with lease as held:
        as_of = take_as_of(tools.clock, tools.nodes, settings.timing)
        run = tools.ledger.start(settings.keyspace, "repair", as_of, settings.options, owner=settings.owner)
        result.run = run.id
        with recorded(tools.ledger, run, result):
            _Stages(settings, tools, sink, settings.policy_of(as_of, run.id), result, held).go_through()
    return result


def lease_name(keyspace: str) -> str:
    return f"repair {keyspace}"


@contextmanager
def recorded(ledger: Ledger, run: Run, result: RepairResult) -> Iterator[None]:
    """Close the run in the ledger however it ends; its fixes stay and can be undone."""
    try:
        yield
    except BaseException as error:
        sums = {name: value for name, value in result.kept.items() if name != "exit"}
        with suppress(MailmendError):
            ledger.finish(run, sums, RunState.INTERRUPTED if came_of_interruption(error) else RunState.FAILED)
        raise
    with suppress(CannotReach) if result.untried else nullcontext():
        ledger.finish(run, result.kept, RunState.FAILED if result.untried else RunState.DONE)


@dataclass(slots=True)
class _Stages:
    """One run through its stages; adds to the result."""

    settings: RepairSettings
    tools: RepairTools
    sink: Sink
    policy: RepairPolicy
    result: RepairResult
    held: TakenLease | None = None

    def go_through(self) -> None:
        with self._timed("scan"):
            detection = self.tools.engine.detect(self.settings, self.tools.progress)
        try:
            self._follow_up(detection)
        finally:
            detection.close()
        self.result.exit = self.result.exit_code

    def _follow_up(self, detection: Detection) -> None:
        self.result.scanned = dict(detection.scanned)
        self.result.suspects = sum(sum(counts.values()) for counts in detection.counts.values())
        if not self.settings.recheck and self.result.command == "check":
            self._take(Finding(suspect, suspect.verdict) for suspect in detection.suspects())
            return
        stop_at_limit(detection, self.settings, self.policy, self.tools.clock.micros(), self.tools.go_on)
        self._wait(detection)
        with self._timed("recheck"):
            self._take(detection.revisit(self.policy, self.tools.progress))
        with self._timed("counters"):
            self._take(self._recounted(detection))

    def _wait(self, detection: Detection) -> None:
        """Wait for lags to settle; no wait where nothing can settle (content that is only reported)."""
        collected = self.settings.policy.leaks == "collect"
        found = {verdict for counts in detection.counts.values() for verdict, number in counts.items() if number}
        if not (found if collected else found - {Verdict.LEAK}) or self.settings.delay_seconds <= 0:
            return
        with self._timed("delay"):
            self.tools.progress.stage("waiting", round(self.settings.delay_seconds))
            for seconds in _portions(self.settings.delay_seconds):
                self.tools.clock.sleep(seconds)
                self.tools.progress.advance(1)

    def _recounted(self, detection: Detection) -> Iterator[Finding]:
        """Counters one by one, only where the scan suspects any."""
        names = [one.name for family in self.settings.families for one in family.counts]
        if self.tools.counters is None or not any(detection.counts.get(name) for name in names):
            return iter(())
        self.tools.progress.stage("counters")
        return self.tools.counters.revisit(detection.suspects, self.policy, self.held)

    def _take(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.result.count(finding)
            self.sink(finding)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = self.tools.clock.micros()
        try:
            yield
        finally:
            self.result.seconds[stage] = (self.tools.clock.micros() - started) / MICROS


def _portions(seconds: float) -> Iterator[float]:
    """The wait in portions of a second, for progress and Ctrl-C."""
    while seconds > 0:
        yield min(1.0, seconds)
        seconds -= 1.0
