"""`mailmend policy`: policy files of `mailmend delivery serve`, looked at without a server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mailmend.admin.delivery.conditions import CONDITION_COMMANDS
from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.delivery.policy_explain import EXPLAIN, FILE_ARGUMENT
from mailmend.admin.frame.command import Command, CommandGroup, Late
from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.values import fields_json, plain, printable
from mailmend.delivery.policy.file.errors import BadPolicyFile
from mailmend.delivery.policy.file.forms import JsonSchema
from mailmend.delivery.policy.file.schema import policy_schema, schema_text
from mailmend.delivery.policy.lint import PolicyRule, lint_policies
from mailmend.model.errors import ExitCode
from mailmend.model.texts import Place


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """Something in a policy file that is legal, and surely not meant.

    Attributes:
        because: the places of what makes it so.
    """

    rule: PolicyRule
    text: str
    place: Place
    because: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyLintResult:
    """What was found, in the order of the file.

    Attributes:
        refused: why the server would not take the file; None: it would.
    """

    file: Path
    findings: tuple[PlacedFinding, ...] = ()
    refused: BadPolicyFile | None = None

    @property
    def exit(self) -> ExitCode:
        if self.refused:
            return self.refused.exit_code
        if self.findings:
            return ExitCode.DRIFT
        return ExitCode.FINE


def schema() -> JsonSchema:
    """The JSON schema of a policy file."""
    return policy_schema()


def lint(file: Path) -> PolicyLintResult:
    """What of a policy file the server would not take, or else what it would take although it is surely not meant.

    Raises:
        WrongUse: it cannot be read.
    """
    try:
        read = policy_file(file)
    except BadPolicyFile as error:
        return PolicyLintResult(file, refused=error)
    findings = list[PlacedFinding]()
    for policy in lint_policies(read.said):
        hit = policy.hit
        because = tuple(map(read.place_of, hit.because))
        findings.append(PlacedFinding(policy.rule, hit.text, read.place_of(hit.path), because))
    findings.sort(key=lambda finding: (finding.place.line, finding.place.column))
    return PolicyLintResult(file, tuple(findings))


_WRAPPED: Final = frozenset({"what", "what to do"})


def schema_document(result: JsonSchema) -> Document:
    return Document(result, (Verbatim(schema_text()),))


def lint_document(result: PolicyLintResult) -> Document:
    findings = result.findings
    file = printable(str(result.file))
    json = {
        "file": str(result.file),
        "findings": [_finding_json(finding) for finding in findings],
        "refused": [],
        "exit": int(result.exit),
    }
    if result.refused:
        json["refused"] = _refused_json(result.refused)
        return Document(json, (), result.exit, remarks=(f"mailmend: {result.refused.message}",))
    if not findings:
        return Document(json, (f"{file}: nothing found.",), result.exit)
    rows = list[tuple[str, ...]]()
    for finding in findings:
        place = f"{finding.place.line}:{finding.place.column}"
        rows.append((place, finding.rule.id, printable(_said(finding), instead=" "), finding.rule.fix))
    body: tuple[Part, ...] = (
        Grid(file, ("place", "rule", "what", "what to do"), rows, _WRAPPED),
        f"{len(findings):,} found. Why each of them matters: docs/lint.md",
    )
    return Document(json, body, result.exit)


def _refused_json(error: BadPolicyFile) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for refused in error.refused or (error,):
        place = fields_json(refused.place, "line", "column")
        found.append({**place, "text": refused.problem, "fix": refused.mend})
    return found


def _said(finding: PlacedFinding) -> str:
    lines = list(dict.fromkeys(place.line for place in finding.because))
    said = f"{finding.rule.title}: {finding.text}"
    if not lines:
        return said
    word = "line" if len(lines) == 1 else "lines"
    return f"{said} ({word} {', '.join(map(str, lines))})"


def _finding_json(finding: PlacedFinding) -> dict[str, Any]:
    return {
        "rule": finding.rule.id,
        **fields_json(finding.rule, "title"),
        "text": finding.text,
        **fields_json(finding.place, "line", "column"),
        "because": [fields_json(place, "line", "column") for place in finding.because],
        **plain({"reason": finding.rule.reason, "fix": finding.rule.fix}),
    }


LINT: Final = Command(
    name="lint",
    summary="Find what is legal in a policy file, but surely a mistake.",
    about="""The file is read as `mailmend delivery serve --policies` reads it: each value that the server would refuse
    is refused here, with line and column. Then the command names what the server would take, but what is surely a
    mistake: conditions, defaults and rates that are never reached, values that no mail has, groups and lists without
    effect, and more. It reports only what is certain. The rules, and why each matters: docs/lint.md. It asks no server,
    and needs mailmend[delivery].""",
    service="mailmend.admin.delivery.policy:lint",
    present="mailmend.admin.delivery.policy:lint_document",
    options=(FILE_ARGUMENT,),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy lint policies.yaml --json     for a script""",
    exits="0 nothing was found, 1 something was, 2 the file cannot be read, or the server would refuse it.",
)


SCHEMA: Final = Command(
    name="schema",
    summary="The JSON schema of a policy file, for editors.",
    about="""Draft 2020-12, as in docs/policy.schema.json; the file is to be read as YAML 1.2, as editors do. It
    describes the form alone; `policy lint` checks that groups and lists exist, and that expressions are valid.

    For VS Code and others, the first line of a policy file: # yaml-language-server: $schema=policy.schema.json""",
    service="mailmend.admin.delivery.policy:schema",
    present="mailmend.admin.delivery.policy:schema_document",
    examples="""
        mailmend policy schema > policy.schema.json""",
    exits="0 it was printed.",
)

POLICY: Final = CommandGroup(
    name="policy",
    summary="Limits of deliveries: the policy file, and temporary limits outside it.",
    commands=(
        LINT,
        EXPLAIN,
        Late(
            "simulate",
            "Say what a policy file would have done to the recorded attempts of a queue.",
            "mailmend.admin.delivery.simulate:SIMULATE",
        ),
        SCHEMA,
        *CONDITION_COMMANDS,
    ),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy explain policies.yaml --domain example.org --local-ip 192.0.2.1
        mailmend policy simulate policies.yaml outgoing --against now.yaml
        mailmend policy add outgoing --fields recipientdomain --if recipientdomain=example.org \\
            --rate 100/60 --for 2h --why 'they throttle us'
        mailmend policy list outgoing""",
)
