"""`mailmend policy explain`: what a policy file means for a mail, by the engine of the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.delivery.options import DECLARED_ATTRIBUTE, MAIL_FIELDS, mail_option
from mailmend.admin.delivery.orders import holding
from mailmend.admin.delivery.policy_arrivals import (
    ARRIVAL,
    ArrivalExplanation,
    ArrivalRequest,
    arrival_paths,
    explain_arrival,
)
from mailmend.admin.delivery.policy_texts import (
    limits_path,
    policy_path,
    quota_limit_path,
    quota_path,
    refuse_undeclared,
    suspension_path,
    transport_path,
)
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import this_clock
from mailmend.admin.frame.command import TYPED, Command, Shared, Values
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import FILE, option
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import QUEUE_ARGUMENT, queue_settings
from mailmend.delivery.mail.attempts import NextHop
from mailmend.delivery.mail.envelopes import counted_mail
from mailmend.delivery.policy.explaining import (
    QuotaShare,
    SourceExplanation,
    as_in_file,
    explain_mail,
    explain_quotas,
)
from mailmend.delivery.policy.orders import Order, OrderKind, PlacedCondition, with_conditions
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import PickupField, custom_field
from mailmend.delivery.policy.quotas import QueueQuota, QuotaCount
from mailmend.delivery.policy.sub_queues import ANY_SOURCE, ActiveMail
from mailmend.delivery.transports import SourceAddress, transport_with
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.texts import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExplainRequest:
    """Which mail is asked about.

    Attributes:
        values: of the mail, without the address that it is sent from; fields that are not there are
            empty.
        local_ip: addresses that it may be sent from; (): it is not said which.
        settings: of the queue whose orders count too; None: the file alone counts.
        arrival: how it comes in; None: it is not said.
    """

    file: Path
    values: Mapping[PickupField, str] = field(default_factory=dict)
    local_ip: tuple[str, ...] = ()
    settings: QueueSettings | None = None
    arrival: ArrivalRequest | None = None


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
        transport: of the file, whose addresses the mail is sent from; None: others were given,
            or the file has no addresses for it.
        arrival: what rules make of it as it comes in; None: it is not said how it comes in.
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
    transport: str | None = None
    arrival: ArrivalExplanation | None = None

    @property
    def queue(self) -> QueueName | None:
        if self.request.settings is None:
            return None
        return self.request.settings.name

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
    refuse_undeclared(request.values, read.said)
    values = {named: named.normal(text) for named, text in request.values.items()}
    given = tuple(dict.fromkeys(PickupField.LOCAL_IP.normal(address) for address in request.local_ip))
    transport = None
    if not given:
        wanted = values.get(PickupField.TRANSPORT_ID, "")
        transport = transport_with("sources", wanted, read.said.transports)
    if transport is not None:
        sources = read.said.transports[transport].sources or ()
        given = tuple(source.address for source in sources)
    left = reaching(given, values.get(PickupField.REMOTE_IP, ""))
    orders = QueueOrders()
    if request.settings:
        orders = with_queues(request.settings, partial(_orders_of, read.said))
    policies, placed = with_conditions(read.said.policies, orders.conditions, read.said.algorithm)
    held = (*read.said.suspensions, *(suspension.suspension(None) for suspension in orders.suspensions))
    beside = replace(read.said, policies=policies, suspensions=held)
    unsaid = _used_fields(read.said) - set(values)
    mail = ActiveMail("", values, ANY_SOURCE)
    if given:
        unsaid.discard(PickupField.LOCAL_IP)
        mail = ActiveMail("", values, left)
    explained = as_in_file(explain_mail(beside, mail), placed)
    quotas = explain_quotas(read.said.quotas, values, orders.count)
    arrival = None
    if request.arrival:
        arrival = explain_arrival(read.said, request.arrival, instant_of(this_clock().micros()))
    paths = {*_spoken_of(read.said, explained, quotas, transport), *arrival_paths(arrival)}
    return PolicyExplanation(
        request,
        read.said,
        values,
        explained,
        tuple(address for address in given if address not in left),
        tuple(named for named in (*PickupField, *read.said.custom.values()) if named in unsaid),
        {path: read.place_of(path) for path in paths},
        quotas,
        {str(suspension.id): suspension for suspension in orders.suspensions},
        tuple(condition for condition in placed if condition.parked),
        transport,
        arrival,
    )


async def _orders_of(file: PickupPolicies, connections: QueueConnections) -> QueueOrders:
    """What holds now; reading it creates no ledger. The queue is counted where the file has quotas."""
    queue = connections.settings.name
    conditions = await holding(connections, OrderKind.CONDITION, queue)
    suspensions = await holding(connections, OrderKind.SUSPENSION, queue)
    count = None
    if file.quotas:
        count = await _counted(file.quotas, connections)
    return QueueOrders(conditions, suspensions, count)


async def _counted(quotas: tuple[QueueQuota, ...], connections: QueueConnections) -> QuotaCount:
    count = QuotaCount(quotas)
    async with connections.open(dry_run=True) as queue:
        async for listed in queue.browse():
            count.add(counted_mail(listed.queued.mail))
    return count


def reaching(sources: Sequence[str], server: str) -> tuple[str, ...]:
    """The sources of the family of the server's address; all, where that family is not known."""
    hop = NextHop(server, server)
    return tuple(source for source in sources if not server or SourceAddress(source).reaches(hop.address))


