"""`mailmend serve`: the server of jobs, which answers the API too."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from mailmend.admin.api.desk import ServedDesk
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, contact_of, open_cluster
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.http.access import http_face
from mailmend.admin.frame.kept_clusters import keeping
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.jobs import serve as jobs_server
from mailmend.admin.jobs.serve import DeclaredJobs, Face, ServeRequest
from mailmend.admin.jobs.tasks import TaskDesk
from mailmend.admin.queue.options import queue_settings, unless
from mailmend.model.errors import WrongUse


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeApiRequest:
    """Serve until a signal says otherwise.

    Attributes:
        settings: the cluster; the broker and the blobs of its queues where they are named.
        declared, profile, typed: as in `ServeRequest`.
        face: answers callers.
    """

    settings: QueueSettings
    declared: Callable[[], DeclaredJobs]
    profile: str | None = None
    typed: Sequence[str] = ()
    face: Face | None = None


def serve(request: ServeApiRequest, caller: Caller) -> None:
    """Run jobs and answer callers until SIGTERM or Ctrl-C.

    Raises:
        WrongUse: no address is given.
        CannotReach: the cluster, at the start; later it is waited for.
    """
    if request.face is None:
        raise WrongUse(
            "no address is given",
            mend="Say where to listen: mailmend serve --listen 127.0.0.1:8000",
        )
    settings = request.settings
    with (
        open_cluster(settings.connection) as opened,
        keeping(contact_of(settings.connection), opened.cluster),
    ):
        jobs = ServeRequest(
            connection=settings.connection,
            declared=request.declared,
            profile=request.profile,
            typed=request.typed,
            face=partial(_answer, request.face, settings, opened),
        )
        jobs_server.serve(jobs, caller)


async def _answer(
    face: Face, settings: QueueSettings, opened: OpenCluster, tasks: TaskDesk, stop: asyncio.Event
) -> None:
    await face(ServedDesk.over(tasks, settings, opened), stop)


def _settings(own: Values, others: Values, context: click.Context) -> QueueSettings:
    """The broker and the blobs where they are named: most calls need neither."""
    broker = None
    blobs = None
    if own["broker"]:
        broker = unless()
    if own["blobs"]:
        blobs = unless()
    shared = queue_settings(broker=broker, blobs=blobs, named=False, ledger=True)
    settings: QueueSettings = shared.build(own, others, context)
    return settings


SERVE: Final = Command(
    name="serve",
    summary="One server: the jobs, James's tasks, and the API of runs, schema and queues.",
    about="""It does what `mailmend jobs serve --listen` does, and answers the API: runs with their
    findings and their undo, the schema and its history, the projections, and the queues with their
    mails (no content), flush, removal and restore; James's /mailQueues with James's forms.
    GET /openapi.json describes each route; docs/http-api.md has examples.

    A token with the role read may look; a token with the role operate may change something, and its
    name is on record. Flush, removal and restore need --broker or --blobs, as the commands do.
    Removed mails are kept on this machine. This needs mailmend[serve].""",
    service="mailmend.admin.api.serve:serve",
    present="mailmend.admin.jobs.serve:served_document",
    shared=(
        *jobs_server.COMMAND_PARTS,
        http_face("--listen", "mailmend.admin.api.http.routes:API", "Answer over HTTP there."),
        Shared(
            "settings",
            queue_settings(broker=unless(), blobs=unless(), named=False).groups,
            _settings,
        ),
    ),
    output=(),
    examples="""
        mailmend serve --listen 127.0.0.1:8000
        mailmend serve --listen 127.0.0.1:8000 --broker amqp://rabbit:5672 --blobs cassandra:
        curl -s http://127.0.0.1:8000/v1/runs | jq '.runs[0]'""",
    exits="0 it was asked to stop, and what ran has ended; 2 a declaration is wrong, or the "
    "address; 4 the cluster cannot be reached (at the start; later it is waited for); 130 it was "
    "asked twice.",
)
