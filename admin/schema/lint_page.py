"""The rules and the findings of lint for others to read: `docs/lint.md`, and SARIF 2.1.0.

Code hosts and editors show SARIF. `python -m mailmend.admin.schema.lint_page` writes the page, from
the rules themselves; with `--check` it exits 1 when the page is not up to date.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from mailmend.cql.generated import write_or_check
from mailmend.cql.schema.lint.rule import LintFinding, LintRule, Severity
from mailmend.cql.schema.lint.rules import CATALOG_IGNORES, RULES
from mailmend.cql.statements import Span
from mailmend.model.errors import ExitCode
from mailmend.model.texts import place_of

if TYPE_CHECKING:
    from mailmend.delivery.policy.lint import PolicyRule


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
    results = []
    for finding in report.findings:
        results.append(_result(finding, places[finding.rule.id], report.texts, seen))
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
                "results": results,
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


PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "lint.md"

_HEAD: Final = """\
# The rules of `mailmend schema lint`

Generated from the rules: `python -m mailmend.admin.schema.lint_page` writes it anew.

```
mailmend schema lint cql/schema.cql migrations/      files, and folders of files, as one history in that order
mailmend schema lint --live --keyspace mykeyspace    a live keyspace; only read
mailmend schema lint --rules                         this list
```

Levels: *error*, the server refuses it, or rows are lost or come back; *warning*, it costs space, latency or
consistency; *note*, worth knowing, right in some cases. Exit code 1 where something is found at `--fail-on` (warning)
or above, 2 where the text is not CQL or the request makes no sense.

A rule that needs what no schema says is silent until an option says it: `--repair-interval` (T18), `--projection` (T19,
T20, T21), `--marks-table` (T12), `--partition-rows` (T15). What follows from what in a keyspace of mail is known. A
live server tells its version, its hint window and its variant of Paxos itself, where the role may read `system_views`.

Letting a finding stand takes a reason, in the settings file or in a comment right before the statement:

```toml
[schema.lint]
ignore = [{ rule = "T5", table = "mytable", reason = "rows change for an hour after they are written" }]
```

```sql
-- lint: ignore T5, T13: rows change for an hour after they are written
CREATE TABLE mytable ( ...
```
"""


_POLICY_HEAD: Final = """\
# The rules of `mailmend policy lint`

```
mailmend policy lint policies.yaml    policy files of `mailmend delivery serve`, one or several
```

The command first names all errors for which the server would refuse a file. These rules are about
a file without errors: the server takes what they find, but it is surely a mistake. The rules report
only what is certain; two different expressions count as different. Exit code 1 where something is
found, 2 where the server would refuse a file.
"""


def page_text() -> str:
    # `schema lint`, which imports this module too, needs no policies.
    from mailmend.delivery.policy.lint import POLICY_RULES  # noqa: PLC0415

    sections = [_HEAD, "## The rules\n"]
    for rule in RULES:
        sections.append(_section(rule))
    sections += [_ignored(), _POLICY_HEAD]
    for policy_rule in POLICY_RULES:
        sections.append(_policy_section(policy_rule))
    return "\n".join(sections)


def _policy_section(rule: "PolicyRule") -> str:
    return f"### {rule.id}: {rule.title}\n\n{rule.reason}\n\n*Fix:* {rule.fix}\n"


def _section(rule: LintRule) -> str:
    return (
        f"### {rule.id}: {rule.title} ({rule.severity.word})\n\n"
        f"{rule.reason}\n\n*Fix:* {rule.fix}\n\n*Reference:* <{rule.reference}>\n"
    )


def _ignored() -> str:
    rows = (f"| {ignore.rule} | `{ignore.table}` | {ignore.reason} |" for ignore in CATALOG_IGNORES)
    return "\n".join(
        (
            "## What our own tables let stand\n",
            "The tables of `cql/schema.cql` and of the ledger lint clean but for these; mailmend knows the reasons.\n",
            "| rule | table | reason |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when the page is out of date; else write it."""
    otherwise = "is not what the rules say: python -m mailmend.admin.schema.lint_page writes it anew"
    return write_or_check(arguments, PAGE, page_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
