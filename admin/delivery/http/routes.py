"""All that a server of deliveries answers over HTTP, and the routes of its policies."""

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from mailmend.admin.delivery.http.entries import ENTRIES
from mailmend.admin.delivery.http.explain import EXPLAIN
from mailmend.admin.delivery.http.orders import CONDITIONS, SUSPENSIONS
from mailmend.admin.delivery.http.set_values import VALUES
from mailmend.admin.delivery.http.shared import LOG, READY, ServerDesk, answer_model
from mailmend.admin.delivery.http.sub_queues import SUB_QUEUES
from mailmend.admin.delivery.policies_in_force import POLICIES_IN_FORCE, policies_json
from mailmend.admin.frame.http.application import METRICS, Api, Operator, Reader, error, health_router, log_change
from mailmend.admin.frame.http.bodies import bad_request, responses
from mailmend.model.errors import WrongUse

POLICIES: Final = APIRouter(tags=["policies"])
_IN_FORCE: Final = answer_model(POLICIES_IN_FORCE)


@POLICIES.get("/policies", responses=responses(_IN_FORCE, "All of them."), summary="The policies in force")
async def policies(desk: ServerDesk, _: Reader) -> Response:
    """Of this server: what its policy file said when it was read."""
    return JSONResponse(policies_json(desk.policies))


@POLICIES.post(
    "/policies/reload",
    responses=responses(_IN_FORCE, "The file was read.", _409="It cannot be used; all stays as it was."),
    summary="Read the policy file again",
)
async def reload(desk: ServerDesk, by: Operator, request: Request) -> Response:  # noqa: ARG001 - who it is counts
    """As SIGHUP: all of it or, where something is wrong, nothing; limits go on counting."""
    try:
        changes = desk.reload()
    except WrongUse as refused:
        return error(409, "WrongState", f"The policies stay as they were: {refused.what}", refused.mend)
    desk.tell_others()
    log_change(request, "the policies were read again, as somebody asked", **changes.counts)
    return JSONResponse(policies_json(desk.policies))


DELIVERIES: Final = Api(
    about="""\
One server of deliveries, `mailmend delivery serve`, and the queue that it delivers. What is answered is what the
command prints with --json; what is ordered is done in the name of the token, and is on record.""",
    log=LOG,
    routers=(
        VALUES,
        ENTRIES,
        EXPLAIN,
        SUB_QUEUES,
        SUSPENSIONS,
        CONDITIONS,
        POLICIES,
        METRICS,
        health_router("/health"),
        READY,
    ),
    bad_request=bad_request,
)