def suspension_numbers(source: SourceExplanation, said: PickupPolicies) -> list[int]:
    """The numbers of the file's suspensions that hold the mail."""
    return [number for number, suspension in enumerate(said.suspensions) if suspension.id in source.suspensions]


def _used_fields(file: PickupPolicies) -> set[PickupField]:
    used = set[PickupField]()
    for policy in file.policies:
        used.update(policy.fields)
    for quota in file.quotas:
        used.update(quota.fields)
    for suspension in file.suspensions:
        used.update(suspension.patterns)
    return used


def _spoken_of(
    file: PickupPolicies,
    sources: Sequence[SourceExplanation],
    quotas: Sequence[QuotaShare],
    transport: str | None,
) -> set[DocumentPath]:
    """The policies and quotas, all of them, and what else of the file counts for the mail."""
    paths = {policy_path(number) for number in range(len(file.policies))}
    limits = list[DocumentPath | None]()
    for source in sources:
        paths.update(map(suspension_path, suspension_numbers(source, file)))
        limits += [limits_path(file, share.policy, share.condition) for share in source.shares]
    for quota in quotas:
        paths.add(quota_path(quota.quota))
        limits.append(quota_limit_path(file, quota))
    if transport is not None:
        paths.add(transport_path(transport))
    return paths | {path for path in limits if path}


FILE_ARGUMENT: Final = click.Argument(["file"], type=FILE, metavar="FILE")


_ONE_VALUE: Final = {name: field for name, (field, _) in MAIL_FIELDS.items() if field is not PickupField.LOCAL_IP}


def _mail_values(own: Values, _others: Values, _context: click.Context) -> dict[PickupField, str]:
    values = dict[PickupField, str]()
    for name, named in _ONE_VALUE.items():
        if own[name] is not None:
            values[named] = own[name]
    for name, text in own["attribute"]:
        values[custom_field(name)] = text
    return values


_MAIL: Final = Shared(
    "values",
    {
        "Which mail": (
            *map(mail_option, _ONE_VALUE),
            DECLARED_ATTRIBUTE,
        ),
    },
    _mail_values,
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

    With QUEUE typed, here or as --queue, the orders for that queue count too: limits set by `policy
    add`, mails suspended by `suspend add`, and what hooks ordered of both. If the file has quotas,
    the mails of the queue are counted, which reads its whole listing. For what servers have under
    way, and for their parts of shared limits, use `delivery explain`.

    With an option of how it comes in, the command also shows which rules of `incoming` hold, what
    they set, and whether the mail is held, delayed or refused.""",
    service="mailmend.admin.delivery.policy_explain:explain",
    present="mailmend.admin.delivery.policy_explain_document:explain_document",
    paged=True,
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
    shared=(_MAIL, ARRIVAL, _QUEUE_IF_NAMED),
    examples="""
        mailmend policy explain policies.yaml --domain example.org
        mailmend policy explain policies.yaml --domain example.org --remote-mx mx1.example.net --transport alerts
        mailmend policy explain policies.yaml outgoing --domain example.org       with what is ordered for the queue
        mailmend policy explain policies.yaml --client 10.0.0.7 --header X-Job=daily
        mailmend policy explain policies.yaml --local-ip 192.0.2.1 --local-ip 192.0.2.2 --domain example.org --json""",
    exits="0 it was explained, whether the mail is held back or not; 2 wrong use, or the server would refuse the file; "
    "4 the cluster of the queue cannot be reached.",
)
