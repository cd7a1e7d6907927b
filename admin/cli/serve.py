"""Declaration of `mailmend jobs serve`."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

from admin.api.access import parse_listening, read_tokens
from admin.cli.command import Command, Shared
from admin.cli.jobs import declared_jobs
from admin.cli.options import CONNECTION, FILE, LOG, option, typed
from admin.cli.settings_file import PROFILE_NAME, read_again, settings_file_of
from admin.extras import imported
from admin.services.serving import DeclaredJobs, Face
from model.errors import WrongUse


def _declared(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> Callable[[], DeclaredJobs]:  # noqa: ARG001
    def declared() -> DeclaredJobs:
        with read_again(context):
            _, text = settings_file_of(context)
            return DeclaredJobs(list(declared_jobs(context).values()), text)

    return declared


def _face(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> Face | None:  # noqa: ARG001
    where, file = own["listen"], own["tokens_file"]
    certificate, key = own["listen_tls_cert"], own["listen_tls_key"]
    if where is None:
        if file or certificate or key:
            raise WrongUse("tokens and a certificate are for --listen", mend="Give --listen HOST:PORT too.")
        return None
    tokens = read_tokens(file, os.environ.get("MAILMEND_TOKENS"))
    listening = parse_listening(where, tokens, certificate, key)
    return partial(imported("admin.api.server:listen"), listening)


FACE: Final = Shared(
    "face",
    {
        "HTTP": (
            option(
                "--listen",
                "Listen at this address: James's tasks are taken there over HTTP, as /openapi.json says.",
                metavar="HOST:PORT",
            ),
            option(
                "--tokens-file",
                "Who may ask: lines of NAME, role (read or repair) and TOKEN, mode 600; or MAILMEND_TOKENS has them.",
                type=FILE,
                metavar="FILE",
            ),
            option("--listen-tls-cert", "Certificate of this server, with its chain.", type=FILE, metavar="FILE"),
            option("--listen-tls-key", "Private key of that certificate.", type=FILE, metavar="FILE"),
        )
    },
    _face,
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
    service="admin.services.serving:serve",
    present="admin.present.jobs:served_document",
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
