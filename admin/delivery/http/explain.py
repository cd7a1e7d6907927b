"""Routes that say why a mail waits: by its id, or by what it would be counted as.

An answer has figures for programs and sentences for people.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.delivery.desk import (
    ExceededAtServer,
    MailExplanation,
    QueuedStanding,
    ServerMoment,
    ValuesExplanation,
)
from mailmend.admin.delivery.entries import intent_text
from mailmend.admin.delivery.exceeded import EXCEEDED, EXCEEDED_MAX, EXCEEDED_SHOWN
from mailmend.admin.delivery.explain_answers import MAIL_EXPLANATION, SHARE, SOURCE, STANDING, VALUES_EXPLANATION
from mailmend.admin.delivery.http.shared import READS_THROUGH, ServerDesk, answer_model
from mailmend.admin.delivery.orders_document import set_text, suspended_text
from mailmend.admin.delivery.policy_explain import suspension_numbers
from mailmend.admin.delivery.policy_explain_document import refusals_json, share_places
from mailmend.admin.delivery.policy_texts import counted_json, counted_text, policy_path, suspension_path
from mailmend.admin.frame.http.application import Reader
from mailmend.admin.frame.http.bodies import StrictBody, normal_at, responses
from mailmend.admin.frame.values import plain, shown
from mailmend.delivery.mail.entries import EntryChange, EntryStage, EntryState, QueuedEntry
from mailmend.delivery.policy.explaining import GATE, SUSPENDED, NextSource, PolicyShare, SourceExplanation
from mailmend.delivery.policy.policies import DocumentPath
from mailmend.delivery.policy.policy import CounterKey, PickupField
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.sub_queues import UNKNOWN
from mailmend.delivery.server.explaining import EntryStanding

EXPLAIN: Final = APIRouter(tags=["explain"])
Value = Annotated[str, Field(max_length=1000)] | SkipJsonSchema[None]
ExceededLimit = Annotated[
    int,
    Query(ge=1, le=EXCEEDED_MAX, description="Maximum number of entries."),
]


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
        Field(
            max_length=100,
            description="Addresses that it may be sent from; else its transport's, or the server's.",
        ),
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
    responses=responses(answer_model(VALUES_EXPLANATION), "What holds for it."),
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
    responses=responses(
        answer_model(MAIL_EXPLANATION), "Its recipients.", _404="There is no such mail.", **READS_THROUGH
    ),
    summary="Why a mail waits",
)
async def explain(
    desk: ServerDesk,
    _: Reader,
    id: Annotated[str, Path(description="Of a mail, or `MAIL:NUMBER`.")],  # noqa: A002
) -> Response:
    """On which policies and suspensions, until when, and from which address it will go."""
    return JSONResponse(explanation_json(await desk.explained(id)))


@EXPLAIN.get(
    "/suspensions/exceeded",
    responses=responses(answer_model(EXCEEDED), "The entries."),
    summary="Which thresholds are exceeded now",
)
async def exceeded(desk: ServerDesk, _: Reader, limit: ExceededLimit = EXCEEDED_SHOWN) -> Response:
    """Of this server: entries of counters that let no delivery begin, and the mails that wait."""
    return JSONResponse(exceeded_json(desk.exceeded(limit)))


_AT_WORK: Final = {
    EntryStage.PRE_DELIVERY: "A hook decides about it, before its attempt.",
    EntryStage.DNS: "The servers of its domain are looked up.",
    EntryStage.POST_DELIVERY: "It was tried; what becomes of it is decided.",
}


def explanation_json(result: MailExplanation) -> dict[str, Any]:
    """A mail's recipients, each with all that is known of why it waits."""
    entries = [_standing_json(standing, result.moment) for standing in result.here]
    if not entries:
        entries = [_queued_json(standing, result.moment) for standing in result.queued]
    found: dict[str, Any] = plain(MAIL_EXPLANATION.json(result, entries=entries))
    return found


def values_json(result: ValuesExplanation) -> dict[str, Any]:
    """What would hold for a mail with these values."""
    moment = result.moment
    sources = [_source_json(source, moment) for source in result.sources]
    why = [*refusals_of(result.sources, moment), *_from_where(result.sources, result.goes, moment)]
    goes = _goes_json(result.goes, moment)
    found: dict[str, Any] = plain(VALUES_EXPLANATION.json(result, sources=sources, **goes, why=why))
    return found


def exceeded_json(result: ExceededAtServer) -> dict[str, Any]:
    """The entries whose thresholds are exceeded, each with its policy and a sentence."""
    moment = result.moment
    entries = list[Mapping[str, Any]]()
    for entry in result.entries:
        figures = {"since": known_instant(entry.since, moment), "waiting": entry.waiting}
        why = _of_share(entry.share, moment)
        entries.append({**_share_json(entry.share, moment), **figures, "why": why})
    found: dict[str, Any] = plain(EXCEEDED.json(result, exceeded=entries))
    return found


