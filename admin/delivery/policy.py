"""`mailmend policy`: policy files, looked at without a server, and temporary limits of a queue."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.delivery.connections import served_policy_file
from mailmend.admin.delivery.options import OF_A_QUEUE, WHY, list_command, of_kind, remove_command
from mailmend.admin.delivery.policy_explain import EXPLAIN
from mailmend.admin.frame.command import Command, CommandGroup, Late, Shared, Values
from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.kinds import Duration, ParsedValue
from mailmend.admin.frame.options import FILE, flag, option
from mailmend.admin.frame.values import fields_json, plain, printable
from mailmend.admin.queue.options import DRY_RUN, QUEUE_ARGUMENT
from mailmend.delivery.policy.file.forms import CUT, BadPolicyFile
from mailmend.delivery.policy.file.schema import policy_schema, schema_text
from mailmend.delivery.policy.lint import PolicyRule, lint_policies
from mailmend.delivery.policy.orders import ORDER_MAX, OrderKind, normal_value
from mailmend.delivery.policy.policy import PickupField, Threshold, field_named
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.model.errors import ExitCode, MissingExtra, WrongUse
from mailmend.model.file_forms import JsonSchema
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
class LintedFile:
    """What was found in a policy file, in the order of the file.

    Attributes:
        refused: why the server would not take the file; None: it would.
    """

    file: Path
    findings: tuple[PlacedFinding, ...] = ()
    refused: WrongUse | None = None


@dataclass(frozen=True, slots=True)
class PolicyLintResult:
    """What was found in each file, in the order in which the files were named."""

    files: tuple[LintedFile, ...]

    @property
    def exit(self) -> ExitCode:
        if any(linted.refused for linted in self.files):
            return ExitCode.WRONG_USE
        if any(linted.findings for linted in self.files):
            return ExitCode.DRIFT
        return ExitCode.FINE


def schema() -> JsonSchema:
    """The JSON schema of a policy file."""
    return policy_schema()


def lint(files: Sequence[Path]) -> PolicyLintResult:
    """Why the server would not take each policy file, or else what in it is surely not meant.

    Raises:
        MissingExtra: the packages that read policy files are not installed.
    """
    return PolicyLintResult(tuple(map(_linted, files)))


def _linted(file: Path) -> LintedFile:
    try:
        read = served_policy_file(file)
    except MissingExtra:
        raise
    except WrongUse as error:
        return LintedFile(file, refused=error)
    findings = list[PlacedFinding]()
    for rule, hit in lint_policies(read.said):
        because = tuple(map(read.place_of, hit.because))
        findings.append(PlacedFinding(rule, hit.text, read.place_of(hit.path), because))
    findings.sort(key=lambda finding: (finding.place.line, finding.place.column))
    return LintedFile(file, tuple(findings))


_WRAPPED: Final = frozenset({"what", "what to do"})


def schema_document(result: JsonSchema) -> Document:
    return Document(result, (Verbatim(schema_text()),))


def lint_document(result: PolicyLintResult) -> Document:
    """For scripts `file` is the only file, or null where there are several; each finding has its own."""
    names = [str(linted.file) for linted in result.files]
    json: dict[str, Any] = {"file": None, "files": names, "findings": [], "refused": []}
    json["exit"] = int(result.exit)
    if len(names) == 1:
        json["file"] = names[0]
    body = list[Part]()
    remarks = list[str]()
    for linted in result.files:
        json["findings"] += [_finding_json(linted.file, finding) for finding in linted.findings]
        file = printable(str(linted.file))
        if linted.refused:
            json["refused"] += _refused_json(linted.file, linted.refused)
            remarks.append(_refused_text(file, linted.refused))
        elif linted.findings:
            body.append(_findings_grid(file, linted.findings))
        else:
            body.append(f"{file}: nothing found.")
    if json["findings"]:
        body.append(f"{len(json['findings']):,} found. Why each of them matters: docs/lint.md")
    return Document(json, tuple(body), result.exit, remarks=tuple(remarks))


def _findings_grid(file: str, findings: Sequence[PlacedFinding]) -> Grid:
    rows = list[tuple[str, ...]]()
    for finding in findings:
        place = f"{finding.place.line}:{finding.place.column}"
        rows.append((place, finding.rule.id, printable(_said(finding), instead=" "), finding.rule.fix))
    return Grid(file, ("place", "rule", "what", "what to do"), rows, _WRAPPED)


def _refused_text(file: str, error: WrongUse) -> str:
    """Each error of a file, and how many there are where there are several."""
    if not isinstance(error, BadPolicyFile) or not error.refused:
        return f"mailmend: {error.message}"
    lines = [f"mailmend: {refused.message}" for refused in error.refused]
    cut = ""
    if error.is_cut:
        cut = CUT
    lines.append(f"{file}: {len(error.refused):,} errors{cut}.")
    return "\n".join(lines)


def _refused_json(file: Path, error: WrongUse) -> list[dict[str, Any]]:
    """An entry for each place; line and column are null where the file cannot be read at all."""
    if not isinstance(error, BadPolicyFile):
        nowhere = {"line": None, "column": None}
        return [{"file": str(file), **nowhere, "text": error.what, "fix": error.mend}]
    found = list[dict[str, Any]]()
    for refused in error.each:
        place = fields_json(refused.place, "line", "column")
        found.append({"file": str(file), **place, "text": refused.problem, "fix": refused.mend})
    return found


def _said(finding: PlacedFinding) -> str:
    lines = list(dict.fromkeys(place.line for place in finding.because))
    said = f"{finding.rule.title}: {finding.text}"
    if not lines:
        return said
    word = "line" if len(lines) == 1 else "lines"
    return f"{said} ({word} {', '.join(map(str, lines))})"


def _finding_json(file: Path, finding: PlacedFinding) -> dict[str, Any]:
    return {
        "file": str(file),
        "rule": finding.rule.id,
        **fields_json(finding.rule, "title"),
        "text": finding.text,
        **fields_json(finding.place, "line", "column"),
        "because": [fields_json(place, "line", "column") for place in finding.because],
        **plain({"reason": finding.rule.reason, "fix": finding.rule.fix}),
    }


LINT: Final = Command(
    name="lint",
    summary="Find all errors of policy files, and what is legal in them, but surely a mistake.",
    about="""Each file is read as `mailmend delivery serve --policies` reads it. The command names all
    errors for which the server would refuse a file, each with line and column and with what to write
    instead. In a file without errors it names what is surely a mistake, although the server would take
    it: conditions, defaults and rates that are never reached, values that no mail has, groups and lists
    without effect, and more. It reports only what is certain. The rules, and why each matters:
    docs/lint.md. With --json the errors are in `refused`, the mistakes in `findings`. The command asks
    no server, and needs mailmend[delivery].""",
    service="mailmend.admin.delivery.policy:lint",
    present="mailmend.admin.delivery.policy:lint_document",
    paged=True,
    options=(click.Argument(["files"], nargs=-1, required=True, type=FILE, metavar="FILE..."),),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy lint policies/*.yaml
        mailmend policy lint policies.yaml --json     for a script""",
    exits="0 nothing was found, 1 something was, 2 a file cannot be read, or the server would refuse it.",
)


