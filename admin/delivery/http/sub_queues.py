"""The route of a server's sub-queues: how many mails wait, the last reply, why and until when."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from mailmend.admin.delivery.desk import ServerMoment, SubQueuesNow
from mailmend.admin.delivery.explain_answers import ON_A_SERVER
from mailmend.admin.delivery.http.explain import known_instant, refusals_of
from mailmend.admin.delivery.http.shared import ServerDesk, StrictBody, answer_model, responses
from mailmend.admin.delivery.top import BY_DEFAULT, ROWS_MAX, SubQueueField
from mailmend.admin.frame.http.application import Reader
from mailmend.admin.frame.values import plain
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.policy.explaining import explain_by, next_source
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
        "why": JsonField(list[str], "Why its first mail waits, as `/explain` says.", None),
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


def _row_json(state: SubQueueState, moment: ServerMoment) -> Mapping[str, Any]:
    why, until, next_from = _wait_of(state, moment)
    sources = sorted(state.sources)
    if not sources and next_from:
        sources = [next_from]
    return _SUB_QUEUE.json(
        state,
        values={SubQueueField.of(named): text for named, text in state.values.items()},
        sources=sources,
        why=why,
        until=until,
    )


def _wait_of(state: SubQueueState, moment: ServerMoment) -> tuple[list[str], datetime | None, str]:
    """Why its first mail waits, until when, and from which address it will go; "": unknown."""
    server = moment.server
    if state.first is not None:
        sources = moment.in_file(explain_by(server.engine, state.first, moment.nanos))
        goes = next_source(server.engine, state.first, sources)
        why = list(refusals_of(sources, moment))
        if not why and server.is_full:
            most = server.settings.concurrency
            why = [f"All {most:,} attempts that the server may make go on: one has to end first."]
        if goes is None:
            return why, None, ""
        return why, known_instant(goes.clear_at, moment), goes.source
    if state.in_hand:
        return ["Its servers are looked up, or a hook decides about it."], None, ""
    last = state.last
    if last is not None and last.end is EntryEnd.REFUSED and not state.going:
        return ["Its mails were refused for now, and are tried again."], last.again_at, ""
    return [], None, ""
