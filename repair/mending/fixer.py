"""The only code that writes fixes of rows: look again, judge again, then record, write, read back and settle.

The same code runs in this process and on Spark's executors: it uses plain values and no globals,
and works in bounded batches. Each step is done for a whole batch before the next step begins: no
row is written before its before-image is safe.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from mailmend.model.errors import MailmendError
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import (
    Conditional,
    Read,
    Seen,
    Write,
    lasting,
    run_out,
)
from mailmend.model.ports import Clock, Tables
from mailmend.model.projections.family import Family, Union
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect, failed
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import Verdict, older_than_a_day
from mailmend.repair.decisions.recheck import judge, rule
from mailmend.repair.ledger.before_images import as_planned
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.limits import Breaker, batches_at_once, side_by_side
from mailmend.repair.mending.reading_back import joinable, shows, written_key
from mailmend.repair.mending.second_look import SecondLook, answered

DERIVED_SECONDS = (0.2, 1.0, 4.0)
"""The waits for rows of a view: a server writes them after it has answered."""


_UNRECORDED = "nothing was written, because its before-image could not be recorded: "

Explain = Callable[[Sequence[Finding]], Sequence[Verdict]]
"""The verdict on each written fix that a later read does not show: MOVED after a newer change, else HIDDEN."""


@dataclass(frozen=True, slots=True)
class Mending:
    """Carries out changes under one run, as of one moment."""

    mail: Tables
    ledger: Ledger
    run: RunId
    as_of: int
    explain: Explain
    clock: Clock

    def mend(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        batch = list(findings)
        if not batch:
            return
        for step in (self._record, self._condition, self._write, self._read_back):
            batch = step(batch)
        yield from self._settled([finding.ended(Verdict.FIXED) for finding in batch])

    def _record(self, batch: list[Finding]) -> list[Finding]:
        images = [[finding, *finding.beside] for finding in batch]
        try:
            own = answered(partial(self.ledger.record, self.run, self.as_of), images)
        except MailmendError as error:
            return [finding.failed(error, _UNRECORDED) for finding in batch]
        return [_checked(finding, answers, _UNRECORDED) for finding, answers in zip(batch, own, strict=True)]

    def _condition(self, batch: list[Finding]) -> list[Finding]:
        return [self._attempted(finding) for finding in batch]

    def _attempted(self, finding: Finding) -> Finding:
        condition = finding.condition
        if condition is None or not finding.is_pending:
            return finding
        now = self.clock.micros()
        if run_out(condition, now):
            return replace(finding, result=Verdict.MOVED)
        try:
            applied = self.mail.attempt(lasting(condition, now)).applied
        except MailmendError as error:
            return finding.failed(error)
        if not applied:
            return replace(finding, result=Verdict.MOVED)
        return finding

    def _write(self, batch: list[Finding]) -> list[Finding]:
        now = self.clock.micros()
        batch = [_in_time(finding, now) for finding in batch]
        due: list[list[Write]] = []
        for finding in batch:
            writes: list[Write] = []
            if finding.is_pending:
                writes = [joinable(lasting(write, now)) for write in finding.writes]
            due.append(writes)
        own = answered(self.mail.write_all, due)
        return [_checked(finding, answers) for finding, answers in zip(batch, own, strict=True)]

    def _read_back(self, batch: list[Finding]) -> list[Finding]:
        """Read the changed rows: HIDDEN where a change does not show."""
        shown = self._read_once(batch)
        for seconds in DERIVED_SECONDS:
            late = [place for place, finding in enumerate(shown) if _may_be_derived_yet(finding)]
            if not late:
                break
            self.clock.sleep(seconds)
            again = self._read_once([batch[place] for place in late])
            for place, finding in zip(late, again, strict=True):
                shown[place] = finding
        return self._explained(shown)

    def _read_once(self, batch: list[Finding]) -> list[Finding]:
        reads: list[list[Read]] = []
        for finding in batch:
            changes = _made_changes(finding)
            reads.append([Read(change.table, written_key(change), joinable=True) for change in changes])
        own = answered(self.mail.read_all, reads)
        return [_shown(finding, answers) for finding, answers in zip(batch, own, strict=True)]

    def _explained(self, batch: list[Finding]) -> list[Finding]:
        hidden = [finding for finding in batch if finding.result is Verdict.HIDDEN]
        if not hidden:
            return batch
        verdicts = iter(self.explain(hidden))
        explained = []
        for finding in batch:
            if finding.result is Verdict.HIDDEN:
                explained.append(replace(finding, result=next(verdicts)))
            else:
                explained.append(finding)
        return explained

    def _settled(self, batch: Sequence[Finding]) -> Iterator[Finding]:
        """Record each result; a fix whose result could not be recorded is still a fix, and says so."""
        answers: Sequence[MailmendError | None]
        try:
            answers = self.ledger.settle(self.run, batch)
        except MailmendError as error:
            answers = [error] * len(batch)
        for finding, answer in zip(batch, answers, strict=True):
            if answer is None or finding.error is not None:
                yield finding
            else:
                yield replace(finding, error=f"the ledger could not note the result: {answer}")


def _in_time(finding: Finding, now: int) -> Finding:
    """MOVED where the truth has expired since it was read: what is written then would outlive it."""
    if finding.is_pending and any(run_out(change, now) for change in finding.changes):
        return replace(finding, result=Verdict.MOVED)
    return finding


def _made_changes(finding: Finding) -> tuple[Write | Conditional, ...]:
    """The changes that were made, and are read back; none where something spoke against them."""
    if not finding.is_pending:
        return ()
    return (*finding.changes, *finding.derived)


def _may_be_derived_yet(finding: Finding) -> bool:
    return finding.result is Verdict.HIDDEN and bool(finding.derived)


def _checked(finding: Finding, answers: Sequence[MailmendError | None], prefix: str = "") -> Finding:
    if not finding.is_pending:
        return finding
    for answer in answers:
        if answer is not None:
            return finding.failed(answer, prefix)
    return finding


def _shown(finding: Finding, answers: Sequence[Sequence[Seen] | MailmendError]) -> Finding:
    for change, answer in zip(_made_changes(finding), answers, strict=True):
        if isinstance(answer, MailmendError):
            return finding.failed(answer, "written, but not read back: ")
        if not shows(change, next(iter(answer), None)):
            return replace(finding, result=Verdict.HIDDEN)
    return finding


BATCH_SUSPECTS = 1_000
"""The number of suspects in a batch; under a pace no more than the rows of a second.

