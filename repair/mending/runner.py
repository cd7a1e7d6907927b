"""A check or a repair from its first clock reading to its exit code, whichever engine does the scanning.

The order is the protocol's (DESIGN ideas 3 and 4): take T, scan, stop if more is due than allowed, wait, look again and
mend, sum up. What scans, what mends counters and where progress shows are given from outside.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

from model.errors import CannotReach, MailmendError, came_of_interruption
from model.instants import MICROS
from model.projections.declarations import Counts
from repair.clock import read_clocks, take_as_of
from repair.decisions.findings import Detection, Errand, Outcome, Summary
from repair.decisions.verdicts import Verdict
from repair.ledger.leases import Held
from repair.ledger.runs import Ledger, Run, RunState
from repair.mending.limits import stop_at_limit
from repair.mending.request import Means, Order, Sink
from repair.mending.sums_of_run import count, exit_of, summary_fields


def check(order: Order, means: Means, sink: Sink) -> Summary:
    """Find drift without writing anything anywhere."""
    reading = read_clocks(means.clock, means.nodes)
    errand = order.errand(reading.earliest - order.timing.margin_micros, None)
    journey = _Journey(order, means, sink, errand, Summary(order.keyspace, "check"))
    journey.travel()
    return journey.summary


def repair(order: Order, means: Means, sink: Sink) -> Summary:
    """Find drift and mend it, under a lease and with a ledger; a dry run only looks.

    Raises:
        ClocksDiffer: the clocks differ by more than the margin covers.
        LeaseHeld: another repair of the keyspace is at work.
        FixLimit: more is due than `max_fixes` allows, and nobody said to go on; nothing was written.
    """
    if order.dry_run or means.ledger is None:
        errand = order.errand(take_as_of(means.clock, means.nodes, order.timing), None)
        journey = _Journey(order, means, sink, errand, Summary(order.keyspace, "repair"))
        journey.travel()
        return journey.summary
    lease = means.leases.held(lease_name(order.keyspace), "repair") if means.leases else nullcontext()
    with lease as held:
        return _repair_under(held, order, means, means.ledger, sink)


def lease_name(keyspace: str) -> str:
    """The lease under which one keyspace is repaired."""
    return f"repair {keyspace}"


def _repair_under(held: Held | None, order: Order, means: Means, ledger: Ledger, sink: Sink) -> Summary:
    as_of = take_as_of(means.clock, means.nodes, order.timing)
    run = ledger.start(order.keyspace, "repair", as_of, order.options, owner=order.owner)
    summary = Summary(order.keyspace, "repair", run=run.id)
    with recorded(ledger, run, summary):
        _Journey(order, means, sink, order.errand(as_of, run), summary, held).travel()
    return summary


@contextmanager
def recorded(ledger: Ledger, run: Run, summary: Summary) -> Iterator[None]:
    """Close the run in the ledger however it ends; what it did so far stays, and can be undone."""
    try:
        yield
    except BaseException as error:
        sums = {name: value for name, value in summary_fields(summary).items() if name != "exit"}
        with suppress(MailmendError):
            if came_of_interruption(error):
                ledger.interrupt(run, sums)
            else:
                ledger.finish(run, sums, RunState.FAILED)
        raise
    with suppress(CannotReach) if summary.untried else nullcontext():
        ledger.finish(run, summary_fields(summary), RunState.FAILED if summary.untried else RunState.DONE)


@dataclass(slots=True)
class _Journey:
    """One way through the stages; the summary grows on it."""

    order: Order
    means: Means
    sink: Sink
    errand: Errand
    summary: Summary
    held: Held | None = None

    def travel(self) -> None:
        """Scan, wait, look again: and let go of what the engine holds, whatever happens."""
        with self._timed("scan"):
            detection = self.means.engine.detect(self.order.survey, self.means.progress)
        try:
            self._follow_up(detection)
        finally:
            detection.close()
        self.summary.exit = exit_of(self.summary)

    def _follow_up(self, detection: Detection) -> None:
        self.summary.scanned = dict(detection.scanned)
        self.summary.suspects = sum(sum(counts.values()) for counts in detection.counts.values())
        if not self.order.recheck and self.summary.command == "check":
            self._report_raw(detection)
            return
        stop_at_limit(detection, self.order, self.errand, self.means.clock.micros(), self.means.go_on)
        self._wait(detection)
        with self._timed("recheck"):
            self._take(detection.revisit(self.errand, self.means.progress))
        with self._timed("counters"):
            self._take(self._recounted(detection))

    def _report_raw(self, detection: Detection) -> None:
        for suspect in detection.suspects():
            self._take([Outcome(suspect, suspect.verdict)])

    def _wait(self, detection: Detection) -> None:
        """Give lags their time; where nothing could settle there is nothing to wait for."""
        settling = sum(
            count
            for counts in detection.counts.values()
            for verdict, count in counts.items()
            if _settles(verdict, self.order)
        )
        if not settling or self.order.delay_seconds <= 0:
            return
        with self._timed("delay"):
            self.means.progress.stage("waiting", round(self.order.delay_seconds))
            for seconds in _portions(self.order.delay_seconds):
                self.means.clock.sleep(seconds)
                self.means.progress.advance(1)

    def _recounted(self, detection: Detection) -> Iterator[Outcome]:
        """Counters one by one, and only where the scan suspects any."""
        names = {one.name for family in self.order.families for one in family.projections if isinstance(one, Counts)}
        due = any(detection.counts.get(name) for name in names)
        if self.means.recount is None or not due:
            return iter(())
        self.means.progress.stage("counters")
        return self.means.recount.revisit(detection.suspects, self.errand, self.held)

    def _take(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            count(self.summary, outcome)
            self.sink(outcome)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = self.means.clock.micros()
        try:
            yield
        finally:
            self.summary.seconds[stage] = (self.means.clock.micros() - started) / MICROS


def _settles(verdict: Verdict, order: Order) -> bool:
    """Whether waiting can change what is said or done: not for content that is only reported."""
    return verdict is not Verdict.LEAK or order.leaks == "collect"


def _portions(seconds: float) -> Iterator[float]:
    """The wait in portions of a second, so that progress shows and Ctrl-C is heard."""
    while seconds > 0:
        yield min(1.0, seconds)
        seconds -= 1.0
