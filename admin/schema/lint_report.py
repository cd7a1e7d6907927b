"""What lint found, and the same as SARIF 2.1.0, which code hosts and editors show."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mailmend.cql.schema.lint.rule import LintFinding, LintRule, Severity
from mailmend.cql.schema.lint.rules import RULES
from mailmend.cql.statements import Span
from mailmend.model.errors import ExitCode
from mailmend.model.texts import place_of


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was found.

    Attributes:
        looked_at: the keyspaces, in the order of their first mention.
        findings: all of them, those that are ignored with their reason.
        texts: the files by name, to show places in.
        unused: ignores of settings and files that match nothing, in words.
    """

    looked_at: tuple[str, ...]
    findings: tuple[LintFinding, ...]
    level: Severity
    rules: tuple[LintRule, ...] = RULES
    texts: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[LintFinding, ...]:
        return tuple(finding for finding in self.findings if finding.ignored is None)

    @property
    def ignored(self) -> tuple[LintFinding, ...]:
        return tuple(finding for finding in self.findings if finding.ignored is not None)

    @property
    def exit(self) -> ExitCode:
        if any(finding.severity >= self.level for finding in self.open):
            return ExitCode.DRIFT
        return ExitCode.FINE


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
    kind = "inSource" if finding.noted else "external"
    return [{"kind": kind, "justification": finding.ignored}]


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
    path = Path(file)
    if path.is_absolute():
        return path.as_uri()
    return quote(path.as_posix())


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
