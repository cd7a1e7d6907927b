"""Findings that are ignored on purpose, each with a reason: from settings, or from comments in the file."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mailmend.cql.schema.lint.rule import LintFinding
from mailmend.cql.statements import Parsed
from mailmend.model.errors import WrongUse
from mailmend.model.names import name_of

_NOTE: Final = re.compile(r"lint:\s*ignore\b\s*(?P<rules>[^:]*)(?::(?P<reason>.*))?", re.IGNORECASE)
_RULE: Final = re.compile(r"[TK][1-9][0-9]?")
_MEND: Final = "Write it like: -- lint: ignore T5: rows change for a day at most"


@dataclass(frozen=True, slots=True)
class Ignore:
    """A rule that is ignored for a table; where it comes from a comment in a file, for that statement only.

    Attributes:
        table: the table's spelling; "" for all tables and the keyspace. Of a comment: the table of its statement.
        statement: of a comment, the number of its statement.
        file: of a comment, the name of its file.
    """

    rule: str
    table: str
    reason: str
    statement: int | None = None
    file: str = ""

    @property
    def noted(self) -> bool:
        return self.statement is not None

    def __str__(self) -> str:
        at = f" at {self.table}" if self.table and not self.noted else ""
        return f"{self.file}: {self.rule}" if self.file else f"{self.rule}{at}"

    def covers(self, finding: LintFinding) -> bool:
        everywhere = not self.table and not self.noted
        here = self.noted and finding.statement == self.statement
        at_table = bool(self.table) and name_of(self.table) == name_of(finding.table)
        return self.rule == finding.rule.id and (everywhere or here or at_table)


def parse_ignore(rule: object, table: object, reason: object) -> Ignore:
    """An ignore from settings.

    Raises:
        WrongUse: the rule is unknown, the reason is missing, or a value is no text.
    """
    if not isinstance(rule, str) or not _RULE.fullmatch(rule.strip()):
        raise WrongUse(f"an ignore names {rule!r} as its rule", mend="List the rules: mailmend schema lint --rules")
    if not isinstance(table, str):
        raise WrongUse(f"the ignore of {rule} names {table!r} as its table", mend='Write it like table = "mytable".')
    if not isinstance(reason, str) or not reason.strip():
        raise WrongUse(
            f"the ignore of {rule} gives no reason", mend="Give the reason why it may stay, for the next reader."
        )
    return Ignore(rule.strip(), table.strip(), " ".join(reason.split()))


def notes_among(statements: Sequence[Parsed]) -> tuple[Ignore, ...]:
    """The ignores in the comments right before each statement: `-- lint: ignore T5, T6: reason`."""
    return tuple(
        replace(ignore, table=_creates(parsed), statement=number, file=parsed.file)
        for number, parsed in enumerate(statements)
        for line in parsed.notes
        for ignore in _in_note(parsed, line)
    )


def _in_note(parsed: Parsed, line: str) -> Iterator[Ignore]:
    found = _NOTE.fullmatch(line.strip())
    if found is None:
        return
    for rule in re.split(r"[,\s]+", found["rules"].strip()):
        try:
            yield parse_ignore(rule, "", found["reason"])
        except WrongUse as error:
            where = f"{parsed.file}: " if parsed.file else ""
            raise WrongUse(f"{where}the comment {line.strip()!r}: {error.what}", mend=_MEND) from error


def _creates(parsed: Parsed) -> str:
    statement = parsed.statement
    return statement.about if statement.creates and statement.defines_table else ""


def with_reasons(findings: Sequence[LintFinding], ignores: Sequence[Ignore]) -> tuple[LintFinding, ...]:
    """The findings, where those that an ignore covers have the reason of the first such ignore."""
    return tuple(_with_reason(finding, ignores) for finding in findings)


def _with_reason(finding: LintFinding, ignores: Sequence[Ignore]) -> LintFinding:
    found = next((ignore for ignore in ignores if ignore.covers(finding)), None)
    return replace(finding, ignored=found.reason, noted=found.noted) if found else finding


def unused_among(ignores: Sequence[Ignore], findings: Sequence[LintFinding]) -> tuple[Ignore, ...]:
    return tuple(ignore for ignore in ignores if not any(ignore.covers(finding) for finding in findings))
