"""What `mailmend policy` shows."""

from typing import Any, Final

from admin.present.document import Document, Grid, Part
from admin.present.values import fields_json, plain, printable
from admin.services.policy import PlacedFinding, PolicyLintResult
from model.texts import Place

_WRAPPED: Final = frozenset({"what", "what to do"})


def lint_document(result: PolicyLintResult) -> Document:
    found, file = result.findings, printable(str(result.file))
    json = {"file": str(result.file), "findings": [_finding_json(one) for one in found], "exit": int(result.exit)}
    if not found:
        return Document(json, (f"{file}: nothing found.",), result.exit)
    rows = [(_place(one.place), one.rule.id, printable(_said(one), instead=" "), one.rule.fix) for one in found]
    body: tuple[Part, ...] = (
        Grid(file, ("place", "rule", "what", "what to do"), rows, _WRAPPED),
        f"{len(found):,} found. Why each of them matters: docs/lint.md",
    )
    return Document(json, body, result.exit)


def _said(finding: PlacedFinding) -> str:
    lines = list(dict.fromkeys(one.line for one in finding.because))
    where = f" (line{'' if len(lines) == 1 else 's'} {', '.join(map(str, lines))})" if lines else ""
    return f"{finding.rule.title}: {finding.text}{where}"


def _place(place: Place) -> str:
    return f"{place.line}:{place.column}"


def _finding_json(finding: PlacedFinding) -> dict[str, Any]:
    return {
        "rule": finding.rule.id,
        **fields_json(finding.rule, "title"),
        "text": finding.text,
        **fields_json(finding.place, "line", "column"),
        "because": [fields_json(one, "line", "column") for one in finding.because],
        **plain({"reason": finding.rule.reason, "fix": finding.rule.fix}),
    }
