"""What holds for a mail by a policy file, as a document for people and scripts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mailmend.admin.delivery.answers import CONDITION_ORDER, SUSPENSION_ORDER, from_one
from mailmend.admin.delivery.explain_answers import (
    FILE_SUSPENSION,
    SHARE_IN_FILE,
    SOURCE_IN_FILE,
    UNCONSULTED,
)
from mailmend.admin.delivery.orders_document import set_text, suspended_text
from mailmend.admin.delivery.policy_arrivals import (
    arrival_json,
    arrival_parts,
)
from mailmend.admin.delivery.policy_explain import PolicyExplanation, suspension_numbers
from mailmend.admin.delivery.policy_texts import (
    counted_json,
    counted_text,
    limits_path,
    policy_path,
    quota_limit_path,
    quota_path,
    suspension_path,
    threshold_texts,
    transport_path,
)
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import plain, printable
from mailmend.delivery.policy.explaining import (
    PolicyShare,
    QuotaShare,
    SourceExplanation,
)
from mailmend.delivery.policy.file.description import QUOTA_LIMIT
from mailmend.delivery.policy.orders import Order
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.quotas import QuotaLimit
from mailmend.delivery.policy.replaying import LimitKind
from mailmend.model.errors import ExitCode


def explain_document(result: PolicyExplanation) -> Document:
    parked = list[dict[str, Any]]()
    for condition in result.parked:
        parked.append({**CONDITION_ORDER.json(condition.order), "parked": condition.parked})
    json = {
        "file": result.request.file,
        "queue": result.queue,
        "mail": result.values,
        "unsaid": result.unsaid,
        "sources": [_source_json(source, result) for source in result.sources],
        "quotas": [_quota_json(quota, result) for quota in result.quotas],
        "other_family": result.other_family,
        "left": result.left,
        "parked": parked,
        "sources_of": _transport_json(result),
        "incoming": arrival_json(result.arrival, result.places),
        "exit": int(ExitCode.FINE),
    }
    body = list[Part](arrival_parts(result.arrival, result.places))
    for source in result.sources:
        body += _source_parts(source, result)
    body += _quota_parts(result)
    body += _closing_lines(result)
    remarks = list[str]()
    if result.unsaid:
        unsaid = ", ".join(field.value for field in result.unsaid)
        remarks.append(f"Not named, so taken as empty: {unsaid}.")
    return Document(plain(json), body, remarks=remarks)


def _transport_json(result: PolicyExplanation) -> dict[str, Any] | None:
    if result.transport is None:
        return None
    place = result.places[transport_path(result.transport)]
    return {"transport": result.transport, "line": place.line}


def _source_parts(source: SourceExplanation, result: PolicyExplanation) -> Iterator[Part]:
    columns = ("policy", "counted as", "limits of", "concurrency", "rate", "connect interval")
    rows = [_share_row(share, result) for share in source.shares]
    for number in unconsulted(source, result.said):
        name = _policy_name(number, result)
        rows.append((name, "not consulted", "", "", "", ""))
    if rows:
        title = "Policies"
        if source.source:
            title = f"From {source.source}"
        yield Grid(title, columns, rows, frozenset({"counted as"}))
    for number in suspension_numbers(source, result.said):
        yield f"Held by the suspension at line {result.places[suspension_path(number)].line}."
    for name in source.suspensions:
        if name in result.suspensions:
            yield suspended_text(result.suspensions[name])


def _share_row(share: PolicyShare, result: PolicyExplanation) -> tuple[str, ...]:
    texts = threshold_texts(share.threshold)
    gap = "none"
    if LimitKind.CONNECT_INTERVAL in texts:
        gap = f"{texts[LimitKind.CONNECT_INTERVAL]} s"
    if share.set_by:
        set_by = f"what {set_text(share.set_by)}"
    else:
        set_by = _limits_of(share.condition, limits_path(result.said, share.policy, share.condition), result)
    counted = dict(zip(result.said.policies[share.policy].fields, share.key, strict=True))
    return (
        _policy_name(share.policy, result),
        printable(counted_text(counted)) or "every mail",
        set_by,
        texts.get(LimitKind.CONCURRENCY, "no limit"),
        texts.get(LimitKind.RATE, "no limit"),
        gap,
    )


def _limits_of(condition: int | None, path: DocumentPath | None, result: PolicyExplanation) -> str:
    if path is None:
        return "nothing"
    what = "the default" if condition is None else "the condition"
    return f"{what} at line {result.places[path].line}"


def _quota_parts(result: PolicyExplanation) -> Iterator[Part]:
    columns: tuple[str, ...] = ("quota", "counted as", "limits of", "mails", "bytes")
    if any(quota.used for quota in result.quotas):
        columns = (*columns, "mails there", "bytes there")
    rows = [_quota_row(quota, result) for quota in result.quotas]
    if rows:
        yield Grid("Quotas of the queue", columns, rows, frozenset({"counted as"}))


def _quota_row(share: QuotaShare, result: PolicyExplanation) -> tuple[str, ...]:
    quota = result.said.quotas[share.quota]
    counted = dict(zip(quota.fields, share.key, strict=True))
    limit = share.limit or QuotaLimit()
    row = [
        f"{quota.name}, line {result.places[quota_path(share.quota)].line}",
        printable(counted_text(counted)) or "every mail",
        _limits_of(share.condition, quota_limit_path(result.said, share), result),
        _at_most(limit.messages),
        _at_most(limit.bytes),
    ]
    if share.used:
        row += (f"{share.used.messages:,}", f"{share.used.bytes:,}")
    return tuple(row)


def _at_most(limit: int | None) -> str:
    if limit is None:
        return "no limit"
    return f"{limit:,}"


def _quota_json(share: QuotaShare, result: PolicyExplanation) -> dict[str, Any]:
    quota = result.said.quotas[share.quota]
    limits_line = None
    path = quota_limit_path(result.said, share)
    if path:
        limits_line = result.places[path].line
    return {
        "name": quota.name,
        "line": result.places[quota_path(share.quota)].line,
        "key": counted_json(quota.fields, share.key),
        "condition": from_one(share.condition),
        "limits_line": limits_line,
        **QUOTA_LIMIT.json(share.limit or QuotaLimit()),
        "used": share.used,
        "refuses": share.refuses,
    }


def _policy_name(number: int, result: PolicyExplanation) -> str:
    return f"{number + 1}, line {result.places[policy_path(number)].line}"


def unconsulted(source: SourceExplanation, said: PickupPolicies) -> list[int]:
    """The numbers of the policies behind one that stops."""
    consulted = {share.policy for share in source.shares}
    return [number for number in range(len(said.policies)) if number not in consulted]


def _closing_lines(result: PolicyExplanation) -> Iterator[str]:
    for condition in result.parked:
        yield printable(f"Parked with this file: run-time condition {condition.order.id}: {condition.parked}.")
    for quota in result.quotas:
        if quota.refuses:
            yield f"Quota {result.said.quotas[quota.quota].name} is full: {result.queue} takes no such mail now."
    if result.other_family:
        yield f"Of another family than the server, so nothing is sent from: {', '.join(result.other_family)}."
    if result.transport is not None:
        line = result.places[transport_path(result.transport)].line
        yield printable(f"Transport {result.transport!r} at line {line} names its addresses.")
    has_sources = result.request.local_ip or result.transport is not None
    if has_sources and result.left:
        yield f"It may be sent from: {', '.join(result.left)}."
    elif has_sources:
        yield "None of these addresses is left to send it from: it is held back."
    elif result.left:
        yield "Nothing holds it back for good."
    else:
        yield "It is held back, from wherever it is sent."


def _source_json(source: SourceExplanation, result: PolicyExplanation) -> dict[str, Any]:
    def line(path: DocumentPath) -> int:
        return result.places[path].line

    policies = list[dict[str, Any]]()
    for share in source.shares:
        policies.append(SHARE_IN_FILE.json(share, **share_places(share, result.said, line)))
    refusals = refusals_json(source, result.said, result.suspensions, line)
    return SOURCE_IN_FILE.json(source, policies=policies, **refusals)


def share_places(share: PolicyShare, said: PickupPolicies, line: Callable[[DocumentPath], int]) -> dict[str, Any]:
    """Where the file has a policy and its limits, and as what it counts a mail; `line` gives the line of a place."""
    limits = None
    limits_line = None
    if not share.set_by:
        limits = limits_path(said, share.policy, share.condition)
    if limits:
        limits_line = line(limits)
    return {
        "line": line(policy_path(share.policy)),
        "key": counted_json(said.policies[share.policy].fields, share.key),
        "limits_line": limits_line,
    }


def refusals_json(
    source: SourceExplanation,
    said: PickupPolicies,
    suspensions: Mapping[str, Order],
    line: Callable[[DocumentPath], int],
) -> dict[str, Any]:
    """The policies that are not consulted, and what suspends the mail; `line` as for `share_places`."""
    not_consulted = list[dict[str, Any]]()
    for number in unconsulted(source, said):
        not_consulted.append(UNCONSULTED.json(None, policy=number + 1, line=line(policy_path(number))))
    by_file = list[dict[str, Any]]()
    for number in suspension_numbers(source, said):
        by_file.append(FILE_SUSPENSION.json(None, suspension=number + 1, line=line(suspension_path(number))))
    by_order = [SUSPENSION_ORDER.json(suspensions[name]) for name in source.suspensions if name in suspensions]
    return {"not_consulted": not_consulted, "suspensions": by_file, "suspended_by": by_order}