SCHEMA: Final = Command(
    name="schema",
    summary="The JSON schema of a policy file, for editors.",
    about="""Draft 2020-12, as in docs/policy.schema.json; the file is to be read as YAML 1.2, as editors do. It
    describes the form alone; `policy lint` checks that groups and lists exist, and that expressions are valid.

    For VS Code and others, the first line of a policy file: # yaml-language-server: $schema=policy.schema.json""",
    service="mailmend.admin.delivery.policy:schema",
    present="mailmend.admin.delivery.policy:schema_document",
    paged=True,
    examples="""
        mailmend policy schema > policy.schema.json""",
    exits="0 it was printed.",
)

_NAMES: Final = ", ".join(field.value for field in PickupField)


def _fields(value: Any) -> tuple[str, ...]:
    return tuple(name for word in str(value).split(",") if (name := word.strip()))


def _value(value: Any) -> tuple[str, str]:
    name, is_there, text = str(value).partition("=")
    if not name or not is_there:
        raise WrongUse(f"{value!r} is no field with a value", mend="Write it like recipientdomain=example.org.")
    return name, normal_value(OrderKind.CONDITION, field_named(name), text)


def _nanos(value: Any) -> int:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= ORDER_MAX.total_seconds():
        raise WrongUse(f"{value!r} is no number of seconds", mend="Write it like 5, or 0.5.")
    return max(1, round(seconds * SECOND))


_WHICH: Final = Shared(
    "values",
    {
        "For which mails": (
            option(
                "--if",
                "A field of the policy, and its value as in a policy file: itself, *.domain, a network, /regex/, "
                "#group; may be given again: of the same field one is enough, each field must match.",
                "conditions",
                type=ParsedValue("condition", _value),
                multiple=True,
                metavar="FIELD=VALUE",
            ),
        )
    },
    lambda own, _others, _context: _by_field(own["conditions"]),
)


def _by_field(given: Any) -> dict[str, tuple[str, ...]]:
    found = dict[str, tuple[str, ...]]()
    for name, text in given:
        found[name] = (*found.get(name, ()), text)
    return found


def _threshold(own: Values, _others: Values, _context: click.Context) -> Threshold:
    return Threshold(own["concurrency"], own["rate"], own["connect_interval"], own["stop"], own["cluster"])