The number is large enough that each of the ledger's buckets gets several before-images, which then
share a request.
"""


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
        breaker: Breaker | None = None,
    ) -> None:
        self._mail = mail
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._breaker = breaker or Breaker()
        self._at_once = min(BATCH_SUSPECTS, policy.rows_per_second or BATCH_SUSPECTS)
        self._looks = SecondLook(mail, families, policy, clock)

    def revisit(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """One finding for each suspect, in no particular order; counters are skipped (`repair.mending.counters`)."""
        visited = filter(self._looks.visits, suspects)
        batches = batches_at_once(self._policy.rows_per_second)
        for findings in side_by_side(self._visited, self._batches(visited), batches):
            yield from findings
        yield from map(self._breaker.left, visited)

    def _batches(self, visited: Iterator[Suspect]) -> Iterator[list[Suspect]]:
        while not self._breaker.open and (batch := list(islice(visited, self._at_once))):
            yield batch

    def _visited(self, batch: Sequence[Suspect]) -> list[Finding]:
        now = self._clock.micros()
        reported = []
        doubtful = []
        for suspect in batch:
            if self._is_only_reported(suspect, now):
                reported.append(Finding(suspect, suspect.verdict))
            else:
                doubtful.append(suspect)
        findings = list(self._revisit(sorted(doubtful, key=_by_partition)))
        self._breaker.note(findings)
        return reported + findings

    def _is_only_reported(self, suspect: Suspect, now: int) -> bool:
        """A leak that nothing is done about, and that no truth on its way can explain: content is written first."""
        reported = suspect.verdict is Verdict.LEAK and self._policy.leaks != "collect"
        return reported and older_than_a_day(suspect.key, now)

    def _revisit(self, batch: Sequence[Suspect]) -> Iterator[Finding]:
        ruled = self._ruled(batch)
        yield from self._recalled([finding for finding in ruled if not finding.is_pending])
        if due := [finding for finding in ruled if finding.is_pending]:
            assert self._policy.run is not None, "a fix without a run was decided"
            mending = Mending(
                self._mail, self._ledger, self._policy.run, self._policy.as_of, self._explain, self._clock
            )
            yield from mending.mend(due)

    def _ruled(self, batch: Sequence[Suspect]) -> list[Finding]:
        """Each suspect's decision; one to write is decided again by a truth read at SERIAL."""
        looks = self._looks.at(batch)
        ruled = [self._rule(suspect, look) for suspect, look in zip(batch, looks, strict=True)]
        due = [place for place, finding in enumerate(ruled) if finding.is_pending]
        for place, look in zip(due, self._looks.confirmed([looks[place] for place in due]), strict=True):
            ruled[place] = self._rule(batch[place], look)
        return ruled

    def _rule(self, suspect: Suspect, look: Look | MailmendError) -> Finding:
        if isinstance(look, MailmendError):
            return failed(suspect, look)
        ruled = as_planned(rule(look, self._policy, self._clock.micros()))
        if not ruled.is_pending:
            return ruled
        whole: Look | MailmendError
        if ruled.verdict is Verdict.LOST_CONTENT:
            whole = self._looks.with_companions(look)
        elif isinstance(look.projection, Union) and look.soonest is not None:
            whole = self._looks.with_members(look, look.projection)
        else:
            return ruled
        if isinstance(whole, MailmendError):
            return failed(suspect, whole)
        return as_planned(rule(whole, self._policy, self._clock.micros()))

    def _recalled(self, ruled: Sequence[Finding]) -> list[Finding]:
        """Findings of agreement are FIXED, where an earlier attempt of this task made the fix."""
        if self._policy.run is None:
            return list(ruled)
        agreed = []
        others = []
        for finding in ruled:
            if finding.verdict is Verdict.AGREE and not finding.error:
                agreed.append(finding)
            else:
                others.append(finding)
        images = self._ledger.recalled(self._policy.run, [finding.suspect for finding in agreed])
        recalled = []
        for finding, image in zip(agreed, images, strict=True):
            if image:
                recalled.append(replace(image, result=Verdict.FIXED, error=None))
            else:
                recalled.append(finding)
        return [*recalled, *others]

    def _explain(self, hidden: Sequence[Finding]) -> list[Verdict]:
        """Look again: MOVED where the pair now agrees or changed (another's write), else HIDDEN."""
        looks = self._looks.at([finding.suspect for finding in hidden])
        skew = round(self._policy.skew_seconds * MICROS)
        explained = []
        for look in looks:
            verdict = Verdict.HIDDEN
            if isinstance(look, Look):
                judged = judge(look, self._policy.as_of, self._clock.micros(), skew)
                if judged in (Verdict.MOVED, Verdict.AGREE):
                    verdict = Verdict.MOVED
            explained.append(verdict)
        return explained


def _by_partition(suspect: Suspect) -> tuple[str, str]:
    """Sort key that puts one partition's suspects together, so that its reads find it in the cache."""
    return suspect.projection, str(suspect.key[0])
