"""Findings that somebody has looked at and let stand, each with a reason: from settings, or from notes in the file."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from model.errors import WrongUse
from model.schema.lint.finding import Finding
from model.schema.lint.subject import Placed
from model.schema.names import name_of
from model.schema.statements import CreateTable, CreateView

_NOTE: Final = re.compile(r"lint:\s*ignore\b\s*(?P<rules>[^:]*)(?::(?P<reason>.*))?", re.IGNORECASE)
_RULE: Final = re.compile(r"[TK][1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class Ignore:
    """A rule that is not to count at a table.

    Attributes:
        rule: its id.
        table: its spelling; "" for every table, and for the keyspace.
        reason: why, for whoever asks next.
    """

    rule: str
    table: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.table}" if self.table else self.rule

    def covers(self, finding: Finding) -> bool:
        """Whether the finding is one of those meant."""
        return self.rule == finding.rule.id and (not self.table or name_of(self.table) == name_of(finding.table))


def parse_ignore(rule: object, table: object, reason: object) -> Ignore:
    """The ignore that somebody wrote.

    Raises:
        WrongUse: no rule, no reason, or not texts.
    """
    if not isinstance(rule, str) or not _RULE.fullmatch(rule.strip()):
        raise WrongUse(f"an ignore names {rule!r} as its rule", mend="List the rules: mailmend schema lint --rules")
    if not isinstance(table, str):
        raise WrongUse(f"the ignore of {rule} names {table!r} as its table", mend='Write it like table = "mytable".')
    if not isinstance(reason, str) or not reason.strip():
        raise WrongUse(f"the ignore of {rule} gives no reason", mend="Say why it may stand, for whoever asks next.")
    return Ignore(rule.strip(), table.strip(), " ".join(reason.split()))


def notes_of(placed: Placed) -> tuple[Ignore, ...]:
    """The ignores in the comments right before a statement: `-- lint: ignore T5, T6: reason`.

    Raises:
        WrongUse: one without a rule, or without a reason.
    """
    return tuple(ignore for line in placed.parsed.notes for ignore in _in_note(placed, line))


def _in_note(placed: Placed, line: str) -> Iterator[Ignore]:
    found = _NOTE.fullmatch(line.strip())
    if found is None:
        return
    for rule in re.split(r"[,\s]+", found["rules"].strip()):
        try:
            yield parse_ignore(rule, "", found["reason"])
        except WrongUse as error:
            where = f"{placed.file}: " if placed.file else ""
            raise WrongUse(f"{where}the comment {line.strip()!r}: {error.what}", mend=_MEND) from error


_MEND: Final = "Write it like: -- lint: ignore T5: rows change for a day at most"


@dataclass(frozen=True, slots=True)
class Note:
    """An ignore in a file: it covers what is found in its statement, and in the table that its statement creates."""

    ignore: Ignore
    number: int
    creates: str | None
    file: str

    @property
    def rule(self) -> str:
        """The rule that is not to count."""
        return self.ignore.rule

    def __str__(self) -> str:
        return f"{self.file}: {self.ignore}" if self.file else str(self.ignore)

    def covers(self, finding: Finding) -> bool:
        """Whether the finding is one of those meant."""
        if self.ignore.rule != finding.rule.id:
            return False
        return finding.statement == self.number or (bool(self.creates) and self.creates == name_of(finding.table))


def notes_among(statements: Sequence[Placed]) -> tuple[Note, ...]:
    """The ignores of every statement.

    Raises:
        WrongUse: one without a rule, or without a reason.
    """
    return tuple(
        Note(ignore, number, _creates(placed), placed.file)
        for number, placed in enumerate(statements)
        for ignore in notes_of(placed)
    )


def _creates(placed: Placed) -> str | None:
    statement = placed.statement
    return name_of(statement.name.spelling) if isinstance(statement, CreateTable | CreateView) else None


def with_reasons(findings: Sequence[Finding], notes: Sequence[Note], ignores: Sequence[Ignore]) -> tuple[Finding, ...]:
    """The findings, those that a note or an ignore covers with its reason; the notes count first."""
    return tuple(_with_reason(finding, notes, ignores) for finding in findings)


def _with_reason(finding: Finding, notes: Sequence[Note], ignores: Sequence[Ignore]) -> Finding:
    for note in notes:
        if note.covers(finding):
            return replace(finding, ignored=note.ignore.reason, noted=True)
    for ignore in ignores:
        if ignore.covers(finding):
            return replace(finding, ignored=ignore.reason)
    return finding


def unused_among(ignores: Sequence[Ignore], findings: Sequence[Finding]) -> tuple[Ignore, ...]:
    """The ignores that cover none of the findings."""
    return tuple(one for one in ignores if not any(one.covers(finding) for finding in findings))


def unused_notes(notes: Sequence[Note], findings: Sequence[Finding]) -> tuple[Note, ...]:
    """The notes that cover none of the findings."""
    return tuple(one for one in notes if not any(one.covers(finding) for finding in findings))
