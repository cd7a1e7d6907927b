"""Routes of the policies that this server works by."""

from typing import Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.http.shared import Instant, ServerDesk, StrictBody, responses
from mailmend.admin.delivery.policies_in_force import policies_json
from mailmend.admin.frame.http.callers import Operator, Reader, log_change
from mailmend.admin.frame.http.errors import error
from mailmend.delivery.policy.incoming import IncomingField
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.errors import WrongUse

POLICIES: Final = APIRouter(tags=["policies"])


class RateBody(StrictBody):
    """At most `count` deliveries in an interval."""

    count: int
    seconds: float


class ThresholdBody(StrictBody):
    """Limits; null is no limit."""

    concurrency: int | None
    rate: RateBody | None
    connect_interval_seconds: float | None = Field(description="Between two new connections.")
    stop: bool = Field(description="Later policies are not consulted.")
    cluster: bool = Field(description="Whether the servers of the queue share them; else each has all of them.")


class ConditionBody(StrictBody):
    """Limits of some values; the first condition that holds counts."""

    if_: dict[PickupField, list[str]] = Field(
        alias="if", description="Patterns by field, as a policy file spells them."
    )
    then: ThresholdBody


class PolicyBody(StrictBody):
    """What is counted together, and its limits."""

    policy: int = Field(description="Its number in the file, from 1.")
    line: int | None
    fields: list[PickupField]
    groups: dict[PickupField, dict[str, list[str]]]
    conditions: list[ConditionBody]
    default: ThresholdBody | None


class FileSuspensionBody(StrictBody):
    """What the file suspends."""

    suspension: int
    line: int | None
    fields: dict[PickupField, list[str]]


class SetAttributesBody(StrictBody):
    """What a rule sets; `${...}` stands for a group of its expression, or a field. What is not set is not there."""

    transportid: str | SkipJsonSchema[None] = None
    jobid: str | SkipJsonSchema[None] = None
    tenantid: str | SkipJsonSchema[None] = None
    grouping: str | SkipJsonSchema[None] = None
    expires: str | SkipJsonSchema[None] = Field(None, description="A span from when the mail came.")
    priority: str | SkipJsonSchema[None] = None
    attributes: dict[str, str] | SkipJsonSchema[None] = Field(None, description="Others, by name.")


class IncomingRuleBody(StrictBody):
    """What becomes of mails that clients hand over, where all of its patterns hold."""

    rule: int = Field(description="Its number in the file, from 1.")
    line: int | None
    if_: dict[IncomingField, list[str] | dict[str, list[str]]] = Field(
        alias="if", description="Patterns by field; for `header`, by the name of the header field."
    )
    set: SetAttributesBody
    remove: list[str] = Field(description="Header fields, in small letters.")
    stop: bool = Field(description="Later rules are not looked at.")


class QuotaLimitBody(StrictBody):
    """How much may be in the queue; null is no limit."""

    messages: int | None
    bytes: int | None


class QuotaConditionBody(StrictBody):
    """Limits of some values; the first condition that holds counts."""

    if_: dict[PickupField, list[str]] = Field(alias="if")
    then: QuotaLimitBody


class QuotaBody(StrictBody):
    """What of the queue is counted together, and how much of it there may be."""

    name: str
    line: int | None
    fields: list[PickupField]
    groups: dict[PickupField, dict[str, list[str]]]
    conditions: list[QuotaConditionBody]
    default: QuotaLimitBody | None


class KeptPolicy(StrictBody):
    """A policy whose counts go on; its numbers in the file before and now."""

    before: int
    now: int


class ReloadBody(StrictBody):
    """What reading the file again has done."""

    kept: list[KeptPolicy]
    new: list[int]
    dropped: list[int] = Field(description="Numbers in the file before.")


class PoliciesAnswer(StrictBody):
    """The policies that hold now."""

    file: str | None = Field(description="null: nothing is limited.")
    read_at: Instant
    algorithm: Literal["tokenbucket", "fixedwindow", "sliding"]
    policies: list[PolicyBody]
    suspends: list[FileSuspensionBody]
    incoming: list[IncomingRuleBody]
    quotas: list[QuotaBody]
    tenants: dict[str, int] = Field(description="What tenants weigh that weigh more than others.")
    reload: ReloadBody | None = Field(description="null: the file was read once, at the start.")


@POLICIES.get("/policies", responses=responses(PoliciesAnswer, "All of them."), summary="The policies in force")
async def policies(desk: ServerDesk, _: Reader) -> Response:
    """Of this server: what its policy file said when it was read."""
    return JSONResponse(policies_json(desk.policies))


@POLICIES.post(
    "/policies/reload",
    responses=responses(PoliciesAnswer, "The file was read.", _409="It cannot be used; all stays as it was."),
    summary="Read the policy file again",
)
async def reload(desk: ServerDesk, by: Operator, request: Request) -> Response:  # noqa: ARG001 - who it is counts
    """As SIGHUP: all of it or, where something is wrong, nothing; limits go on counting."""
    try:
        changes = desk.reload()
    except WrongUse as refused:
        return error(409, "WrongState", f"The policies stay as they were: {refused.what}", refused.mend)
    counts = {"kept": len(changes.kept), "new": len(changes.new), "dropped": len(changes.dropped)}
    log_change(request, "the policies were read again, as somebody asked", **counts)
    return JSONResponse(policies_json(desk.policies))
