"""`mailmend serve`: one server of the page, the API and the jobs."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

import click

from mailmend.admin.api.desk import ApiDesk
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, contact_of, open_cluster
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.http.access import http_face
from mailmend.admin.frame.kept_clusters import keeping
from mailmend.admin.frame.settings import QUEUE_DEFAULT, QueueSettings
from mailmend.admin.jobs import serve as jobs_server
from mailmend.admin.jobs.serve import DeclaredJobs, Face, ServeRequest
from mailmend.admin.jobs.tasks import TaskDesk
from mailmend.admin.page.desk import PageDesk, PageSettings, page_settings
from mailmend.admin.queue.options import queue_settings, unless
from mailmend.model.errors import WrongUse
from mailmend.repair.log_fields import heard

LOGS: Final = ("mailmend.page", "mailmend.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSettings:
    """What the server asks and shows.

    Attributes:
        queues: the cluster; the broker and the blobs of its queues where they are named.
        page: what the page shows of the settings.
    """

    queues: QueueSettings
    page: PageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """Serve until a signal says otherwise.

    Attributes:
        declared, profile, typed: as in `ServeRequest`.
        face: answers callers.
    """

    settings: ServedSettings
    declared: Callable[[], DeclaredJobs]
    profile: str | None = None
    typed: Sequence[str] = ()
    face: Face | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDesk(TaskDesk):
    """The desk of the server of jobs, with the API and the page of its keyspace."""

    api: ApiDesk
    page: PageDesk

    @classmethod
    def over(cls, tasks: TaskDesk, settings: ServedSettings, opened: OpenCluster) -> "WebDesk":
        own = {each.name: getattr(tasks, each.name) for each in fields(tasks)}
        api = ApiDesk(settings=settings.queues, clock=tasks.clock, tasks=tasks, cluster=opened)
        return cls(**own, api=api, page=PageDesk.over(opened, settings.page))


def serve(request: ServerRequest, caller: Caller) -> None:
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
    connection = request.settings.queues.connection
    with ExitStack() as open_parts:
        opened = open_parts.enter_context(open_cluster(connection))
        open_parts.enter_context(keeping(contact_of(connection), opened.cluster))
        for log in LOGS:
            open_parts.enter_context(heard(log))
        jobs = ServeRequest(
            connection=connection,
            declared=request.declared,
            profile=request.profile,
            typed=request.typed,
            face=partial(_answer, request.face, request.settings, opened),
        )
        jobs_server.serve(jobs, caller)


async def _answer(
    face: Face, settings: ServedSettings, opened: OpenCluster, tasks: TaskDesk, stop: asyncio.Event
) -> None:
    await face(WebDesk.over(tasks, settings, opened), stop)


_QUEUES: Final = queue_settings(broker=unless(), blobs=unless(), named=False)


def _settings(own: Values, others: Values, context: click.Context) -> ServedSettings:
    """The broker and the blobs where they are named: most calls need neither."""
    broker = None
    blobs = None
    if own["broker"]:
        broker = unless()
    if own["blobs"]:
        blobs = unless()
    shared = queue_settings(broker=broker, blobs=blobs, named=False, ledger=True)
    queues: QueueSettings = shared.build(own, others, context)
    values = {**own, "queue": QUEUE_DEFAULT}
    return ServedSettings(queues=queues, page=page_settings(values, context, queues.connection))


_LISTEN: Final = "Listen at this address: the page, the API and James's tasks are answered there over HTTP."

SERVE: Final = Command(
    name="serve",
    summary="One server: a page to look at, the API, and the jobs.",
    about="""Open http://HOST:PORT/ in a browser. The page needs no scripts, and loads nothing from
    elsewhere. Its first page says what is wrong now, the worst first, each with its runbook
    and the next command. Other pages have runs with their findings, jobs, the schema,
    runbooks, the settings in force and what `mailmend doctor` says.

    The API has runs with their findings and their undo, the schema and its history, the
    projections, and the queues with their mails (no content), flush, removal and restore;
    James's /mailQueues with James's forms. GET /openapi.json describes each route;
    docs/http-api.md has examples. Jobs are run and James's tasks are taken as `mailmend jobs
    serve --listen` does.

    Without tokens every user of this machine may look and change. With --tokens-file a person
    signs in with a token, and a program sends it. The role read sees no rows of mails, no
    names of users and no buttons; the role operate sees them, and its changes are on record
    with the name of the token. Addresses outside this machine are refused without tokens and
    TLS. Flush, removal and restore need --broker or --blobs, as the commands do. Removed
    mails are kept on this machine. This needs mailmend[serve].""",
    service="mailmend.admin.serve:serve",
    present="mailmend.admin.jobs.serve:served_document",
    shared=(
        *jobs_server.COMMAND_PARTS,
        http_face("--listen", "mailmend.admin.routes:SERVED", _LISTEN),
        Shared("settings", _QUEUES.groups, _settings),
    ),
    output=(),
    examples="""
        mailmend serve --listen 127.0.0.1:8000
        mailmend serve --listen 127.0.0.1:8000 --broker amqp://rabbit:5672 --blobs cassandra:
        mailmend serve --listen 0.0.0.0:8443 --tokens-file tokens \\
          --listen-tls-cert a.pem --listen-tls-key b.pem
        curl -s http://127.0.0.1:8000/v1/runs | jq '.runs[0]'""",
    exits="0 it was asked to stop, and what ran has ended; 2 a declaration is wrong, or the "
    "address; 4 the cluster cannot be reached (at the start; later it is waited for); 130 it was "
    "asked twice.",
)