_LIMITS: Final = Shared(
    "threshold",
    {
        "Limits": (
            option(
                "--concurrency",
                "Attempts to deliver at once; 0 lets none begin. [default: no limit]",
                type=click.IntRange(0, 1_000_000),
                metavar="N",
            ),
            option(
                "--rate",
                "X deliveries in Y seconds as X/Y, or X alone for each second. [default: no limit]",
                type=ParsedValue("rate", lambda value: DeliveryRate.parse(str(value))),
                metavar="X/Y",
            ),
            option(
                "--connect-interval",
                "Seconds between two new connections. [default: none]",
                type=ParsedValue("seconds", _nanos),
                metavar="S",
            ),
            flag("--stop", "Later policies of the file neither limit nor count such a mail."),
            option(
                "--cluster/--no-cluster",
                "Whether the servers of the queue share these limits; else each has all of them. [default: they do]",
                default=True,
            ),
        )
    },
    _threshold,
)

ADD: Final = Command(
    name="add",
    summary="Set limits for a while, on all servers of a queue, before the limits of their policy files.",
    about="""The condition belongs to the policies that count by exactly these fields. It is tested before the file's
    own conditions, the earliest first, and its limits replace all limits of the file. As in a file, the servers of the
    queue share the limits; --no-cluster gives each server the whole limits (in a file: cluster: false). Deliveries that
    have begun are still counted. The condition makes no counter: where no policy counts by these fields it is parked,
    until a policy file that does is read. A value that a policy counts as part of a group means the group there, and
    the answer says so.

    Who set it, and why, is kept over restarts and reloads. With --for it expires. The same fields and values
    again are one condition, with the later command's limits, end and reason.""",
    service="mailmend.admin.delivery.orders:add_order",
    present="mailmend.admin.delivery.orders_document:add_document",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--fields",
            f"What the policies count by, with commas between: {_NAMES}; '' is everything together.",
            type=ParsedValue("fields", _fields),
            required=True,
            metavar="FIELDS",
        ),
        flag("--all", "All of them: whatever such a policy counts.", "everything"),
        flag("--unlimited", "No limit: during this time the file's own limits do not count."),
        option("--for", "How long. [default: until it is removed]", "lasts", type=Duration(zero=False)),
        option(
            "--condition-id",
            "Its id, for scripts. [default: it follows from fields and values]",
            "id",
            type=click.UUID,
            metavar="ID",
        ),
        WHY,
        DRY_RUN,
    ),
    shared=(of_kind(OrderKind.CONDITION), _WHICH, _LIMITS, OF_A_QUEUE),
    examples="""
        mailmend policy add outgoing --fields recipientdomain --if recipientdomain=example.org --rate 100/60 \\
            --for 2h --why 'they throttle us'
        mailmend policy add outgoing --fields localip,remotemx --if localip=192.0.2.7 --if 'remotemx=*.example.net' \\
            --concurrency 1 --why 'a new address; ticket 12'
        mailmend policy add outgoing --fields '' --all --concurrency 50 --for 10m --why 'the line is slow'
        mailmend policy add outgoing --fields localip --if localip=192.0.2.7 --rate 1 --no-cluster --why 'each its own'
        mailmend policy add outgoing --fields tenantid --if tenantid=acme --unlimited --for 1h --why 'as agreed'""",
    exits="0 it is set, or parked; 2 wrong use, 4 the cluster cannot be reached (`list` names it, or it is not).",
)

LIST: Final = list_command(
    OrderKind.CONDITION,
    summary="Say which limits are set for a while: for which mails, until when, by whom, why, and which are parked.",
    about="""The conditions are listed in the order in which they are tested, each with the servers that use it. The
    conditions of the policy files are not listed. With --history: which people and hooks set and removed what. A
    condition that has expired is shown with the end that it was given; a change whose process was killed right behind
    it may be missing.""",
    examples="""
        mailmend policy list outgoing
        mailmend policy list outgoing --json
        mailmend policy list outgoing --history --changes 20      who did what last""",
)

REMOVE: Final = remove_command(
    OrderKind.CONDITION,
    summary="Let the policy files' limits hold again.",
    examples="""
        mailmend policy remove outgoing 6e0ab5e0-8d1c-51f0-9a5e-0242ac120002""",
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
        Late(
            "classify",
            "Say which class a reply of a server has, and which automatic rules count it.",
            "mailmend.admin.delivery.policy_classify:CLASSIFY",
        ),
        SCHEMA,
        ADD,
        LIST,
        REMOVE,
    ),
    examples="""
        mailmend policy lint policies.yaml
        mailmend policy explain policies.yaml --domain example.org --local-ip 192.0.2.1
        mailmend policy simulate policies.yaml outgoing --against now.yaml
        mailmend policy add outgoing --fields recipientdomain --if recipientdomain=example.org \\
            --rate 100/60 --for 2h --why 'they throttle us'
        mailmend policy list outgoing""",
)
