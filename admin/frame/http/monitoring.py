"""Routes for probes and for Prometheus, which every server has: its desk tells how its parts stand, and its metrics."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from mailmend.admin.frame.http.callers import Reader
from mailmend.admin.frame.http.desk import HealthStatus, MonitoredDesk, PartHealth
from mailmend.admin.frame.http.errors import described
from mailmend.mailqueue.prometheus import CONTENT_TYPE

StatusName = Literal["healthy", "degraded", "unhealthy"]


class CheckBody(BaseModel):
    """The health of a part."""

    componentName: str  # noqa: N815 - James's name
    escapedComponentName: str  # noqa: N815
    status: StatusName
    cause: str | None = None


class HealthBody(BaseModel):
    """The health of the server: the health of its worst part."""

    status: StatusName
    checks: list[CheckBody]


async def _desk(request: Request) -> MonitoredDesk:
    desk: MonitoredDesk = request.app.state.desk
    return desk


AnyDesk = Annotated[MonitoredDesk, Depends(_desk)]


def checks_json(parts: Sequence[PartHealth]) -> list[dict[str, str]]:
    """As James tells of its components."""
    checks = []
    for part in parts:
        check = {
            "componentName": part.name,
            "escapedComponentName": part.name,
            "status": part.status.name.lower(),
        }
        if part.cause:
            check["cause"] = part.cause
        checks.append(check)
    return checks


METRICS: Final = APIRouter(tags=["metrics"])


def health_router(path: str) -> APIRouter:
    """The route of the server's health, at this path."""
    router = APIRouter(tags=["health"])

    @router.get(
        path,
        responses={
            200: {"model": HealthBody, "description": "It works, or is on standby."},
            503: {"model": HealthBody, "description": "A part of it does not work."},
        },
        summary="The health of this server",
    )
    async def health(desk: AnyDesk) -> Response:
        """For probes: it takes no token, and however often it is called, no other server is asked more often."""
        parts = desk.health()
        worst = max(part.status for part in parts)
        body = {"status": worst.name.lower(), "checks": checks_json(parts)}
        status = 503 if worst is HealthStatus.UNHEALTHY else 200
        return JSONResponse(body, status)

    return router


@METRICS.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "In Prometheus's text format."},
        **described(),
    },
    summary="Metrics for Prometheus",
)
async def metrics(desk: AnyDesk, _: Reader) -> Response:
    """As the commands of this server print or write them, of at most half a minute ago."""
    return Response(await desk.metrics(), media_type=CONTENT_TYPE)
