"""What the page is answered from."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import click

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.command import Values
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.jobs.declaration import Job
from mailmend.admin.jobs.jobs import declared_jobs
from mailmend.admin.local.doctor import DoctorSettings, doctor, doctor_document, doctor_settings
from mailmend.admin.metrics.metrics import FRESH_MICROS
from mailmend.admin.page.sessions import FormTokens, PageSessions
from mailmend.admin.page.settings_in_force import settings_in_force
from mailmend.admin.page.table import PageData, SettingShown


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """What the page shows of the settings, and what it asks.

    Attributes:
        jobs: that are declared.
        shown: the settings in force, without secrets.
        doctor: what `mailmend doctor` looks at.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDesk:
    """What the pages are answered from, and who has signed in."""

    data: PageData
    sessions: PageSessions
    forms: FormTokens = field(default_factory=FormTokens)

    @classmethod
    def over(cls, opened: OpenCluster, settings: PageSettings) -> "PageDesk":
        """The pages of this cluster."""
        data = PageData(
            opened=opened,
            jobs=lambda: settings.jobs,
            settings=settings.shown,
            doctor=RememberedDoctor(settings.doctor, opened.clock.micros).document,
        )
        return cls(data=data, sessions=PageSessions(opened.clock))


def page_settings(own: Values, context: click.Context, connection: ConnectionSettings) -> PageSettings:
    """What the page shows, by the values of the options."""
    return PageSettings(
        jobs=list(declared_jobs(context).values()),
        shown=settings_in_force(own, context),
        doctor=doctor_settings(own, context, lambda: connection),
    )
