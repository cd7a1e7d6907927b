"""Compare the broker, the tables and the blobs of a queue, without stopping traffic; and mend what is asked for."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.queue.connections import PulsarConnections, QueueConnections, with_queues
from mailmend.admin.queue.removed_mails import RemovedMailsFile, removed_mails_path
from mailmend.admin.queue.request import DryRunRequest, confirm
from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.comparison import (
    DRAIN_MAX,
    Drained,
    Mended,
    QueueFinding,
    Reconciled,
    compared,
    compared_topics,
    left_after,
    refuse_drain,
)
from mailmend.mailqueue.pulsar.reconcile import QueueTopics
from mailmend.mailqueue.queue import IDS_MAX
from mailmend.mailqueue.rabbitmq.reconcile import drained, missing_in, tables_side, with_lookups
from mailmend.mailqueue.rabbitmq.reconcile_mend import Keeping, MendRequest
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.errors import BadPayload, BlobMissing, ExitCode, WrongUse
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.table import Row

_BLOB_COLUMNS: Final = ("headerblobid", "bodyblobid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileRequest(DryRunRequest):
    """Compare the sides of one queue."""

    drain: bool = False
    force: bool = False
    republish: bool = False
    older_than: timedelta = timedelta(hours=1)
    mark: tuple[UUID, ...] = ()
    no_blobs: bool = False
    ids_max: int = IDS_MAX
    yes: bool = False

    @property
    def mending(self) -> MendRequest:
        return MendRequest(self.republish, self.older_than, frozenset(map(EnqueueId, self.mark)))


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """What was found and what was mended (or would be, in a dry run).

    Attributes:
        left: how many findings of each kind are left.
        kept: files with what was removed.
        without_content: how many mails were kept without their bytes, which are missing.
    """

    request: ReconcileRequest
    found: Reconciled
    mended: Mended
    left: Mapping[QueueFinding, int]
    kept: tuple[Path, ...] = ()
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        if self.mended.failed:
            return ExitCode.PARTLY_FAILED
        return ExitCode.DRIFT if self.left else ExitCode.FINE


def reconcile(request: ReconcileRequest, caller: Caller) -> ReconcileResult:
    """Compare the sides, then mend; a dry run only says what would be mended.

    Raises:
        WrongUse: options that contradict each other.
        UnsafeRequest: no person agreed, or a guard refused.
    """
    if request.settings.pulsar:
        _refuse_what_topics_need_not(request)
    if request.force and not request.drain:
        raise WrongUse("--force is for --drain", mend="Say both, or neither.")
    if request.drain:
        question = f"Take every message of {request.queue} unacked for a moment? Consumers must be paused."
        confirm(question, caller, yes=request.yes)
    return with_queues(request.settings, lambda connections: _reconciled(connections, request, caller), makes=False)


def _refuse_what_topics_need_not(request: ReconcileRequest) -> None:
    if request.drain:
        raise WrongUse(
            "--drain is for a broker that cannot be searched, and Pulsar's topics are read as they are",
            mend="Leave it out: every message is looked at without it, and none is taken.",
        )
    if request.republish:
        raise WrongUse(
            "--republish is for mails that a table lists and the broker lacks, and a queue over Pulsar has no table",
            mend="Leave it out: what its topics list is what is delivered.",
        )
    if request.mark and request.no_blobs:
        raise WrongUse(
            "--mark takes a mail's bytes with it, which are kept first, and --no-blobs leaves them out",
            mend="Say one of them.",
        )


async def _reconciled(connections: QueueConnections, request: ReconcileRequest, caller: Caller) -> ReconcileResult:
    caller.progress.stage("looking at broker and tables")
    found = await _compared(connections, request)
    if request.mending.nothing:
        return ReconcileResult(request, found, Mended(), left_after(found, Mended()))
    caller.progress.stage("mending")
    removed = _Removed.of(connections, request)
    try:
        done = await _mended(connections, found, request, removed)
    except BaseException:
        for path in removed.paths:
            caller.remark(f"Kept in {path}")
        raise
    left = left_after(found, Mended() if request.dry_run else done)
    return ReconcileResult(request, found, done, left, removed.paths, removed.without_content)


async def _mended(
    connections: QueueConnections, found: Reconciled, request: ReconcileRequest, removed: "_Removed"
) -> Mended:
    dry_run = request.dry_run
    if isinstance(connections, PulsarConnections):
        async with connections.open(dry_run=dry_run) as queue:
            marked = _topics(connections, request).marked
            return await marked(queue, request.mending.mark, removed.keep_mail, dry_run=dry_run)
    async with connections.open_tabled(dry_run=dry_run) as tabled:
        keeping = Keeping(removed.keep_mail, removed.keep_row)
        return await tabled.mend(found, request.mending, keeping, dry_run=dry_run)


async def _compared(connections: QueueConnections, request: ReconcileRequest) -> Reconciled:
    if isinstance(connections, PulsarConnections):
        return await _compared_topics(connections, request)
    view = connections.view
    name = request.queue
    depth = await connections.broker.depth(name)
    named = await _drained(connections, name, depth, request) if request.drain else None
    tables = await tables_side(view, name, request.ids_max)
    missing = None if request.no_blobs else await missing_in(view, name, connections.blobs, tables.live)
    if named is not None:
        named = await with_lookups(view, name, named, tables)
    return compared(name, connections.now, tables, depth=depth, missing=missing, drained=named)


async def _compared_topics(connections: PulsarConnections, request: ReconcileRequest) -> Reconciled:
    topics = _topics(connections, request)
    async with connections.open(dry_run=True) as queue:
        depth = (await queue.figures()).depth
    look = await topics.look(request.ids_max)
    missing = None if request.no_blobs else await topics.missing_among(connections.blobs, look.mails)
    return compared_topics(request.queue, connections.now, look.side, depth, missing)


def _topics(connections: PulsarConnections, request: ReconcileRequest) -> QueueTopics:
    return QueueTopics(request.queue, connections.topics, connections.clock)


async def _drained(connections: QueueConnections, queue: QueueName, depth: Depth, request: ReconcileRequest) -> Drained:
    refuse_drain(queue, depth, forced=request.force)
    return await drained(connections.broker, connections.clock, queue, depth, DRAIN_MAX, request.mending.mark)


@dataclass(slots=True)
class _Removed:
    """Keeps a copy in a file before anything is removed: of mails, and of unreadable rows."""

    connections: QueueConnections
    with_content: bool
    mails: RemovedMailsFile
    without_content: int = 0

    @classmethod
    def of(cls, connections: QueueConnections, request: ReconcileRequest) -> "_Removed":
        state = state_folder("queue")
        now = connections.now
        mails = RemovedMailsFile(removed_mails_path(state, request.queue, now, "mark"), request.queue)
        return cls(connections, not request.no_blobs, mails)

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.mails.path,) if self.mails.count else ()

    async def keep_mail(self, listed: Listed) -> None:
        content = (await self.connections.content_of(listed)).content if self.with_content else None
        self.without_content += content is None
        await self.mails.keep(listed, content)

    async def keep_row(self, row: Row) -> None:
        """A row that cannot be decoded as a mail, with those of its blobs that exist."""
        blobs = {}
        for column in _BLOB_COLUMNS if self.with_content else ():
            with suppress(BlobMissing, BadPayload):
                blobs[column] = await self.connections.blobs.get(BlobId(row[column] or ""))
        await self.mails.keep_row(row, blobs)
