"""Routes that say why a mail waits: by its id, or by what it would be counted as."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.explain import explanation_json, values_json
from mailmend.admin.delivery.http.entries import IntentBody, OrderBody
from mailmend.admin.delivery.http.orders import MadeConditionBody, SuspensionBody
from mailmend.admin.delivery.http.shared import READS_THROUGH, Instant, ServerDesk, StrictBody, normal_at, responses
from mailmend.admin.frame.http.application import Reader
from mailmend.delivery.mail.entries import EntryStage
from mailmend.delivery.policy.policy import PickupField

EXPLAIN: Final = APIRouter(tags=["explain"])
Value = Annotated[str, Field(max_length=1000)] | SkipJsonSchema[None]


class ExplainRate(StrictBody):
    """At most `count` deliveries in `seconds` seconds."""

    count: int
    seconds: float


class ShareBody(StrictBody):
    """What one policy means for the mail at this moment."""

    policy: int = Field(description="Its number in the file, from 1.")
    line: int
    key: dict[PickupField, str] = Field(description="As what it counts the mail.")
    condition: int | None = Field(description="The one that sets the limits, from 1; null: the default.")
    limits_line: int | None
    concurrency: int | None
    rate: ExplainRate | None
    connect_interval_seconds: float | None
    stop: bool
    cluster: bool = Field(description="Whether the servers of the queue share the limits, where they can.")
    shared: bool = Field(description="Whether they do: these are this server's part.")
    elsewhere: bool = Field(description="This server has no part of them, others have.")
    set_by: MadeConditionBody | None = Field(description="The run-time condition that sets the limits; null: the file.")
    delivering: int = Field(description="Deliveries of what is counted so that go on.")
    refuses: bool
    free_at: Instant | None = Field(description="Refusing until then; null: it does not, or one has to end first.")
    rate_free_at: Instant | None
    connect_free_at: Instant | None


class UnconsultedBody(StrictBody):
    """A policy behind one that stops."""

    policy: int
    line: int


class FileSuspension(StrictBody):
    """A suspension of the policy file that holds the mail."""

    suspension: int
    line: int


class SourceBody(StrictBody):
    """What holds for the mail if it is sent from this address; "" is any."""

    localip: str
    has_share: bool = Field(description="Whether this server knows its part of shared limits now.")
    is_left: bool = Field(description="Whether it may be sent from there now.")
    free_at: Instant | None = Field(description="From when it may; null: now, or unknown.")
    policies: list[ShareBody]
    not_consulted: list[UnconsultedBody]
    suspensions: list[FileSuspension]
    suspended_by: list[SuspensionBody] = Field(description="Suspensions by hand that hold it.")


class WaitsOnBody(StrictBody):
    """What wakes it: a policy and what it counts together, a suspension that ends, or the server's part of limits."""

    policy: int | SkipJsonSchema[None] = None
    line: int | SkipJsonSchema[None] = None
    key: dict[PickupField, str] | SkipJsonSchema[None] = None
    suspension: str | SkipJsonSchema[None] = None
    share: bool | SkipJsonSchema[None] = None


class StandingBody(StrictBody):
    """The state of a recipient, and why it waits."""

    id: str
    recipient: str
    here: bool = Field(description="Whether this server has it; else it is told as the queue knows it.")
    stage: EntryStage | str = Field(description="Within the server, or hold, defer, active as the queue knows it.")
    since: Instant | None = Field(description="Since when this server has its mail.")
    returns_at: Instant | None = Field(description="It goes back to the queue then, if it was not picked.")
    expires_at: Instant | None
    due_at: Instant | None
    order: OrderBody | None
    after_attempt: IntentBody | None = Field(description="What follows if this attempt does not deliver it.")
    retries: int
    reply: str | None
    host: str | None
    counted_as: dict[PickupField, str] | None
    sources: list[SourceBody]
    goes_from: str | None = Field(description="From where it goes, or will go as far as is known.")
    goes_at: Instant | None = Field(description="null: now; or unknown, where goes_from is null too.")
    ahead: int | None = Field(description="Mails that are counted as it is and come before it.")
    waits_on: list[WaitsOnBody]
    why: list[str] = Field(description="The same in sentences.")


class ExplanationAnswer(StrictBody):
    """Why a mail's recipients wait."""

    server: str
    at: Instant
    queue: str
    entries: list[StandingBody]


class ValuesAnswer(StrictBody):
    """What holds for a mail with these values at this moment."""

    server: str
    at: Instant
    queue: str
    mail: dict[PickupField, str]
    sources: list[SourceBody]
    goes_from: str | None
    goes_at: Instant | None
    why: list[str]


class ValuesQuery(StrictBody):
    """Of a mail; what is not named is empty."""

    transport: Value = None
    remote_ip: Value = None
    remote_mx: Value = None
    domain: Value = None
    job: Value = None
    grouping: Value = None
    tenant: Value = None
    local_ip: Annotated[
        tuple[Annotated[str, Field(max_length=100)], ...],
        Field(max_length=100, description="Addresses that it may be sent from; else the server's own."),
    ] = ()


_FIELDS: Final = {
    "transport": PickupField.TRANSPORT_ID,
    "remote_ip": PickupField.REMOTE_IP,
    "remote_mx": PickupField.REMOTE_MX,
    "domain": PickupField.RECIPIENT_DOMAIN,
    "job": PickupField.JOB_ID,
    "grouping": PickupField.GROUPING,
    "tenant": PickupField.TENANT_ID,
}


@EXPLAIN.get(
    "/explain",
    responses=responses(ValuesAnswer, "What holds for it."),
    summary="What would hold for a mail that is not there",
)
async def explain_values(desk: ServerDesk, _: Reader, query: Annotated[ValuesQuery, Query()]) -> Response:
    """As `mailmend policy explain`, with all that goes on in this server now."""
    values = dict[PickupField, str]()
    for name, field in _FIELDS.items():
        text = getattr(query, name)
        if text is not None:
            values[field] = normal_at(f"query parameter {name}", field.normal, text)
    return JSONResponse(values_json(desk.explained_by_values(values, query.local_ip)))


@EXPLAIN.get(
    "/explain/{id}",
    responses=responses(ExplanationAnswer, "Its recipients.", _404="There is no such mail.", **READS_THROUGH),
    summary="Why a mail waits",
)
async def explain(
    desk: ServerDesk,
    _: Reader,
    id: Annotated[str, Path(description="Of a mail, or `MAIL:NUMBER`.")],  # noqa: A002
) -> Response:
    """On which policies and suspensions, until when, and from which address it will go."""
    return JSONResponse(explanation_json(await desk.explained(id)))
