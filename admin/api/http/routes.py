"""All routes of the API, and how they are served together with the routes of jobs."""

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError

from mailmend.admin.api.http.events import EVENTS
from mailmend.admin.api.http.james_queues import MAIL_QUEUES
from mailmend.admin.api.http.queues import QUEUES
from mailmend.admin.api.http.runs import RUNS
from mailmend.admin.api.http.schema import SCHEMA
from mailmend.admin.api.http.shared import LOG
from mailmend.admin.frame.http.application import Api
from mailmend.admin.frame.http.bodies import bad_request
from mailmend.admin.jobs.http import JOBS

API_ROUTERS: Final = (RUNS, EVENTS, SCHEMA, QUEUES, MAIL_QUEUES)
"""For any server whose desk has an `api: ApiDesk`."""


def api(*others: APIRouter) -> Api:
    """What a server answers: the API, James's tasks, health, metrics, and these other routes."""
    return Api(
        about=_ABOUT,
        log=LOG,
        routers=(*API_ROUTERS, *JOBS.routers, *others),
        bad_request=_bad_request,
    )


async def _bad_request(request: Request, refused: RequestValidationError) -> Response:
    """James's routes of tasks answer in James's words."""
    if request.url.path.startswith(_OWN):
        return await bad_request(request, refused)
    return await JOBS.bad_request(request, refused)


_OWN: Final = ("/v1/", "/mailQueues")
_ABOUT: Final = """\
One mail keyspace: its runs and findings, its schema, its queues, and James's administrative tasks.
Answers have the fields of the commands' --json. A token with the role read may look; a token with
the role operate may change something, and its name is on record."""

API: Final = api()
