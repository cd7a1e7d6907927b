"""Mends lags: a repair that reads its suspects from the journal instead of scanning.

It waits before it takes T: T must be after the change that lags, or the second look would leave the row alone (MOVED).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from mailmend.model.instants import MICROS
from mailmend.model.ports import Tables
from mailmend.model.projections.findings import Finding, counts_of, merged
from mailmend.model.projections.verdicts import SETTLED
from mailmend.model.table import Key
from mailmend.repair.ledger.lags import Lag, LagJournal
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.engine import KnownSuspects, RepairSettings
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.runner import RepairResult, RepairTools, Sink, repair

LAGS_MAX = 100_000
"""The largest number of lags that one run mends, the oldest first; the rest waits for the next run."""


def repair_lags(
    lags: LagJournal, mail: Tables, settings: RepairSettings, tools: RepairTools, sink: Sink
) -> RepairResult:
    """Mend the lags journalled until now, and remove those that then agree; the rest stays for the next run.

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
    due = list(islice(lags.due(tools.clock.micros() + 1), LAGS_MAX))
    _wait(due, settings, tools)
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
        lags.remove([lag for lag in due if (lag.suspect.projection, lag.suspect.key) in settled])
    return result


def _wait(due: Sequence[Lag], settings: RepairSettings, tools: RepairTools) -> None:
    """Wait until the youngest lag is older than the delay and than T's distance to now."""
    youngest = max((lag.noticed_micros for lag in due), default=0)
    ripe = youngest + max(round(settings.delay_seconds * MICROS), settings.timing.margin_micros + MICROS)
    seconds = (ripe - tools.clock.micros()) / MICROS
    if due and seconds > 0 and not settings.timing.no_writers:
        tools.progress.stage("waiting", round(seconds))
        tools.clock.sleep(seconds)
