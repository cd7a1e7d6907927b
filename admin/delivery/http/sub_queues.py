"""The route of a server's sub-queues: how many mails wait, the last reply, why and until when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from mailmend.admin.delivery.desk import ServerMoment, SubQueuesNow
from mailmend.admin.delivery.explain_answers import ON_A_SERVER
from mailmend.admin.delivery.http.explain import known_instant, line_of, refusals_of
from mailmend.admin.delivery.http.shared import ServerDesk, answer_model
from mailmend.admin.delivery.policy_explain import suspension_numbers
from mailmend.admin.delivery.policy_texts import counted_text, policy_path, suspension_path
from mailmend.admin.delivery.top import BY_DEFAULT, ROWS_MAX, SubQueueField
from mailmend.admin.frame.http.application import Reader
from mailmend.admin.frame.http.bodies import StrictBody, responses
from mailmend.admin.frame.values import plain
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.policy.explaining import (
    PolicyShare,
    SourceExplanation,
    explain_by,
    next_source,
)
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail
from mailmend.delivery.server.in_hand import SubQueueState
from mailmend.delivery.server.recent import COUNTED_FOR
from mailmend.model.json_forms import JsonField, JsonForm

SUB_QUEUES: Final = APIRouter(tags=["explain"])

_REPLY: Final = JsonForm(
    body="LastReplyBody",
    about="How the last attempt of a sub-queue ended.",
    answers={
        "at": JsonField(datetime),
        "outcome": JsonField(EntryEnd, "", "end"),
        "status": JsonField(str, "An enhanced status code, or empty."),
        "text": JsonField(str, "The reply of the server, else the server's own sentence."),
        "host": JsonField(str, "The server that was tried."),
        "again_at": JsonField(datetime | None, "When that mail is tried again. null: not again."),
    },
)
_SUB_QUEUE: Final = JsonForm(
    body="SubQueueBody",
    about="The mails of this server that have these values in common.",
    answers={
        "values": JsonField(dict[SubQueueField, str], "By the fields that were asked for.", None),
        "waiting": JsonField(int, "In hand and in backlogs."),
        "in_hand": JsonField(int, "Recipients that the server has, without attempts under way."),
        "backlog": JsonField(int, "Mails in the backlogs of this server, at most."),
        "going": JsonField(int, "Attempts under way."),
        "delivered": JsonField(int, "In the last minute.", "ended.delivered"),
        "refused": JsonField(int, "For now, in the last minute.", "ended.refused"),
        "failed": JsonField(int, "For ever, in the last minute.", "ended.failed"),
        "sources": JsonField(
            list[str],
            "Addresses that attempts under way use; else the next one, where it is known.",
            None,
        ),
        "reply": JsonField(
            _REPLY,
            "null: no attempt since the server began, or too long ago.",
            "last",
            optional=True,
        ),
        "cause": JsonField(str, "Why its first mail waits, in few words; or empty.", None),
        "why": JsonField(list[str], "The same as `/explain` says it.", None),
        "until": JsonField(datetime | None, "null: unknown, or it does not wait.", None),
    },
)
SUB_QUEUES_NOW: Final = JsonForm(
    body="SubQueuesAnswer",
    about="The sub-queues of one server, the ones with the most waiting mails first.",
    answers={
        **ON_A_SERVER,
        "by": JsonField(list[SubQueueField], "", None),
        "waiting": JsonField(int, "Of all sub-queues."),
        "going": JsonField(int, "Of all sub-queues."),
        "counted_seconds": JsonField(int, "For how long an end of an attempt is counted.", None),
        "sub_queues": JsonField(_SUB_QUEUE, "", None, many=True),
        "left_out": JsonField(int, "How many more there are than `limit`."),
    },
)


class SubQueuesQuery(StrictBody):
    """Which sub-queues."""

    by: Annotated[
        tuple[SubQueueField, ...],
        Field(
            min_length=1,
            max_length=len(SubQueueField),
            description="What tells sub-queues apart.",
        ),
    ] = BY_DEFAULT
    limit: Annotated[
        int,
        Field(ge=1, le=ROWS_MAX, description="Maximum number of sub-queues."),
    ] = 100


@SUB_QUEUES.get(
    "/sub-queues",
    responses=responses(answer_model(SUB_QUEUES_NOW), "Its sub-queues."),
    summary="Which sub-queues wait or go, why, and until when",
)
async def sub_queues(
    desk: ServerDesk,
    _: Reader,
    query: Annotated[SubQueuesQuery, Query()],
) -> Response:
    """What this server has of each: it asks neither Cassandra nor the broker."""
    by = [named.pickup_field for named in dict.fromkeys(query.by)]
    return JSONResponse(sub_queues_json(desk.sub_queues(by, query.limit)))


def sub_queues_json(found: SubQueuesNow) -> dict[str, Any]:
    """The sub-queues of a server as JSON."""
    by = [SubQueueField.of(named) for named in found.by]
    rows = [_row_json(state, found.moment) for state in found.shown]
    seconds = int(COUNTED_FOR.total_seconds())
    answer = SUB_QUEUES_NOW.json(found, by=by, counted_seconds=seconds, sub_queues=rows)
    json: dict[str, Any] = plain(answer)
    return json


@dataclass(frozen=True, slots=True)
class _Wait:
    """Why the first mail of a sub-queue waits.

    Attributes:
        cause: in few words.
        why: in sentences.
        until: None: unknown.
        source: the address that it will go from; "" where that is unknown.
    """

    cause: str = ""
    why: Sequence[str] = ()
    until: datetime | None = None
    source: str = ""


def _row_json(state: SubQueueState, moment: ServerMoment) -> Mapping[str, Any]:
    wait = _wait_of(state, moment)
    sources = sorted(state.sources)
    if not sources and wait.source:
        sources = [wait.source]
    return _SUB_QUEUE.json(
        state,
        values={SubQueueField.of(named): text for named, text in state.values.items()},
        sources=sources,
        cause=wait.cause,
        why=wait.why,
        until=wait.until,
    )


def _wait_of(state: SubQueueState, moment: ServerMoment) -> _Wait:
    if state.first is not None:
        return _wait_for_pick(state.first, moment)
    if state.in_hand:
        return _Wait("is prepared", ("Its servers are looked up, or a hook decides about it.",))
    last = state.last
    if last is not None and last.end is EntryEnd.REFUSED and not state.going:
        sentence = "Its mails were refused for now, and are tried again."
        return _Wait("refused for now", (sentence,), last.again_at)
    return _Wait()


def _wait_for_pick(mail: ActiveMail, moment: ServerMoment) -> _Wait:
    server = moment.server
    sources = moment.in_file(explain_by(server.engine, mail, moment.nanos))
    goes = next_source(server.engine, mail, sources)
    until = None
    source = ""
    if goes is not None:
        until = known_instant(goes.clear_at, moment)
        source = goes.source
    why = list(refusals_of(sources, moment))
    if why:
        refused = [refusing for refusing in sources if not refusing.is_left] or sources
        return _Wait(_cause(refused[0], moment), why, until, source)
    if server.is_full:
        most = server.settings.concurrency
        sentence = f"All {most:,} attempts that the server may make go on: one has to end first."
        return _Wait(f"all {most:,} attempts go on", (sentence,), until, source)
    return _Wait(until=until, source=source)


def _cause(source: SourceExplanation, moment: ServerMoment) -> str:
    """What refuses an address: a suspension first, as it lasts longest."""
    for name in source.suspensions:
        order = moment.suspensions.get(name)
        if order is not None:
            return f"suspended by {order.owner}: {order.reason}"
    for number in suspension_numbers(source, moment.policies.said):
        return f"suspended by the policy file, line {line_of(moment, suspension_path(number))}"
    if not source.has_share:
        return "the server does not know its part of shared limits"
    for share in source.shares:
        if share.refuses:
            return _cause_of_share(share, moment)
    return ""


def _cause_of_share(share: PolicyShare, moment: ServerMoment) -> str:
    policy = moment.policies.said.policies[share.policy]
    threshold = share.threshold
    counted = counted_text(dict(zip(policy.fields, share.key, strict=True))) or "every mail"
    line = line_of(moment, policy_path(share.policy))
    what = f"policy {share.policy + 1} (line {line}), {counted}"
    rate = threshold.rate
    if share.elsewhere:
        return f"{what}: other servers have the limit"
    if threshold.concurrency == 0:
        return f"{what}: none may begin"
    if share.clear_at == UNKNOWN:
        most = threshold.concurrency or share.delivering
        return f"{what}: {share.delivering:,} of {most:,} go on"
    if rate and share.rate_at == share.clear_at:
        return f"{what}: {rate.count:,} in {rate.interval / SECOND:.9g} s"
    return f"{what}: the pause between connections"
