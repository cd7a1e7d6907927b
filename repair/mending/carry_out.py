"""From decided fixes to outcomes: journal, change the truth where that is due, write, read back, note the result.

Each step is taken for a whole batch before the next begins: no row is written whose before-image is not safe. It
serves repairs and undoing alike; what differs is only how a change that does not show is explained.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from model.errors import CannotReach, MailmendError
from model.ids import RunId
from model.operations import Conditional, Level, Read, Seen, Write
from model.ports import Tables
from repair.decisions.findings import Outcome
from repair.decisions.fixes import Fix, shows, written_key
from repair.decisions.verdicts import Verdict
from repair.ledger.journal import Journal

_UNRECORDED = "nothing was written, because its before-image could not be recorded: "


@dataclass(frozen=True, slots=True)
class Attempt:
    """A fix on its way: `result` says how it went so far (FIXED: nothing spoke against it)."""

    fix: Fix
    result: Verdict = Verdict.FIXED
    error: str | None = None
    unreached: bool = False

    @property
    def going(self) -> bool:
        """Whether the next step is still due."""
        return self.error is None and self.result is Verdict.FIXED

    @property
    def outcome(self) -> Outcome:
        """What became of the suspect."""
        result = None if self.error else self.result
        return replace(self.fix.outcome, result=result, error=self.error, unreached=self.unreached)

    def failed(self, error: MailmendError, prefix: str = "") -> "Attempt":
        """The attempt, which ends here."""
        return replace(self, error=f"{prefix}{error}", unreached=isinstance(error, CannotReach))


Explain = Callable[[Sequence[Fix]], Sequence[Verdict]]
"""For fixes that do not show once they are written: MOVED where a newer change explains it, else HIDDEN."""


@dataclass(frozen=True, slots=True)
class Mending:
    """Carries out fixes under one run, as of one moment."""

    mail: Tables
    journal: Journal
    run: RunId
    as_of: int
    explain: Explain

    def mend(self, fixes: Sequence[Fix]) -> Iterator[Outcome]:
        """One outcome for each fix, in order."""
        attempts = [Attempt(fix) for fix in fixes]
        for step in (self._record, self._condition, self._write, self._read_back):
            attempts = step(attempts) if attempts else []
        yield from self._settled([attempt.outcome for attempt in attempts])

    def _record(self, attempts: list[Attempt]) -> list[Attempt]:
        images = [image for attempt in attempts for image in attempt.fix.images]
        try:
            answers = iter(self.journal.record(self.run, self.as_of, images))
        except MailmendError as error:
            return [attempt.failed(error, _UNRECORDED) for attempt in attempts]
        return [_checked(attempt, [next(answers) for _ in attempt.fix.images], _UNRECORDED) for attempt in attempts]

    def _condition(self, attempts: list[Attempt]) -> list[Attempt]:
        return [self._attempted(attempt, attempt.fix.condition) if attempt.going else attempt for attempt in attempts]

    def _attempted(self, attempt: Attempt, condition: Conditional | None) -> Attempt:
        """Change the truth while it is as it was seen; if it is not, somebody else was faster."""
        if condition is None:
            return attempt
        try:
            applied = self.mail.attempt(condition).applied
        except MailmendError as error:
            return attempt.failed(error)
        return attempt if applied else replace(attempt, result=Verdict.MOVED)

    def _write(self, attempts: list[Attempt]) -> list[Attempt]:
        due: list[Sequence[Write]] = [attempt.fix.writes if attempt.going else () for attempt in attempts]
        answers = iter(self.mail.write_all([write for writes in due for write in writes]))
        return [_checked(one, [next(answers) for _ in writes]) for one, writes in zip(attempts, due, strict=True)]

    def _read_back(self, attempts: list[Attempt]) -> list[Attempt]:
        """What was changed must show."""
        due = [attempt.fix.changes if attempt.going else () for attempt in attempts]
        reads = [Read(change.table, written_key(change), Level.QUORUM) for changes in due for change in changes]
        answers = iter(self.mail.read_all(reads))
        own = [[(change, next(answers)) for change in changes] for changes in due]
        return self._explained([_shown(one, seen) for one, seen in zip(attempts, own, strict=True)])

    def _explained(self, attempts: list[Attempt]) -> list[Attempt]:
        hidden = [attempt.fix for attempt in attempts if attempt.result is Verdict.HIDDEN]
        verdicts = iter(self.explain(hidden) if hidden else ())
        return [replace(one, result=next(verdicts)) if one.result is Verdict.HIDDEN else one for one in attempts]

    def _settled(self, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
        """Note what became of each; a fix whose result could not be noted is still a fix, and says so."""
        try:
            answers: Sequence[MailmendError | None] = self.journal.settle(self.run, outcomes) if outcomes else ()
        except MailmendError as error:
            answers = [error] * len(outcomes)
        for outcome, answer in zip(outcomes, answers, strict=True):
            noted = answer is None or outcome.error is not None
            yield outcome if noted else replace(outcome, error=f"the ledger could not note the result: {answer}")


def _checked(attempt: Attempt, answers: Sequence[MailmendError | None], prefix: str = "") -> Attempt:
    errors = [answer for answer in answers if answer is not None]
    return attempt.failed(errors[0], prefix) if errors and attempt.going else attempt


def _shown(attempt: Attempt, answers: Sequence[tuple[Write | Conditional, Sequence[Seen] | MailmendError]]) -> Attempt:
    for change, answer in answers:
        if isinstance(answer, MailmendError):
            return attempt.failed(answer, "written, but not read back: ")
        if not shows(change, answer[0] if answer else None):
            return replace(attempt, result=Verdict.HIDDEN)
    return attempt
