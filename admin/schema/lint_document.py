"""What lint found, for people: by file and place, with the line and a caret; and as one JSON object for scripts."""

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.metadata import version
from itertools import groupby
from json import dumps
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote

from mailmend.admin.frame.document import Document, Line, Part, Styled, Verbatim, Wrapped
from mailmend.admin.frame.values import fields_json, printable
from mailmend.admin.schema.lint_service import STDOUT, LintReport, LintResult
from mailmend.cql.schema.lint.rule import LintFinding, LintRule, Severity
from mailmend.cql.statements import Span
from mailmend.model.errors import ExitCode
from mailmend.model.texts import Place, place_of

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_INDENT: Final = " " * 4
_SHOWN: Final = 100
"""So many characters of a line are underlined at most."""


def document_of(result: LintResult) -> Document:
    request = result.request
    report = result.report
    if report is None:
        json: dict[str, Any] = {"rules": [rule_json(rule) for rule in result.rules], "exit": int(ExitCode.FINE)}
        body = tuple(rule_parts(result.rules))
        code = ExitCode.FINE
    else:
        json = report_json(report)
        code = report.exit
        body = tuple(report_parts(report, ignored=request.ignored))
    sarif_text = dumps(sarif(report), indent=2, ensure_ascii=False) + "\n" if report else ""
    files = {request.sarif_file: sarif_text} if report and request.sarif_file not in {None, STDOUT} else {}
    if report and (request.form == "sarif" or request.sarif_file == STDOUT):
        body = (Verbatim(sarif_text),)
    elif request.form != "human":
        body = (Verbatim(dumps(json, ensure_ascii=False) + "\n"),)
    unused = tuple(f"An ignore that matches nothing can go: {ignore}." for ignore in report.unused) if report else ()
    return Document(json, body, code, remarks=unused, files=files)


def report_parts(report: LintReport, *, ignored: bool = False) -> Iterator[Part]:
    explained: set[str] = set()
    for heading, findings in groupby(report.open, key=_heading):
        yield Styled(heading, "bold")
        for finding in findings:
            yield from _finding_parts(finding, report.texts, first=finding.rule.id not in explained)
            explained.add(finding.rule.id)
        yield ""
    if ignored and report.ignored:
        yield Styled("Ignored", "bold")
        for finding in report.ignored:
            yield f"  {finding.rule.id} {subject_of(finding)}: {finding.text}"
            yield Wrapped(f"{_INDENT}because ", finding.ignored or "")
        yield ""
    yield from closing_lines(report, ignored=ignored)


def _heading(finding: LintFinding) -> str:
    return finding.file or f"keyspace {finding.keyspace}"


def _finding_parts(finding: LintFinding, texts: Mapping[str, str], *, first: bool) -> Iterator[Part]:
    place = place_in(finding, texts)
    where = f"{place.line}:{place.column}".ljust(8) if place else ""
    level = Styled(finding.severity.word.ljust(8), _STYLES[finding.severity])
    rule = Styled(finding.rule.id.ljust(4), "bold")
    yield Line(("  ", where, level, rule, printable(subject_of(finding), instead=" ")))
    yield _INDENT + printable(finding.text, instead=" ")
    if place and finding.span:
        yield from (Styled(f"{_INDENT}{_INDENT}{line}", "dim") for line in _pointed(place, finding.span))
    if first:
        yield Wrapped(f"{_INDENT}why ", finding.rule.reason)
    yield Wrapped(f"{_INDENT}fix ", finding.fix if first or finding.fix != finding.rule.fix else "as above")
    if first:
        yield Styled(f"{_INDENT}see {finding.rule.reference}", "dim")


def _pointed(place: Place, span: Span) -> Iterator[str]:
    """The line with the piece underlined; of a piece of several lines, the part on the first."""
    shown, caret = place.pointed.split("\n")
    at = caret.index("^")
    length = max(1, min(span.end - span.start, len(shown) - at, _SHOWN))
    lead = min(at, len(shown) - len(shown.lstrip()))
    yield printable(shown[lead:], instead=" ")
    yield " " * (at - lead) + "^" * length


def subject_of(finding: LintFinding) -> str:
    table = finding.table or finding.keyspace
    return f"{table}.{finding.subject}" if finding.subject else table


def place_in(finding: LintFinding, texts: Mapping[str, str]) -> Place | None:
    """Line and column, where the finding stands in one of the texts; None otherwise."""
    if finding.file is None or finding.span is None or finding.file not in texts:
        return None
    return place_of(texts[finding.file], finding.span.start)


