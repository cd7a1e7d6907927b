"""The one write path for fixes: look again, judge again, journal, write as of T, read back.

The same code runs in this process and on Spark's executors: it is built of plain values, holds no global, and works in
bounded batches. Every suspect gives one outcome; an error becomes its outcome's sentence and stops nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from model.errors import MailmendError
from model.operations import Conditional, Level, Read, Seen, Write
from model.projections import Family
from repair.clock import MICROS
from repair.decide import Verdict
from repair.findings import Errand, Outcome, Suspect
from repair.fixes import Fix, Sight, rule, shows, written_key
from repair.journal import Journal
from repair.looks import SecondLook
from repair.pace import Pace
from repair.ports import Clock, Tables
from repair.recheck import Moment, judge

BATCH_SUSPECTS = 200
"""Suspects that are looked at together: enough to keep many reads in flight, few enough to hold."""

_UNRECORDED = "nothing was written, because its before-image could not be recorded: "


@dataclass(frozen=True, slots=True)
class Attempt:
    """A fix on its way: `result` says how it went so far (FIXED: nothing spoke against it)."""

    sight: Sight
    fix: Fix
    result: Verdict = Verdict.FIXED
    error: str | None = None

    @property
    def going(self) -> bool:
        """Whether the next step is still due."""
        return self.error is None and self.result is Verdict.FIXED

    @property
    def outcome(self) -> Outcome:
        """What became of the suspect."""
        result = None if self.error else self.result
        return replace(self.fix.outcome, result=result, error=self.error)


class Fixer:
    """Looks at suspects again, and mends what the errand allows.

    Args:
        mail: the mail keyspace.
        journal: where before-images go; never touched when the errand has no run.
    """

    def __init__(  # noqa: PLR0917 - in the order in which they are needed
        self, mail: Tables, journal: Journal, clock: Clock, families: Iterable[Family], errand: Errand, pace: Pace
    ) -> None:
        self._mail = mail
        self._journal = journal
        self._clock = clock
        self._errand = errand
        self._pace = pace
        self._looks = SecondLook(mail, families, errand)

    def revisit(self, suspects: Iterable[Suspect]) -> Iterator[Outcome]:
        """One outcome for each suspect, in no particular order; counters are left out (`repair.counters`)."""
        visited = (suspect for suspect in suspects if self._looks.visits(suspect))
        while batch := list(islice(visited, BATCH_SUSPECTS)):
            self._pace.take(len(batch))
            yield from self._revisit(sorted(batch, key=_by_partition))

    def _revisit(self, batch: Sequence[Suspect]) -> Iterator[Outcome]:
        due: list[tuple[Sight, Fix]] = []
        for suspect, sight in zip(batch, self._looks.at(batch), strict=True):
            ruled = self._rule(suspect, sight)
            if isinstance(ruled, Outcome):
                yield self._recalled(ruled)
            else:
                due.append(ruled)
        yield from self._mend([Attempt(sight, fix) for sight, fix in due])

    def _rule(self, suspect: Suspect, sight: Sight | MailmendError) -> Outcome | tuple[Sight, Fix]:
        if isinstance(sight, MailmendError):
            return Outcome(suspect, suspect.verdict, error=str(sight))
        ruled = rule(sight, self._moment(), self._errand)
        if isinstance(ruled, Outcome):
            return ruled
        if ruled.condition is None or sight.companions or ruled.outcome.verdict is not Verdict.LOST_CONTENT:
            return sight, ruled
        return self._rule_with_companions(suspect, sight)

    def _rule_with_companions(self, suspect: Suspect, sight: Sight) -> Outcome | tuple[Sight, Fix]:
        """A truth row is about to go: what stands beside it goes with it."""
        whole = self._looks.with_companions(sight)
        if isinstance(whole, MailmendError):
            return Outcome(suspect, suspect.verdict, error=str(whole))
        ruled = rule(whole, self._moment(), self._errand)
        return ruled if isinstance(ruled, Outcome) else (whole, ruled)

    def _recalled(self, outcome: Outcome) -> Outcome:
        """An outcome that needs nothing: FIXED where an earlier attempt of this very task made it so."""
        if self._errand.run is None or outcome.verdict is not Verdict.AGREE or outcome.error:
            return outcome
        try:
            recorded = self._journal.finding(self._errand.run, outcome.suspect)
        except MailmendError:
            return outcome
        return replace(recorded, result=Verdict.FIXED) if recorded else outcome

    def _mend(self, attempts: list[Attempt]) -> Iterator[Outcome]:
        """Journal, write, read back: each step for the whole batch, before the next begins."""
        if not attempts:
            return
        for step in (self._record, self._condition, self._write, self._read_back):
            attempts = step(attempts)
        yield from self._settled(attempts)

    def _record(self, attempts: list[Attempt]) -> list[Attempt]:
        assert self._errand.run is not None, "a fix without a run was decided"
        images = [image for attempt in attempts for image in attempt.fix.images]
        try:
            answers = iter(self._journal.record(self._errand.run, self._errand.as_of, images))
        except MailmendError as error:
            return [replace(attempt, error=f"{_UNRECORDED}{error}") for attempt in attempts]
        return [_checked(attempt, [next(answers) for _ in attempt.fix.images], _UNRECORDED) for attempt in attempts]

    def _condition(self, attempts: list[Attempt]) -> list[Attempt]:
        return [self._attempted(attempt) if attempt.going else attempt for attempt in attempts]

    def _attempted(self, attempt: Attempt) -> Attempt:
        """Change the truth while it is as it was seen; if it is not, somebody else was faster."""
        if attempt.fix.condition is None:
            return attempt
        try:
            applied = self._mail.attempt(attempt.fix.condition).applied
        except MailmendError as error:
            return replace(attempt, error=str(error))
        return attempt if applied else replace(attempt, result=Verdict.MOVED)

    def _write(self, attempts: list[Attempt]) -> list[Attempt]:
        answers = iter(self._mail.write_all([write for one in attempts for write in _due(one)]))
        return [_checked(one, [next(answers) for _ in _due(one)]) for one in attempts]

    def _read_back(self, attempts: list[Attempt]) -> list[Attempt]:
        """What was written must show; what does not is looked at once more, to tell a newer change."""
        checks = [one.fix.changes if one.going else () for one in attempts]
        reads = [Read(change.table, written_key(change), Level.QUORUM) for some in checks for change in some]
        answers = iter(self._mail.read_all(reads))
        judged = [
            _shown(one, [(change, next(answers)) for change in some])
            for one, some in zip(attempts, checks, strict=True)
        ]
        doubtful = [one for one in judged if one.result is Verdict.HIDDEN]
        explained = iter(self._explained(doubtful))
        return [next(explained) if one.result is Verdict.HIDDEN else one for one in judged]

    def _explained(self, hidden: list[Attempt]) -> list[Attempt]:
        sights = self._looks.at([one.fix.outcome.suspect for one in hidden]) if hidden else []
        return [
            replace(one, result=self._explanation(sight)) if isinstance(sight, Sight) else one
            for one, sight in zip(hidden, sights, strict=True)
        ]

    def _explanation(self, sight: Sight) -> Verdict:
        judged = judge(sight.look, self._moment())
        return Verdict.MOVED if judged in (Verdict.MOVED, Verdict.AGREE) else Verdict.HIDDEN

    def _settled(self, attempts: list[Attempt]) -> Iterator[Outcome]:
        """Note what became of each; a fix whose result could not be noted is still a fix, and says so."""
        assert self._errand.run is not None, "a fix without a run was decided"
        outcomes = [attempt.outcome for attempt in attempts]
        try:
            answers: Sequence[MailmendError | None] = self._journal.settle(self._errand.run, outcomes)
        except MailmendError as error:
            answers = [error] * len(outcomes)
        for outcome, answer in zip(outcomes, answers, strict=True):
            yield outcome if answer is None or outcome.error else replace(outcome, error=f"not noted: {answer}")

    def _moment(self) -> Moment:
        return Moment(self._errand.as_of, self._clock.micros(), round(self._errand.skew_seconds * MICROS))


def _by_partition(suspect: Suspect) -> tuple[str, str]:
    """Suspects of one partition side by side, so that their reads find it warm."""
    return suspect.projection, str(suspect.key[0])


def _due(attempt: Attempt) -> Sequence[Write]:
    return attempt.fix.writes if attempt.going else ()


def _checked(attempt: Attempt, answers: Sequence[MailmendError | None], prefix: str = "") -> Attempt:
    errors = [answer for answer in answers if answer is not None]
    return replace(attempt, error=f"{prefix}{errors[0]}") if errors and attempt.going else attempt


def _shown(attempt: Attempt, answers: Sequence[tuple[Write | Conditional, Sequence[Seen] | MailmendError]]) -> Attempt:
    for change, answer in answers:
        if isinstance(answer, MailmendError):
            return replace(attempt, error=f"written, but not read back: {answer}")
        if not shows(change, answer[0] if answer else None):
            return replace(attempt, result=Verdict.HIDDEN)
    return attempt