def _standing_json(standing: EntryStanding, moment: ServerMoment) -> dict[str, Any]:
    held = standing.held
    stage = standing.entry.stage
    if standing.ended:
        stage = EntryStage.GONE
    goes = standing.goes
    if standing.picked:
        goes = NextSource(standing.picked.source)
    counted_as = None
    if standing.counted:
        counted_as = standing.counted.values
    returns_at = None
    ahead = None
    if standing.sources:
        waits_until = moment.server.returns_at(held)
        if waits_until is not None:
            returns_at = moment.at_nanos(waits_until)
        ahead = standing.ahead
    return STANDING.json(
        standing,
        here=True,
        stage=stage,
        since=moment.at_nanos(held.taken_at),
        returns_at=returns_at,
        expires_at=moment.at_nanos(held.expires_at),
        due_at=None,
        counted_as=counted_as,
        sources=[_source_json(source, moment) for source in standing.sources],
        **_goes_json(goes, moment),
        ahead=ahead,
        waits_on=[_place_json(place, moment) for place in standing.waits_on],
        why=[*_sentences(standing, moment), *_intended(standing.after_attempt)],
    )


def _queued_json(standing: QueuedStanding, moment: ServerMoment) -> dict[str, Any]:
    queued = standing.queued
    why = [_rests(queued)]
    sources: list[dict[str, Any]] = []
    goes = None
    alike = standing.alike
    if alike:
        why += _of_alike(alike, moment)
        sources = [_source_json(source, moment) for source in alike.sources]
        goes = alike.goes
    return STANDING.json(
        queued,
        here=False,
        stage=queued.state,
        since=None,
        returns_at=None,
        expires_at=queued.mail.expires_at,
        due_at=queued.due_at,
        counted_as=None,
        sources=sources,
        **_goes_json(goes, moment),
        ahead=None,
        waits_on=[],
        why=[*why, *_intended(queued.after_attempt)],
    )


def _of_alike(alike: ValuesExplanation, moment: ServerMoment) -> Iterator[str]:
    """What refuses a mail like it here; the servers of its domain are not looked up for that."""
    refusals = list(refusals_of(alike.sources, moment))
    if refusals:
        yield "A mail like it waits here for this:"
        yield from refusals
    else:
        yield "Nothing refuses a mail like it here, as far as its envelope tells."


def _intended(change: EntryChange | None) -> Iterator[str]:
    if change:
        yield f"Ordered: {intent_text(change)}."


def _rests(queued: QueuedEntry) -> str:
    entry = queued.entry
    order = entry.order
    if order:
        what = "To be bounced by the next server that takes it"
        if queued.state is EntryState.HOLD:
            what = "Held"
        return f"{what}, by {order.owner} since {shown(order.at)}: {order.reason or 'no reason is given'}."
    if queued.due_at and entry.refusals:
        said = f"after {entry.refusals:,} refusals; the last one: {entry.reply}"
        return f"Deferred until {shown(queued.due_at)}, {said}."
    if queued.due_at:
        return f"Deferred until {shown(queued.due_at)}."
    return "Active, and not with this server: it is behind others in a backlog, or elsewhere."


def _sentences(standing: EntryStanding, moment: ServerMoment) -> Iterator[str]:
    if standing.ended:
        yield f"It has ended: {standing.ended.end.value}. Its mail is here until its other recipients have ended."
    elif standing.picked:
        values = standing.picked.mail.values
        by = ""
        if standing.picked.source:
            by = f" from {standing.picked.source}"
        host = values.get(PickupField.REMOTE_MX, "")
        address = values.get(PickupField.REMOTE_IP, "")
        yield f"It is being delivered to {host} ({address}){by}."
    elif standing.sources:
        yield from refusals_of(standing.sources, moment)
        yield from _from_where(standing.sources, standing.goes, moment)
        if standing.ahead:
            yield f"Mails that are counted as it is and come before it: {standing.ahead:,}."
        waits_until = moment.server.returns_at(standing.held)
        if waits_until is not None:
            returns_at = shown(moment.at_nanos(waits_until))
            yield f"If it is not picked until {returns_at} it goes back to the queue for a while."
    else:
        yield _AT_WORK.get(standing.entry.stage, f"It is at the stage {standing.entry.stage.value}.")