def closing_lines(report: LintReport, *, ignored: bool = False) -> Iterator[str]:
    counts = [
        (sum(finding.severity is severity for finding in report.open), severity.word)
        for severity in sorted(Severity)[::-1]
    ]
    found = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count)
    yield f"{', '.join(report.looked_at) or 'nothing'}: {found or 'nothing found'}."
    if report.ignored:
        how = "" if ignored else " (--ignored shows them)"
        yield f"{len(report.ignored)} ignored, each with a reason{how}."


def report_json(report: LintReport) -> dict[str, Any]:
    return {
        "keyspaces": list(report.looked_at),
        "level": report.level.word,
        "findings": [_finding_json(finding, report.texts) for finding in report.open],
        "ignored": [_finding_json(finding, report.texts) | {"because": finding.ignored} for finding in report.ignored],
        "unused_ignores": list(report.unused),
        "exit": int(report.exit),
    }


def _finding_json(finding: LintFinding, texts: Mapping[str, str]) -> dict[str, Any]:
    place = place_in(finding, texts)
    return {
        "rule": finding.rule.id,
        "level": finding.severity.word,
        **fields_json(finding, "keyspace", "table", "subject", "file", "text", "fix"),
        "line": place.line if place else None,
        "column": place.column if place else None,
        **fields_json(finding.rule, "reason", "reference"),
    }


def rule_json(rule: LintRule) -> dict[str, str]:
    fields = fields_json(rule, "title", "reason", "fix", "reference")
    return {"rule": rule.id, "level": rule.severity.word, **fields}


def rule_parts(rules: tuple[LintRule, ...]) -> Iterator[Part]:
    for rule in rules:
        level = Styled(rule.severity.word.ljust(9), _STYLES[rule.severity])
        yield Line((Styled(rule.id.ljust(5), "bold"), level, rule.title))
        yield Wrapped(f"{_INDENT}why ", rule.reason)
        yield Wrapped(f"{_INDENT}fix ", rule.fix)
        yield Styled(f"{_INDENT}see {rule.reference}", "dim")


SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT: Final = "mailmend/v1"
"""The name of the SARIF fingerprint that identifies a finding, whatever line it moves to."""


def sarif(report: LintReport) -> dict[str, Any]:
    places = {rule.id: place for place, rule in enumerate(report.rules)}
    seen: Counter[str] = Counter()
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "mailmend schema lint",
                        "semanticVersion": version("mailmend"),
                        "rules": [_rule(rule) for rule in report.rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(finding, places[finding.rule.id], report.texts, seen) for finding in report.findings
                ],
            }
        ],
    }


def _rule(rule: LintRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.title}."},
        "fullDescription": {"text": rule.reason},
        "help": {
            "text": f"{rule.reason} {rule.fix} See {rule.reference}",
            "markdown": f"{rule.reason}\n\n**Fix:** {rule.fix}\n\n[Reference]({rule.reference})",
        },
        "helpUri": rule.reference,
        "defaultConfiguration": {"level": rule.severity.word},
    }


def _result(finding: LintFinding, rule: int, texts: Mapping[str, str], seen: Counter[str]) -> dict[str, Any]:
    identity = f"{finding.rule.id}|{finding.keyspace}|{finding.table.lower()}|{finding.subject.lower()}"
    seen[identity] += 1
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": rule,
        "level": finding.severity.word,
        "message": {"text": f"{finding.text}. {finding.fix}"},
        "locations": [_location(finding, texts)],
        "partialFingerprints": {FINGERPRINT: sha256(f"{identity}|{seen[identity]}".encode()).hexdigest()[:32]},
        "suppressions": _suppressions(finding),
    }


def _suppressions(finding: LintFinding) -> list[dict[str, str]]:
    if finding.ignored is None:
        return []
    return [{"kind": "inSource" if finding.noted else "external", "justification": finding.ignored}]


def _location(finding: LintFinding, texts: Mapping[str, str]) -> dict[str, Any]:
    names = [name for name in (finding.keyspace, finding.table, finding.subject) if name]
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": ".".join(names), "name": names[-1]}]}
    if finding.file is not None and finding.span is not None and finding.file in texts:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri_of(finding.file)},
            "region": _region(texts[finding.file], finding.span),
        }
    return location


def uri_of(file: str) -> str:
    """A relative path as it was given, or an absolute file URI."""
    path = PurePath(file)
    return Path(file).as_uri() if path.is_absolute() else quote(path.as_posix())


def _region(text: str, span: Span) -> dict[str, int]:
    begin = place_of(text, span.start)
    end = place_of(text, span.end)
    return {
        "startLine": begin.line,
        "startColumn": begin.column,
        "endLine": end.line,
        "endColumn": end.column,
        "charOffset": span.start,
        "charLength": span.end - span.start,
    }
