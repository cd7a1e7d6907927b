"""From decided changes to results: before-image, change of the truth, write, read back, result.

Each step is taken for a whole batch before the next begins: no row is written whose before-image is not safe. Repairs
and undos both use it; they differ only in how they explain a change that does not show.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from model.errors import MailmendError
from model.ids import RunId
from model.operations import Change, Conditional, Put, PutIfAbsent, Read, Remove, RemoveIf, Seen, Write
from model.ports import Tables
from model.projections.findings import Finding
from model.projections.verdicts import Verdict
from model.schema.table import Key, Row, rows_agree
from repair.ledger.runs import Ledger

_UNRECORDED = "nothing was written, because its before-image could not be recorded: "

Explain = Callable[[Sequence[Finding]], Sequence[Verdict]]
"""For written fixes that do not show: MOVED where a newer change explains it, else HIDDEN."""


@dataclass(frozen=True, slots=True)
class Mending:
    """Carries out changes under one run, as of one moment."""

    mail: Tables
    ledger: Ledger
    run: RunId
    as_of: int
    explain: Explain

    def mend(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        batch = list(findings)
        for step in (self._record, self._condition, self._write, self._read_back):
            batch = step(batch) if batch else []
        yield from self._settled([one.ended(Verdict.FIXED) for one in batch])

    def _record(self, batch: list[Finding]) -> list[Finding]:
        images = [[one, *one.beside] for one in batch]
        try:
            answers = iter(self.ledger.record(self.run, self.as_of, [image for some in images for image in some]))
        except MailmendError as error:
            return [one.failed(error, _UNRECORDED) for one in batch]
        own = [[next(answers) for _ in some] for some in images]
        return [_checked(one, some, _UNRECORDED) for one, some in zip(batch, own, strict=True)]

    def _condition(self, batch: list[Finding]) -> list[Finding]:
        """Change the truth on condition that it is as it was seen; else another writer was faster."""
        return [self._attempted(one, one.condition) if one.is_pending and one.condition else one for one in batch]

    def _attempted(self, one: Finding, condition: Conditional) -> Finding:
        try:
            applied = self.mail.attempt(condition).applied
        except MailmendError as error:
            return one.failed(error)
        return one if applied else replace(one, result=Verdict.MOVED)

    def _write(self, batch: list[Finding]) -> list[Finding]:
        due: list[Sequence[Write]] = [one.writes if one.is_pending else () for one in batch]
        answers = iter(self.mail.write_all([write for writes in due for write in writes]))
        return [_checked(one, [next(answers) for _ in writes]) for one, writes in zip(batch, due, strict=True)]

    def _read_back(self, batch: list[Finding]) -> list[Finding]:
        """Read the changed rows: HIDDEN where a change does not show."""
        due = [one.changes if one.is_pending else () for one in batch]
        reads = [Read(change.table, written_key(change)) for changes in due for change in changes]
        answers = iter(self.mail.read_all(reads))
        own = [[(change, next(answers)) for change in changes] for changes in due]
        return self._explained([_shown(one, seen) for one, seen in zip(batch, own, strict=True)])

    def _explained(self, batch: list[Finding]) -> list[Finding]:
        hidden = [one for one in batch if one.result is Verdict.HIDDEN]
        verdicts = iter(self.explain(hidden) if hidden else ())
        return [replace(one, result=next(verdicts)) if one.result is Verdict.HIDDEN else one for one in batch]

    def _settled(self, batch: Sequence[Finding]) -> Iterator[Finding]:
        """Record each result; a fix whose result could not be recorded is still a fix, and says so."""
        try:
            answers: Sequence[MailmendError | None] = self.ledger.settle(self.run, batch) if batch else ()
        except MailmendError as error:
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            noted = answer is None or one.error is not None
            yield one if noted else replace(one, error=f"the ledger could not note the result: {answer}")


def shows(change: Write | Conditional, seen: Seen | None) -> bool:
    """Whether the row that was read back is the one that the change makes."""
    match change:
        case Remove() | RemoveIf():
            return seen is None
        case Put(table=table, row=row) | PutIfAbsent(table=table, row=row):
            return seen is not None and rows_agree((table.column(name) for name in row), row, seen.row)
        case Change(add=add, take=take):
            row = seen.row if seen else {}
            added = all(wanted <= _elements(row, name) for name, wanted in add.items())
            return added and not any(gone & _elements(row, name) for name, gone in take.items())
        case _:
            return True


def written_key(change: Write | Conditional) -> Key:
    return change.table.key_of(change.row) if isinstance(change, Put | PutIfAbsent) else change.key


def _elements(row: Row, column: str) -> frozenset[Any]:
    return frozenset(row.get(column) or ())


def _checked(one: Finding, answers: Sequence[MailmendError | None], prefix: str = "") -> Finding:
    errors = [answer for answer in answers if answer is not None]
    return one.failed(errors[0], prefix) if errors and one.is_pending else one


def _shown(one: Finding, answers: Sequence[tuple[Write | Conditional, Sequence[Seen] | MailmendError]]) -> Finding:
    for change, answer in answers:
        if isinstance(answer, MailmendError):
            return one.failed(answer, "written, but not read back: ")
        if not shows(change, answer[0] if answer else None):
            return replace(one, result=Verdict.HIDDEN)
    return one
