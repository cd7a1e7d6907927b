"""Every page and every change of the page, as data: a new one is a line here."""

from typing import Final

from mailmend.admin.page import jobs, overview, runbooks, runs, schema, settings
from mailmend.admin.page.table import PageChange, WebPage

PAGES: Final[tuple[WebPage, ...]] = (
    overview.PAGE,
    runs.LIST,
    runs.ONE,
    jobs.LIST,
    jobs.ONE,
    schema.PAGE,
    runbooks.LIST,
    runbooks.ONE,
    settings.SETTINGS,
    settings.DOCTOR,
)
"""In the order of the menu."""

CHANGES: Final[tuple[PageChange, ...]] = (jobs.PAUSE, jobs.RESUME)
