"""Routes of runs: what ran, what it found, and its undo."""

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.api.http.models import (
    FindingsBody,
    RunsBody,
    ShownRunBody,
    TrendBody,
    UndoneBody,
)
from mailmend.admin.api.http.shared import (
    BUSY,
    OF_RUN,
    PAGE,
    Operates,
    PageAfter,
    PageLimit,
    PageQuery,
    ServedApi,
    router,
)
from mailmend.admin.frame.http.application import Operator, Reader, log_change
from mailmend.admin.frame.http.bodies import DryRun, DurationText, StrictBody, answered, responses
from mailmend.admin.frame.settings import KEEP_MAX
from mailmend.admin.messages.run_findings import (
    RunFindingsRequest,
    findings_document,
    position_in,
    run_findings,
)
from mailmend.admin.messages.runs import (
    RunsResult,
    UndoRequest,
    list_runs,
    run_document,
    show_run,
    trend_document,
    undo,
)
from mailmend.admin.messages.shared_document import document_of
from mailmend.admin.messages.trend import run_json
from mailmend.model.durations import parse_duration
from mailmend.model.errors import WrongUse
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.ledger.runs import Run

RUNS: Final = router("runs")


class SinceQuery(StrictBody):
    """How far to look back."""

    since: DurationText = "30d"


class RunsQuery(SinceQuery):
    """A page of runs."""

    limit: PageLimit = PAGE
    after: PageAfter = None
    everything: Annotated[bool, Field(alias="all", description="Of every mail keyspace.")] = False


@RUNS.get(
    "/runs",
    responses=responses(RunsBody, "A page.", **BUSY),
    summary="List runs, the newest first",
)
async def list_all_runs(
    desk: ServedApi,
    _: Reader,
    query: Annotated[RunsQuery, Query()],
) -> Response:
    """As `mailmend runs list`."""
    result = await _runs(desk, query.since, everything=query.everything)
    page, behind = _page(result.runs, query.after, query.limit)
    return JSONResponse({"runs": [run_json(run) for run in page], "next": behind})


async def _runs(desk: ServedApi, since: str, *, everything: bool = False) -> RunsResult:
    def service() -> RunsResult:
        return list_runs(
            desk.connection,
            parse_duration(since, maximum=KEEP_MAX),
            everything=everything,
        )

    return await desk.done(service, asks=False)


def _page(
    runs: tuple[Run, ...],
    after: str | None,
    limit: int,
) -> tuple[tuple[Run, ...], str | None]:
    """The runs behind a position, and the position behind them; a run's position is its id.

    Raises:
        WrongUse: the position is no id of a run.
    """
    ordered = sorted(runs, key=_age)
    if after is not None:
        try:
            last = _age_of(UUID(after))
        except ValueError:
            mend = "Take `next` of the page before."
            raise WrongUse(f"{after!r} is not a position among runs", mend=mend) from None
        ordered = [run for run in ordered if _age(run) > last]
    page = tuple(ordered[:limit])
    if len(ordered) > limit:
        return page, str(page[-1].id)
    return page, None


def _age(run: Run) -> tuple[int, int]:
    return _age_of(run.id)


def _age_of(run: UUID) -> tuple[int, int]:
    """Sorts the newest first."""
    return -run.time, run.int


@RUNS.get(
    "/runs/trend",
    responses=responses(TrendBody, "The sums.", **BUSY),
    summary="What was found, fixed and left, run after run",
)
async def show_trend(desk: ServedApi, _: Reader, query: Annotated[SinceQuery, Query()]) -> Response:
    """As `mailmend runs trend`, the oldest run first."""
    return answered(trend_document(await _runs(desk, query.since)))


@RUNS.get(
    "/runs/{run}",
    responses=responses(ShownRunBody, "The run.", **OF_RUN),
    summary="Show a run",
)
async def show_one_run(desk: ServedApi, by: Reader, run: UUID) -> Response:
    """As `mailmend runs show`: its sums, and in whose mailboxes its findings are."""
    return answered(run_document(await desk.done(show_run, desk.connection, run, by=by)))


VerdictChoice = Verdict | SkipJsonSchema[None]


class FindingsQuery(PageQuery):
    """A page of findings."""

    verdict: VerdictChoice = None
    result: Annotated[VerdictChoice, Field(description="What became of it.")] = None


@RUNS.get(
    "/runs/{run}/findings",
    responses=responses(FindingsBody, "A page.", **OF_RUN),
    summary="List the findings of a run",
)
async def list_findings(
    desk: ServedApi,
    by: Reader,
    operates: Operates,
    run: UUID,
    query: Annotated[FindingsQuery, Query()],
) -> Response:
    """As `mailmend runs show --findings`.

    Rows of declared tables show only their keys to a token with the role read.
    """
    after = None
    if query.after:
        after = position_in(query.after)
    request = RunFindingsRequest(
        connection=desk.connection,
        run=run,
        limit=query.limit,
        after=after,
        verdict=query.verdict,
        result=query.result,
        only_keys=not operates,
    )
    return answered(findings_document(await desk.done(run_findings, request, by=by)))


class UndoBody(StrictBody):
    """How to undo."""

    dry_run: DryRun = False
    no_writers: Annotated[bool, Field(description="Nothing writes mail meanwhile.")] = False


@RUNS.post(
    "/runs/{run}/undo",
    responses=responses(UndoneBody, "What became of it.", **OF_RUN),
    summary="Put back what a run changed",
)
async def undo_run(
    desk: ServedApi,
    by: Operator,
    request: Request,
    run: UUID,
    given: UndoBody,
) -> Response:
    """As `mailmend undo`: the undo is a run of its own, in the name of the token."""
    asked = UndoRequest(
        connection=desk.connection,
        run=run,
        dry_run=given.dry_run,
        no_writers=given.no_writers,
    )
    result = await desk.done(undo, asked, by=by)
    document = document_of(result)
    if not given.dry_run:
        log_change(request, "a run was undone", run=str(run), **_undone(document.json))
    return answered(document)


def _undone(json: Any) -> dict[str, Any]:
    return {name: json[name] for name in ("fixed", "left", "moved")} | {"undo": json["run"]}
