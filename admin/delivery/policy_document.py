"""What `mailmend policy` shows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from mailmend.admin.delivery.limits import limits_json, made_json, set_text
from mailmend.admin.delivery.policy_service import (
    PlacedFinding,
    PolicyExplanation,
    PolicyLintResult,
    limits_path,
    policy_path,
    quota_limit_path,
    quota_path,
    suspension_path,
)
from mailmend.admin.delivery.suspend import suspended_text, suspension_json
from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.values import fields_json, plain, printable
from mailmend.delivery.policy.explaining import PolicyShare, QuotaShare, SourceExplanation
from mailmend.delivery.policy.file.errors import BadPolicyFile
from mailmend.delivery.policy.file.schema import JsonSchema, schema_text
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import CounterKey, PickupField
from mailmend.delivery.policy.quotas import QuotaLimit
from mailmend.delivery.policy.rates import SECOND
from mailmend.model.errors import ExitCode
from mailmend.model.texts import Place

_WRAPPED: Final = frozenset({"what", "what to do"})


def schema_document(result: JsonSchema) -> Document:
    return Document(result, (Verbatim(schema_text()),))


def lint_document(result: PolicyLintResult) -> Document:
    found = result.findings
    file = printable(str(result.file))
    json = {
        "file": str(result.file),
        "findings": [_finding_json(finding) for finding in found],
        "refused": _refused_json(result.refused) if result.refused else [],
        "exit": int(result.exit),
    }
    if result.refused:
        return Document(json, (), result.exit, remarks=(f"mailmend: {result.refused.message}",))
    if not found:
        return Document(json, (f"{file}: nothing found.",), result.exit)
    rows = [
        (_place(finding.place), finding.rule.id, printable(_said(finding), instead=" "), finding.rule.fix)
        for finding in found
    ]
    body: tuple[Part, ...] = (
        Grid(file, ("place", "rule", "what", "what to do"), rows, _WRAPPED),
        f"{len(found):,} found. Why each of them matters: docs/lint.md",
    )
    return Document(json, body, result.exit)


def _refused_json(error: BadPolicyFile) -> list[dict[str, Any]]:
    return [
        {**fields_json(file.place, "line", "column"), "text": file.problem, "fix": file.mend}
        for file in error.refused or (error,)
    ]


def _said(finding: PlacedFinding) -> str:
    lines = list(dict.fromkeys(place.line for place in finding.because))
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
        "because": [fields_json(place, "line", "column") for place in finding.because],
        **plain({"reason": finding.rule.reason, "fix": finding.rule.fix}),
    }


def explain_document(result: PolicyExplanation) -> Document:
    json = {
        "file": str(result.request.file),
        "queue": result.queue,
        "mail": {named.value: text for named, text in result.values.items()},
        "unsaid": [field.value for field in result.unsaid],
        "sources": [_source_json(source, result) for source in result.sources],
        "quotas": [_quota_json(quota, result) for quota in result.quotas],
        "other_family": list(result.other_family),
        "left": list(result.left),
        "parked": [{**made_json(condition.made), "parked": condition.parked} for condition in result.parked],
        "exit": int(ExitCode.FINE),
    }
    body = tuple(part for source in result.sources for part in _source_parts(source, result))
    unsaid = ", ".join(field.value for field in result.unsaid)
    remarks = (f"Not named, so taken as empty: {unsaid}.",) if unsaid else ()
    return Document(json, (*body, *_quota_parts(result), *_closing_lines(result)), remarks=remarks)


def _source_parts(one: SourceExplanation, result: PolicyExplanation) -> Iterator[Part]:
    columns = ("policy", "counted as", "limits of", "concurrency", "rate", "connect interval")
    rows = [_share_row(share, result) for share in one.shares]
    rows += [
        (_policy_name(number, result), "not consulted", "", "", "", "") for number in unconsulted(one, result.said)
    ]
    if rows:
        yield Grid(f"From {one.source}" if one.source else "Policies", columns, rows, frozenset({"counted as"}))
    for number in suspension_numbers(one, result.said):
        yield f"Held by the suspension at line {result.places[suspension_path(number)].line}."
    yield from (suspended_text(result.suspensions[name]) for name in one.suspensions if name in result.suspensions)


def _share_row(share: PolicyShare, result: PolicyExplanation) -> tuple[str, ...]:
    threshold = share.threshold
    limits = limits_path(result.said, share.policy, share.condition)
    made = share.set_by
    gap = threshold.connect_interval
    return (
        _policy_name(share.policy, result),
        _counted_as(result.said.policies[share.policy].fields, share.key),
        f"what {set_text(made)}" if made else _limits_of(share.condition, limits, result),
        "no limit" if threshold.concurrency is None else f"{threshold.concurrency:,}",
        f"{threshold.rate.count}/{threshold.rate.interval / SECOND:.9g}" if threshold.rate else "no limit",
        f"{gap / SECOND:.9g} s" if gap else "none",
    )


def _counted_as(fields: Sequence[PickupField], key: CounterKey) -> str:
    named = (f"{field.value} {text or '(empty)'}" for field, text in zip(fields, key, strict=True))
    return printable(", ".join(named)) or "every mail"


def _limits_of(condition: int | None, path: DocumentPath | None, result: PolicyExplanation) -> str:
    what = "the default" if condition is None else "the condition"
    return f"{what} at line {result.places[path].line}" if path else "nothing"


def _quota_parts(result: PolicyExplanation) -> Iterator[Part]:
    counted = ("mails there", "bytes there") if any(quota.used for quota in result.quotas) else ()
    columns = ("quota", "counted as", "limits of", "mails", "bytes", *counted)
    rows = [_quota_row(quota, result) for quota in result.quotas]
    if rows:
        yield Grid("Quotas of the queue", columns, rows, frozenset({"counted as"}))


def _quota_row(share: QuotaShare, result: PolicyExplanation) -> tuple[str, ...]:
    quota = result.said.quotas[share.quota]
    limit = share.limit or QuotaLimit()
    return (
        f"{quota.name}, line {result.places[quota_path(share.quota)].line}",
        _counted_as(quota.fields, share.key),
        _limits_of(share.condition, quota_limit_path(result.said, share), result),
        *("no limit" if most is None else f"{most:,}" for most in (limit.messages, limit.bytes)),
        *((f"{share.used.messages:,}", f"{share.used.bytes:,}") if share.used else ()),
    )


def _quota_json(share: QuotaShare, result: PolicyExplanation) -> dict[str, Any]:
    quota = result.said.quotas[share.quota]
    limit = share.limit
    path = quota_limit_path(result.said, share)
    return {
        "name": quota.name,
        "line": result.places[quota_path(share.quota)].line,
        "key": {field.value: text for field, text in zip(quota.fields, share.key, strict=True)},
        "condition": None if share.condition is None else share.condition + 1,
        "limits_line": result.places[path].line if path else None,
        **quota_limit_json(limit or QuotaLimit()),
        "used": plain(share.used),
        "refuses": share.refuses,
    }


def quota_limit_json(limit: QuotaLimit) -> dict[str, int | None]:
    return {"messages": limit.messages, "bytes": limit.bytes}


def _policy_name(number: int, result: PolicyExplanation) -> str:
    return f"{number + 1}, line {result.places[policy_path(number)].line}"


def unconsulted(one: SourceExplanation, said: PickupPolicies) -> list[int]:
    """The numbers of the policies behind one that stops."""
    consulted = {share.policy for share in one.shares}
    return [number for number in range(len(said.policies)) if number not in consulted]


def suspension_numbers(one: SourceExplanation, said: PickupPolicies) -> list[int]:
    """The numbers of the file's suspensions that hold the mail."""
    return [number for number, suspension in enumerate(said.suspensions) if suspension.id in one.suspensions]


