"""Policy files of `mailmend delivery serve`, looked at without a server, by the code that the server uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mailmend.admin.delivery.connections import policy_file
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.delivery.mail.attempts import NextHop, SourceAddress
from mailmend.delivery.mail.envelopes import counted_mail
from mailmend.delivery.policy.conditions import MadeCondition, PlacedCondition, with_conditions
from mailmend.delivery.policy.explaining import QuotaShare, SourceExplanation, as_in_file, explain_mail, explain_quotas
from mailmend.delivery.policy.file.errors import BadPolicyFile
from mailmend.delivery.policy.file.schema import JsonSchema, policy_schema
from mailmend.delivery.policy.lint import PolicyRule, lint_policies
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import CountedTogether, PickupField
from mailmend.delivery.policy.quotas import QueueQuota, QuotaCount
from mailmend.delivery.policy.sub_queues import ANY_SOURCE, ActiveMail
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.model.errors import ExitCode
from mailmend.model.ids import QueueName
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
        return ExitCode.DRIFT if self.findings else ExitCode.FINE


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
    found = [
        PlacedFinding(
            policy.rule, policy.hit.text, read.place_of(policy.hit.path), tuple(map(read.place_of, policy.hit.because))
        )
        for policy in lint_policies(read.said)
    ]
    return PolicyLintResult(file, tuple(sorted(found, key=lambda one: (one.place.line, one.place.column))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExplainRequest:
    """Which mail is asked about.

    Attributes:
        values: of the mail, without the address that it is sent from; fields that are not there are empty.
        local_ip: addresses that it may be sent from; (): it is not said which.
        settings: of the queue that it is asked beside; None: of the file alone.
    """

    file: Path
    values: Mapping[PickupField, str] = field(default_factory=dict)
    local_ip: tuple[str, ...] = ()
    settings: QueueSettings | None = None


@dataclass(frozen=True, slots=True)
class QueueOrders:
    """What is ordered for a queue beside its policy file, and what is in it.

    Attributes:
        conditions: those that hold now.
        suspensions: likewise.
        count: None: the file has no quotas, so that nothing was counted.
    """

    conditions: Sequence[MadeCondition] = ()
    suspensions: Sequence[MadeSuspension] = ()
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
        parked: run-time conditions of the queue that set no limits beside this file.
    """

    request: PolicyExplainRequest
    said: PickupPolicies
    values: Mapping[PickupField, str]
    sources: tuple[SourceExplanation, ...]
    other_family: tuple[str, ...]
    unsaid: tuple[PickupField, ...]
    places: Mapping[DocumentPath, Place]
    quotas: tuple[QuotaShare, ...] = ()
    suspensions: Mapping[str, MadeSuspension] = field(default_factory=dict)
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
    now = connections.now
    conditions = connections.existing_conditions()
    suspensions = connections.existing_suspensions()
    return QueueOrders(
        [condition for condition in await conditions.of(queue) if not condition.has_ended(now)] if conditions else (),
        [suspension for suspension in await suspensions.of(queue) if not suspension.has_ended(now)]
        if suspensions
        else (),
        await _counted(file.quotas, connections) if file.quotas else None,
    )


async def _counted(quotas: tuple[QueueQuota, ...], connections: QueueConnections) -> QuotaCount:
    count = QuotaCount(quotas)
    async with connections.open(dry_run=True) as queue:
        async for listed in queue.browse():
            count.add(counted_mail(listed.queued.mail))
    return count


def reaching(sources: Sequence[str], server: str) -> tuple[str, ...]:
    """Those of the family of the server's address; all, where that is not known."""
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


def policy_path(policy: int) -> DocumentPath:
    return ("policies", policy)


def suspension_path(suspension: int) -> DocumentPath:
    return ("suspends", suspension)


def quota_path(quota: int) -> DocumentPath:
    return ("quotas", quota)


def quota_limit_path(file: PickupPolicies, share: QuotaShare) -> DocumentPath | None:
    """As `limits_path`."""
    return _limits(file.quotas[share.quota], quota_path(share.quota), share.condition)


def limits_path(file: PickupPolicies, policy: int, condition: int | None) -> DocumentPath | None:
    """The way to what sets the limits: a condition or the default; None where there is neither."""
    return _limits(file.policies[policy], policy_path(policy), condition)


def _limits(counted: CountedTogether[Any], path: DocumentPath, condition: int | None) -> DocumentPath | None:
    if condition is not None:
        return (*path, "conditions", condition)
    return (*path, "default") if counted.default else None
