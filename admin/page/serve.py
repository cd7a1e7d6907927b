"""`mailmend serve`: the page to look at, and what it is answered from."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.event_loop import run_async, stop_signal
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.http.access import http_face
from mailmend.admin.frame.http.desk import MonitoredDesk, WatchedParts
from mailmend.admin.frame.options import connection_of
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import declared_jobs
from mailmend.admin.local.doctor import (
    EVERYTHING,
    DoctorSettings,
    doctor,
    doctor_document,
    doctor_settings,
)
from mailmend.admin.metrics.metrics import FRESH_MICROS, Exposition
from mailmend.admin.page.sessions import PageSessions
from mailmend.admin.page.settings_in_force import settings_in_force
from mailmend.admin.page.table import PageData, SettingShown
from mailmend.model.errors import WrongUse
from mailmend.repair.log_fields import heard

LOG: Final = "mailmend.page"
PageFace = Callable[[MonitoredDesk, asyncio.Event], Coroutine[Any, Any, None]]
"""Serves callers at the desk, until the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """What the page shows of the settings, and what it asks.

    Attributes:
        jobs: that are declared.
        shown: the settings in force, without secrets.
        doctor: what `mailmend doctor` looks at.
    """

    connection: ConnectionSettings
    jobs: Sequence[Job]
    shown: Sequence[SettingShown]
    doctor: DoctorSettings


@dataclass(slots=True)
class RememberedDoctor:
    """What `mailmend doctor` says, as of at most half a minute ago."""

    settings: DoctorSettings
    micros: Callable[[], int]
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _document: Document | None = None
    _asked_at: int = 0

    def document(self) -> Document:
        with self._turn:
            now = self.micros()
            if self._document is None or not 0 <= now - self._asked_at < FRESH_MICROS:
                self._document = doctor_document(doctor(self.settings))
                self._asked_at = now
            return self._document


def serve(settings: PageSettings, face: PageFace | None, caller: Caller) -> None:
    """Answer until SIGTERM or Ctrl-C.

    Raises:
        WrongUse: no address is named.
        CannotReach: the cluster, at the start; later the page says so.
    """
    if face is None:
        raise WrongUse("no address is named", mend="Give --listen 127.0.0.1:8080.")
    with open_cluster(settings.connection) as opened, heard(LOG):
        caller.remark("Serving until SIGTERM or Ctrl-C.")
        run_async(_until_stopped(face, desk_of(opened, settings)))


def desk_of(opened: OpenCluster, settings: PageSettings) -> MonitoredDesk:
    """What the page of this cluster is answered from."""
    data = PageData(
        opened=opened,
        jobs=lambda: settings.jobs,
        settings=settings.shown,
        doctor=RememberedDoctor(settings.doctor, opened.clock.micros).document,
    )

    async def ask_cluster() -> object:
        return await asyncio.to_thread(opened.existing_ledger)

    desk: MonitoredDesk = imported("mailmend.admin.page.site:PageDesk")(
        data=data,
        watched=WatchedParts({"Cassandra": ask_cluster}, opened.clock, logging.getLogger(LOG)),
        sessions=PageSessions(opened.clock),
        exposition=Exposition(opened, lambda: settings.jobs).text,
    )
    return desk


async def _until_stopped(face: PageFace, desk: Any) -> None:
    with stop_signal() as stop:
        watching = asyncio.create_task(desk.watched.watch())
        try:
            await face(desk, stop)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def served_document(_: None) -> Document:
    return Document(remarks=("Stopped on request.",))


def _build(own: Values, others: Values, context: click.Context) -> PageSettings:  # noqa: ARG001
    connection = connection_of(own, context)
    return PageSettings(
        connection=connection,
        jobs=list(declared_jobs(context).values()),
        shown=settings_in_force(own, context),
        doctor=doctor_settings(own, context, lambda: connection),
    )


SERVE: Final = Command(
    name="serve",
    summary="A page to look at: what is wrong now, runs and findings, jobs, runbooks, settings.",
    about="""Open http://HOST:PORT/ in a browser. The page needs no scripts, and loads nothing from
    elsewhere. The first page says what is wrong now, the worst first, each with its runbook and the
    next command.

    Without tokens every user of this machine may look and change. With --tokens-file a person signs
    in with a token: the role read sees no rows of mails, no names of users and no buttons; the role
    operate sees them, and each change takes a reason, which is on record with the name of the
    token. Addresses outside this machine are refused without tokens and TLS. SIGTERM and Ctrl-C end
    the server. Jobs are run by `mailmend jobs serve` or by units, not by this
    server. This needs mailmend[serve].""",
    service="mailmend.admin.page.serve:serve",
    present="mailmend.admin.page.serve:served_document",
    shared=(
        http_face(
            "--listen",
            "mailmend.admin.page.site:PAGE",
            "Listen at this address: the page, /metrics and /health are there.",
        ),
        Shared("settings", EVERYTHING.groups, _build),
    ),
    output=(),
    examples="""
        mailmend serve --listen 127.0.0.1:8080
        mailmend serve --listen 127.0.0.1:8080 --tokens-file tokens""",
    exits="0 it was asked to stop, 2 a declaration or the address is wrong, 4 the cluster cannot "
    "be reached at the start, 130 it was asked twice.",
)