def _from_where(sources: Sequence[SourceExplanation], goes: NextSource | None, moment: ServerMoment) -> Iterator[str]:
    if not sources:
        yield "None of our addresses reaches its server."
    elif goes is None:
        anywhere = ", from whichever address" if sources[0].source else ""
        yield f"It is unknown when it may go{anywhere}."
    elif goes.clear_at is not None:
        by = f", from {goes.source}" if goes.source else ""
        yield f"The soonest that it may go is {shown(moment.at_nanos(goes.clear_at))}{by}."
    else:
        by = f": it would go from {goes.source} now" if goes.source else ""
        yield f"Nothing refuses it{by}."
        if moment.server.is_full:
            most = moment.server.settings.concurrency
            yield f"All {most:,} attempts that this server may make at once go on: one has to end first."


def _goes_json(goes: NextSource | None, moment: ServerMoment) -> dict[str, Any]:
    if goes is None:
        return {"goes_from": None, "goes_at": None}
    return {"goes_from": goes.source, "goes_at": known_instant(goes.clear_at, moment)}


def refusals_of(sources: Sequence[SourceExplanation], moment: ServerMoment) -> Iterator[str]:
    """What refuses it: once where that is the same from every address, else from each."""
    answers = [list(_of_source(source, moment)) for source in sources]
    if not answers:
        return
    first, *others = answers
    if all(answer == first for answer in others):
        yield from first
        return
    for source, answer in zip(sources, answers, strict=True):
        for line in answer:
            yield f"From {source.source}: {line}"


def _of_source(source: SourceExplanation, moment: ServerMoment) -> Iterator[str]:
    for share in source.shares:
        if share.refuses:
            yield _of_share(share, moment)
    if not source.has_share:
        yield "This server does not know its part of shared limits now: see mailmend delivery servers."
    for number in suspension_numbers(source, moment.policies.said):
        yield f"Suspended by the policy file, line {line_of(moment, suspension_path(number))}."
    heeded = moment.suspensions
    for name in source.suspensions:
        if name in heeded:
            yield suspended_text(heeded[name])


def _of_share(share: PolicyShare, moment: ServerMoment) -> str:
    policy = moment.policies.said.policies[share.policy]
    threshold = share.threshold
    counted = counted_text(dict(zip(policy.fields, share.key, strict=True))) or "every mail"
    line = line_of(moment, policy_path(share.policy))
    what = f"Policy {share.policy + 1} (line {line}) counts it as {counted}"
    if not line:
        what = f"The default limit (--domain-concurrency) counts it as {counted}"
    if share.set_by:
        what += f", with limits that {set_text(share.set_by)}"
    if share.elsewhere:
        return f"{what}: other servers of the queue have the whole of this limit, as it is below their number."
    if share.shared:
        what += ", and of the limit this server has its part"
    if threshold.concurrency == 0:
        return f"{what}: none of these may begin."
    if share.clear_at == UNKNOWN:
        most = "deliveries"
        if threshold.concurrency:
            most = f"{share.delivering:,} of {threshold.concurrency:,} deliveries"
        return f"{what}: {most} go on, and one has to end first."
    until = shown(moment.at_nanos(share.clear_at or moment.nanos))
    rate = threshold.rate
    if rate and share.rate_at == share.clear_at:
        return f"{what}: {rate.count:,} in {rate.interval / SECOND:.9g} s may begin, the next one at {until}."
    return f"{what}: the next connection may begin at {until}."


def _source_json(source: SourceExplanation, moment: ServerMoment) -> dict[str, Any]:
    return SOURCE.json(
        source,
        free_at=known_instant(source.clear_at, moment),
        policies=[_share_json(share, moment) for share in source.shares],
        **refusals_json(source, moment.policies.said, moment.suspensions, partial(line_of, moment)),
    )


def _share_json(share: PolicyShare, moment: ServerMoment) -> dict[str, Any]:
    return SHARE.json(
        share,
        **share_places(share, moment.policies.said, partial(line_of, moment)),
        free_at=known_instant(share.clear_at, moment),
        rate_free_at=known_instant(share.rate_at, moment),
        connect_free_at=known_instant(share.connect_at, moment),
    )


def _place_json(place: tuple[int, CounterKey], moment: ServerMoment) -> Mapping[str, Any]:
    number, key = place
    if number == GATE:
        return {"share": True}
    if number == SUSPENDED:
        return {"suspension": key[0]}
    counted = counted_json(moment.policies.said.policies[number].fields, key)
    return {"policy": number + 1, "line": line_of(moment, policy_path(number)), "key": counted}


def known_instant(nanos: int | None, moment: ServerMoment) -> datetime | None:
    """None: now, or unknown."""
    if nanos is None or nanos == UNKNOWN:
        return None
    return moment.at_nanos(nanos)


def line_of(moment: ServerMoment, path: DocumentPath) -> int:
    """The line of a place in the file; 0 for the limit of a domain where no file has policies."""
    return moment.policies.line(path) or 0
