"""The one write path for fixes: look again, judge again, and pass the fixes to `repair.mending.carry_out`.

The same code runs in this process and on Spark's executors: it uses plain values and no globals, and works in bounded
batches. Each suspect gives one finding; an error becomes the finding's text and stops nothing else, unless the cluster
is gone (`repair.mending.limits.Breaker`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from model.errors import MailmendError
from model.instants import MICROS
from model.ports import Clock, Tables
from model.projections.family import Family
from model.projections.findings import Finding, Look, RepairPolicy, Suspect, failed
from model.projections.verdicts import Verdict
from repair.decisions.recheck import judge, rule
from repair.ledger.runs import Ledger
from repair.mending.carry_out import Mending
from repair.mending.limits import Breaker, Pace
from repair.mending.second_look import SecondLook

BATCH_SUSPECTS = 200
"""Suspects that are looked at together: enough to keep many reads in flight, few enough to hold."""


class Fixer:
    """Looks at suspects again and mends what the policy allows.

    Args:
        mail: the mail keyspace.
        ledger: where before-images go; never touched when the policy has no run.
        breaker: ends the work when the cluster is gone; shared by a process for one run.
    """

    def __init__(  # noqa: PLR0917 - in the order in which they are needed
        self,
        mail: Tables,
        ledger: Ledger,
        clock: Clock,
        families: Iterable[Family],
        policy: RepairPolicy,
        pace: Pace,
        breaker: Breaker | None = None,
    ) -> None:
        self._mail = mail
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._pace = pace
        self._breaker = breaker or Breaker()
        self._looks = SecondLook(mail, families, policy)

    def revisit(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """One finding for each suspect, in no particular order; counters are skipped (`repair.mending.counters`)."""
        visited = (suspect for suspect in suspects if self._looks.visits(suspect))
        while not self._breaker.open and (batch := list(islice(visited, BATCH_SUSPECTS))):
            self._pace.take(len(batch))
            findings = list(self._revisit(sorted(batch, key=_by_partition)))
            self._breaker.note(findings)
            yield from findings
        yield from map(self._breaker.left, visited)

    def _revisit(self, batch: Sequence[Suspect]) -> Iterator[Finding]:
        ruled = [self._rule(suspect, look) for suspect, look in zip(batch, self._looks.at(batch), strict=True)]
        yield from (self._recalled(one) for one in ruled if not one.is_pending)
        if due := [one for one in ruled if one.is_pending]:
            assert self._policy.run is not None, "a fix without a run was decided"
            mending = Mending(self._mail, self._ledger, self._policy.run, self._policy.as_of, self._explain)
            yield from mending.mend(due)

    def _rule(self, suspect: Suspect, look: Look | MailmendError) -> Finding:
        if isinstance(look, MailmendError):
            return failed(suspect, look)
        ruled = rule(look, self._policy, self._clock.micros())
        removes_truth = ruled.is_pending and ruled.verdict is Verdict.LOST_CONTENT
        if not removes_truth:
            return ruled
        whole = self._looks.with_companions(look)
        return (
            failed(suspect, whole)
            if isinstance(whole, MailmendError)
            else rule(whole, self._policy, self._clock.micros())
        )

    def _recalled(self, found: Finding) -> Finding:
        """A finding of agreement as FIXED, where an earlier attempt of this task made the fix."""
        if self._policy.run is None or found.verdict is not Verdict.AGREE or found.error:
            return found
        try:
            recorded = self._ledger.finding(self._policy.run, found.suspect)
        except MailmendError:
            return found
        return replace(recorded, result=Verdict.FIXED, error=None) if recorded else found

    def _explain(self, hidden: Sequence[Finding]) -> list[Verdict]:
        """Look again: MOVED where the pair now agrees or changed (another's write), else HIDDEN."""
        looks = self._looks.at([one.suspect for one in hidden])
        skew = round(self._policy.skew_seconds * MICROS)
        judged = [
            judge(look, self._policy.as_of, self._clock.micros(), skew) if isinstance(look, Look) else None
            for look in looks
        ]
        return [Verdict.MOVED if one in (Verdict.MOVED, Verdict.AGREE) else Verdict.HIDDEN for one in judged]


def _by_partition(suspect: Suspect) -> tuple[str, str]:
    """Sort key that puts one partition's suspects together, so that its reads find it in the cache."""
    return suspect.projection, str(suspect.key[0])
