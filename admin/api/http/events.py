"""Server-sent events: a run or a task as it changes, until it is over."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from fastapi import Response
from fastapi.responses import StreamingResponse

from mailmend.admin.api.desk import ApiDesk
from mailmend.admin.api.http.shared import BUSY, OF_RUN, ServedApi, router
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.http.application import Reader, described
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.http import task_json
from mailmend.admin.messages.trend import run_json
from mailmend.mailqueue.concurrency import paused
from mailmend.model.errors import MailmendError
from mailmend.repair.ledger.runs import Run, RunState

EVENTS: Final = router("events")
LOOK_EVERY: Final = timedelta(seconds=1)
WATCH_MAX: Final = timedelta(minutes=5)
"""How long a stream lasts at most: its client then asks again, as browsers do automatically."""

_HELD: Final = "text/event-stream"
StateReader = Callable[[], Awaitable[tuple[dict[str, Any], bool]]]
"""Reads what is watched: its JSON, and whether it is over."""

_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {_HELD: {"schema": {"type": "string"}}},
        "description": "Events with JSON: one at once, one for each change, `end` as the last one.",
    },
    **described(_400="That is no id.", **BUSY),
}


def _run_of(connection: ConnectionSettings, run: UUID) -> Run:
    with open_cluster(connection) as opened:
        return opened.known_ledger(run).get(run)


@EVENTS.get(
    "/runs/{run}/events",
    responses={**_STREAM, **described(_400="That is no id.", **OF_RUN)},
    response_class=StreamingResponse,
    summary="Follow a run",
)
async def follow_run(desk: ServedApi, _: Reader, run: UUID) -> Response:
    """Each `run` event is the run as `/v1/runs` has it. A stream lasts 5 minutes at most."""

    async def look() -> tuple[dict[str, Any], bool]:
        found = await desk.done(_run_of, desk.connection, run, asks=False)
        return run_json(found), found.state is not RunState.RUNNING

    return await _followed(desk, "run", look)


@EVENTS.get(
    "/tasks/{task}/events",
    responses={
        **_STREAM,
        **described(_400="That is no id.", _404="There is no such task.", **BUSY),
    },
    response_class=StreamingResponse,
    summary="Follow a task",
)
async def follow_task(desk: ServedApi, _: Reader, task: UUID) -> Response:
    """Each `task` event is the task as `/tasks/{task}` has it: its counts grow while it works."""

    async def look() -> tuple[dict[str, Any], bool]:
        found = await desk.task(task)
        return task_json(found), found.status.is_over

    return await _followed(desk, "task", look)


async def _followed(desk: ApiDesk, name: str, look: StateReader) -> Response:
    """The stream; what cannot be read at first is refused as any other call is."""
    first = await look()
    return StreamingResponse(
        _events(desk, name, first, look),
        media_type=_HELD,
        headers={"Cache-Control": "no-store"},
    )


async def _events(
    desk: ApiDesk,
    name: str,
    first: tuple[dict[str, Any], bool],
    look: StateReader,
) -> AsyncIterator[str]:
    until = desk.clock.monotonic() + WATCH_MAX.total_seconds()
    shown, is_over = first
    yield _event(name, shown)
    while not is_over and desk.clock.monotonic() < until:
        await paused(desk.clock, LOOK_EVERY)
        try:
            found, is_over = await look()
        except MailmendError:
            return  # its client asks again, and is told why
        if found != shown:
            shown = found
            yield _event(name, shown)
        else:
            yield ": nothing new\n\n"
    if is_over:
        yield _event("end", {})


def _event(name: str, body: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(body)}\n\n"
