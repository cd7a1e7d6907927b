"""Routes of mail queues. No route answers the content of a mail."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from mailmend.admin.api.http.models import (
    FlushedBody,
    KeptFilesBody,
    QueueBody,
    QueuedMailsBody,
    QueuesBody,
    RemovedBody,
    RestoredBody,
)
from mailmend.admin.api.http.shared import (
    BUSY,
    OF_QUEUE,
    PAGE,
    PageAfter,
    PageLimit,
    ServedApi,
    router,
)
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.frame.http.application import Operator, Reader, log_change
from mailmend.admin.frame.http.bodies import (
    DryRun,
    DurationText,
    StrictBody,
    answered,
    normal_at,
    responses,
)
from mailmend.admin.frame.values import instant_text
from mailmend.admin.queue.health import HealthRequest, health_document, queue_health
from mailmend.admin.queue.options import AGE_MAX
from mailmend.admin.queue.reading import (
    BrowseRequest,
    SizeRequest,
    browse,
    browse_document,
    list_document,
    list_queues,
    queue_size,
    size_document,
)
from mailmend.admin.queue.redrive import flush, flush_document
from mailmend.admin.queue.remove import (
    DeleteRequest,
    PurgeRequest,
    RemoveResult,
    RestoreRequest,
    delete,
    purge,
    remove_document,
    restore,
    restore_document,
)
from mailmend.admin.queue.request import DryRunRequest, MailSelection, QueueRequest
from mailmend.mailqueue.rules.mails import ListingPosition
from mailmend.model.durations import parse_duration
from mailmend.model.errors import NotThere
from mailmend.model.grammar import wanted_mailbox

QUEUES: Final = router("queues")
SoughtText = Annotated[str, Field(min_length=1, max_length=1000)] | SkipJsonSchema[None]
Age = DurationText | SkipJsonSchema[None]


class MailSelectionBody(StrictBody):
    """Which mails: all conditions hold. `*` stands for anything."""

    sender: Annotated[SoughtText, Field(description="<> is the null sender.")] = None
    recipient: SoughtText = None
    name: SoughtText = None
    state: SoughtText = None
    older_than: Annotated[Age, Field(description="Enqueued longer ago.")] = None
    newer_than: Annotated[Age, Field(description="Enqueued no longer ago.")] = None
    ids: Annotated[tuple[UUID, ...], Field(max_length=1000)] = ()
    where: Literal["waiting", "delayed"] | SkipJsonSchema[None] = None

    def selection(self) -> MailSelection:
        """The selection of the command.

        Raises:
            WrongUse: no mailbox is like the sender or the recipient.
        """
        addresses = dict[str, Any]()
        for name in ("sender", "recipient"):
            if given := getattr(self, name):
                addresses[name] = normal_at(name, wanted_mailbox, given)
        ages = dict[str, Any]()
        for name in ("older_than", "newer_than"):
            if given := getattr(self, name):
                ages[name] = parse_duration(given, maximum=AGE_MAX)
        return MailSelection(
            name=self.name,
            state=self.state,
            ids=self.ids,
            where=self.where,
            **addresses,
            **ages,
        )


@QUEUES.get(
    "/queues",
    responses=responses(QueuesBody, "The queues.", **BUSY),
    summary="List the queues",
)
async def list_all_queues(desk: ServedApi, by: Reader) -> Response:
    """As `mailmend queue list`: how many mails each holds, and where it begins."""
    return answered(
        list_document(await desk.done(list_queues, QueueRequest(settings=desk.settings), by=by)),
    )


@QUEUES.get(
    "/queues/{queue}",
    responses=responses(QueueBody, "The queue.", **OF_QUEUE),
    summary="Show the size and the health of a queue",
)
async def show_queue(
    *,
    desk: ServedApi,
    by: Reader,
    queue: str,
    broker: Annotated[bool, Query(description="Ask the broker too: up to 6 seconds.")] = False,
) -> Response:
    """As `mailmend queue size` and `mailmend queue health`."""
    settings = await desk.of_queue(queue)
    size = size_document(await desk.done(queue_size, SizeRequest(settings=settings), by=by)).json
    health = HealthRequest(settings=settings, no_broker=not broker)
    judged = health_document(await desk.done(queue_health, health, by=by)).json
    assert size is not None
    assert judged is not None
    (own,) = judged["queues"]
    return JSONResponse({**size, "health": own, "exit": judged["exit"]})


class MailsQuery(MailSelectionBody):
    """A page of mails."""

    limit: PageLimit = PAGE
    after: PageAfter = None


@QUEUES.get(
    "/queues/{queue}/mails",
    responses=responses(QueuedMailsBody, "A page.", **OF_QUEUE),
    summary="List the mails of a queue",
)
async def list_mails(
    desk: ServedApi,
    by: Reader,
    queue: str,
    query: Annotated[MailsQuery, Query()],
) -> Response:
    """As `mailmend queue browse`: envelopes, and no content."""
    after = None
    if query.after:
        after = ListingPosition.parse(query.after)
    request = BrowseRequest(
        settings=await desk.of_queue(queue),
        selection=query.selection(),
        limit=query.limit,
        after=after,
    )
    return answered(browse_document(await desk.done(browse, request, by=by)))


class FlushBody(StrictBody):
    """Deliver delayed mails now."""

    dry_run: DryRun = False


@QUEUES.post(
    "/queues/{queue}/flush",
    responses=responses(FlushedBody, "What was done.", **OF_QUEUE),
    summary="Deliver every delayed mail now",
)
async def flush_queue(
    desk: ServedApi,
    by: Operator,
    request: Request,
    queue: str,
    given: FlushBody,
) -> Response:
    """As `mailmend queue flush`."""
    asked = DryRunRequest(settings=await desk.of_queue(queue), dry_run=given.dry_run)
    result = await desk.done(flush, asked, by=by)
    if not given.dry_run:
        log_change(request, "a queue was flushed", queue=queue, count=result.found.count)
    return answered(flush_document(result))


class RemoveBody(StrictBody):
    """How to remove mails."""

    dry_run: DryRun = False
    no_keep: Annotated[bool, Field(description="Keep no copy.")] = False


class DeleteBody(RemoveBody):
    """Remove the mails that match."""

    selection: MailSelectionBody


class PurgeBody(RemoveBody):
    """Remove every mail."""

    confirm: Annotated[bool, Field(description="Without it the call is refused.")] = False


@QUEUES.post(
    "/queues/{queue}/delete",
    responses=responses(RemovedBody, "What was removed.", **OF_QUEUE),
    summary="Remove the mails that match",
)
async def delete_mails(
    desk: ServedApi,
    by: Operator,
    request: Request,
    queue: str,
    given: DeleteBody,
) -> Response:
    """As `mailmend queue delete`: a copy is kept on the machine of this server."""
    asked = DeleteRequest(
        settings=await desk.of_queue(queue),
        selection=given.selection.selection(),
        dry_run=given.dry_run,
        no_keep=given.no_keep,
    )
    return _removed(request, await desk.done(delete, asked, by=by))


@QUEUES.post(
    "/queues/{queue}/purge",
    responses=responses(RemovedBody, "What was removed.", _409="Not confirmed.", **OF_QUEUE),
    summary="Remove every mail of a queue",
)
async def purge_queue(
    desk: ServedApi,
    by: Operator,
    request: Request,
    queue: str,
    given: PurgeBody,
) -> Response:
    """As `mailmend queue purge`: a copy is kept on the machine of this server."""
    asked = PurgeRequest(
        settings=await desk.of_queue(queue),
        dry_run=given.dry_run,
        no_keep=given.no_keep,
        yes=given.confirm,
    )
    return _removed(request, await desk.done(purge, asked, by=by))


def _removed(request: Request, result: RemoveResult) -> Response:
    if not result.request.dry_run:
        removed = result.removed
        queue = result.request.queue
        kept = None
        if result.kept:
            kept = result.kept.name
        fields = {
            "queue": queue,
            "count": removed.count,
            "failed": len(removed.failed),
            "kept": kept,
        }
        log_change(request, "mails were removed", **fields)
    return answered(remove_document(result))


_KEPT: Final = ".jsonl.gz"


@QUEUES.get(
    "/kept-mails",
    responses=responses(KeptFilesBody, "The files."),
    summary="List files of removed mails",
)
async def list_kept_files(desk: ServedApi, _: Operator) -> Response:
    """The files that a delete or a purge wrote on the machine of this server."""
    return JSONResponse({"files": await desk.done(_kept_files, asks=False)})


def _kept_files() -> Sequence[dict[str, Any]]:
    found = []
    for file in state_folder("queue").glob(f"*{_KEPT}"):
        known = file.stat()
        changed_at = instant_text(datetime.fromtimestamp(known.st_mtime, UTC))
        found.append({"file": file.name, "size_bytes": known.st_size, "changed_at": changed_at})
    found.sort(key=lambda each: str(each["changed_at"]), reverse=True)
    return found


class RestoreBody(StrictBody):
    """Put removed mails back."""

    file: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,250}\.jsonl\.gz$", description="Its name."),
    ]
    ids: Annotated[tuple[UUID, ...], Field(max_length=1000, description="Only these mails.")] = ()
    again: Annotated[bool, Field(description="A second copy of each mail that is back.")] = False
    dry_run: DryRun = False


@QUEUES.post(
    "/kept-mails/restore",
    responses=responses(
        RestoredBody,
        "What was put back.",
        _404="There is no such file.",
        _409="All of them are back.",
        **BUSY,
    ),
    summary="Put back what a delete or purge removed",
)
async def restore_mails(
    desk: ServedApi,
    by: Operator,
    request: Request,
    given: RestoreBody,
) -> Response:
    """As `mailmend queue restore`: each mail returns into the queue that it was in."""
    asked = RestoreRequest(
        settings=desk.settings,
        file=_kept(given.file),
        ids=given.ids,
        again=given.again,
        dry_run=given.dry_run,
    )
    result = await desk.done(restore, asked, by=by)
    if not given.dry_run:
        log_change(
            request,
            "mails were restored",
            file=given.file,
            count=result.restored,
            failed=len(result.failed),
        )
    return answered(restore_document(result))


def _kept(name: str) -> Path:
    file = state_folder("queue") / name
    if not file.is_file():
        raise NotThere(
            f"there is no file {name} of removed mails",
            mend="List them with: GET /v1/kept-mails",
        )
    return file
