"""`mailmend queue list`, `size` and `browse`: what a queue holds, read from the tables."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.frame.values import fields_json, plain, printable, shown
from mailmend.admin.queue.connections import QueueConnections, with_queues
from mailmend.admin.queue.options import FILTERS, QUEUE_ARGUMENT, queue_settings, where
from mailmend.admin.queue.request import (
    PAGE_MAILS,
    STARTS,
    MailContent,
    MailSelection,
    QueueAnswer,
    QueueRequest,
    mail_json,
    mails_table,
    queue_document,
)
from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.concurrency import in_batches, in_order
from mailmend.mailqueue.metrics import FigureScope
from mailmend.mailqueue.rules.mails import Listed, ListingPosition
from mailmend.mailqueue.rules.size import CountedBy, Size, SizeKind
from mailmend.model.errors import ExitCode
from mailmend.model.ids import QueueName

CONTENTS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """One queue as its tables show it; a start is None where it was never set."""

    name: QueueName
    size: Size
    browse_start: datetime | None
    content_start: datetime | None
    swept_at: datetime | None


def list_queues(request: QueueRequest, _: Caller) -> QueueAnswer[QueueRequest, Sequence[QueueOverview]]:
    async def listed(connections: QueueConnections) -> QueueAnswer[QueueRequest, Sequence[QueueOverview]]:
        queues = list[QueueOverview]()
        for name in await connections.names(everything=True):
            async with connections.open(name, dry_run=True) as queue:
                size = await queue.size()
                seen = await queue.figures(FigureScope.STARTS)
            queues.append(QueueOverview(name, size, seen.browse_start, seen.content_start, seen.swept_at))
        return QueueAnswer(request, queues)

    return with_queues(request.settings, listed)


def queue_names(settings: QueueSettings) -> list[QueueName]:
    """The names of all queues of the keyspace, or of the namespace."""

    async def named(connections: QueueConnections) -> list[QueueName]:
        return await connections.names(everything=True)

    return with_queues(settings, named, makes=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest(QueueRequest):
    """Count the mails of one queue; `recount` reads every row first and corrects the tallies."""

    recount: bool = False


def queue_size(request: SizeRequest, caller: Caller) -> QueueAnswer[SizeRequest, Size]:
    async def counted(connections: QueueConnections) -> QueueAnswer[SizeRequest, Size]:
        async with connections.open(dry_run=True) as queue:
            if request.recount and (left := await queue.recount()):
                caller.remark(
                    f"{left:,} slices are not counted: a process changes them, or may still report changes. Count "
                    "again in ten minutes."
                )
            return QueueAnswer(request, await queue.size())

    return with_queues(request.settings, counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseRequest(QueueRequest):
    """List mails of one queue. With `lines` each goes to the caller as it comes; the result then holds none."""

    selection: MailSelection = field(default_factory=MailSelection)
    limit: int | None = None
    after: ListingPosition | None = None
    with_content: bool = False
    lines: bool = False


@dataclass(frozen=True, slots=True)
class BrowsedMail:
    """One listed mail, the time of the listing, and its content where asked for."""

    listed: Listed
    at: datetime
    content: MailContent | None = None


@dataclass(frozen=True, slots=True)
class BrowseResult:
    """A page of mails.

    Attributes:
        next: where the next page begins; None: this was the last one.
        broken: rows that cannot be read.
    """

    request: BrowseRequest
    mails: tuple[BrowsedMail, ...]
    next: ListingPosition | None
    broken: tuple[BrokenRow, ...]

    @property
    def exit(self) -> ExitCode:
        if self.broken:
            return ExitCode.PARTLY_FAILED
        return ExitCode.FINE


def browse(request: BrowseRequest, caller: Caller) -> BrowseResult:

    async def browsed(connections: QueueConnections) -> BrowseResult:
        found = list[BrowsedMail]()
        broken = list[BrokenRow]()
        count = 0
        most = request.limit or None
        if not request.lines:
            most = most or PAGE_MAILS
        wanted = request.selection.at(connections.now)
        async with connections.open(dry_run=True) as queue:
            listing = queue.browse(wanted, request.after, on_broken=broken.append)
            async with aclosing(_with_content(connections, listing, wanted=request.with_content)) as mails:
                async for mail in mails:
                    if count == most:
                        behind = None
                        if found:
                            behind = ListingPosition.of(found[-1].listed)
                        return BrowseResult(request, tuple(found), behind, tuple(broken))
                    count += 1
                    if request.lines:
                        caller.item(mail)
                    else:
                        found.append(mail)
        return BrowseResult(request, tuple(found), None, tuple(broken))

    return with_queues(request.settings, browsed, makes=False)


async def _with_content(
    connections: QueueConnections, listing: AsyncIterator[Listed], *, wanted: bool
) -> AsyncGenerator[BrowsedMail]:
    if not wanted:
        async for listed in listing:
            yield BrowsedMail(listed, connections.now)
        return
    async for page in in_batches(listing, CONTENTS_AT_ONCE):
        async with aclosing(in_order(page, connections.content_of, CONTENTS_AT_ONCE)) as mails:
            async for listed, content in mails:
                yield BrowsedMail(listed, connections.now, content)


_QUEUE_COLUMNS: Final = ("queue", "waiting", "delayed", "counted", "browse start", "content start", "last sweep")


def list_document(result: QueueAnswer[QueueRequest, Sequence[QueueOverview]]) -> Document:
    place = result.request.place
    columns: tuple[str, ...] = _QUEUE_COLUMNS
    starts: tuple[str, ...] = STARTS
    if "keyspace" not in result.request.home:
        columns = _QUEUE_COLUMNS[: -len(STARTS)]
        starts = ()
    queues = list[dict[str, Any]]()
    for overview in result.found:
        size = _size_json(overview.size)
        queues.append({"queue": overview.name, **size, **fields_json(overview, *starts)})
    body: Part = f"{place} has no queue yet: nothing was ever enqueued."
    if result.found:
        body = Grid(f"Queues of {place}", columns, [_cells(overview)[: len(columns)] for overview in result.found])
    return Document({**result.request.home, "queues": queues, "exit": 0}, (body,))


def _size_json(size: Size) -> dict[str, Any]:
    json = dict(plain(size))
    if size.counted_by is CountedBy.BROKER:
        del json["slices_read"]
    return json


def _cells(overview: QueueOverview) -> tuple[str, ...]:
    size = overview.size
    about = "" if size.kind is SizeKind.EXACT else "about "
    starts = [shown(at) if at else "" for at in (overview.browse_start, overview.content_start, overview.swept_at)]
    return (overview.name, f"{about}{size.mails:,}", f"{size.delayed:,}", size.counted_by.value, *starts)


def size_document(result: QueueAnswer[SizeRequest, Size]) -> Document:
    size = result.found
    queue = result.request.queue
    about = "" if size.kind is SizeKind.EXACT else "About "
    delayed = ""
    if size.delayed:
        delayed = f", {size.delayed:,} are delayed"
    line = f"{about}{size.mails:,} mails wait in {queue}{delayed} ({_counted(size)})."
    return queue_document(result, _size_json(size), (line,))


def _counted(size: Size) -> str:
    match size.counted_by:
        case CountedBy.METADATA:
            return f"counted row by row, {size.slices_read:,} slices"
        case CountedBy.TALLIES:
            return f"by the tallies, {size.slices_read:,} slices"
        case CountedBy.BROKER:
            return "by the broker"


def browse_document(result: BrowseResult) -> Document:
    remarks = [
        f"not readable: {row.enqueue_id} in the slice of {row.slice_start:%Y-%m-%d %H:%M:%S}: {row.why}"
        for row in result.broken
    ]
    if result.request.lines:
        return Document(exit=result.exit, remarks=remarks)
    token = None
    if result.next:
        token = result.next.token
    json = {"mails": [browsed_json(mail) for mail in result.mails], "next": token}
    return queue_document(result, json, _page(result, token), remarks)


def browsed_json(mail: BrowsedMail) -> dict[str, Any]:
    return mail_json(mail.listed, mail.at, mail.content)


def _page(result: BrowseResult, token: str | None) -> list[Part]:
    queue = result.request.queue
    if not result.mails:
        return [f"No mail of {queue} matches."]
    body: list[Part] = [mails_table(f"Mails of {queue}", [mail.listed for mail in result.mails], result.mails[0].at)]
    for mail in result.mails:
        if mail.content is not None:
            body += [f"--- {mail.listed.queued.enqueue_id}", _text(mail.content)]
    if token:
        body.append(f"There are more. Next: mailmend queue browse --queue {queue} --after {token}")
    return body


def _text(content: MailContent) -> str:
    if content.content is None:
        return f"(its content is missing: blob {content.missing})"
    return printable(content.content.decode("utf-8", "replace").replace("\r\n", "\n"), kept="\n\t")


LIST: Final = Command(
    name="list",
    summary="The queues, how many mails each holds, where it begins.",
    about="Reads the tables only; writes nothing.",
    service="mailmend.admin.queue.reading:list_queues",
    present="mailmend.admin.queue.reading:list_document",
    paged=True,
    shared=(queue_settings(named=False),),
    examples="""
        mailmend queue list
        mailmend queue list --json | jq '.queues[] | select(.mails > 1000).queue'""",
    exits="0 it was shown, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached.",
)

SIZE: Final = Command(
    name="size",
    summary="How many mails wait; exact or estimate.",
    about="""Delayed mails are counted too. The duration depends on the number of slices, not on the number of mails.
    `exact` is a count; `estimate` may be off by what is under way, by what a process that was killed had not reported,
    or, in a keyspace that James has created, by what James did just now. Writes nothing, unless asked to --recount.""",
    service="mailmend.admin.queue.reading:queue_size",
    present="mailmend.admin.queue.reading:size_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--recount", "Read every row first, and correct the tallies of all processes; writes tallies."),
    ),
    shared=(queue_settings(),),
    examples="""
        mailmend queue size
        mailmend queue size outgoing --json | jq .mails
        mailmend queue size --recount                   where it has been an estimate for long""",
    exits="0 it was counted, 2 wrong use (the keyspace has no queue), 4 the cluster cannot be reached.",
)


def _position(value: Any) -> ListingPosition:
    if isinstance(value, ListingPosition):
        return value
    return ListingPosition.parse(str(value))


BROWSE: Final = Command(
    name="browse",
    summary="The mails of a queue, filtered, page by page.",
    about="""The mails that wait come first, slice by slice, the oldest first; then the delayed mails. Only metadata
    is read, and no broker is asked. An unacked mail, which a consumer has, is still listed: it leaves the queue when
    it is acked. Writes nothing.""",
    service="mailmend.admin.queue.reading:browse",
    present="mailmend.admin.queue.reading:browse_document",
    paged=True,
    item="mailmend.admin.queue.reading:browsed_json",
    options=(
        QUEUE_ARGUMENT,
        option(
            "--limit",
            f"Maximum number of mails. [default: {PAGE_MAILS}; all of them with --lines]",
            type=click.IntRange(min=1),
            metavar="N",
        ),
        option(
            "--after",
            "Continue after an earlier page: the token that its end names.",
            type=ParsedValue("position", _position),
            metavar="TOKEN",
        ),
        flag("--with-content", "Read the mails' bytes too; what is missing is named, and the rest shown."),
        flag(
            "--lines",
            "Write each mail as a line of JSON on stdout, while they are read; --json is one object at the end.",
        ),
    ),
    shared=(FILTERS, queue_settings(blobs=where("with_content"))),
    examples="""
        mailmend queue browse                                        the first 100 of spool
        mailmend queue browse outgoing --sender '*@example.org' --older-than 1h
        mailmend queue browse --id ID --with-content                 one mail, its bytes too
        mailmend queue browse --lines | jq -r .id                    all of them, a line each""",
    exits="0 it was shown, 2 wrong use, 3 rows were found that cannot be read (each is named), 4 cannot reach.",
)
