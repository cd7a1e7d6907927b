"""`mailmend policy explain`: what a policy file means for a mail, by the engine of the server."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.delivery.limits import threshold_texts
from mailmend.admin.delivery.options import MAIL_FIELDS
from mailmend.admin.delivery.orders import holding
from mailmend.admin.delivery.orders_document import order_json, set_text, suspended_text
from mailmend.admin.delivery.policy_paths import limits_path, policy_path, quota_limit_path, quota_path, suspension_path
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import TYPED, Command, Shared, Values
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.frame.values import plain, printable
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings
from mailmend.delivery.mail.attempts import NextHop, SourceAddress
from mailmend.delivery.mail.envelopes import counted_mail
from mailmend.delivery.policy.explaining import (
    PolicyShare,
    QuotaShare,
    SourceExplanation,
    as_in_file,
    explain_mail,
    explain_quotas,
)
from mailmend.delivery.policy.file.description import QUOTA_LIMIT, THRESHOLD
from mailmend.delivery.policy.orders import Order, OrderKind, PlacedCondition, with_conditions
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import CounterKey, PickupField
from mailmend.delivery.policy.quotas import QueueQuota, QuotaCount, QuotaLimit
from mailmend.delivery.policy.replaying import LimitKind
from mailmend.delivery.policy.sub_queues import ANY_SOURCE, ActiveMail
from mailmend.model.errors import ExitCode
from mailmend.model.ids import QueueName
from mailmend.model.texts import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExplainRequest:
    """Which mail is asked about.

    Attributes:
        values: of the mail, without the address that it is sent from; fields that are not there are empty.
        local_ip: addresses that it may be sent from; (): it is not said which.
        settings: of the queue whose orders count too; None: the file alone counts.
    """

    file: Path
    values: Mapping[PickupField, str] = field(default_factory=dict)
    local_ip: tuple[str, ...] = ()
    settings: QueueSettings | None = None


@dataclass(frozen=True, slots=True)
class QueueOrders:
    """What is ordered for a queue in addition to its policy file, and what is in the queue.

    Attributes:
        conditions: the conditions that hold now.
        suspensions: the suspensions that hold now.
        count: None: the file has no quotas, so that nothing was counted.
    """

    conditions: Sequence[Order] = ()
    suspensions: Sequence[Order] = ()
    count: QuotaCount | None = None


@dataclass(frozen=True, slots=True)
class PolicyExplanation:
    """What a policy file means for a mail.

    Attributes:
        values: in their normal form.
        sources: by address, of the family of the server's.
        other_family: the addresses that are not, so that nothing is sent from there.
        unsaid: fields that the file tells mails apart by and that were taken as empty.
        places: of policies, quotas, conditions, defaults and suspensions that are spoken of.
        quotas: all of the file's, as each of them counts the mail.
        suspensions: those by hand, by id.
        parked: run-time conditions of the queue that set no limits with this file.
    """

    request: PolicyExplainRequest
    said: PickupPolicies
    values: Mapping[PickupField, str]
    sources: tuple[SourceExplanation, ...]
    other_family: tuple[str, ...]
    unsaid: tuple[PickupField, ...]
    places: Mapping[DocumentPath, Place]
    quotas: tuple[QuotaShare, ...] = ()
    suspensions: Mapping[str, Order] = field(default_factory=dict)
    parked: tuple[PlacedCondition, ...] = ()

    @property
    def queue(self) -> QueueName | None:
        return self.request.settings.name if self.request.settings else None

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(source.source for source in self.sources if source.is_left)


def explain(request: PolicyExplainRequest, _: Caller) -> PolicyExplanation:
    """Which policies count a mail, as what, with which limits, and what holds it back, by the engine's own rules.

    Raises:
        WrongUse: the file cannot be read, or something is no value of its field.
        BadPolicyFile: the server would not take the file; the message says where.
        CannotReach: of a queue, its cluster cannot be reached.
    """
    read = policy_file(request.file)
    values = {named: named.normal(text) for named, text in request.values.items()}
    given = tuple(dict.fromkeys(PickupField.LOCAL_IP.normal(address) for address in request.local_ip))
    left = reaching(given, values.get(PickupField.REMOTE_IP, ""))
    orders = with_queues(request.settings, partial(_orders_of, read.said)) if request.settings else QueueOrders()
    policies, placed = with_conditions(read.said.policies, orders.conditions, read.said.algorithm)
    held = (*read.said.suspensions, *(suspension.suspension(None) for suspension in orders.suspensions))
    beside = replace(read.said, policies=policies, suspensions=held)
    sources = as_in_file(explain_mail(beside, ActiveMail("", values, left if given else ANY_SOURCE)), placed)
    named = {*values, *([PickupField.LOCAL_IP] if given else [])}
    quotas = explain_quotas(read.said.quotas, values, orders.count)
    return PolicyExplanation(
        request,
        read.said,
        values,
        sources,
        tuple(address for address in given if address not in left),
        tuple(pickup_field for pickup_field in PickupField if pickup_field in _used_fields(read.said) - named),
        {path: read.place_of(path) for path in _spoken_of(read.said, sources, quotas)},
        quotas,
        {str(suspension.id): suspension for suspension in orders.suspensions},
        tuple(condition for condition in placed if condition.parked),
    )


async def _orders_of(file: PickupPolicies, connections: QueueConnections) -> QueueOrders:
    """What holds now; reading it creates no ledger. The queue is counted where the file has quotas."""
    queue = connections.settings.name
    return QueueOrders(
        await holding(connections, OrderKind.CONDITION, queue),
        await holding(connections, OrderKind.SUSPENSION, queue),
        await _counted(file.quotas, connections) if file.quotas else None,
    )


async def _counted(quotas: tuple[QueueQuota, ...], connections: QueueConnections) -> QuotaCount:
    count = QuotaCount(quotas)
    async with connections.open(dry_run=True) as queue:
        async for listed in queue.browse():
            count.add(counted_mail(listed.queued.mail))
    return count


def reaching(sources: Sequence[str], server: str) -> tuple[str, ...]:
    """The sources of the family of the server's address; all, where that family is not known."""
    hop = NextHop(server, server)
    return tuple(source for source in sources if not server or SourceAddress(source).reaches(hop))


