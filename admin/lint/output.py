"""What lint found, for people: by file and place, with the line and a caret; and as one JSON object for scripts."""

import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from admin.lint.linting import LintReport
from admin.present.presenter import PAPER_COLUMNS
from model.schema.lint.rule import LintFinding, LintRule, Severity
from model.schema.statements import Span
from model.texts import Place, place_of

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_INDENT: Final = " " * 4
_SHOWN: Final = 100
"""So many characters of a line are underlined at most."""


def show_report(report: LintReport, console: Console, *, ignored: bool = False) -> None:
    """Print it: findings by file (or keyspace) and place, each rule's reason where it is met first; then the sums."""
    width = console.width if console.is_terminal else PAPER_COLUMNS
    for line in report_lines(report, width, ignored=ignored):
        console.print(line, soft_wrap=True)


def report_lines(report: LintReport, width: int = PAPER_COLUMNS, *, ignored: bool = False) -> Iterator[Text]:
    """The report, line by line."""
    explained: set[str] = set()
    for heading, findings in groupby(report.open, key=_heading):
        yield Text(heading, "bold")
        for finding in findings:
            yield from _finding_lines(finding, report.texts, width, first=finding.rule.id not in explained)
            explained.add(finding.rule.id)
        yield Text()
    if ignored and report.ignored:
        yield Text("Ignored", "bold")
        for finding in report.ignored:
            yield Text(f"  {finding.rule.id} {subject_of(finding)}: {finding.text}")
            yield from _wrapped("because ", finding.ignored or "", width)
        yield Text()
    yield from (Text(line) for line in closing_lines(report, ignored=ignored))


def _heading(finding: LintFinding) -> str:
    return finding.file or f"keyspace {finding.keyspace}"


def _finding_lines(finding: LintFinding, texts: Mapping[str, str], width: int, *, first: bool) -> Iterator[Text]:
    place = place_in(finding, texts)
    where = f"{place.line}:{place.column}".ljust(8) if place else ""
    word = finding.severity.word
    yield Text.assemble(
        "  ",
        where,
        (word.ljust(8), _STYLES[finding.severity]),
        (finding.rule.id.ljust(4), "bold"),
        _printable(subject_of(finding)),
    )
    yield Text(f"{_INDENT}{_printable(finding.text)}")
    if place and finding.span:
        yield from (Text(f"{_INDENT}{_INDENT}{line}", "dim") for line in _pointed(place, finding.span))
    if first:
        yield from _wrapped("why ", finding.rule.reason, width)
    yield from _wrapped("fix ", finding.fix if first or finding.fix != finding.rule.fix else "as above", width)
    if first:
        yield Text(f"{_INDENT}see {finding.rule.reference}", "dim")


def _pointed(place: Place, span: Span) -> Iterator[str]:
    """The line, and the piece of it underlined; of a piece of several lines, what stands on the first."""
    shown, caret = place.pointed.split("\n")
    at = caret.index("^")
    length = max(1, min(span.end - span.start, len(shown) - at, _SHOWN))
    lead = min(at, len(shown) - len(shown.lstrip()))
    yield _printable(shown[lead:])
    yield " " * (at - lead) + "^" * length


def _printable(text: str) -> str:
    """What a file says cannot steer the terminal."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


def _wrapped(label: str, text: str, width: int) -> Iterator[Text]:
    lead = _INDENT + label
    filled = textwrap.wrap(
        text, max(width, 40), initial_indent=lead, subsequent_indent=" " * len(lead), break_long_words=False
    )
    yield from (Text(line) for line in filled)


def subject_of(finding: LintFinding) -> str:
    """What it is about: the table and its column or option, or the keyspace."""
    table = finding.table or finding.keyspace
    return f"{table}.{finding.subject}" if finding.subject else table


def place_in(finding: LintFinding, texts: Mapping[str, str]) -> Place | None:
    """Line and column, where the finding stands in one of the texts."""
    if finding.file is None or finding.span is None or finding.file not in texts:
        return None
    return place_of(texts[finding.file], finding.span.start)


def closing_lines(report: LintReport, *, ignored: bool = False) -> Iterator[str]:
    """The sums, and what to know besides."""
    counts = [
        (sum(one.severity is severity for one in report.open), severity.word) for severity in sorted(Severity)[::-1]
    ]
    found = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count)
    yield f"{', '.join(report.looked_at) or 'nothing'}: {found or 'nothing found'}."
    if report.ignored:
        how = "" if ignored else " (--ignored shows them)"
        yield f"{len(report.ignored)} ignored, each with a reason{how}."
    for one in report.unused:
        yield f"An ignore that matches nothing can go: {one}."


def report_json(report: LintReport) -> dict[str, Any]:
    """The report under the names that scripts rely on."""
    return {
        "keyspaces": list(report.looked_at),
        "level": report.level.word,
        "findings": [_finding_json(one, report.texts) for one in report.open],
        "ignored": [_finding_json(one, report.texts) | {"because": one.ignored} for one in report.ignored],
        "unused_ignores": list(report.unused),
        "exit": int(report.exit),
    }


def _finding_json(finding: LintFinding, texts: Mapping[str, str]) -> dict[str, Any]:
    place = place_in(finding, texts)
    return {
        "rule": finding.rule.id,
        "level": finding.severity.word,
        "keyspace": finding.keyspace,
        "table": finding.table,
        "subject": finding.subject,
        "file": finding.file,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "text": finding.text,
        "reason": finding.rule.reason,
        "fix": finding.fix,
        "reference": finding.rule.reference,
    }


def rule_json(rule: LintRule) -> dict[str, str]:
    """A rule under the names that scripts rely on."""
    return {
        "rule": rule.id,
        "level": rule.severity.word,
        "title": rule.title,
        "reason": rule.reason,
        "fix": rule.fix,
        "reference": rule.reference,
    }


def rule_lines(rules: tuple[LintRule, ...], width: int = PAPER_COLUMNS) -> Iterator[Text]:
    """The rules for people, one after another."""
    for rule in rules:
        yield Text.assemble(
            (rule.id.ljust(5), "bold"), (rule.severity.word.ljust(9), _STYLES[rule.severity]), rule.title
        )
        yield from _wrapped("why ", rule.reason, width)
        yield from _wrapped("fix ", rule.fix, width)
        yield Text(f"{_INDENT}see {rule.reference}", "dim")