def _closing_lines(result: PolicyExplanation) -> Iterator[str]:
    for condition in result.parked:
        yield printable(f"Parked beside this file: run-time condition {condition.made.id}: {condition.parked}.")
    for full in (quota for quota in result.quotas if quota.refuses):
        yield f"Quota {result.said.quotas[full.quota].name} is full: {result.queue} takes no such mail now."
    if result.other_family:
        yield f"Of another family than the server, so nothing is sent from: {', '.join(result.other_family)}."
    if not result.request.local_ip:
        yield "Nothing holds it back for good." if result.left else "It is held back, from wherever it is sent."
    elif result.left:
        yield f"It may be sent from: {', '.join(result.left)}."
    else:
        yield "None of these addresses is left to send it from: it is held back."


def _source_json(one: SourceExplanation, result: PolicyExplanation) -> dict[str, Any]:
    def line(path: DocumentPath) -> int:
        return result.places[path].line

    return {
        "localip": one.source,
        "is_left": one.is_left,
        "policies": [{**share_json(share, result.said, line), "lets_none": share.refuses} for share in one.shares],
        "not_consulted": [
            {"policy": number + 1, "line": line(policy_path(number))} for number in unconsulted(one, result.said)
        ],
        "suspensions": [
            {"suspension": number + 1, "line": line(suspension_path(number))}
            for number in suspension_numbers(one, result.said)
        ],
        "suspended_by": [
            suspension_json(result.suspensions[name]) for name in one.suspensions if name in result.suspensions
        ],
    }


def share_json(share: PolicyShare, said: PickupPolicies, line: Callable[[DocumentPath], int]) -> dict[str, Any]:
    """What a policy means for a mail; `line` is where something stands in the file."""
    limits = None if share.set_by else limits_path(said, share.policy, share.condition)
    fields = said.policies[share.policy].fields
    return {
        "policy": share.policy + 1,
        "line": line(policy_path(share.policy)),
        "key": {field.value: text for field, text in zip(fields, share.key, strict=True)},
        "condition": None if share.condition is None else share.condition + 1,
        "limits_line": line(limits) if limits else None,
        **limits_json(share.threshold),
        "set_by": made_json(share.set_by) if share.set_by else None,
    }