def _used_fields(file: PickupPolicies) -> set[PickupField]:
    counted = (named for policy in file.policies for named in policy.fields)
    by_quotas = (named for quota in file.quotas for named in quota.fields)
    return {*counted, *by_quotas, *(named for suspension in file.suspensions for named in suspension.patterns)}


def _spoken_of(
    file: PickupPolicies, sources: Sequence[SourceExplanation], quotas: Sequence[QuotaShare]
) -> set[DocumentPath]:
    """The policies and quotas, all of them, and the conditions, defaults and suspensions that count for the mail."""
    paths = {policy_path(number) for number in range(len(file.policies))}
    held = {suspension for source in sources for suspension in source.suspensions}
    paths |= {suspension_path(number) for number, suspension in enumerate(file.suspensions) if suspension.id in held}
    shares = (share for source in sources for share in source.shares)
    for quota in quotas:
        limits = quota_limit_path(file, quota)
        paths |= {quota_path(quota.quota), *([limits] if limits else [])}
    return paths | {path for share in shares if (path := limits_path(file, share.policy, share.condition))}


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
        "parked": [{**order_json(condition.order), "parked": condition.parked} for condition in result.parked],
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
    texts = threshold_texts(share.threshold)
    gap = texts.get(LimitKind.CONNECT_INTERVAL)
    limits = limits_path(result.said, share.policy, share.condition)
    made = share.set_by
    return (
        _policy_name(share.policy, result),
        _counted_as(result.said.policies[share.policy].fields, share.key),
        f"what {set_text(made)}" if made else _limits_of(share.condition, limits, result),
        texts.get(LimitKind.CONCURRENCY, "no limit"),
        texts.get(LimitKind.RATE, "no limit"),
        f"{gap} s" if gap else "none",
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
        **QUOTA_LIMIT.json(limit or QuotaLimit()),
        "used": plain(share.used),
        "refuses": share.refuses,
    }


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
        yield printable(f"Parked with this file: run-time condition {condition.order.id}: {condition.parked}.")
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
            order_json(result.suspensions[name]) for name in one.suspensions if name in result.suspensions
        ],
    }


