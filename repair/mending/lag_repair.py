"""Mending lags: a repair whose scan is the journal itself, so that exactly what lags is looked at, and nothing else.

The wait comes first here: a lag is as young as the change that it belongs to, and T must lie after that change, or the
second look would rightly leave it alone (MOVED).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from model.instants import MICROS
from model.ports import Clock, Progress, Tables
from model.schema.table import Key
from repair.decisions.findings import (
    Detection,
    Errand,
    Outcome,
    Summary,
    Survey,
    Suspect,
    counts_of,
    merged,
    told,
)
from repair.decisions.verdicts import Verdict
from repair.ledger.journal import Journal
from repair.ledger.lags import Lag, LagJournal
from repair.mending.fixer import Fixer
from repair.mending.pace import Pace
from repair.mending.request import Means, Order, Sink
from repair.mending.runner import repair

LAGS_MAX = 100_000
"""Lags that are mended in one run, the oldest first; the rest waits for the next."""

_DONE = frozenset({Verdict.AGREE, Verdict.FIXED})


class JournalledLags:
    """An engine that detects what was journalled. Implements `repair.decisions.findings.Engine`."""

    def __init__(self, mail: Tables, journal: Journal, clock: Clock, lags: Sequence[Lag]) -> None:
        self._mail, self._journal, self._clock = mail, journal, clock
        self._lags = lags

    def detect(self, survey: Survey, progress: Progress) -> "DetectedLags":
        """The lags as suspects, each place once."""
        progress.stage("read journalled lags", len(self._lags))
        return DetectedLags(self, survey, merged(lag.suspect for lag in self._lags))

    def fixer(self, survey: Survey, errand: Errand) -> Fixer:
        """What looks at them again."""
        pace = Pace(errand.rows_per_second, self._clock)
        return Fixer(self._mail, self._journal, self._clock, survey.families, errand, pace)


class DetectedLags(Detection):
    """The suspects of a journal, in memory: there are at most LAGS_MAX."""

    def __init__(self, engine: JournalledLags, survey: Survey, suspects: Sequence[Suspect]) -> None:
        self._engine, self._survey, self._suspects = engine, survey, suspects

    @property
    def scanned(self) -> Mapping[str, int]:
        """Nothing was scanned."""
        return {}

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        return counts_of(self._suspects)

    def suspects(self) -> Iterator[Suspect]:
        """Every suspect."""
        return iter(self._suspects)

    def revisit(self, errand: Errand, progress: Progress) -> Iterator[Outcome]:
        """Look at every suspect again, and mend what the errand allows."""
        fixer = self._engine.fixer(self._survey, errand)
        return told(fixer.revisit(self.suspects()), progress, self.counts)

    def close(self) -> None:
        """Nothing is held."""


def mend_lags(lags: LagJournal, mail: Tables, order: Order, means: Means, sink: Sink) -> Summary:
    """Mend what was journalled until now, and forget what agrees afterwards; what does not is left for the next run.

    Args:
        lags: the journal; local files are drained into it first.
        mail: the mail keyspace.
        order: as of a repair; its delay is counted from when the youngest lag was noticed.
        means: as of a repair; its engine is not used.
        sink: gets every outcome.

    Raises:
        CannotReach: the journal cannot be read.
        LeaseHeld: another repair of the keyspace is at work.
    """
    assert means.ledger is not None, "mending needs a ledger"
    if not order.dry_run:
        lags.drain()
    due = list(islice(lags.due(means.clock.micros() + 1), LAGS_MAX))
    _wait(due, order, means)
    engine = JournalledLags(mail, means.ledger, means.clock, due)
    settled: set[tuple[str, Key]] = set()

    def note(outcome: Outcome) -> None:
        if outcome.error is None and (outcome.result or outcome.verdict) in _DONE:
            settled.add((outcome.suspect.projection, outcome.suspect.key))
        sink(outcome)

    summary = repair(replace(order, delay_seconds=0.0), replace(means, engine=engine), note)
    if not order.dry_run:
        lags.remove([lag for lag in due if (lag.suspect.projection, lag.suspect.key) in settled])
    return replace(summary, command="repair lags")


def _wait(due: Sequence[Lag], order: Order, means: Means) -> None:
    """Until the youngest lag is older than the delay, and than what T lies back."""
    youngest = max((lag.noticed_micros for lag in due), default=0)
    ripe = youngest + max(round(order.delay_seconds * MICROS), order.timing.margin_micros + MICROS)
    seconds = (ripe - means.clock.micros()) / MICROS
    if due and seconds > 0 and not order.timing.no_writers:
        means.progress.stage("waiting", round(seconds))
        means.clock.sleep(seconds)
