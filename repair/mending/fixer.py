"""The one write path for fixes: look again, judge again, and hand what is due to `repair.mending.carry_out`.

The same code runs in this process and on Spark's executors: it is built of plain values, holds no global, and works in
bounded batches. Every suspect gives one outcome; an error becomes its outcome's sentence and stops nothing else, unless
the cluster is gone (`repair.mending.breaker`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from model.errors import CannotReach, MailmendError
from model.instants import MICROS
from model.ports import Clock, Tables
from model.projections.declarations import Family
from repair.decisions.findings import Errand, Outcome, Suspect
from repair.decisions.fixes import Fix, Sight, rule
from repair.decisions.recheck import Moment, judge
from repair.decisions.verdicts import Verdict
from repair.ledger.journal import Journal
from repair.mending.breaker import Breaker
from repair.mending.carry_out import Mending
from repair.mending.pace import Pace
from repair.mending.second_look import SecondLook

BATCH_SUSPECTS = 200
"""Suspects that are looked at together: enough to keep many reads in flight, few enough to hold."""


class Fixer:
    """Looks at suspects again, and mends what the errand allows.

    Args:
        mail: the mail keyspace.
        journal: where before-images go; never touched when the errand has no run.
        breaker: ends the work when the cluster is gone; one for all that a process does for one errand.
    """

    def __init__(  # noqa: PLR0917 - in the order in which they are needed
        self,
        mail: Tables,
        journal: Journal,
        clock: Clock,
        families: Iterable[Family],
        errand: Errand,
        pace: Pace,
        breaker: Breaker | None = None,
    ) -> None:
        self._mail = mail
        self._journal = journal
        self._clock = clock
        self._errand = errand
        self._pace = pace
        self._breaker = breaker or Breaker()
        self._looks = SecondLook(mail, families, errand)

    def revisit(self, suspects: Iterable[Suspect]) -> Iterator[Outcome]:
        """One outcome for each suspect, in no particular order; counters are left out (`repair.mending.counters`)."""
        visited = (suspect for suspect in suspects if self._looks.visits(suspect))
        while not self._breaker.open and (batch := list(islice(visited, BATCH_SUSPECTS))):
            self._pace.take(len(batch))
            outcomes = list(self._revisit(sorted(batch, key=_by_partition)))
            self._breaker.note(outcomes)
            yield from outcomes
        yield from map(self._breaker.left, visited)

    def _revisit(self, batch: Sequence[Suspect]) -> Iterator[Outcome]:
        due: list[Fix] = []
        for suspect, sight in zip(batch, self._looks.at(batch), strict=True):
            ruled = self._rule(suspect, sight)
            if isinstance(ruled, Fix):
                due.append(ruled)
            else:
                yield self._recalled(ruled)
        yield from self._mend(due)

    def _rule(self, suspect: Suspect, sight: Sight | MailmendError) -> Outcome | Fix:
        if isinstance(sight, MailmendError):
            return _failed(suspect, sight)
        ruled = rule(sight, self._moment(), self._errand)
        removes_truth = isinstance(ruled, Fix) and ruled.outcome.verdict is Verdict.LOST_CONTENT
        if not removes_truth:
            return ruled
        whole = self._looks.with_companions(sight)
        if isinstance(whole, MailmendError):
            return _failed(suspect, whole)
        return rule(whole, self._moment(), self._errand)

    def _recalled(self, outcome: Outcome) -> Outcome:
        """An outcome that needs nothing: FIXED where an earlier attempt of this very task made it so."""
        if self._errand.run is None or outcome.verdict is not Verdict.AGREE or outcome.error:
            return outcome
        try:
            recorded = self._journal.finding(self._errand.run, outcome.suspect)
        except MailmendError:
            return outcome
        return replace(recorded, result=Verdict.FIXED, error=None) if recorded else outcome

    def _mend(self, fixes: Sequence[Fix]) -> Iterator[Outcome]:
        if not fixes:
            return iter(())
        assert self._errand.run is not None, "a fix without a run was decided"
        mending = Mending(self._mail, self._journal, self._errand.run, self._errand.as_of, self._explain)
        return mending.mend(fixes)

    def _explain(self, hidden: Sequence[Fix]) -> list[Verdict]:
        """Look once more: what agrees by now, or was changed, was somebody else's doing."""
        sights = self._looks.at([fix.outcome.suspect for fix in hidden])
        judged = [judge(sight.look, self._moment()) if isinstance(sight, Sight) else None for sight in sights]
        return [Verdict.MOVED if one in (Verdict.MOVED, Verdict.AGREE) else Verdict.HIDDEN for one in judged]

    def _moment(self) -> Moment:
        return Moment(self._errand.as_of, self._clock.micros(), round(self._errand.skew_seconds * MICROS))


def _failed(suspect: Suspect, error: MailmendError) -> Outcome:
    return Outcome(suspect, suspect.verdict, error=str(error), unreached=isinstance(error, CannotReach))


def _by_partition(suspect: Suspect) -> tuple[str, str]:
    """Suspects of one partition side by side, so that their reads find it warm."""
    return suspect.projection, str(suspect.key[0])
