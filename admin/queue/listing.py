"""What a queue holds, read from the tables: every queue, its size, its mails."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.queue.connections import MailContent, QueueConnections, with_queues
from mailmend.admin.queue.request import PAGE_MAILS, MailSelection, QueueAnswer, QueueRequest
from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.concurrency import in_batches, in_order
from mailmend.mailqueue.health import FigureScope
from mailmend.mailqueue.rules.mails import Listed
from mailmend.mailqueue.rules.positions import ListingPosition
from mailmend.mailqueue.rules.size import Size
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest(QueueRequest):
    """Count the mails of one queue; `recount` reads every row first and corrects the tallies."""

    recount: bool = False


def queue_size(request: SizeRequest, caller: Caller) -> QueueAnswer[SizeRequest, Size]:
    async def counted(connections: QueueConnections) -> QueueAnswer[SizeRequest, Size]:
        async with connections.open(dry_run=True) as queue:
            if request.recount and (left := await queue.recount()):
                caller.remark(
                    f"{left:,} slices were being changed, or by a process that may still report: count again in ten "
                    "minutes."
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
        return ExitCode.PARTLY_FAILED if self.broken else ExitCode.FINE


def browse(request: BrowseRequest, caller: Caller) -> BrowseResult:

    async def browsed(connections: QueueConnections) -> BrowseResult:
        found = list[BrowsedMail]()
        broken = list[BrokenRow]()
        count = 0
        most = request.limit or (None if request.lines else PAGE_MAILS)
        wanted = request.selection.at(connections.now)
        async with connections.open(dry_run=True) as queue:
            listing = queue.browse(wanted, request.after, on_broken=broken.append)
            async with aclosing(_with_content(connections, listing, wanted=request.with_content)) as mails:
                async for mail in mails:
                    if count == most:
                        behind = ListingPosition.of(found[-1].listed) if found else None
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
