"""Declaration of `mailmend jobs serve`."""

from collections.abc import Callable
from typing import Any, Final

import click

from mailmend.admin.frame.command import Command, Shared
from mailmend.admin.frame.http.options import http_face
from mailmend.admin.frame.options import CONNECTION, LOG, typed
from mailmend.admin.frame.settings_file import PROFILE_NAME, read_again, settings_file_of
from mailmend.admin.jobs.jobs import declared_jobs
from mailmend.admin.jobs.serve_service import DeclaredJobs


def _declared(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> Callable[[], DeclaredJobs]:  # noqa: ARG001
    def declared() -> DeclaredJobs:
        with read_again(context):
            _, text = settings_file_of(context)
            return DeclaredJobs(list(declared_jobs(context).values()), text)

    return declared


FACE: Final = http_face(
    "--listen",
    "mailmend.admin.jobs.http.routes:JOBS",
    "Listen at this address: James's tasks are taken there over HTTP, as /openapi.json says.",
)


SERVE: Final = Command(
    name="serve",
    summary="Run the jobs at their times, until it is stopped.",
    about="""Each run is `mailmend jobs run NAME --scheduled`, in a process of its own. Several servers of a keyspace
    are safe: one leads, the others stand by; one that was killed is followed by another within 75 seconds. A planned
    run is run once at most, whoever begins it.

    SIGHUP reads the settings again: all of them, or, where one is wrong, none; until then runs have those that were
    read last. SIGTERM and Ctrl-C end the runs in good order, and then the server; a second one does not wait for them.
    What it does and what its runs say is on stderr. Nobody can type a password for a run: it comes from a file, a
    command or the environment.

    With --listen scripts that know James's webadmin have their tasks done here: POST
    /messages?task=SolveInconsistencies, POST /mailboxes?task=..., DELETE /blobs?scope=unreferenced, /tasks. A task is
    recorded in the ledger before it is acknowledged; whoever leads runs it, tasks of one lease one after another. Other
    addresses than those of this machine are refused without tokens and TLS. This needs mailmend[serve].""",
    service="mailmend.admin.jobs.serve_service:serve",
    present="mailmend.admin.jobs.jobs_document:served_document",
    shared=(
        Shared("declared", {}, _declared),
        Shared("profile", {}, lambda _own, _others, context: context.find_root().meta.get(PROFILE_NAME)),
        Shared("typed", {}, lambda _own, _others, context: typed(context, (*CONNECTION.groups["Connection"], *LOG))),
        FACE,
        CONNECTION,
    ),
    output=(),
    examples="""
        mailmend jobs serve
        mailmend jobs serve --listen 127.0.0.1:8000
        mailmend jobs serve --listen 0.0.0.0:8443 --tokens-file tokens --listen-tls-cert a.pem --listen-tls-key b.pem
        kill -HUP PID                           after the settings were changed""",
    exits="0 it was asked to stop, and what ran has ended; 2 a declaration is wrong, or the address; 4 the cluster "
    "cannot be reached (at the start; later it is waited for); 130 it was asked twice.",
)
