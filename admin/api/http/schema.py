"""Routes of the schema and of the projections that follow from it."""

from pathlib import Path
from typing import Annotated, Final, Literal

from fastapi import Query, Response

from mailmend.admin.api.http.models import ProjectionsBody, SchemaBody, SchemaHistoryBody
from mailmend.admin.api.http.shared import BUSY, ServedApi, router
from mailmend.admin.frame.http.application import Reader
from mailmend.admin.frame.http.bodies import answered, responses
from mailmend.admin.projections import projections
from mailmend.admin.schema.migrating import history, history_document
from mailmend.admin.schema.verify import verify, verify_document

SCHEMA: Final = router("schema")


@SCHEMA.get(
    "/schema",
    responses=responses(SchemaBody, "What differs.", **BUSY),
    summary="Compare the schema with its model",
)
async def verify_schema(desk: ServedApi, _: Reader) -> Response:
    """As `mailmend schema verify`."""
    return answered(verify_document(await desk.done(verify, desk.connection, asks=False)))


@SCHEMA.get(
    "/schema/history",
    responses=responses(SchemaHistoryBody, "The history.", **BUSY),
    summary="What was applied to the schema",
)
async def show_schema_history(desk: ServedApi, _: Reader) -> Response:
    """As `mailmend schema history`."""
    return answered(history_document(await desk.done(history, desk.connection, asks=False)))


DeclarationName = Annotated[
    Literal["mail", "james"],
    Query(description="mail: messages and mailboxes; james: James's other tables."),
]


@SCHEMA.get(
    "/projections",
    responses=responses(ProjectionsBody, "The projections.", **BUSY),
    summary="Which tables follow from which truth",
)
async def list_projections(
    desk: ServedApi,
    _: Reader,
    declaration: DeclarationName = "mail",
) -> Response:
    """As `mailmend projections verify`, of a declaration that mailmend has itself."""
    found = await desk.done(projections.verify, desk.connection, Path(declaration), asks=False)
    return answered(projections.verify_document(found))
