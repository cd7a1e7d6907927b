"""Policy files of `mailmend delivery serve`, looked at without a server, by the code that the server uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from admin.services.caller import Caller
from admin.wiring.delivery import policy_file
from delivery.policy_schema import JsonSchema, policy_schema
from model.delivery.attempts import NextHop, SourceAddress
from model.errors import ExitCode
from model.pickup.explaining import QuotaShare, SourceExplanation, explain_mail, explain_quotas
from model.pickup.lint import PolicyRule, lint_policies
from model.pickup.policies import DocumentPath, PickupPolicies
from model.pickup.policy import CountedTogether, PickupField
from model.pickup.sub_queues import ANY_SOURCE, ActiveMail
from model.texts import Place


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
    """What was found, in the order of the file."""

    file: Path
    findings: tuple[PlacedFinding, ...]

    @property
    def exit(self) -> ExitCode:
        return ExitCode.DRIFT if self.findings else ExitCode.FINE


def schema() -> JsonSchema:
    """The JSON schema of a policy file."""
    return policy_schema()


def lint(file: Path) -> PolicyLintResult:
    """What of a policy file the server would take, although it is surely not meant.

    Raises:
        WrongUse: it cannot be read.
        BadPolicyFile: the server would not take it; the message says where.
    """
    read = policy_file(file)
    found = [
        PlacedFinding(one.rule, one.hit.text, read.place_of(one.hit.path), tuple(map(read.place_of, one.hit.because)))
        for one in lint_policies(read.said)
    ]
    return PolicyLintResult(file, tuple(sorted(found, key=lambda one: (one.place.line, one.place.column))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExplainRequest:
    """Which mail is asked about.

    Attributes:
        values: of the mail, without the address that it is sent from; fields that are not there are empty.
        local_ip: addresses that it may be sent from; (): it is not said which.
    """

    file: Path
    values: Mapping[PickupField, str] = field(default_factory=dict)
    local_ip: tuple[str, ...] = ()


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
    """

    request: PolicyExplainRequest
    said: PickupPolicies
    values: Mapping[PickupField, str]
    sources: tuple[SourceExplanation, ...]
    other_family: tuple[str, ...]
    unsaid: tuple[PickupField, ...]
    places: Mapping[DocumentPath, Place]
    quotas: tuple[QuotaShare, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(one.source for one in self.sources if one.is_left)


def explain(request: PolicyExplainRequest, _: Caller) -> PolicyExplanation:
    """Which policies count a mail, as what, with which limits, and what holds it back, by the engine's own rules.

    Raises:
        WrongUse: the file cannot be read, or something is no value of its field.
        BadPolicyFile: the server would not take the file; the message says where.
    """
    read = policy_file(request.file)
    values = {named: named.normal(text) for named, text in request.values.items()}
    given = tuple(dict.fromkeys(PickupField.LOCAL_IP.normal(one) for one in request.local_ip))
    left = reaching(given, values.get(PickupField.REMOTE_IP, ""))
    sources = explain_mail(read.said, ActiveMail("", values, left if given else ANY_SOURCE))
    named = {*values, *([PickupField.LOCAL_IP] if given else [])}
    quotas = explain_quotas(read.said.quotas, values)
    return PolicyExplanation(
        request,
        read.said,
        values,
        sources,
        tuple(one for one in given if one not in left),
        tuple(one for one in PickupField if one in _used_fields(read.said) - named),
        {path: read.place_of(path) for path in _spoken_of(read.said, sources, quotas)},
        quotas,
    )


def reaching(sources: Sequence[str], server: str) -> tuple[str, ...]:
    """Those of the family of the server's address; all, where that is not known."""
    hop = NextHop(server, server)
    return tuple(one for one in sources if not server or SourceAddress(one).reaches(hop))


def _used_fields(file: PickupPolicies) -> set[PickupField]:
    counted = (named for one in file.policies for named in one.fields)
    by_quotas = (named for one in file.quotas for named in one.fields)
    return {*counted, *by_quotas, *(named for one in file.suspensions for named in one.patterns)}


def _spoken_of(
    file: PickupPolicies, sources: Sequence[SourceExplanation], quotas: Sequence[QuotaShare]
) -> set[DocumentPath]:
    """The policies and quotas, all of them, and the conditions, defaults and suspensions that count for the mail."""
    paths = {policy_path(number) for number in range(len(file.policies))}
    held = {one for source in sources for one in source.suspensions}
    paths |= {suspension_path(number) for number, one in enumerate(file.suspensions) if one.id in held}
    shares = (share for one in sources for share in one.shares)
    for one in quotas:
        limits = quota_limit_path(file, one)
        paths |= {quota_path(one.quota), *([limits] if limits else [])}
    return paths | {path for one in shares if (path := limits_path(file, one.policy, one.condition))}


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