def share_json(share: PolicyShare, said: PickupPolicies, line: Callable[[DocumentPath], int]) -> dict[str, Any]:
    """What a policy means for a mail; `line` gives the line of a place in the file."""
    limits = None if share.set_by else limits_path(said, share.policy, share.condition)
    fields = said.policies[share.policy].fields
    return {
        "policy": share.policy + 1,
        "line": line(policy_path(share.policy)),
        "key": {field.value: text for field, text in zip(fields, share.key, strict=True)},
        "condition": None if share.condition is None else share.condition + 1,
        "limits_line": line(limits) if limits else None,
        **THRESHOLD.json(share.threshold),
        "set_by": order_json(share.set_by) if share.set_by else None,
    }


FILE_ARGUMENT: Final = click.Argument(["file"], type=FILE, metavar="FILE")


_ONE_VALUE: Final = {name: field for name, field in MAIL_FIELDS.items() if field[0] is not PickupField.LOCAL_IP}
_MAIL: Final = Shared(
    "values",
    {
        "Which mail": tuple(
            option(
                f"--{name.replace('_', '-')}",
                f"{text.partition(';')[0]}. [default: empty]",
                type=ParsedValue("value", named.normal),
                metavar="VALUE",
            )
            for name, (named, text) in _ONE_VALUE.items()
        )
    },
    lambda own, _others, _context: {
        field: own[name] for name, (field, _) in _ONE_VALUE.items() if own[name] is not None
    },
)


_QUEUE: Final = queue_settings(ledger=True)


def _settings_if_named(own: Values, others: Values, context: click.Context) -> QueueSettings | None:
    """None, so that nothing is connected to, where no queue is named on the command line."""
    if others["queue_named"] or context.get_parameter_source("queue") is TYPED:
        found: QueueSettings = _QUEUE.build(own, others, context)
        return found
    del others["queue_named"]
    return None


_QUEUE_IF_NAMED: Final = Shared("settings", _QUEUE.groups, _settings_if_named)

EXPLAIN: Final = Command(
    name="explain",
    summary="Say what a policy file means for a mail.",
    about="""It shows which policies count the mail, and as what; which condition, or the default, sets its limits, and
    at which line of the file; what suspends the mail; which of the addresses that it may be sent from are left; and
    which quotas of the queue count it. The answer comes from the engine with which `delivery serve` picks mails, with
    nothing else to deliver. No limit is reached yet, so a mail that is held back here is suspended, or its limits allow
    no delivery at all. Without QUEUE the command asks no server. It needs mailmend[delivery].

    With QUEUE typed, here or as --queue, the orders for that queue count too: limits set by `policy add`, mails
    suspended by `suspend add`, and what hooks ordered of both. If the file has quotas, the mails of the queue are
    counted, which reads its whole listing. For what servers have under way, and for their parts of shared limits, use
    `delivery explain`.""",
    service="mailmend.admin.delivery.policy_explain:explain",
    present="mailmend.admin.delivery.policy_explain:explain_document",
    options=(
        FILE_ARGUMENT,
        QUEUE_ARGUMENT,
        option(
            "--local-ip",
            "Address that it is sent from; may be given again: each is looked at. [default: any]",
            type=ParsedValue("address", PickupField.LOCAL_IP.normal),
            multiple=True,
            metavar="VALUE",
        ),
    ),
    shared=(_MAIL, _QUEUE_IF_NAMED),
    examples="""
        mailmend policy explain policies.yaml --domain example.org
        mailmend policy explain policies.yaml --domain example.org --remote-mx mx1.example.net --transport alerts
        mailmend policy explain policies.yaml outgoing --domain example.org       with what is ordered for the queue
        mailmend policy explain policies.yaml --local-ip 192.0.2.1 --local-ip 192.0.2.2 --domain example.org --json""",
    exits="0 it was explained, whether the mail is held back or not; 2 wrong use, or the server would refuse the file; "
    "4 the cluster of the queue cannot be reached.",
)
