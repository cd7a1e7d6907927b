"""No call needs a thread of a pool: a busy pool would hold up calls, and those of probes too."""

import inspect
from collections.abc import Iterator

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from mailmend.admin.delivery.http.routes import DELIVERIES
from mailmend.admin.frame.http.application import Api
from mailmend.admin.jobs.http import JOBS


def with_all_below(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for below in dependant.dependencies:
        yield from with_all_below(below)


@pytest.mark.parametrize("api", [JOBS, DELIVERIES])
def test_every_route_and_what_it_depends_on_runs_in_the_event_loop(api: Api) -> None:
    routes = [route for router in api.routers for route in router.routes if isinstance(route, APIRoute)]
    calls = [below.call for route in routes for below in with_all_below(route.dependant)]

    in_threads = [
        call
        for call in calls
        if not inspect.iscoroutinefunction(call) and not inspect.iscoroutinefunction(type(call).__call__)
    ]

    assert len(calls) > len(routes) > 5
    assert in_threads == []
